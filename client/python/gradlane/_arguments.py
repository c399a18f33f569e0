"""Checks of the public functions' arguments. A wrong one raises BadArgument, whose text says what is allowed."""

from __future__ import annotations

import math
import numbers
import operator
import os
from typing import Any

import numpy

from . import errors
from ._codecs import Codecs, is_adaptive
from ._library import Reduction

_BOOLS = (bool, numpy.bool_)
_REDUCTIONS = {it.name.lower(): it for it in Reduction}
_SHOWN = 100  # longest text of a value in a message, in characters
MAX_MS = (1 << 31) - 1


def wrong(what: str, value: object, allowed: str) -> errors.BadArgument:
    """Returns the exception for a wrong argument. allowed: description of the allowed values."""
    text = repr(value)
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}..."
    return errors.bad_argument(f"{what} is {text} ({type(value).__name__}); allowed: {allowed}")


def whole(what: str, value: Any, low: int, high: int) -> int:
    """Returns a whole number from low to high as an int. NumPy's integers are allowed, bools are not. Raises
    BadArgument."""
    allowed = f"a whole number, {low} to {high if high < 1 << 63 else f'2^{high.bit_length()} - 1'}"
    if isinstance(value, _BOOLS):
        raise wrong(what, value, allowed)
    try:
        number: int = operator.index(value)
    except TypeError:
        raise wrong(what, value, allowed) from None
    if not low <= number <= high:
        raise wrong(what, value, allowed)
    return number


def flag(what: str, value: object) -> bool:
    """Returns True or False as a bool. NumPy's bools are allowed, numbers are not. Raises BadArgument."""
    if not isinstance(value, _BOOLS):
        raise wrong(what, value, "True or False")
    return bool(value)


def seconds(what: str, value: Any) -> float:
    """Returns a number of seconds as a float, 0 or more; inf stands for no limit. Raises BadArgument."""
    real: Any = value if isinstance(value, (numbers.Real, numpy.number)) and not isinstance(value, _BOOLS) else -1
    if not real >= 0:  # refuses NaN, too
        raise wrong(what, value, "a number of seconds, 0 or more, or None")
    return float(real)


def milliseconds(what: str, value: Any) -> int:
    """Returns a time limit, given in seconds above 0, as milliseconds, at most MAX_MS. Returns 0 for None. Raises
    BadArgument."""
    if value is None:
        return 0
    limit = seconds(what, value)
    if limit == 0:
        raise wrong(what, value, "a number of seconds above 0, or None")
    return MAX_MS if limit * 1000 > MAX_MS else math.ceil(limit * 1000)


def path(what: str, value: Any) -> bytes | None:
    """Returns a path as bytes; None stays None. Raises BadArgument."""
    if value is None:
        return None
    try:
        text = os.fsencode(value)
    except TypeError:
        raise wrong(what, value, "a path") from None
    if b"\0" in text:
        raise wrong(what, value, "a path, without a zero byte")
    return text


def codec_name(codec: object, codecs: Codecs) -> bytes | None:
    """Returns the name of a codec as bytes; None stays None.

    codecs: the daemon's codecs. Raises BadArgument for "fixed:adaptive", which needs an AdaptiveBound, and for a text
    that cannot be a name. Only the daemon knows whether a codec of that name exists.
    """
    if codec is None:
        return None
    if not isinstance(codec, str):
        raise wrong("codec", codec, "a name such as 'raw' or 'fixed:10', or for all_reduce a gradlane.AdaptiveBound")
    if codec == codecs.word or codec.split(":")[0] == codecs.word and is_adaptive(codec):
        bits = codec.split(":")[-1]
        bits = f"{bits}, " if bits.isdigit() else ""
        raise errors.bad_argument(
            f"codec is {codec!r}, but a single call knows no earlier steps to find a bound from: name a bound, for "
            f"example '{codecs.word}:10', or pass a gradlane.AdaptiveBound({bits}error_feedback=True), one per tensor, "
            "kept from step to step"
        )
    if not codec.isascii() or not codec.isprintable():
        raise wrong("codec", codec, "a name such as 'raw' or 'fixed:10'")
    return codec.encode()


def strategy_name(strategy: object) -> bytes | None:
    """Returns the name of a strategy as bytes; None stays None. The daemon decides whether it is allowed. Raises
    BadArgument."""
    if strategy is None:
        return None
    if not isinstance(strategy, str) or not strategy.isascii() or not strategy.isprintable():
        raise wrong("strategy", strategy, "a name such as 'ring', 'direct', 'rings:4' or 'aggregator:0'")
    return strategy.encode()


def reduction(value: object) -> Reduction:
    """Returns the Reduction for "sum", "min" or "max". Raises BadArgument."""
    found = _REDUCTIONS.get(value) if isinstance(value, str) else None
    if found is None:
        raise wrong("reduction", value, "'sum', 'min' or 'max'")
    return found


def shape(what: str, value: Any, itemsize: int) -> tuple[int, tuple[int, ...]]:
    """Returns the number of bytes of an array of this shape, and the shape as a tuple. Raises BadArgument."""
    allowed = "a whole number of elements, or a tuple of these"
    sizes = tuple(value) if isinstance(value, (tuple, list, numpy.ndarray)) and numpy.ndim(value) == 1 else (value,)
    numbers_ = []
    for size in sizes:
        try:
            numbers_.append(whole(what, size, 0, 1 << 62))
        except errors.BadArgument:
            raise wrong(what, value, allowed) from None
    total = math.prod(numbers_) * itemsize
    if total > 1 << 62:
        raise errors.bad_argument(f"{what} is {value!r}, which is {total} bytes: too many")
    return total, tuple(numbers_)
