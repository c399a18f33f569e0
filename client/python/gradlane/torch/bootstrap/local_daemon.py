"""A gradlaned that this process has started for its job: search for the program, start, log and end."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Sequence

_SLICE_S = 0.003
_ENDING_S = 5.0
_MOST_PATH = 107  # longest path of a Unix socket, in bytes
_LINES = 12
_PORT_IN_USE = 4  # exit status of gradlaned: another process has its UDP port (docs/service.md)


class CannotStart(Exception):
    """The daemon cannot be started. The text says why, with the last lines of the daemon's log."""


class PortsInUse(CannotStart):
    """Another process has taken the UDP ports in the meantime. Other ports may be free."""


def binary() -> str:
    """Returns the path of gradlaned. Raises CannotStart, whose text names the places that were searched."""
    named = os.environ.get("GRADLANED")
    if named:
        found = shutil.which(named)
        if found is None:
            no = "this is not an executable program" if os.path.exists(named) else "there is no such program"
            raise CannotStart(f"GRADLANED={named}: {no}")
        return os.path.abspath(found)
    package = pathlib.Path(__file__).resolve().parents[2]
    places = [package / "bin" / "gradlaned"]
    if len(package.parents) > 2:  # in the source tree the package is client/python/gradlane
        places.append(package.parents[2] / "build" / "tools" / "gradlaned")
    for place in places:
        if os.access(place, os.X_OK):
            return str(place)
    found = shutil.which("gradlaned")
    if found is None:
        raise CannotStart(f"there is no gradlaned: neither {' nor '.join(map(str, places))}, nor in PATH; install it, "
                          "or set GRADLANED to its path")
    return os.path.abspath(found)


class Started:
    """A daemon that ends when the processes `serving` (PIDs) have ended, in whatever way. It then removes its folder,
    unless it ends with an error. secured: the daemon agrees on keys with others; see public_key()."""

    def __init__(self, words: Sequence[str], serving: Sequence[int], secured: bool = False) -> None:
        self._program = binary()
        self.folder = _folder()
        self.socket = os.path.join(self.folder, "node.sock")
        self.log = log_beside(self.socket)
        command = [self._program, *words, "--for", ",".join(map(str, serving)), "--tidy"]
        for key, path in (("socket", self.socket), ("log_file", self.log)):
            command += ["--set", f"{key}={json.dumps(path)}"]
        try:
            with open(self.log, "ab") as log:
                # The daemon has its own session, so Ctrl-C reaches only the trainers, and the daemon notices when they
                # end. It inherits no open file of this process.
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE if secured else subprocess.DEVNULL,
                                                 stdout=subprocess.PIPE if secured else log, stderr=log, cwd="/",
                                                 start_new_session=True)
        except OSError as reason:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise CannotStart(f"{self._program}: {reason.strerror}") from None
        atexit.register(self.forget)

    def public_key(self, limit_s: float) -> str:
        """Returns the public key that a secured daemon writes at its start, after `limit_s` at most. The private key
        never leaves the daemon. Raises CannotStart after ending the daemon."""
        output = self._process.stdout
        assert output is not None
        try:
            begun = select.poll()
            begun.register(output, select.POLLIN)
            if not begun.poll(1000 * limit_s):
                raise CannotStart(f"{self._program} wrote no public key within {limit_s:g} s{tail(self.log)}")
            # The daemon writes the line in one call.
            word, _, key = os.read(output.fileno(), 256).decode(errors="replace").strip().partition(" ")
            if word != "key":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_ENDING_S)
                how = "which wrote no public key" if self.lives() else self._how()
                raise CannotStart(f"{self._program} did not start, {how}{tail(self.log)}")
        except BaseException:
            self.end()
            raise
        return key

    def tell_keys(self, keys: Sequence[str]) -> None:
        """Tells a secured daemon the public keys of all daemons, in their order. The daemon then starts."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which wait_until_ready() reports
            self._process.stdin.write("".join(f"{node} {key}\n" for node, key in enumerate(keys)).encode())
            self._process.stdin.close()
        self._process.stdout.close()

    def wait_until_ready(self, limit_s: float) -> None:
        """Waits until trainers can connect, for `limit_s` at most. Raises CannotStart after ending the daemon."""
        end = time.monotonic() + limit_s
        try:
            while not self._listens():
                if not self.lives():
                    kind = PortsInUse if self._process.returncode == _PORT_IN_USE else CannotStart
                    raise kind(f"{self._program} did not start, {self._how()}{tail(self.log)}")
                if time.monotonic() >= end:
                    raise CannotStart(f"{self._program} is not ready after {limit_s:g} s{tail(self.log)}")
                time.sleep(_SLICE_S)
        except BaseException:  # also after Ctrl-C
            self.end()
            raise

    def lives(self) -> bool:
        """Returns whether the daemon runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """Ends the daemon now, and removes its folder."""
        atexit.unregister(self.forget)
        if self.lives():
            self._process.terminate()
            try:
                self._process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """Leaves the daemon alone when this process ends: the daemon outlives it, or belongs to the parent of a fork.
        """
        if self.lives():
            self._process.returncode = 0  # otherwise Python warns that it still runs

    # ---- Private

    def _how(self) -> str:
        status = self._process.returncode
        return f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            try:
                probe.connect(self.socket)
            except OSError:
                return False
        return True


def tail(log: str, levels: Sequence[str] = ()) -> str:
    """Return ":" and the last lines of a daemon's log, only those of `levels` if given; "" if there are none. If lines
    differ only in times, such as "for 5 s" and "for 10 s", only the last of them is kept."""
    lines: dict[str, str] = {}
    with contextlib.suppress(OSError), open(log, errors="replace") as file:
        for line in file:
            words = line.split(maxsplit=3)
            level = words[2:3]  # the third word, after date and time
            if line.strip() and (not levels or set(level) & set(levels)):
                text = re.sub(r"\b\d+ s\b", "", " ".join(words[2:]) or line)
                lines.pop(text, None)
                lines[text] = line
    last = list(lines.values())[-_LINES:]
    return "".join([":", *(f"\n    {line.rstrip()}" for line in last)]) if last else ""


def log_beside(socket_path: str) -> str:
    """Returns the path of the log of the daemon with this socket, if a process of the job has started that daemon."""
    return os.path.join(os.path.dirname(socket_path), "log")


def last_words(socket_path: str | None) -> str:
    """Returns the end of a daemon's log for the text of an error. Returns "" if there is no log, as after an orderly
    end, or if `socket_path` is None."""
    log = "" if socket_path is None else log_beside(socket_path)
    text = tail(log)
    return f"; the end of its log, {log}{text}" if text else ""


def _folder() -> str:
    """Returns a new folder that only this user can read. Its path is so short that sockets can be made in it."""
    try:
        folder = tempfile.mkdtemp(prefix="gradlane-job-")
        if len(os.fsencode(folder)) + len("/node.admin") > _MOST_PATH:
            os.rmdir(folder)
            folder = tempfile.mkdtemp(prefix="gradlane-job-", dir="/tmp")
    except OSError as reason:
        raise CannotStart(f"cannot make a folder for the daemon's socket and log: {reason}") from None
    return folder
