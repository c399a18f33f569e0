"""A connection to the daemon of this node, as one rank."""

from __future__ import annotations

import builtins
import ctypes
import math
import os
import sys
import time
import weakref
from types import TracebackType
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar, Union, overload

import numpy
from numpy.typing import DTypeLike, NDArray

from . import _arguments, _buffers, _library, errors
from ._core import MAX_TAG
from ._direct import Direct
from ._encoded import Encoded
from ._operations import Operation
from ._requests import Request
from .adaptive import AdaptiveBound

_Array = TypeVar("_Array", bound=NDArray[Any])
_Scalar = TypeVar("_Scalar", bound=numpy.generic)
_DType = Union[builtins.type[_Scalar], "numpy.dtype[_Scalar]"]

_SLICE_S = 0.1  # seconds of one wait for a daemon; Ctrl-C works between two waits
_TIMEOUT_S = 10.0
_SILENT_S = 1.0  # seconds of a wait for a daemon, after which it is reported


class Figures(NamedTuple):
    """Counts of what this rank's daemon has sent for this context, and of what lossy codecs have lost.

    `operations`: operations that have ended. `data_bytes`: bytes of data packets after the UDP header, with
    retransmissions. `data_packets`: number of these packets. `retransmitted`: number of retransmissions among these
    packets.

    The other fields describe samples of the values that this rank has put into sums by a lossy codec without error
    feedback. `lossy_values`: number of sampled values that were not zero. `lossy_zeroed`: number of these that became
    zero. `lossy_share`: norm of the losses, divided by the norm of the values, 0.0 to 1.0.

    `verified_blocks`, `unverified_blocks`: blocks of results that were verified, or could not be (open()).
    """

    operations: int
    data_bytes: int
    data_packets: int
    retransmitted: int
    lossy_values: int
    lossy_zeroed: int
    lossy_share: float
    verified_blocks: int
    unverified_blocks: int


def open(socket: str | bytes | os.PathLike[str] | None = None, *, rank: int | None = None,  # noqa: A001
         timeout: float | None = None, operation_timeout: float | None = None, spin_us: int | None = None,
         verify: bool = False) -> Context:
    """Connects to the daemon and returns a Context.

    `socket`: path of the daemon's socket; None: value of GRADLANE_SOCKET, or the only socket that there is. `rank`:
    rank of the daemon to take; None: value of RANK, or any free rank. `timeout`: seconds to wait for a daemon that is
    starting; None: 10. `operation_timeout`: time limit in seconds of operations whose call names none; None: value in
    the daemon's configuration. `spin_us`: microseconds that waits poll before they sleep; None: 20. `verify`: whether
    to verify sums by fixed:B (docs/determinism.md); False: only if GRADLANE_VERIFY is 1 or the daemon's configuration
    says so. OperationFailed has cause WRONG if a result is wrong.

    Raises NoDaemon, BadArgument (also if there are several sockets, and none is named), OutOfMemory if the daemon's
    memory cannot be mapped, ImportError if there is no libgradlane.
    """
    patience = _TIMEOUT_S if timeout is None else _arguments.seconds("timeout", timeout)
    options = _library.Options(
        ctypes.sizeof(_library.Options),
        _arguments.path("socket", socket),
        -1 if rank is None else _arguments.whole("rank", rank, 0, _arguments.MAX_MS),
        0,
        -1 if spin_us is None else _arguments.whole("spin_us", spin_us, 0, _arguments.MAX_MS),
        _arguments.milliseconds("operation_timeout", operation_timeout),
        1,  # keep_warnings: see _losses.py
        _arguments.flag("verify", verify),
    )
    lib = _library.load()
    connection = _buffers.Connection(lib)
    begin = time.monotonic()
    end = begin + patience
    told = False
    try:
        while True:
            start = time.monotonic()
            share = min(max(end - start, 0.0), _SLICE_S)
            options.timeout_ms = int(share * 1000)
            code = connection.open(options)
            if code == errors.OK:
                return Context(connection)
            # A wait that ends early means that a daemon has refused the rank, so trying again is useless.
            now = time.monotonic()
            if now >= end or now - start < share * 0.9:
                raise _error_of_open(lib, code)
            if now - begin >= _SILENT_S and not told:
                told = True
                reason = lib.gradlane_error(None).decode(errors="replace")
                print(f"gradlane: waiting up to {patience:g} s: {reason}", file=sys.stderr, flush=True)
    except BaseException:
        connection.disconnect()
        raise


