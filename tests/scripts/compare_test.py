#!/usr/bin/env python3
"""Runs tools/compare.sh --quick: its results must be right, whole, and rendered. Times are not looked at."""

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

SKIPPED = 77
TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
PATIENCE = 240
PNG = b"\x89PNG\r\n\x1a\n"
MODULES = "import torch, mpi4py, matplotlib, numpy, sklearn"
MIB = 1 << 20

sys.path.append(str(TOOLS / "compare"))


class Options:
    gradlane = ""
    rates = ("1gbit", "none")


def compare(*arguments):
    command = [str(TOOLS / "compare.sh"), "--gradlane", Options.gradlane, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def left_over():
    return set(pathlib.Path("/dev/shm").glob("gradlane-compare-*"))


class QuickTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.before = left_over()
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="gradlane-compare-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        only = ["--only", f"rate={','.join(Options.rates)}"]
        cls.code, cls.out, cls.err = finish(compare("--quick", "--json", "--out", cls.folder, *only))
        cls.results = json.loads(cls.out) if cls.code == 0 else None

    def setUp(self):
        self.assertEqual(self.code, 0, self.err)
        self.rows = self.results["rows"]

    def test_every_method_is_there_at_every_point(self):
        import plan

        wanted = set()
        for rate in Options.rates:
            methods = [name for name in plan.METHODS if name != ("mpi ring" if rate == "none" else "mpi shm")]
            for size, data in ((64 << 10, "gauss"), (MIB, "gauss"), (MIB, "digits")):
                wanted.update((rate, size, data, method) for method in methods)
        found = [(row["rate"], row["bytes"], row["data"], row["method"]) for row in self.rows]
        self.assertEqual(len(found), len(set(found)))
        self.assertEqual(set(found), wanted)

    def test_results_are_right(self):
        # Of sums of two ranks. An error of nothing at all in a lossy codec would say that another one was used.
        bounds = {"raw": (0, 1e-7), "fixed:10": (1e-6, 2 * 2**-10), "inceptionn:10": (1e-6, 2 * 2**-10),
                  "bf16": (1e-6, 2e-2), "fp16": (1e-7, 1e-3)}
        for row in self.rows:
            self.assertEqual(row["wrong"], 0, row)
            self.assertIs(row["same_on_all_ranks"], True, row)
            name = "fixed:auto" if row["method"].endswith("auto") else row["codec"]
            least, most = bounds.get(name, (1e-9, 1e-3))
            self.assertLessEqual(row["largest_error"], most, row)
            self.assertGreaterEqual(row["largest_error"], least, row)

    def test_auto_chose_a_bound(self):
        codecs = {row["codec"] for row in self.rows if row["method"] == "gradlane fixed:auto"}
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
        for name in ("busbw-2", "time", "cpu"):
            self.assertEqual((self.folder / f"{name}.png").read_bytes()[:8], PNG)
            self.assertIn(f"({name}.png)", text)
        self.assertFalse((self.folder / "busbw-4.png").exists())

    def test_render_gives_the_same_without_measuring(self):
        text = (self.folder / "report.md").read_text()
        code, out, err = finish(compare("--render", "--out", self.folder))
        self.assertEqual((code, out.strip()), (0, text.strip()), err)

    def test_docs_keep_what_is_around_the_marks(self):
        import report

        docs = self.folder / "docs"
        docs.mkdir()
        page = docs / "benchmarks.md"
        page.write_text(f"# head\n{report.BEGIN}\nold\n{report.END}\nfoot\n")
        for _ in range(2):
            report.write_docs(self.results, self.folder, docs)
        text = page.read_text()
        self.assertTrue(text.startswith("# head\n") and text.endswith("foot\n"), text)
        self.assertNotIn("\nold\n", text)
        self.assertEqual((text.count(report.BEGIN), text.count("### Machine")), (1, 1))
        self.assertEqual((docs / "images" / "compare-time.png").read_bytes()[:8], PNG)
        page.write_text("no marks\n")
        self.assertRaises(SystemExit, report.write_docs, self.results, self.folder, docs)

    def test_nothing_is_left(self):
        self.assertEqual(left_over() - self.before, set())


class InterruptTest(unittest.TestCase):
    def test_what_was_measured_stays(self):
        before = left_over()
        with tempfile.TemporaryDirectory() as folder:
            process = compare("--quick", "--out", folder, "--only", "rate=none", "method=gloo,gradlane raw")
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
        self.assertEqual(left_over() - before, set())


class PartsTest(unittest.TestCase):
    """What must be able to say no."""

    def test_wrong_values_are_counted(self):
        import checks
        import data
        import numpy as np

        with tempfile.TemporaryDirectory() as folder:
            values = [np.full(64, 0.25, np.float32), np.full(64, -0.5, np.float32)]
            for rank in range(2):
                values[rank].tofile(data.path(folder, "gauss", rank))
            reference = checks.Reference(folder, "gauss", 2, 64)
            total = values[0] + values[1]
            self.assertEqual(reference.check(total, "raw", average=False), (0, 0.0))
            self.assertEqual(reference.check(total / 2, "raw", average=True), (0, 0.0))
            self.assertEqual(reference.check(total / 2, "raw", average=False)[0], 64)
            total[3] += 0.003
            total[5] = np.nan
            self.assertEqual(reference.check(total, "fixed:10", average=False)[0], 2)
            total[5] = -0.25
            self.assertEqual(reference.check(total, "fixed:10", average=False)[0], 1)
            self.assertEqual(reference.check(total, "fixed:9", average=False)[0], 0)
            self.assertEqual(reference.check(total, "bf16", average=False)[0], 0)
            self.assertEqual(reference.check(total, "raw", average=False)[0], 1)

    def row(self, method, median, **place):
        return {"nodes": 4, "rate": "1gbit", "mtu": 1500, "bytes": 16 * MIB, "data": "gauss", "method": method,
                "median": median, "min": median / 2, "max": median * 2, "cpu_per_gb": 1, **place}

    def test_figures_are_met_or_missed(self):
        import figures

        def met(ours, gloo, aggregator):
            rows = [self.row("gradlane fixed:10", ours), self.row("gloo", gloo), self.row("aggregator", aggregator)]
            return [each["met"] for each in figures.figures({"rows": rows, "mtu": 1500})]

        self.assertEqual(met(1, 3, 10)[:3], [True, True, None])
        self.assertEqual(met(1, 2.9, 9.9)[:3], [False, False, None])
        self.assertEqual(set(met(1, 3, 10)[2:]), {None})

    def test_what_is_slower_is_marked(self):
        import tables

        times = {"gradlane raw": 3.0, "gradlane bf16": 1.5, "gradlane fixed:10": 0.5, "gloo": 2.0, "mpi tcp": 1.0}
        rows = {name: self.row(name, time) for name, time in times.items()}
        self.assertEqual(tables.losses(rows, rows["gradlane raw"]), ["gloo", "mpi tcp"])
        self.assertEqual(tables.losses(rows, rows["gradlane bf16"]), ["mpi tcp"])
        self.assertEqual(tables.losses(rows, rows["gradlane fixed:10"]), [])
        self.assertEqual(tables.losses(rows, rows["gloo"]), [])
        self.assertIn("slower", tables.speed_cell(rows, rows["gradlane raw"]))
        self.assertAlmostEqual(tables.busbw(rows["gloo"]), 16 * MIB / 2 / 1e9 * 1.5)

    def test_bad_options_are_refused(self):
        import plan

        for only in ("rate=2gbit", "method=nccl", "size=12", "colour=red", "nodes"):
            self.assertRaises(ValueError, plan.parse_filter, [only])
        for options in (["--only", "colour=red"], ["--only", "nodes=3"], ["--mtu", "100"], ["--samples", "0"]):
            code, _, err = finish(compare("--out", "/dev/null/none", *options))
            self.assertEqual(code, 2, (options, err))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    arguments, rest = parser.parse_known_args()
    Options.gradlane = arguments.gradlane
    modules = subprocess.run(["/usr/bin/python3", "-c", MODULES], capture_output=True)
    if modules.returncode != 0 or shutil.which("mpirun") is None:
        print("skipped: needs PyTorch, mpi4py, Matplotlib, scikit-learn and mpirun; tools/setup.sh installs them")
        return SKIPPED
    if os.getuid() != 0 or not all(shutil.which(tool) for tool in ("ip", "tc", "nft")):
        print("without links in network namespaces, which need root, ip, tc and nft")
        Options.rates = ("none",)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    sys.exit(main())
