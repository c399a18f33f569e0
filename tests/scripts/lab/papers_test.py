#!/usr/bin/python3
"""Checks SeCoPa of lab/papers with what HiPress has published.

papers_test.py GRADLANE
"""

import subprocess
import sys
import unittest

from lab.papers import secopa
from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.waiting import PATIENCE

# The plan for VGG-19 that HiPress ships (its artifact at SOSP 2021), for parameter servers on four nodes: elements ->
# compress, K.
VGG19 = {64: (False, 4), 128: (False, 4), 256: (False, 4), 512: (False, 4), 1000: (False, 4), 1728: (False, 4),
         4096: (False, 4), 36864: (False, 4), 73728: (False, 4), 147456: (False, 4), 294912: (False, 4),
         589824: (False, 4), 1048576: (True, 1), 1179648: (True, 2), 2359296: (True, 4), 4096000: (True, 4),
         16777216: (True, 4), 102760448: (True, 4)}


class SecopaTest(unittest.TestCase):
    def test_published_plan(self):
        self.assertEqual({elements: secopa.plan("servers", 4, elements) for elements in VGG19}, VGG19)

    def test_thresholds(self):
        for way, expected in {"ring": {4: 2.7, 8: 4.6, 16: 8.6}, "servers": {4: 2.7, 8: 5.1, 16: 9.9}}.items():
            for nodes, megabytes in expected.items():
                self.assertAlmostEqual(4e-6 * secopa.threshold(way, nodes), megabytes, delta=0.05)

    def test_curve(self):
        self.assertEqual(secopa.Curve(2, 1, 5).ms(1), 5)
        self.assertEqual(secopa.Curve(2, 1, 5).ms(3), 7)
        self.assertEqual(secopa.Curve(0, 1, 5).ms(3), 1)

    def test_table(self):
        said = subprocess.run([sys.executable, ROOT / "lab" / "papers" / "secopa.py", "--gradlane", GRADLANE], check=True,
                              capture_output=True, text=True, timeout=PATIENCE).stdout
        lines = [line.split() for line in said.splitlines()[3:]]
        self.assertEqual({int(line[0].replace(",", "")): (line[2] == "compress,", int(line[5])) for line in lines},
                         {elements: VGG19[elements] for elements in VGG19 if elements != 1048576})
        self.assertEqual(lines[0][6], "plain,")
        self.assertEqual(lines[-1][6], "fixed:10,")


if __name__ == "__main__":
    GRADLANE = sys.argv.pop(1)
    unittest.main()
