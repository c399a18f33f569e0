"""Call statistics: which backend has run how many operations. gradlane.torch.explain() prints those of this process."""

from __future__ import annotations

import threading
from typing import Any, Iterable

import torch

HERE = "gradlane"

_counts: dict[tuple[str, str, str], list[int]] = {}
_fast_path: set[Any] = set()  # native/fast_path.h objects, which count their own calls
_lock = threading.Lock()


def size_of(tensors: Any) -> int:
    """Returns the number of bytes of tensors, in lists at any depth."""
    if isinstance(tensors, torch.Tensor):
        return int(tensors.numel() * tensors.element_size())
    return sum(map(size_of, tensors)) if isinstance(tensors, (list, tuple)) else 0


def note(operation: str, where: str, why: str, nbytes: int) -> None:
    """Counts one call, from any thread. why: reason why gradlane does not run it itself, or ""."""
    with _lock:
        _add(operation, where, why, 1, nbytes)


def follow(fast_path: Any) -> None:
    """Includes the sums of a native.FastPath, until forget()."""
    with _lock:
        _fast_path.add(fast_path)


def forget(fast_path: Any) -> None:
    """Adds the remaining counts of a native.FastPath and no longer includes it."""
    with _lock:
        _collect()
        _fast_path.discard(fast_path)


def clear() -> None:
    """Drops the counts of an earlier job."""
    with _lock:
        _collect()
        _counts.clear()


def explain(show: bool = True) -> list[dict[str, Any]]:
    """Returns which operations of this process's groups each backend has run since init_process_group("gradlane").

    Each item is {"operation", "where", "why", "calls", "bytes"}. "where" is "gradlane", "Gloo" or "NCCL". "why" is the
    reason for Gloo or NCCL, else "". "bytes" is the size of the tensors on this rank, the larger of input and output.
    Items of gradlane come first, then those of the others, both by bytes. Unless `show` is False, the items are also
    printed as a table on standard output.
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
    for fast_path in _fast_path:
        calls, nbytes = fast_path.take_counts()
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
