#!/usr/bin/python3
"""Runs lab/compare.sh --quick. Its results must be right, complete, and rendered. Times are not checked."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.paths import ROOT
from tests.scripts.lab.compare_parts import MIB, PartsTest  # noqa: F401: unittest finds it here

SKIPPED = 77
PATIENCE, ENDING = 200, 65  # seconds; the command itself gives its processes 60 s to end
PNG = b"\x89PNG\r\n\x1a\n"
MODULES = "import torch, mpi4py, matplotlib, numpy"


class Options:
    gradlane = ""
    rates = ("1gbit", "none")


def compare(*arguments):
    command = [str(ROOT / "lab" / "compare.sh"), "--gradlane", Options.gradlane, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def end(process):
    """Ends the process and all that it has started. SIGTERM comes first, so that the process can clean up."""
    for number, patience in ((signal.SIGTERM, ENDING), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        try:
            process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            pass


def finish(process):
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        end(process)
    return process.returncode, out, err


def left_over(process, results):
    """Returns the files and namespaces that this run has left behind. Other runs may have some at the same time."""
    found = list(pathlib.Path("/dev/shm").glob(f"gradlane-compare-{process.pid}-*"))
    for job in results["jobs"]:
        found += pathlib.Path("/run/netns").glob(f"gradlane-{job['pid']}-*")
    return found


class QuickTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="gradlane-compare-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        only = ["--only", f"rate={','.join(Options.rates)}"]
        cls.process = compare("--quick", "--json", "--out", cls.folder, *only)
        cls.code, cls.out, cls.err = finish(cls.process)
        cls.results = json.loads(cls.out) if cls.code == 0 else None

    def setUp(self):
        self.assertEqual(self.code, 0, self.err)
        self.rows = self.results["rows"]

    def test_every_method_is_there_at_every_point(self):
        from lab.compare import plan

        wanted = set()
        for rate in Options.rates:
            packets = [name for name in plan.METHODS if name.startswith("packets")]
            left_out = {"mpi ring", *plan.STRATEGIES, *packets} if rate == "none" else {"mpi shm"}
            left_out.add("gloo 2")  # needs another PyTorch, which this run does not name
            for size, data in ((64 << 10, "gauss"), (MIB, "gauss"), (MIB, "digits")):
                for method in plan.METHODS:
                    if method not in left_out and (data == "gauss" or method not in plan.STRATEGIES):
                        wanted.add((rate, size, data, method))
        found = [(row["rate"], row["bytes"], row["data"], row["method"]) for row in self.rows]
        self.assertEqual(len(found), len(set(found)))
        self.assertEqual(set(found), wanted)

    def test_results_are_right(self):
        # Least and largest errors, for sums of two ranks. A lossy codec without any error would mean that another one
        # was used.
        bounds = {"raw": (0, 1e-7), "fixed:10": (1e-6, 2 * 2**-10), "inceptionn:10": (1e-6, 2 * 2**-10),
                  "bf16": (1e-6, 2e-2), "fp16": (1e-7, 1e-3)}
        for row in self.rows:
            self.assertEqual(row["wrong"], 0, row)
            self.assertIs(row["same_on_all_ranks"], True, row)
            name = "fixed:adaptive" if row["method"].endswith("auto") else row["codec"]
            least, most = bounds.get(name, (1e-9, 1e-3))
            self.assertLessEqual(row["largest_error"], most, row)
            self.assertGreaterEqual(row["largest_error"], least, row)

    def test_auto_chose_a_bound(self):
        codecs = {row["codec"] for row in self.rows if row["method"] == "gradlane fixed:adaptive"}
        self.assertTrue(codecs and all(codec.startswith("fixed:") for codec in codecs), codecs)

    def test_samples_and_statistics(self):
        for row in self.rows:
            self.assertEqual((row["nodes"], len(row["samples"])), (2, 2), row)
            self.assertGreater(row["min"], 0, row)
            self.assertEqual((row["min"], row["max"]), (min(row["samples"]), max(row["samples"])))
            self.assertAlmostEqual(row["median"], sum(row["samples"]) / 2)
            self.assertGreaterEqual(row["operations"], 1)
            self.assertGreaterEqual(row["cpu_per_gb"], 0)

    def test_what_it_was_measured_on(self):
        jobs = self.results["jobs"]
        self.assertEqual({(job["nodes"], job["rate"]) for job in jobs}, {(2, rate) for rate in Options.rates})
        self.assertTrue(all(job["idle_cores"] >= 0 for job in jobs))
        self.assertEqual(self.results["about"]["cores"], os.cpu_count())
        self.assertIn("Open MPI", self.results["about"]["Open MPI, tcp"])
        self.assertEqual(self.results["data"]["digits"]["parameters"], 789010)
        self.assertEqual(self.results["notes"], [])

    def test_report_and_plots(self):
        text = (self.folder / "report.md").read_text()
        for label in ("gradlane fixed:10", "PyTorch backend raw", "worker-aggregator", "Open MPI, TCP", "unshaped"):
            self.assertIn(label, text)
        self.assertTrue(text.startswith("**With `--quick`"), text[:200])
        for name in ("busbw-2", "time", "cpu"):
            self.assertEqual((self.folder / f"{name}.png").read_bytes()[:8], PNG)
            self.assertIn(f"({name}.png)", text)
        self.assertFalse((self.folder / "busbw-4.png").exists())

    def test_render_gives_the_same_without_measuring(self):
        text = (self.folder / "report.md").read_text()
        code, out, err = finish(compare("--render", "--out", self.folder))
        self.assertEqual((code, out.strip()), (0, text.strip()), err)

    def test_docs_have_a_page_of_their_own(self):
        from lab.compare import report

        docs = self.folder / "docs"
        docs.mkdir()
        for _ in range(2):
            report.write_docs(self.results, self.folder, docs)
        text = (docs / "results" / "compare.md").read_text()
        self.assertTrue(text.startswith(report.HEAD), text)
        self.assertEqual(text.count("\n## Machine\n"), 1)
        self.assertIn("(../images/compare-time.png)", text)
        self.assertEqual((docs / "images" / "compare-time.png").read_bytes()[:8], PNG)

    def test_the_page_is_not_written_with_it(self):
        from lab.compare import report

        page = ROOT / "docs" / "results" / "compare.md"
        before = page.read_bytes()
        code, _, err = finish(compare("--render", "--write-docs", "--out", self.folder))
        self.assertEqual(code, 1, err)
        self.assertIn("was not changed", err)
        self.assertEqual(page.read_bytes(), before)
        reasons = " ".join(report.unfit(self.results))
        for reason in ("--quick", "missing", "2 samples"):
            self.assertIn(reason, reasons)

    def test_nothing_is_left(self):
        from lab.compare import plan

        self.assertEqual(len(self.results["jobs"]), sum(len(plan.links_for(rate)) for rate in Options.rates))
        self.assertEqual(left_over(self.process, self.results), [])


class InterruptTest(unittest.TestCase):
    def test_what_was_measured_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            process = compare("--quick", "--out", folder, "--only", "rate=none", "method=gloo,gradlane raw")
            self.addCleanup(end, process)
            lines = []
            for line in process.stderr:
                lines.append(line)
                if " ms " in line:
                    process.send_signal(signal.SIGINT)
                    break
            code, _, err = finish(process)
            self.assertEqual(code, 130, "".join(lines) + err)
            results = json.loads((pathlib.Path(folder) / "results.json").read_text())
            self.assertGreaterEqual(len(results["rows"]), 1)
            self.assertIn("interrupted", results["notes"])
            self.assertIn("gradlane raw", (pathlib.Path(folder) / "report.md").read_text())
        self.assertEqual(left_over(process, results), [])


class OptionsTest(unittest.TestCase):
    def test_bad_options_are_refused(self):
        page = ROOT / "docs" / "results" / "compare.md"
        before = page.read_bytes()
        for options in (["--only", "colour=red"], ["--only", "nodes=3"], ["--mtu", "100"], ["--samples", "0"],
                        ["--minutes", "0"], ["--minutes", "nan"], ["--write-docs", "--quick"],
                        ["--write-docs", "--samples", "6"], ["--write-docs", "--render", "--only", "nodes=2"],
                        ["--write-docs", "--mtu", "9000"]):
            code, _, err = finish(compare("--out", "/dev/null/none", *options))
            self.assertEqual(code, 2, (options, err))
        self.assertEqual(page.read_bytes(), before)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    arguments, rest = parser.parse_known_args()
    Options.gradlane = arguments.gradlane
    modules = subprocess.run([sys.executable, "-c", MODULES], capture_output=True)
    if modules.returncode != 0 or shutil.which("mpirun") is None:
        needs = "needs PyTorch, mpi4py, Matplotlib and mpirun; tools/setup.sh --all installs them"
        if networks.in_ci():
            print(f"{needs}; CI is set, where this must not be left out")
            return 1
        print(f"skipped: {needs}")
        return SKIPPED
    if os.getuid() != 0 or not all(shutil.which(tool) for tool in ("ip", "tc", "nft")):
        print("without links in network namespaces, which need root, ip, tc and nft")
        Options.rates = ("none",)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    sys.exit(main())
