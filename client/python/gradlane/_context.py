"""A connection to the daemon of this node, as one rank."""

import collections
import ctypes
import math
import time
import weakref

import numpy

from . import _arguments, _buffers, _library, errors
from ._core import MAX_TAG, Core
from ._operations import Operation

Figures = collections.namedtuple(
    "Figures", "operations data_bytes data_packets retransmitted lossy_values lossy_zeroed lossy_share"
)
Figures.__doc__ = """What this rank's daemon has sent for this context, and what lossy codecs have taken.

operations: ended. data_bytes: of data packets, behind the UDP header, retransmissions included. data_packets: the same
in packets. retransmitted: packets of these. lossy_values: that were not zero, in samples of what this rank gave to sums
through a lossy codec without error feedback. lossy_zeroed: of these, became zero. lossy_share: of their norm, was lost.
"""

_SLICE_S = 0.1  # of waiting for a daemon, for Ctrl-C
_TIMEOUT_S = 10.0


def open(socket=None, *, rank=None, timeout=None, operation_timeout=None, spin_us=None):  # noqa: A001
    """Connects to the daemon and returns a Context.

    socket: path of the daemon's socket; None: what GRADLANE_SOCKET says. rank: which of the daemon's ranks to be;
    None: what RANK says, or any free one. timeout: seconds to wait for a daemon that is starting; None: 10.
    operation_timeout: seconds that an operation may take, if it has no timeout of its own; None: what the daemon's
    configuration says. spin_us: microseconds that waits poll before they sleep; None: 20. Raises NoDaemon and
    BadArgument.
    """
    patience = _TIMEOUT_S if timeout is None else _arguments.seconds("timeout", timeout)
    options = _library.Options(
        ctypes.sizeof(_library.Options),
        _arguments.path("socket", socket),
        -1 if rank is None else _arguments.whole("rank", rank, 0, _arguments.MAX_MS),
        0,
        -1 if spin_us is None else _arguments.whole("spin_us", spin_us, 0, _arguments.MAX_MS),
        _arguments.milliseconds("operation_timeout", operation_timeout),
        1,  # see _losses.py
    )
    lib = _library.load()
    connection = _buffers.Connection(lib)
    end = time.monotonic() + patience
    try:
        while True:
            start = time.monotonic()
            share = min(max(end - start, 0.0), _SLICE_S)
            options.timeout_ms = int(share * 1000)
            code = connection.open(options)
            if code == errors.OK:
                return Context(connection)
            # Whoever answers, does so before the time is up.
            now = time.monotonic()
            if now >= end or now - start < share * 0.9:
                raise errors.error(code, lib.gradlane_error(None).decode(errors="replace"))
    except BaseException:
        connection.disconnect()
        raise


