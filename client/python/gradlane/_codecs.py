"""The codecs that this package chooses by itself: by what the daemon says they can do, and not by their names."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from ._library import Capability, CodecInfo

if TYPE_CHECKING:
    from ._buffers import Connection

AUTO = "auto"  # in place of B


class Codecs(NamedTuple):
    """What an AdaptiveBound chooses from.

    exact: the name of the codec that loses nothing. word: the name, up to the colon, of the one whose errors are at
    most 2^-B. least, most: of its B.
    """

    exact: str
    word: str
    least: int
    most: int

    @property
    def auto(self) -> str:
        """The name for a B that follows the tensor."""
        return f"{self.word}:{AUTO}"


# Until a daemon says what it has; some never do.
ASSUMED = Codecs("raw", "fixed", 1, 30)


def is_auto(name: str) -> bool:
    """Whether it is WORD:auto, with or without what may follow, or is meant to be."""
    return name.partition(":")[2].startswith(AUTO)


def of(connection: Connection) -> Codecs:
    """Those of the daemon. Where it has several of a kind, the first."""
    lib, handle = connection.lib, connection.handle
    result, missing = ASSUMED, Capability.EXACT | Capability.ADAPTIVE
    for number in range(lib.gradlane_codecs(handle)):
        info = CodecInfo(ctypes.sizeof(CodecInfo))
        connection.check(lib.gradlane_get_codec(handle, number, ctypes.byref(info)))
        found = missing & info.flags
        if found & Capability.EXACT:
            result = result._replace(exact=info.word.decode())
        if found & Capability.ADAPTIVE:
            result = result._replace(word=info.word.decode(), least=info.least, most=info.most)
        missing &= ~found
    return result
