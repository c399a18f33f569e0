#!/usr/bin/python3
"""Tests two daemons on kernel interfaces (AF_PACKET on veth, in network namespaces of their own): ARP, ping, a ring."""

import argparse
import pathlib
import sys
import tempfile

from tests.scripts.fixtures import networks, rings
from lab.net.spaces import run


def check_ping(network):
    """Pings node 1 from a kernel on the same wire: ARP first, then echoes of several sizes."""
    for size in (0, 1, 56, 1471, 1472):
        output = network.node(0).run("ping", "-c", "2", "-i", "0.2", "-W", "5", "-M", "do", "-s", size,
                                                "10.77.0.2")
        assert " 0% packet loss" in output, output
    assert "10.77.0.2" in network.node(0).ip("neigh")


def check_ring(ring, example):
    trainers = [ring.trainer(rank, example, stdout=-1) for rank in range(2)]
    for trainer in trainers:
        output, _ = trainer.communicate(timeout=rings.PATIENCE)
        assert trainer.returncode == 0 and "wrong 0" in output, output


def check_counters(ring):
    for node in range(2):
        assert ring.terminate(node) == 0
        assert " compressed " in ring.log(node), ring.log(node)
    # Only node 1 must have answered. A node that learns the MAC address from its neighbour's ARP request need not ask
    # itself.
    assert " answered " in ring.log(1) and " echo 10 " in ring.log(1), ring.log(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    parser.add_argument("example")
    args = parser.parse_args()
    networks.require("ping")
    with (tempfile.TemporaryDirectory() as folder, networks.Network(2) as network,
          rings.Ring("veth", 2, pathlib.Path(folder), args.gradlaned, network, log="debug",
                          codec="fixed:10") as ring):
        # The kernel has addresses of its own on the nodes' interfaces.
        for i, name in enumerate(network.names):
            run("ip", "-n", name, "addr", "add", f"10.77.0.{101 + i}/24", "dev", "gl0")
        ring.start().wait_whole()
        check_ping(network)
        check_ring(ring, args.example)
        check_counters(ring)
    print("ARP, ping and a ring over Ethernet work")
    return 0


if __name__ == "__main__":
    sys.exit(main())
