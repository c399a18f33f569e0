"""NumPy arrays over memory that is shared with the daemon.

An array and its views keep a Block alive, as their `base`. When the last of them is deleted, so is the Block, and its
memory must be freed. Garbage collection may delete it in any thread, in the middle of a call into the library. So the
deletion only appends a reference to a deque, and the connection's next allocation frees the memory. C code appends the
reference: a finalizer in Python would swallow an exception that a signal handler raises in it, such as
KeyboardInterrupt.

A signal handler may also raise an exception between any two steps of the code here. So the library writes each address
that it returns into an object that exists already, and that frees it.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import itertools
import math
import os
import weakref
from typing import Any, Callable

import numpy
from numpy.typing import DTypeLike, NDArray

from . import _library, errors

_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _let_go() -> None:
    """Disconnects in a child of fork(), so that the daemon notices the end of the parent."""
    for connection in list(_connections):
        connection.foreign = True
        connection.lib.gradlane_disconnect(connection._handle)


os.register_at_fork(after_in_child=_let_go)


class Block:
    """Shared memory that is the `base` of NumPy arrays. The Connection must not reference it, or it would never be
    freed."""

    __array_interface__: dict[str, Any]

    def __init__(self, connection: Connection, size: int) -> None:
        self.connection = connection
        self.size = size
        self.address = 0


class Connection:
    """A gradlane_context. It lives as long as a Context or an array over its memory does.

    foreign: whether it belongs to the process that this one was forked from.
    """

    pid = 0

    def __init__(self, lib: ctypes.CDLL) -> None:
        self.lib = lib
        self.closed = False
        self.foreign = False
        self._handle = ctypes.c_void_p()
        # `_live` maps weak references to Blocks to the pointers into which the library has written the Blocks'
        # addresses. `_dead` has the references whose Blocks were deleted. Any thread may append to it.
        self._live: dict[weakref.ref[Block], ctypes.c_void_p] = {}
        self._dead: collections.deque[weakref.ref[Block]] = collections.deque()
        self.pid = os.getpid()
        _connections.add(self)

    def open(self, options: _library.Options) -> int:
        """Tries once to connect. Returns the library's code."""
        code: int = self.lib.gradlane_open(ctypes.byref(self._handle), ctypes.byref(options))
        return code

    @property
    def handle(self) -> int | None:
        """Returns the handle for the library. Raises BadArgument in a child of fork(), and DaemonGone after
        disconnect()."""
        if self.foreign:
            raise errors.bad_argument(
                f"this context belongs to process {self.pid}, from which process {os.getpid()} was forked: call "
                "gradlane.open() in the new process"
            )
        if self.closed:
            raise errors.daemon_gone("the context is closed")
        return self._handle.value

    def error(self) -> str:
        """Returns the library's text about the error of the latest call."""
        text: bytes = self.lib.gradlane_error(self._handle)
        return text.decode(errors="replace")

    def cause(self) -> int:
        """Returns the cause of the latest failure of an operation, a number of errors.Cause."""
        cause: int = self.lib.gradlane_get_cause(self._handle)
        return cause

    def check(self, code: int) -> None:
        """Raises the exception for the code, unless it is OK."""
        if code != errors.OK:
            raise errors.error(code, self.error(), self.cause())

    def allocate(self, size: int) -> Block:
        """Returns a Block of `size` bytes, all zeros; size may be 0. Raises OutOfMemory."""
        handle = self.handle
        self.sweep()
        block = Block(self, size)
        address = ctypes.c_void_p()
        self._live[weakref.ref(block, self._dead.append)] = address
        self.check(self.lib.gradlane_alloc(handle, max(size, 1), ctypes.byref(address)))
        block.address = address.value or 0
        block.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (block.address, False)}
        return block

    def sweep(self) -> None:
        """Frees the Blocks that no array uses any more."""
        count = len(self._dead)
        if count == 0 or self.foreign:
            return
        free = functools.partial(self.lib.gradlane_free, self._handle)
        pop: Callable[[Any], Any] = self._live.pop
        take: Callable[[Any], Any] = collections.deque.popleft
        dead = map(take, itertools.repeat(self._dead, count))
        # runs in C, so no exception of a signal can come in between
        collections.deque(map(free, map(pop, dead)), maxlen=0)

    def disconnect(self) -> None:
        """Releases the rank. Arrays stay valid; the library frees everything when the last of them is collected."""
        if not self.closed and not self.foreign:
            self.lib.gradlane_disconnect(self._handle)
            self.closed = True

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        if self.pid == getpid():
            self.lib.gradlane_close(self._handle)


def block_of(array: object) -> Block | None:
    """Returns the Block that `array` is a view of, or None."""
    while isinstance(array, numpy.ndarray):
        array = array.base
    return array if isinstance(array, Block) else None


def array_over(block: Block, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Returns an array over the start of the block."""
    dtype = numpy.dtype(dtype)
    if dtype.itemsize == 0:
        return numpy.zeros(shape, dtype)
    return numpy.asarray(block)[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
