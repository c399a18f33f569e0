"""NumPy arrays over memory that is shared with the daemon.

An array and all views of it keep a Block alive through their bases; when the last one is gone, so is the Block, and its
memory goes back. Garbage collection may run in any thread and in the middle of a call into the library, so a Block that
dies is only noted; the next allocation of its connection frees it. It is C that notes it: Python code that runs in
place of a finalizer would swallow the exception of a signal, KeyboardInterrupt above all, which may come there.

Such an exception may come between any two steps of all that is here, too. So whatever the library gives is written by
it into an object that frees it.
"""

import collections
import ctypes
import functools
import itertools
import os
import weakref

import numpy

from . import errors

_connections = weakref.WeakSet()


def _let_go():
    """In a child of fork(): the daemon shall see the end of its parent."""
    for connection in list(_connections):
        connection.lib.gradlane_disconnect(connection._handle)


os.register_at_fork(after_in_child=_let_go)


class Block:
    """Shared memory; the base of arrays over it. It must not be referenced by its connection."""

    def __init__(self, connection, size):
        self.connection = connection
        self.size = size
        self.address = None


class Connection:
    """A gradlane_context. It lives as long as a Context or an array over its memory does."""

    pid = None

    def __init__(self, lib):
        self.lib = lib
        self.closed = False
        self._handle = ctypes.c_void_p()
        self._live = {}  # of Blocks: weak references to them, and where the library has written the address
        self._dead = collections.deque()  # of these, references to what is gone; appending is safe from any thread
        self.pid = os.getpid()
        _connections.add(self)

    def open(self, options):
        """One attempt; returns the library's code."""
        return self.lib.gradlane_open(ctypes.byref(self._handle), ctypes.byref(options))

    @property
    def handle(self):
        """For the library. Raises what is wrong with using it."""
        if self.foreign:
            raise errors.bad_argument(
                f"this context is of process {self.pid}, which this process, {os.getpid()}, was forked from: it goes on "
                "there; call gradlane.open() here"
            )
        if self.closed:
            raise errors.error(-3, "the context is closed")
        return self._handle.value

    @property
    def foreign(self):
        """Whether it is of the process that this one was forked from."""
        return self.pid != os.getpid()

    def check(self, code):
        """Raises what the code says, unless it is OK."""
        if code != errors.OK:
            raise errors.error(code, self.lib.gradlane_error(self._handle).decode(errors="replace"))

    def allocate(self, size):
        """A Block of `size` bytes, zeros; size may be 0."""
        handle = self.handle
        self.sweep()
        block = Block(self, size)
        address = ctypes.c_void_p()
        self._live[weakref.ref(block, self._dead.append)] = address
        self.check(self.lib.gradlane_alloc(handle, max(size, 1), ctypes.byref(address)))
        block.address = address.value
        block.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (block.address, False)}
        return block

    def sweep(self):
        """Frees what no array uses any more."""
        count = len(self._dead)
        if count == 0 or self.foreign:
            return
        dead = map(collections.deque.popleft, itertools.repeat(self._dead, count))
        free = functools.partial(self.lib.gradlane_free, self._handle)
        collections.deque(map(free, map(self._live.pop, dead)), maxlen=0)  # in C, all at once

    def disconnect(self):
        """Gives the rank back. Arrays stay what they are; the library forgets it all when the last one is collected."""
        if not self.closed and not self.foreign:
            self.lib.gradlane_disconnect(self._handle)
            self.closed = True

    def __del__(self, getpid=os.getpid):
        if self.pid == getpid():
            self.lib.gradlane_close(self._handle)


def block_of(array):
    """The Block that `array` is a view of, or None."""
    while isinstance(array, numpy.ndarray):
        array = array.base
    return array if isinstance(array, Block) else None


def array_over(block, shape, dtype):
    """An array over the start of the block."""
    dtype = numpy.dtype(dtype)
    if dtype.itemsize == 0:
        return numpy.zeros(shape, dtype)
    count = int(numpy.prod(shape, dtype=numpy.int64))
    return numpy.asarray(block)[: count * dtype.itemsize].view(dtype).reshape(shape)
