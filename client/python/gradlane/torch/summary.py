"""What compression has brought a job, in the daemon's words: printed by rank 0 at the end, if GRADLANE_SUMMARY=1."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import socket
import sys
import time

_PATIENCE_S = 2.0
_PUBLISHED_S = 0.12  # after that the daemon's figures are those of the end


class Overlap:
    """How long operations were under way while the trainer did something else: from one start to the next, if they were
    all the time, less what it waited for them. After the last start of a step nobody knows, and nothing counts.

    Of start(), the driver's lock is held. Waits of PyTorch's C++ code for futures are not seen.
    """

    waited = 0.0  # s, of all threads, in Work.wait()

    def __init__(self) -> None:
        self.hidden = 0.0  # s
        self._at = self._waited = 0.0  # of the latest start

    @classmethod
    def wait(cls, seconds: float) -> None:
        """Somebody has waited for an operation; also called by native/work.h."""
        cls.waited += seconds

    def start(self, under_way: bool) -> None:
        """An operation starts. under_way: the one before is not over yet."""
        now, waited = time.monotonic(), Overlap.waited
        if under_way:
            self.hidden += max(0.0, now - self._at - (waited - self._waited))
        self._at, self._waited = now, waited


def wanted(rank: int) -> bool:
    """Whether this process prints it."""
    return rank == 0 and os.environ.get("GRADLANE_SUMMARY") == "1"


def lines(path: str | bytes, hidden: float) -> list[str]:
    """What the daemon with this socket says of the job. Raises OSError, ValueError and LookupError."""
    admin = os.fsdecode(path).removesuffix(".sock") + ".admin"  # as tools/admin finds it
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
    """The only socket of a daemon that there is, in the first folder that has any (docs/client.md)."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for folder in ("/run/gradlane", runtime and f"{runtime}/gradlane", f"/tmp/gradlane-{os.getuid()}"):
        paths = glob.glob(f"{glob.escape(folder)}/*.sock") if folder else []
        if len(paths) > 1:
            raise LookupError(f"there are several daemons in {folder}; GRADLANE_SOCKET can name one")
        if paths:
            return paths[0]
    raise LookupError("no socket of a daemon was found")


def show(path: str | bytes | None, hidden: float) -> None:
    """Prints it on standard error. path: the daemon's socket; None: as the library finds it."""
    try:
        path = path or os.environ.get("GRADLANE_SOCKET") or _found()
        time.sleep(_PUBLISHED_S)
        said = lines(path, hidden)
    except (OSError, ValueError, LookupError) as error:
        said = [f"no summary: {error} (gradlane stats has it)"]
    with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
        for line in said:
            print(f"gradlane: {line}", file=sys.stderr, flush=True)
