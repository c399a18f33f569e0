#!/usr/bin/python3
"""A soak: 24 combinations of sizes, codecs and faults on 4 nodes over veth. Results must be those without faults.

The switch loses frames at random in `wire`. The daemons drop, duplicate, reorder and corrupt frames that arrive in
`injected`. Each combination runs batches of all-reduces until its time is up. Needs root.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time

from tests.scripts.fixtures import networks
from tests.scripts.soak import teams

NODES = 4
OPERATIONS = {"tiny": 2000, "mixed": 1000, "large": 40}  # all-reduces per batch
SHORT = {"tiny": 250, "mixed": 120, "large": 6}
SEEDS = {False: (11, 12, 13, 14), True: (11,)}  # by `short`; each seed is another batch


class Combination:
    def __init__(self, sizes, codec, faults):
        self.sizes, self.codec, self.faults = sizes, codec, faults
        self.batches = self.operations = self.bytes = self.sent = self.again = 0
        self.seconds = 0.0
        self.verdict = "not run"

    def job(self, operations, seed):
        return teams.job(seed, operations[self.sizes], self.sizes, [self.codec])

    def add(self, reports):
        self.batches += 1
        self.operations += reports[0]["operations"]
        self.bytes += reports[0]["bytes"]
        self.sent += sum(report["data_packets"] for report in reports)
        self.again += sum(report["retransmitted"] for report in reports)

    def line(self):
        share = 100 * self.again / self.sent if self.sent else 0.0
        return (f"{self.sizes:6} {self.codec:13} {self.faults:9} {self.batches:7} {self.operations:10} "
                f"{self.bytes / 1e6:9.1f} {self.sent:10} {self.again:8} {share:7.2f} {self.seconds:8.1f}  "
                f"{self.verdict}")


HEADER = (f"{'sizes':6} {'codec':13} {'faults':9} {'batches':>7} {'operations':>10} {'MB':>9} {'packets':>10} "
          f"{'again':>8} {'again %':>7} {'seconds':>8}  verdict")


class Soak:
    def __init__(self, seconds, short):
        self.operations = SHORT if short else OPERATIONS
        self.seeds = SEEDS[short]
        self.expected = {}  # digests by sizes, codec and seed
        self.combinations = [Combination(sizes, codec, faults) for faults in ("wire", "injected")
                             for sizes in OPERATIONS for codec in teams.CODECS]
        self.share = seconds / len(self.combinations)
        self.leaks = []

    def run(self, folder, gradlaned):
        with networks.Network(NODES) as network:
            for faults, settings in (("wire", {}), ("injected", {"faults": teams.FAULTS})):
                path = pathlib.Path(folder, faults)
                path.mkdir()
                with teams.warm_ring(path, gradlaned, network, lanes=2, threads=1, **settings) as ring:
                    usage = teams.Usage(ring)
                    if faults == "wire":
                        self.find_expected(ring)
                        network.drop(teams.WIRE_LOSS)
                    self.run_all(ring, [one for one in self.combinations if one.faults == faults])
                    self.check_usage(ring, usage)
                    sent = sum(one.sent for one in self.combinations if one.faults == faults)
                    print(teams.check_lost(network, sent) if faults == "wire" else teams.check_injected(ring),
                          flush=True)
                    network.drop(0)

    def find_expected(self, ring):
        start = time.monotonic()
        with teams.TrainerTeam(ring) as team:
            for one in self.combinations:
                for seed in self.seeds:
                    if (one.sizes, one.codec, seed) not in self.expected:
                        reports = team.run(one.job(self.operations, seed))
                        self.expected[one.sizes, one.codec, seed] = reports[0]["digest"]
        print(f"{len(self.expected)} batches without faults: {time.monotonic() - start:.1f} s\n{HEADER}", flush=True)

    def run_all(self, ring, combinations):
        team = teams.TrainerTeam(ring)
        for one in combinations:
            try:
                self.run_one(team, one)
            except AssertionError as error:
                one.verdict = str(error)
                team.kill()
                team = teams.TrainerTeam(ring)
            print(one.line(), flush=True)
        with team:
            pass

    def run_one(self, team, one):
        start = time.monotonic()
        while one.batches == 0 or one.seconds < self.share:
            seed = self.seeds[one.batches % len(self.seeds)]
            reports = team.run(one.job(self.operations, seed))
            one.add(reports)
            one.seconds = time.monotonic() - start
            digest, expected = reports[0]["digest"], self.expected[one.sizes, one.codec, seed]
            assert digest == expected, f"batch {seed}: other results than without faults: {digest}, not {expected}"
        one.verdict = "same"

    def check_usage(self, ring, usage):
        try:
            usage.wait_until_back()
        except AssertionError as error:
            self.leaks.append(str(error))
        print(f"packet buffers in use {usage.buffers}, by node; memory {usage.rss_kb} kB, "
              f"grown by {usage.growth_kb()}", flush=True)

    def good(self):
        return not self.leaks and all(one.verdict == "same" for one in self.combinations)

    def report(self, as_json):
        if as_json:
            print(json.dumps({"combinations": [vars(one) for one in self.combinations], "leaks": self.leaks,
                              "good": self.good()}))
            return
        print("", HEADER, *(one.line() for one in self.combinations), *self.leaks, sep="\n")
        good = sum(one.verdict == "same" for one in self.combinations)
        print(f"{good} of {len(self.combinations)} combinations with the same results as without faults; "
              f"{sum(one.operations for one in self.combinations)} all-reduces of "
              f"{sum(one.bytes for one in self.combinations) / 1e9:.2f} GB; {len(self.leaks)} leaks")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gradlaned")
    parser.add_argument("--seconds", type=float, default=300, help="for all combinations together (default: 300)")
    parser.add_argument("--short", action="store_true", help="one small batch of each combination")
    parser.add_argument("--json", action="store_true", help="JSON in the last line, in place of the table")
    args = parser.parse_args()
    networks.require()
    soak = Soak(0 if args.short else args.seconds, args.short)
    with tempfile.TemporaryDirectory() as folder:
        soak.run(folder, args.gradlaned)
    soak.report(args.json)
    return 0 if soak.good() else 1


if __name__ == "__main__":
    sys.exit(main())
