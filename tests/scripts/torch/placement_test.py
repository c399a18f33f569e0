#!/usr/bin/python3
"""Tests of the decisions which ranks share a daemon, and where daemons are. They need no daemons, stores or other
machines.
"""

import concurrent.futures
import contextlib
import io
import os
import socket
import unittest
import unittest.mock

from gradlane.torch.bootstrap import host_info, launch, path_probe, placement
from gradlane.torch.bootstrap.placement import Endpoint, HostInfo, Host, PlacementError
from tests.scripts.fixtures.ports import loopback_network


def facts(places_, **each):
    return [HostInfo(place, 100 + rank, **each) for rank, place in enumerate(places_)]


class Plans(unittest.TestCase):
    def check(self, where, trainers, machines):
        self.assertEqual(placement.plan(facts(where))[:2], (trainers, machines))

    def test_one_machine(self):
        self.check("aa", 2, (0,))
        self.check("aaaa", 4, (0,))
        self.check("a" * 16, 16, (0,))

    def test_more_than_a_daemon_has_trainers(self):
        self.check("a" * 32, 16, (0, 0))
        self.check("a" * 20, 10, (0, 0))
        self.check("a" * 17, 1, (0,) * 17)

    def test_machines(self):
        self.check("aabb", 2, (0, 1))
        self.check("ab", 1, (0, 1))
        self.check("aaabbbccc", 3, (0, 1, 2))

    def test_unequal(self):
        self.check("aaaabb", 2, (0, 0, 1))
        self.check("aaab", 1, (0, 0, 0, 1))

    def test_not_side_by_side(self):
        self.check("abab", 1, (0, 1, 0, 1))
        self.check("aabbaabb", 2, (0, 1, 0, 1))

    def test_before(self):
        plan = placement.plan(facts("aabbaabb"))
        self.assertEqual([plan.before(daemon) for daemon in range(4)], [0, 0, 1, 1])
        self.assertFalse(plan.alone)
        self.assertTrue(placement.plan(facts("aaa")).alone)

    def test_too_many(self):
        with self.assertRaisesRegex(PlacementError, "257 ranks, but daemons can have at most 256"):
            placement.plan(facts("a" * 257))
        self.assertEqual(placement.plan(facts("a" * 256)).trainers, 16)

    def test_nodes_fit(self):
        with self.assertRaisesRegex(PlacementError, "GRADLANE_NODES has 3 hosts, but the job runs on 2 machines"):
            placement.plan(facts("aabb", nodes="x,y,z"))
        mixed = facts("ab", nodes="x,y")
        with self.assertRaisesRegex(PlacementError, "'x,y' for rank 0 and '' for rank 1"):
            placement.plan([mixed[0], mixed[1]._replace(nodes="")])

    def test_security(self):
        secured = facts("aabb", security="encrypted")
        with self.assertRaisesRegex(PlacementError, "GRADLANE_SECURITY is 'encrypted' for rank 0 and '' for rank 3"):
            placement.plan([*secured[:3], secured[3]._replace(security="")])
        with self.assertRaisesRegex(PlacementError, "GRADLANE_SECURITY is 'aes', allowed: none, authenticated, encrypted,"):
            placement.plan(facts("ab", security="aes"))
        self.assertIn("auth.key_file=stdin", placement.settings(placement.plan(secured), 1500))
        self.assertIn("security=encrypted", placement.settings(placement.plan(secured), 1500))
        # One daemon sends nothing to others, and has nobody to agree with.
        self.assertNotIn("auth.key_file=stdin", placement.settings(placement.plan(facts("aa", security="encrypted")), 1500))

    def test_settings(self):
        settings = placement.settings(placement.plan(facts("aabb")), 1450)
        for word in ("trainers=2", "mtu=1450", "local_reduce=true", "strategies=[ring, direct]"):
            self.assertIn(word, settings)
        self.assertIn("local_reduce=false", placement.settings(placement.plan(facts("aaab")), 1450))
        for name, value in (("GRADLANE_VERIFY", "1"), ("GRADLANE_CODEC", "exact")):
            with unittest.mock.patch.dict(os.environ, {name: value}):
                self.assertIn("local_reduce=false", placement.settings(placement.plan(facts("aabb")), 1450))
        self.assertIn("strategies=[ring]", placement.settings(placement.plan(facts(f"{i}" for i in range(65))), 1450))


