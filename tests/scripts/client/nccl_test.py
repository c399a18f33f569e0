#!/usr/bin/python3
"""Tests of the plug-in for NCCL without NCCL and without a GPU: nccl_host.py plays NCCL, and the daemons are real.

nccl_test.py GRADLANED PLUGIN [unittest's arguments]
"""

import ctypes
import os
import random
import socket
import subprocess
import sys
import tempfile
import unittest

import numpy

from tests.scripts.client import nccl_host
from tests.scripts.client.nccl_host import (COLLNET_CHAIN, COLLNET_DIRECT, MAX, MIN, MOST_REQUESTS, PROD, RING, SIMPLE, SUM, TYPES,
                                            Failure, Host, all_reduce, check, finish, pointer)
from tests.scripts.fixtures import rings
from tests.scripts.fixtures.waiting import DEATH_TIMEOUTS, PATIENCE, wait_for

GRADLANED = PLUGIN = ""


def normal(count, *seeds):
    return numpy.random.default_rng(seeds).normal(0, 0.01, count).astype("float32")


class PluginTest(unittest.TestCase):
    def setUp(self):
        self.host = Host(PLUGIN, 12)
        self.comms = []
        os.environ["RANK"] = "77"  # counts GPUs, and means nothing to the plug-in
        for name in ("GRADLANE_NCCL_CODEC", "GRADLANE_SOCKET"):
            os.environ.pop(name, None)

    def tearDown(self):
        self.close_all()

    def close_all(self):
        for comm in self.comms:
            comm.close()

    def ring(self, nodes, **settings):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="gl-nccl-"))
        ring = self.enterContext(rings.Ring("memif", nodes, folder, GRADLANED, **settings)).start().wait_whole()
        return ring

    def communicator(self, ring, host=None):
        """Returns the communicator of all nodes of the ring, which must be possible."""
        host = host or self.host
        comms = host.communicator([ring.socket(node) for node in range(ring.nodes)])
        self.assertTrue(all(comms), host.log())
        self.comms += comms
        return comms

    def refused(self, reason, sockets):
        """Checks that all nodes fall back, that the log of each has the reason, and that nothing stays open."""
        before, files = self.host.log(), sorted(os.listdir("/proc/self/fd"))
        self.assertEqual(self.host.communicator(sockets), [None] * len(sockets))
        self.assertEqual(sorted(os.listdir("/proc/self/fd")), files)
        said = self.host.log()[len(before):]
        self.assertEqual(said.count("NCCL uses its own algorithms"), len(sockets), said)
        self.assertRegex(said, reason)


class Tables(PluginTest):
    def test_of_all_versions(self):
        for version in nccl_host.VERSIONS:
            host = Host(PLUGIN, version)
            for table in (host.net, host.coll):
                self.assertEqual(table.name, "gradlane")
                found = host.properties(table)
                self.assertIn(found.name.decode(), [name for _, name in socket.if_nameindex()])
                self.assertEqual((found.ptrSupport, found.maxRecvs, found.netDeviceType, found.ndevs, found.devs[0]),
                                 (nccl_host.HOST, 1, 0, 1, 0))
                self.assertGreater(found.speed, 0)
                self.assertTrue(0 < found.maxP2pBytes <= 1 << 40 and 0 < found.maxCollBytes <= 1 << 40)
                if version >= 11:
                    self.assertEqual(found.maxMultiRequestSize, 1)
                if version >= 12:
                    self.assertEqual((found.railId, found.planeId), (-1, -1))
                self.assertNotEqual(table.getProperties(1, ctypes.byref(found)), nccl_host.SUCCESS)
                if version >= 11:
                    check("finalize", table.finalize(None))
            # NCCL takes NULL for "not supported".
            self.assertIsNone(host.coll.iallgather)
            self.assertIsNone(host.coll.ireducescatter)

    def test_of_what_it_links(self):
        """It can be loaded where NCCL is: without libstdc++, CUDA and NCCL."""
        needed = subprocess.run(["readelf", "-d", PLUGIN], capture_output=True, text=True, check=True).stdout
        libraries = {line.split("[")[1].split("]")[0] for line in needed.splitlines() if "(NEEDED)" in line}
        self.assertTrue(libraries - {"ld-linux-aarch64.so.1"} <= {"libgradlane.so.0", "libc.so.6"}, libraries)

    def test_of_types(self):
        for name in TYPES:
            has_order = name not in ("int8", "uint32", "uint64")
            known = not name.startswith("float8")
            self.assertEqual([self.host.supports(name, it) for it in (SUM, PROD, MAX, MIN)],
                             [known, False, known and has_order, known and has_order], name)


