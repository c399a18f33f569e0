"""The codecs that this package chooses by itself: by what the daemon says they can do, and not by their names."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Iterable, NamedTuple

from ._library import Capability, CodecInfo

if TYPE_CHECKING:
    from ._buffers import Connection

ADAPTIVE = "adaptive"  # in place of B
_OLD = "auto"  # its name in release 0.1


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
    def adaptive(self) -> str:
        """The name for a B that follows the tensor."""
        return f"{self.word}:{ADAPTIVE}"


# Until a daemon says what it has; some never do.
ASSUMED = Codecs("raw", "fixed", 1, 30)


class Codec(NamedTuple):
    """What a codec is, and what it can do.

    word: its name up to the colon. usage: how to write the whole name. example: one such name. option: what may stand
    behind B and a comma, or "". variant: a word behind a comma that tells codecs of one `word` apart, or "". least,
    most: of B; most is 0 where there is none. states: arrays that a residual has, each as large as the data; 0: it
    takes none. promise: in a few words. source: the paper, or "". flags: gradlane.Capability.
    """

    word: str
    usage: str
    example: str
    option: str
    variant: str
    least: int
    most: int
    states: int
    promise: str
    source: str
    flags: Capability


def told(info: CodecInfo) -> Codec:
    """What the library has written."""
    texts = (info.word, info.usage, info.example, info.option, info.variant, info.promise, info.source)
    word, usage, example, option, variant, promise, source = ((text or b"").decode(errors="replace") for text in texts)
    return Codec(word, usage, example, option, variant, info.least, info.most, info.states, promise, source,
                 Capability(info.flags))


def table(connection: Connection) -> tuple[Codec, ...]:
    """All of the daemon's."""
    codecs = []
    for number in range(connection.lib.gradlane_codecs(connection.handle)):
        info = CodecInfo(ctypes.sizeof(CodecInfo))
        connection.check(connection.lib.gradlane_get_codec(connection.handle, number, ctypes.byref(info)))
        codecs.append(told(info))
    return tuple(codecs)


def find(connection: Connection, name: bytes | None) -> Codec:
    """The one of this name, None: the daemon's. Raises BadArgument if there is none."""
    info = CodecInfo(ctypes.sizeof(CodecInfo))
    connection.check(connection.lib.gradlane_find_codec(connection.handle, name, ctypes.byref(info)))
    return told(info)


def word_of(name: str) -> str:
    """Up to what stands behind it."""
    return re.split("[:,/+]", name)[0]


def with_residual(codecs: Iterable[Codec], word: str) -> str:
    """The name of a codec that takes residuals, of this word if there is one; "": there is none."""
    able = [codec for codec in codecs if codec.states > 0]
    return next((codec.example for codec in able if codec.word == word), able[0].example if able else "")


def is_adaptive(name: str) -> bool:
    """Whether it is WORD:adaptive, with or without what may follow, or is meant to be; or as release 0.1 had it."""
    return name.partition(":")[2].startswith((ADAPTIVE, _OLD))


def renewed(name: str) -> str:
    """A name that release 0.1 had, WORD:auto, as it is now; any other as it is."""
    word, colon, rest = name.partition(":")
    old, more, bits = rest.partition(":")
    return f"{word}:{ADAPTIVE}{more}{bits}" if colon and old == _OLD else name


def of(connection: Connection) -> Codecs:
    """Those of the daemon. Where it has several of a kind, the first."""
    result, missing = ASSUMED, Capability.EXACT | Capability.ADAPTIVE
    for codec in table(connection):
        found = missing & codec.flags
        if found & Capability.EXACT:
            result = result._replace(exact=codec.word)
        if found & Capability.ADAPTIVE:
            result = result._replace(word=codec.word, least=codec.least, most=codec.most)
        missing &= ~found
    return result
