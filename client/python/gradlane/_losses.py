"""Warnings of the library: a codec takes much of the values."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from types import FrameType
from typing import Any, NamedTuple

from . import errors

_PACKAGE = os.path.join(os.path.dirname(__file__), "")  # as names of code begin


class Caller(NamedTuple):
    """The line of a program that a warning is about: what warnings.warn_explicit() wants to know of it."""

    filename: str
    lineno: int
    module: str
    registry: dict[Any, Any] | None


def caller(*others: str) -> Caller:
    """The innermost line outside of this package and of `others`, which file names begin with.

    A thread that Python has started for the package has none: what is said then names no file.
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
    """Passes on what the library has to say, if it has, as a LossWarning of this line, None: of the caller's.

    Raises it if warnings are errors; nothing else depends on that.
    """
    text = lib.gradlane_warning(handle)
    while text:
        line = line or caller()
        say(text.decode(errors="replace"), line)
        text = lib.gradlane_warning(handle)


def say(text: str, line: Caller) -> None:
    """As a LossWarning of this line."""
    warnings.warn_explicit(text, errors.LossWarning, *line)
