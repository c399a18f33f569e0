#!/usr/bin/python3
"""Tests `gradlane check` on the interfaces of an accelerator, in network namespaces. Needs root; skipped without it.

Usage: interfaces_test.py GRADLANE GRADLANED
"""

import json
import re
import shlex
import sys

from tests.scripts.accelerator.told_daemon import BINARIES, DOCUMENT, SpaceTest, changed, main
from tests.scripts.fixtures import nobody

SENDER = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
    for _ in range(3):
        sender.sendto(bytes(1000), ("10.77.0.2", 5000))
"""


class InterfacesTest(SpaceTest):
    """Uses two veth pairs in one namespace: gl0 (the host's interface) with gla0, and eth1 with far."""

    def setUp(self):
        super().setUp()
        for one, two in (("gl0", "gla0"), ("eth1", "far")):
            self.namespace.veth(one, self.namespace, two, offloads=True)
        self.write_config(host="net_af_packet0,iface=gla0", wire="net_af_packet1,iface=eth1")

    def alone(self, *patterns):
        """Runs `gradlane check` without a daemon. Each pattern must match a line. The missing daemon must be a FAIL,
        and each other FAIL must match a pattern. Returns all lines."""
        return self.check(1, "^FAIL daemon: no accelerator runs", *patterns)

    def mend(self, lines):
        """Runs the ethtool commands that the lines contain, and returns these commands."""
        commands = [match[0] for line in lines for match in re.finditer(r"ethtool -K [a-z0-9 -]+", line)]
        for command in commands:
            self.inside(*shlex.split(command))
        return commands

    def test_the_commands_that_it_prints_mend_offloads(self):
        self.inside("ethtool", "-K", "gl0", "tx", "on", "tso", "on", "gso", "on")
        self.inside("ethtool", "-K", "eth1", "gro", "on")
        self.inside("ethtool", "-K", "gla0", "gro", "on")
        lines = self.alone("^FAIL offloads: port host: gla0 .*: ethtool -K gla0 gro off",
                           "^FAIL offloads: port wire: eth1 .*: ethtool -K eth1 gro off",
                           "^FAIL offloads: .*gl0, the host's end of gla0.*: ethtool -K gl0 tx off",
                           "^ok   interface gla0 of port host: up, MTU 1500", "^ok   interface eth1 of port wire: up",
                           "^ok   interface gl0, the host's end of gla0: MTU 1500")
        self.assertEqual(len(self.mend(lines)), 3)
        self.alone("^ok   offloads that change packets are off")
        # An offload is reported only once, although the daemon's advice names it, too.
        self.inside("ethtool", "-K", "eth1", "gro", "on")
        words = [line for line in self.alone("^FAIL offloads") if line.startswith("FAIL")][0]
        with self.daemon(changed(advice=[words.removeprefix("FAIL offloads: ")], advice_about=["offloads"])):
            self.check(1, "^FAIL offloads")

    def good(self):
        for interface in ("gl0", "gla0", "eth1"):
            self.inside("ethtool", "-K", interface, "tx", "off", "tso", "off", "gso", "off", "gro", "off")

    def test_interfaces_that_do_not_fit(self):
        self.good()
        self.alone("^ok   offloads that change packets are off")
        self.inside("ip", "link", "set", "eth1", "down")
        self.alone("^FAIL interface eth1 of port wire: it is down; ip link set eth1 up")
        self.inside("ip", "link", "set", "eth1", "up")
        self.inside("ip", "link", "set", "far", "down")
        self.alone("^FAIL interface eth1 of port wire: no carrier")
        self.inside("ip", "link", "set", "far", "up")
        self.inside("ip", "link", "set", "eth1", "mtu", "1400")
        self.alone("^FAIL interface eth1 of port wire: its MTU is 1400, but the configuration has 1500")
        self.inside("ip", "link", "set", "eth1", "mtu", "1500")
        self.inside("ip", "link", "set", "gl0", "mtu", "3000")
        self.alone("^FAIL interface gl0, the host's end of gla0: its MTU is 3000, .*; ip link set gl0 mtu 1500")
        self.inside("ip", "link", "set", "gl0", "mtu", "1500")
        self.inside("ip", "link", "del", "eth1")
        self.alone("^FAIL interface eth1 of port wire: there is no such interface")
        with self.daemon(changed()):
            self.check(0, "^note interface eth1 of port wire: not in this network namespace")

    def test_addresses_of_the_wire(self):
        self.good()
        self.inside("ip", "addr", "add", "10.77.0.1/24", "dev", "eth1")
        self.alone(r"^note interface eth1 of port wire: the kernel has 10\.77\.0\.1 on it, .*ip addr flush dev eth1")
        self.inside("ip", "addr", "flush", "dev", "eth1")
        self.inside("sysctl", "-q", "-w", "net.ipv6.conf.eth1.disable_ipv6=0")
        self.inside("ip", "addr", "add", "fd77::1/64", "dev", "eth1")
        (line,) = [line for line in self.alone() if "IPv6" in line]
        self.inside(*shlex.split(line[line.index("sysctl"):]))
        self.assertFalse([line for line in self.alone() if "bypass" in line])

    def test_none_runs(self):
        """Checks the report of a missing daemon if all else is right: the effect on the host, and what to do."""
        self.good()
        self.check(1, "^FAIL daemon: no accelerator runs on .*a.admin: no packets pass between eth1 and gla0 without it: the host "
                   r"has no network over gl0; gradlaned --config \S*a.yaml; or, for a network without it, gradlane "
                   r"accelerator up --config \S*a.yaml$")
        self.admin.touch()
        self.check(1, r"^FAIL daemon: no accelerator runs on .*a.admin \(the last one died\): no packets pass")
        self.admin.unlink()
        self.folder.chmod(0o755)
        (gradlane,) = nobody.copies(self.folder, BINARIES["gradlane"])
        ended = self.run_program("setpriv", f"--reuid={nobody.UID}", "--clear-groups", gradlane, "check", "--config",
                                 self.config)
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stdout, "FAIL daemon: no accelerator runs .*: only root can see whether the kernel "
                         "forwards packets without it; gradlaned")
        for rule in ("chain wire { type filter hook ingress device eth1 priority 0; policy drop; };",
                     "chain host { type filter hook ingress device gla0 priority -500; policy accept; };"):
            self.inside("nft", "table netdev gradlane-eth1 { " + rule + " }")
            self.check(1, "^FAIL daemon: no accelerator runs on .*a.admin: no packets pass between eth1 and gla0")

    def test_host_in_another_namespace(self):
        self.good()
        self.inside("ip", "link", "set", "gl0", "netns", self.other)
        self.other.ip("link", "set", "gl0", "up")
        self.alone("^note interface gla0 of port host: its other end is not in this network namespace")

    def test_a_real_daemon(self):
        """Checks that the programs understand the status of a real daemon."""
        self.good()
        daemon = self.start_daemon()
        self.check(0, f"^note daemon: asked the running daemon, process {daemon.pid}", "^ok   link of port host: up",
                   "^ok   link of port wire: up", r"^note peers: this machine sent no marked traffic \(ToS 0x28\)")
        # The marked packets go to an address that no host has.
        self.inside("ip", "addr", "add", "10.77.0.1/24", "dev", "gl0")
        self.inside("ip", "neigh", "add", "10.77.0.2", "lladdr", "02:00:00:00:00:02", "dev", "gl0")
        self.inside(sys.executable, "-c", SENDER)
        self.check(1, r"^FAIL 10\.77\.0\.2: marked traffic \(ToS 0x28\) is sent there uncompressed: no accelerator answers; ",
                   options=("--time", "5s"))
        table = self.run_program("gradlane", "stats", "--config", self.config).stdout
        for pattern in (r"^accelerator   up ", r"^host +up ", "^uncompressed: no accelerator answers there +3 +100.0 %$",
                        "^TCP connections   0 of 65536   0 segments", r"^10\.77\.0\.2 +(silent|asked) +0 +3 "):
            self.assertTrue(re.search(pattern, table, re.MULTILINE), f"{pattern}:\n{table}")
        document = json.loads(self.run_program("gradlane", "stats", "--config", self.config, "--json").stdout)
        full = self.run_program("gradlane", "stats", "--config", self.config, "--all").stdout
        for name in document["counters"]:
            self.assertNotRegex(full, rf"\n  {name} +\d+  \n", "a counter that stats does not know")
        for part in ("ports", "config", "counters", "streams"):
            self.assertLessEqual(set(DOCUMENT[part]), set(document[part]), part)


if __name__ == "__main__":
    main()
