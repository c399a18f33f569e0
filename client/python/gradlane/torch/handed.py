"""Works that are not the engine's own: of operations that another engine does, and of several operations together."""

from __future__ import annotations

import datetime
import threading
from typing import Any, Callable, Sequence

import torch
from torch.futures import Future

from .work import Work

_NEVER = datetime.timedelta(0)


class Handed(Work):
    """An operation that another engine does, by its own Work.

    finish() puts the result where it belongs; called once, by whoever learns first that the operation is over.
    explained(error) is the exception for what the engine raises. has_future: as Gloo's have; not sends and receives, of
    which Gloo does not know the end before somebody waits.
    """

    def __init__(self, other: Any, tensors: Any, finish: Callable[[], None],
                 explained: Callable[[Exception], Exception], has_future: bool = True) -> None:
        super().__init__(tensors)
        self._other, self._finish, self._explained = other, finish, explained
        self._once = threading.Lock()
        self._waiting = threading.Lock()  # a second wait() of Gloo's receive would wait for another one
        self._finished = False
        self.has_future = has_future

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """As of Work."""
        with self._waiting:
            if not self._finished and self._error is None:
                self._wait(timeout or _NEVER)
        self._end()
        return True

    def _wait(self, timeout: datetime.timedelta) -> None:
        try:
            if timeout == _NEVER:
                self._other.wait()
            else:
                self._other.wait(timeout)
        except RuntimeError as error:
            if timeout != _NEVER and not self._other.is_completed():
                seconds = timeout.total_seconds()
                raise TimeoutError(f"gradlane: the operation was not over within {seconds:g} s") from None
            self._failed(error)

    def get_future(self) -> Future[Any]:
        """As of Work. Sends and receives have none: RuntimeError."""
        if not hasattr(self, "_future"):
            self._future = self._other.get_future().then(self._value)
        return self._future

    def is_completed(self) -> bool:
        """As of Work. Gloo's future may be there before its work says so."""
        if not self._finished and self._error is None and not self._other.is_completed():
            return False
        if not self._finished and self._error is None:
            try:
                self.wait()
            except Exception:  # exception() has it
                pass
        return True

    def exception(self) -> Exception | None:
        """As of Work."""
        self.is_completed()
        return self._error

    def source_rank(self) -> int:
        """Of a receive: whose it was."""
        return int(self._other._source_rank())

    def _value(self, future: Future[Any]) -> Any:
        try:
            future.value()
        except RuntimeError as error:
            raise self._failed(error) from None
        self._end()
        return self._tensors

    def _failed(self, error: Exception) -> Exception:
        with self._once:
            if self._error is None:
                self._error = self._explained(error)
            return self._error

    def _end(self) -> None:
        """Raises what has failed, in the operation or in putting its result where it belongs."""
        with self._once:
            if self._error is None and not self._finished:
                try:
                    self._finish()
                except Exception as error:
                    self._error = error
                self._finished = True  # not before: is_completed() believes it without the lock
        if self._error is not None:
            raise self._error


class Several(Work):
    """Operations that are over when all of them are; `result` is what result() and the future have."""

    def __init__(self, works: Sequence[Work], result: Any) -> None:
        super().__init__(result)
        self._works = list(works)

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """As of Work."""
        for work in self._works:
            try:
                work.wait(timeout)
            except Exception as error:
                self._error = self._error or error
                raise
        return True

    def get_future(self) -> Future[Any]:
        """As of Work."""
        if not hasattr(self, "_future"):
            self._future = torch.futures.collect_all([work.get_future() for work in self._works]).then(self._value)
        return self._future

    def is_completed(self) -> bool:
        """As of Work."""
        return all([work.is_completed() for work in self._works])

    def exception(self) -> Exception | None:
        """As of Work."""
        return next((error for error in (work.exception() for work in self._works) if error is not None), None)

    def _value(self, futures: Future[Any]) -> Any:
        for future in futures.value():
            future.value()
        return self._tensors
