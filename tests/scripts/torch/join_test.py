#!/usr/bin/python3
"""Tests jobs whose ranks or world size do not match those of the daemons. All ranks fail at once, with errors that have
these numbers. PyTorch itself would let the ranks wait for 30 minutes.

usage: join_test.py GRADLANE

Three ranks under gradlane run load PyTorch once. For each test they start children by fork(), which are the ranks of a
job.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import unittest

PATIENCE = 300  # s: PyTorch is loaded three times
CASES = ("one rank too many, which does not exist", "one rank too many", "one rank too few", "another rank's daemon")


def join(case, rank, world, socket):
    """Starts a child that joins as this rank and prints the outcome. Returns the child's process number."""
    child = os.fork()
    if child == 0:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), GRADLANE_SOCKET=socket)
        text = "has joined"
        try:
            torch.distributed.init_process_group("gradlane")
        except gradlane.Error as error:
            text = f"{type(error).__name__}: {error}"
        # in one write, because other ranks write to the same output
        sys.stdout.write(f"{CASES[case]}, rank {rank}: {text}\n")
        sys.stdout.flush()
        os._exit(0)
    return child


def run_cases():
    rank, socket = int(os.environ["RANK"]), os.environ["GRADLANE_SOCKET"]
    children = [join(0, rank, 4, socket)]
    os.waitpid(children.pop(), 0)
    children = [join(1, rank, 4, socket)] + ([join(1, 3, 4, socket)] if rank == 2 else [])
    while children:
        os.waitpid(children.pop(), 0)
    if rank < 2:
        os.waitpid(join(2, rank, 2, socket), 0)
    os.waitpid(join(3, rank, 3, re.sub("n1.sock$", "n0.sock", socket)), 0)


class Join(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        command = [GRADLANE, "run", "-n", "3", "--no-prefix", "--", sys.executable, pathlib.Path(__file__).resolve()]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
                              check=False)
        assert done.returncode == 0, done.stdout
        cls.said = collections.defaultdict(dict)
        for case, rank, text in re.findall(r"^(.+), rank (\d): (.*)$", done.stdout, re.MULTILINE):
            cls.said[case][int(rank)] = text

    def check_world(self, case, ranks, job):
        self.assertEqual(sorted(self.said[case]), list(range(ranks)))
        for text in self.said[case].values():
            self.assertRegex(text, f"BadArgument: gradlane: WORLD_SIZE is {job}, and the daemons have 3 ranks")

    def test_a_rank_too_many_that_does_not_exist(self):
        self.check_world(CASES[0], 3, 4)

    def test_a_rank_too_many(self):
        self.check_world(CASES[1], 4, 4)

    def test_a_rank_too_few(self):
        self.check_world(CASES[2], 2, 2)

    def test_the_daemon_of_another_rank(self):
        said = self.said[CASES[3]]
        found = "the daemon at .*/n0.sock has refused: rank 1 is not on this node: node 0 has rank 0, of 3 ranks"
        self.assertEqual(sorted(said), [0, 1, 2])
        self.assertRegex(said[1], "NoDaemon: " + found)
        for rank in (0, 2):
            self.assertRegex(said[rank], "BadArgument: gradlane: rank 1 cannot take part: " + found)


if __name__ == "__main__":
    if "RANK" in os.environ:
        import torch

        import gradlane.torch

        run_cases()
    else:
        GRADLANE = os.path.abspath(sys.argv.pop(1))
        unittest.main(verbosity=2)
