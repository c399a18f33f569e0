#!/usr/bin/python3
"""Tests the messages of a daemon to its service manager: that it is ready, that its workers work, that it stops.

The manager is a socket of this test. A worker hangs because a debugger holds it. Also checks the unit and its drop-ins
with systemd-analyze, which needs no running systemd. Needs no rights.
"""

import argparse
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.waiting import PATIENCE, wait_for

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000  # flag of waitpid(): waits also for threads that other threads have made
# Interval of the watchdog in seconds. The daemon checks its workers every 100 ms, and feeds the watchdog at every other
# check.
INTERVAL = 0.4
# number of checks of the workers that a test waits for; in that time, the daemon would feed the watchdog several times
LOOKS = 12

# Highest exposure that `systemd-analyze security` may report, times ten: the figures of docs/install.md.
EXPOSURE = {None: 12, "packets.conf": 19, "card.conf": 14}

libc = ctypes.CDLL(None, use_errno=True)


def ptrace(request, thread):
    zero = ctypes.c_void_p(0)
    assert libc.ptrace(ctypes.c_long(request), ctypes.c_int(thread), zero, zero) == 0, os.strerror(ctypes.get_errno())


class Manager:
    """The socket of a service manager."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(PATIENCE)

    def take(self):
        return self.socket.recv(4096).decode()

    def until(self, text):
        """Returns all messages up to that one."""
        said = [self.take()]
        while said[-1] != text:
            said.append(self.take())
        return said

    def here(self):
        """Returns the messages that have arrived by now."""
        said = []
        self.socket.setblocking(False)
        try:
            while True:
                said.append(self.take())
        except BlockingIOError:
            self.socket.settimeout(PATIENCE)
            return said


class Daemon:
    """A daemon with a service manager at that address. Its log is in a file."""

    def __init__(self, gradlaned, folder, address, **more):
        self.file = folder / "log"
        words = ["--nodes", "127.0.0.1", "--set", f"socket={folder}/n.sock", "--set", "workers.lanes=2",
                 "--set", "workers.threads=2"]
        with open(self.file, "w") as log:
            self.process = subprocess.Popen([gradlaned, *words], stderr=log,
                                            env={**os.environ, "NOTIFY_SOCKET": address, **more})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def log(self):
        return self.file.read_text()

    def threads(self):
        return pathlib.Path(f"/proc/{self.process.pid}/task")

    def wait_for_looks(self):
        """Waits until the control thread has checked its workers LOOKS times. It sleeps before each check."""

        def sleeps():
            status = (self.threads() / str(self.process.pid) / "status").read_text()
            return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[1])

        before = sleeps()
        wait_for(lambda: sleeps() >= before + LOOKS, "looks")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0, self.log()


def told(gradlaned, folder):
    """Checks the messages of a daemon: READY, WATCHDOG as long as all workers respond, STATUS, STOPPING."""
    address = f"{folder}/notify"
    manager = Manager(address)
    with Daemon(gradlaned, folder, address, WATCHDOG_USEC=str(int(INTERVAL * 1e6))) as daemon:
        assert manager.take() == "READY=1"
        assert (folder / "n.sock").is_socket(), "ready means that trainers can come"
        assert "STATUS=node 0 of 1: 0 of 0 neighbours are up" in manager.until("WATCHDOG=1")
        manager.until("WATCHDOG=1")

        workers = [int(it.name) for it in daemon.threads().iterdir()
                   if (it / "comm").read_text().startswith("gl-n0-w1")]
        assert len(workers) == 1, [(it / "comm").read_text() for it in daemon.threads().iterdir()]
        ptrace(PTRACE_SEIZE, workers[0])
        ptrace(PTRACE_INTERRUPT, workers[0])
        os.waitpid(workers[0], WALL)
        # The other worker and the control thread go on. The watchdog may be fed once more, because the hanging worker
        # responded before it was stopped.
        wait_for(lambda: "worker 1 has not responded for" in daemon.log(), "a line in the log")
        daemon.wait_for_looks()
        manager.here()
        daemon.wait_for_looks()
        assert manager.here() == [], "one of two workers hangs, and it was fed"
        ptrace(PTRACE_DETACH, workers[0])
        manager.until("WATCHDOG=1")
        manager.until("WATCHDOG=1")
        wait_for(lambda: "all workers respond again" in daemon.log(), "a line in the log")
        daemon.end()
        manager.until("STOPPING=1")
        assert manager.here() == []


def not_told(gradlaned, folder):
    """Checks three cases: a manager at an abstract socket, a watchdog that is meant for another process, and no manager
    at the given address."""
    address = f"@gradlane-test-{os.getpid()}"
    manager = Manager("\0" + address[1:])
    with Daemon(gradlaned, folder, address, WATCHDOG_USEC="1000", WATCHDOG_PID=str(os.getpid())) as daemon:
        assert manager.take() == "READY=1"
        assert manager.take().startswith("STATUS=")
        daemon.wait_for_looks()
        assert manager.here() == []
        daemon.end()
        assert manager.take() == "STOPPING=1"
    with Daemon(gradlaned, folder, f"{folder}/nobody", WATCHDOG_USEC="1000") as daemon:
        wait_for((folder / "n.sock").is_socket, "a start")
        daemon.end()
        assert daemon.log().count("the service manager gets no notifications") == 1, daemon.log()


def analyzed(*words, **environment):
    result = subprocess.run(["systemd-analyze", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=PATIENCE, env={**os.environ, **environment})
    return result.returncode, result.stdout


def read_by_systemd(gradlaned, folder):
    """Checks that systemd-analyze accepts the unit, alone and with each drop-in, and reports no more exposure than
    documented."""
    if shutil.which("systemd-analyze") is None:
        assert not networks.in_ci(), "no systemd-analyze; CI is set, where nothing may be left out"
        print("skipped, what systemd-analyze says: there is none")
        return
    text = (ROOT / "packaging" / "service/gradlaned@.service.in").read_text()
    # A unit names programs without quotes, so their path must have no spaces.
    binaries = folder / "bin"
    binaries.symlink_to(pathlib.Path(gradlaned).resolve().parent)
    for dropin, exposure in EXPOSURE.items():
        units = folder / str(dropin)
        units.mkdir()
        more = (ROOT / "packaging" / "service" / dropin).read_text() if dropin else ""
        unit = units / "gradlaned@.service"
        unit.write_text(text.replace("@bindir@", str(binaries)))
        (units / "gradlaned@.service.d").mkdir()
        (units / "gradlaned@.service.d/more.conf").write_text(more)
        # The colon adds systemd's own folders of units after this one.
        said = analyzed("verify", "--man=no", "gradlaned@ring.service", SYSTEMD_UNIT_PATH=f"{units}:")
        assert said == (0, ""), (dropin, said)
        # `security` reads one file, so the drop-in is appended. The last of several lines with one key counts, or their
        # values are added, as with a drop-in.
        unit.write_text(unit.read_text() + more)
        status, said = analyzed("security", "--offline=true", "--no-pager", f"--threshold={exposure}", str(unit))
        assert status == 0, (dropin, said[-200:])
        # Both checks must fail for a unit with faults.
        unit.write_text(unit.read_text().replace("ProtectSystem=", "ProtectSistem=").replace("NoNewPrivileges=yes", ""))
        assert "ProtectSistem" in analyzed("verify", "--man=no", "gradlaned@ring.service",
                                           SYSTEMD_UNIT_PATH=f"{units}:")[1], dropin
        assert analyzed("security", "--offline=true", "--no-pager", f"--threshold={exposure}", str(unit))[0] != 0, dropin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    args = parser.parse_args()
    for check in (read_by_systemd, told, not_told):
        with tempfile.TemporaryDirectory(prefix="gl-service-") as name:
            check(args.gradlaned, pathlib.Path(name))
    print("a service manager hears what it should")
    return 0


if __name__ == "__main__":
    sys.exit(main())
