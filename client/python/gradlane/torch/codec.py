"""Names of codecs.

The daemon has most codecs, and Engine.find_codec() asks for them. fixed:adaptive is part of this package; no daemon
knows it. Other names cannot be checked before there is a connection.
"""

from __future__ import annotations

from typing import Any, Protocol

from .. import _codecs, adaptive, errors
from ..adaptive import AdaptiveBound


class Daemon(Protocol):
    """Interface to the daemon's codecs, which Engine implements. `codec` is the codec of operations that name none."""

    @property
    def codec(self) -> str: ...

    @property
    def codecs(self) -> _codecs.Codecs: ...

    def find_codec(self, name: str | None) -> Any:
        """Returns the codec of this name. Raises BadArgument if there is none."""

    def table(self) -> tuple[_codecs.Codec, ...]:
        """Returns all codecs of the daemon."""


def check(codec: object, engine: Daemon | None) -> str | None:
    """Returns the full name of a codec: "fixed" becomes "fixed:adaptive", a name of release 0.1 its new one.

    Raises BadArgument if there is no such codec. If `engine` is None, only names of fixed:adaptive are checked.
    """
    if codec is None:
        return None
    codecs = _codecs.ASSUMED if engine is None else engine.codecs
    if not isinstance(codec, str):
        kind = type(codec).__name__
        names = f"'{codecs.exact}' or '{codecs.adaptive}'"
        raise errors.bad_argument(f"gradlane: codec {codec!r} is {kind}; allowed: a name such as {names}")
    if codec == codecs.word:
        return codecs.adaptive
    codec = _codecs.renewed(codec)
    own = AdaptiveBound.parse(codec) is not None and codec.split(":")[0] == codecs.word
    if not own and engine is not None:
        engine.find_codec(codec)
    return codec


def unknown(error: errors.BadArgument, name: str | None, engine: Daemon) -> errors.BadArgument:
    """Returns the library's error for an unknown name, with the form of fixed:adaptive added to the text."""
    codecs = engine.codecs
    own = f"{codecs.adaptive} or {codecs.adaptive}:BITS (BITS {adaptive.MIN_BITS} to {adaptive.MAX_BITS})"
    word = _codecs.word_of(name or engine.codec)
    known = any(codec.word == word for codec in engine.table())
    more = "" if known and word != codecs.word else f" or {own}" if known else f", {own}"
    return errors.bad_argument(f"gradlane: {error}{more}")


def is_adaptive(codec: str | None) -> bool:
    """Returns whether a name that check() has returned is of fixed:adaptive."""
    return codec is not None and _codecs.is_adaptive(codec)


def bound_of(codec: str | None, engine: Daemon | None, window: int = 1) -> AdaptiveBound | None:
    """Returns a new AdaptiveBound for fixed:adaptive, None for other codecs."""
    bound = AdaptiveBound.parse(codec, window)
    if bound is not None and engine is not None:
        bound._codecs = engine.codecs
    return bound
