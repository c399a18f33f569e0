"""Tests of `gradlane run` with network namespaces, which must be gone after each run. Needs root."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest
import unittest.mock

from tests.scripts.fixtures.nobody import AS_NOBODY, copies
from tests.scripts.fixtures.waiting import PATIENCE, wait_for
from tests.scripts.run.runs import Programs, Run, sh
from lab.net.spaces import Space


def namespaces(run):
    """Returns the namespaces of this run that exist now."""
    listed = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    return sorted(name for name in listed if name.startswith(f"gradlane-{run.process.pid}-"))


def space(run, name):
    return f"gradlane-{run.process.pid}-{name}"


def inside(namespace, *command):
    """Returns the output of a command in a namespace."""
    return Space(namespace).run(*command)


class SpacesTest(unittest.TestCase):
    link = None  # argument of --link
    maxDiff = None

    def start(self, *arguments, **keywords):
        run = Run("--link", self.link, *arguments, **keywords)
        self.addCleanup(self.clean, run)
        return run

    @staticmethod
    def clean(run):
        run.clean()
        for name in namespaces(run):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=PATIENCE)

    def finish(self, run, code):
        self.assertEqual(run.end(), code, f"{run.out}\n{run.err}")
        self.assertEqual(namespaces(run), [])
        self.assertEqual(run.pids(), [])
        self.assertEqual(run.files(), [])
        return run

    def run_it(self, *arguments, code=0, **keywords):
        return self.finish(self.start(*arguments, **keywords), code)

    def started(self, *arguments, nodes=2, **keywords):
        """Starts a run whose commands wait to be ended."""
        run = self.start("-n", str(nodes), *arguments, command=sh("echo ready; exec sleep 600"), **keywords)
        for _ in range(nodes):
            self.assertIn("ready", run.process.stdout.readline())
        return run

    def stop(self, run, number=signal.SIGTERM):
        run.process.send_signal(number)
        self.finish(run, 128 + number)

    def folder(self):
        folder = tempfile.mkdtemp(prefix="run-test-")
        self.addCleanup(shutil.rmtree, folder)
        return pathlib.Path(folder)

    def fake_program(self, name, script):
        """Returns the environment of runs that find this script as program `name`."""
        fake = self.folder() / name
        fake.write_text("#!/bin/sh\n" + script, encoding="ascii")
        fake.chmod(0o755)
        return {"PATH": f"{fake.parent}:{os.environ['PATH']}"}

    def refused(self, arguments, words, prefix=()):
        run = Run(*arguments, command=["true"], prefix=prefix)
        self.addCleanup(run.clean)
        self.finish(run, 2)
        self.assertTrue(run.err.startswith("gradlane: "), run.err)
        for word in words:
            self.assertIn(word, run.err)


class Endings:
    """Tests, together with SpacesTest, how each kind of run that makes namespaces ends, and that nothing stays behind.
    """

    kinds = ([],)  # options for each kind of run; the tests expect the same end of all kinds

    def killed(self, run):
        run.process.kill()
        wait_for(lambda: run.pids() == [], "no process is left")
        wait_for(lambda: namespaces(run) == [], "no namespace is left")
        self.finish(run, -signal.SIGKILL)

    def being_built(self):
        run = self.start("-n", "8", command=sh("exec sleep 600"))
        wait_for(lambda: namespaces(run), "there are namespaces")
        return run

    def test_failing_command(self):
        for arguments in self.kinds:
            run = self.run_it("-n", "2", *arguments, command=sh("test $RANK = 1 || sleep 600; exit 7"), code=7)
            self.assertIn("gradlane: rank 1 exited with code 7", run.err)

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            run = self.started()
            self.assertEqual(len(namespaces(run)), 3)
            self.stop(run, number)

    def test_signal_while_it_is_built(self):
        self.stop(self.being_built())

    def test_sigkill(self):
        for arguments in self.kinds:
            run = self.started(*arguments)
            self.assertEqual(len(namespaces(run)), 3)
            self.killed(run)

    def test_without_root(self):
        (gradlane,) = copies(self.folder(), Programs.gradlane)
        with unittest.mock.patch.object(Programs, "gradlane", gradlane):
            self.refused(["-n", "2", "--link", self.link], [f"--link {self.link} needs root", "sudo"], prefix=AS_NOBODY)
