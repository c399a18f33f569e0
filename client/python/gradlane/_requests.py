"""Request: the caller's handle of an operation in flight."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from . import _arguments, _operations, errors

if TYPE_CHECKING:
    from ._protocols import Asked

# Milliseconds of one wait. Between two waits Python handles signals such as Ctrl-C.
_SLICE_MS = 100

Result = TypeVar("Result")


class Request(Generic[Result]):
    """An operation that was started with async_=True.

    Its array belongs to the daemon until wait() returns or raises, or done() returns True. If the array is not in
    shared memory, these methods copy the result into it. If a Request is dropped, its operation still runs to the end,
    but its result and error are lost.
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
        raise TypeError("a gradlane.Request cannot go to another process: call wait(), then pass on the array")

    def wait(self, timeout: float | None = None) -> Result:
        """Waits until the operation is over and returns the array that was passed (None for a barrier).

        timeout: seconds; None: no limit. Raises TimeoutError after that time; the operation goes on. Raises
        OperationFailed or DaemonGone if the operation has failed, BadArgument for a wrong timeout. Where warnings are
        errors, wait() may raise a LossWarning, although the operation has succeeded. Ctrl-C interrupts the wait, not
        the operation: call wait() again.
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
        """Returns whether the operation is over, with or without an error. If so, wait() returns or raises at once.
        Raises DaemonGone, and LossWarning where warnings are errors."""
        return self._operation.over or self._context._ask(self._operation, 0)

    def cancel(self) -> None:
        """Makes the operation fail on all ranks, if it is not over. The caller must still wait for it. Raises
        DaemonGone."""
        if not (self._operation.over or self._operation.ended):
            self._context._cancel(self._operation)


AnyRequest = Request[Any]
