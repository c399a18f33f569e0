#!/usr/bin/python3
"""Runs `gradlane plan --calibrate` on small rings, and checks the files that it writes.

No check depends on how fast the machine is. A shaper limits the rate of links, and the calibration must find that rate.

calibrate_test.py GRADLANE [unittest's arguments]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.waiting import PATIENCE

GRADLANE = ""


def run(*command, **variables):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=2 * PATIENCE,
                          env={**os.environ, **variables})


class CalibrateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "calibration.yaml"

    def calibrate(self, *words, nodes=2, options=("--quick",)):
        """Runs a calibration. Returns the JSON document that rank 0 prints."""
        result = run(GRADLANE, "run", "-n", nodes, *words, "--no-prefix", "--", GRADLANE, "plan", "--calibrate", *options,
                     "-o", self.file, "--json")
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("waiting for all", result.stderr)
        made = json.loads(result.stdout)
        self.assertEqual(made["file"], str(self.file))
        self.assertEqual([(link["from"], link["to"]) for link in made["links"]],
                         [(i, (i + 1) % nodes) for i in range(nodes)])
        self.assertTrue(all(link["latency_us"] > 0 and link["gbps"] > 0 for link in made["links"]), made)
        self.assertEqual({check["codec"] for check in made["checks"]}, {"raw", "fixed:10"}, made)
        self.assertLessEqual(made["lambda_least"], made["lambda_most"], made)
        self.assertTrue(made["strategies"], made)
        self.assertIn("\nchecks: {times_as_long: ", self.file.read_text())
        return made

    def plan(self, *before):
        return run(*before, GRADLANE, "plan", "--model", "resnet50", "--calibration", self.file, "--json")

    def test_links_with_a_rate(self):
        networks.need(self)
        rate = 0.05
        made = self.calibrate("--link", "udp", "--rate", "50mbit", options=())
        self.assertEqual((made["port"], made["lanes"]), ("udp", 1))
        for link in made["links"]:
            self.assertLess(link["gbps"], 2 * rate, made)
            self.assertGreater(link["gbps"], rate / 2, made)
            self.assertFalse(link["at_least"], made)
        # The largest uncompressed operation is limited by the link, whose rate the shaper sets.
        bound = max((check for check in made["checks"] if check["codec"] == "raw"), key=lambda check: check["bytes"])
        self.assertLess(bound["predicted_us"], 2 * bound["measured_us"], made)
        self.assertGreater(bound["predicted_us"], bound["measured_us"] / 2, made)
        result = self.plan()
        self.assertEqual(result.returncode, 0, result)
        plan = json.loads(result.stdout)
        self.assertTrue(plan["calibrated"])
        self.assertEqual(plan["nodes"], 2)
        self.assertAlmostEqual(plan["gbps"], min(link["gbps"] for link in made["links"]), 5)
        # The file cannot be used on another host.
        other = self.plan("unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh")
        self.assertEqual(other.returncode, 2, other)
        self.assertIn(f"{self.file}: cannot be used here: it was measured on host", other.stderr)
        self.assertIn("elsewhere", other.stderr)

    def test_lanes(self):
        made = self.calibrate("--link", "ring", "--lanes", "2", nodes=3)
        self.assertEqual((made["port"], made["lanes"]), ("ring", 2))

    def test_without_a_ring(self):
        """Calibrates where the daemons allow only the strategy `direct`."""
        self.calibrate("--link", "ring", "--strategies", "direct")

    def test_last_lines(self):
        """Checks that rank 0 prints what to run next, and that the other ranks print that they are done."""
        result = run(GRADLANE, "run", "-n", "2", "--link", "ring", "--", GRADLANE, "plan", "--calibrate", "--quick", "-o",
                     self.file)
        self.assertEqual(result.returncode, 0, result)
        self.assertIn(f"gradlane plan --model resnet50 --calibration {self.file}\n", result.stdout)
        self.assertIn("done; rank 0 prints the results\n", result.stdout)
        self.assertRegex(result.stdout, r"times as long \(\d+\.\d\d to \d+\.\d\d\)")

    def test_refusals(self):
        """Checks that all ranks fail if one rank does something else than the others. Errors say which rank and why."""
        script = 'if [ $RANK = 1 ]; then exec "$0" perf -n 1; fi; exec "$0" plan --calibrate --quick -o "$1"'
        other = run(GRADLANE, "run", "-n", "2", "--link", "ring", "--no-prefix", "--", "sh", "-c", script, GRADLANE, self.file)
        self.assertEqual(other.returncode, 1, other)
        self.assertIn("rank 0", other.stderr)
        # Rank 1 cannot write its file. Rank 0 gets the error before anything is measured.
        script = 'if [ $RANK = 1 ]; then set -- /proc/nowhere/c.yaml; fi; exec "$0" plan --calibrate --quick -o "$1"'
        half = run(GRADLANE, "run", "-n", "2", "--link", "ring", "--", "sh", "-c", script, GRADLANE, self.file)
        self.assertEqual(half.returncode, 2, half)
        self.assertIn("/proc/nowhere/c.yaml: cannot be written", half.stderr)
        self.assertNotIn("codecs", half.stderr)
        # Rank 1 is killed.
        script = 'if [ $RANK = 1 ]; then exec timeout -s KILL 2 "$0" plan --calibrate; fi; exec "$0" plan --calibrate -o "$1"'
        left = run(GRADLANE, "run", "-n", "2", "--link", "ring", "--", "sh", "-c", script, GRADLANE, self.file)
        self.assertNotEqual(left.returncode, 0, left)
        self.assertFalse(self.file.exists())
        trainers = run(GRADLANE, "run", "-n", "2", "--link", "ring", "--trainers", "2", "--no-prefix", "--", GRADLANE, "plan",
                       "--calibrate", "--quick", "-o", self.file)
        self.assertEqual(trainers.returncode, 2, trainers)
        self.assertIn("2 trainers each", trainers.stderr)
        unwritable = run(GRADLANE, "run", "-n", "2", "--link", "ring", "--no-prefix", "--", GRADLANE, "plan", "--calibrate",
                         "--quick", "-o", "/proc/nowhere/c.yaml")
        self.assertEqual(unwritable.returncode, 2, unwritable)
        self.assertIn("/proc/nowhere/c.yaml: cannot be written", unwritable.stderr)
        one = run(GRADLANE, "run", "-n", "1", "--link", "ring", "--no-prefix", "--", GRADLANE, "plan", "--calibrate", "-o",
                  self.file)
        self.assertEqual(one.returncode, 2, one)
        self.assertIn("one rank has no links", one.stderr)
        self.assertFalse(self.file.exists())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    GRADLANE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
