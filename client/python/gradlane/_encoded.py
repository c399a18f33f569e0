"""Encoded: a contribution that is encoded before its all-reduces."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

from . import _arguments, _buffers, errors


class Encoded:
    """A rank's contribution to all-reduces of float32, made by Context.encode().

    all_reduce(array, encoded=...) reads it and leaves it as it is, any number of times, and each time with the same
    bits. It stays in shared memory until free(), or until nothing refers to it any more.

        encoded = gl.encode(gradients, codec="fixed:10")
        gl.all_reduce(gradients, encoded=encoded)  # `gradients` gets the sum of all ranks; its content does not count

    A program can also write the bytes itself, as docs/codec-format.md (encoded tensors) says, or copy those of another
    Encoded. Encoded(array, count, codec) refers to them and copies nothing:

        array = gl.zeros(gl.encoded_space(count), "uint8")
        ...                                        # write the table and the blocks
        encoded = gradlane.Encoded(array[:size], count, "fixed:10")

    The daemon checks the bytes in each all-reduce. If they are malformed, OperationFailed is raised on all ranks.

    Arguments and attributes: `array`: the bytes, uint8 of shape (nbytes,), a part of a buffer of Context.zeros().
    `count`: number of floats, at least 1. `codec`: name of the codec, such as "raw",
    "pack" or "fixed:10". Attribute `nbytes`: size of `array`; 0 after free(). Raises BadArgument.
    """

    def __init__(self, array: NDArray[numpy.uint8], count: int, codec: str) -> None:
        check_array("array", array, None)
        if not isinstance(codec, str):
            raise _arguments.wrong("codec", codec, "a name such as 'raw' or 'fixed:10'")
        self.array = array
        self.count = _arguments.whole("count", count, 1, 1 << 60)
        self.codec = codec

    def __repr__(self) -> str:
        state = f"{self.nbytes} bytes" if self.nbytes > 0 else "freed"
        return f"<gradlane.Encoded: {self.count} float32, codec {self.codec}, {state}>"

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def free(self) -> None:
        """Gives up the bytes. Their memory is freed when no operation in flight and no other array uses it."""
        self.array = numpy.empty(0, numpy.uint8)


def check_array(name: str, array: Any, connection: _buffers.Connection | None) -> None:
    """Raises BadArgument if the array cannot hold encoded bytes. connection: that of its buffer; None: any.

    name: name of the argument.
    """
    block = _buffers.block_of(array) if isinstance(array, numpy.ndarray) else None
    if block is None or array.dtype != numpy.uint8 or array.ndim != 1 or not array.flags.c_contiguous:
        what = f"{array.dtype} of shape {array.shape}" if isinstance(array, numpy.ndarray) else type(array).__name__
        raise errors.bad_argument(
            f"{name} is {what}; allowed: contiguous uint8 with one dimension, in a buffer of gl.zeros()"
        )
    if connection is not None and block.connection is not connection:
        raise errors.bad_argument(f"{name} is not in this context's memory: use gl.zeros() of this context")


def check(encoded: Any, codec: object, connection: _buffers.Connection) -> None:
    """Raises BadArgument if `encoded` is not a contribution that this connection's all-reduces can take.

    codec: the codec that the all-reduce names; None: it names none.
    """
    if not isinstance(encoded, Encoded):
        raise _arguments.wrong("encoded", encoded, "a gradlane.Encoded, from gl.encode()")
    if encoded.nbytes == 0:
        raise errors.bad_argument(f"encoded is {encoded!r}: encode the data again")
    block = _buffers.block_of(encoded.array)
    if block is None or block.connection is not connection:
        raise errors.bad_argument(
            f"encoded is {encoded!r}, which is not in this context's memory: copy its array to "
            "gl.zeros(encoded.nbytes, 'uint8')"
        )
    if codec is not None and codec != encoded.codec:
        raise errors.bad_argument(
            f"codec is {codec!r}, but the contribution is encoded by {encoded.codec!r}: leave out codec"
        )