class Sums(PluginTest):
    SIZES = (1, 2, 1023, 1024, 4099, 1 << 16, (1 << 19) + 3)

    def test_of_float32(self):
        """Sums of two floats are exact to the bit; those of three have the same bits on all nodes."""
        for nodes in (2, 3):
            ring = self.ring(nodes)
            for version in nccl_host.VERSIONS:
                comms = self.communicator(ring, Host(PLUGIN, version))
                for count in self.SIZES:
                    arrays = [normal(count, node, count) for node in range(nodes)]
                    results = all_reduce(comms, arrays)
                    for result in results:
                        self.assertEqual(result.tobytes(), results[0].tobytes())
                    if nodes == 2:
                        self.assertEqual(results[0].tobytes(), (arrays[0] + arrays[1]).tobytes())
                    numpy.testing.assert_allclose(results[0], sum(each.astype("float64") for each in arrays), atol=1e-7)
                self.close_all()

    def test_of_types_and_reductions(self):
        comms = self.communicator(self.ring(2))
        for name in TYPES:
            for reduction, function in ((SUM, numpy.add), (MAX, numpy.maximum), (MIN, numpy.minimum)):
                if not self.host.supports(name, reduction):
                    with self.assertRaises(Failure):
                        comms[0].iallreduce(numpy.zeros(8, "uint8"), numpy.zeros(8, "uint8"), reduction, name)
                    continue
                dtype = "float32" if name == "bfloat16" else name
                low = 0 if numpy.dtype(dtype).kind == "u" else -50
                given = [numpy.random.default_rng([node]).integers(low, 50, 5000).astype(dtype) for node in range(2)]
                expected = function(*given)
                if name == "bfloat16":  # the upper half of a float32, exact for small integers
                    given = [(each.view("uint32") >> 16).astype("uint16") for each in given]
                    expected = (expected.view("uint32") >> 16).astype("uint16")
                for result in all_reduce(comms, given, reduction, name):
                    numpy.testing.assert_array_equal(result, expected, f"{name} {reduction}")

    def test_in_place(self):
        comms = self.communicator(self.ring(2))
        arrays = [normal(3000, node) for node in range(2)]
        expected = arrays[0] + arrays[1]
        finish(comms, [comm.iallreduce(array, array) for comm, array in zip(comms, arrays)])
        for array in arrays:
            self.assertEqual(array.tobytes(), expected.tobytes())

    def test_of_many_requests(self):
        """32 are in flight, a call with more gets NULL, and requests may be tested in any order."""
        comms = self.communicator(self.ring(3))
        order = random.Random(1)
        for turn in range(3):
            counts = [order.choice((1, 8192, 65536, 20_000)) for _ in range(MOST_REQUESTS)]
            arrays = [[normal(count, turn, number, node) for number, count in enumerate(counts)] for node in range(3)]
            results = [[numpy.zeros_like(array) for array in each] for each in arrays]
            requests = [[] for _ in comms]
            for node in order.sample(range(3), 3):
                for array, result in zip(arrays[node], results[node]):
                    requests[node].append(comms[node].iallreduce(array, result))
                self.assertTrue(all(requests[node]))
                self.assertIsNone(comms[node].iallreduce(arrays[node][0], results[node][0]))
            left = [(node, number) for node in range(3) for number in range(MOST_REQUESTS)]
            order.shuffle(left)

            def over(left=left, requests=requests):
                left[:] = [(node, number) for node, number in left if not comms[node].test(requests[node][number])]
                return not left

            wait_for(over, "all requests")
            for number in range(MOST_REQUESTS):
                expected = sum(arrays[node][number].astype("float64") for node in range(3))
                numpy.testing.assert_allclose(results[0][number], expected, atol=1e-7)
                for node in range(3):
                    self.assertEqual(results[node][number].tobytes(), results[0][number].tobytes())

    def test_with_a_late_node(self):
        """A node that waits for another one gets no result before that one has called."""
        comms = self.communicator(self.ring(2))
        arrays = [normal(8192, node) for node in range(2)]
        results = [numpy.zeros_like(array) for array in arrays]
        first = comms[0].iallreduce(arrays[0], results[0])
        for _ in range(100):
            self.assertFalse(comms[0].test(first))
        finish(comms, [first, comms[1].iallreduce(arrays[1], results[1])])
        self.assertEqual(results[0].tobytes(), (arrays[0] + arrays[1]).tobytes())

    def test_with_little_memory(self):
        """Requests for which there is no memory wait for others, as those that are too many."""
        comms = self.communicator(self.ring(2, memory="{per_trainer: 2MiB}"))
        arrays = [normal(1 << 18, node) for node in range(2)]  # 1 MiB
        results = [[numpy.zeros_like(array) for _ in range(3)] for array in arrays]
        requests = [[comms[node].iallreduce(arrays[node], result) for result in results[node]] for node in range(2)]
        for node in range(2):
            self.assertEqual([bool(each) for each in requests[node][:2]], [True, True])
        # NCCL does not test the others before this one has begun. Sums may be so fast that it has begun already.
        for node in range(2):
            requests[node][2] = requests[node][2] or wait_for(
                lambda node=node: comms[node].iallreduce(arrays[node], results[node][2]), "memory")
        for number in range(3):
            finish(comms, [each[number] for each in requests])
        for node in range(2):
            for result in results[node]:
                self.assertEqual(result.tobytes(), (arrays[0] + arrays[1]).tobytes())

    def test_with_small_and_large_requests(self):
        """Buffers of small requests that have ended make room for a large one."""
        comms = self.communicator(self.ring(2, memory="{per_trainer: 2MiB}"))
        for count, many in ((1 << 15, 12), (1 << 18, 1)):
            arrays = [normal(count, node) for node in range(2)]
            results = [[numpy.zeros_like(array) for _ in range(many)] for array in arrays]
            requests = [[comms[node].iallreduce(arrays[node], result) for result in results[node]] for node in range(2)]
            for pair in zip(*requests):
                finish(comms, pair)
            for node in range(2):
                for result in results[node]:
                    self.assertEqual(result.tobytes(), (arrays[0] + arrays[1]).tobytes())


