"""Times of what a trainer does, for `gradlane trace --spans`: steps, buckets, and spans that it names."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import warnings
from typing import Any, Callable, Iterator

import torch

from .. import _arguments

_MOST = 1_000_000  # largest number of spans in a file
_EVERY = 0.1  # shortest time between two writes of add(), in seconds


class Spans:
    """Writes spans to a file, one line of JSON each.

        spans = gradlane.torch.Spans(f"spans-{rank}.jsonl", rank)
        model.register_comm_hook(state, spans.hook(gradlane.torch.hook))
        for batch in data:
            with spans.step():
                ...
        $ gradlane trace --spans spans-0.jsonl spans-1.jsonl

    A line is {"rank", "category", "name", "begin_ns", "end_ns"}. Times are those of the kernel's monotonic clock. One
    thread uses the object, but spans of buckets end in any thread that completes a future. Spans are written at the end
    of a step, by close(), and by add() if the latest write is 0.1 s ago. After a million spans, more are dropped. They
    are also dropped if the file cannot be written. A warning and not an error says so, so that the training goes on.
    """

    def __init__(self, path: str | os.PathLike[str], rank: int) -> None:
        _arguments.whole("rank", rank, 0, 1 << 31)
        self.rank, self.steps, self.spans = rank, 0, 0
        self._file: Any = open(path, "w", encoding="utf-8")  # noqa: SIM115
        self._lines: list[str] = []
        self._written = time.monotonic()
        self._lock = threading.Lock()

    def add(self, category: str, name: str, begin_ns: int, end_ns: int) -> None:
        """Adds a span that has ended. Times are those of time.monotonic_ns()."""
        span = {"rank": self.rank, "category": category, "name": name, "begin_ns": begin_ns, "end_ns": end_ns}
        with self._lock:
            if self.spans >= _MOST or self._file is None:
                return
            self.spans += 1
            self._lines.append(json.dumps(span) + "\n")
            if time.monotonic() - self._written >= _EVERY:
                self._write()

    @contextlib.contextmanager
    def span(self, name: str, category: str = "trainer") -> Iterator[None]:
        """Returns a context that becomes a span of this name."""
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            self.add(category, name, begin, time.monotonic_ns())

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Returns a context for the next step of the training, which becomes a span."""
        self.steps += 1
        with self.span(f"step {self.steps - 1}", "step"):
            yield
        self.flush()

    def hook(self, inner: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Returns a communication hook that calls `inner` and adds a span of each bucket, from gradients to sum."""

        def traced(state: Any, bucket: Any) -> Any:
            begin = time.monotonic_ns()
            buffer = bucket.buffer()
            name = f"bucket {bucket.index()}, {buffer.numel() * buffer.element_size()} bytes"

            def over(future: torch.futures.Future[Any]) -> Any:
                self.add("bucket", name, begin, time.monotonic_ns())
                return future.value()

            return inner(state, bucket).then(over)

        traced.__annotations__.clear()  # DDP allows its own types here, or none
        return traced

    def flush(self) -> None:
        """Writes the spans that are not in the file yet."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Writes the spans that are not in the file yet, and closes the file. Later spans are dropped."""
        with self._lock:
            self._write()
            self._drop()

    def _write(self) -> None:
        """Writes the spans that are not in the file yet. The caller holds the lock."""
        lines, self._lines = self._lines, []
        self._written = time.monotonic()
        if self._file is None:
            return
        try:
            self._file.write("".join(lines))
            self._file.flush()
        except OSError as error:
            name = self._file.name
            self._drop()
            warnings.warn(f"gradlane.torch.Spans: {name}: {error}; no more spans are written", stacklevel=3)

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # file.close() writes what is left in its buffer, which may fail again
                file.close()

    def __enter__(self) -> Spans:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
