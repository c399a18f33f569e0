#!/usr/bin/python3
"""Tests that a connection that is closed while a result is on its way writes nothing to freed memory.

close_test.py GRADLANE [unittest's arguments]
"""

import pathlib
import subprocess
import sys
import unittest

GRADLANE = ""
PATIENCE = 300  # s
BEGIN = """
import sys, time
import torch, torch.distributed as dist
import gradlane, gradlane.torch
dist.init_process_group("gradlane")
for _ in range(2):
    dist.all_reduce(torch.ones(1 << 21))
try:
    for milliseconds in (1, 3, 10):
        tensor = torch.ones(2048, 4096).t()  # it is copied: only the operation has the copy
        work = dist.all_reduce(tensor, async_op=True)
        time.sleep(milliseconds / 1000)
        del work, tensor
except gradlane.OperationFailed:
    pass  # the other one was faster, and has closed already
"""


class Close(unittest.TestCase):
    def run_two(self, end):
        """Returns the exit status and the text on standard error."""
        run = subprocess.run([GRADLANE, "run", "-n", "2", "--no-prefix", "--", sys.executable, "-c", BEGIN + end],
                             capture_output=True, text=True, timeout=PATIENCE)
        return run.returncode, run.stderr

    def test_engine(self):
        status, text = self.run_two("gradlane.torch.Engine.existing().close()\ntime.sleep(0.2)\nprint('closed')")
        self.assertEqual(status, 0, text)

    def test_exit(self):
        status, text = self.run_two("sys.exit(3)")
        self.assertIn("exited with code 3", text)
        self.assertNotIn("signal", text)
        self.assertNotEqual(status, 0)


if __name__ == "__main__":
    GRADLANE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
