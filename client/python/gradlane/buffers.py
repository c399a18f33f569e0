"""NumPy arrays over memory that is shared with the daemon.

An array and all views of it keep a Block alive through their bases; when the last one is gone, so is the Block, and its
memory goes back. Requests hold references to the arrays they use. Garbage collection may run in any thread and in the
middle of a call into the library, so a Block that dies only notes what is free; the next call of its context frees it.
"""

import collections
import ctypes
import threading
import weakref

import numpy

from . import errors


class Block:
    """Shared memory; the base of arrays over it. It must not be referenced by its connection."""

    def __init__(self, connection, address, size):
        self.connection = connection
        self.address = address
        self.size = size
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False)}


class Connection:
    """A gradlane_context. It lives as long as a Context or an array over its memory does."""

    def __init__(self, lib, handle):
        self.lib = lib
        self.handle = handle
        self.closed = False
        self._blocks = 0
        self._freed = collections.deque()  # addresses; appending is safe from any thread
        self._sweeping = threading.Lock()

    def check(self, code):
        """Raises what the code says, unless it is OK."""
        if code != errors.OK:
            raise errors.error(code, self.lib.gradlane_error(self.handle).decode(errors="replace"))

    def allocate(self, size):
        """A Block of `size` bytes, zeros; size may be 0."""
        self.sweep()
        address = ctypes.c_void_p()
        self.check(self.lib.gradlane_alloc(self.handle, max(size, 1), ctypes.byref(address)))
        block = Block(self, address.value, size)
        self._blocks += 1
        weakref.finalize(block, self._release, address.value).atexit = False
        return block

    def _release(self, address):
        self._freed.append(address)
        if self.closed:
            self.sweep()  # nobody else will, and no call is under way

    def sweep(self):
        """Frees what no array uses any more."""
        # Not blocking: this may be a finalizer in the middle of a sweep, which then sees what was appended.
        while self._freed and self._sweeping.acquire(blocking=False):
            try:
                while self._freed:
                    self.lib.gradlane_free(self.handle, self._freed.popleft())
                    self._blocks -= 1
                self._end()
            finally:
                self._sweeping.release()

    def _end(self):
        if self.closed and self._blocks == 0 and self.handle is not None:
            self.lib.gradlane_close(self.handle)
            self.handle = None

    def close(self):
        """Gives the rank back. Arrays stay what they are until they are collected."""
        if self.closed:
            return
        self.lib.gradlane_disconnect(self.handle)
        self.closed = True
        self.sweep()
        with self._sweeping:
            self._end()


def block_of(array):
    """The Block that `array` is a view of, or None."""
    while isinstance(array, numpy.ndarray):
        array = array.base
    return array if isinstance(array, Block) else None


def array_over(block, shape, dtype):
    """An array over the start of the block."""
    dtype = numpy.dtype(dtype)
    count = int(numpy.prod(shape, dtype=numpy.int64))
    return numpy.asarray(block)[: count * dtype.itemsize].view(dtype).reshape(shape)
