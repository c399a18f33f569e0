#!/usr/bin/python3
"""Tests what `gradlane run`, `gradlane stats` and the PyTorch engine say at a job's end about the benefit of
compression.

worth_test.py GRADLANE [unittest's arguments]
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

from tests.scripts.fixtures.waiting import PATIENCE

GRADLANE = ""
LINES = ["elements sent: ", "in exchange: ", "uncompressed"]
TORCH = """
import time
import torch, torch.distributed as dist
import gradlane.torch
dist.init_process_group("gradlane")
bucket = torch.full((1 << 20,), 0.01)
for step in range(3):
    works = []
    for _ in range(4):
        works.append(dist.all_reduce(bucket.clone(), async_op=True))
        time.sleep(0.001)
    for work in works:
        work.wait()
"""

# Standard error is a pipe without a reader. The summary itself records whether the engine is still usable.
ENDS = """
import os, sys
import torch, torch.distributed as dist
from gradlane.torch import summary
from gradlane.torch.engine import Engine
dist.init_process_group("gradlane")
dist.all_reduce(torch.ones(1 << 20))
engine = Engine.existing()
said, unread = [], os.pipe()
os.close(unread[0])
os.dup2(unread[1], 2)
summary.lines = lambda *_: said.append(engine.usable) or ["a line"]
print(os.environ["RANK"], ABORT and dist.group.WORLD.abort(), engine.release(), engine.usable, said)
os.dup2(1, 2)
"""


class Savings(unittest.TestCase):
    def run_two(self, *command, codec="fixed:10", **variables):
        """Runs `command` on two ranks. Returns the text on standard error, and that on standard output."""
        run = subprocess.run(
            [GRADLANE, "run", "-n", "2", "--link", "ring", "--strategies", "ring,direct", "--codec", codec, "--", *command],
            capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **variables})
        self.assertEqual(run.returncode, 0, run)
        return run.stderr, run.stdout

    def perf(self, codec, then="sleep 1.2", **variables):
        """Runs a job that is long enough for a report."""
        perf = f"{shlex.quote(GRADLANE)} perf -b 1M -e 1M -n 4 -w 1 --codec {codec}"
        return self.run_two("sh", "-c", f"{perf} && {then}", codec="raw", **variables)

    def lines(self, text, prefix):
        return [line[len(prefix):] for line in text.splitlines() if line.startswith(prefix)]

    def check(self, lines):
        # The warning may be right on a loaded machine. tests/dataplane/status/savings_test.cc tests it.
        warned = len(lines) == 4 and lines[3].startswith("WARNING: compression cost more than it saved")
        self.assertTrue(len(lines) == 3 or warned, lines)
        for line, begin in zip(lines, LINES):
            self.assertTrue(line.startswith(begin), lines)

    def test_of_run_and_stats(self):
        said, printed = self.perf("fixed:10", f"sleep 1.2; {shlex.quote(GRADLANE)} stats")
        lines = self.lines(said, "gradlane: ")
        self.check(lines)
        # Both ranks send 5 all-reduces of 1 MiB once, and barriers. fixed:10 reduces this to a fifth to a sixth.
        self.assertRegex(lines[0], r"^elements sent: 10\.[5-9] MB raw, .* times fewer \(fixed\)$")
        self.assertTrue(5 < float(re.search(r": ([0-9.]+) times", lines[0])[1]) < 7, lines)
        self.check([line[11:] for line in self.lines(printed, "[0] ") if line[:11] in ("this job   ", 11 * " ")])

    def test_raw(self):
        lines = self.lines(self.perf("raw")[0], "gradlane: ")
        self.check(lines)
        self.assertIn("nothing was compressed", lines[0])

    def test_says_nothing_where_nobody_wants_it(self):
        self.assertEqual(self.lines(self.perf("fixed:10", GRADLANE_SUMMARY="0")[0], "gradlane: "), [])
        self.assertEqual(self.lines(self.run_two("sleep", "1.2")[0], "gradlane: "), [])

    def test_of_the_engine(self):
        said, _ = self.run_two(sys.executable, "-c", TORCH, GRADLANE_SUMMARY="1")
        lines = self.lines(said, "[0] gradlane: ")
        self.check(lines)
        self.assertEqual(self.lines(said, "[1] gradlane: "), [])
        self.assertRegex(lines[1], r"about [0-9]+ % of it hidden behind computing")

    def test_comes_behind_the_end(self):
        _, printed = self.run_two(sys.executable, "-c", ENDS.replace("ABORT", "0"), GRADLANE_SUMMARY="1")
        self.assertEqual(sorted(self.lines(printed, "[")),
                         ["0] 0 0 None False [False]", "1] 1 0 None False []"])

    def test_none_of_what_was_aborted(self):
        _, printed = self.run_two(sys.executable, "-c", ENDS.replace("ABORT", "1"), GRADLANE_SUMMARY="1")
        self.assertEqual(sorted(self.lines(printed, "[")),
                         ["0] 0 None None False []", "1] 1 None None False []"])


if __name__ == "__main__":
    GRADLANE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
