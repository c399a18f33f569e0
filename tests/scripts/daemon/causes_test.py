#!/usr/bin/python3
"""Failed operations name their cause: in the trainers' errors, in the daemons' logs, in `gradlane stats` and its status.

Usage: causes_test.py GRADLANE GRADLANED. Rings on a bridge in network namespaces, on which one thing is changed while
operations run, or in one of the configuration files. Needs root.
"""

import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.rings import wait_for
from tools.net.spaces import run

GRADLANE, GRADLANED = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
COUNT = 200_000  # floats: many packets of full length
TIMEOUTS = "{peer: 3s, start: 20s, operation: 60s, shutdown: 1s}"  # each cause is waited for that long


@contextlib.contextmanager
def ring_of(network, nodes, **settings):
    with tempfile.TemporaryDirectory(prefix="gl-causes-") as folder:
        with rings.Ring("veth", nodes, folder, GRADLANED, network, timeouts=TIMEOUTS, **settings) as ring:
            yield ring


def replace(config, old, new):
    text = config.read_text()
    assert old in text, (old, text)
    config.write_text(text.replace(old, new))


def stats(ring, node):
    return subprocess.run([GRADLANE, "stats", "--admin", ring.socket(node)[: -len(".sock")] + ".admin"],
                          capture_output=True, text=True, timeout=30)


def begin(contexts):
    """An all-reduce of all of them, as it is: so packets are full."""
    return [gl.all_reduce(gl.zeros(COUNT), codec="raw", async_=True) for gl in contexts]


def errors_of(requests, patience=30):
    """How they end that must not end well, and not by operation_timeout."""
    Error = rings.gradlane_package().Error
    errors = []
    for request in requests:
        try:
            request.wait(patience)
            raise AssertionError("an operation succeeded that could not")
        except Error as error:
            errors.append(str(error))
    return errors


def resume(contexts):
    for gl in contexts:
        gl.resume(0)


def mended(contexts):
    """An operation that all ranks succeed with, after as many tries as it takes."""
    Error = rings.gradlane_package().Error

    def try_it():
        resume(contexts)
        try:
            for request in begin(contexts):
                request.wait(60)
            return True
        except Error:
            return False

    wait_for(try_it, "operations succeed again", 30)


def expect_cause(ring, contexts, pattern, breaks, mends, rounds=2):
    """Before, operations work. After it is broken, all trainers, all logs and `stats` give the cause; once per cause."""
    for request in begin(contexts):
        request.wait(60)
    breaks()
    try:
        for _ in range(rounds):
            for error in errors_of(begin(contexts)):
                assert re.search(pattern, error), f"not '{pattern}': {error}"
                assert "gradlane check" in error, error
            resume(contexts)
        for node in range(ring.nodes):
            wait_for(lambda: re.search(r"error node \d: \d+ operations? failed: .*" + pattern, ring.log(node)),
                     f"the cause in the log of {node}")
            found = re.findall(r"operations? failed: .*" + pattern, ring.log(node))
            assert len(found) <= 2, found
            seen = stats(ring, node)
            assert re.search(r"the last operation of rank \d that failed: .*" + pattern, seen.stdout), seen.stdout
    finally:
        mends()
    mended(contexts)
    wait_for(lambda: stats(ring, 0).returncode == 5, "operations have failed in the last minute")


def links_that_lose():
    """DSCP rewritten on one port, of data only and of everything; a bridge port and an interface with a smaller MTU."""
    with networks.Network(3) as network, ring_of(network, 3) as ring:
        for name in network.names:  # as devices have; a veth without refuses what its other end would not take
            run("tc", "-n", name, "qdisc", "add", "dev", "gl0", "root", "pfifo")
        ring.start().wait_whole()
        assert stats(ring, 0).returncode == 0, stats(ring, 0)
        contexts = [ring.open(rank) for rank in range(3)]

        def rewrite(match):
            rules = ["table bridge dscp {", "chain rewrite {", "type filter hook forward priority 5",
                     f"iifname p0 oifname p1 {match} ip dscp set 0x01", "}", "}", ""]
            network.spaces["sw"].rules("\n".join(rules))

        def trust():
            network.spaces["sw"].run("nft", "delete", "table", "bridge", "dscp")

        def mtu(namespace, interface, value):
            run("ip", "-n", namespace, "link", "set", interface, "mtu", str(value))

        tos = "packets of rank 0 arrive at rank 1 with ToS 0x04, which is none of `tos`: a switch between them rewrites DSCP"
        expect_cause(ring, contexts, tos, lambda: rewrite("ip dscp 0x08"), trust)
        assert re.search(r"\d+ packets of node 0 \(10\.77\.0\.1\) came with a ToS that is none of `tos`, 0x04 the last",
                         stats(ring, 1).stdout) or ring.stats(1)["neighbours"][0]["wrong_tos"], stats(ring, 1).stdout
        expect_cause(ring, contexts, tos, lambda: rewrite("ip protocol udp"), trust, rounds=1)
        # p1 takes no long ones from its node either.
        # Probes have found the length by then, unless the machine gave them no time.
        size = (r"packets of 1[45]\d\d bytes from rank [01] do not arrive at rank [12](: the path takes at most 140[04] "
                r"\(found by probes\)|, .*: the MTU of an interface or a switch port between them is less)")
        expect_cause(ring, contexts, size, lambda: mtu(network.switch, "p1", 1400), lambda: mtu(network.switch, "p1", 1500))
        # Nor does gl0 of node 0, from its neighbour.
        size = size.replace("[01]", "[02]").replace("[12]", "[01]")
        expect_cause(ring, contexts, size, lambda: mtu(network.names[0], "gl0", 1400),
                     lambda: mtu(network.names[0], "gl0", 1500))
        for gl in contexts:
            gl.close()


