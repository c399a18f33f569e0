#!/usr/bin/python3
"""Runs lab/scalability.sh --quick and checks its results. Also checks tables of made-up results.

scalability_test.py GRADLANE: needs root, ip, tc and Matplotlib; without them it is skipped (exit status 77).
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.paths import ROOT

SKIPPED = 77
PNG = b"\x89PNG\r\n\x1a\n"
PAGE = ROOT / "docs" / "results" / "scalability.md"


class Options:
    gradlane = ""


def scalability(*arguments, timeout=120):
    return subprocess.run([str(ROOT / "lab" / "scalability.sh"), *map(str, arguments)], capture_output=True, text=True,
                          timeout=timeout)


class QuickTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="gradlane-scalability-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.result = scalability("--quick", "--gradlane", Options.gradlane, "--out", cls.folder)

    def setUp(self):
        self.assertEqual(self.result.returncode, 0, self.result.stderr)
        self.results = json.loads((self.folder / "results.json").read_text())

    def test_all_ways_are_there(self):
        ways = {(strategy, codec) for strategy in ("aggregator:0", "ring", "direct") for codec in ("raw", "fixed:10")}
        for kind, nodes in (("real", [4]), ("simulated", [4, 8])):
            found = [(row["nodes"], row["strategy"], row["codec"]) for row in self.results[kind]]
            self.assertEqual(sorted(found), sorted((each, *way) for each in nodes for way in ways))
        self.assertTrue(all(len(row["seconds"]) == 1 for row in self.results["real"]))

    def test_links_are_the_limit(self):
        """Checks limits that hold however busy the machine is. An aggregator's link carries 3 tensors in and then 3
        out, less the bytes that a shaper passes at once. The links of a ring with compression carry a fraction of that.
        """
        seconds = {(row["strategy"], row["codec"]): row["seconds"][0] for row in self.results["real"]}
        self.assertGreater(seconds["aggregator:0", "raw"], 6 * self.results["settings"]["bytes"] * 8 / 100e6 * 0.8)
        self.assertLess(seconds["ring", "fixed:10"], seconds["aggregator:0", "raw"])

    def test_table_and_plot(self):
        text = (self.folder / "scalability.md").read_text()
        self.assertTrue(text.startswith("**With `--quick`"), text)
        self.assertIn("links of 100mbit", text)
        self.assertEqual(text.strip(), self.result.stdout.strip())
        self.assertEqual((self.folder / "scalability.png").read_bytes()[:8], PNG)

    def test_the_page_is_not_written_with_it(self):
        before = PAGE.read_bytes()
        result = scalability("--render", "--write-docs", "--out", self.folder)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("was not changed", result.stderr)
        self.assertEqual(PAGE.read_bytes(), before)


class PageTest(unittest.TestCase):
    @staticmethod
    def rows(nodes, seconds):
        return [{"nodes": each, "strategy": "ring", "codec": "raw", "seconds": list(seconds(each))} for each in nodes]

    def test_the_best_round_counts(self):
        from lab.compare import scalability_page as page

        rows = self.rows([8, 4], lambda nodes: (nodes * 0.3, nodes * 0.2, nodes * 0.9))
        self.assertEqual(page.best(rows, "ring", "raw"), {4: 0.8, 8: 1.6})
        self.assertEqual(page.best(rows, "direct", "raw"), {})
        self.assertIn("| ring, raw | 800 to 3600 | 1600 to 7200 |", page.times(rows, [4, 8]))
        self.assertIn("| ring, raw | 2.00x | 1.17x |", page.growths(rows, [4, 8]))

    def test_less_than_the_aggregator(self):
        from lab.compare import scalability_page as page

        rows = self.rows([4], lambda _: (0.1,))
        rows.append({"nodes": 4, "strategy": "aggregator:0", "codec": "raw", "seconds": [0.4]})
        self.assertIn("| ring, raw | 75.0 % |", page.less(rows, [4]))
        self.assertIn("| direct, raw | - |", page.less(rows, [4]))

    def test_wrong_results_are_no_results(self):
        from lab.compare import scalability

        wrong = ["sh", "-c", """echo '{"rows": [{"wrong": 1}]}'"""]
        self.assertRaisesRegex(scalability.Failed, "wrong results", scalability.rows_of, wrong)
        self.assertRaisesRegex(scalability.Failed, "status 3", scalability.rows_of, ["sh", "-c", "exit 3"])


class OptionsTest(unittest.TestCase):
    def test_bad_options_are_refused(self):
        before = PAGE.read_bytes()
        for options in (["--rounds", "0"], ["--write-docs", "--quick"], ["--write-docs", "--rounds", "2"],
                        ["--gradlane", "/dev/null/none"]):
            result = scalability("--out", "/dev/null/none", *options)
            self.assertEqual(result.returncode, 2, (options, result.stderr))
        self.assertEqual(PAGE.read_bytes(), before)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    arguments, rest = parser.parse_known_args()
    Options.gradlane = arguments.gradlane
    lacks = [tool for tool in ("ip", "tc") if not shutil.which(tool)] + (["root"] if os.geteuid() != 0 else []) + (
        [] if importlib.util.find_spec("matplotlib") else ["Matplotlib"])
    if lacks:
        print(f"needs {', '.join(lacks)}; " + ("CI is set, where this must not be left out" if networks.in_ci() else
                                               "skipped"))
        return 1 if networks.in_ci() else SKIPPED
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    sys.exit(main())
