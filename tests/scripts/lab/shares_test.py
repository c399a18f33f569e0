#!/usr/bin/python3
"""Measures the experiment `shares` for a short time. Rates are not checked.

shares_test.py GRADLANE: needs root.
"""

import os
import pathlib
import shutil
import sys
import unittest
import unittest.mock

from lab import shares
from lab.results import reproduce
from tests.scripts.fixtures import networks


class Options:
    gradlane = ""


class Shares(unittest.TestCase):
    @unittest.skipIf(os.geteuid() != 0 and not networks.in_ci(), "needs root")
    def test_short(self):
        context = reproduce.Context(pathlib.Path(Options.gradlane).resolve(), shutil.which("python3"))
        with unittest.mock.patch.multiple(shares, BYTES=1 << 20, SECONDS=0.3, SETTLE=0.1):
            (key, found, _), = shares.measure(shares.batches({})[0], context)
        self.assertEqual(set(found), {"alone", "tcp", "ring"})
        self.assertEqual(shares.table({key: [found]}).count("\n"), 2)


if __name__ == "__main__":
    Options.gradlane = sys.argv[1]
    unittest.main(argv=sys.argv[:1], verbosity=2)