class Context(Core):
    """A rank of the ring; made by gradlane.open(). Use it in one thread at a time, and as a context manager.

        with gradlane.open() as gl:
            gradients = gl.zeros(1000000)
            gl.all_reduce(gradients, average=True)

    Operations are in place and collective: all ranks start the same ones in the same order. Arrays of empty() and
    zeros(), and contiguous views of them, are used where they are; other arrays are copied to shared memory and back.
    They return the array, or with async_=True a Request. They raise BadArgument (nothing has happened then),
    OperationFailed (on all ranks) and DaemonGone. Ctrl-C cancels an operation that is waited for, on all ranks.

    Options of operations: average: divide the sum by the number of ranks. codec: of sums of float32 (and of complex64,
    as pairs): "raw", which is exact, or "fixed:10", say, or an AdaptiveBound; None: the daemon's. residual: error
    feedback, an array of float32 of the same size, zeros at first and kept from step to step. tag: a number that must
    be the same on all ranks; None counts the operations. timeout: seconds until the operation fails; None: what open()
    or the daemon says. type="bfloat16": the array is of uint16, and holds bfloat16.

    Attributes: rank: of this process, 0 to world - 1. world: how many ranks there are. codec: the daemon's, of sums of
    float32 that name none.
    """

    def __init__(self, connection=None):
        if not isinstance(connection, _buffers.Connection):
            raise TypeError("a Context is made by gradlane.open()")
        super().__init__(connection)
        self.rank = self._lib.gradlane_rank(connection.handle)
        self.world = self._lib.gradlane_world(connection.handle)
        self.codec = self._lib.gradlane_codec(connection.handle).decode()
        weakref.finalize(self, connection.disconnect).atexit = False

    def __repr__(self):
        state = f"unfinished operations: {len(self._pending)}"
        if self._connection.closed:
            state = "closed"
        elif self._connection.foreign:
            state = f"of process {self._connection.pid}, not of this one"
        return f"<gradlane.Context: rank {self.rank} of {self.world}, codec {self.codec}, {state}>"

    def __reduce__(self):
        raise TypeError("a gradlane.Context is of the process that opened it: call gradlane.open() in the other one")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        # A child of fork() that ends inside has an exception of its own on the way, SystemExit say.
        if kind is None or not self._connection.foreign:
            self.close()

    def close(self):
        """Gives the rank back. Unfinished requests fail, on all ranks. Arrays stay valid."""
        if not self._connection.closed:
            handle = self._connection.handle
            self._lib.gradlane_disconnect(handle)
            for operation in list(self._pending):
                operation.ask(self._lib, handle, 0)  # it has ended, one way or the other
            self._connection.disconnect()
        for operation in list(self._pending):
            operation.settle(self)
        self._spare.clear()
        self._connection.sweep()

    # ---- Buffers

    def empty(self, shape, dtype=numpy.float32):
        """An array in shared memory, zeros like those of zeros(). Raises OutOfMemory."""
        return self.zeros(shape, dtype)

    def zeros(self, shape, dtype=numpy.float32):
        """An array of zeros in shared memory: operations do not copy it. Raises OutOfMemory."""
        try:
            dtype = numpy.dtype(dtype)
        except TypeError as reason:
            raise _arguments.wrong("dtype", dtype, f"a NumPy dtype ({reason})") from None
        if dtype.hasobject:
            raise errors.bad_argument(f"dtype {dtype} holds objects of this process, which cannot lie in shared memory")
        if dtype.itemsize == 0 and dtype.kind in "SUV" and dtype.fields is None:
            raise errors.bad_argument(f"dtype {dtype} has no length: name one, {dtype.kind}8 say")
        size, shape = _arguments.shape("shape", shape, dtype.itemsize)
        return _buffers.array_over(self._allocate(size), shape, dtype)

    # ---- Operations

    def all_reduce(self, array, *, average=False, codec=None, residual=None, tag=None, timeout=None, type=None,
                   async_=False):
        """The array ends as the sum of the ranks' arrays, or their average.

        Sums of integers wrap around, as NumPy's do; of bool they are "or".
        """
        return self._reduce("all_reduce", array, (tag, timeout, average), codec, residual, type, async_)

    def reduce_scatter(self, array, *, average=False, codec=None, residual=None, tag=None, timeout=None, type=None,
                       async_=False):
        """The array is `world` blocks of equal size, in order; block `rank` ends as the sum of the ranks' blocks.

        The others are undefined then. Not with local_reduce in the daemon's configuration.
        """
        return self._reduce("reduce_scatter", array, (tag, timeout, average), codec, residual, type, async_)

    def all_gather(self, array, *, codec=None, tag=None, timeout=None, type=None, async_=False):
        """The array is `world` blocks of equal size, of which block `rank` is this rank's; ends as all ranks' blocks.

        Of any type but objects, bit by bit. Not with local_reduce in the daemon's configuration.
        """
        return self._copy("all_gather", array, (), self._how(tag, timeout, codec=codec), type, async_)

    def broadcast(self, array, *, root=0, codec=None, tag=None, timeout=None, type=None, async_=False):
        """The array ends as that of rank `root`. Of any type but objects, bit by bit."""
        root = _arguments.whole("root", root, 0, self.world - 1)
        return self._copy("broadcast", array, (root,), self._how(tag, timeout, codec=codec), type, async_)

    def barrier(self, *, tag=None, timeout=None, async_=False):
        """Ends when all ranks have started it; returns None."""
        self._tidy()
        return self._run(Operation("barrier"), (), self._how(tag, timeout), async_)

    def resume(self, next_tag):
        """After an error, on all ranks: counts default tags from `next_tag` on.

        What this rank has in flight fails, on other ranks too. So if the next operation fails because another rank was
        later, resume and try again.
        """
        next_tag = _arguments.whole("next_tag", next_tag, 0, MAX_TAG)
        self._connection.check(self._lib.gradlane_resume(self._connection.handle, next_tag))

    # ---- Watching

    def fileno(self):
        """A file descriptor that is readable while a request may be over; then call done() of all requests."""
        fd = self._lib.gradlane_fd(self._connection.handle)
        if fd < 0:
            self._connection.check(-5)
        return fd

    def figures(self):
        """What this rank has sent: a Figures."""
        figures = _library.Figures(ctypes.sizeof(_library.Figures))
        self._connection.check(self._lib.gradlane_get_figures(self._connection.handle, ctypes.byref(figures)))
        squares = figures.lossy_squares
        return Figures(
            figures.operations, figures.data_bytes, figures.data_packets, figures.retransmitted, figures.lossy_values,
            figures.lossy_zeroed, math.sqrt(figures.lossy_lost_squares / squares) if squares > 0 else 0.0,
        )
