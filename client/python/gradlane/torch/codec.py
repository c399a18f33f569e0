"""Which codecs there are for float32, and which one the backend's sums go through."""

import contextlib
import functools
import os
import re

from .. import adaptive, errors
from ..adaptive import AdaptiveBound

EXACT = 1024  # tensors of fewer elements are control values more often than gradients: they travel as they are
_WINDOW = 8  # of adaptive bounds, which several tensors of one size may share
_BITS = (adaptive.MIN_BITS, adaptive.MAX_BITS)

# Those of the daemon (compress/codec.cc; a test compares) and fixed:auto. So that a wrong name is found where it is
# set, which may be before there is a daemon to ask.
_KINDS = (
    (re.compile(r"raw|bf16|fp16"), None, "raw, bf16, fp16"),
    (re.compile(r"inceptionn:([0-9]+)(,truncate)?"), (2, 14), "inceptionn:B or inceptionn:B,truncate (B 2 to 14)"),
    (re.compile(r"fixed:([0-9]+)"), (1, adaptive.MAX_B), f"fixed:B (B 1 to {adaptive.MAX_B})"),
    (re.compile(r"fixed(?::auto(?::([0-9]+))?)?"), _BITS,
     f"fixed:auto or fixed:auto:BITS (BITS {_BITS[0]} to {_BITS[1]})"),
)
ALL = ", ".join(text for _, _, text in _KINDS)
_AUTO = _KINDS[-1][0]


def check(codec):
    """The codec, or what its short form stands for: "fixed" is "fixed:auto". Raises BadArgument if there is none."""
    if codec is None:
        return None
    if not isinstance(codec, str):
        raise errors.bad_argument(f"gradlane: codec {codec!r} is {type(codec).__name__}; it is a name, of {ALL}")
    for pattern, allowed, _ in _KINDS:
        match = pattern.fullmatch(codec)
        number = allowed and match and match[1]
        if match and (not number or allowed[0] <= int(number) <= allowed[1]):
            return adaptive.NAME if codec == "fixed" else codec
    raise errors.bad_argument(f"gradlane: codec {codec!r}: there is no such codec; there are {ALL}")


def is_adaptive(codec):
    """Of what check() has returned."""
    return codec is not None and _AUTO.fullmatch(codec) is not None


def bound_of(codec, window=1):
    """A new AdaptiveBound for fixed:auto; None for other codecs."""
    if not is_adaptive(codec):
        return None
    bits = _AUTO.fullmatch(codec)[1]
    return AdaptiveBound(int(bits) if bits else adaptive.DEFAULT_BITS, window)


class Setting:
    """What use_codec() has set, of the whole process."""

    name = None  # None: the daemon's
    bounds = {}  # of fixed:auto, by number of elements

    @classmethod
    def choose(cls, numel):
        """For a sum of so many float32: (codec, None), or for fixed:auto (None, the bound to ask and to tell)."""
        if numel < EXACT:
            return "raw", None
        name = cls.name or of_the_job()
        if not is_adaptive(name):
            return name, None
        if numel not in cls.bounds:
            cls.bounds[numel] = bound_of(name, _WINDOW)
        return None, cls.bounds[numel]


@functools.lru_cache(None)
def of_the_job():
    """What `gradlane run --codec fixed:auto` has named, which daemons do not know; else None, for the daemon's."""
    name = os.environ.get("GRADLANE_CODEC")
    try:
        return check(name or None)
    except errors.BadArgument as error:
        raise errors.bad_argument(f"GRADLANE_CODEC in the environment: {error}") from None


def use_codec(name):
    """The codec of the backend's sums of float32 from now on, in this process; all ranks must say the same.

    "raw": exact, which is the default. "fixed:auto", "fixed:auto:6" or "fixed": with bounds that follow the tensors'
    magnitudes (gradlane.AdaptiveBound), one for all tensors with the same number of elements. "fixed:8", "bf16", ...:
    see docs/codecs.md. None: what the daemon's configuration or gradlane run names, raw if they name none. Raises
    BadArgument if there is no such codec. Used as a context manager, it sets back the old one at the end, with its
    bounds.
    """
    old = Setting.name, Setting.bounds
    Setting.name, Setting.bounds = check(name), {}

    @contextlib.contextmanager
    def scope():
        try:
            yield
        finally:
            Setting.name, Setting.bounds = old

    return scope()
