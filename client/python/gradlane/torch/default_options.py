"""Codec of the backend's sums of float32, and strategy of its all-reduces."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import ContextManager, Iterator

import torch

from .. import errors
from .._arguments import flag, strategy_name
from .._library import EXACT_BELOW
from ..adaptive import AdaptiveBound
from .codec import bound_of, check, is_adaptive
from .engine import Engine
from .tasks import Tasks

_WINDOW = 8  # number of results that an adaptive bound follows; several tensors of one size may share a bound


class DefaultOptions:
    """Settings of use_codec() and use_strategy(), for the whole process."""

    name: str | None = None  # codec of use_codec(); None: that of of_the_job(), or the daemon's
    strategy: str | None = None  # strategy of use_strategy(); None: the daemon's
    bounds: dict[int, AdaptiveBound] = {}  # bounds of fixed:adaptive, by number of elements

    @classmethod
    def choose(cls, tensor: torch.Tensor, engine: Engine | None = None) -> tuple[str | None, AdaptiveBound | None]:
        """Returns (codec, None) for a sum of such tensors. For fixed:adaptive returns (None, bound), which chooses the
        codec; or (None, None) for tensors that it does not serve."""
        name = cls.name or of_the_job()
        if not is_adaptive(name):
            return name, None
        numel = tensor.numel()
        if tensor.dtype != torch.float32 or numel < EXACT_BELOW:
            return None, None
        bound = cls.bounds.get(numel) or bound_of(name, engine, _WINDOW)
        if bound is None:
            return name, None
        cls.bounds[numel] = bound
        return None, bound

    @classmethod
    def tell(cls) -> None:
        """Passes the settings to the engine's FastPath, whose all-reduces bypass Python. It must not run sums by
        fixed:adaptive, because their bounds are kept in Python."""
        if Engine.exists():
            name = cls.name or of_the_job()
            Engine.existing().tell(name, cls.strategy, not is_adaptive(name))

    @classmethod
    def verify(cls, engine: Engine | None) -> None:
        """Raises BadArgument if codec or strategy does not exist. If `engine` is None, only names of fixed:adaptive are
        checked."""
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
    """Returns the codec of GRADLANE_CODEC, or None. `gradlane run --codec fixed:adaptive` sets it, as daemons do not
    know that codec."""
    with _of_the_environment():
        return check(os.environ.get("GRADLANE_CODEC") or None, None)


def use_codec(name: str | None) -> ContextManager[None]:
    """Sets the codec of the backend's sums of float32, in this process and from now on. All ranks must set the same.

    - "raw" is exact.
    - "fixed:adaptive", "fixed:adaptive:6" and "fixed" have bounds that follow the tensors' magnitudes
      (gradlane.AdaptiveBound). Tensors with the same number of elements share one.
    - "fixed:8", "bf16" and others, with their losses, are in docs/codecs.md.
    - None, the initial setting, is the codec of gradlane run or of the daemon's configuration, raw if they name none.

    Raises BadArgument if there is no such codec. Before init_process_group(), this is known only for names of
    fixed:adaptive; init_process_group() raises the error for all other names. Used as a context manager, it restores
    the old codec and its bounds at the end.
    """
    old = DefaultOptions.name, DefaultOptions.bounds
    DefaultOptions.name, DefaultOptions.bounds = check(name, Engine.existing() if Engine.exists() else None), {}
    DefaultOptions.tell()

    @contextlib.contextmanager
    def scope() -> Iterator[None]:
        try:
            yield
        finally:
            DefaultOptions.name, DefaultOptions.bounds = old
            DefaultOptions.tell()

    return scope()


def use_strategy(name: str | None) -> ContextManager[None]:
    """Sets the strategy of the backend's all-reduces, in this process and from now on. All ranks must set the same.

    A strategy is an algorithm of the all-reduce: "ring", "direct", "rings:4", "aggregator:0". The daemon's
    configuration says which are allowed. None: the first of these, which all other operations use. Raises BadArgument
    if the daemon does not allow the strategy. Before init_process_group() this is not known, so init_process_group()
    raises the error. Used as a context manager, it restores the old strategy at the end.
    """
    old = DefaultOptions.strategy
    if Engine.exists():
        Engine.existing().find_strategy(name)
    strategy_name(name)
    DefaultOptions.strategy = name
    DefaultOptions.tell()

    @contextlib.contextmanager
    def scope() -> Iterator[None]:
        try:
            yield
        finally:
            DefaultOptions.strategy = old
            DefaultOptions.tell()

    return scope()


def hash_results(on: bool = True) -> None:
    """Turns the running hash of results on or off, in this process and from now on. All ranks must call it at the same
    place.

    The hash covers all-reduces, all-gathers and broadcasts of gradlane, in their order. All ranks have the same one.
    Each result is hashed where the daemon put it, at about 10 GB/s. check_replicas() compares the hashes of the ranks.

        gradlane.torch.hash_results()
        ...
        count, value = gradlane.torch.results_hash()
        print(f"step {step}: {value:016x} after {count} results")
    """
    Tasks.hashes = flag("on", on)
    DefaultOptions.tell()


def results_hash() -> tuple[int, int]:
    """Returns the number of results that this rank has hashed, and their running hash, 0 at first. An operation that is
    under way does not count, and one in several pieces counts as often.

    A result with the hash h, which is XXH64 with seed 0, changes the running hash to XXH64 of 16 bytes: the old value
    and h, both little-endian. Returns zeros if there is no connection. Raises DaemonGone.
    """
    return Engine.existing().results_hash() if Engine.exists() else (0, 0)