def absent_rank():
    """Whoever tries again after a trainer has left is told at once, again and again, until another one has come."""
    Error = rings.gradlane_package().Error
    with networks.Network(3) as network, ring_of(network, 3) as ring:
        ring.start().wait_whole()
        contexts = [ring.open(rank) for rank in range(3)]
        for request in begin(contexts):
            request.wait(60)
        contexts[1].close()
        left = [contexts[0], contexts[2]]
        began = time.monotonic()
        for _ in range(6):
            for request in [gl.barrier(async_=True) for gl in left]:
                try:
                    request.wait(60)
                    raise AssertionError("a barrier without rank 1")
                except Error as error:
                    assert "rank 1 has left" in str(error), error
            resume(left)
        assert time.monotonic() - began < 50, "60 s a round otherwise"
        ring.kill(1)
        ring.start_node(1)
        ring.wait_whole()
        for _ in range(3):  # the daemon is a new one; its trainer has not come back all the same
            for request in [gl.barrier(async_=True) for gl in left]:
                try:
                    request.wait(60)
                    raise AssertionError("a barrier without rank 1")
                except Error as error:
                    assert re.search("rank 1 has (left|restarted|been silent)", str(error)), error
            resume(left)
        contexts[1] = ring.open(1)
        mended(contexts)
        for gl in contexts:
            gl.close()


def why(ring, node):
    """Why its only neighbour is missing; the log says the same after 5 s."""
    document = ring.stats(node)
    return document["neighbours"][0]["why"] if document else ""


def differing_files():
    """One file differs in one setting: both sides name it, with both values."""
    cases = [
        ("lanes: 1, threads: 1", "lanes: 2, threads: 2", {0: "workers.lanes: 1 here, 2 there", 1: "workers.lanes: 2 here, 1 there"}),
        ("trainers: 1", "trainers: 2", {0: "trainers: 1 here, 2 there", 1: "trainers: 2 here, 1 there"}),
        ("mtu: 1500", "mtu: 1400", {0: "mtu: 1500 here, 1400 there", 1: "mtu: 1400 here, 1500 there"}),
        ("mtu: 1500", "mtu: 1500\nstrategies: [ring, direct]",
         {0: "strategies: ring here, ring, direct there", 1: "strategies: ring, direct here, ring there"}),
        ("mtu: 1500", "mtu: 1500\nudp_port: 18500",
         {0: "come to UDP port 18500, which is none of this node's", 1: "come to UDP port 18[34]00, which is none of this"}),
        ("mtu: 1500", "mtu: 1500\ntos: {compressed: 0x48, raw: 0x40, control: 0x80}",
         {0: "came with a ToS that is none of `tos`, 0x80", 1: "came with a ToS that is none of `tos`, 0xc0"}),
        ("{rank: 1, ip: 10.77.0.2}", "{rank: 1, ip: 10.77.0.9}",
         {0: r"node 1 speaks from 10\.77\.0\.9, and `nodes` says 10\.77\.0\.2 here",
          1: r"node 0 \(10\.77\.0\.1\) asks for 10\.77\.0\.2, an address that no node has here"}),
    ]
    with networks.Network(2) as network:
        for old, new, expected in cases:
            with ring_of(network, 2) as ring:
                replace(ring.config(1), old, new)
                ring.start()
                for node, pattern in expected.items():
                    wait_for(lambda: re.search(pattern, why(ring, node)), f"'{pattern}' by node {node}", 15)
                wait_for(lambda: stats(ring, 0).returncode == 4, "stats says that the ring is not whole")
        with ring_of(network, 2) as ring:
            key = ring.folder / "key"
            key.write_text("a" * 64)
            key.chmod(0o600)
            replace(ring.config(1), "trainers: 1", f"trainers: 1\nauth: {{key_file: '{key}'}}")
            ring.start()
            for node, pattern in {0: r"packets of node 1 \(10\.77\.0\.2\) are authenticated, and this node has no key",
                                  1: r"packets of node 0 \(10\.77\.0\.1\) are not authenticated .* this node has one"}.items():
                wait_for(lambda: re.search("node . is missing: " + pattern, ring.log(node)), f"'{pattern}' by {node}", 15)


def main():
    networks.require()
    for case in (links_that_lose, absent_rank, differing_files):
        if sys.argv[3:] and case.__name__ not in sys.argv[3:]:
            continue
        began = time.monotonic()
        case()
        print(f"ok {case.__name__} {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
