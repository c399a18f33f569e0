#!/usr/bin/python3
"""Tests two hosts with an accelerator each, with short versions of cases of programs_test, faults_test, peers_test and
kernel_test.

accelerator_test.py [--superpackets] GRADLANE GRADLANED [CASE...]
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile
import time

from tests.scripts.accelerator import faults_test, kernel_test, peers_test, programs_test, rig, traffic
from tests.scripts.fixtures import networks

FLOATS = 40_000
FAULTS = "{drop: 1%, duplicate: 1%, reorder: 2%, corrupt: 1%, seed: 7}"


class Cases:
    """Runs the cases that the command line names, or all cases, and prints the time of each."""

    def __init__(self, args, hosts, folder):
        self.args, self.hosts, self.folder = args, hosts, folder
        self.done = 0

    @contextlib.contextmanager
    def bumps(self, hosts=None, **settings):
        superpackets = self.args.superpackets
        with rig.Bumps(hosts or self.hosts, self.folder, self.args.gradlaned, superpackets=superpackets, **settings) as bumps:
            bumps.codec = settings.get("codec", "fixed:10")
            bumps.start().wait_up()
            yield bumps

    def run(self, function, *more, **options):
        name = function.__name__
        if self.args.only and name not in self.args.only:
            return
        begin = time.monotonic()
        function(*more, **options)
        self.done += 1
        print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)


def without_mark(cases, bumps):
    hosts = cases.hosts
    cases.run(programs_test.bumps_matter, hosts, bumps)
    cases.run(programs_test.ping, hosts, bumps, range(0, 1473, 7))
    cases.run(programs_test.interactive, hosts, bumps, 200)
    cases.run(programs_test.downloads, hosts, bumps, folder=cases.folder)
    cases.run(programs_test.connections, hosts, bumps, 30)
    cases.run(programs_test.other_marks, hosts, bumps)
    cases.run(programs_test.congestion, hosts, bumps, 0, "ECN without the mark")


def with_mark(cases, bumps):
    hosts = cases.hosts
    cases.run(programs_test.float_streams, hosts, bumps, bumps.codec, FLOATS)
    cases.run(programs_test.check_superpackets, bumps, cases.args.superpackets)
    cases.run(programs_test.float_datagrams, hosts, bumps, bumps.codec)
    cases.run(programs_test.no_checksum, hosts, bumps)
    cases.run(programs_test.congestion, hosts, bumps, traffic.MARK, "marked")
    cases.run(programs_test.restart, hosts, bumps, bumps.codec)


def under_faults(cases, bumps):
    hosts = cases.hosts
    cases.run(faults_test.many_connections, hosts, bumps, 200)
    cases.run(faults_test.loss_and_options, hosts, bumps)
    cases.run(faults_test.any_boundaries, hosts, bumps)
    cases.run(faults_test.nothing_left, bumps)


def neighbours(cases, bumps):
    hosts, args = cases.hosts, cases.args
    cases.run(peers_test.both_there, hosts, bumps, args)
    cases.run(peers_test.malformed, hosts, bumps, 5000)
    cases.run(peers_test.truncated, hosts, bumps)
    cases.run(peers_test.blocked, hosts, bumps, args)
    hosts.spaces["sw"].run("nft", "delete", "table", "bridge", "blocked")


def beside_the_kernel(cases, bumps):
    programs = kernel_test.Programs(cases.hosts, bumps, cases.args.gradlane)
    for case in kernel_test.CASES:
        cases.run(case, cases.hosts, bumps, programs)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--superpackets", action="store_true", help="accelerators have them with their kernels")
    parser.add_argument("gradlane")
    parser.add_argument("gradlaned")
    parser.add_argument("only", nargs="*", help="names of cases")
    args = parser.parse_args()
    networks.require("ping", "sysctl")
    with tempfile.TemporaryDirectory(prefix="gl-acc-") as name:
        folder = pathlib.Path(name)
        with rig.Hosts() as hosts:
            faults_test.pin_neighbours(hosts)
            cases = Cases(args, hosts, folder)
            with cases.bumps() as bumps:
                if not args.superpackets:
                    without_mark(cases, bumps)
                with_mark(cases, bumps)
                under_faults(cases, bumps)
            with cases.bumps(codec="inceptionn:8", repack="{enabled: false}", faults=FAULTS) as bumps:
                bumps.warm(0, 1)
                bumps.warm(1, 0)
                cases.run(faults_test.injected, hosts, bumps, bumps.codec, 1000)
            with cases.bumps(connections=64) as bumps:
                bumps.warm(0, 1)
                bumps.warm(1, 0)
                cases.run(faults_test.full_table, hosts, bumps)
            if not args.superpackets:
                with cases.bumps(repack="{enabled: false}") as bumps:
                    neighbours(cases, bumps)
        if not args.superpackets:
            with rig.Hosts() as cases.hosts, contextlib.ExitStack() as stack:
                for i in range(2):
                    kernel_test.take_wires_address(cases.hosts, i)
                beside_the_kernel(cases, stack.enter_context(cases.bumps()))
            with rig.Hosts((True, False)) as hosts, cases.bumps(hosts) as bumps:
                cases.run(peers_test.legacy, hosts, bumps, args)
    print(f"{cases.done} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
