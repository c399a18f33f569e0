"""Operation: the context's record of an operation in flight.

A signal handler may raise an exception between any two steps in Python, such as KeyboardInterrupt. So C code stores the
library's answer, in the same call that asks for it. Each later step can be repeated, or be done when the context checks
the operation again.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import weakref
from typing import TYPE_CHECKING, Any, Callable

import numpy
from numpy.typing import NDArray

from . import errors
from ._operands import Operand, bounds, overlap

if TYPE_CHECKING:
    from ._protocols import Operations
    from .adaptive import AdaptiveBound

_CALL: Callable[[Any], Any] = functools.partial.__call__
_SET = numpy.ndarray.__setitem__


class Holder(weakref.ref[Any]):
    """A weak reference to the Request of an operation. When the Request is gone, C code appends the reference to a
    deque."""

    operation: Operation | None = None


class Operation:
    """An operation, from before the library gets it until its end has been processed.

    `source`: operand that is only read: what an all-to-all sends, the floats that are encoded, or an encoded
    contribution. `data`: operand that gets the result. `number`: the library's number of the operation; 0 until the
    library has it. `said`: code, text and cause of the library's latest answer. `holder`: reference to the Request.
    `bound`: the AdaptiveBound that has chosen its codec, or None. `applied_residual`: array of a residual that was
    added to the data; it is set to zeros at the end. `scale`: factor that makes the result an average. `outcome`: code,
    text and cause, when the operation is over.
    """

    def __init__(self, name: str, data: Operand | None = None, bound: AdaptiveBound | None = None) -> None:
        self.name = name
        self.data = data
        self.source: Operand | None = None
        self.residual: Operand | None = None
        self.applied_residual: NDArray[Any] | None = None
        self.bound = bound
        self.scale = 1.0
        self.number = ctypes.c_uint64()
        self.said: list[Any] = []
        self.outcome: tuple[int, str, int] | None = None
        self.holder: Holder | None = None
        self.cancelled = False
        self._copied = False

    @property
    def over(self) -> bool:
        return self.outcome is not None

    @property
    def ended(self) -> bool:
        """Whether the library has reported the end, and has forgotten the operation."""
        return bool(self.said) and self.said[0] != errors.PENDING

    @property
    def dropped(self) -> bool:
        """Whether nobody can wait for the operation any more, because its Request is gone."""
        return self.holder is not None and self.holder() is None

    @property
    def _operands(self) -> list[Operand]:
        return [operand for operand in (self.data, self.source, self.residual) if operand is not None]

    def bounds(self) -> list[tuple[int, int]]:
        """Returns the bounds() of each of the operation's arrays."""
        return [bounds(operand.array) for operand in self._operands]

    def uses(self, array: NDArray[Any]) -> bool:
        """Returns whether the operation uses elements of this array."""
        return any(overlap(array, operand.array) for operand in self._operands)

    def ask(self, lib: ctypes.CDLL, handle: int | None, timeout_ms: int) -> bool:
        """Waits for the operation's end, for `timeout_ms` at most. Returns whether it has ended."""
        if not self.ended:
            wait = functools.partial(lib.gradlane_wait, handle, self.number, timeout_ms)
            self.said[:] = map(_CALL, (wait, functools.partial(lib.gradlane_error, handle),
                                       functools.partial(lib.gradlane_get_cause, handle)))
        return self.ended

    def settle(self, context: Operations, copy: bool = True) -> None:
        """Processes the end of the operation. copy: whether the result is copied back to a plain array."""
        if self.outcome is not None:
            return
        code = self.said[0]
        if not self._copied:
            copies = self._copies(code, copy)
            if copies:
                targets, sources = zip(*copies)
                list(map(_SET, targets, itertools.repeat(...), sources))
            self._copied = True
        if self.bound is not None:
            self.bound._take(self, self.data.work if code == errors.OK and self.data is not None else None)
        self.drop(context)
        self.outcome = code, self.said[1].decode(errors="replace"), self.said[2]

    def _copies(self, code: int, copy: bool) -> list[tuple[NDArray[Any], Any]]:
        """Returns the copies to make, as a list of (target, source)."""
        copies = self.data.results() if copy and code == errors.OK and self.data is not None else []
        if self.residual is None and self.applied_residual is None:
            return copies
        if code in (errors.OK, errors.Code.FAILED):  # after a failure the residual is zeros
            if self.residual is not None:
                copies += self.residual.results()
            if self.applied_residual is not None:
                copies.append((self.applied_residual, 0))
        return copies

    def forget(self, context: Operations) -> None:
        """Ends an operation that was never passed to the library."""
        self.drop(context)
        if self.bound is not None and self.bound._user is self:
            self.bound._lend(None)
        self.outcome = errors.Code.BAD_ARGUMENT, "the operation did not start", errors.Cause.NONE

    def drop(self, context: Operations) -> None:
        """Releases the memory of an operation that the library does not have, or no longer has."""
        if self.data is not None:
            self.data.release(context)
        if self.source is not None:
            self.source.release(context)
        if self.residual is not None:
            self.residual.release(context)
        context._pending.pop(self, None)
        self.holder = None


def describe(operation: Operation) -> str:
    """Returns the operation's name, and size and type of its data, for messages."""
    if operation.data is None:
        return operation.name
    array = operation.data.array
    return f"{operation.name} of {array.size} {array.dtype}"
