"""Summary of what compression has saved in a job, in the daemon's words. Rank 0 prints it at the end if
GRADLANE_SUMMARY=1."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import socket
import sys
import time

_PATIENCE_S = 2.0
_PUBLISHED_S = 0.12  # s after which the daemon's statistics are final


class Overlap:
    """Time for which operations were in flight while the trainer did something else.

    The time from one start to the next counts if an operation was in flight all the time. The time that the trainer
    waited for operations is subtracted. The time after the last start of a step does not count, because nothing is
    known about it. The caller of start() holds the lock of Tasks. Waits of PyTorch's C++ code for futures are not seen.
    """

    waited = 0.0  # s that all threads have spent in Work.wait()

    def __init__(self) -> None:
        self.hidden = 0.0  # s
        self._at = self._waited = 0.0  # time and `waited` at the latest start

    @classmethod
    def wait(cls, seconds: float) -> None:
        """Records that a thread has waited for an operation. native/work.h calls it, too."""
        cls.waited += seconds

    def start(self, under_way: bool) -> None:
        """Records that an operation starts. under_way: whether one before is still in flight."""
        now, waited = time.monotonic(), Overlap.waited
        if under_way:
            self.hidden += max(0.0, now - self._at - (waited - self._waited))
        self._at, self._waited = now, waited


def wanted(rank: int) -> bool:
    """Returns whether this process prints the summary."""
    return rank == 0 and os.environ.get("GRADLANE_SUMMARY") == "1"


def lines(path: str | bytes, hidden: float) -> list[str]:
    """Returns the lines of the summary from the daemon with this socket. hidden: s, as in Overlap. Raises OSError,
    ValueError and LookupError."""
    # the daemon makes the name in the same way (config/loader.cc)
    admin = os.fsdecode(path).removesuffix(".sock") + ".admin"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.settimeout(_PATIENCE_S)
            asked.connect(admin)
            asked.sendall(b"worth %d\n" % max(0, int(1e6 * hidden)))
            answer = b"".join(iter(lambda: asked.recv(1 << 16), b""))
    except OSError as error:
        raise OSError(f"{admin}: {error}") from None
    return [str(line) for line in json.loads(answer)["lines"]]


def _found() -> str:
    """Returns the only socket of a daemon in the first folder that has any (docs/client.md). Raises LookupError if
    there is none, or if there are several."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for folder in ("/run/gradlane", runtime and f"{runtime}/gradlane", f"/tmp/gradlane-{os.getuid()}"):
        paths = glob.glob(f"{glob.escape(folder)}/*.sock") if folder else []
        if len(paths) > 1:
            raise LookupError(f"there are several daemons in {folder}; set GRADLANE_SOCKET to the socket of one")
        if paths:
            return paths[0]
    raise LookupError("no socket of a daemon was found")


def show(path: str | bytes | None, hidden: float) -> None:
    """Prints the summary on standard error. path: socket of the daemon. None: GRADLANE_SOCKET, or the one that is
    found."""
    try:
        path = path or os.environ.get("GRADLANE_SOCKET") or _found()
        time.sleep(_PUBLISHED_S)
        said = lines(path, hidden)
    except (OSError, ValueError, LookupError) as error:
        said = [f"no summary: {error} (see `gradlane stats`)"]
    with contextlib.suppress(OSError, ValueError):  # standard error may be closed
        for line in said:
            print(f"gradlane: {line}", file=sys.stderr, flush=True)
