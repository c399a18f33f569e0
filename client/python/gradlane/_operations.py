"""Operations under way, as the context keeps them.

A handler of signals may raise an exception between any two steps in Python, and KeyboardInterrupt does. So whatever the
library says is kept by C, in the call that asks for it; from then on each step can be done again, or later, by whoever
looks at the operation next.
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
from ._operands import Operand, overlap

if TYPE_CHECKING:
    from ._protocols import Operations
    from .adaptive import AdaptiveBound

_CALL: Callable[[Any], Any] = functools.partial.__call__
_SET = numpy.ndarray.__setitem__


class Holder(weakref.ref[Any]):
    """A reference to the Request of an operation. When that goes it is appended to a deque, by C."""

    operation: Operation | None = None


class Operation:
    """From before the library has it until its end is taken in.

    source: what an all-to-all sends; data is where blocks come to. number: the library's, 0 until it has the operation.
    said: code, text and cause of its latest answer. holder: of the Request. bound: an AdaptiveBound that chose its
    codec, or None. paid: the array of a residual that is in the data, to be zeros then. scale: of the data, so that it
    is an average. outcome: code, text and cause, when it is over.
    """

    def __init__(self, name: str, data: Operand | None = None, bound: AdaptiveBound | None = None) -> None:
        self.name = name
        self.data = data
        self.source: Operand | None = None
        self.residual: Operand | None = None
        self.paid: NDArray[Any] | None = None
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
        """Whether the library has said how, and forgotten it."""
        return bool(self.said) and self.said[0] != errors.PENDING

    @property
    def dropped(self) -> bool:
        """Whether nobody can wait for it any more, as its Request is gone."""
        return self.holder is not None and self.holder() is None

    def uses(self, array: NDArray[Any], low: int, high: int) -> bool:
        """Whether of this array, which lies between the addresses."""
        for operand in (self.data, self.source, self.residual):
            if operand is None:
                continue
            other_low, other_high = operand.bounds
            if low < other_high and other_low < high and overlap(array, operand.array):
                return True
        return False

    def ask(self, lib: ctypes.CDLL, handle: int | None, timeout_ms: int) -> bool:
        """Whether it has ended, within the time."""
        if not self.ended:
            wait = functools.partial(lib.gradlane_wait, handle, self.number, timeout_ms)
            self.said[:] = map(_CALL, (wait, functools.partial(lib.gradlane_error, handle),
                                       functools.partial(lib.gradlane_get_cause, handle)))
        return self.ended

    def settle(self, context: Operations, copy: bool = True) -> None:
        """Takes in how it has ended. copy: the result goes to a plain array, too."""
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
        """[(where to, from where)]"""
        copies = self.data.results() if copy and code == errors.OK and self.data is not None else []
        if self.residual is None and self.paid is None:
            return copies
        if code in (errors.OK, errors.Code.FAILED):  # the residual is zeros if it has failed
            if self.residual is not None:
                copies += self.residual.results()
            if self.paid is not None:
                copies.append((self.paid, 0))
        return copies

    def forget(self, context: Operations) -> None:
        """The library never had it."""
        self.drop(context)
        if self.bound is not None and self.bound._user is self:
            self.bound._lend(None)
        self.outcome = errors.Code.BAD_ARGUMENT, "it has not begun", errors.Cause.NONE

    def drop(self, context: Operations) -> None:
        """The library does not have it, or no more."""
        if self.data is not None:
            self.data.release(context)
        if self.source is not None:
            self.source.release(context)
        if self.residual is not None:
            self.residual.release(context)
        context._pending.pop(self, None)
        self.holder = None


def describe(operation: Operation) -> str:
    """What its name is and what it is of, for messages."""
    if operation.data is None:
        return operation.name
    array = operation.data.array
    return f"{operation.name} of {array.size} {array.dtype}"
