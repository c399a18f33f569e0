#!/usr/bin/python3
"""Tests copied configurations: two machines with one address, and two daemons on one machine. Checks which daemons
start, which are refused, and for which reason.

The nodes and a stray daemon are on a bridge, in network namespaces of their own. Needs root.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.waiting import wait_for_text
from lab.net.spaces import run

BINARIES = {}  # gradlane, gradlaned
MAC = r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}"


def mac_of(network, i):
    return re.search(f"link/ether ({MAC})", network.node(i).ip("link", "show", "gl0"))[1]


def ring(folder, network, nodes=3, **settings):
    return rings.Ring("veth", nodes, folder, BINARIES["gradlaned"], network, **settings)


class Stray:
    """A daemon in a namespace with the configuration of another node, but sockets of its own."""

    def __init__(self, nodes, copied, place, *options):
        config = nodes.folder / "stray.yaml"
        config.write_text(nodes.config(copied).read_text().replace(nodes.socket(copied), f"{nodes.folder}/stray.sock"))
        self.config, self.log_file, self.nodes, self.place = config, nodes.folder / "stray.log", nodes, place
        with open(self.log_file, "w") as log:
            self.process = subprocess.Popen(
                nodes.network.command(place, BINARIES["gradlaned"], "--config", config, *options), stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def log(self):
        return self.log_file.read_text()

    def refused(self, text):
        assert self.process.wait(rings.PATIENCE) == 2, self.log()
        assert text in self.log(), (text, self.log())

    def wait_for(self, text):
        wait_for_text(text, self.log, self.process)


def check(network, place, config, time_limit="2s"):
    """Returns the exit status and output of `gradlane check`."""
    result = subprocess.run(
        network.command(place, BINARIES["gradlane"], "check", "--config", config, "--time", time_limit),
        capture_output=True, text=True, timeout=60, env={**os.environ, "GRADLANED": BINARIES["gradlaned"]})
    return result.returncode, result.stdout


def a_copy_does_not_start(folder, network):
    """Checks that a daemon with a copied configuration does not start, and that the nodes go on and log the copy's MAC
    address.

    `check` with the copied file reports the same. A node that restarts does not count as a copy.
    """
    with ring(folder, network) as nodes:
        nodes.start().wait_whole()
        mac = mac_of(network, 1)
        with Stray(nodes, 1, 3) as stray:
            stray.refused(f"port e0: 10.77.0.2 is in use by {mac}: check whether a configuration was copied")
            status, output = check(network, 3, stray.config)
            assert status == 1 and f"10.77.0.2 is in use by {mac}" in output, output
        asked = f"{mac_of(network, 3)} asked for 10.77.0.2, the address of this node"
        rings.wait_for(lambda: asked in nodes.log(1), "the node says who asked")
        nodes.wait_whole()
        nodes.kill(1)
        nodes.start_node(1)
        nodes.wait_whole()
        assert "in use" not in nodes.log_of_this_life(1), nodes.log(1)
        # Now the kernel of another host has the address, so the node does not start.
        nodes.terminate(1)
        network.node(3).ip("addr", "add", "10.77.0.2/24", "dev", "gl0")
        nodes.start_node(1)
        assert nodes.processes[1].wait(60) == 2
        nodes.processes[1] = None
        network.node(3).ip("addr", "del", "10.77.0.2/24", "dev", "gl0")
        assert f"10.77.0.2 is in use by {mac_of(network, 3)}" in nodes.log(1), nodes.log(1)


def two_that_are_one_node_are_both_named(folder, network):
    """Starts two daemons for one node that cannot reach each other at first, and then connects them.

    Operations fail, so the stray's data is in no sum. Errors, logs, stats and `check` name both MAC addresses.
    """
    network.partition([[0, 1, 2]])
    with ring(folder, network) as nodes, Stray(nodes, 1, 3) as stray:
        nodes.start().wait_whole()
        stray.wait_for("node 1 of 3")
        both = [mac_of(network, 1), mac_of(network, 3)]
        network.heal()
        text = re.compile(rf"rank 1 is used by two machines, ({MAC}) and ({MAC})")

        def named(words):
            found = text.search(words)
            return found and sorted(found.groups()) == sorted(both)

        rings.wait_for(lambda: named(nodes.log(0)) and named(nodes.log(2)), "the neighbours name both")
        with nodes.open(0) as gl:
            try:
                gl.barrier()
                raise AssertionError("a barrier with a doubled rank")
            except Exception as error:  # the class of the error does not matter
                assert named(str(error)), error
        # Each of the two daemons of node 1 logs the MAC address of the other one.
        for other, log in ((both[1], lambda: nodes.log(1)), (both[0], stray.log)):
            rings.wait_for(lambda: f"{other} has this node's address 10.77.0.2, too" in log(), "who has it")
        status, output = check(network, 0, nodes.config(0))
        assert status == 1 and named(output), output
        status, output = check(network, 1, nodes.config(1))
        assert status == 1 and f"FAIL address 10.77.0.2 on port e0: {both[1]} has it too" in output, output
        assert any(named(rank["refused"]) for rank in nodes.stats(0)["ranks"]), nodes.stats(0)
        stray.process.terminate()
        assert stray.process.wait(60) == 0, stray.log()
        nodes.wait_whole()


def a_link_that_comes_up_late(folder, network):
    """Checks a daemon whose link comes up after its start. Only then does it ask whether its address is free. It does
    not use the address while another host has it."""
    with ring(folder, network) as nodes:
        nodes.start_node(0)
        rings.wait_for(lambda: "node 0 of 3" in nodes.log(0), "node 0")
        network.cable(3, up=False, end="switch")
        with Stray(nodes, 0, 3) as stray:
            stray.wait_for("node 0 of 3")
            network.cable(3, up=True, end="switch")
            stray.wait_for(f"port e0: 10.77.0.1 is in use by {mac_of(network, 0)}: this node does not use it")
            status, output = check(network, 3, stray.config, "200ms")
            assert status == 1, output
            assert f"FAIL address 10.77.0.1 on port e0: it is in use by {mac_of(network, 0)}" in output, output
            # The stray gets the address once the address is free.
            assert nodes.terminate(0) == 0
            nodes.start_node(1)
            rings.wait_for(lambda: "mac" in str(nodes.stats(1)) and nodes.stats(1)["neighbours"][0]["mac"] ==
                                mac_of(network, 3), "the stray has the address")
        nodes.terminate(1)


def two_daemons_of_one_machine(folder, network):
    """Checks that only one daemon of a machine can have an interface or an address. Links in shared memory do not
    conflict."""
    with ring(folder, network) as nodes:
        nodes.start_node(0)
        rings.wait_for(lambda: "node 0 of 3" in nodes.log(0), "node 0")
        with Stray(nodes, 0, 0) as stray:
            stray.refused(f"another gradlaned on this machine, process {nodes.pid(0)}, uses address 10.77.0.1: ")
        with Stray(nodes, 1, 0) as stray:
            stray.refused(f"another gradlaned on this machine, process {nodes.pid(0)}, uses interface gl0: ")
        nodes.kill(0)
        with Stray(nodes, 1, 0) as stray:
            stray.wait_for("node 1 of 3")
    jobs = []
    try:
        for name in "ab":
            job = pathlib.Path(folder) / name
            job.mkdir()
            jobs.append(rings.Ring("memif", 2, job, BINARIES["gradlaned"]))
            jobs[-1].start()
        for job in jobs:
            job.wait_whole()
    finally:
        for job in jobs:
            job.__exit__(None, None, None)


def one_file_for_all_nodes(folder, network):
    """Checks that --rank or an address of the machine selects the node, for the daemon and for `check`."""
    with ring(folder, network, nodes=2) as nodes:
        text = nodes.config(0).read_text().replace("rank: 0\n", "", 1).replace(nodes.socket(0), f"{folder}/x.sock")
        for i in range(2):
            network.node(i).ip("addr", "add", f"192.168.7.{i + 1}/24", "dev", "gl0")
            text = text.replace(f"ip: 10.77.0.{i + 1}}}", f"ip: 10.77.0.{i + 1}, host: 192.168.7.{i + 1}}}")
        shared = pathlib.Path(folder) / "all.yaml"
        for i in range(2):
            shared.write_text(text)
            output = network.node(i).run(BINARIES["gradlaned"], "--config", shared, "--check")
            assert f"rank: {i}\n" in output, output
            output = run(
                *network.command(1 - i, BINARIES["gradlaned"], "--config", shared, "--check", "--rank", i))
            assert f"rank: {i}\n" in output, output
        result = subprocess.run(network.command(0, BINARIES["gradlane"], "check", "--config", shared, "--rank", "1",
                                                "--time", "200ms"), capture_output=True, text=True, timeout=60,
                                env={**os.environ, "GRADLANED": BINARIES["gradlaned"]})
        assert "node 1 of 2, 10.77.0.2" in result.stdout and "round trip" not in result.stdout, result.stdout


def play(case):
    """Runs a case up to three times. A daemon that gets no CPU time while others ask for its address may lose the
    address."""
    for last in (False, False, True):
        try:
            with networks.Network(4) as network, tempfile.TemporaryDirectory() as folder:
                return case(folder, network)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            if last:
                raise
            print(f"again: {case.__name__}: {error}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    parser.add_argument("gradlaned")
    args = parser.parse_args()
    BINARIES.update(gradlane=os.path.abspath(args.gradlane), gradlaned=os.path.abspath(args.gradlaned))
    networks.require()
    done = 0
    for case in (a_copy_does_not_start, two_that_are_one_node_are_both_named, a_link_that_comes_up_late,
                 two_daemons_of_one_machine, one_file_for_all_nodes):
        begin = time.monotonic()
        play(case)
        done += 1
        print(f"ok {case.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
    print(f"{done} cases of addresses passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
