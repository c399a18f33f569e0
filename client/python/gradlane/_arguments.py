"""Arguments of the public functions: what is wrong with one raises BadArgument, which says what to write instead."""

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
_SHOWN = 100  # characters of a value in a message
MAX_MS = (1 << 31) - 1


def wrong(what: str, value: object, allowed: str) -> errors.BadArgument:
    """The exception: allowed says what it could be."""
    text = repr(value)
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}..."
    return errors.bad_argument(f"{what} is {text} ({type(value).__name__}); it is {allowed}")


def whole(what: str, value: Any, low: int, high: int) -> int:
    """A whole number from low to high, as an int; NumPy's are fine, bools are not."""
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
    """NumPy's bools are fine, numbers are not."""
    if not isinstance(value, _BOOLS):
        raise wrong(what, value, "True or False")
    return bool(value)


def seconds(what: str, value: Any) -> float:
    """As a float, 0 or more; inf is none."""
    real: Any = value if isinstance(value, (numbers.Real, numpy.number)) and not isinstance(value, _BOOLS) else -1
    if not real >= 0:  # NaN neither
        raise wrong(what, value, "a number of seconds, 0 or more, or None")
    return float(real)


def milliseconds(what: str, value: Any) -> int:
    """Of a time limit in seconds, which is above 0. None, and what is longer than any operation: 0."""
    if value is None:
        return 0
    limit = seconds(what, value)
    if limit == 0:
        raise wrong(what, value, "a number of seconds above 0, or None")
    return MAX_MS if limit * 1000 > MAX_MS else math.ceil(limit * 1000)


def path(what: str, value: Any) -> bytes | None:
    """As bytes; None stays None."""
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
    """As bytes; None stays None. Whether there is such a codec is the daemon's to say. codecs: what it has."""
    if codec is None:
        return None
    if not isinstance(codec, str):
        raise wrong("codec", codec, "a name, 'raw' or 'fixed:10' say, or of all_reduce a gradlane.AdaptiveBound")
    if codec == codecs.word or codec.split(":")[0] == codecs.word and is_adaptive(codec):
        bits = codec.split(":")[-1]
        bits = f"{bits}, " if bits.isdigit() else ""
        raise errors.bad_argument(
            f"codec is {codec!r}, and a call has no steps before it to find a bound from: name one, '{codecs.word}:10' "
            f"say, or pass a gradlane.AdaptiveBound({bits}error_feedback=True), one per "
            "tensor, kept from step to step"
        )
    if not codec.isascii() or not codec.isprintable():
        raise wrong("codec", codec, "a name, 'raw' or 'fixed:10' say")
    return codec.encode()


def strategy_name(strategy: object) -> bytes | None:
    """As bytes; None stays None. Whether the daemon allows it is the daemon's to say."""
    if strategy is None:
        return None
    if not isinstance(strategy, str) or not strategy.isascii() or not strategy.isprintable():
        raise wrong("strategy", strategy, "a name, 'ring', 'direct', 'rings:4' or 'aggregator:0' say")
    return strategy.encode()


def reduction(value: object) -> Reduction:
    """Of "sum", "min" or "max"."""
    found = _REDUCTIONS.get(value) if isinstance(value, str) else None
    if found is None:
        raise wrong("reduction", value, "'sum', 'min' or 'max'")
    return found


def shape(what: str, value: Any, itemsize: int) -> tuple[int, tuple[int, ...]]:
    """The bytes of an array of this shape, and the shape as a tuple."""
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
        raise errors.bad_argument(f"{what} is {value!r}, which is {total} bytes")
    return total, tuple(numbers_)
