"""A connection to the daemon of this node, as one rank."""

import collections
import ctypes
import os
import time
import weakref

import numpy

from . import buffers, errors, library
from .requests import Operand, Request

Figures = collections.namedtuple("Figures", "operations data_bytes data_packets retransmitted")
Figures.__doc__ = """What this rank's daemon has sent for this context.

operations: ended. data_bytes: of data packets, behind the UDP header, retransmissions included. data_packets: the same
in packets. retransmitted: packets of these.
"""

_TYPES = {
    numpy.dtype("float32"): 0,
    numpy.dtype("float64"): 1,
    numpy.dtype("float16"): 2,
    numpy.dtype("int32"): 4,
    numpy.dtype("int64"): 5,
    numpy.dtype("uint8"): 6,
    numpy.dtype("int8"): 6,
}
_BFLOAT16 = 3
_SLICE_S = 0.1  # of waiting for a daemon, for Ctrl-C
_TIMEOUT_S = 10.0
_PAGE = 4096


def open(socket=None, rank=None, timeout=None, spin_us=None):  # noqa: A001 - gradlane.open() reads well
    """Connects to the daemon and returns a Context.

    socket: path of the daemon's socket; None: what GRADLANE_SOCKET says. rank: which of the daemon's ranks to be;
    None: what RANK says, or any free one. timeout: seconds to wait for a daemon that is starting; None: 10. spin_us:
    microseconds that waits poll before they sleep; None: 20. Raises NoDaemon and BadArgument.
    """
    lib = library.load()
    options = library.Options(
        ctypes.sizeof(library.Options),
        None if socket is None else os.fsencode(socket),
        -1 if rank is None else rank,
        0,
        -1 if spin_us is None else spin_us,
    )
    end = time.monotonic() + (_TIMEOUT_S if timeout is None else timeout)
    handle = ctypes.c_void_p()
    while True:
        start = time.monotonic()
        share = min(max(end - start, 0.0), _SLICE_S)
        options.timeout_ms = int(share * 1000)
        code = lib.gradlane_open(ctypes.byref(handle), ctypes.byref(options))
        if code == errors.OK:
            return Context(buffers.Connection(lib, handle.value))
        # Whoever answers, does so before the time is up.
        now = time.monotonic()
        if now >= end or now - start < share * 0.9:
            raise errors.error(code, lib.gradlane_error(None).decode(errors="replace"))