class Codecs(PluginTest):
    def test_of_a_lossy_one(self):
        """GRADLANE_NCCL_CODEC applies to float32 sums of 1024 elements or more, and to nothing else."""
        ring = self.ring(2)
        os.environ["GRADLANE_NCCL_CODEC"] = "fixed:8"
        comms = self.communicator(ring)
        for count, is_exact in ((1023, True), (1024, False), (100_000, False)):
            arrays = [normal(count, node) for node in range(2)]
            results = all_reduce(comms, arrays)
            self.assertEqual(results[0].tobytes(), results[1].tobytes())
            exact = arrays[0] + arrays[1]
            self.assertEqual(results[0].tobytes() == exact.tobytes(), is_exact, count)
            self.assertLessEqual(numpy.abs(results[0] - exact).max(), 2 * 2.0**-8)
        for name in ("float16", "float64", "int32"):
            arrays = [(1000 * normal(5000, node)).astype(name) for node in range(2)]
            numpy.testing.assert_array_equal(all_reduce(comms, arrays)[0], arrays[0] + arrays[1])
        arrays = [normal(5000, node) for node in range(2)]
        numpy.testing.assert_array_equal(all_reduce(comms, arrays, MAX)[0], numpy.maximum(*arrays))

    def test_of_old_bytes(self):
        """NCCL fills its chunks up with bytes of earlier operations. They do not spoil the values before them."""
        ring = self.ring(2)
        os.environ["GRADLANE_NCCL_CODEC"] = "fixed:8"
        comms = self.communicator(ring)
        arrays = [normal(8192, node) for node in range(2)]
        for node, array in enumerate(arrays):
            array[5001:] = numpy.random.default_rng([node]).integers(0, 256, 4 * 3191, "uint8").view("float32")
            self.assertTrue(numpy.isnan(array).any())
        for result in all_reduce(comms, arrays):
            self.assertLessEqual(numpy.abs(result[:5001] - arrays[0][:5001] - arrays[1][:5001]).max(), 2 * 2.0**-8)

    def test_that_the_daemons_codec_does_not_count(self):
        comms = self.communicator(self.ring(2, codec="fixed:8"))
        arrays = [normal(5000, node) for node in range(2)]
        self.assertEqual(all_reduce(comms, arrays)[1].tobytes(), (arrays[0] + arrays[1]).tobytes())

    def test_of_exact(self):
        """`exact` rounds once: three nodes have the nearest float of the true sum, for 16-bit floats too."""
        ring = self.ring(3, strategies="[ring, direct]")
        os.environ["GRADLANE_NCCL_CODEC"] = "exact"
        comms = self.communicator(ring)
        arrays = [normal(5000, node) for node in range(3)]
        expected = sum(each.astype("float64") for each in arrays).astype("float32")
        self.assertEqual(all_reduce(comms, arrays)[2].tobytes(), expected.tobytes())
        halves = [each.astype("float16") for each in arrays]
        expected = sum(each.astype("float64") for each in halves).astype("float16")
        self.assertEqual(all_reduce(comms, halves)[1].tobytes(), expected.tobytes())

    def test_of_warnings(self):
        """The library's warning of what rounding has lost is in NCCL's log."""
        ring = self.ring(2)
        os.environ["GRADLANE_NCCL_CODEC"] = "fixed:4"
        all_reduce(self.communicator(ring), [normal(5000, node) for node in range(2)])
        self.assertRegex(self.host.log(), "Training may stall.* set GRADLANE_NCCL_CODEC")


