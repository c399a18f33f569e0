"""Arrays as operations use them: directly if they are in shared memory, otherwise as copies in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from . import _buffers, errors
from ._forms import Form

if TYPE_CHECKING:
    from ._protocols import Memory

_NOTHING: NDArray[Any] = numpy.empty(0)


def check_array(what: str, array: object, written: bool = True) -> None:
    """Raises BadArgument if `array` cannot hold data, and a result if it is `written`."""
    if not isinstance(array, numpy.ndarray):
        raise errors.bad_argument(
            f"{what} is {type(array).__name__}, not a NumPy array: results go into the array that you pass, so make "
            "one, for example with gl.zeros()"
        )
    # The type is compared first, because newer NumPy imports numpy.ma at its first use.
    if type(array) is not numpy.ndarray and isinstance(array, numpy.ma.MaskedArray):
        raise errors.bad_argument(f"{what} is a masked array, and masks are not sent: pass its .data, or .filled()")
    if written and not array.flags.writeable:
        raise errors.bad_argument(f"{what} is read-only, but the result is written to it: pass a copy")


def bounds(array: NDArray[Any]) -> tuple[int, int]:
    """Returns the addresses of the first byte of the array, and of the byte after the last."""
    low = high = array.__array_interface__["data"][0]
    if array.size == 0:
        return low, low
    for count, stride in zip(array.shape, array.strides):
        low, high = low + min(stride * (count - 1), 0), high + max(stride * (count - 1), 0)
    return low, high + array.itemsize


def overlap(array: NDArray[Any], other: NDArray[Any]) -> bool:
    """Returns whether the arrays share elements, wherever they lie. Returns False if that takes too long to find out.
    """
    try:
        return numpy.shares_memory(array, other, max_work=10000)
    except RuntimeError:  # TooHardError, whose module differs between NumPy versions
        return False


class Operand:
    """An array, and `work`, the array that the daemon works on: the same memory, or a copy of it.

    copy: whether `work` must be a copy. A signal handler may raise an exception before release() has returned the Block
    to the context. The Block is then freed with this object.
    """

    def __init__(self, context: Memory, array: NDArray[Any], form: Form, copy: bool = False) -> None:
        dtype, self.array = array.dtype, array
        self._view = array.view(form.dtype) if form.raw and dtype.itemsize > 0 else array
        self._block: _buffers.Block | None = None
        block = _buffers.block_of(array)
        if block is not None and block.connection is context._connection and array.flags.c_contiguous and not copy:
            if form.raw or form.dtype == dtype:
                self.work = self._view
                self.address: int = array.ctypes.data
                return
        self._block = context._borrow(array.size * form.dtype.itemsize)
        self.work = _buffers.array_over(self._block, array.shape, form.dtype)
        self.work[...] = self._view
        self.address = self._block.address

    def results(self) -> list[tuple[NDArray[Any], Any]]:
        """Returns the copies to make when the operation has ended, as a list of (target, source)."""
        return [(self._view, self.work)] if self._block is not None and self.array.flags.writeable else []

    def release(self, context: Memory) -> None:
        """Returns the Block to the context. The daemon must have finished with it."""
        block, self._block = self._block, None
        self.work = self._view = _NOTHING
        if block is not None:
            context._give_back(block)
