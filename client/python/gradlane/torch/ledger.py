"""What has gone where: counted per process, printed by gradlane.torch.explain()."""

from __future__ import annotations

import threading
from typing import Any, Iterable

import torch

HERE = "gradlane"

_counts: dict[tuple[str, str, str], list[int]] = {}
_express: set[Any] = set()  # those of native/express.h, which count by themselves
_lock = threading.Lock()


def size_of(tensors: Any) -> int:
    """Bytes of tensors, in lists at any depth."""
    if isinstance(tensors, torch.Tensor):
        return int(tensors.numel() * tensors.element_size())
    return sum(map(size_of, tensors)) if isinstance(tensors, (list, tuple)) else 0


def note(operation: str, where: str, why: str, nbytes: int) -> None:
    """A call; in any thread. why: of what gradlane does not do itself, the reason."""
    with _lock:
        _add(operation, where, why, 1, nbytes)


def follow(express: Any) -> None:
    """Counts its sums too, until forget()."""
    with _lock:
        _express.add(express)


def forget(express: Any) -> None:
    """It has had its last."""
    with _lock:
        _collect()
        _express.discard(express)


def clear() -> None:
    """Of an earlier job."""
    with _lock:
        _collect()
        _counts.clear()


def explain(show: bool = True) -> list[dict[str, Any]]:
    """What the operations of this process's groups went to since init_process_group("gradlane"), most bytes first.

    Each is {"operation", "where": "gradlane", "Gloo" or "NCCL", "why": of the last two the reason, "calls", "bytes"},
    and a line of a table on standard output, unless show is False. bytes: of the tensors, on this rank, the larger of
    what goes in and what comes out.
    """
    with _lock:
        _collect()
        rows: list[dict[str, Any]] = [
            {"operation": operation, "where": where, "why": why, "calls": calls, "bytes": nbytes}
            for (where, operation, why), (calls, nbytes) in _counts.items()
        ]
    rows.sort(key=lambda row: (row["where"] != HERE, -row["bytes"], row["operation"]))
    if show:
        print(_table(rows), flush=True)
    return rows


def _add(operation: str, where: str, why: str, calls: int, nbytes: int) -> None:
    count = _counts.setdefault((where, operation, why), [0, 0])
    count[0] += calls
    count[1] += nbytes


def _collect() -> None:
    for express in _express:
        calls, nbytes = express.take_counts()
        if calls > 0:
            _add("all_reduce", HERE, "", calls, nbytes)


def _table(rows: Iterable[dict[str, Any]]) -> str:
    lines = [("operation", "goes to", "calls", "bytes", "why")]
    lines += [(row["operation"], row["where"], str(row["calls"]), str(row["bytes"]), row["why"]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        f"{name:{widths[0]}}  {where:{widths[1]}}  {calls:>{widths[2]}}  {nbytes:>{widths[3]}}  {why}".rstrip()
        for name, where, calls, nbytes, why in lines
    )