def _error_of_open(lib: ctypes.CDLL, code: int) -> errors.Error:
    error = errors.error(code, lib.gradlane_error(None).decode(errors="replace"))
    if isinstance(error, errors.NoDaemon):
        error.refused_by = _refused_by(lib)
    return error


def _refused_by(lib: ctypes.CDLL) -> tuple[str, int] | None:
    socket = ctypes.c_char_p()
    world = lib.gradlane_refused_by(ctypes.byref(socket))
    return ((socket.value or b"").decode(errors="replace"), world) if world else None


class Context(Direct):
    """A rank of the ring; made by gradlane.open(). Use it in one thread at a time, and as a context manager.

        with gradlane.open() as gl:
            gradients = gl.zeros(1000000)
            gl.all_reduce(gradients, average=True)

    Operations work in place, except all_to_all(). They are collective: all ranks start the same operations in the same
    order. Arrays of empty() and zeros(), and contiguous views of them, are used directly. Other arrays are copied to
    shared memory and back. Operations return the array, or with async_=True a Request. They raise BadArgument (then
    nothing has happened), OperationFailed (on all ranks) and DaemonGone. Ctrl-C cancels an operation that is waited
    for, on all ranks.

    Options of operations: `average`: whether to divide the sum by the number of ranks. `reduction`: "min" or "max"
    instead of the sum. `strategy`: one of `strategies`; None: the daemon's default. `codec`: codec for sums of float32
    (and of complex64, as pairs): "raw", which is exact, or "fixed:10", say, or an AdaptiveBound. "auto:2^-10" leaves
    codec and strategy to the library ("auto": exact, docs/plan.md). None: the daemon's default. `residual`: error
    feedback, an array of residual_for(), or of float32, as large as the data for each of the codec's states. It is
    zeros at first and kept from step to step. `tag`: number that must be the same on all ranks; None: a count of the
    operations. `timeout`: seconds until the operation fails; None: limit of open() or of the daemon. `type="bfloat16"`:
    the array is of uint16, and holds bfloat16.

    Attributes: `rank`: rank of this process, 0 to world - 1. `world`: number of ranks. `codec`: the daemon's default,
    for sums of float32 that name none. `strategies`: strategies that operations may name. The first one is the default
    for operations that it can do.
    """

    rank: int
    world: int
    codec: str
    strategies: tuple[str, ...]

    def __init__(self, connection: _buffers.Connection | None = None) -> None:
        if not isinstance(connection, _buffers.Connection):
            raise TypeError("use gradlane.open() to make a Context")
        super().__init__(connection)
        self.rank = self._lib.gradlane_rank(connection.handle)
        self.world = self._lib.gradlane_world(connection.handle)
        self.codec = self._lib.gradlane_codec(connection.handle).decode()
        count = self._lib.gradlane_strategies(connection.handle)
        names = (self._lib.gradlane_get_strategy(connection.handle, number) for number in range(count))
        self.strategies = tuple(name.decode() for name in names)
        weakref.finalize(self, connection.disconnect).atexit = False

    def __repr__(self) -> str:
        state = f"unfinished operations: {len(self._pending)}"
        if self._connection.closed:
            state = "closed"
        elif self._connection.foreign:
            state = f"belongs to process {self._connection.pid}, not to this one"
        return f"<gradlane.Context: rank {self.rank} of {self.world}, codec {self.codec}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a gradlane.Context cannot go to another process: call gradlane.open() there")

    def __enter__(self) -> Context:
        return self

    def __exit__(self, kind: builtins.type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        # In a child of fork(), close() raises, which must not replace an exception that leaves the block, SystemExit
        # say.
        if kind is None or not self._connection.foreign:
            self.close()

    def close(self) -> None:
        """Releases the rank. Unfinished requests fail, on all ranks. Arrays stay valid."""
        if not self._connection.closed:
            handle = self._connection.handle
            self._lib.gradlane_disconnect(handle)
            for operation in list(self._pending):
                operation.ask(self._lib, handle, 0)  # the operation has ended, by itself or by the disconnect
            self._connection.disconnect()
        for operation in list(self._pending):
            operation.settle(self)
        self._spare.clear()
        self._connection.sweep()

    # ---- Buffers

    @overload
    def empty(self, shape: int | tuple[int, ...]) -> NDArray[numpy.float32]: ...

    @overload
    def empty(self, shape: int | tuple[int, ...], dtype: _DType[_Scalar]) -> NDArray[_Scalar]: ...

    @overload
    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]: ...

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike = numpy.float32) -> NDArray[Any]:
        """Returns zeros(shape, dtype): the array is set to zeros, too. Raises what zeros() raises."""
        return self.zeros(shape, dtype)

    @overload
    def zeros(self, shape: int | tuple[int, ...]) -> NDArray[numpy.float32]: ...

    @overload
    def zeros(self, shape: int | tuple[int, ...], dtype: _DType[_Scalar]) -> NDArray[_Scalar]: ...

    @overload
    def zeros(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]: ...

    def zeros(self, shape: int | tuple[int, ...], dtype: DTypeLike = numpy.float32) -> NDArray[Any]:
        """Returns an array of zeros in shared memory, C-contiguous. Operations do not copy it.

        shape: a number of elements, or a tuple of these. dtype: any type but objects. Raises OutOfMemory, also if the
        daemon's limit for a trainer is reached. Raises BadArgument and DaemonGone.
        """
        try:
            dtype = numpy.dtype(dtype)
        except TypeError as reason:
            raise _arguments.wrong("dtype", dtype, f"a NumPy dtype ({reason})") from None
        if dtype.hasobject:
            raise errors.bad_argument(f"dtype {dtype} holds Python objects, which cannot be in shared memory")
        if dtype.itemsize == 0 and dtype.kind in "SUV" and dtype.fields is None:
            raise errors.bad_argument(f"dtype {dtype} has no length: give one, for example {dtype.kind}8")
        size, shape = _arguments.shape("shape", shape, dtype.itemsize)
        return _buffers.array_over(self._allocate(size), shape, dtype)

    def encoded_space(self, count: int) -> int:
        """Returns the bytes that an encoded contribution of `count` floats may take, whatever its codec."""
        space: int = self._lib.gradlane_encoded_space(_arguments.whole("count", count, 0, 1 << 60))
        return space

    # ---- Operations

    def encode(self, array: NDArray[Any], *, codec: str | None = None, out: NDArray[numpy.uint8] | None = None,
               timeout: float | None = None) -> Encoded:
        """Encodes an array and returns it as this rank's contribution to later all-reduces (`encoded` of all_reduce()).

        The result takes about 0.7 bytes per float with "fixed:10". It is independent of the array, and can be used any
        number of times. Other ranks need not call encode(). The daemon does the work, after this rank's operations in
        flight.

        `array`: float32 or complex64 of any shape, at least one element; it may be read-only. `codec`: one without loss
        ("raw", "pack", "exact") or "fixed:B"; None: the daemon's default. Contributions to sums of fewer than 1024
        floats, which are exact, are rounded, too; NaN and Inf are kept. `out`: memory for the result, uint8 of shape
        (encoded_space(count),) of zeros(), which can be used again and again; None: memory of its own, of exactly
        nbytes. New memory costs more time than encoding. `timeout`: seconds until encode() fails; None: limit of open()
        or of the daemon.

        Raises BadArgument, OutOfMemory, DaemonGone, and, on this rank only, OperationFailed when the time is over or
        the ring loses a rank: call it again.
        """
        return self._encode(array, codec, out, timeout)

    @overload
    def all_reduce(self, array: _Array, *, average: bool = False, reduction: str = "sum", strategy: str | None = None,
                   codec: str | AdaptiveBound | None = None, residual: NDArray[numpy.float32] | None = None,
                   encoded: Encoded | None = None, tag: int | None = None, timeout: float | None = None,
                   type: str | None = None, async_: Literal[False] = False) -> _Array: ...

    @overload
    def all_reduce(self, array: _Array, *, average: bool = False, reduction: str = "sum", strategy: str | None = None,
                   codec: str | AdaptiveBound | None = None, residual: NDArray[numpy.float32] | None = None,
                   encoded: Encoded | None = None, tag: int | None = None, timeout: float | None = None,
                   type: str | None = None, async_: Literal[True]) -> Request[_Array]: ...

    @overload
    def all_reduce(self, array: _Array, *, average: bool = False, reduction: str = "sum", strategy: str | None = None,
                   codec: str | AdaptiveBound | None = None, residual: NDArray[numpy.float32] | None = None,
                   encoded: Encoded | None = None, tag: int | None = None, timeout: float | None = None,
                   type: str | None = None, async_: bool) -> _Array | Request[_Array]: ...

    def all_reduce(self, array: _Array, *, average: bool = False, reduction: str = "sum", strategy: str | None = None,
                   codec: str | AdaptiveBound | None = None, residual: NDArray[numpy.float32] | None = None,
                   encoded: Encoded | None = None, tag: int | None = None, timeout: float | None = None,
                   type: str | None = None, async_: bool = False) -> _Array | Request[_Array]:
        """Replaces the array by the sum, average, minimum or maximum of the ranks' arrays. Returns it, or the Request.

        `array`: an array of any shape, with the same number of elements on all ranks, of bool, integers, float16 to
        float64, complex64, complex128 or bfloat16. Sums of integers wrap around, as NumPy's do; sums of bool are "or".
        Averages are for floating and complex types. A codec changes only sums of 1024 floats or more of float32 or
        complex64, within its bound (docs/codecs.md). All other data is sent uncompressed: sums of floating types are
        rounded at each rank. Minima and maxima are exact; complex types and uint64 have none. The result is NaN where
        one element is NaN, and -0 is less than +0.

        `average`: whether to divide by the number of ranks. `reduction`: "sum", "min" or "max". `strategy`: one of
        `strategies`; None: the first of these. `codec`: "raw", which is exact, "fixed:10", say, or an AdaptiveBound of
        this tensor; None: the daemon's default. With an aggregator, "fixed:10/raw" names one codec to it and one back.
        `residual`: error feedback, an array of residual_for(): float32, as large as the data for each of the codec's
        states (some codecs have two). It is zeros at first and kept from step to step. It must not be used with a codec
        of another `word`. `encoded`: this rank's contribution, from encode(), with the array's number of floats. The
        array's content is ignored. The sum is by the codec of `encoded`, which ranks with floats must name; here
        `codec` may be left out. It excludes `residual`, verified sums, "auto" and local_reduce. `tag`: a number that
        must be the same on all ranks; None: a count of the operations. `timeout`: seconds until the operation fails;
        None: limit of open() or of the daemon. `type="bfloat16"`: the array is of uint16, and holds bfloat16. `async_`:
        True returns a Request at once; the array belongs to the daemon until the Request's wait() returns.

        Raises BadArgument (nothing has happened), OperationFailed (on all ranks; the array is then undefined) and
        DaemonGone.

            gl.all_reduce(gradients, average=True, codec="fixed:10")
        """
        result: _Array | Request[_Array] = self._reduce(
            "all_reduce", array, (tag, timeout, strategy, average, reduction), codec, residual, type, async_,
            encoded=encoded)
        return result

    @overload
    def reduce_scatter(self, array: _Array, *, average: bool = False, reduction: str = "sum",
                       strategy: str | None = None,
                       codec: str | AdaptiveBound | None = None, residual: NDArray[numpy.float32] | None = None,
                       tag: int | None = None, timeout: float | None = None, type: str | None = None,
                       async_: Literal[False] = False) -> _Array: ...

    @overload
    def reduce_scatter(self, array: _Array, *, average: bool = False, reduction: str = "sum",
                       strategy: str | None = None,
                       codec: str | AdaptiveBound | None = None, residual: NDArray[numpy.float32] | None = None,
                       tag: int | None = None, timeout: float | None = None, type: str | None = None,
                       async_: Literal[True]) -> Request[_Array]: ...

    @overload
    def reduce_scatter(self, array: _Array, *, average: bool = False, reduction: str = "sum",
                       strategy: str | None = None,
                       codec: str | AdaptiveBound | None = None, residual: NDArray[numpy.float32] | None = None,
                       tag: int | None = None, timeout: float | None = None, type: str | None = None,
                       async_: bool) -> _Array | Request[_Array]: ...

    def reduce_scatter(self, array: _Array, *, average: bool = False, reduction: str = "sum",
                       strategy: str | None = None,
                       codec: str | AdaptiveBound | None = None, residual: NDArray[numpy.float32] | None = None,
                       tag: int | None = None, timeout: float | None = None, type: str | None = None,
                       async_: bool = False) -> _Array | Request[_Array]:
        """Divides the array into `world` blocks of equal size, and replaces block `rank` by its sum over the ranks.

        The other blocks are then undefined. Types and losses are as in all_reduce(), but an AdaptiveBound is for
        all_reduce() only. Raises BadArgument also if the size is no multiple of `world`, or, with local_reduce in the
        daemon's configuration, more than 64 MiB.
        """
        result: _Array | Request[_Array] = self._reduce(
            "reduce_scatter", array, (tag, timeout, strategy, average, reduction), codec, residual, type, async_)
        return result

    @overload
    def all_gather(self, array: _Array, *, codec: str | None = None, strategy: str | None = None,
                   tag: int | None = None, timeout: float | None = None, type: str | None = None,
                   async_: Literal[False] = False) -> _Array: ...

    @overload
    def all_gather(self, array: _Array, *, codec: str | None = None, strategy: str | None = None,
                   tag: int | None = None, timeout: float | None = None, type: str | None = None,
                   async_: Literal[True]) -> Request[_Array]: ...

    @overload
    def all_gather(self, array: _Array, *, codec: str | None = None, strategy: str | None = None,
                   tag: int | None = None, timeout: float | None = None, type: str | None = None,
                   async_: bool) -> _Array | Request[_Array]: ...

    def all_gather(self, array: _Array, *, codec: str | None = None, strategy: str | None = None,
                   tag: int | None = None, timeout: float | None = None, type: str | None = None,
                   async_: bool = False) -> _Array | Request[_Array]:
        """Fills the array, `world` blocks of equal size, with all ranks' blocks. Block `rank` is this rank's.

        Any type but objects is copied bit by bit. Raises BadArgument also if the size is no multiple of `world`, or,
        with local_reduce in the daemon's configuration, more than 64 MiB.
        """
        result: _Array | Request[_Array] = self._copy(
            "all_gather", array, (), self._how(tag, timeout, strategy, codec=codec), type, async_)
        return result

    @overload
    def broadcast(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
                  tag: int | None = None, timeout: float | None = None, type: str | None = None,
                  async_: Literal[False] = False) -> _Array: ...

    @overload
    def broadcast(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
                  tag: int | None = None, timeout: float | None = None, type: str | None = None,
                  async_: Literal[True]) -> Request[_Array]: ...

    @overload
    def broadcast(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
                  tag: int | None = None, timeout: float | None = None, type: str | None = None,
                  async_: bool) -> _Array | Request[_Array]: ...

    def broadcast(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
                  tag: int | None = None, timeout: float | None = None, type: str | None = None,
                  async_: bool = False) -> _Array | Request[_Array]:
        """Replaces the array by that of rank `root`, 0 to world - 1. Any type but objects is copied bit by bit."""
        root = _arguments.whole("root", root, 0, self.world - 1)
        how = self._how(tag, timeout, strategy, codec=codec)
        result: _Array | Request[_Array] = self._copy("broadcast", array, (root,), how, type, async_)
        return result

    @overload
    def barrier(self, *, strategy: str | None = None, tag: int | None = None, timeout: float | None = None,
                async_: Literal[False] = False) -> None: ...

    @overload
    def barrier(self, *, strategy: str | None = None, tag: int | None = None, timeout: float | None = None,
                async_: Literal[True]) -> Request[None]: ...

    @overload
    def barrier(self, *, strategy: str | None = None, tag: int | None = None, timeout: float | None = None,
                async_: bool) -> Request[None] | None: ...

    def barrier(self, *, strategy: str | None = None, tag: int | None = None, timeout: float | None = None,
                async_: bool = False) -> Request[None] | None:
        """Waits until all ranks have called barrier(), and returns None. With async_=True, returns the Request at once.
        """
        self._tidy()
        result: Request[None] | None = self._run(Operation("barrier"), (), self._how(tag, timeout, strategy), async_)
        return result

    def resume(self, next_tag: int) -> None:
        """Sets the default tag of the next operation, 0 to 2**64 - 1. Later operations count on from it. Call it after
        an error, on all ranks.

        Operations that this rank has in flight fail, on other ranks too. So the next operation may fail because another
        rank has called resume() later. If so, call resume() and repeat the operation. Raises BadArgument and
        DaemonGone.
        """
        next_tag = _arguments.whole("next_tag", next_tag, 0, MAX_TAG)
        self._connection.check(self._lib.gradlane_resume(self._connection.handle, next_tag))

    # ---- Watching

    def fileno(self) -> int:
        """Returns a file descriptor. When it is readable, a request may be over: call done() of all requests then.

        Raises OutOfMemory if the process cannot have more descriptors.
        """
        fd: int = self._lib.gradlane_fd(self._connection.handle)
        if fd < 0:
            self._connection.check(errors.Code.NO_MEMORY)
        return fd

    def hash_of(self, array: NDArray[Any]) -> int:
        """Returns a 64-bit hash of the array's elements in C order: XXH64 with seed 0, as `xxhsum -H64` has it.

        Results of all_reduce(), all_gather() and broadcast() have the same hash on all ranks.

            gl.all_reduce(gradients)
            print(f"step {step}: {gl.hash_of(gradients):016x}")

        Raises BadArgument for anything but an array, and for arrays of objects.
        """
        if not isinstance(array, numpy.ndarray) or array.dtype.hasobject:
            raise _arguments.wrong("array", array, "a NumPy array of any type but objects")
        flat = numpy.ascontiguousarray(array)
        value: int = self._lib.gradlane_hash(flat.ctypes.data, flat.nbytes)
        return value

    def figures(self) -> Figures:
        """Returns what this rank has sent since the context was opened, as of its latest operation or some 100 ms ago.
        """
        figures = _library.Figures(ctypes.sizeof(_library.Figures))
        self._connection.check(self._lib.gradlane_get_figures(self._connection.handle, ctypes.byref(figures)))
        squares = figures.lossy_squares
        return Figures(
            figures.operations, figures.data_bytes, figures.data_packets, figures.retransmitted, figures.lossy_values,
            figures.lossy_zeroed, math.sqrt(figures.lossy_lost_squares / squares) if squares > 0 else 0.0,
            figures.verified_blocks, figures.unverified_blocks,
        )
