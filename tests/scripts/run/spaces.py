"""Runs of `gradlane run` that make network namespaces, and what must be gone behind them. Needs root."""

import os
import subprocess
import unittest

from tests.scripts.fixtures import networks
from tests.scripts.run.runs import PATIENCE, Run, sh


def namespaces(run):
    """Those of this run that are there now."""
    listed = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    return sorted(name for name in listed if name.startswith(f"gradlane-{run.process.pid}-"))


def inside(namespace, *command):
    """What a command in a namespace prints."""
    return networks.run("ip", "netns", "exec", namespace, *command)


class SpacesTest(unittest.TestCase):
    link = None  # of --link
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
        """A run whose commands wait to be ended."""
        run = self.start("-n", str(nodes), *arguments, command=sh("echo ready; exec sleep 60"), **keywords)
        for _ in range(nodes):
            self.assertIn("ready", run.process.stdout.readline())
        return run
