"""Tests daemons on UDP sockets with addresses of all kinds: IPv6, several nodes at one address, addresses behind NAT.

udp_test.py runs these tests. Cases in namespaces need root.
"""

import json
import os
import re
import signal
import subprocess

from tests.scripts.fixtures import daemons, networks, ports
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest, wait_for
from tests.scripts.fixtures.waiting import DEATH_TIMEOUTS
from lab.net.spaces import Spaces

MADE_UP = "240.0.0."  # prefix of internal addresses, which no output may have


def tool(*words):
    return subprocess.run([daemons.BINARIES["gradlane"], *map(str, words)], capture_output=True, text=True,
                          timeout=PATIENCE)


def stats(ring, node):
    return json.loads(tool("stats", "--admin", ring.sockets[node].with_suffix(".admin"), "--json").stdout)


class AddressesTest(DaemonTest):
    def one_address(self, ip, nodes=3, **settings):
        """Starts a ring whose nodes all have this address, with different UDP ports."""
        ring = self.ring(nodes, "udp", address=f"'{ip}', udp_port: {ports.free_ports(100) // 100}{{}}0", **settings)
        return ring, self.open_all(ring)

    def key(self):
        key = self.folder / "key"
        key.write_text(os.urandom(32).hex() + "\n")
        key.chmod(0o600)
        return f"{{key_file: '{key}'}}"

    def restart(self, ring, contexts, node):
        """Kills a daemon, and checks that operations on the other nodes fail. Returns the contexts of these nodes."""
        daemon = ring.daemons[node]
        self.killed.add(daemon.pid)
        daemon.signal(signal.SIGKILL)
        daemon.end()
        left = contexts[:node] + contexts[node + 1:]
        arrays = [gl.zeros(1000) for gl in left]
        self.failures([gl.all_reduce(array, async_=True) for gl, array in zip(left, arrays)])
        contexts[node].close()
        self.contexts.remove(contexts[node])
        return left

    def test_one_address(self):
        """Tests IPv4 and IPv6, with a key and without, with sockets at the nodes' address and at any address."""
        for ip in ("::1", "127.0.0.1"):
            for settings in ({}, {"auth": self.key(), "sockets": "any", "strategies": "[ring, direct]"}):
                ring, contexts = self.one_address(ip, trainers=2, lanes=2, **settings)
                for count in (1, 100_000):
                    self.check_all_reduce(contexts, count=count)
                    self.check_all_reduce(contexts, count=count, codec="fixed:10")
                named = f"[{ip}]" if ":" in ip else ip
                for it in stats(ring, 0)["neighbours"]:
                    self.assertRegex(it["ip"], "^" + re.escape(named) + rf":\d\d\d{it['node'] + 1}0$")
                self.assertNotIn(MADE_UP, ring.log() + json.dumps(stats(ring, 0)))
                self.finish(ring, contexts)

    def test_restart(self):
        ring, contexts = self.one_address("::1", timeouts=DEATH_TIMEOUTS)
        self.check_all_reduce(contexts)
        left = self.restart(ring, contexts, 1)
        ring.start(1)
        everybody = [left[0], self.open(ring, 1), left[1]]
        for gl in everybody:
            gl.resume(1 << 20)
        self.check_all_reduce(everybody)
        self.assertNotIn(MADE_UP, ring.log())
        wait_for(lambda: [it["why"] for it in stats(ring, 0)["neighbours"]] == ["", ""], "neighbours")

    def test_other_lists(self):
        """Checks that a node with another list is recognized, and that messages name the addresses that people know."""
        for ip in ("::1", "127.0.0.1"):
            ring, contexts = self.one_address(ip, timeouts=DEATH_TIMEOUTS)
            left = self.restart(ring, contexts, 1)
            first = int(ring.address.split(": ")[1].format(1))
            text = ring.files[1].read_text()
            named = f"[{ip}]" if ":" in ip else ip
            ring.files[1].write_text(text.replace(f"udp_port: {first + 10}", f"udp_port: {first + 5}"))
            ring.start(1)
            what = "an address or UDP port that no node has" if ":" in ip else ip
            wait_for(lambda: ring.daemons[2].lines(
                f"node 1 sends from {what}, but `nodes` has {named}:{first + 10} here"), "the address of node 1")
            self.assertEqual(ring.daemons[1].stop(), 0)
            # The node's own address is right now, but that of another node is not.
            ring.files[1].write_text(text.replace(f"udp_port: {first}", f"udp_port: {first + 9}"))
            ring.start(1)
            wait_for(lambda: ring.daemons[2].lines(
                f"({named}:{first + 10}) is configured differently: addresses or order of `nodes`"), "a refusal")
            self.assertNotIn(MADE_UP, ring.log())
            for gl in left:
                gl.close()
                self.contexts.remove(gl)
            self.finish(ring)

    def test_devices_beside(self):
        """Checks that a node cannot have both UDP sockets and a DPDK device. The kernel must have the address of
        sockets, and must not have the address of a device."""
        file = self.folder / "both.yaml"
        file.write_text("rank: 0\nnodes: [{rank: 0, ip: 127.0.0.1}, {rank: 1, ip: 127.0.0.2}, {rank: 2, ip: 127.0.0.3}]\n"
                        f"socket: '{self.folder}/both.sock'\n"
                        "ports: [{udp: auto, nodes: [1]}, {device: 'net_af_packet0,iface=lo', nodes: [2]}]\n")
        daemon = daemons.Daemon(file)
        self.assertEqual(daemon.end(), 2)
        self.assertIn("ports e0 and e1: sockets need this node's address in the kernel", daemon.log())

    def test_ipv6_only(self):
        """Tests machines that have only IPv6 addresses, with packets as long as their MTU."""
        networks.need(self)
        with Spaces() as spaces:
            one, other = spaces.add("one", ipv6=True), spaces.add("other", ipv6=True)
            one.veth("gl0", other, "gl0", mtu=1500, offloads=True)
            for number, space in enumerate((one, other), 1):
                space.ip("addr", "add", f"fd77::{number}/64", "dev", "gl0", "nodad")
            folder = self.folder / "six"
            folder.mkdir()
            ring = daemons.Ring(folder, 2, "udp", address="fd77::{}", auth=self.key())
            self.rings.append(ring)
            ring.daemons = [None, None]
            for node, space in enumerate((one, other)):
                with space.inside():
                    ring.start(node)
            contexts = self.open_all(ring)
            for codec in ("raw", "fixed:10"):
                self.check_all_reduce(contexts, count=300_000, codec=codec)
            self.assertEqual(stats(ring, 0)["neighbours"][0]["ip"], "fd77::2")
            self.assertNotIn(MADE_UP, ring.log())
            # The daemon does not start with a longer MTU than the interface has.
            file = self.folder / "long.yaml"
            file.write_text(ring.files[0].read_text().replace("mtu: 1500", "mtu: 1501").replace("n0.sock", "x.sock"))
            with one.inside():
                daemon = daemons.Daemon(file)
            self.assertNotEqual(daemon.end(), 0)
            self.assertIn("mtu is 1501, but interface gl0 with fd77::1 has 1500", daemon.log())
            self.finish(ring, contexts)

    def test_translator(self):
        """Tests machines behind NAT, as in clouds: each has another address than the one by which all nodes know it."""
        networks.need(self)
        with Spaces() as spaces:
            middle = spaces.add("middle")
            middle.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
            rules = []
            machines = [spaces.add(f"n{number}") for number in (1, 2)]
            for number, space in enumerate(machines, 1):
                middle.veth(f"p{number}", space, "gl0", offloads=True)
                middle.ip("addr", "add", f"10.77.{number}.254/24", "dev", f"p{number}")
                space.ip("addr", "add", f"10.77.{number}.1/24", "dev", "gl0")
                space.ip("route", "add", "default", "via", f"10.77.{number}.254")
                rules.append((f"ip daddr 192.0.2.{number} dnat to 10.77.{number}.1",
                              f"ip saddr 10.77.{number}.1 snat to 192.0.2.{number}"))
            there = "; ".join(rule for rule, _ in rules)
            back = "; ".join(rule for _, rule in rules)
            middle.rules("table ip nat {\n"
                         f"chain there {{ type nat hook prerouting priority -100; {there}; }}\n"
                         f"chain back {{ type nat hook postrouting priority 100; {back}; }}\n}}\n")
            folder = self.folder / "nat"
            folder.mkdir()
            ring = daemons.Ring(folder, 2, "udp", address="192.0.2.{}", sockets="any")
            self.rings.append(ring)
            ring.daemons = [None, None]
            for node, space in enumerate(machines):
                with space.inside():
                    ring.start(node)
            contexts = self.open_all(ring)
            self.check_all_reduce(contexts, count=100_000)
            self.finish(ring, contexts)
