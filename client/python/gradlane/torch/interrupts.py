"""Record of interrupted calls: after a signal such as Ctrl-C, this rank may have skipped operations."""

from __future__ import annotations

seen = False  # whether a call has been interrupted since the engine was opened


def note() -> None:
    """Record that a signal has interrupted a call; native/work.h calls this, too."""
    global seen
    seen = True


def clear() -> None:
    """Forget interrupts: the rendezvous is complete, and ranks count operations from 0 again."""
    global seen
    seen = False
