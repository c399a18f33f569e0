#!/usr/bin/python3
"""Tests what limits running daemons: containment_test.py GRADLANE GRADLANED EXAMPLE LIBRARY [unittest's arguments]

The daemons are started by hand, and by `gradlane run`; tests/scripts/torch/launch_test.py has those of PyTorch. All
kinds of links run under strace, which shows each call that is refused. LIBRARY is made of fixtures/older_kernel.cc.
Only strace needs root. GRADLANE_LIBRARY: libgradlane.so.0, if not in build/.
"""

import collections
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import unittest
import unittest.mock

from tests.scripts.fixtures import daemons
from tests.scripts.fixtures.contained import is_contained
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest, wait_for
from tests.scripts.fixtures.paths import preloaded
from tests.scripts.run.runs import Programs, Run

CONTAINED = re.compile(r"contained: no new privileges, no core dumps, system calls \(seccomp\), files "
                       r"\(Landlock, version \d+\)$")
LINKS = ("ring", "memif", "vhost", "udp")
# A line of strace: a thread, and a call that failed as a filter or Landlock makes it fail.
REFUSED = re.compile(r"^\d+ +(\w+)\((.*) = -1 (EPERM|EACCES|ENOSYS) ")
# libc makes threads without this call, which no filter can look into. DPDK cannot name a thread that it has made, and
# goes on.
EXPECTED = (("clone3", ""), ("openat", '/comm", O_RDWR'))


def tool(*words):
    return subprocess.run([daemons.BINARIES["gradlane"], *map(str, words)], capture_output=True, text=True,
                          timeout=PATIENCE)


class Recorded:
    """Daemons under strace, which do not notice it: their parent and process number are as without."""

    def __init__(self, folder):
        self.folder = folder / "calls"
        self.folder.mkdir()
        self.script = folder / "recorded"
        self.script.write_text(f'#!/bin/sh\nexec strace -D -f -o {self.folder}/$$ {daemons.BINARIES["gradlaned"]} "$@"\n')
        self.script.chmod(0o755)

    def calls(self, pid):
        """Waits for the end of the recording. Returns the lines after the filter was installed."""
        file = self.folder / str(pid)
        wait_for(lambda: re.search(rf"^{pid} +\+\+\+ exited", file.read_text(), re.MULTILINE), "the end of a recording")
        lines = file.read_text().splitlines()
        places = [i for i, line in enumerate(lines) if "seccomp(SECCOMP_SET_MODE_FILTER" in line]
        assert len(places) == 1, places
        return lines[places[0] + 1:]


