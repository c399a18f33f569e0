"""Base of contexts: starts operations, and processes their ends, whatever exceptions come in between.

A signal handler may raise an exception between any two steps in Python: see _operations.py. If the exception interrupts
a call that waits for its operation, the operation is cancelled. The call then waits up to 1 s for the operation's end
before the exception continues. If the operation has not ended by then, or this wait is interrupted too, the context's
next operation first waits for that end.
"""

from __future__ import annotations

import collections
import ctypes
import time
from typing import Any

import numpy
from numpy.typing import NDArray

from . import _arguments, _buffers, _codecs, _encoded, _forms, _library, _losses, errors
from ._encoded import Encoded
from ._operands import Operand, bounds, check_array, overlap
from ._operations import Holder, Operation, describe
from ._requests import AnyRequest, Request
from .adaptive import AdaptiveBound

MAX_TAG = (1 << 64) - 1
_PAGE = 4096
_SLICE_MS = 100  # milliseconds of one wait; signals are handled between two waits
_CANCEL_S = 1.0  # seconds to wait for the end of a cancelled operation
_BLOCKS = ("reduce_scatter", "all_gather", "gather", "scatter", "all_to_all")


class Core:
    """Base of Context."""

    world: int
    codec: str

    def __init__(self, connection: _buffers.Connection) -> None:
        self._connection = connection
        self._lib = connection.lib
        self._codecs = _codecs.of(connection)
        # Operations that are not over, with the bounds() of their arrays. This keeps arrays alive that the daemon uses.
        self._pending: dict[Operation, list[tuple[int, int]]] = {}
        # Holders of operations whose Requests are gone; see _operations.py.
        self._dropped: collections.deque[Any] = collections.deque()
        # Operations whose calls were interrupted by an exception that is not their own error, such as
        # KeyboardInterrupt.
        self._abandoned: collections.deque[Operation] = collections.deque()
        self._states_of: dict[bytes | None, int] = {}  # number of arrays in a residual, by name of the codec
        # Free Blocks for copies, by size.
        self._spare: collections.defaultdict[int, list[_buffers.Block]] = collections.defaultdict(list)

    # ---- Memory

    def _allocate(self, size: int) -> _buffers.Block:
        try:
            return self._connection.allocate(size)
        except errors.OutOfMemory:
            if not any(self._spare.values()):
                raise
            self._spare.clear()
            return self._connection.allocate(size)

    def _borrow(self, size: int) -> _buffers.Block:
        """Returns a Block for a copy of `size` bytes: a free Block of an earlier copy if there is one."""
        rounded = -(-max(size, 1) // _PAGE) * _PAGE
        spare = self._spare[rounded]
        return spare.pop() if spare else self._allocate(rounded)

    def _give_back(self, block: _buffers.Block) -> None:
        if not self._connection.closed:
            self._spare[block.size].append(block)

    # ---- Starting

    def _how(self, tag: object, timeout: object, strategy: object = None, average: object = False,
             reduction: object = "sum", codec: object = None) -> _library.How:
        _ = self._connection.handle  # raises now, before any error in the arguments
        how = _library.How(ctypes.sizeof(_library.How))
        how.average = _arguments.flag("average", average)
        how.reduction = _arguments.reduction(reduction)
        how.strategy = _arguments.strategy_name(strategy)
        how.codec = _arguments.codec_name(codec, self._codecs)
        if tag is not None:
            how.has_tag = 1
            how.tag = _arguments.whole("tag", tag, 0, MAX_TAG)
        how.timeout_ms = _arguments.milliseconds("timeout", timeout)
        return how

    def _reduce(self, name: str, array: NDArray[Any], options: tuple[object, object, object, object, object],
                codec: object, residual: NDArray[Any] | None, type_name: object, async_: object, *more: int,
                encoded: Encoded | None = None) -> Any:
        if encoded is not None:
            _encoded.check(encoded, codec, self._connection)
            codec = encoded.codec
        bound = codec if isinstance(codec, AdaptiveBound) else None
        how = self._how(*options, None if bound is not None else codec)
        check_array("data", array)
        if how.reduction == _library.Reduction.SUM:
            form = _forms.of_sum(array, type_name, how.average)
        else:
            form = _forms.of_pick(array, type_name)
            if bound is not None:
                raise errors.bad_argument(f"{name}: an AdaptiveBound is only for sums; minima and maxima are exact")
        count = self._count(name, array, form)
        self._tidy()
        if bound is not None:
            residual = self._begin(bound, name, array, form, residual)
            how.codec = bound.codec().encode()
        if residual is not None:
            self._check_residual(residual, array, how.codec)
        self._clear(name, array, residual, None if encoded is None else encoded.array)
        # If the bound has chosen the exact codec, the whole residual is added to the data.
        exact = bound is not None and how.codec == self._codecs.exact.encode()
        whole_residual = residual if exact and residual is not None and numpy.any(residual) else None
        data = Operand(self, array, form, copy=whole_residual is not None)
        operation = Operation(name, data, bound)
        if whole_residual is not None:
            # With local_reduce, a residual belongs to the mean of the daemon's trainers, so it is multiplied by their
            # number.
            trainers = max(self._lib.gradlane_local_reduce(self._connection.handle), 1) if how.average else 1
            data.work += whole_residual.reshape(array.shape) * numpy.float32(trainers)
            operation.applied_residual = whole_residual
        elif residual is not None and not exact:
            operation.residual = Operand(self, residual, _forms.FLOAT32)
            how.residual = operation.residual.address
        if encoded is not None:
            if encoded.count != count:
                raise errors.bad_argument(f"encoded has {encoded.count} floats, and the array has {count}")
            operation.source = Operand(self, encoded.array, _forms.BYTES)
            how.encoded, how.encoded_bytes = operation.source.address, encoded.nbytes
        if not how.average:
            operation.scale = 1 / self.world
        return self._run(operation, (data.address, count, form.type, *more), how, async_)

    def _copy(self, name: str, array: NDArray[Any], more: tuple[int, ...], how: _library.How, type_name: object,
              async_: object) -> Any:
        check_array("data", array)
        form = _forms.of_copy(array, type_name)
        count = self._count(name, array, form)
        self._tidy()
        self._clear(name, array)
        data = Operand(self, array, form)
        return self._run(Operation(name, data), (data.address, count, form.type, *more), how, async_)

    def _encode(self, array: NDArray[Any], codec: object, out: NDArray[numpy.uint8] | None,
                timeout: object) -> Encoded:
        how = self._how(None, timeout, codec=codec)
        name = codec if isinstance(codec, str) else self.codec
        check_array("data", array, written=False)
        form = _forms.of_sum(array, None, False)
        if form.type != _library.Type.FLOAT32:
            raise errors.bad_argument(f"encode of {array.dtype}; allowed: float32, complex64: use array.astype()")
        count = self._count("encode", array, form)
        self._tidy()
        if out is not None:
            _encoded.check_array("out", out, self._connection)
        self._clear("encode", array, out)
        block, space = None, out
        if space is None:
            block = self._borrow(self._lib.gradlane_encoded_space(count))
            space = _buffers.array_over(block, (block.size,), numpy.uint8)
        operation = Operation("encode", Operand(self, space, _forms.BYTES))
        operation.source = data = Operand(self, array, form)
        self._run(operation, (data.address, count, space.ctypes.data, space.size), how, False)
        kept = space[:self._lib.gradlane_encoded_bytes(space.ctypes.data, count)]
        if block is not None:  # keep memory of exactly these bytes
            exact = _buffers.array_over(self._allocate(kept.size), kept.shape, numpy.uint8)
            exact[:] = kept
            kept = exact
            self._give_back(block)
        return Encoded(kept, count, name)

    def _count(self, name: str, array: NDArray[Any], form: _forms.Form) -> int:
        if name not in _BLOCKS:
            return array.size * form.per_element
        if array.size % self.world != 0:
            raise errors.bad_argument(
                f"{name}: {array.size} elements cannot be divided into {self.world} blocks of equal size, one per rank"
            )
        return array.size // self.world * form.per_element

    def _states(self, name: bytes | None) -> int:
        """Returns how many arrays a residual has for the codec of this name; None: the daemon's default."""
        if name not in self._states_of:
            self._states_of[name] = _codecs.find(self._connection, name).states
        return self._states_of[name]

    def _check_residual(self, residual: NDArray[Any], array: NDArray[Any], codec: bytes | None) -> None:
        check_array("residual", residual)
        if residual.dtype != numpy.float32 or array.dtype.kind != "f" or array.dtype.itemsize != 4:
            raise errors.bad_argument(
                f"residual of {residual.dtype} for data of {array.dtype}: both must be float32, as other types are "
                "sent exactly"
            )
        states = max(self._states(codec), 1)  # if it is 0, the library raises the error
        if residual.size != states * array.size:
            several = "" if states == 1 else f"; needed: {states} arrays of states, shape ({states}, {array.size}): "
            several += "" if states == 1 else "use residual_for()"
            raise errors.bad_argument(f"residual has {residual.size} elements, and data has {array.size}{several}")
        if states > 1 and residual.shape not in ((residual.size,), (states, array.size), (states, *array.shape)):
            raise errors.bad_argument(
                f"residual has shape {residual.shape}, but codec {(codec or self.codec.encode()).decode()} needs "
                f"{states} arrays of states, shape ({states}, {array.size}): use residual_for()"
            )
        if overlap(residual, array):
            raise errors.bad_argument("residual and data overlap in memory: use a separate array for the residual")

    def _begin(self, bound: AdaptiveBound, name: str, array: NDArray[Any], form: _forms.Form,
               residual: NDArray[Any] | None) -> NDArray[Any] | None:
        """Checks that the bound can choose the operation's codec; raises BadArgument if not. Returns the residual to
        use, or None."""
        if name != "all_reduce" or form[:2] != _forms.FLOAT32[:2]:
            raise errors.bad_argument(
                f"{name} of {array.dtype} with an AdaptiveBound: it is only for all_reduce of float32"
            )
        user = bound._user
        if user is not None and not user.over:
            if not user.dropped:
                raise errors.bad_argument(
                    f"the AdaptiveBound is in use by {describe(user)}: wait for that request first, and use one "
                    "AdaptiveBound per tensor"
                )
            self._await(user)
        bound._codecs = self._codecs
        if not bound.error_feedback:
            return residual
        if residual is not None:
            raise errors.bad_argument("an AdaptiveBound with error_feedback keeps its own residual: pass no other one")
        return bound._residual_in(self, array.size)

    def _run(self, operation: Operation, arguments: tuple[int, ...], how: _library.How, async_: object) -> Any:
        handle = self._connection.handle
        async_ = _arguments.flag("async_", async_)
        function = getattr(self._lib, "gradlane_" + operation.name)
        request: AnyRequest = Request(self, operation)
        operation.holder = Holder(request, self._dropped.append)
        operation.holder.operation = operation
        try:
            self._pending[operation] = operation.bounds()
            if operation.bound is not None:
                operation.bound._lend(operation)
            code = function(handle, *arguments, ctypes.byref(how), ctypes.byref(operation.number))
            if code != errors.OK:
                self._connection.check(code)
            return request if async_ else request.wait()
        except BaseException:
            self._abandon(operation)
            raise

    def _clear(self, name: str, *arrays: NDArray[Any] | None) -> None:
        """Makes sure that no operation in flight uses these arrays. It waits for operations whose Requests are gone.
        Raises BadArgument if a Request still exists."""
        if not self._pending:
            return
        for array in arrays:
            if array is None:
                continue
            low, high = bounds(array)
            pending = list(self._pending.items())
            for other in [it for it, all_ in pending if any(low < end and first < high for first, end in all_)]:
                if not other.uses(array):
                    continue
                if not other.dropped:
                    raise errors.bad_argument(
                        f"{name}: the array is in use by {describe(other)}: wait for that request first"
                    )
                self._await(other)

    # ---- Ends

    def _ask(self, operation: Operation, timeout_ms: int) -> bool:
        """Waits for `timeout_ms` at most. Returns whether the operation is over."""
        if self._dropped:
            self._reap()
        over = self._look(operation, timeout_ms)
        if over:  # not before: where warnings are errors, this may raise, and the operation must still run to its end
            _losses.warn(self._lib, self._connection._handle)
        return over

    def _look(self, operation: Operation, timeout_ms: int, copy: bool = True) -> bool:
        if operation.over:
            return True
        if operation.number.value == 0:
            operation.forget(self)
        elif operation.ended or operation.ask(self._lib, self._connection.handle, timeout_ms):
            operation.settle(self, copy)
        return operation.over

    def _await(self, operation: Operation) -> None:
        """Waits for an operation whose Request is gone. Its result is not copied back to a plain array."""
        while not self._look(operation, _SLICE_MS, copy=False):
            pass

    def _cancel(self, operation: Operation) -> None:
        self._connection.check(self._lib.gradlane_cancel(self._connection.handle, operation.number))

    def _tidy(self) -> None:
        """Processes the ends of operations that nobody waits for any more. It is called before an operation starts."""
        if self._abandoned:
            self._end_abandoned()
        if self._dropped:
            self._reap()

    def _reap(self) -> None:
        """Processes the ends of operations whose Requests are gone, up to the first operation that is not over.

        Later ones are left for the next call, as operations mostly end in the order of their starts.
        """
        while self._dropped:
            operation = self._dropped[0].operation
            if operation is not None and not self._look(operation, 0, copy=False):
                return
            self._dropped.popleft()

    def _abandon(self, operation: Operation) -> None:
        """Cancels an operation whose call was interrupted by another exception, since nobody will wait for it."""
        if operation.over:
            return
        if operation.number.value == 0:
            operation.forget(self)
            return
        self._abandoned.append(operation)
        self._end_abandoned(time.monotonic() + _CANCEL_S)

    def _end_abandoned(self, until: float | None = None) -> None:
        """Cancels abandoned operations and waits for their ends. until: monotonic time at which to give up; None: no
        limit.

        Results are copied to plain arrays only if `until` is given. Otherwise the call comes later than the interrupted
        one, and the arrays may have other contents by then.
        """
        while self._abandoned:
            operation = self._abandoned[0]
            if not operation.cancelled and not operation.ended:
                self._lib.gradlane_cancel(self._connection.handle, operation.number)
                operation.cancelled = True
            while not self._look(operation, _SLICE_MS, copy=until is not None):
                if until is not None and time.monotonic() > until:
                    return
            self._abandoned.popleft()