class FallBacks(PluginTest):
    def test_without_a_daemon(self):
        ring = self.ring(2)
        self.refused("node 1 of 2 cannot use its daemon: no daemon at", [ring.socket(0), "/tmp/no-such-socket"])
        _, listener = self.host.listen(ring.socket(0))
        check("closeListen", self.host.coll.closeListen(pointer(listener)))
        self.communicator(ring)  # nothing is left behind

    def test_of_some_nodes(self):
        ring = self.ring(3)
        self.refused("the communicator has 2 nodes, but the daemon of node 0 belongs to a ring of 3 ranks",
                     [ring.socket(0), ring.socket(2)])
        self.communicator(ring)

    def test_of_two_rings(self):
        one, other = self.ring(2), self.ring(2)
        self.refused("the daemons of nodes 0 and 1 are both rank 0", [one.socket(0), other.socket(0)])
        self.refused("the daemons cannot sum", [one.socket(0), other.socket(1)])

    def test_of_a_second_communicator(self):
        """A daemon serves one communicator at a time. Another one falls back on all nodes, and may have it later."""
        ring = self.ring(2)
        sockets = [ring.socket(node) for node in range(2)]
        first = self.communicator(ring)
        self.refused("node 0 of 2 cannot use its daemon: all trainers of this node are connected already", sockets)
        arrays = [normal(9000, node) for node in range(2)]
        self.assertEqual(all_reduce(first, arrays)[0].tobytes(), (arrays[0] + arrays[1]).tobytes())
        for _ in range(5):
            for comm in self.comms:
                comm.close()
            second = self.communicator(ring)
            self.assertEqual(all_reduce(second, arrays)[0].tobytes(), (arrays[0] + arrays[1]).tobytes())

    def test_of_codecs(self):
        ring = self.ring(2)
        sockets = [ring.socket(node) for node in range(2)]
        for codec, reason in (("fixed:99", "fixed:99"), ("topk:1%", "NCCL sends chunks"), ("fixed:rel=8", "NCCL sends chunks"),
                              ("auto:2^-10", "cannot be auto"), ("raw" * 40, "too long")):
            os.environ["GRADLANE_NCCL_CODEC"] = codec
            self.refused(reason, sockets)
        os.environ["GRADLANE_NCCL_CODEC"] = "fixed:8"
        first = self.host.listen(sockets[0])
        os.environ["GRADLANE_NCCL_CODEC"] = "fixed:9"
        second = self.host.listen(sockets[1])
        self.assertEqual(self.host.connect_all([first[0], second[0]], [first[1], second[1]]), [None, None])
        self.assertIn("GRADLANE_NCCL_CODEC is fixed:8 on node 0, but fixed:9 on node 1", self.host.log())

    def test_of_another_version(self):
        ring = self.ring(2)
        pairs = [self.host.listen(ring.socket(node)) for node in range(2)]
        pairs[1][0].raw = b"\xff" * nccl_host.HANDLE_BYTES
        self.assertEqual(self.host.connect_all([it[0] for it in pairs], [it[1] for it in pairs]), [None, None])
        self.assertIn("node 1 of 2 has another version of this plug-in", self.host.log())
        # NCCL has no listening object after a failure.
        self.assertIsNone(self.host.connect([it[0] for it in pairs], 0, None))

    def test_that_nodes_succeed_only_together(self):
        """If one node cannot take part after the handles were exchanged, no node succeeds."""
        ring = self.ring(2, timeouts=DEATH_TIMEOUTS)
        pairs = [self.host.listen(ring.socket(node)) for node in range(2)]
        ring.kill(1)
        self.assertEqual(self.host.connect_all([it[0] for it in pairs], [it[1] for it in pairs]), [None, None])
        self.assertIn("the daemons cannot sum", self.host.log())


