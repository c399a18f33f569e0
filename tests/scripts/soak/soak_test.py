#!/usr/bin/python3
"""Results never change: 10,000 all-reduces on 4 nodes, without faults, with injected ones, and with loss on the wire.

Every rank has the same bytes in all three runs. Afterwards daemons use no more packet buffers, and no more memory, than
before.
"""

import argparse
import pathlib
import sys
import tempfile

from tests.scripts.fixtures import networks
from tests.scripts.soak import teams

NODES = 4


def run(name, ring, operations):
    """Returns the digest of all results, and the number of packets."""
    usage = teams.Usage(ring)
    with teams.TrainerTeam(ring) as team:
        reports = team.run(teams.job(1, operations))
    usage.wait_until_back()
    sent, again = (sum(report[key] for report in reports) for key in ("data_packets", "retransmitted"))
    print(f"{name}: {reports[0]['operations']} all-reduces of {reports[0]['bytes'] / 1e6:.0f} MB in "
          f"{reports[0]['seconds']:.1f} s, {sent} packets, {again} of them again; digest {reports[0]['digest']}; "
          f"buffers {usage.buffers}, memory {max(usage.rss_kb)} kB, grown by {usage.growth_kb()}", flush=True)
    return reports[0]["digest"], sent


def check(folder, gradlaned, operations):
    folders = [pathlib.Path(folder, name) for name in ("plain", "faults")]
    for path in folders:
        path.mkdir()
    with networks.Network(NODES) as network:
        with teams.warm_ring(folders[0], gradlaned, network) as ring:
            expected, _ = run("no faults", ring, operations)
            network.drop(teams.WIRE_LOSS)
            digest, sent = run("loss on the wire", ring, operations)
            assert digest == expected, "loss on the wire has changed results"
            print(teams.check_lost(network, sent), flush=True)
            network.drop(0)
        with teams.warm_ring(folders[1], gradlaned, network, faults=teams.FAULTS) as ring:
            digest, _ = run("injected faults", ring, operations)
            assert digest == expected, "injected faults have changed results"
            print(teams.check_injected(ring), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gradlaned")
    parser.add_argument("--operations", type=int, default=10000)
    args = parser.parse_args()
    networks.require()
    with tempfile.TemporaryDirectory() as folder:
        check(folder, args.gradlaned, args.operations)
    print(f"3 runs of {args.operations} all-reduces on {NODES} nodes: the same results everywhere, and nothing leaked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
