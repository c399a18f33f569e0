#!/usr/bin/python3
"""Runs `gradlane plan --calibrate` on small rings, and checks the files that it writes.

No check depends on how fast the machine is. A shaper limits the rate of links, and the calibration must find that rate.

calibrate_test.py GRADLANE [unittest's arguments]

PYTORCH: a virtual environment with PyTorch, build-pytorch/ if it is not set. Without PyTorch, its test is skipped.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from tests.scripts.fixtures import networks, ports
from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.waiting import PATIENCE, wait_for

GRADLANE = ""
PYTORCH = pathlib.Path(os.environ.get("PYTORCH", ROOT / "build-pytorch")) / "bin" / "python3"
# A program in place of Python. It is told what to do as the module; it can import everything.
PYTHON = """#!/bin/sh
case "$1" in -c) {imports}exit 0 ;; esac
{measures}
"""
EXCHANGES = {"cores": 0.5, "background": 0, "exchanges": [
    {"library": library, "codec": codec, "points": [{"bytes": 65536, "seconds": 0.001, "busy": 0.002}]}
    for library, codec in (("gloo", "fp32"), ("gradlane", "raw"))]}
MEASURES = f"""[ -n "$MASTER_PORT" ] && echo '{json.dumps(EXCHANGES)}'"""


def run(*command, **variables):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=2 * PATIENCE,
                          env={**os.environ, **variables})


class CalibrateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "calibration.yaml"

    def calibrate(self, *words, nodes=2, options=("--quick",), python="none"):
        """Runs a calibration. Returns the JSON document that rank 0 prints, and sets `errors` to standard error."""
        result = run(GRADLANE, "run", "-n", nodes, *words, "--no-prefix", "--", GRADLANE, "plan", "--calibrate", *options,
                     "-o", self.file, "--json", "--python", python)
        self.assertEqual(result.returncode, 0, result)
        self.errors = result.stderr
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

    def python(self, measures=MEASURES, imports=""):
        """Returns the path of a program in place of Python, with these commands."""
        path = self.folder / "python"
        path.write_text(PYTHON.format(measures=measures, imports=imports))
        path.chmod(0o755)
        return path

    def test_pytorch(self):
        if not PYTORCH.exists():
            self.skipTest(f"no PyTorch: there is no {PYTORCH}")
        made = self.calibrate("--link", "udp", "--strategies", "ring,direct", python=PYTORCH)
        self.assertEqual(made["exchanges_fault"], "", self.errors)
        found = {(each["library"], each["codec"]): each["points"] for each in made["exchanges"]}
        self.assertLessEqual({("gloo", "fp32"), ("gloo", "bf16"), ("gradlane", "raw"), ("gradlane", "fixed:adaptive"),
                              ("gradlane", "topk:1%+fixed:10"), ("gradlane", "int8")}, found.keys())
        for points in found.values():
            sizes = [point["bytes"] for point in points]
            self.assertEqual(sizes, sorted(set(sizes)), made)
            self.assertEqual(sizes[0], 65536, made)
            self.assertTrue(all(point["us"] > 0 and point["busy_us"] >= 0 for point in points), made)
        self.assertEqual(made["cores"], len(os.sched_getaffinity(0)) / 2)
        text = self.file.read_text()
        self.assertIn(f"\ncores: {made['cores']:g}\n", text)
        self.assertEqual(text.count("library: 'gradlane'"), sum(library == "gradlane" for library, _ in found))
        self.assertEqual(self.plan().returncode, 0)

    def test_measured_exchanges(self):
        made = self.calibrate("--link", "ring", python=self.python())
        self.assertEqual((made["cores"], made["exchanges_fault"]), (0.5, ""))
        self.assertEqual([(each["library"], each["codec"], each["points"]) for each in made["exchanges"]],
                         [(each["library"], each["codec"], [{"bytes": 65536, "us": 1000, "busy_us": 2000}])
                          for each in EXCHANGES["exchanges"]])
        self.assertIn("{bytes: 65536, us: 1000, busy_us: 2000}", self.file.read_text())

    def test_without_pytorch(self):
        """Checks that no rank measures through PyTorch if one rank cannot, and that the calibration is written."""
        no = "echo \"No module named 'torch'\" >&2; "
        made = self.calibrate("--link", "ring", python=self.python("touch $0.$RANK", f'[ "$RANK" = 0 ] || {{ {no}exit 1; }}; '))
        self.assertEqual(made["exchanges"], [])
        self.assertIn("rank 1: ", made["exchanges_fault"])
        self.assertIn("No module named 'torch'", self.errors)
        self.assertIn("--python EXE", self.errors)
        self.assertNotIn("library", self.file.read_text())
        self.assertEqual(list(self.folder.glob("python.*")), [])
        nowhere = self.calibrate("--link", "ring", python="/nowhere/python3")
        self.assertIn("cannot execute /nowhere/python3", nowhere["exchanges_fault"])

    def test_one_rank_that_does_not_want_pytorch(self):
        script = 'python=$0; [ "$RANK" = 0 ] || python=none; exec "$@" --python "$python"'
        result = run(GRADLANE, "run", "-n", 2, "--link", "ring", "--no-prefix", "--", "sh", "-c", script, self.python(),
                     GRADLANE, "plan", "--calibrate", "--quick", "-o", self.file, "--json")
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(json.loads(result.stdout)["exchanges_fault"], "rank 1: has --python none", result)

    def test_failing_measurement(self):
        for measures, cause in (("echo here >&2; echo lost rank 1 >&2; exit 3", "lost rank 1"), ("kill -9 $$", "SIGKILL")):
            made = self.calibrate("--link", "ring", python=self.python(measures))
            self.assertIn(cause, made["exchanges_fault"])
            self.assertEqual(self.errors.count(cause), 2, self.errors)
            self.assertNotIn("library", self.file.read_text())

    def test_interrupted_measurement(self):
        """Checks that Ctrl-C ends what runs in place of Python."""
        python = self.python("echo $$ >$0.$RANK.tmp; mv $0.$RANK.tmp $0.$RANK; exec sleep 1000")
        command = [GRADLANE, "run", "-n", "2", "--link", "ring", "--", GRADLANE, "plan", "--calibrate", "--quick", "--python",
                   str(python), "-o", str(self.file)]
        files = [self.folder / f"python.{rank}" for rank in range(2)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
            try:
                wait_for(lambda: job.poll() is not None or all(file.exists() for file in files), "both ranks measure")
                self.assertIsNone(job.poll())
                job.send_signal(signal.SIGINT)
                job.wait(PATIENCE)
            finally:
                job.kill()
        for file in files:
            pid = int(file.read_text())
            wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists(), f"process {pid} ends")

    def test_own_daemons(self):
        """Checks that --nodes starts daemons for the measurement, and that nothing of them is left."""
        network = ports.loopback_network()
        before = set(pathlib.Path("/tmp").glob("gradlane-calibrate-*"))
        command = [GRADLANE, "plan", "--calibrate", "--quick", "--json", "--nodes", f"{network}.1,{network}.2", "--python",
                   str(self.python()), "-o", str(self.file)]
        ranks = [subprocess.Popen([*command, "--rank", str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for rank in range(2)]
        ended = [rank.communicate(timeout=2 * PATIENCE) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], ended)
        made = json.loads(ended[0][0])
        self.assertEqual((made["port"], made["strategies"], made["cores"]), ("udp", ["ring", "direct"], 0.5))
        self.assertEqual(set(pathlib.Path("/tmp").glob("gradlane-calibrate-*")), before)
        wrong = run(*command, "--rank", "2")
        self.assertEqual(wrong.returncode, 2, wrong)
        self.assertIn("gradlaned exited with code 2: ", wrong.stderr)
        both = run(*command, "--socket", "/nowhere")
        self.assertEqual(both.returncode, 2, both)
        self.assertIn("leave out", both.stderr)

    def test_lanes(self):
        made = self.calibrate("--link", "ring", "--lanes", "2", nodes=3)
        self.assertEqual((made["port"], made["lanes"]), ("ring", 2))

    def test_without_a_ring(self):
        """Calibrates where the daemons allow only the strategy `direct`."""
        self.calibrate("--link", "ring", "--strategies", "direct")

    def test_last_lines(self):
        """Checks that rank 0 prints what to run next, and that the other ranks print that they are done."""
        result = run(GRADLANE, "run", "-n", "2", "--link", "ring", "--", GRADLANE, "plan", "--calibrate", "--quick", "-o",
                     self.file, "--python", self.python())
        self.assertEqual(result.returncode, 0, result)
        self.assertIn(f"gradlane plan --model resnet50 --calibration {self.file}\n", result.stdout)
        self.assertRegex(result.stdout, r"gloo fp32 +1\.00\n.*gradlane raw +1\.00\n")
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
