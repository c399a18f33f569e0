"""Names of codecs.

Most are the daemon's, which the library asks (Engine.find_codec()); fixed:adaptive, which no daemon knows, is of this
package. Before there is a connection nobody can say whether there is a codec of some name.
"""

from __future__ import annotations

from typing import Any, Protocol

from .. import _codecs, adaptive, errors
from ..adaptive import AdaptiveBound


class Daemon(Protocol):
    """Who knows the daemon's codecs: an Engine. codec: that of operations that name none."""

    @property
    def codec(self) -> str: ...

    @property
    def codecs(self) -> _codecs.Codecs: ...

    def find_codec(self, name: str | None) -> Any:
        """Raises BadArgument if there is none of this name."""

    def table(self) -> tuple[_codecs.Codec, ...]:
        """All of the daemon's."""


def check(codec: object, engine: Daemon | None) -> str | None:
    """The codec, or what its short form stands for: "fixed" is "fixed:adaptive".

    Raises BadArgument if there is none.
    """
    if codec is None:
        return None
    codecs = _codecs.ASSUMED if engine is None else engine.codecs
    if not isinstance(codec, str):
        kind = type(codec).__name__
        names = f"'{codecs.exact}' or '{codecs.adaptive}'"
        raise errors.bad_argument(f"gradlane: codec {codec!r} is {kind}; it is a name, {names} say")
    if codec == codecs.word:
        return codecs.adaptive
    codec = _codecs.renewed(codec)
    own = AdaptiveBound.parse(codec) is not None and codec.split(":")[0] == codecs.word
    if not own and engine is not None:
        engine.find_codec(codec)
    return codec


def unknown(error: errors.BadArgument, name: str | None, engine: Daemon) -> errors.BadArgument:
    """What the library says of a name that it does not know, and what of this package's may have been meant."""
    codecs = engine.codecs
    own = f"{codecs.adaptive} or {codecs.adaptive}:BITS (BITS {adaptive.MIN_BITS} to {adaptive.MAX_BITS})"
    word = _codecs.word_of(name or engine.codec)
    known = any(codec.word == word for codec in engine.table())
    more = "" if known and word != codecs.word else f" or {own}" if known else f", {own}"
    return errors.bad_argument(f"gradlane: {error}{more}")


def is_adaptive(codec: str | None) -> bool:
    """Of what check() has returned."""
    return codec is not None and _codecs.is_adaptive(codec)


def bound_of(codec: str | None, engine: Daemon | None, window: int = 1) -> AdaptiveBound | None:
    """A new AdaptiveBound for fixed:adaptive; None for other codecs."""
    bound = AdaptiveBound.parse(codec, window)
    if bound is not None and engine is not None:
        bound._codecs = engine.codecs
    return bound
