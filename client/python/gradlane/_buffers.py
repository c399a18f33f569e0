"""NumPy arrays over memory that is shared with the daemon.

An array and all views of it keep a Block alive through their bases; when the last one is gone, so is the Block, and its
memory goes back. Garbage collection may run in any thread and in the middle of a call into the library, so a Block that
dies is only noted; the next allocation of its connection frees it. It is C that notes it: Python code that runs in
place of a finalizer would swallow the exception of a signal, KeyboardInterrupt above all, which may come there.

Such an exception may come between any two steps of all that is here, too. So whatever the library gives is written by
it into an object that frees it.
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
    """In a child of fork(): the daemon shall see the end of its parent."""
    for connection in list(_connections):
        connection.foreign = True
        connection.lib.gradlane_disconnect(connection._handle)


os.register_at_fork(after_in_child=_let_go)


class Block:
    """Shared memory; the base of arrays over it. It must not be referenced by its connection."""

    __array_interface__: dict[str, Any]

    def __init__(self, connection: Connection, size: int) -> None:
        self.connection = connection
        self.size = size
        self.address = 0


class Connection:
    """A gradlane_context. It lives as long as a Context or an array over its memory does.

    foreign: it is of the process that this one was forked from.
    """

    pid = 0

    def __init__(self, lib: ctypes.CDLL) -> None:
        self.lib = lib
        self.closed = False
        self.foreign = False
        self._handle = ctypes.c_void_p()
        # Of Blocks: weak references to them, and where the library has written the address; of these, references to
        # what is gone. Appending is safe from any thread.
        self._live: dict[weakref.ref[Block], ctypes.c_void_p] = {}
        self._dead: collections.deque[weakref.ref[Block]] = collections.deque()
        self.pid = os.getpid()
        _connections.add(self)

    def open(self, options: _library.Options) -> int:
        """One attempt; returns the library's code."""
        code: int = self.lib.gradlane_open(ctypes.byref(self._handle), ctypes.byref(options))
        return code

    @property
    def handle(self) -> int | None:
        """For the library. Raises what is wrong with using it."""
        if self.foreign:
            raise errors.bad_argument(
                f"this context is of process {self.pid}, which this process, {os.getpid()}, was forked from: it goes "
                "on there; call gradlane.open() here"
            )
        if self.closed:
            raise errors.daemon_gone("the context is closed")
        return self._handle.value

    def error(self) -> str:
        """What the library says was wrong with the latest call."""
        text: bytes = self.lib.gradlane_error(self._handle)
        return text.decode(errors="replace")

    def cause(self) -> int:
        """Of the last operation that has failed: a number of errors.Cause."""
        cause: int = self.lib.gradlane_get_cause(self._handle)
        return cause

    def check(self, code: int) -> None:
        """Raises what the code says, unless it is OK."""
        if code != errors.OK:
            raise errors.error(code, self.error(), self.cause())

    def allocate(self, size: int) -> Block:
        """A Block of `size` bytes, zeros; size may be 0. Raises OutOfMemory."""
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
        """Frees what no array uses any more."""
        count = len(self._dead)
        if count == 0 or self.foreign:
            return
        free = functools.partial(self.lib.gradlane_free, self._handle)
        pop: Callable[[Any], Any] = self._live.pop
        take: Callable[[Any], Any] = collections.deque.popleft
        dead = map(take, itertools.repeat(self._dead, count))
        collections.deque(map(free, map(pop, dead)), maxlen=0)  # in C, all at once

    def disconnect(self) -> None:
        """Gives the rank back. Arrays stay what they are; the library forgets it all when the last one is collected."""
        if not self.closed and not self.foreign:
            self.lib.gradlane_disconnect(self._handle)
            self.closed = True

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        if self.pid == getpid():
            self.lib.gradlane_close(self._handle)


def block_of(array: object) -> Block | None:
    """The Block that `array` is a view of, or None."""
    while isinstance(array, numpy.ndarray):
        array = array.base
    return array if isinstance(array, Block) else None


def array_over(block: Block, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array over the start of the block."""
    dtype = numpy.dtype(dtype)
    if dtype.itemsize == 0:
        return numpy.zeros(shape, dtype)
    return numpy.asarray(block)[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