class ContainmentTest(DaemonTest):
    def wait_until_contained(self, ring):
        ring.wait_until_ready()
        for daemon in ring.daemons:
            wait_for(lambda: daemon.lines("contained"), "a line in the log")
            self.assertEqual([bool(CONTAINED.search(line)) for line in daemon.lines("contained")], [True])
            wait_for(lambda: is_contained(daemon.pid), "containment")

    def test_by_hand(self):
        ring = self.ring(2, "udp")
        self.wait_until_contained(ring)
        contexts = self.open_all(ring)
        self.check_all_reduce(contexts)
        for daemon in ring.daemons:  # threads that have started since are contained, too
            self.assertTrue(is_contained(daemon.pid))
        if os.geteuid() != 0:
            with self.assertRaises(PermissionError):
                os.listdir(f"/proc/{ring.daemons[0].pid}/fd")
        self.finish(ring, contexts)

    def test_gradlane_run(self):
        run = Run("-n", "2", "--link", "udp", command=["sh", "-c", f"{EXAMPLE} && exec sleep 600"])
        try:
            pids = [run.pid_of(f"n{node}.yaml") for node in range(2)]
            for pid in pids:
                wait_for(lambda: is_contained(pid), "containment")
            run.process.send_signal(signal.SIGTERM)
            run.end()
        finally:
            run.clean()

    def test_limit_of_open_files(self):
        """A daemon takes as many open files as it may, because trainers' memory needs them."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        try:
            ring = self.ring(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        contexts = self.open_all(ring)
        arrays = [contexts[0].zeros(1000) for _ in range(60)]
        limits = pathlib.Path(f"/proc/{ring.daemons[0].pid}/limits").read_text()
        self.assertEqual(re.search(r"Max open files +(\d+) +(\d+)", limits).groups(), (str(hard), str(hard)))
        del arrays
        self.finish(ring, contexts)

    def test_off(self):
        ring = self.ring(1, containment="false")
        wait_for(lambda: ring.lines("not contained: containment is false"), "a line in the log")
        contexts = self.open_all(ring)
        self.assertFalse(is_contained(ring.daemons[0].pid))
        self.assertGreater(ring.daemons[0].open_files(), 0)
        self.finish(ring, contexts)

    def test_older_kernels(self):
        for mode, why in (("uncontained", "the kernel has none"), ("denied", "refused: Operation not permitted")):
            with self.subTest(mode):
                environment = {"LD_PRELOAD": preloaded(LIBRARY, self.folder), "OLDER_KERNEL": mode}
                with unittest.mock.patch.dict(os.environ, environment):
                    ring = self.ring(2, "udp")
                contexts = self.open_all(ring)
                self.check_all_reduce(contexts)
                for daemon in ring.daemons:
                    line, = wait_for(lambda: daemon.lines("contained: no new privileges, no core dumps"), "a line")
                    self.assertIn(f"; not by seccomp: {why}", line)
                    self.assertIn(f"; not by Landlock: {why}", line)
                    for task in pathlib.Path(f"/proc/{daemon.pid}/task").iterdir():
                        self.assertIn("NoNewPrivs:\t1\n", (task / "status").read_text())
                self.finish(ring, contexts)

    @unittest.skipUnless(shutil.which("strace") and os.geteuid() == 0,
                         "needs strace, and root to see what calls of a contained process name")
    def test_no_call_of_a_session_is_refused(self):
        for link in LINKS:
            with self.subTest(link):
                self.check_calls(link)

    def check_calls(self, link):
        """Runs a session with all that a daemon does, and checks that it may do all of that."""
        (self.folder / link).mkdir()
        recorded = Recorded(self.folder / link)
        log = self.folder / link / "log"
        settings = {"log_file": log} if link == "ring" else {}
        with unittest.mock.patch.dict(daemons.BINARIES, gradlaned=str(recorded.script)):
            ring = self.ring(2, link, trainers=2, lanes=2, **settings)
        if settings:
            wait_for(lambda: log.exists() and "contained" in log.read_text(), "a line in the log")
        contexts = self.open_all(ring)
        for count in (1000, 300_000):
            self.check_all_reduce(contexts, count=count)
        admin = ring.sockets[0].with_suffix(".admin")
        self.assertIn("rss_kb", tool("stats", "--admin", admin, "--json").stdout)
        traced = tool("trace", "--admin", admin, "--seconds", "0.1", "-o", self.folder / link / "trace.json")
        self.assertEqual(traced.returncode, 0, traced.stderr)
        if settings:
            log.rename(self.folder / link / "log.1")
            ring.daemons[0].signal(signal.SIGHUP)
            wait_for(lambda: log.exists() and "reopened" in log.read_text(), "a new log")
        pids = [daemon.pid for daemon in ring.daemons]
        self.finish(ring, contexts)
        seen = collections.Counter()
        for pid in pids:
            lines = recorded.calls(pid)
            seen.update(found[1] for found in (re.match(r"\d+ +(\w+)\(", line) for line in lines) if found)
            for line in lines:
                if found := REFUSED.match(line):
                    self.assertTrue(any(found[1] == call and text in found[2] for call, text in EXPECTED), line)
        for call in ("memfd_create", "accept4", "openat", "newfstatat"):
            self.assertGreater(seen[call], 0, f"the session has no {call}: {seen}")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    for name in ("gradlane", "gradlaned"):
        daemons.BINARIES[name] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    Programs.gradlane, Programs.daemon = daemons.BINARIES["gradlane"], daemons.BINARIES["gradlaned"]
    EXAMPLE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    LIBRARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
