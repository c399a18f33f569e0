"""What a trainer does, for `gradlane trace --spans`: its steps, its buckets, and whatever else it names."""

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

_MOST = 1_000_000  # spans of a file
_EVERY = 0.1  # seconds between two writes, at least


class Spans:
    """A file of spans, a line of JSON for each: {"rank", "category", "name", "begin_ns", "end_ns"}, by the kernel's
    monotonic clock.

        spans = gradlane.torch.Spans(f"spans-{rank}.jsonl", rank)
        model.register_comm_hook(state, spans.hook(gradlane.torch.hook))
        for batch in data:
            with spans.step():
                ...
        $ gradlane trace --spans spans-0.jsonl spans-1.jsonl

    Of one thread, but for buckets, whose ends come from wherever futures do. What was written can be read a tenth of a
    second later, or after close(). After a million spans it stops, and if nothing can be written: with a warning, as no
    training ends for it.
    """

    def __init__(self, path: str | os.PathLike[str], rank: int) -> None:
        _arguments.whole("rank", rank, 0, 1 << 31)
        self.rank, self.steps, self.spans = rank, 0, 0
        self._file: Any = open(path, "w", encoding="utf-8")  # noqa: SIM115
        self._lines: list[str] = []
        self._written = time.monotonic()
        self._lock = threading.Lock()

    def add(self, category: str, name: str, begin_ns: int, end_ns: int) -> None:
        """One that is over; times as time.monotonic_ns() has them."""
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
        """What is done inside, under a name of your own."""
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            self.add(category, name, begin, time.monotonic_ns())

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """The next step of the training."""
        self.steps += 1
        with self.span(f"step {self.steps - 1}", "step"):
            yield
        self.flush()

    def hook(self, inner: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """A communication hook that does what `inner` does, with a span of each bucket, from gradients to sum."""

        def traced(state: Any, bucket: Any) -> Any:
            begin = time.monotonic_ns()
            buffer = bucket.buffer()
            name = f"bucket {bucket.index()}, {buffer.numel() * buffer.element_size()} bytes"

            def over(future: torch.futures.Future[Any]) -> Any:
                self.add("bucket", name, begin, time.monotonic_ns())
                return future.value()

            return inner(state, bucket).then(over)

        traced.__annotations__.clear()  # DDP wants its own types there, or none
        return traced

    def flush(self) -> None:
        """Writes what there is to the file."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Writes the rest; spans that come later go nowhere."""
        with self._lock:
            self._write()
            self._drop()

    def _write(self) -> None:
        """With the lock held."""
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
            with contextlib.suppress(OSError):  # what could not be written is tried again
                file.close()

    def __enter__(self) -> Spans:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