class Choices(unittest.TestCase):
    def test_found_by_all_or_by_none(self):
        found = facts("ab", daemon="/run/gradlane/node0.sock")
        self.assertTrue(placement.joins_daemons(found))
        self.assertFalse(placement.joins_daemons([found[0], found[1]._replace(daemon="")]))
        self.assertFalse(placement.joins_daemons(facts("ab")))

    def test_who_is_told_waits(self):
        told = facts("ab")
        self.assertTrue(placement.joins_daemons([told[0], told[1]._replace(daemon=placement.NAMED)]))

    def test_kept(self):
        self.assertTrue(placement.keeps_daemons(facts("ab", held="x")))
        self.assertFalse(placement.keeps_daemons(facts("ab")))
        other = facts("ab", held="x")
        self.assertFalse(placement.keeps_daemons([other[0], other[1]._replace(held="y")]))

    def test_text(self):
        fact = facts("a", route="fd00::1", mark="m")[0]
        self.assertEqual(HostInfo.read(fact.text()), fact)
        self.assertEqual(Endpoint.read(Endpoint("fd00::1", 7, 1280).text()), Endpoint("fd00::1", 7, 1280))


class Hosts(unittest.TestCase):
    def test_words(self):
        self.assertEqual(placement.named_hosts("10.0.0.1, node-b:18400,[fd00::1]:20,[fd00::2],fd00::3"), [
            Host("10.0.0.1", 0), Host("node-b", 18400), Host("fd00::1", 20), Host("fd00::2", 0), Host("fd00::3", 0)])
        self.assertEqual(placement.named_hosts(" "), [])

    def test_no_words(self):
        for text in ("a,,b", "a:x", "a:70000", "a b", "[a]:1", ":18400", "10.0.0.1:", "a:1:2"):
            with self.subTest(text), self.assertRaisesRegex(PlacementError, "GRADLANE_NODES: '.*' is no host, allowed: HOST or"):
                placement.named_hosts(text)

    def test_endpoints(self):
        two, one = placement.plan(facts("ab")), placement.plan(facts("aaab"))
        placement.check(two, [Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 1)])
        placement.check(placement.plan(facts("a" * 17)), [Endpoint("127.0.0.1", 20000 + i) for i in range(17)])
        for plan, ends, text in (
                (two, ["10.0.0.1", "127.0.1.1"], "rank 1 has the address 127.0.1.1, which other machines cannot reach: set"),
                (two, ["10.0.0.1", "fd00::1"], "rank 0 has the IPv4 address 10.0.0.1, but that of rank 1 has the IPv6"),
                (two, ["10.0.0.1", "10.0.0.1"], "ranks 0 and 1 would both have their daemon at 10.0.0.1:1: set"),
                (one, ["10.0.0.1", "10.0.0.1", "10.0.0.3", "10.0.0.2"], "ranks 0 and 1 would both")):
            with self.subTest(text), self.assertRaisesRegex(PlacementError, text):
                placement.check(plan, [Endpoint(address, 1) for address in ends])
        self.assertEqual(str(Endpoint("fd00::1", 7)), "[fd00::1]:7")
        self.assertEqual(placement.listed([Endpoint("10.0.0.1", 18400)] * 9), ", ".join(["10.0.0.1:18400"] * 8) + ", ...")

    def test_same_address_of_two_machines(self):
        """A bridge for containers has the same address on every machine. Containers that share the network of their host
        have one address, too, and reach each other. A NAT may have one address for all machines."""
        two = placement.plan(facts("ab"))
        ends = [Endpoint("172.17.0.1", 18400), Endpoint("172.17.0.1", 18401)]
        with self.assertRaisesRegex(PlacementError, "ranks 0 and 1 both have the address 172.17.0.1, .*: set GRADLANE_INTERFACE"):
            placement.check(two, ends, ["x", "y"])
        placement.check(two, ends, ["x", "x"])
        placement.check(two, ends, ["x", "y"], named=True)


