#!/usr/bin/python3
"""Tests an interface whose MTU shrinks, so that the kernel refuses to send. Errors name the MTU. With the old MTU, sums
work again.

A router that drops packets which are too long is tested in tests/stack/causes_test.cc.

Usage: path_test.py GRADLANED. The daemons are on UDP sockets in network namespaces. Needs root.
"""
import pathlib
import re
import sys
import tempfile

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.rings import wait_for

GRADLANED = str(pathlib.Path(sys.argv[1]).resolve())
COUNT = 200_000  # floats: many packets of full length
TIMEOUTS = "{peer: 4s, start: 20s, operation: 60s, shutdown: 1s}"
MTU, LESS = 1500, 1400
ADDRESS = networks.Routed.ADDRESS


def begin(contexts):
    return [gl.all_reduce(gl.zeros(COUNT), codec="raw", async_=True) for gl in contexts]


def errors_of(requests):
    """Returns the errors of operations that must fail before their own timeout."""
    errors = []
    for request in requests:
        try:
            request.wait(30)
            raise AssertionError("an operation succeeded that could not")
        except rings.gradlane_package().Error as error:
            errors.append(str(error))
    return errors


def names_it(contexts):
    """Checks that operations fail. Returns whether all errors name the MTU of the path. The first errors may not name
    it, because probes need time to find it."""
    errors = errors_of(begin(contexts))
    for error in errors:
        assert re.search(r"packets of 1[45]\d\d bytes from rank [01] do not arrive at rank [01]", error), error
    for gl in contexts:
        gl.resume(0)
    found = rf": the path takes at most {LESS} \(found by probes\): set mtu: {LESS} on all nodes"
    return all(re.search(found, error) for error in errors)


def works(contexts):
    """Runs operations until one succeeds."""

    def try_it():
        for gl in contexts:
            gl.resume(0)
        try:
            for request in begin(contexts):
                request.wait(60)
            return True
        except rings.gradlane_package().Error:
            return False

    wait_for(try_it, "operations succeed again", 30)


def path_mtu(ring, node):
    document = ring.stats(node)
    return document["neighbours"][0]["path_mtu"] if document else None


def shrinks(network, ring, contexts, space, interface):
    begun = [len(ring.log(node)) for node in range(2)]
    for request in begin(contexts):
        request.wait(60)
    network.set_mtu(space, interface, LESS)
    try:
        wait_for(lambda: names_it(contexts), "the MTU in errors", 90)
        for node in range(2):
            wait_for(lambda: path_mtu(ring, node) == LESS, f"node {node} has found the MTU", 30)
            text = (f"the path to node {1 - node} ({ADDRESS.format(2 - node)}) takes packets of at most {LESS} bytes, but "
                    f"mtu is {MTU}: set mtu: {LESS} on all nodes (found by probes)")
            wait_for(lambda: ring.stats(node)["neighbours"][0]["trouble"] == text, "it stands in stats", 30)
            wait_for(lambda: text in ring.log(node, begun[node]), "a line in the log", 30)
    finally:
        network.set_mtu(space, interface, MTU)
    works(contexts)
    for node in range(2):
        wait_for(lambda: path_mtu(ring, node) is None, f"node {node} knows that it is mended", 30)
        wait_for(lambda: f"takes packets of mtu {MTU} again" in ring.log(node, begun[node]), "a line in the log", 30)
        lines = [line for line in ring.log(node, begun[node]).splitlines() if "the path to node" in line]
        assert len(lines) == 2, lines


def main():
    networks.require()
    with networks.Routed(2, MTU) as network, tempfile.TemporaryDirectory(prefix="gl-path-") as folder:
        with rings.Ring("udp", 2, folder, GRADLANED, network, address=ADDRESS, timeouts=TIMEOUTS) as ring:
            ring.start().wait_whole()
            contexts = [ring.open(rank) for rank in range(2)]
            shrinks(network, ring, contexts, "n0", "gl0")
            for gl in contexts:
                gl.close()
            # The kernel refused packets for their length, not because many were sent at once.
            for node in range(2):
                assert "UDP_SEGMENT" not in ring.log(node), ring.log(node)
    return 0


if __name__ == "__main__":
    sys.exit(main())
