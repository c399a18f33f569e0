"""Work objects of PyTorch, which the backend's operations return."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any, Callable

import torch.distributed as dist
from torch.futures import Future

from . import interrupts
from .operations import to_raise
from .summary import Overlap

_SLICE_S = 0.1


class Work(dist.Work):
    """An operation that was started. wait() raises gradlane's own exceptions.

    native/work.h holds it for C++. FSDP2 uses it directly, and waits only for instances of dist.Work.
    """

    _future: Future[Any]
    has_future = True

    def __init__(self, tensors: Any) -> None:
        super().__init__()
        self._tensors = tensors
        self._error: Exception | None = None

    def begin(self, start: Callable[..., Future[Any]]) -> Work:
        """Starts the operation: start(result=, on_error=) returns its future. Returns self."""
        self._future = start(result=self._tensors, on_error=self._fail)
        return self

    def _fail(self, error: Exception) -> None:
        self._error = error

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Waits for the end and returns True, or raises the operation's error. Raises TimeoutError if it takes longer
        than `timeout`; the operation goes on then."""
        if not self.is_completed():
            self._sleep(timeout.total_seconds() if timeout is not None else 0)
        try:
            self._future.wait()
        except RuntimeError as error:
            raise error if self._error is None else to_raise(self._error) from None
        return True

    def _sleep(self, seconds: float) -> None:
        """Waits for the end, at most `seconds` (0: no limit). Ctrl-C would not interrupt the future's wait(). Raises
        TimeoutError."""
        ended, begin = threading.Event(), time.monotonic()
        self._future.add_done_callback(lambda _: ended.set())
        end = begin + seconds
        try:
            # The wait has slices, because a signal that comes just before the thread sleeps is only seen when it wakes
            # up.
            while not ended.wait(min(_SLICE_S, end - time.monotonic()) if seconds > 0 else _SLICE_S):
                if 0 < seconds and end <= time.monotonic():
                    raise TimeoutError(f"gradlane: the operation did not end within {seconds:g} s")
        except TimeoutError:
            raise
        except BaseException:
            interrupts.note()
            raise
        finally:
            Overlap.wait(time.monotonic() - begin)

    def synchronize(self) -> None:
        """Does the same as wait() without a timeout."""
        self.wait()

    def get_future(self) -> Future[Any]:
        """Returns the future of the list of tensors that the operation was called with."""
        return self._future

    def result(self) -> Any:
        """Returns the list of tensors that the operation was called with."""
        return self._tensors

    def is_completed(self) -> bool:
        """Returns whether the operation has ended, with or without an error."""
        return bool(self._future.done())

    def is_success(self) -> bool:
        """Returns whether the operation has ended without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Returns the operation's error, or None."""
        return None if self._error is None else to_raise(self._error)
