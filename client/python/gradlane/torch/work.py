"""What the backend's operations return: Work objects of PyTorch."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any, Callable

import torch.distributed as dist
from torch.futures import Future

from . import interrupts
from .summary import Overlap

_SLICE_S = 0.1


class Work(dist.Work):
    """An operation that was started. wait() raises gradlane's own exceptions.

    native/work.h holds it for C++. FSDP2 has it as it is, and waits for what is an instance of dist.Work.
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
        """True when it is over, or raises what went wrong; TimeoutError if it takes longer than a timedelta `timeout`,
        which leaves the operation as it is."""
        if not self.is_completed():
            self._sleep(timeout.total_seconds() if timeout is not None else 0)
        try:
            self._future.wait()
        except RuntimeError as error:
            raise self._error or error from None
        return True

    def _sleep(self, seconds: float) -> None:
        """Until it is over, for so long at most; 0: no limit. Ctrl-C would not get through to the future's wait()."""
        ended, begin = threading.Event(), time.monotonic()
        self._future.add_done_callback(lambda _: ended.set())
        end = begin + seconds
        try:
            # A signal that comes just before the thread sleeps is seen when it wakes up.
            while not ended.wait(min(_SLICE_S, end - time.monotonic()) if seconds > 0 else _SLICE_S):
                if 0 < seconds and end <= time.monotonic():
                    raise TimeoutError(f"gradlane: the operation was not over within {seconds:g} s")
        except TimeoutError:
            raise
        except BaseException:
            interrupts.note()
            raise
        finally:
            Overlap.wait(time.monotonic() - begin)

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def get_future(self) -> Future[Any]:
        """Of the list of tensors that the operation was called with."""
        return self._future

    def result(self) -> Any:
        """The list of tensors that the operation was called with."""
        return self._tensors

    def is_completed(self) -> bool:
        """Whether it is over, however it ended."""
        return bool(self._future.done())

    def is_success(self) -> bool:
        """Whether it is over and went well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """What went wrong, if anything has."""
        return self._error
