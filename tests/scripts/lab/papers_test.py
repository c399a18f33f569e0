#!/usr/bin/python3
"""Checks the experiments of lab/papers: SeCoPa with what HiPress has published, the parts of its ablation, and sizes.

papers_test.py GRADLANE
"""

import subprocess
import sys
import unittest

from lab.papers import ablation, scaling, scaling_simulated, secopa
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
        self.assertEqual({elements: secopa.plan(secopa.HIPRESS[4], "servers", 4, elements) for elements in VGG19}, VGG19)

    def test_thresholds(self):
        for way, expected in {"ring": {4: 2.7, 8: 4.6, 16: 8.6}, "servers": {4: 2.7, 8: 5.1, 16: 9.9}}.items():
            for nodes, megabytes in expected.items():
                self.assertAlmostEqual(4e-6 * secopa.threshold(secopa.HIPRESS[nodes], way, nodes), megabytes, delta=0.05)

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
        self.assertEqual(lines[0][6], "ideal,")
        self.assertEqual(lines[-1][6], "fixed:10,")


LAYERS = [1000, 200000, 3000000, 500, 100]


class AblationTest(unittest.TestCase):
    def test_batches(self):
        self.assertEqual(ablation.batches_of(LAYERS, 0), LAYERS[::-1])
        self.assertEqual(ablation.batches_of(LAYERS, 1 << 20), [3000000, 201600])
        self.assertEqual(ablation.batches_of(LAYERS, 2400), [600, 3000000, 200000, 1000])

    def test_parts(self):
        """Each way has all elements once, and a codec shrinks bytes and takes its time."""
        for way in ablation.WAYS:
            for ns in ablation.COSTS:
                parts = [part for unit in ablation.parts_of(way, LAYERS, ns, ablation.GBPS) for part in unit]
                self.assertEqual([part.number for part in parts], list(range(len(parts))), way)
                encoded = [part for part in parts if part.encode > 0]
                self.assertTrue(way["choices"] != [False] or not encoded, way)
                self.assertTrue(way["choices"] != [True] or len(encoded) == len(parts), way)
                elements = sum(part.bytes / (4 * ablation.RATIO if part in encoded else 4) for part in parts)
                self.assertAlmostEqual(elements, sum(LAYERS), delta=4 * len(parts))
                least = sum(1e-9 * ns * part.bytes / (4 * ablation.RATIO) for part in encoded)
                self.assertGreaterEqual(sum(part.encode for part in encoded) + 1e-9, 0.99 * least)

    def test_plan_follows_the_cost(self):
        """A cheap codec is used for the large gradient, and a dear one for none."""
        plan = ablation.WAYS[-1]
        self.assertEqual(plan["name"], ablation.PLAN)
        cheap, dear = ([[part.encode > 0 for part in unit] for unit in ablation.parts_of(plan, LAYERS, ns, 1)] for ns in (0.1, 1000))
        self.assertTrue(all(cheap[0]) and len(cheap[0]) > 1)
        self.assertFalse(any(map(any, dear)))


class ScalingTest(unittest.TestCase):
    def test_sizes(self):
        for way in scaling.WAYS:
            self.assertEqual(scaling.size_of(way, 8) % (8 * 128), 0, way)
        signs = next(way for way in scaling.WAYS if way.name == "all-gather: signs")
        self.assertEqual(scaling.size_of(signs, 8), 8 * scaling.FLOATS // 8)

    def test_figures(self):
        figures, nodes = scaling_simulated.EXPERIMENT.figures, scaling_simulated.NODES
        samples = {str(each): [{way.name: {"ms": each * each if way.gathered else 3 * each, "bytes": 1000 * each}
                                for way in scaling.WAYS}] for each in nodes}
        self.assertEqual(figures["signs"](samples), "from 4 nodes on")
        self.assertIn("| adds: signsgd | 2 | 4 | 8 | 16 | 32 | 64 | 16.00x |", figures["bytes"](samples))
        self.assertIn("| adds: signsgd | - |", figures["bytes"]({}))


if __name__ == "__main__":
    GRADLANE = sys.argv.pop(1)
    unittest.main()
