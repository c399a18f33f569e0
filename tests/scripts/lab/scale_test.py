#!/usr/bin/python3
"""Runs lab/bench_scale.py with few processes. It uses virtual time alone.

    python3 -m tests.scripts.lab.scale_test [unittest's arguments]
"""

import itertools
import json
import random
import unittest

from lab import bench_scale
from lab.scale.agreement import Create, group_change
from lab.scale.world import World

GROUPS = tuple(tuple(range(at + 1, at + 9)) for at in range(0, 64, 8))
SLEEP_S = 60.0  # longer than all time limits


class Sleepy(World):
    """Member 20 has failed. Process 1 coordinates, and sleeps before its summary gets to the store."""

    def __init__(self, keeps_first):
        super().__init__(group_change)
        self.keeps_first, self.has_slept = keeps_first, False
        self.begin(GROUPS)
        self.fail([20])

    def execute(self, process, request):
        if request == Create("group/1/0", json.dumps(GROUPS[0])) and not self.has_slept:
            self.has_slept = True
            self.fail([1], stop=True)
            self.at(self.now + SLEEP_S, self.stopped.discard, 1)
            self.at(self.now + SLEEP_S, self.execute, process, request)
            return
        if not self.keeps_first and isinstance(request, Create):
            self.keys.pop(request.key, None)
        super().execute(process, request)


class Recording(World):
    """Checks that each epoch has one record."""

    def __init__(self):
        super().__init__(group_change)
        self.records = {}
        self.begin(GROUPS)

    def install(self, process, record, groups):
        super().install(process, record, groups)
        if self.records.setdefault(process.epoch, record) != record:
            raise AssertionError(f"epoch {process.epoch} has two records")


class Scale(unittest.TestCase):
    def test_times(self):
        for strategy, ranks, size, simulated, formula in bench_scale.compare():
            with self.subTest(strategy=strategy, ranks=ranks, size=size):
                self.assertLess(abs(formula / simulated - 1), 0.1 if strategy == "ring" else 0.25)

    def test_changes(self):
        options = {"request_s": 150e-6, "stores": 1, "seed": 1}
        rows = bench_scale.changes((16, 24, 32), (64,), **options)
        self.assertEqual(rows, bench_scale.changes((16, 24, 32), (64,), **options))
        found = {(row["agreement"], row["members"], row["event"]): row for row in rows}
        for members in (16, 24, 32):
            self.assertGreaterEqual(found["flat", members, "a member"]["requests"], members * (members - 2))
        real = next(row for row in bench_scale.run_flat(64, options) if row["event"] == "a member")
        guessed = found["flat", 64, "a member"]
        self.assertFalse(guessed["simulated"])
        self.assertAlmostEqual(guessed["requests"] / real["requests"], 1, delta=0.05)
        for (agreement, _, event), row in found.items():
            if agreement == "groups" and event.startswith("a "):
                self.assertLessEqual(row["requests"], row["epochs"] * 6 * 64)
                self.assertLessEqual(row["busiest"], row["epochs"] * 3 * 16)

    def test_stores(self):
        one, more = (list(bench_scale.run_groups(256, {"request_s": 1e-3, "stores": stores, "seed": 1})) for stores in (1, 4))
        self.assertLess(more[1]["seconds"], one[1]["seconds"])
        self.assertAlmostEqual(more[1]["requests"] / one[1]["requests"], 1, delta=0.1)

    def test_random_failures(self):
        """Failures at any time. Members that are late may be expelled, but all others have the same members at the end.
        Process 1, 9 and 17 lead groups, and 2 and 10 are the next ones."""
        for seed in range(100):
            dice, world = random.Random(seed), Recording()
            for _ in range(dice.randrange(1, 12)):
                time = dice.choice([0, 0, dice.uniform(0.7, 3), dice.uniform(0, 12)])
                world.at(time, world.fail, [dice.choice([1, 9, 17, 2, 10, *range(1, 65)])], dice.random() < 0.25)
            world.run()
            last = max(world.records)
            members = [it for it in world.survivors() if it.epoch == last and it.neighbours]
            with self.subTest(seed=seed):
                self.assertEqual({it.groups for it in members}, {members[0].groups})
                self.assertEqual(sorted(itertools.chain(*members[0].groups)), sorted(it.id for it in members))
                self.assertFalse([it.id for it in world.survivors() if it not in members and it.neighbours])
                self.assertGreater(len(members), 45)

    def test_coordinator_that_sleeps(self):
        world = Sleepy(True)
        world.run()
        late, others = world.processes[1], [it for it in world.survivors() if it.id != 1]
        self.assertEqual({it.record for it in others}, {"[1, 20]"})
        self.assertEqual({it.groups for it in others}, {late.groups})
        self.assertEqual((late.epoch, late.record, late.neighbours), (2, "[1, 20]", frozenset()))

    def test_store_that_overwrites(self):
        world = Sleepy(False)
        world.run()
        self.assertGreater(len({it.record for it in world.survivors() if it.epoch == 2}), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
