#!/usr/bin/python3
"""Tests `gradlane accelerator up` and `down` in network namespaces. Needs root; skipped without it.

    host: eth1 ---- far :other          10.77.0.1 and more on eth1, 10.77.0.9 on far

Usage: up_test.py GRADLANE GRADLANED
"""

import contextlib
import hashlib
import random
import re
import signal
import socket
import threading

from tests.scripts.accelerator.told_daemon import BINARIES, SpaceTest, main
from tests.scripts.fixtures.nobody import AS_NOBODY, copies
from tests.scripts.fixtures.waiting import PATIENCE, wait_for
from lab.net.spaces import inside

ADDRESSES = (["10.77.0.1/24"], ["10.77.0.2/24", "label", "eth1:more"], ["10.79.0.1/30", "brd", "+"],
             ["10.80.0.1/24", "noprefixroute", "metric", "7"], ["fd77::1/64"])
ROUTES = ("default via 10.77.0.9 metric 50", "10.99.0.0/16 via 10.77.0.9 src 10.77.0.2", "10.98.0.0/16 dev eth1",
          "10.97.0.0/16 table 77 via 10.77.0.9", "default via fd77::9",
          "10.96.0.0/16 nexthop via 10.77.0.9 weight 1 nexthop via 10.79.0.2 weight 3")


