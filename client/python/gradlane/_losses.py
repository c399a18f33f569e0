"""Warnings of the library: a codec takes much of the values."""

import os
import sys
import warnings

from . import errors

_PACKAGE = os.path.join(os.path.dirname(__file__), "")  # as names of code begin


def warn(lib, handle):
    """Passes on what the library has to say, if it has, as a LossWarning of the caller's line. Raises it if warnings
    are errors; nothing else depends on that."""
    text = lib.gradlane_warning(handle)
    while text:
        warnings.warn(text.decode(errors="replace"), errors.LossWarning, stacklevel=_level_of_caller())
        text = lib.gradlane_warning(handle)


def _level_of_caller():
    """For warnings.warn() in a function that calls this: of the first frame outside of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
