"""Methods of a context that describe the daemon's codecs."""

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
        """Returns all codecs of the daemon."""
        return _codecs.table(self._connection)

    def find_codec(self, name: str | None = None) -> Codec:
        """Returns the codec that a name such as "fixed:10" belongs to; None: the daemon's default. Raises BadArgument.
        """
        return _codecs.find(self._connection, _arguments.codec_name(name, self._codecs))

    def residual_for(self, array: NDArray[Any], codec: str | None = None) -> NDArray[numpy.float32]:
        """Returns a residual for sums of the array by this codec; None: the daemon's default.

        The result is zeros in shared memory, of shape (states, array.size). Raises BadArgument if there is no such
        codec, or it takes no residual. Raises what zeros() raises.
        """
        found = self.find_codec(codec)
        if found.states == 0:
            able = _codecs.with_residual(self.codecs(), found.word)
            one = f"; one that does is {able}" if able else ""
            raise errors.bad_argument(f"codec {codec or self.codec} takes no residual{one}")
        shape = found.states, array.size
        return _buffers.array_over(self._allocate(4 * found.states * array.size), shape, numpy.float32)
