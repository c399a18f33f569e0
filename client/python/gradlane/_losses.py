"""Warnings of the library that a codec loses much of the values."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from types import FrameType
from typing import Any, NamedTuple

from . import errors

_PACKAGE = os.path.join(os.path.dirname(__file__), "")  # start of the file names of this package's code


class Caller(NamedTuple):
    """The line of a program that a warning is about, in the form that warnings.warn_explicit() takes."""

    filename: str
    lineno: int
    module: str
    registry: dict[Any, Any] | None


def caller(*others: str) -> Caller:
    """Returns the innermost line outside of this package and of `others`, which are starts of file names.

    A thread that Python has started for the package has no such line. Its warnings name no file.
    """
    inside = (_PACKAGE, threading.__file__, *others)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    if frame is None:
        return Caller("gradlane", 0, __package__, None)
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    return Caller(frame.f_code.co_filename, frame.f_lineno, names.get("__name__") or "<unknown>", registry)


def warn(lib: ctypes.CDLL, handle: ctypes.c_void_p | int | None, line: Caller | None = None) -> None:
    """Reports the library's warnings, if it has any, as LossWarnings of this line; None: of the caller's line.

    If warnings are errors, it raises the first one. The operation is not affected.
    """
    text = lib.gradlane_warning(handle)
    while text:
        line = line or caller()
        say(text.decode(errors="replace"), line)
        text = lib.gradlane_warning(handle)


def say(text: str, line: Caller) -> None:
    """Reports the text as a LossWarning of this line."""
    warnings.warn_explicit(text, errors.LossWarning, *line)