class Context:
    """A rank of the ring; made by open(). Use it in one thread at a time, and as a context manager.

    Operations are in place and collective: all ranks start the same ones in the same order. Arrays of empty() and
    zeros(), and contiguous views of them, are used where they are; other arrays are copied to shared memory and back.
    They return the array, or with async_=True a Request. They raise BadArgument (nothing has happened then),
    OperationFailed (on all ranks) and DaemonGone.

    Options of operations: codec: "raw" or "fixed:10", say, of float32; None: the daemon's. average: divide the sum by
    the number of ranks. residual: error feedback, an array of float32 of the same size, zeros at first and kept from
    step to step. tag: a number that must be the same on all ranks; None counts the operations. type="bfloat16": the
    array is of uint16, and holds bfloat16.
    """

    def __init__(self, connection):
        self.connection = connection
        self._lib = connection.lib
        self._pending = {}  # by number; keeps arrays alive that the daemon uses
        self._orphans = set()  # of these, numbers that nobody waits for any more
        self._spare = collections.defaultdict(list)  # Blocks for copies, by size
        self.rank = self._lib.gradlane_rank(connection.handle)
        self.world = self._lib.gradlane_world(connection.handle)
        self.codec = self._lib.gradlane_codec(connection.handle).decode()
        weakref.finalize(self, connection.close).atexit = False

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Gives the rank back. Unfinished requests fail, on all ranks. Arrays stay valid."""
        if self.connection.closed:
            return
        gone = errors.error(-3, "the context was closed before the operation ended")
        pending = list(self._pending.values())
        self.connection.close()
        for request in pending:
            request.disconnected(gone)
        self._spare.clear()

    # ---- Buffers

    def empty(self, shape, dtype=numpy.float32):
        """An array in shared memory, zeros like those of zeros(). Raises OutOfMemory."""
        return self.zeros(shape, dtype)

    def zeros(self, shape, dtype=numpy.float32):
        """An array of zeros in shared memory: operations do not copy it. Raises OutOfMemory."""
        self._handle()
        dtype = numpy.dtype(dtype)
        if dtype.hasobject:
            raise errors.bad_argument(f"dtype {dtype} cannot lie in shared memory")
        count = int(numpy.prod(shape, dtype=numpy.int64))
        return buffers.array_over(self.connection.allocate(count * dtype.itemsize), shape, dtype)

    # ---- Operations

    def all_reduce(self, array, average=False, codec=None, residual=None, tag=None, type=None, async_=False):
        """The array ends as the sum of the ranks' arrays."""
        return self._start("all_reduce", array, average, codec, residual, tag, type, async_)

    def reduce_scatter(self, array, average=False, codec=None, residual=None, tag=None, type=None, async_=False):
        """The array is `world` blocks of equal size, in order; block `rank` ends as the sum of the ranks' blocks.

        The others are undefined then. Not with local_reduce in the daemon's configuration.
        """
        return self._start("reduce_scatter", array, average, codec, residual, tag, type, async_)

    def all_gather(self, array, codec=None, tag=None, type=None, async_=False):
        """The array is `world` blocks of equal size, of which block `rank` is this rank's; ends as all ranks' blocks.

        Not with local_reduce in the daemon's configuration.
        """
        return self._start("all_gather", array, False, codec, None, tag, type, async_)

    def broadcast(self, array, root=0, codec=None, tag=None, type=None, async_=False):
        """The array ends as that of rank `root`."""
        return self._start("broadcast", array, False, codec, None, tag, type, async_, root=root)

    def barrier(self, tag=None, async_=False):
        """Ends when all ranks have started it; returns None."""
        return self._finish(self._submit("barrier", (), None, None, self._how(False, None, None, tag)), async_)

    def resume(self, next_tag):
        """After an error, on all ranks: counts default tags from `next_tag` on.

        What this rank has in flight fails, on other ranks too. So if the next operation fails because another rank was
        later, resume and try again.
        """
        self.connection.check(self._lib.gradlane_resume(self._handle(), _unsigned("next_tag", next_tag)))

    # ---- Watching

    def fileno(self):
        """A file descriptor that is readable while a request may be over; then call done() of all requests."""
        fd = self._lib.gradlane_fd(self._handle())
        if fd < 0:
            self.connection.check(-5)
        return fd

    def figures(self):
        """What this rank has sent: a Figures."""
        figures = library.Figures(ctypes.sizeof(library.Figures))
        self.connection.check(self._lib.gradlane_get_figures(self._handle(), ctypes.byref(figures)))
        return Figures(figures.operations, figures.data_bytes, figures.data_packets, figures.retransmitted)

    # ---- For Request and Operand

    def borrow(self, size):
        """A Block for a copy of `size` bytes, of an earlier copy if there is one."""
        self._handle()
        rounded = -(-max(size, 1) // _PAGE) * _PAGE
        spare = self._spare[rounded]
        return spare.pop() if spare else self.connection.allocate(rounded)

    def give_back(self, block):
        if not self.connection.closed:
            self._spare[block.size].append(block)

    def wait_in_library(self, number, timeout_ms):
        """None: it ended well; else the error, of code PENDING if it has not ended."""
        code = self._lib.gradlane_wait(self._handle(), number, timeout_ms)
        if code == errors.OK:
            return None
        text = "" if code == errors.PENDING else self._lib.gradlane_error(self._handle()).decode(errors="replace")
        return errors.error(code, text)

    def cancel_in_library(self, number):
        self.connection.check(self._lib.gradlane_cancel(self._handle(), number))

    def forget(self, number):
        self._pending.pop(number, None)
        self._orphans.discard(number)

    # ---- Private

    def _handle(self):
        if self.connection.closed:
            raise errors.error(-3, "the context is closed")
        return self.connection.handle

    def _how(self, average, codec, residual, tag):
        how = library.How(ctypes.sizeof(library.How))
        how.average = 1 if average else 0
        how.codec = None if codec is None else codec.encode()
        how.residual = None if residual is None else residual.address
        if tag is not None:
            how.has_tag = 1
            how.tag = _unsigned("tag", tag)
        return how

    def _start(self, name, array, average, codec, residual, tag, type_name, async_, root=None):
        self._handle()
        code = _type_code(array, type_name)
        count = array.size
        if name in ("reduce_scatter", "all_gather"):
            if count % self.world != 0:
                raise errors.bad_argument(f"{name}: {count} elements are not {self.world} blocks of equal size")
            count //= self.world
        if residual is not None and (residual.dtype != numpy.float32 or residual.size != array.size):
            raise errors.bad_argument(
                f"residual is {residual.size} elements of {residual.dtype}, not {array.size} of float32"
            )
        data = Operand(self, array, "data")
        feedback = None
        try:
            feedback = None if residual is None else Operand(self, residual, "residual")
            arguments = (data.address, count, code) if root is None else (data.address, count, code, root)
            request = self._submit(name, arguments, data, feedback, self._how(average, codec, feedback, tag))
        except BaseException:
            for operand in (data, feedback):
                if operand is not None:
                    operand.release()
            raise
        return self._finish(request, async_)

    def _submit(self, name, arguments, data, residual, how):
        handle = self._handle()
        self._reap()
        number = ctypes.c_uint64()
        function = getattr(self._lib, "gradlane_" + name)
        self.connection.check(function(handle, *arguments, ctypes.byref(how), ctypes.byref(number)))
        request = Request(self, number.value, data, residual)
        self._pending[number.value] = request
        return request

    def _finish(self, request, async_):
        if async_:
            return request
        try:
            return request.wait()
        except KeyboardInterrupt:
            # Nobody has the request to wait for it.
            self._orphans.add(request._number)
            request.cancel()
            raise

    def _reap(self):
        for number in list(self._orphans):
            self._pending[number].done()


def _unsigned(what, value):
    if not 0 <= value < 1 << 64:
        raise errors.bad_argument(f"{what} is {value}; 0 to 2^64 - 1")
    return value


def _type_code(array, name):
    if not isinstance(array, numpy.ndarray):
        raise errors.bad_argument(f"data is {type(array).__name__}, not a NumPy array")
    if name == "bfloat16":
        if array.dtype != numpy.uint16:
            raise errors.bad_argument(f"type bfloat16 is for arrays of uint16, not {array.dtype}")
        return _BFLOAT16
    if name is not None:
        raise errors.bad_argument(f"type {name!r}; there is 'bfloat16', other types come from the array")
    if array.dtype not in _TYPES:
        allowed = ", ".join(str(dtype) for dtype in _TYPES)
        raise errors.bad_argument(f"arrays of {array.dtype} are not supported; there are {allowed} (native byte order)")
    return _TYPES[array.dtype]