class Deaths(PluginTest):
    def fails(self, comm, requests):
        """Waits until a test() of the requests fails. All later calls fail, too."""

        def failed():
            for request in requests:
                try:
                    self.assertFalse(comm.test(request))
                except Failure as failure:
                    return failure
            return None

        failure = wait_for(failed, "a failure")
        self.assertEqual(failure.result, nccl_host.REMOTE_ERROR)
        for request in requests:
            with self.assertRaises(Failure):
                comm.test(request)
        with self.assertRaises(Failure):
            comm.iallreduce(numpy.zeros(9, "float32"), numpy.zeros(9, "float32"))

    def start_half(self, comm):
        """Starts operations for which the other node never calls."""
        self.arrays = [normal(8192, number) for number in range(8)]
        return [comm.iallreduce(array, array) for array in self.arrays]

    def test_of_a_daemon(self):
        ring = self.ring(2, timeouts=DEATH_TIMEOUTS)
        comms = self.communicator(ring)
        requests = self.start_half(comms[0])
        ring.kill(1)
        self.fails(comms[0], requests)
        self.assertRegex(self.host.log(), "rank 0: an all-reduce has failed: .*rank 1")

    def test_of_its_own_daemon(self):
        ring = self.ring(2)
        comms = self.communicator(ring)
        requests = self.start_half(comms[0])
        ring.kill(0)
        self.fails(comms[0], requests)
        self.assertRegex(self.host.log(), "rank 0: an all-reduce has failed: .*daemon")

    def test_of_a_process(self):
        """The process of the other node is killed in the middle of its operations."""
        ring = self.ring(2, timeouts=DEATH_TIMEOUTS)
        handle, listener = self.host.listen(ring.socket(0))
        other = subprocess.Popen([sys.executable, "-m", "tests.scripts.client.nccl_test", GRADLANED, PLUGIN, "--play",
                                  handle.raw.hex()], env={**os.environ, "GRADLANE_SOCKET": ring.socket(1)},
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            theirs = ctypes.create_string_buffer(bytes.fromhex(other.stdout.readline()), nccl_host.HANDLE_BYTES)
            comm = self.host.connect([handle, theirs], 0, listener)
            self.assertIsNotNone(comm, self.host.log())
            self.comms.append(comm)
            array = normal(5000, 0)
            result = numpy.zeros_like(array)
            finish([comm], [comm.iallreduce(array, result)])
            self.assertEqual(result.tobytes(), (array + array).tobytes())
            requests = self.start_half(comm)
            self.assertEqual(other.stdout.readline(), "one\n")
        finally:
            other.kill()
            other.communicate()
        self.fails(comm, requests)
        self.assertRegex(self.host.log(), "rank 0: an all-reduce has failed: .*rank 1")

    def test_of_a_communicator(self):
        """A communicator is closed with operations in flight, as by ncclCommAbort(). The next one is undisturbed."""
        ring = self.ring(2)
        for _ in range(3):
            comms = self.communicator(ring)
            requests = self.start_half(comms[0])
            comms[1].close()
            self.fails(comms[0], requests)
            comms[0].close()
        arrays = [normal(5000, node) for node in range(2)]
        comms = self.communicator(ring)
        self.assertEqual(all_reduce(comms, arrays)[1].tobytes(), (arrays[0] + arrays[1]).tobytes())
        self.start_half(comms[0])
        self.start_half(comms[1])
        for comm in comms:
            comm.close()

    def test_of_different_calls(self):
        """Nodes that disagree about an operation get an error, and no wrong result."""
        comms = self.communicator(self.ring(2))
        array, result = normal(5000, 0), numpy.zeros(5000, "float32")
        requests = [comms[0].iallreduce(array, result), comms[1].iallreduce(array[:4000], result)]
        self.fails(comms[0], requests[:1])
        self.fails(comms[1], requests[1:])


class Messages(PluginTest):
    def test_of_all_sizes(self):
        for version in nccl_host.VERSIONS:
            host = Host(PLUGIN, version)
            sender, receiver = host.net_pair()
            memory = ctypes.c_void_p()
            check("regMr", host.net.regMr(pointer(sender), None, ctypes.c_size_t(0), nccl_host.HOST, ctypes.byref(memory)))
            check("deregMr", host.net.deregMr(pointer(sender), memory))
            self.assertNotEqual(host.net.regMr(pointer(sender), None, ctypes.c_size_t(0), nccl_host.CUDA,
                                               ctypes.byref(memory)), nccl_host.SUCCESS)
            for size in (0, 1, 7, 8, 4096, 131_072, (8 << 20) + 1):
                given = numpy.random.default_rng(size).integers(0, 256, size, "uint8")
                space = numpy.zeros(size + 5, "uint8")
                requests = [host.irecv(receiver, space), host.isend(sender, given)]
                sizes = [None, None]

                def over(requests=requests, sizes=sizes):
                    for i in range(2):
                        if sizes[i] is None:
                            sizes[i] = host.net_test(requests[i])
                    return None not in sizes

                wait_for(over, "a message")
                self.assertEqual(sizes, [size, size])
                self.assertEqual(space.tobytes(), given.tobytes() + bytes(5))
            request = ctypes.c_void_p(1)
            check("iflush", host.net.iflush(pointer(receiver), 1, None, None, None, ctypes.byref(request)))
            self.assertIsNone(request.value)
            self.close(host, sender, receiver)

    def close(self, host, sender, receiver):
        check("closeSend", host.net.closeSend(pointer(sender)))
        check("closeRecv", host.net.closeRecv(pointer(receiver)))

    def test_of_many(self):
        """32 messages are in flight in each direction of a ring, and a call with more gets NULL."""
        host, order = self.host, random.Random(2)
        ends = [host.net_pair() for _ in range(3)]
        for turn in range(3):
            sizes = [order.choice((0, 5, 65_536, 300_000)) for _ in range(MOST_REQUESTS)]
            given = [numpy.random.default_rng([turn, size]).integers(0, 256, size, "uint8") for size in sizes]
            spaces = [[numpy.zeros(size, "uint8") for size in sizes] for _ in ends]
            requests = []
            for number, (sender, receiver) in enumerate(ends):
                sends = [host.isend(sender, array) for array in given]
                receives = [host.irecv(receiver, space) for space in spaces[number]]
                self.assertTrue(all(sends) and all(receives))
                self.assertIsNone(host.isend(sender, given[0]))
                self.assertIsNone(host.irecv(receiver, spaces[number][0]))
                requests += sends + receives
            order.shuffle(requests)

            def over(requests=requests):
                requests[:] = [request for request in requests if host.net_test(request) is None]
                return not requests

            wait_for(over, "all messages")
            for each in spaces:
                self.assertEqual([space.tobytes() for space in each], [array.tobytes() for array in given])
        for sender, receiver in ends:
            self.close(host, sender, receiver)

    def test_of_closing(self):
        """A side that is closed with messages in flight gives the other side an error."""
        host = self.host
        big = numpy.zeros(64 << 20, "uint8")
        for closes_sender in (True, False):
            sender, receiver = host.net_pair()
            requests = [host.isend(sender, big), host.irecv(receiver, numpy.empty_like(big))]
            end, request = (receiver, requests[1]) if closes_sender else (sender, requests[0])
            check("close", host.net.closeSend(pointer(sender)) if closes_sender else host.net.closeRecv(pointer(receiver)))

            def failed(request=request):
                try:
                    self.assertIsNone(host.net_test(request))
                except Failure as failure:
                    return failure
                return None

            self.assertEqual(wait_for(failed, "an error").result, nccl_host.REMOTE_ERROR)
            with self.assertRaises(Failure):
                host.isend(end, big)
            check("close", host.net.closeRecv(pointer(end)))
        self.assertRegex(host.log(), r"cannot (send to|receive from) [0-9a-f.:]+, port \d+: .*see the log of that node")

    def test_of_a_message_that_is_too_long(self):
        host = self.host
        sender, receiver = host.net_pair()
        host.net_wait(host.isend(sender, numpy.zeros(100, "uint8")))
        request = host.irecv(receiver, numpy.zeros(99, "uint8"))

        def failed():
            try:
                self.assertIsNone(host.net_test(request))
            except Failure as failure:
                return failure
            return None

        self.assertEqual(wait_for(failed, "an error").result, nccl_host.INVALID_USAGE)
        self.assertIn("message of 100 bytes for a buffer of 99", host.log())
        self.close(host, sender, receiver)

    def test_of_strangers(self):
        """Connections without the nonce are closed. The right one comes through, even if silent ones fill all places
        before it, or wait behind it."""
        host = self.host
        handle, listener = host.net_listen()
        family, port = int.from_bytes(handle.raw[16:18], "little"), int.from_bytes(handle.raw[18:20], "big")
        address = socket.inet_ntop(family, handle.raw[20:24] if family == socket.AF_INET else handle.raw[24:40])
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"x"):
            with socket.create_connection((address, port), PATIENCE) as stranger:
                stranger.sendall(words)
                stranger.shutdown(socket.SHUT_WR)

                def closed(stranger=stranger):
                    self.assertIsNone(host.net_accept(listener))
                    stranger.setblocking(False)
                    try:
                        return stranger.recv(1) == b""
                    except BlockingIOError:
                        return False
                    except ConnectionError:
                        return True

                wait_for(closed, "the end of a stranger")
        places = 8  # kMostArriving
        right, *_ = [self.enterContext(socket.create_connection((address, port), PATIENCE)) for _ in range(2 * places)]
        for _ in range(2 * places):
            self.assertIsNone(host.net_accept(listener))
        right.sendall(handle.raw[:16])  # struct Hello
        first = wait_for(lambda: host.net_accept(listener), "a connection with silent ones behind it")
        check("close", host.net.closeRecv(pointer(first)))
        ends = [None, None]

        def both():
            ends[0] = ends[0] or host.net_connect(handle)
            ends[1] = ends[1] or host.net_accept(listener)
            return all(ends)

        wait_for(both, "a connection")
        self.close(host, *ends)
        check("closeListen", host.net.closeListen(pointer(listener)))
        with self.assertRaises(Failure):
            host.net_connect(ctypes.create_string_buffer(nccl_host.HANDLE_BYTES))

    def test_of_nobody(self):
        host = self.host
        handle, listener = host.net_listen()
        check("closeListen", host.net.closeListen(pointer(listener)))

        def failed():
            try:
                return host.net_connect(handle)
            except Failure as failure:
                return failure

        self.assertEqual(wait_for(failed, "an error").result, nccl_host.REMOTE_ERROR)

    def test_of_interfaces(self):
        """NCCL_SOCKET_IFNAME chooses the interface. A process chooses once."""
        others = [name for _, name in socket.if_nameindex() if name != "lo"]
        for words, expected in (("lo", ["lo"]), ("=lo", ["lo"]), ("^lo", others), ("=l", [None]), (",x", [None]), ("nothing,=x", [None])):
            code = (f"from tests.scripts.client import nccl_host\n"
                    f"host = nccl_host.Host({str(PLUGIN)!r}, 12)\nprint(host.properties(host.net).name.decode())")
            ran = subprocess.run([sys.executable, "-c", code], env={**os.environ, "NCCL_SOCKET_IFNAME": words},
                                 capture_output=True, text=True, check=False)
            if words != "^lo" or ran.returncode == 0:  # a container may have no other interface
                self.assertIn(ran.stdout.strip() or None, expected, (words, ran.stderr))


