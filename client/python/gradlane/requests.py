"""Operations under way."""

import time

import numpy

from . import buffers, errors

# Between two of these Python sees signals, Ctrl-C above all.
_SLICE_MS = 100


class Operand:
    """An array that an operation works on: in place if it lies in shared memory, else a copy of it."""

    def __init__(self, context, array, what):
        if not isinstance(array, numpy.ndarray):
            raise errors.bad_argument(f"{what} is {type(array).__name__}, not a NumPy array")
        if not array.flags.writeable:
            raise errors.bad_argument(f"{what} is not writable, and results go there")
        self.array = array
        self._context = context
        self._block = None
        block = buffers.block_of(array)
        if block is not None and block.connection is context.connection and array.flags.c_contiguous:
            self.address = array.ctypes.data
            return
        self._block = context.borrow(array.nbytes)
        self._copy()[...] = array
        self.address = self._block.address

    def _copy(self):
        return buffers.array_over(self._block, self.array.shape, self.array.dtype)

    def copy_back(self):
        if self._block is not None:
            self.array[...] = self._copy()

    def release(self):
        """The daemon is done with it."""
        if self._block is not None:
            self._context.give_back(self._block)
            self._block = None


class Request:
    """An operation that was started with async_=True.

    The arrays belong to the daemon until wait() or done() says that it is over. Every request must be waited for (or
    tested until it is over): at most 64 can be unfinished.
    """

    def __init__(self, context, number, data, residual):
        self._context = context
        self._number = number
        self._data = data
        self._residual = residual
        self._over = False
        self._error = None

    def wait(self, timeout=None):
        """Waits until it is over and returns the array that was passed (None of a barrier).

        timeout: seconds, None: no limit. Raises TimeoutError if it is not over then, which leaves it as it is, and
        OperationFailed or DaemonGone if that is how it ended. Ctrl-C interrupts the wait, not the operation.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self._over:
            slice_ms = _SLICE_MS
            if end is not None:
                left = end - time.monotonic()
                if left <= 0 and self.done():
                    break
                if left <= 0:
                    raise TimeoutError(f"the operation has not ended within {timeout} s")
                slice_ms = min(_SLICE_MS, int(left * 1000) + 1)
            self._take(self._context.wait_in_library(self._number, slice_ms))
        if self._error is not None:
            raise self._error
        return None if self._data is None else self._data.array

    def done(self):
        """Whether it is over, however it ended; wait() then returns or raises at once."""
        if not self._over:
            self._take(self._context.wait_in_library(self._number, 0))
        return self._over

    def cancel(self):
        """Has it fail on all ranks, if it is not over. It must still be waited for."""
        if not self._over:
            self._context.cancel_in_library(self._number)

    def disconnected(self, error):
        """The context is closing."""
        self._end(error)

    def _take(self, error):
        if error is None or error.code != errors.PENDING:
            self._end(error)

    def _end(self, error):
        self._over = True
        self._error = error
        self._context.forget(self._number)
        if self._data is not None and error is None:
            self._data.copy_back()
        # Zeros, if the operation failed.
        if self._residual is not None and (error is None or isinstance(error, errors.OperationFailed)):
            self._residual.copy_back()
        for operand in (self._data, self._residual):
            if operand is not None:
                operand.release()
