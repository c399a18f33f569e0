#!/usr/bin/python3
"""Tests how packets get to lanes. gradlaned runs on DPDK's own null, tap and ring devices, which stand in for a NIC.

Each case checks the chosen method, the reason for it in the log, and the packets where the device has some.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.waiting import PATIENCE, TIMEOUTS, wait_for_text
from lab.net.spaces import Spaces

# Sends `count` packets to each UDP port from the address of the neighbour, 10.77.71.2, which the kernel has here.
SENDER = """
import socket, sys
for port in range(18400, 18400 + int(sys.argv[1])):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0xc0)
    s.bind(("10.77.71.2", port))
    for _ in range(int(sys.argv[2])):
        s.sendto(b"x" * 100, ("10.77.71.1", port))
"""


class Daemon:
    """One daemon process. `configs` has a text for each node. The log is complete once the process has ended."""

    def __init__(self, gradlaned, folder, configs, namespace=None):
        self.log_path = folder / "log"
        argv = namespace.command(gradlaned) if namespace else [gradlaned]
        for i, text in enumerate(configs):
            path = folder / f"n{i}.yaml"
            path.write_text(f"rank: {i}\nnodes: [{{rank: 0, ip: 10.77.71.1}}, {{rank: 1, ip: 10.77.71.2}}]\n"
                            f"socket: {folder}/n{i}.sock\nlog: debug\ntimeouts: {TIMEOUTS}\n" + text)
            argv += ["--config", str(path)]
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(argv, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def log(self):
        return self.log_path.read_text()

    def wait_for(self, text):
        wait_for_text(text, self.log, self.process)

    def stats(self):
        """Returns the statistics of the first node."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.log_path.with_name("n0.admin")))
            connection.sendall(b"stats\n")
            return json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=PATIENCE) == 0, self.log()
        return self.log()


def counters(log):
    """Returns the counters of each queue of port e0 as {queue: {name: value}}."""
    queues = {}
    for number, text in re.findall(r"port e0 queue (\d+):(.*)", log):
        queues[int(number)] = {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", text)}
    return queues


def threads(daemon):
    """Returns the number of worker threads."""
    names = [pathlib.Path(path, "comm").read_text() for path in pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir()]
    return sum(name.startswith("gl-n0-w") for name in names)


def expect(text, daemon):
    assert text in daemon.log(), f"no '{text}' in: {daemon.log()}"


def rss(gradlaned, folder):
    """Checks steering by RSS. The null device has an RSS key, a table that can be written and read, and no rte_flow."""
    with Daemon(gradlaned, folder, ["mtu: 9000\nworkers: {lanes: 4, threads: 4}\nports: [{device: net_null0}]\n"]) as it:
        it.wait_for("node 0 of 2")
        expect("info port e0: packets are steered to lanes by RSS: 4 flows in 128 entries, as there is no rte_flow", it)
        assert threads(it) == 4
        queues = counters(it.end())
        assert sorted(queues) == [0, 1, 2, 3] and all(queue["received"] > 0 for queue in queues.values()), queues


def rss_shared_queues(gradlaned, folder):
    """Checks that no steering is set up, not even RSS, where one worker polls all queues."""
    with Daemon(gradlaned, folder, ["workers: {lanes: 4, threads: 1}\nports: [{device: net_null0}]\n"]) as it:
        it.wait_for("node 0 of 2")
        expect("debug port e0: one worker for all lanes: there is nothing to steer", it)
        assert threads(it) == 1
        it.end()


def ring(gradlaned, folder, example):
    text = "workers: {lanes: 4, threads: 2}\nports: [{ring: r}]\n"
    with Daemon(gradlaned, folder, [text, text]) as it:
        it.wait_for("node 1 of 2")
        expect("info port e0: packets need no steering to lanes: queue k receives what the other side sends on its queue k", it)
        assert threads(it) == 2
        trainers = [subprocess.Popen([example], stdout=subprocess.PIPE, text=True,
                                     env={**os.environ, "GRADLANE_SOCKET": f"{folder}/n{i}.sock"}) for i in range(2)]
        for trainer in trainers:
            output, _ = trainer.communicate(timeout=PATIENCE)
            assert trainer.returncode == 0 and "wrong 0" in output, output
        queues = counters(it.end())
        assert all(queue["received"] > 10 and "wrong_lane" not in queue for queue in queues.values()), queues


def tap(gradlaned, folder):
    """Checks steering by rte_flow, which needs the kernel's flower classifier. Returns why there is none, else ""."""
    lanes, count = 4, 20
    config = f"workers: {{lanes: {lanes}, threads: {lanes}}}\nports: [{{device: 'net_tap0,iface=gltap'}}]\n"
    with Spaces() as spaces, Daemon(gradlaned, folder, [config], spaces.add("nic")) as it:
        space = spaces["nic"]
        it.wait_for("node 0 of 2")
        steered = "packets are steered to lanes by rte_flow: 4 rules" in it.log()
        if not steered:
            expect("warning port e0: 4 queues, one worker for all lanes: this device has neither rte_flow (", it)
            expect("nor RSS (it has no table of queues)", it)
            expect("warning node 0: 1 worker thread instead of 4", it)
        assert threads(it) == (lanes if steered else 1)
        space.ip("addr", "add", "10.77.71.2/24", "dev", "gltap")
        space.ip("link", "set", "gltap", "up")
        # The daemon asks whether its address is free once the interface is up.
        rings.wait_for(lambda: it.stats()["ports"][0]["address"] == "held", "the address is its own")
        space.run(sys.executable, "-c", SENDER, str(lanes), str(count))

        def control():
            return sum(queue["counters"]["control"] for queue in it.stats()["ports"][0]["queues"])

        rings.wait_for(lambda: control() >= lanes * count - lanes, "packets have come")
        queues = counters(it.end())
        came = [queues[i].get("control", 0) for i in range(lanes)]
        assert sum(came) >= lanes * count - lanes, (came, queues)  # the kernel may drop some while it asks by ARP
        assert not any("wrong_lane" in queue for queue in queues.values()), queues
        if steered:
            assert min(came) >= count - 1, came
            return ""
        return re.search(r"neither rte_flow \((.*)\) nor", it.log())[1]


def refused(gradlaned, folder):
    """Checks that a setting that a device does not support ends the start, with the reason."""
    for text, error in (
            ("mtu: 9000\nports: [{device: net_tap0}]\n", "port e0: the device supports an MTU of at most 1504, but mtu is 9000"),
            ("ports: [{device: 'net_af_packet0,iface=gl-none'}]\n", "port e0: there is no interface 'gl-none' here"),
            ("mtu: 4000\nports: [{device: 'net_af_xdp0,iface=lo'}]\n", "port e0: AF_XDP cannot receive packets of 4000 bytes")):
        with Spaces() as spaces, Daemon(gradlaned, folder, [text], spaces.add("nic")) as it:
            assert it.process.wait(timeout=PATIENCE) != 0
            expect(error, it)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    parser.add_argument("example")
    args = parser.parse_args()
    done = 0

    def case(check, *more):
        nonlocal done
        with tempfile.TemporaryDirectory() as folder:
            result = check(args.gradlaned, pathlib.Path(folder), *more)
        done += 1
        return result

    case(rss)
    case(rss_shared_queues)
    case(ring, args.example)
    without = networks.reason_to_skip()
    if without is None:
        without = case(tap)
        case(refused)
    print(f"{done} cases of steering work" + (f"; rte_flow on tap was not accepted: {without}" if without else ""))
    return 0 if done == 5 else networks.SKIPPED


if __name__ == "__main__":
    sys.exit(main())
