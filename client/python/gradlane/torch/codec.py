"""Which codec the backend's sums of float32 go through."""

import contextlib

from .. import errors
from ..adaptive import AdaptiveBound

EXACT = 1024  # tensors of fewer elements are control values more often than gradients: they travel as they are
_WINDOW = 8  # of adaptive bounds, which several tensors of one size may share


def check(codec):
    """Raises BadArgument if it cannot be the name of a codec."""
    if codec is not None and not isinstance(codec, str):
        raise errors.bad_argument(f"gradlane: codec {codec!r} is {type(codec).__name__}; it is a name, 'fixed:8' say")


class Setting:
    """What use_codec() has set, of the whole process."""

    name = None  # None: the daemon's
    bounds = {}  # of fixed:auto, by number of elements

    @classmethod
    def set(cls, name):
        check(name)
        AdaptiveBound.parse(name)  # raises if it is a bad fixed:auto
        cls.name, cls.bounds = name, {}

    @classmethod
    def choose(cls, numel):
        """For a sum of so many float32: (codec, None), or for fixed:auto (None, the bound to ask and to tell)."""
        if numel < EXACT:
            return "raw", None
        if AdaptiveBound.parse(cls.name) is None:
            return cls.name, None
        if numel not in cls.bounds:
            cls.bounds[numel] = AdaptiveBound.parse(cls.name, window=_WINDOW)
        return None, cls.bounds[numel]


def use_codec(name):
    """The codec of the backend's sums of float32 from now on, in this process; all ranks must say the same.

    "raw", "bf16", "fixed:8", ...; None: the daemon's. "fixed:auto", "fixed:auto:6": bounds that follow the tensors'
    magnitudes (gradlane.AdaptiveBound): all tensors with the same number of elements share one. Used as a context
    manager, it sets back the old one at the end, with its bounds.
    """
    old = Setting.name, Setting.bounds
    Setting.set(name)

    @contextlib.contextmanager
    def scope():
        try:
            yield
        finally:
            Setting.name, Setting.bounds = old

    return scope()