class Addresses(unittest.TestCase):
    def test_of_this_machine(self):
        self.assertEqual(host_info.of_interface("lo"), "127.0.0.1")
        self.assertEqual(host_info.of_host("127.0.0.1"), "127.0.0.1")
        self.assertEqual(host_info.local_address_for("127.0.0.1"), "127.0.0.1")
        self.assertTrue(host_info.is_here("127.0.0.1"))
        self.assertFalse(host_info.is_here("192.0.2.77"))
        self.assertEqual(host_info.mtu_for("127.0.0.1"), min(host_info.loopback_mtu(), 9000))
        self.assertIn(host_info.loopback_mtu(), range(576, 16385))
        self.assertEqual(host_info.network(), host_info.network())
        for text, wrong in (("9000", ""), ("1300", ""), ("16385", "this is no MTU, allowed: 576 to 16384"), ("big", "no MTU")):
            with unittest.mock.patch.dict(os.environ, GRADLANE_MTU=text):
                if not wrong:
                    self.assertEqual(host_info.mtu_for("127.0.0.1"), int(text))
                    continue
                with self.assertRaisesRegex(ValueError, f"GRADLANE_MTU={text}: .*{wrong}"):
                    host_info.mtu_for("127.0.0.1")
        with self.assertRaisesRegex(OSError, "GRADLANE_INTERFACE=none0: there is no such interface .*allowed: .*lo"):
            host_info.of_interface("none0")
        for names in ("", "lo", "none0,lo"):
            with unittest.mock.patch.dict(os.environ, GLOO_SOCKET_IFNAME=names):
                self.assertEqual(host_info.of_gloo(), "")

    def test_long_packets(self):
        """No machine may use long packets if one is silent, or sends shorter probes."""
        own = host_info.free_ports("127.0.0.1", 3)
        addresses = [it.getsockname() for it in own]

        def probe(limit, *lengths):
            def one(number):
                others = [other for other in range(len(own)) if other != number]
                return path_probe.hears(own[number], number, others, addresses, lengths[number], f"job {lengths}")

            with unittest.mock.patch.object(path_probe, "_LIMIT_S", limit), concurrent.futures.ThreadPoolExecutor() as threads:
                return list(threads.map(one, range(len(lengths))))

        with contextlib.ExitStack() as stack:
            for it in own:
                stack.enter_context(it)
            self.assertEqual(probe(60, 9000, 9000, 9000), [True, True, True])
            self.assertEqual(probe(0.2, 9000, 9000, 8000), [False, False, False])
            self.assertEqual(probe(0.2, 9000, 9000), [False, False])

    def test_common_mtu(self):
        """More than 1500 bytes need a probe on each machine, unless all machines were given the length."""
        plan, facts_ = placement.plan(facts("ab")), facts("ab")
        votes = []

        class Group:
            @staticmethod
            def ask(_what, members, _answer, _faults):
                return [votes.pop(0) for _ in members]

        def mtu(*ends):
            there = [Endpoint(f"10.0.0.{number}", 1, *end) for number, end in enumerate(ends)]
            with contextlib.redirect_stderr(io.StringIO()) as said:
                return launch._common_mtu(Group, facts_, plan, 0, there, [], 0), said.getvalue()

        votes[:] = [True, True, True, False, False, True, True, True]
        self.assertEqual(mtu((9000,), (9000,)), (9000, ""))
        for _ in range(2):
            length, said = mtu((9000,), (8000,))
            self.assertEqual(length, 1500)
            self.assertIn("interfaces have MTU 8000, but packets of that length do not reach all machines", said)
        self.assertEqual(mtu((9000,), (9000, True)), (9000, ""))  # it was given to one machine only
        self.assertEqual(votes, [])
        self.assertEqual(mtu((9000, True), (8000, True)), (8000, ""))
        self.assertEqual(mtu((9000,), (1400,)), (1400, ""))

    def test_linked(self):
        self.assertEqual(placement.plan(facts("abcd")).linked(1), [2, 3, 0])
        ring = placement.plan(facts([str(number) for number in range(65)]))
        self.assertEqual((ring.linked(0), ring.linked(64)), ([1, 64], [0, 63]))

    def test_ports(self):
        first = host_info.free_ports("127.0.0.1", 4)
        numbers = [it.getsockname()[1] for it in first]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + 4)))
        with self.assertRaises(OSError):
            host_info.bind("127.0.0.1", [numbers[3] + 1, numbers[0]])
        host_info.bind("127.0.0.1", [numbers[3] + 1])[0].close()  # the failed bind() has released this port
        for it in first:
            it.close()

    def test_usual_ports(self):
        """Ports that firewalls let in come first."""
        address = f"{loopback_network()}.1"
        with contextlib.ExitStack() as stack:
            def ports():
                found = [stack.enter_context(it) for it in host_info.free_ports(address, 2, usual=True)]
                return [it.getsockname()[1] for it in found]

            self.assertEqual([ports() for _ in range(24)], [[first, first + 1] for first in range(18416, 18464, 2)])
            self.assertGreaterEqual(ports()[0], 20000)

    def test_place(self):
        self.assertEqual(host_info.place(), host_info.place())
        self.assertIn(socket.gethostname(), host_info.place())
        self.assertIn(os.readlink("/proc/self/ns/net"), host_info.place())


if __name__ == "__main__":
    unittest.main(verbosity=2)