class Tuner(PluginTest):
    def chosen(self, version, size, costs, function=nccl_host.ALL_REDUCE):
        """Returns the algorithm that NCCL takes, the one with the least cost that is not negative."""
        host = Host(PLUGIN, version)
        context = ctypes.c_void_p(1)
        if version == 10:
            check("init", host.tuner.init(ctypes.c_size_t(16), ctypes.c_size_t(2), host.logger, ctypes.byref(context)))
        else:
            check("init", host.tuner.init(ctypes.byref(context), ctypes.c_uint64(1), ctypes.c_size_t(16),
                                          ctypes.c_size_t(2), host.logger, None, None))
        table = numpy.full((nccl_host.ALGORITHMS, nccl_host.PROTOCOLS), -1, "float32")
        for algorithm, cost in costs.items():
            table[algorithm, SIMPLE] = cost
        channels = ctypes.c_int(0)
        check("getCollInfo", host.tuner.getCollInfo(
            context, function, ctypes.c_size_t(size), 1, pointer(table.ctypes.data), nccl_host.ALGORITHMS,
            nccl_host.PROTOCOLS, 0, ctypes.byref(channels)))
        self.assertEqual(channels.value, 0)
        check("end", getattr(host.tuner, "destroy" if version == 10 else "finalize")(context))
        if version == 12:
            self.assertIsNone(host.tuner.getChunkSize)
        usable = {a: table[a].max() for a in range(nccl_host.ALGORITHMS) if table[a].max() >= 0}
        return min(usable, key=usable.get)

    def test_of_choices(self):
        everything = {RING: 5.0, nccl_host.TREE: 7.0, COLLNET_DIRECT: 90.0, COLLNET_CHAIN: 100.0}
        cheap = {RING: 500.0, COLLNET_DIRECT: 2.0, COLLNET_CHAIN: 1.0}
        for version in nccl_host.VERSIONS:
            self.assertEqual(self.chosen(version, 32 << 10, everything), COLLNET_CHAIN)
            self.assertEqual(self.chosen(version, 1 << 30, everything), COLLNET_CHAIN)
            # Small ones stay with NCCL, unless it has nothing else.
            self.assertEqual(self.chosen(version, (32 << 10) - 1, cheap), RING)
            self.assertEqual(self.chosen(version, 8, {COLLNET_CHAIN: 3.0}), COLLNET_CHAIN)
            # CollNet cannot be used, or is for something else.
            self.assertEqual(self.chosen(version, 1 << 20, {RING: 5.0}), RING)
            self.assertEqual(self.chosen(version, 1 << 20, everything, nccl_host.BROADCAST), RING)


def play(handle):
    """Plays the process of node 1 until it is killed. Prints its handle, and a line after its first operation."""
    host = Host(PLUGIN, 12)
    mine, listener = host.listen(os.environ["GRADLANE_SOCKET"])
    print(mine.raw.hex(), flush=True)
    comm = host.connect([ctypes.create_string_buffer(handle, nccl_host.HANDLE_BYTES), mine], 1, listener)
    array = normal(5000, 0)
    finish([comm], [comm.iallreduce(array, array)])
    print("one", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    GRADLANED, PLUGIN = sys.argv[1:3]
    if sys.argv[3:4] == ["--play"]:
        play(bytes.fromhex(sys.argv[4]))
    else:
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
