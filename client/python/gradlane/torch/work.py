"""What the backend's operations return: Work objects of PyTorch."""

from __future__ import annotations

import collections
import datetime
import os
import threading
import time
from typing import Any, Callable

import torch.distributed as dist
from torch.futures import Future

from .summary import Overlap

_KEPT = 32
_SLICE_S = 0.1

_Base: Any = getattr(dist, "Work", None) or dist._Work


class Work(_Base):
    """An operation that was started. wait() raises gradlane's own exceptions.

    C++ code that holds it finds the methods here only as long as this Python object lives, and waits for ever without
    them (PyTorch 1.13). So it is kept until wait() or get_future() was called; of those over for which nobody ever does
    the latest 32 are. (The works that PyTorch makes from futures would not need that, but their wait() does not raise.)
    """

    _kept: collections.OrderedDict[int, Work] = collections.OrderedDict()
    _lock = threading.RLock()

    _future: Future[Any]
    has_future = True

    def __init__(self, tensors: Any) -> None:
        super().__init__()
        self._tensors = tensors
        self._error: Exception | None = None

    def begin(self, start: Callable[..., Future[Any]]) -> Work:
        """Starts the operation: start(result=, on_error=) returns its future. Returns self."""
        self._future = start(result=self._tensors, on_error=self._fail)
        self.keep()
        return self

    def keep(self) -> None:
        """Until somebody asks for what has become of it."""
        with Work._lock:
            Work._kept[id(self)] = self
        while True:
            with Work._lock:
                oldest = next(iter(Work._kept.values())) if len(Work._kept) > _KEPT else None
            # It is asked without the lock: it may wait for a thread that wants that.
            if oldest is None or not oldest.is_completed():
                return
            oldest._asked()

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _asked(self) -> None:
        with Work._lock:
            Work._kept.pop(id(self), None)

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """True when it is over, or raises what went wrong; TimeoutError if it takes longer than a timedelta `timeout`,
        which leaves the operation as it is."""
        if not self.is_completed():
            self._sleep(timeout.total_seconds() if timeout is not None else 0)
        try:
            self._future.wait()
        except RuntimeError as error:
            raise self._error or error from None
        finally:
            self._asked()
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
        finally:
            Overlap.wait(time.monotonic() - begin)

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def get_future(self) -> Future[Any]:
        """Of the list of tensors that the operation was called with."""
        self._asked()
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


def _renew_lock() -> None:
    Work._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)
