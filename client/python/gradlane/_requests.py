"""Operations under way, as the caller has them."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from . import _arguments, _operations, errors

if TYPE_CHECKING:
    from ._protocols import Asked

# Between two of these Python sees signals, Ctrl-C above all.
_SLICE_MS = 100

Result = TypeVar("Result")


class Request(Generic[Result]):
    """An operation that was started with async_=True.

    Its array belongs to the daemon until wait() returns or raises, or done() says True, which is also what brings the
    result into a plain array. Drop a request, and its operation runs to its end all the same, which nobody hears of.
    """

    def __init__(self, context: Asked, operation: _operations.Operation) -> None:
        self._context = context
        self._operation = operation

    def __repr__(self) -> str:
        operation = self._operation
        state = "not waited for"
        if operation.outcome is not None:
            code, text, _ = operation.outcome
            state = "over" if code == errors.OK else f"failed: {text}"
        return f"<gradlane.Request: {_operations.describe(operation)}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a gradlane.Request is of the process that started it: pass on the array, after wait()")

    def wait(self, timeout: float | None = None) -> Result:
        """Waits until it is over and returns the array that was passed (None of a barrier).

        timeout: seconds, None: no limit. Raises TimeoutError if it is not over then, which leaves it as it is, and
        OperationFailed or DaemonGone if that is how it ended; BadArgument for a timeout that is none. Where warnings
        are errors a LossWarning may come: the operation has gone well then. Ctrl-C interrupts the wait, not the
        operation: wait again.
        """
        operation = self._operation
        end = None
        if timeout is not None:
            end = time.monotonic() + _arguments.seconds("timeout", timeout)
        while operation.outcome is None:
            slice_ms = _SLICE_MS
            if end is not None:
                left = end - time.monotonic()
                slice_ms = math.ceil(min(_SLICE_MS, left * 1000)) if left > 0 else 0
            if not self._context._ask(operation, slice_ms) and slice_ms == 0:
                raise TimeoutError(f"{_operations.describe(operation)} has not ended within {timeout} s")
        code, text, cause = operation.outcome
        if code != errors.OK:
            raise errors.error(code, text, cause)
        return cast(Result, None if operation.data is None else operation.data.array)

    def done(self) -> bool:
        """Whether it is over, however it ended; wait() then returns or raises at once. Raises DaemonGone, LossWarning
        where warnings are errors."""
        return self._operation.over or self._context._ask(self._operation, 0)

    def cancel(self) -> None:
        """Has it fail on all ranks, if it is not over. It must still be waited for. Raises DaemonGone."""
        if not (self._operation.over or self._operation.ended):
            self._context._cancel(self._operation)


AnyRequest = Request[Any]
