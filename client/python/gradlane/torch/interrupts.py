"""Whether a signal, Ctrl-C above all, has broken off a call: this rank may have left out operations since."""

from __future__ import annotations

seen = False  # since the engine was opened


def note() -> None:
    """A call was broken off; also called by native/work.h."""
    global seen
    seen = True


def clear() -> None:
    """Ranks have met, and count operations anew."""
    global seen
    seen = False
