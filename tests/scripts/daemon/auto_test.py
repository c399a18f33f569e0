#!/usr/bin/python3
"""Operations that leave codec and strategy to the library, on real daemons: what is chosen, and what becomes of that
when ranks die. Times are not looked at.

auto_test.py GRADLANE GRADLANED [unittest's arguments]

GRADLANE_LIBRARY: libgradlane.so.0, if not in build/.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading
import unittest

import numpy

from tests.scripts.fixtures import daemons
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest
from tests.scripts.fixtures.paths import PACKAGE, gradlane_package

TRAINER = pathlib.Path(__file__).with_name("auto_trainer.py")
WORTH = 0.97


def run(*arguments, codec="auto:2^-10", operations=24, scale=0.01, sizes=(400_000,)):
    command = [daemons.BINARIES["gradlane"], "run", "--no-prefix", *arguments, "--", sys.executable, TRAINER,
               daemons.BINARIES["gradlane"], codec, operations, scale, *sizes]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=4 * PATIENCE,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


class Chosen(unittest.TestCase):
    def check(self, row):
        """What was chosen follows from what ranks have agreed on."""
        self.assertTrue(row["settled"], row)
        if row["exact"] and row["rival_measured"] > 0:
            self.assertLessEqual(WORTH * row["measured"], row["rival_measured"], row)
        elif not row["exact"]:
            self.assertLess(row["measured"], WORTH * row["baseline"], row)

    def test_on_links_without_a_rate(self):
        for nodes, more in ((2, ()), (4, ("--strategies", "ring,direct")), (2, ("--lanes", "2"))):
            with self.subTest(nodes=nodes, more=more):
                rows = run("-n", nodes, *more, sizes=(20_000, 400_000, 2_000_000))
                self.assertEqual(len(rows), 3)
                for row in rows:
                    self.check(row)
                    self.assertEqual(row["operations"], 24)
                self.assertEqual([row["from"] for row in rows], [16 << 10, 256 << 10, 1 << 20])

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_compressing_wins_on_slow_links(self):
        for nodes in (2, 4):
            with self.subTest(nodes=nodes):
                (row,) = run("-n", nodes, "--link", "veth", "--rate", "100mbit")
                self.check(row)
                self.assertIn("fixed:10", row["codec"] + " " + row["rival"], row)

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_compressing_loses_what_cannot_be_compressed(self):
        """Every float is an escape: as many bytes as raw, and the tags."""
        (row,) = run("-n", 2, "--link", "veth", "--rate", "100mbit", codec="auto:2^-24", scale=1e3)
        self.check(row)
        self.assertEqual(row["codec"], "raw", row)
        self.assertRegex(row["why"], "not compressed: fixed:24 .* takes longer")

    def test_exact_unless_asked(self):
        (row,) = run("-n", 2, codec="auto", operations=14)
        self.assertEqual((row["codec"], row["exact"]), ("raw", True))
        self.assertIn("nobody has asked", row["why"])
        # Half of a tensor to the other rank, and half of the sum.
        self.assertGreaterEqual(row["sent_bytes"], row["bytes"])
        self.assertLess(row["sent_bytes"], 1.1 * row["bytes"])

    def test_relative_bounds(self):
        """The trainer looks at errors."""
        for strategies in ("ring", "direct,ring"):
            (row,) = run("-n", 3, "--strategies", strategies, codec="auto:rel=7")
            self.check(row)

    def test_local_reduce(self):
        rows = sorted(run("-n", 2, "--trainers", 2, "--local-reduce"), key=lambda row: row["rank"])
        self.assertEqual([row["rank"] for row in rows], [0, 1])
        self.assertEqual(rows[0]["codec"], rows[1]["codec"])
        self.check(rows[0])


class Together:
    """A thread for each rank, as operations move on in calls of their own rank only."""

    def __init__(self, contexts):
        self.contexts, self.errors = contexts, []

    def run(self, work):
        threads = [threading.Thread(target=self._one, args=(work, gl)) for gl in self.contexts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            if self.errors:  # for which the others may wait
                raise self.errors[0]
            assert not thread.is_alive(), "a rank hangs"

    def _one(self, work, gl):
        try:
            work(gl)
        except BaseException as error:
            self.errors.append(error)


class Failures(DaemonTest):
    def sums(self, operations, results, count=100_000):
        def work(gl):
            data = gl.zeros(count)
            for _ in range(operations):
                data[:] = numpy.arange(count) % 7 * 0.125 + gl.rank
                gl.all_reduce(data, codec="auto:2^-10", timeout=PATIENCE)
            results[gl.rank] = data.copy()
        return work

    def check_sums(self, contexts, operations):
        results = {}
        Together(contexts).run(self.sums(operations, results))
        world = len(contexts)
        expected = world * (numpy.arange(100_000) % 7 * 0.125) + world * (world - 1) / 2
        self.assertEqual(len(results), world)
        for result in results.values():
            numpy.testing.assert_array_equal(result, expected)

    def test_a_rank_that_goes_in_mid_trial(self):
        """Whenever it goes; others are told, all resume, and begin to choose afresh."""
        failed = gradlane_package().OperationFailed
        ring = self.ring(2, "memif", mesh=True, strategies="[ring, direct]")
        contexts = self.open_all(ring)
        for tag, before in enumerate((1, 5, 12, 13, 30), start=1):
            self.check_sums(contexts, before)
            contexts[1].close()
            with self.assertRaises(failed):
                for _ in range(2):
                    contexts[0].all_reduce(contexts[0].zeros(100_000), codec="auto:2^-10", timeout=5)
            contexts[1] = self.open(ring, 1)
            for gl in contexts:
                gl.resume(tag << 20)
            self.check_sums(contexts, 20)
        self.finish(ring, contexts)

    def test_resuming_untold(self):
        """A rank that ends a generation by resuming is not told of it. A failure much later, which ends nothing, is no
        reason to begin afresh for it alone."""
        failed = gradlane_package().OperationFailed
        ring = self.ring(2, "memif")
        contexts = self.open_all(ring)
        self.check_sums(contexts, 5)
        first = contexts[0].all_reduce(contexts[0].zeros(100_000), codec="auto:2^-10", async_=True)
        contexts[0].resume(1 << 20)
        with self.assertRaises(failed):
            first.wait(PATIENCE)
        with self.assertRaises(failed):
            contexts[1].all_reduce(contexts[1].zeros(100_000), codec="auto:2^-10")
        contexts[1].resume(1 << 20)
        self.check_sums(contexts, 14)

        def cancel(gl):
            request = gl.all_reduce(gl.zeros(100_000), codec="auto:2^-10", async_=True)
            if gl.rank == 0:
                request.cancel()
            with self.assertRaises(failed):
                request.wait(PATIENCE)
        Together(contexts[:1]).run(cancel)
        Together(contexts[1:]).run(cancel)
        self.check_sums(contexts, 14)
        self.finish(ring, contexts)

    def test_cancelled_while_ranks_agree(self):
        """What waits for others to agree is given up with that, on all ranks; so is what runs out of time."""
        failed = gradlane_package().OperationFailed
        ring = self.ring(2, "memif")
        contexts = self.open_all(ring)
        for tag, limit in ((1, None), (2, 0.5)):
            request = contexts[0].all_reduce(contexts[0].zeros(100_000), codec="auto:2^-10", async_=True,
                                             timeout=limit or PATIENCE)
            if limit is None:
                request.cancel()
            for one in (request.wait, lambda: contexts[1].all_reduce(contexts[1].zeros(100_000), codec="auto:2^-10")):
                with self.assertRaises(failed):
                    one()
            for gl in contexts:
                gl.resume(tag << 20)
            self.check_sums(contexts, 14)
        self.finish(ring, contexts)

    def test_ranks_that_disagree_are_told(self):
        """One begins to choose afresh and the others do not: an error, which names what differs, and no wrong sum."""
        failed = gradlane_package().OperationFailed
        ring = self.ring(2, "memif")
        contexts = self.open_all(ring)
        self.check_sums(contexts, 20)
        texts = []

        def work(gl):
            data = gl.zeros(100_000)
            if gl.rank == 0:
                gl.resume(20)
            try:
                gl.all_reduce(data, codec="auto:2^-10", tag=20, timeout=20)
            except failed as error:
                texts.append(str(error))

        Together(contexts).run(work)
        self.assertEqual(len(texts), 2, texts)
        for gl in contexts:
            gl.resume(1 << 20)
        self.check_sums(contexts, 20)
        self.finish(ring, contexts)

    def test_one_that_does_not_ask_is_named(self):
        """Of two ranks one alone asks for auto: that is what differs, says the error of the other one, and the log."""
        failed = gradlane_package().OperationFailed
        ring = self.ring(2, "memif")
        contexts = self.open_all(ring)
        texts = {}

        def work(gl):
            try:
                gl.all_reduce(gl.zeros(100_000), codec="auto:2^-10" if gl.rank == 0 else "raw", timeout=5)
            except failed as error:
                texts[gl.rank] = str(error)

        Together(contexts).run(work)
        self.assertEqual(sorted(texts), [0, 1])
        named = r"who chooses codec and strategy: (the caller on .*, gradlane \(auto\) on rank 0|gradlane .* on rank 1)"
        self.assertRegex(texts[1], named)
        self.assertRegex(ring.daemons[1].log(), named)
        self.finish(ring, contexts)

    def test_daemons_that_differ(self):
        """Plans that differ: all goes raw, and a warning says so."""
        ring = self.ring(2, "memif", codec="auto:2^-10")
        for daemon in ring.daemons:
            daemon.stop()
        plan = self.folder / "plan.yaml"
        plan.write_text("plan: 1\nchoices:\n  - {from: 0, strategy: ring, codec: 'fixed:10'}\n")
        with ring.files[1].open("a") as end:
            end.write(f"plan: {plan}\n")
        ring.start()
        contexts = self.open_all(ring)
        with self.assertWarnsRegex(gradlane_package().LossWarning, "have other plans"):
            Together(contexts).run(self.sums(4, {}))
        (row,) = json.loads(subprocess.run([daemons.BINARIES["gradlane"], "stats", "--json", "--plan", "--admin",
                                            ring.sockets[0].with_suffix(".admin")], capture_output=True, text=True,
                                           timeout=PATIENCE).stdout)
        self.assertEqual(row["codec"], "raw")
        self.assertIn("offer something else", row["why"])
        self.finish(ring, contexts)

    def test_other_sums(self):
        """Reduces and reduce-scatters are classes of their own, and choose alike on all ranks."""
        ring = self.ring(3, "memif", mesh=True, strategies="[ring, direct]")
        contexts = self.open_all(ring)
        ended = []

        def work(gl):
            for _ in range(24):
                data = gl.zeros(90_000)
                data[:] = gl.rank + 1
                gl.reduce(data, root=1, codec="auto:2^-10", timeout=PATIENCE)
                if gl.rank == 1:
                    self.assertEqual(data[0], 6)
                data[:] = gl.rank + 1
                own = gl.reduce_scatter(data, codec="auto:2^-10", timeout=PATIENCE)
                self.assertEqual(own[gl.rank * 30_000], 6)
            ended.append(gl.rank)
        Together(contexts).run(work)
        self.assertEqual(len(ended), 3)
        rows = json.loads(subprocess.run([daemons.BINARIES["gradlane"], "stats", "--json", "--plan", "--admin",
                                          ring.sockets[0].with_suffix(".admin")], capture_output=True, text=True,
                                         timeout=PATIENCE).stdout)
        self.assertEqual([row["operation"] for row in rows], ["reduce", "reduce_scatter"])
        for row in rows:
            self.assertTrue(row["settled"], row)
        self.finish(ring, contexts)

    def test_a_plan_is_kept(self):
        """What a job has found is a file that the next one follows, of the same daemons."""
        ring = self.ring(2, "memif", codec="auto:2^-10")
        contexts = self.open_all(ring)
        self.check_sums(contexts, 20)
        stats = [daemons.BINARIES["gradlane"], "stats", "--admin", ring.sockets[0].with_suffix(".admin")]
        text = subprocess.run([*stats, "--freeze"], capture_output=True, text=True, timeout=PATIENCE).stdout
        self.assertRegex(text, r"(?s)^plan: 1\nchoices:\n  # 0 to 256KiB has no row.*\n  - \{from: 256KiB, to: 512KiB, strategy: 'ring', codec: ")
        table = subprocess.run([*stats, "--plan"], capture_output=True, text=True, timeout=PATIENCE).stdout
        self.assertIn("256KiB-512KiB", table)
        with subprocess.Popen([*stats, "--plan", "--watch", "0.1"], stdout=subprocess.PIPE, text=True) as watch:
            rows = [next(line for line in watch.stdout if "256KiB-512KiB" in line) for _ in range(2)]
            watch.terminate()
        self.assertEqual(rows[0].split()[:4], rows[1].split()[:4])
        for gl in contexts:
            gl.close()
        plan = self.folder / "plan.yaml"
        plan.write_text("plan: 1\nchoices:\n  - {from: 0, strategy: ring, codec: 'fixed:10'}\n")
        frozen = self.ring(2, "memif", codec="auto:2^-10", plan=plan)
        contexts = self.open_all(frozen)
        self.check_sums(contexts, 3)
        stats[-1] = frozen.sockets[0].with_suffix(".admin")
        (row,) = json.loads(subprocess.run([*stats, "--json", "--plan"], capture_output=True, text=True,
                                           timeout=PATIENCE).stdout)
        self.assertEqual((row["codec"], row["frozen"]), ("fixed:10", True))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    daemons.BINARIES["gradlane"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    daemons.BINARIES["gradlaned"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
