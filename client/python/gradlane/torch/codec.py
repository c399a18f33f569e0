"""Names of codecs.

Most are the daemon's, which the library asks (Engine.find_codec()); fixed:auto, which no daemon knows, is of this
package. Before there is a connection nobody can say whether there is a codec of some name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import adaptive, errors
from ..adaptive import AdaptiveBound

if TYPE_CHECKING:
    from .engine import Engine

EXACT = 1024  # tensors of fewer elements are control values more often than gradients: they travel as they are


def check(codec: object, engine: Engine | None) -> str | None:
    """The codec, or what its short form stands for: "fixed" is "fixed:auto". Raises BadArgument if there is none."""
    if codec is None:
        return None
    if not isinstance(codec, str):
        kind = type(codec).__name__
        raise errors.bad_argument(f"gradlane: codec {codec!r} is {kind}; it is a name, 'raw' or '{adaptive.NAME}' say")
    if codec == adaptive.WORD:
        return adaptive.NAME
    if AdaptiveBound.parse(codec) is None and engine is not None:
        engine.find_codec(codec)
    return codec


def is_adaptive(codec: str | None) -> bool:
    """Of what check() has returned."""
    return codec is not None and codec.startswith(adaptive.NAME)


def bound_of(codec: str | None, window: int = 1) -> AdaptiveBound | None:
    """A new AdaptiveBound for fixed:auto; None for other codecs."""
    return AdaptiveBound.parse(codec, window)
