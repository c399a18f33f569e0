"""The daemon's codecs. This package chooses among them by the capabilities that the daemon reports, not by their names.
"""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Iterable, NamedTuple

from ._library import Capability, CodecInfo

if TYPE_CHECKING:
    from ._buffers import Connection

ADAPTIVE = "adaptive"  # stands in a codec's name in place of the number B, as in "fixed:adaptive"
_OLD = "auto"  # name of ADAPTIVE in release 0.1


class Codecs(NamedTuple):
    """Codecs that an AdaptiveBound chooses from.

    `exact`: name of the codec that loses nothing. `word`: name, up to the colon, of the codec whose errors are at most
    2^-B. `least`, `most`: range of its B.
    """

    exact: str
    word: str
    least: int
    most: int

    @property
    def adaptive(self) -> str:
        """Name of the codec whose B follows the tensor."""
        return f"{self.word}:{ADAPTIVE}"


# Default until the daemon reports its codecs. Old daemons never report them.
ASSUMED = Codecs("raw", "fixed", 1, 30)


class Codec(NamedTuple):
    """Description of a codec.

    `word`: its name up to the colon. `usage`: syntax of the whole name. `example`: one such name. `option`: text that
    may follow B and a comma, or "". `variant`: word after a comma that distinguishes codecs of one `word`, or "".
    `least`, `most`: range of B; `most` is 0 if there is no B. `states`: number of arrays in a residual, each as large
    as the data; 0 if the codec takes no residual. `promise`: its guarantee in a few words. `source`: the paper, or "".
    `flags`: gradlane.Capability.
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
    """Returns the Codec that the library has described in `info`."""
    texts = (info.word, info.usage, info.example, info.option, info.variant, info.promise, info.source)
    word, usage, example, option, variant, promise, source = ((text or b"").decode(errors="replace") for text in texts)
    return Codec(word, usage, example, option, variant, info.least, info.most, info.states, promise, source,
                 Capability(info.flags))


def table(connection: Connection) -> tuple[Codec, ...]:
    """Returns all codecs of the daemon."""
    codecs = []
    for number in range(connection.lib.gradlane_codecs(connection.handle)):
        info = CodecInfo(ctypes.sizeof(CodecInfo))
        connection.check(connection.lib.gradlane_get_codec(connection.handle, number, ctypes.byref(info)))
        codecs.append(told(info))
    return tuple(codecs)


def find(connection: Connection, name: bytes | None) -> Codec:
    """Returns the codec of this name; None stands for the daemon's default. Raises BadArgument if there is none."""
    info = CodecInfo(ctypes.sizeof(CodecInfo))
    connection.check(connection.lib.gradlane_find_codec(connection.handle, name, ctypes.byref(info)))
    return told(info)


def word_of(name: str) -> str:
    """Returns the first word of a codec's name, which ends before the first ":", ",", "/" or "+"."""
    return re.split("[:,/+]", name)[0]


def with_residual(codecs: Iterable[Codec], word: str) -> str:
    """Returns the example name of a codec that takes residuals: of the codec with this `word` if possible. Returns ""
    if no codec takes residuals."""
    able = [codec for codec in codecs if codec.states > 0]
    return next((codec.example for codec in able if codec.word == word), able[0].example if able else "")


def is_adaptive(name: str) -> bool:
    """Returns whether a name is WORD:adaptive, or WORD:auto as in release 0.1, or begins like these."""
    return name.partition(":")[2].startswith((ADAPTIVE, _OLD))


def renewed(name: str) -> str:
    """Returns a name of release 0.1, WORD:auto, in its present form, and any other name unchanged."""
    word, colon, rest = name.partition(":")
    old, more, bits = rest.partition(":")
    return f"{word}:{ADAPTIVE}{more}{bits}" if colon and old == _OLD else name


def of(connection: Connection) -> Codecs:
    """Returns the codecs of the daemon that an AdaptiveBound chooses from. If several codecs have the same capability,
    the first one counts."""
    result, missing = ASSUMED, Capability.EXACT | Capability.ADAPTIVE
    for codec in table(connection):
        found = missing & codec.flags
        if found & Capability.EXACT:
            result = result._replace(exact=codec.word)
        if found & Capability.ADAPTIVE:
            result = result._replace(word=codec.word, least=codec.least, most=codec.most)
        missing &= ~found
    return result
