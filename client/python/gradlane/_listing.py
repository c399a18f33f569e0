"""What a context knows of the daemon's codecs."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

from . import _arguments, _buffers, _codecs, errors
from ._codecs import Codec
from ._core import Core


class Listing(Core):
    """Base of Context."""

    def codecs(self) -> tuple[Codec, ...]:
        """Those of the daemon."""
        return _codecs.table(self._connection)

    def find_codec(self, name: str | None = None) -> Codec:
        """The one that this name is of, "fixed:10" say; None: the daemon's. Raises BadArgument if there is none."""
        return _codecs.find(self._connection, _arguments.codec_name(name, self._codecs))

    def residual_for(self, array: NDArray[Any], codec: str | None = None) -> NDArray[numpy.float32]:
        """A residual for sums of the array by this codec (None: the daemon's): zeros in shared memory, of shape
        (states, array.size).

        Raises BadArgument if there is no such codec, or it takes none; and what zeros() raises.
        """
        found = self.find_codec(codec)
        if found.states == 0:
            able = _codecs.with_residual(self.codecs(), found.word)
            one = f"; one that does is {able}" if able else ""
            raise errors.bad_argument(f"codec {codec or self.codec} takes no residual{one}")
        shape = found.states, array.size
        return _buffers.array_over(self._allocate(4 * found.states * array.size), shape, numpy.float32)