class UpTest(SpaceTest):
    ipv6 = True

    def setUp(self):
        super().setUp()
        # Without duplicate address detection, IPv6 addresses work at once.
        for space in (self.namespace, self.other):
            space.run("sysctl", "-q", "-w", "net.ipv6.conf.default.accept_dad=0")
        self.namespace.veth("eth1", self.other, "far", offloads=True)
        self.inside("ethtool", "-K", "eth1", "gro", "on")
        for address in ("10.77.0.9/24", "fd77::9/64"):
            self.other.ip("addr", "add", address, "dev", "far")
        self.write_config(host="net_af_packet0,iface=gla0,qdisc_bypass=0",
                          wire="net_af_packet1,iface=eth1,qdisc_bypass=0")

    def populate(self):
        self.ip("link", "set", "eth1", "mtu", "1400")
        for address in ADDRESSES:
            self.ip("addr", "add", *address, "dev", "eth1")
        for route in ROUTES:
            self.ip(*(["-6"] if "fd77" in route else []), "route", "add", *route.split())

    def state(self):
        """Returns all settings that `up` may change, as ordinary tools print them."""
        text = self.ip("-d", "-o", "link", "show", "dev", "eth1") + self.ip("addr", "show", "dev", "eth1")
        text += self.ip("route", "show", "table", "all") + self.ip("-6", "route", "show", "table", "all")
        text += self.inside("ethtool", "-k", "eth1") + self.inside("sysctl", "net.ipv6.conf.eth1.disable_ipv6")
        text += self.ip("-o", "link") + self.inside("nft", "list", "ruleset")
        # The kernel decides the order of lines, life times of addresses, and promiscuity counts, so they are not
        # compared.
        return sorted(re.sub(r"(valid|preferred)_lft \S+|promiscuity \d+", "", line) for line in text.splitlines())

    def accelerator(self, what, status=0):
        ended = self.run_program("gradlane", "accelerator", what, "--config", self.config)
        self.assertEqual(ended.returncode, status, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr

    def pings(self, address="10.77.0.9"):
        self.inside("ping", "-n", "-c", "2", "-i", "0.1", "-W", "5", address)

    def test_up_and_down(self):
        self.populate()
        before = self.state()
        text = self.accelerator("up")
        for line in ("gl0 and gla0: made as a veth pair with MTU 1500", "eth1: MTU 1500, before 1400",
                     "gl0: now has 10.77.0.1/24, 10.79.0.1/30, 10.80.0.1/24, 10.77.0.2/24, fd77::1/64 and 6 routes of eth1",
                     f"gl0 is up; now start gradlaned --config {self.config}"):
            self.assertIn(line + "\n", text)
        # No accelerator runs yet.
        self.pings()
        self.pings("fd77::9")
        self.assertEqual(self.ip("addr", "show", "dev", "eth1").count("inet"), 0)
        routes = self.ip("route", "show", "table", "all")
        for route in ROUTES:
            if "fd77" not in route:
                self.assertIn(route.replace("dev eth1", "dev gl0").split()[0], routes)
        self.assertNotIn("eth1", routes)
        up = self.state()
        self.assertNotIn("made", self.accelerator("up"))
        self.assertEqual(self.state(), up, "again, it changes nothing")
        self.accelerator("down")
        self.assertEqual(self.state(), before)
        self.assertEqual(self.accelerator("down"), "gl0 is down already\n")
        self.assertEqual(self.state(), before)

    def test_with_a_daemon(self):
        """Starts a daemon, kills it, starts it again and ends it. The network works all the time."""
        self.populate()
        before = self.state()
        self.accelerator("up")
        daemon = self.start_daemon()
        self.pings()
        self.check(0, "^ok   the kernel does not process packets of eth1 and gla0",
                   "^ok   without gradlaned the kernel forwards packets between eth1 and gla0, except compressed ones")
        self.accelerator("up")  # while the daemon runs
        self.pings()
        self.assertIn("an accelerator uses eth1 and gla0: stop gradlaned first", self.accelerator("down", 2))
        daemon.send_signal(signal.SIGKILL)
        daemon.wait(PATIENCE)
        self.pings()
        self.check(1, r"^FAIL daemon: no accelerator runs .* \(the last one died\): the kernel forwards packets between eth1 and gla0")
        daemon = self.start_daemon()
        self.pings()
        daemon.terminate()
        self.assertEqual(daemon.wait(PATIENCE), 0)
        self.pings()
        self.accelerator("down")
        self.assertEqual(self.state(), before)
        self.pings()

    def features(self, interface):
        return set(re.findall(r"^\s*(\S+): on", self.inside("ethtool", "-k", interface), re.MULTILINE))

    def test_superpackets(self):
        """Checks that the kernel keeps TSO. Without a daemon, the kernel itself must cut the superpackets that it
        forwards."""
        self.ip("addr", "add", "10.77.0.1/24", "dev", "eth1")
        # A veth does not cut superpackets, so `far` must not send them.
        self.other.run("ethtool", "-K", "far", "tx", "off")
        before = self.state()
        self.accelerator("up")
        self.config.write_text(self.config.read_text().replace("host: {", "host: {superpackets: true, "))
        self.check(1, "^note superpackets: gl0 cuts TCP into packets itself, which costs time; switch that off with gradlane accelerator up",
                   "^FAIL daemon: no accelerator runs")
        self.assertIn("gl0: leaves segmentation of TCP to the accelerator, as superpackets\n", self.accelerator("up"))
        for interface in ("gl0", "gla0"):
            self.assertLessEqual({"tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-checksum-ip-generic"},
                                 self.features(interface))
        self.assertFalse({"tx-udp-segmentation", "tx-sctp-segmentation", "tx-checksum-sctp", "tx-gre-segmentation"} &
                         self.features("gl0"))
        self.assertFalse({"tx-tcp-segmentation", "tx-checksum-ip-generic"} & self.features("eth1"))
        self.check_stream()
        up = self.state()
        self.accelerator("up")
        self.assertEqual(self.state(), up, "again, it changes nothing")
        daemon = self.start_daemon()
        self.check_stream()
        self.check(0, "^ok   superpackets of TCP between gl0 and gla0$")
        self.inside("ethtool", "-K", "gl0", "tx-udp-segmentation", "on")
        self.check(1, "^FAIL offloads: port host: gl0, the host's end of gla0, has offloads that superpackets do not "
                      "support: ethtool -K gl0 tx-udp-segmentation off$")
        self.inside("ethtool", "-K", "gl0", "tx-udp-segmentation", "off")
        daemon.send_signal(signal.SIGKILL)
        daemon.wait(PATIENCE)
        self.check_stream()
        self.accelerator("down")
        # The kernel takes some time to set link-local addresses.
        wait_for(lambda: self.state() == before, "eth1 is as it was")

    def check_stream(self):
        """Sends bytes in each direction of a connection. Asserts that no frame on the wire is longer than the MTU."""
        data = random.Random(7).randbytes(3_000_000)
        with inside(self.other.name):
            listener = socket.create_server(("10.77.0.9", 0))
            sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        with listener, sniffer:
            sniffer.bind(("far", 0))
            sniffer.setblocking(False)
            with inside(self.namespace.name):
                ours = socket.create_connection(listener.getsockname(), PATIENCE)
            theirs, _ = listener.accept()
            with ours, theirs:
                theirs.settimeout(PATIENCE)
                for sender, receiver in ((ours, theirs), (theirs, ours)):
                    thread = threading.Thread(target=sender.sendall, args=(data,))
                    thread.start()
                    got = bytearray()
                    while len(got) < len(data):
                        part = receiver.recv(1 << 20)
                        self.assertTrue(part)
                        got += part
                    thread.join(PATIENCE)
                    self.assertEqual(hashlib.sha256(got).digest(), hashlib.sha256(data).digest())
            lengths = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    frame, where = sniffer.recvfrom(65536)
                    if where[2] != socket.PACKET_OUTGOING:
                        lengths.append(len(frame))
            self.assertEqual(max(lengths), 1514)

    def test_what_was_there(self):
        """Checks that `up` completes what already exists, made by hand or by an earlier `up`. Interfaces of another
        kind with the same names are reported and left unchanged."""
        self.ip("addr", "add", "10.77.0.1/24", "dev", "eth1")
        before = self.state()
        self.ip("link", "add", "gla0", "type", "bridge")
        self.assertRegex(self.accelerator("up", 2), r"interface gla0 exists already, and is not a veth whose other end "
                         r"is gl0: run ip link del gla0, or give the name of its other end in host: \{interface: ...\}")
        self.assertIn("gla0 was not made by gradlane accelerator up", self.accelerator("down", 2))
        self.ip("link", "del", "gla0")
        self.ip("link", "add", "gl0", "type", "bridge")
        self.assertIn("interface gl0 exists already, and is not one end of a veth pair with gla0", self.accelerator("up", 2))
        self.ip("link", "del", "gl0")
        self.ip("link", "add", "br0", "type", "bridge")
        self.ip("link", "set", "eth1", "master", "br0")
        self.assertIn("interface eth1 belongs to a bridge or bond", self.accelerator("up", 2))
        self.ip("link", "del", "br0")
        self.assertEqual(self.state(), before)
        self.ip("link", "add", "gl0", "type", "veth", "peer", "name", "gla0")
        self.ip("addr", "add", "10.77.0.3/24", "dev", "gl0")
        self.accelerator("up")
        self.pings()
        self.inside("nft", "flush", "ruleset")
        self.ip("link", "set", "gl0", "down")
        self.ip("addr", "add", "10.77.0.4/24", "dev", "eth1")
        self.assertIn("gl0: now has 10.77.0.4/24 and 0 routes of eth1", self.accelerator("up"))
        self.pings()
        self.accelerator("down")
        self.assertEqual(self.ip("addr", "show", "dev", "eth1").count("inet "), 3)
        self.pings()

    def test_what_cannot_move(self):
        """Checks `up` with something that it cannot move, such as a route over a nexthop object. All addresses and
        routes stay at eth1, where they work."""
        self.populate()
        self.ip("nexthop", "add", "id", "7", "via", "10.77.0.9", "dev", "eth1")
        self.ip("route", "add", "10.95.0.0/16", "nhid", "7")

        def of_wire():
            text = self.ip("-o", "addr", "show", "dev", "eth1") + self.ip("route", "show", "table", "all")
            text += self.ip("-6", "route", "show", "table", "all")
            return sorted(line for line in text.splitlines() if "eth1" in line)

        before = of_wire()
        for _ in range(2):
            self.assertIn("cannot remove route 10.95.0.0/16 over eth1", self.accelerator("up", 2))
            self.assertEqual(of_wire(), before)
            self.pings()
            self.pings("fd77::9")
        self.ip("route", "del", "10.95.0.0/16")
        self.accelerator("up")
        self.pings()
        self.accelerator("down")

    def test_a_lost_pair(self):
        """Removes the veth pair by hand, so that nobody uses the wire. Then `down` gives the wire back to the kernel.
        """
        self.ip("addr", "add", "10.77.0.1/24", "dev", "eth1")
        self.accelerator("up")
        self.ip("link", "del", "gl0")
        self.accelerator("down")
        self.ip("addr", "add", "10.77.0.1/24", "dev", "eth1")
        self.pings()

    def test_other_names(self):
        self.write_config(host="net_af_packet0,iface=inner,qdisc_bypass=0\", interface: \"lane",
                          wire="net_af_packet1,iface=eth1,qdisc_bypass=0")
        self.config.write_text(self.config.read_text().replace("'", '"'))
        self.ip("addr", "add", "10.77.0.1/24", "dev", "eth1")
        self.accelerator("up")
        self.assertIn("10.77.0.1/24", self.ip("addr", "show", "dev", "lane"))
        self.pings()
        self.accelerator("down")

    def test_a_tap(self):
        """Checks an accelerator whose host port is a tap. Its daemon also leaves an nftables table, which keeps the
        kernel away from the wire. `down` removes this table."""
        self.ip("addr", "add", "10.77.0.1/24", "dev", "eth1")
        self.inside("ethtool", "-K", "eth1", "gro", "off")
        self.write_config(host="net_tap0,iface=gl0", wire="net_af_packet1,iface=eth1,qdisc_bypass=0")
        # The daemon refuses, because it would cut the host off from its network, and would not restore it at its end.
        ended = self.run_program("gradlaned", "--config", self.config)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertIn("interface eth1 of port wire has the kernel's address 10.77.0.1, which would be unreachable "
                      f"while this accelerator runs: gradlane accelerator up --config {self.config} moves it to gl0", ended.stderr)
        self.pings()
        self.ip("addr", "flush", "dev", "eth1")
        daemon = self.start_daemon()
        self.assertIn("an accelerator uses eth1: stop gradlaned first", self.accelerator("down", 2))
        daemon.terminate()
        self.assertEqual(daemon.wait(PATIENCE), 0)
        self.check(1, "^FAIL daemon: no accelerator runs on .*: no packets pass between host and wire without it")
        self.assertIn("table netdev gradlane-eth1 does not exist any more", self.accelerator("down"))
        self.ip("addr", "add", "10.77.0.1/24", "dev", "eth1")
        self.pings()

    def test_refusals(self):
        self.ip("link", "del", "eth1")
        self.assertIn("there is no interface 'eth1'", self.accelerator("up", 2))
        self.write_config(host="net_tap0,iface=gl0", wire="net_af_packet1,iface=eth1")
        self.assertIn("for such ports, see docs/accelerator.md, \"Set it up\"", self.accelerator("up", 2))
        self.config.write_text("rank: 0\nnodes: [{rank: 0, ip: 10.77.0.1}]\n")
        self.assertIn("is the file of a node, not of an accelerator", self.accelerator("up", 2))
        self.write_config(host="net_af_packet0,iface=gla0", wire="net_af_packet1,iface=eth1")
        (gradlane,) = copies(self.folder, BINARIES["gradlane"])
        for what in ("up", "down"):
            ended = self.run_program(*AS_NOBODY, gradlane, "accelerator", what, "--config", self.config)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertIn(f"this needs root, or CAP_NET_ADMIN: sudo gradlane accelerator {what} --config", ended.stderr)
        for words in ((), ("up",), ("sideways",)):
            ended = self.run_program("gradlane", "accelerator", *words)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
        self.assertIn("Needs root", self.run_program("gradlane", "accelerator", "up", "--help").stdout)


if __name__ == "__main__":
    main()
