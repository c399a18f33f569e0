#!/usr/bin/python3
"""Starts `gradlane run` for tests, and finds what it leaves behind."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid

from tests.scripts.fixtures.waiting import PATIENCE, wait_for

FAKE = str(pathlib.Path(__file__).with_name("fake_daemon.py"))


class Programs:
    """Paths of the programs under test; each test script sets them."""

    gradlane = ""
    daemon = ""


def needs_fake(test):
    def run(self):
        if Programs.daemon != FAKE:
            self.skipTest("needs the fake daemon")
        test(self)

    return run


class Run:
    """One `gradlane run`. A variable in its environment marks all its descendants."""

    def __init__(self, *arguments, command=None, env=None, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                 prefix=()):
        self.mark = f"GRADLANE_RUN_TEST={uuid.uuid4()}"
        self.folder = tempfile.mkdtemp(prefix="run-test-")
        name, value = self.mark.split("=")
        environment = {k: v for k, v in os.environ.items() if k not in ("XDG_RUNTIME_DIR", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME")}
        environment.update({"GRADLANED": Programs.daemon, "TMPDIR": self.folder, name: value}, **(env or {}))
        line = [*prefix, Programs.gradlane, "run", *arguments] + (["--", *command] if command else [])
        self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True,
                                        env=environment)
        self.out = self.err = ""

    def end(self):
        self.out, self.err = self.process.communicate(timeout=PATIENCE)
        self.err = self.err or ""
        return self.process.returncode

    def pids(self):
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            # A daemon's environment can only be read by root, but its command line by all.
            for file, mark in (("environ", self.mark), ("cmdline", self.folder)):
                with contextlib.suppress(OSError):
                    if mark.encode() in (entry / file).read_bytes():
                        found.append(int(entry.name))
                        break
        return found

    def pid_of(self, text):
        """Waits for a process with this text in its command line. Returns its number."""

        def found():
            for pid in self.pids():
                with contextlib.suppress(OSError):
                    words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    if pid != self.process.pid and any(text.encode() in word for word in words):
                        return pid
            return None

        return wait_for(found, f"a process with {text}")

    def lines(self, prefix):
        return [line[len(prefix):] for line in self.out.splitlines() if line.startswith(prefix)]

    def files(self):
        return sorted(os.listdir(self.folder))

    def clean(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=PATIENCE)
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def sh(text):
    return ["sh", "-c", text]


class RunCase(unittest.TestCase):
    maxDiff = None

    def start(self, *arguments, **keywords):
        run = Run(*arguments, **keywords)
        self.addCleanup(run.clean)
        return run

    def finish(self, run, code):
        self.assertEqual(run.end(), code, f"{run.out}\n{run.err}")
        self.assertEqual(run.pids(), [])
        self.assertEqual(run.files(), [])
        return run

    def run_it(self, *arguments, code=0, **keywords):
        return self.finish(self.start(*arguments, **keywords), code)


def main(doc):
    """Runs the tests of the program's file: GRADLANE [GRADLANED] unittest's arguments..."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(doc)
    Programs.gradlane = str(pathlib.Path(sys.argv.pop(1)).resolve())
    Programs.daemon = FAKE
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and os.path.exists(sys.argv[1]):
        Programs.daemon = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
