#!/usr/bin/python3
"""Tests `gradlane check` with real daemons: rings that are in order, and rings with one fault, which it must name.

Cases over memif need no root. Cases over bridges in network namespaces need root; without it they are left out, and the
test says so.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.waiting import PATIENCE

BINARIES = {}  # gradlane, gradlaned
DONE = []  # names of finished cases


class Verdicts:
    """Output of one run of `gradlane check`."""

    def __init__(self, process, output):
        self.status = process.returncode
        self.lines = output.splitlines()
        self.output = output

    def failed(self):
        return [line for line in self.lines if line.startswith("FAIL ")]

    def expect(self, status, *patterns, others=False):
        """Checks the exit status, and that each pattern has a line. Without `others`, every FAIL is one of those lines.
        """
        assert self.status == status, f"exit {self.status}, not {status}:\n{self.output}"
        for line in self.lines:
            assert re.match(r"(ok  |note|FAIL) \S", line), line
            assert not re.search(r"\d\d:\d\d:\d\d", line), f"a time: {line}"
        for pattern in patterns:
            assert any(re.search(pattern, line) for line in self.lines), f"no line '{pattern}':\n{self.output}"
        unexpected = [line for line in self.failed() if not any(re.search(pattern, line) for pattern in patterns)]
        assert others or not unexpected, f"unexpected: {unexpected}\n{self.output}"


def start(ring, node, *options, time="30s"):
    command = [BINARIES["gradlane"], "check", "--config", str(ring.config(node)), "--time", time, *options]
    if ring.network:
        command = ring.network.command(node, *command)
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, env={**os.environ, "GRADLANED": BINARIES["gradlaned"]})


def finish(*processes):
    return [Verdicts(process, process.communicate(timeout=PATIENCE)[0]) for process in processes]


def check(ring, node, *options, **settings):
    return finish(start(ring, node, *options, **settings))[0]


@contextlib.contextmanager
def ring(kind, nodes, network=None, **settings):
    with tempfile.TemporaryDirectory(prefix="gl-check-") as folder:
        with rings.Ring(kind, nodes, folder, BINARIES["gradlaned"], network, **settings) as made:
            yield made


def replace(config, old, new):
    text = config.read_text()
    assert old in text, (old, text)
    config.write_text(text.replace(old, new))


def case(function):
    function()
    DONE.append(function.__name__)
    print(f"ok {function.__name__}", flush=True)


# ---- Without root: memif


def checks_on_both_nodes_see_each_other():
    with ring("memif", 2) as nodes:
        for verdicts in finish(start(nodes, 0), start(nodes, 1)):
            verdicts.expect(0, "^note daemon: no daemon runs on", "^ok   address of node [01] ", "^ok   round trip to node [01]",
                            "^ok   packets of 1500 bytes to node", r"^ok   ToS 0x28 \(compressed\) to node .* and back",
                            r"^ok   ToS 0x20 \(raw\)", r"^ok   ToS 0xc0 \(control\)", "^ok   configuration of node",
                            "^ok   the ring is ready", "^ok   hugepages: not used")
        left = [path.name for path in nodes.folder.iterdir() if path.suffix not in (".yaml", ".sock")]
        assert not left, left


def running_daemons_are_asked():
    with ring("memif", 3) as nodes:
        nodes.start().wait_whole()
        check(nodes, 0).expect(0, f"^note daemon: asked the running daemon, process {nodes.pid(0)}",
                               "^ok   round trip to node 1 ", "^ok   round trip to node 2 ", "^ok   the ring is ready")
        verdicts = check(nodes, 1, "--json")
        assert verdicts.status == 0, verdicts.output
        document = json.loads(verdicts.output)
        assert document["ok"] and {item["verdict"] for item in document["items"]} <= {"ok", "note"}, document
        assert sorted(probe["node"] for probe in document["daemon"]["probes"]) == [0, 2], document
        replace(nodes.config(2), "mtu: 1500", "mtu: 1400")
        check(nodes, 2).expect(1, "^FAIL daemon: the running daemon has other settings than this file", "^FAIL configuration of node",
                               others=True)


def the_last_one_is_late():
    """No daemon runs. The second check starts late, because its user needs time to get from one node to the other."""
    with ring("memif", 2) as nodes:
        first = start(nodes, 0, time="30s")
        rings.wait_for(lambda: (nodes.folder / "link0-1.sock").exists(), "the first one's end of the link")
        for verdicts in finish(first, start(nodes, 1, time="30s")):
            verdicts.expect(0, "^ok   round trip to node", "^ok   the ring is ready")


def neighbour_is_missing():
    with ring("memif", 2) as nodes:
        check(nodes, 0, time="800ms").expect(
            1, "^FAIL link of port e0: down", r"^FAIL address of node 1 \(10\.77\.0\.2, port e0\)", "^FAIL ring: not ready")
        # A probe for another check is running. This check uses its result, too, although that probe takes longer than
        # this check would wait for a probe of its own.
        nodes.start_node(0)
        rings.wait_for(lambda: nodes.stats(0), "the daemon answers")
        other = start(nodes, 0, time="10s")
        rings.wait_for(lambda: nodes.stats(0)["ports"][0]["link"] == "down", "it looks at its links")
        verdicts = check(nodes, 0, time="100ms")
        verdicts.expect(1, "^note daemon: asked", "^FAIL address of node 1", others=True)
        assert "no answer" not in verdicts.output, verdicts.output
        finish(other)


def configurations_differ():
    with ring("memif", 2) as nodes:
        replace(nodes.config(1), "mtu: 1500", "mtu: 1400\ncodec: fixed:8\ntos: {raw: 0x24}")
        verdicts = finish(start(nodes, 0, time="5s"), start(nodes, 1, time="5s"))
        verdicts[0].expect(1, "^FAIL configuration of node 1 .*mtu is 1500 here and 1400 there, codec is raw here "
                           "and fixed:8 there, tos.raw: 0x20 here, 0x24 there", "^FAIL ring: not ready: ", others=True)
        verdicts[1].expect(1, "^FAIL configuration of node 0 .*mtu is 1400 here and 1500 there", others=True)
    with ring("memif", 2) as nodes:
        replace(nodes.config(1), "mtu: 1500", "mtu: 1500\nstrategies: [direct]")
        verdicts = finish(start(nodes, 0, time="5s"), start(nodes, 1, time="5s"))
        verdicts[0].expect(1, "^FAIL configuration of node 1 .*strategies: ring here, direct there", others=True)


def keys_differ():
    with ring("memif", 2) as nodes:
        for node, digit in enumerate("ab"):
            key = nodes.folder / f"key{node}.yaml"
            key.write_text(digit * 64)
            key.chmod(0o600)
            replace(nodes.config(node), "trainers: 1", f"trainers: 1\nauth: {{key_file: '{key}'}}")
        # The check that ends last may report that the link is down, because the other check has closed its end.
        for verdicts in finish(start(nodes, 0, time="5s"), start(nodes, 1, time="5s")):
            verdicts.expect(1, "^ok   key file", "^FAIL round trip to node .*no tag of our key; set the same security and the same key file",
                            "^FAIL ring: not ready", others=True)
        (nodes.folder / "key1.yaml").write_text("a" * 64)
        for verdicts in finish(start(nodes, 0), start(nodes, 1)):
            verdicts.expect(0, "^ok   packets of 1500 bytes to node .* and back", "^ok   the ring is ready")


def configuration_is_wrong():
    with ring("memif", 2) as nodes:
        replace(nodes.config(0), "trainers:", "trainer:")
        check(nodes, 0).expect(1, r"^FAIL configuration: .*n0\.yaml:\d+:1: trainer: unknown key")
        nodes.config(1).unlink()
        check(nodes, 1).expect(1, r"^FAIL configuration: .*n1\.yaml")


def machine_has_not_what_it_takes():
    with ring("memif", 2, memory="{hugepages: true}", extra_yaml="") as nodes:
        replace(nodes.config(0), "threads: 1", "threads: 1, cores: [1023]")
        replace(nodes.config(0), f"{nodes.folder}/n0.sock", "/proc/self/nothing/n0.sock")
        verdicts = check(nodes, 0, time="500ms")
        expected = ["^FAIL CPU 1023 of `workers.cores`: there is no such CPU", "^FAIL folder of `socket`",
                    "^FAIL daemon: gradlaned"]
        free = sum(int(path.read_text()) for path in pathlib.Path("/sys/kernel/mm/hugepages").glob("*/free_hugepages"))
        verdicts.expect(1, *expected, *([] if free else ["^FAIL hugepages: 0 MiB free, [0-9]+ MiB needed"]), others=True)


def sockets_in_order_then_alone():
    address = f"127.{os.getpid() >> 8 & 255}.{os.getpid() & 255}.{{}}"
    with ring("udp", 2, address=address) as nodes:
        nodes.start().wait_whole()
        verdicts = check(nodes, 0)
        verdicts.expect(0, f"^ok   address {re.escape(address.format(1))} of port e0: ", "^(ok  |note) receive buffer of sockets",
                        "^ok   send buffer of sockets: 128", "^ok   UDP_SEGMENT: many", "^ok   UDP_GRO: many",
                        "^ok   round trip to node 1", r"^ok   ToS 0x28 \(compressed\) to node 1", "^ok   the ring is ready")
        assert "ARP" not in verdicts.output, verdicts.output
    with ring("udp", 2, address=address) as nodes:
        check(nodes, 0, time="2s").expect(1, "^FAIL round trip to node 1 .*, and UDP port 18400 is closed there; start its",
                                          "^FAIL ring: not ready")
        replace(nodes.config(0), f"rank: 0, ip: {address.format(1)}", "rank: 0, ip: 192.0.2.1")
        check(nodes, 0, time="2s").expect(1, r"^FAIL address 192\.0\.2\.1 of port e0: .*this machine has no such address",
                                          others=True)


def options_are_wrong():
    for options in ([], ["--config", "x", "--time", "1"], ["--config", "x", "--speed"]):
        command = [BINARIES["gradlane"], "check", *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert result.returncode == 2 and result.stderr.startswith("gradlane: "), (options, result)


# ---- As root: a bridge between


def bridge_in_order_then_rewriting_dscp_then_narrow():
    with networks.Network(3) as network, ring("veth", 3, network) as nodes:
        nodes.start().wait_whole()
        check(nodes, 0).expect(0, "^ok   interface gl0 of port e0: up, MTU 1500", "^ok   the ring is ready")

        rules = "\n".join(["table bridge dscp {", "chain rewrite {", "type filter hook forward priority 5",
                           "iifname p0 ip dscp 0x0a ip dscp set 0",
                           "iifname p1 oifname p0 ip dscp 0x30 ip dscp set 0x01", "}", "}", ""])
        network.spaces["sw"].rules(rules)
        there = r"^FAIL ToS 0x28 \(compressed\) to node {} .*: 0x28 arrives as 0x00 at 10\.77\.0\.{}; "
        check(nodes, 0).expect(1, there.format(1, 2), there.format(2, 3),
                               r"^FAIL ToS 0xc0 \(control\) from node 1 .*: 0xc0 arrives as 0x04 here",
                               "the ring is ready|^FAIL ring")
        network.spaces["sw"].run("nft", "delete", "table", "bridge", "dscp")

        # A switch port has MTU 1400. The bridge drops longer frames, which get into p1 and do not get out of it.
        network.spaces["sw"].ip("link", "set", "p1", "mtu", "1400")
        check(nodes, 0, time="30s").expect(
            1, r"^FAIL packets of 1500 bytes to node 1 .*the largest packet that arrives there and back has 140[0-4] bytes",
            "^ok   packets of 1500 bytes to node 2", "^ok   round trip to node 1")


def root_has_no_rights():
    """The user is root, but without the capabilities that raw packets need, as in containers."""
    with networks.Network(2) as network, ring("veth", 2, network) as nodes:
        command = ["setpriv", "--bounding-set", "-net_raw,-net_admin", BINARIES["gradlane"], "check", "--config",
                   str(nodes.config(0)), "--time", "500ms"]
        process = subprocess.Popen(network.command(0, *command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, env={**os.environ, "GRADLANED": BINARIES["gradlaned"]})
        finish(process)[0].expect(1, "^FAIL permissions for port e0: raw packets of an interface need root, or CAP_NET_RAW",
                                  others=True)


def cable_is_down_then_the_interface():
    with networks.Network(2) as network, ring("veth", 2, network) as nodes:
        network.cable(0, up=False, end="switch")
        check(nodes, 0, time="500ms").expect(1, "^FAIL interface gl0 of port e0: no carrier", others=True)
        network.cable(0, up=True, end="switch")
        network.cable(0, up=False)
        check(nodes, 0, time="500ms").expect(1, "^FAIL interface gl0 of port e0: it is down; ip link set gl0 up",
                                             others=True)
        network.cable(0, up=True)
        finish(*(start(nodes, node) for node in range(2)))[0].expect(0, "^ok   the ring is ready")


def sockets_over_a_router():
    """Checks four faults, one after another. The path has a smaller MTU, node 1 has no daemon, a firewall drops
    packets, and there is no route to node 1."""
    with networks.Routed(2) as network, ring("udp", 2, network, address=network.ADDRESS) as nodes:
        nodes.start().wait_whole()
        ok = (r"^ok   address 10\.77\.1\.1 of port e0: on gl0, MTU 1500, \d+ Mb/s", "^ok   superpackets on gl0: cut into packets by",
              "^ok   UDP_GRO: many packets are received",
              "^ok   packets of 1500 bytes to node 1")
        check(nodes, 0).expect(0, *ok)
        network.set_mtu("r", "p1", 1400)
        check(nodes, 0, time="30s").expect(1, "^FAIL packets of 1500 bytes to node 1 .*the largest packet that arrives there and back has 1400 bytes",
                               "^ok   round trip to node 1")
        network.set_mtu("r", "p1", 1500)
        nodes.terminate(1)
        check(nodes, 0, time="2s").expect(1, "^FAIL round trip to node 1 .*, and UDP port 18400 is closed there", others=True)
        router = network.spaces["r"]
        router.rules("table ip wall {\nchain wall {\ntype filter hook forward priority 0\nudp dport 18400 drop\n}\n}\n")
        check(nodes, 0, time="2s").expect(1, "^FAIL round trip to node 1 .*, and no error came back for UDP port 18400; "
                                             "check that the machine is on", others=True)
        router.run("nft", "delete", "table", "ip", "wall")
        network.spaces["n0"].rules("table ip wall {\nchain wall {\ntype filter hook output priority 0\nudp dport 18400 drop\n}\n}\n")
        check(nodes, 0, time="2s").expect(1, "^FAIL round trip to node 1 .*, and this machine blocks packets that it sends there",
                                             others=True)
        network.spaces["n0"].run("nft", "delete", "table", "ip", "wall")
        network.spaces["n0"].ip("route", "del", "default")
        check(nodes, 0, time="2s").expect(1, r"^FAIL round trip to node 1 .*, and 10\.77\.2\.1 cannot be reached", others=True)


def address_is_wrong():
    with networks.Network(2) as network, ring("veth", 2, network) as nodes:
        nodes.start_node(0)
        replace(nodes.config(1), "{rank: 0, ip: 10.77.0.1}", "{rank: 0, ip: 10.77.0.9}")
        check(nodes, 1, time="800ms").expect(
            1, r"^FAIL address of node 0 \(10\.77\.0\.9, port e0\): no machine answers ARP requests for 10\.77\.0\.9 on port",
            "^FAIL ring: not ready")
        network.node(1).ip("addr", "add", "10.77.0.2/24", "dev", "gl0")
        check(nodes, 1, time="500ms").expect(1, r"^FAIL address 10\.77\.0\.2: the kernel has it too, on gl0",
                                             others=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    parser.add_argument("gradlaned")
    args = parser.parse_args()
    BINARIES.update(gradlane=os.path.abspath(args.gradlane), gradlaned=os.path.abspath(args.gradlaned))
    for function in (checks_on_both_nodes_see_each_other, running_daemons_are_asked, the_last_one_is_late, neighbour_is_missing,
                     configurations_differ, keys_differ, configuration_is_wrong, machine_has_not_what_it_takes, options_are_wrong,
                     sockets_in_order_then_alone):
        case(function)
    reason = networks.reason_to_skip()
    if reason is None:
        for function in (bridge_in_order_then_rewriting_dscp_then_narrow, root_has_no_rights,
                         cable_is_down_then_the_interface, sockets_over_a_router, address_is_wrong):
            case(function)
    left_out = f"; those over bridges left out: {reason}" if reason else ""
    print(f"{len(DONE)} cases of gradlane check passed{left_out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
