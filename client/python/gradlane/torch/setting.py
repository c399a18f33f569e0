"""Which codec the backend's sums of float32 go through, and which way round its all-reduces go."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import ContextManager, Iterator

from .. import errors
from .._arguments import strategy_name
from .._library import EXACT_BELOW
from ..adaptive import AdaptiveBound
from .codec import bound_of, check, is_adaptive
from .engine import Engine

_WINDOW = 8  # of adaptive bounds, which several tensors of one size may share


class Setting:
    """What use_codec() and use_strategy() have set, of the whole process."""

    name: str | None = None  # None: the daemon's
    strategy: str | None = None  # None: the daemon's
    bounds: dict[int, AdaptiveBound] = {}  # of fixed:adaptive, by number of elements

    @classmethod
    def choose(cls, numel: int, engine: Engine | None = None) -> tuple[str | None, AdaptiveBound | None]:
        """For a sum of so many float32: (codec, None), or for fixed:adaptive (None, the bound to ask and to tell)."""
        if numel < EXACT_BELOW:
            return None, None
        name = cls.name or of_the_job()
        bound = cls.bounds.get(numel) or bound_of(name, engine, _WINDOW)
        if bound is None or not is_adaptive(name):
            return name, None
        cls.bounds[numel] = bound
        return None, bound

    @classmethod
    def tell(cls) -> None:
        """What it is now, to the engine, where sums go without Python. Bounds of fixed:adaptive are kept in Python."""
        if Engine.exists():
            name = cls.name or of_the_job()
            Engine.existing().tell(name, cls.strategy, not is_adaptive(name))

    @classmethod
    def verify(cls, engine: Engine | None) -> None:
        """Raises BadArgument if there are no such codecs, as far as that can be known. None: there is no daemon."""
        check(cls.name, engine)
        if engine is not None:
            engine.find_strategy(cls.strategy)
        with _of_the_environment():
            check(of_the_job(), engine)


@contextlib.contextmanager
def _of_the_environment() -> Iterator[None]:
    try:
        yield
    except errors.BadArgument as error:
        raise errors.bad_argument(f"GRADLANE_CODEC in the environment: {error}") from None


@functools.lru_cache(None)
def of_the_job() -> str | None:
    """What `gradlane run --codec fixed:adaptive` has named, which daemons do not know; else None, for the daemon's."""
    with _of_the_environment():
        return check(os.environ.get("GRADLANE_CODEC") or None, None)


def use_codec(name: str | None) -> ContextManager[None]:
    """The codec of the backend's sums of float32 from now on, in this process; all ranks must say the same.

    "raw": exact, which is the default. "fixed:adaptive", "fixed:adaptive:6" or "fixed": with bounds that follow the
    tensors' magnitudes (gradlane.AdaptiveBound), one for all tensors with the same number of elements. "fixed:8",
    "bf16", ...: see docs/codecs.md, also on what they lose. None: what the daemon's configuration or gradlane run
    names, raw if they name none. Raises BadArgument if there is no such codec; before init_process_group(), which then
    raises it, only the names of fixed:adaptive can be looked at. Used as a context manager, it sets back the old one at
    the end, with its bounds.
    """
    old = Setting.name, Setting.bounds
    Setting.name, Setting.bounds = check(name, Engine.existing() if Engine.exists() else None), {}
    Setting.tell()

    @contextlib.contextmanager
    def scope() -> Iterator[None]:
        try:
            yield
        finally:
            Setting.name, Setting.bounds = old
            Setting.tell()

    return scope()


def use_strategy(name: str | None) -> ContextManager[None]:
    """Which way round the backend's all-reduces go from now on, in this process; all ranks must say the same.

    "ring", "direct", "rings:4", "aggregator:0": one of those that the daemon's configuration allows; None: its first.
    All other operations go by that one. Raises BadArgument if the daemon does not allow it; before
    init_process_group(), which then raises it, nobody knows. Used as a context manager, it sets back the old one.
    """
    old = Setting.strategy
    if Engine.exists():
        Engine.existing().find_strategy(name)
    strategy_name(name)
    Setting.strategy = name
    Setting.tell()

    @contextlib.contextmanager
    def scope() -> Iterator[None]:
        try:
            yield
        finally:
            Setting.strategy = old
            Setting.tell()

    return scope()
