#!/usr/bin/python3
"""Tests a node's address that moves to another machine and comes back: errors name the rank, then sums are right again.

Usage: moving_address_test.py GRADLANED. The daemons are on UDP sockets in network namespaces. Needs root.
"""

import pathlib
import sys
import tempfile
import time

import numpy

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.rings import wait_for
from lab.net.spaces import Failed

GRADLANED = str(pathlib.Path(sys.argv[1]).resolve())
NODES, MOVED = 3, 1
ADDRESS = f"10.77.0.{MOVED + 1}/24"
COUNT = 200_000
REFUSED = "the kernel refuses to send packets, and they are lost"


def begin(contexts):
    arrays = [gl.zeros(COUNT) for gl in contexts]
    for gl, array in zip(contexts, arrays):
        array[:] = gl.rank + numpy.arange(COUNT) % 5
    return arrays, [gl.all_reduce(array, codec="raw", async_=True) for gl, array in zip(contexts, arrays)]


def works(contexts):
    """Returns whether an all-reduce succeeds. If it does, its sums must be right."""
    arrays, requests = begin(contexts)
    try:
        for request in requests:
            request.wait(60)
    except rings.gradlane_package().Error:
        return False
    for array in arrays:
        assert (array == NODES * (numpy.arange(COUNT) % 5) + sum(range(NODES))).all(), "wrong sums"
    return True


def works_again(contexts):
    def try_it():
        for gl in contexts:
            gl.resume(0)
        return works(contexts)

    wait_for(try_it, "operations succeed again", 120)


def fails(contexts):
    """Checks that an all-reduce fails on all ranks. Errors name the rank that has moved; its own error names another
    rank."""
    _, requests = begin(contexts)
    for rank, request in enumerate(requests):
        try:
            request.wait(60)
            raise AssertionError(f"rank {rank}: an operation succeeded that could not")
        except rings.gradlane_package().Error as error:
            named = [f"rank {MOVED}"] if rank != MOVED else [f"rank {other}" for other in range(NODES) if other != rank]
            assert any(name in str(error) for name in named), f"rank {rank}: {error}"


def take_away(network):
    """Gives the address to the stranger, and waits until the kernels of the other nodes know its MAC address."""
    stranger = network.stranger()
    network.node(MOVED).ip("addr", "del", ADDRESS, "dev", "gl0")
    stranger.ip("addr", "add", ADDRESS, "dev", "gl0")

    def is_heard(address):
        stranger.ip("neigh", "flush", "dev", "gl0")  # its next ARP request tells the others its MAC address
        try:
            stranger.run("ping", "-c", "1", "-W", "1", "-I", ADDRESS.split("/")[0], address)
            return True
        except Failed:
            return False

    for node in range(NODES):
        if node != MOVED:
            wait_for(lambda: is_heard(f"10.77.0.{node + 1}"), f"node {node} knows that the address has moved")


def main():
    networks.require("ping")
    with networks.Network(NODES, kernel=True) as network, tempfile.TemporaryDirectory(prefix="gl-moved-") as folder:
        with rings.Ring("udp", NODES, folder, GRADLANED, network) as ring:
            ring.start().wait_whole()
            contexts = [ring.open(rank) for rank in range(NODES)]
            pids = [ring.pid(node) for node in range(NODES)]
            assert works(contexts)
            for number in range(2):
                take_away(network)
                fails(contexts)
                wait_for(lambda: REFUSED in ring.log(MOVED), "a line in the log of the one that has moved")
                began = time.monotonic()
                network.stranger().ip("addr", "del", ADDRESS, "dev", "gl0")
                network.node(MOVED).ip("addr", "add", ADDRESS, "dev", "gl0")
                works_again(contexts)
                print(f"move {number}: right again after {time.monotonic() - began:.1f} s", flush=True)
            assert pids == [ring.pid(node) for node in range(NODES)] and all(map(ring.running, range(NODES)))
            for node in range(NODES):
                assert "UDP_SEGMENT" not in ring.log(node), ring.log(node)
            for gl in contexts:
                gl.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
