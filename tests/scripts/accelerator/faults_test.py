#!/usr/bin/python3
"""Tests TCP through two accelerators while frames are lost, duplicated, reordered and damaged. No connection may get
stuck, no float may be outside the codec's bound, and no other byte may be wrong. Nothing may stay in the accelerators'
tables.

With --bump testpmd, dpdk-testpmd replaces the accelerators, and only cases that need no accelerator run. This tests the
test itself.
"""

import argparse
import contextlib
import itertools
import pathlib
import random
import socket
import struct
import sys
import tempfile
import time

import numpy

from tests.scripts.accelerator import rig, traffic, wire
from tests.scripts.fixtures import networks, rings

LOSS = 100  # of 10000 frames


class Connections:
    """Runs transfers at the same time: floats with the mark, and bytes without it. Checks each transfer at its end."""

    def __init__(self, hosts, codec="fixed:10"):
        self.hosts, self.codec = hosts, codec
        self.pairs, self._waiting = [], []
        self._generator = random.Random(7)

    def open(self, what, ways=2, floats=60_000, kind="laplace", tos=traffic.MARK, set_socket=None, set_accepted=None,
             **options):
        """Connects now, and prepares `ways` transfers (1 or 2 directions) for run(). `options` are those of Transfer.
        """
        number = len(self.pairs)
        ends = (0, 1) if number % 2 == 0 else (1, 0)
        pair = traffic.connect(self.hosts, *ends, tos=tos, set_listener=set_socket, set_client=set_socket)
        if set_accepted:
            set_accepted(pair[0])
            set_accepted(pair[1])
        self.pairs.append(pair)
        what = f"connection {number}, {what}"
        for way in range(ways):
            if tos == traffic.MARK:
                values = traffic.KINDS[kind](floats, seed=100 * number + way)
                data = values.tobytes()
            else:
                values, data = None, self._generator.randbytes(4 * floats + way)
            self._waiting.append((values, pair[way], pair[1 - way], data, f"{what}, way {way}", options))

    def run(self):
        """Runs the prepared transfers. Returns the number of floats that are not exactly as sent, for each direction of
        the marked connections."""
        transfers = [(values, traffic.Transfer(*ends, data, what=what, **options))
                     for values, *ends, data, what, options in self._waiting]
        changed = []
        for values, transfer in transfers:
            if values is None:
                transfer.check_exact()
            else:
                changed.append(traffic.check_floats(values, transfer.finish(), self.codec, transfer.what))
        self._waiting = []
        return changed

    def close(self):
        traffic.close(*self.pairs)


@contextlib.contextmanager
def lossy(hosts, loss=LOSS, copies=LOSS):
    hosts.drop(loss)
    hosts.copy(copies)
    yield
    dropped = hosts.dropped()
    hosts.drop(0)
    hosts.copy(0)
    assert dropped > 0 or not loss, "nothing got lost"


def no_delay(sock):
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def maxseg(size):
    return lambda sock: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, size)


def loss_and_options(hosts, bumps):
    """Tests all combinations of TCP's options at the same time, under loss and duplication."""
    connections = Connections(hosts)
    for scaling, sack, timestamps in itertools.product((1, 0), repeat=3):
        hosts.sysctl(window_scaling=scaling, sack=sack, timestamps=timestamps)
        what = f"window scaling {scaling}, SACK {sack}, timestamps {timestamps}"
        connections.open(what, floats=150_000, kind=("laplace", "edges")[sack])
        connections.open(what, floats=50_000, tos=0)
    hosts.sysctl(window_scaling=1, sack=1, timestamps=1)
    with lossy(hosts):
        changed = connections.run()
    connections.close()
    if bumps.kind == "accelerator":
        assert min(changed) > 0, f"a connection was not compressed: {changed}"


def other_boundaries(hosts, bumps):
    """Tests segment sizes that are no multiple of four, and small sends, which TCP merges when it retransmits them."""
    connections = Connections(hosts)
    for size in (537, 539, 1001):
        connections.open(f"MSS {size}", kind="edges", set_socket=maxseg(size))
    for seed, kind in enumerate(("edges", "special", "edges", "gaussian") * 3):
        connections.open(f"small sends of {kind}", floats=15_000, kind=kind, set_accepted=no_delay,
                         chunks=traffic.odd_chunks(seed, 99))
        connections.open("small sends without the mark", floats=15_000, tos=0, set_accepted=no_delay,
                         chunks=traffic.odd_chunks(seed, 99))
    with lossy(hosts, 400, 200):
        connections.run()
    connections.close()
    if bumps.kind == "accelerator":
        bumps.counted(0, "resent", 1)


def any_boundaries(hosts, bumps):
    """Tests segments that overlap at random and arrive in random order. No float may mix exact and compressed bytes."""
    codec = "fixed:10"
    if bumps.kind == "accelerator":
        bumps.unblock()
    for seed, isn in enumerate((0xFFFFFFFF - 20_000, 0x7FFFFFFF - 21_001, 3)):
        values = traffic.edges(15_000, seed)
        received = wire.pieces_in_any_order(hosts, values.tobytes(), seed, traffic.MARK, isn)
        changed = traffic.check_floats(values, received, codec, f"any boundaries, seed {seed}")
        if bumps.kind == "accelerator":
            assert changed > values.size / 10, f"only {changed} floats came compressed"
            bumps.counted(0, "overwritten", 100)
    data = random.Random(9).randbytes(40_001)
    received = wire.pieces_in_any_order(hosts, data, 9, 0, 5)
    assert received == data, f"without the mark, byte {traffic.first_difference(received, data)} differs"


def slow_readers(hosts, _bumps):
    generator = random.Random(8)

    def small_buffers(sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)

    def pause(received):
        if generator.random() < 0.05:
            time.sleep(0.03)

    connections = Connections(hosts)
    for tos in (traffic.MARK, traffic.MARK, 0):
        connections.open(f"slow reader, ToS {tos:#x}", floats=60_000, tos=tos, set_socket=small_buffers, read=777,
                         pause=pause, chunks=traffic.odd_chunks())
    with lossy(hosts, 30):
        connections.run()
    connections.close()


def many_connections(hosts, bumps, count=1000, together=100):
    """Opens, uses and closes `count` connections, `together` at a time. Either side closes first; some close by a
    reset."""
    values = traffic.laplace(1000)
    for begin in range(0, count, together):
        pairs = [traffic.connect(hosts, i % 2, 1 - i % 2, tos=traffic.MARK) for i in range(begin, begin + together)]
        for ours, _ in pairs:
            ours.sendall(values.tobytes())
        for _, theirs in pairs[::2]:
            traffic.check_floats(values, traffic.read(theirs, values.nbytes), what="one of many connections")
        for i, (ours, theirs) in enumerate(pairs):
            if i % 4 == 1:  # a reset while sent data is still unread
                theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            for sock in ((ours, theirs), (theirs, ours))[i % 3 == 0]:
                sock.close()
    if bumps.kind == "accelerator":
        for i in range(2):
            bumps.counted(i, "stream_begun", count)


def nothing_left(bumps):
    def left(i):
        streams = bumps.stats(i)["streams"]
        return streams["tracked"] + streams["records"] + streams["record_bytes"]

    for i in range(2):
        rings.wait_for(lambda i=i: left(i) == 0, f"accelerator {i} has forgotten connections that are closed", 30)


def full_table(hosts, bumps):
    """Opens more connections than the table has entries. The connections without an entry work, too, uncompressed."""
    assert "connections: 64" in bumps.config(0).read_text()
    connections = Connections(hosts)
    for i in range(300):
        connections.open("one of 300", ways=1, floats=4000, kind=("laplace", "special")[i % 2])
    changed = connections.run()
    for i in range(2):
        rings.wait_for(lambda i=i: bumps.stats(i)["streams"]["tracked"] == 64, f"the table of {i} is full")
        bumps.counted(i, "raw_unknown", 1)
        bumps.counted(i, "compressed", 1)
    connections.close()
    assert 0 < sum(one > 0 for one in changed) < 300, "none was compressed, or all"
    nothing_left(bumps)
    connections = Connections(hosts)
    connections.open("after the 300", floats=10_000)
    assert min(connections.run()) > 0, "a later connection finds no place in the table"
    connections.close()


def little_memory(hosts, bumps):
    """Checks that segments are sent uncompressed if there is no memory to remember them until they are acknowledged.
    Returns whether memory was full.

    On a slow machine it may not get full: after 3 s without any answer, the accelerator stops compressing.
    """
    assert "memory: {records: 1MiB}" in bumps.config(0).read_text()
    arrays = [traffic.laplace(3600, seed=i, scale=0.2) for i in range(300)]
    pairs = [traffic.connect(hosts, 0, 1, tos=traffic.MARK) for _ in arrays]
    hosts.partition([])
    for array, (ours, _) in zip(arrays, pairs):
        ours.sendall(array.tobytes())
    with contextlib.suppress(AssertionError):
        bumps.counted(0, "raw_no_memory", 1, patience=4)
    assert bumps.stats(0)["streams"]["record_bytes"] <= 1 << 20
    full = bumps.counter(0, "raw_no_memory") > 0 and bumps.counter(0, "compressed") > 0
    hosts.heal()
    for i, (array, (_, theirs)) in enumerate(zip(arrays, pairs)):
        traffic.check_floats(array, traffic.read(theirs, array.nbytes), what=f"little memory, connection {i}")
    traffic.close(*pairs)
    return full


def injected(hosts, bumps, codec, count=3000):
    """Tests faults that the accelerators themselves inject into all frames from the wire, by their configuration."""
    connections = Connections(hosts, codec)
    for i in range(4):
        connections.open("injected faults", floats=100_000, kind=("edges", "special", "gaussian", "wide")[i])
        connections.open("injected faults", floats=50_000, tos=0)
    changed = connections.run()
    connections.close()
    assert sum(changed) > 0, "nothing was compressed"
    for tos in (traffic.MARK, 0):
        datagrams(hosts, codec, tos, count)
    # Each accelerator finds some packets damaged and drops them.
    for i in range(2):
        bumps.counted(i, "wire_dropped", 1)


def datagrams(hosts, codec, tos, count):
    """Sends datagrams, of which some are lost and some arrive twice. All that arrive must be right. The first float of
    each is its number, which is large enough to be sent exactly."""
    arrays = [traffic.laplace(8 + i % 361, seed=i) for i in range(count)]
    for i, array in enumerate(arrays):
        array[0] = 20000 + i
    with traffic.Datagrams(hosts, 0, 1, tos) as ends:
        arrived = []
        for begin in range(0, count, ends.BURST):
            for array in arrays[begin : begin + ends.BURST]:
                ends.sender.send(array.tobytes())
            # A burst is small enough for all buffers, however slow the accelerators are. Some of each burst must
            # arrive.
            ends.receiver.settimeout(rig.PATIENCE)
            arrived.append(ends.receiver.recv(65536))
            ends.receiver.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                while len(arrived) < begin + ends.BURST:
                    arrived.append(ends.receiver.recv(65536))
    for payload in arrived:
        number = int(numpy.frombuffer(payload[:4], dtype="<f4")[0]) - 20000
        assert 0 <= number < count, f"a datagram that nobody sent: {payload}"
        changed = traffic.check_floats(arrays[number], payload, codec, f"datagram {number}")
        assert tos or not changed, f"datagram {number}, without the mark, is not as it was sent"
    assert count / 2 < len(arrived) < 2 * count, f"{len(arrived)} datagrams of {count} came"


def pin_neighbours(hosts):
    """Makes both hosts' ARP entries permanent. ARP has no checksum, so a damaged answer would break all connections at
    once."""
    for i in range(2):
        mac = hosts.node(i).run("cat", "/sys/class/net/gl0/address").strip()
        hosts.node(1 - i).ip("neigh", "replace", rig.address(i), "lladdr", mac,
                      "dev", "gl0", "nud", "permanent")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    parser.add_argument("--superpackets", action="store_true", help="accelerators have them with their kernels")
    parser.add_argument("--bump", choices=("accelerator", "testpmd"), default="accelerator")
    args = parser.parse_args()
    networks.require("ping", "sysctl", *(["dpdk-testpmd"] if args.bump == "testpmd" else []))

    def check(what, function, *more):
        begin = time.monotonic()
        result = function(*more)
        print(f"{what}: {time.monotonic() - begin:.1f} s", flush=True)
        return result

    with tempfile.TemporaryDirectory() as name, rig.Hosts() as hosts:
        folder = pathlib.Path(name)
        pin_neighbours(hosts)

        @contextlib.contextmanager
        def bumps_with(**settings):
            with rig.Bumps(hosts, folder, args.gradlaned, args.bump, args.superpackets, **settings) as bumps:
                bumps.start().wait_up()
                if args.bump == "accelerator":
                    bumps.warm(0, 1)
                    bumps.warm(1, 0)
                yield bumps

        with bumps_with() as bumps:
            check("1000 connections", many_connections, hosts, bumps)
            check("loss, with all options of TCP", loss_and_options, hosts, bumps)
            check("other boundaries", other_boundaries, hosts, bumps)
            check("any boundaries", any_boundaries, hosts, bumps)
            check("slow readers", slow_readers, hosts, bumps)
            if args.bump == "accelerator":
                check("nothing left", nothing_left, bumps)
        if args.bump == "accelerator":
            faults = "{drop: 1%, duplicate: 1%, reorder: 2%, corrupt: 1%, seed: 7}"
            for codec, repack in (("fixed:10", "true"), ("inceptionn:8", "false")):
                with bumps_with(codec=codec, repack=f"{{enabled: {repack}}}", faults=faults) as bumps:
                    check(f"injected faults, {codec}", injected, hosts, bumps, codec)
            with bumps_with(connections=64) as bumps:
                check("a full table", full_table, hosts, bumps)
            full = False
            for _ in range(5):
                with bumps_with(memory="{records: 1MiB}") as bumps:
                    full = full or check("little memory", little_memory, hosts, bumps)
                if full:
                    break
            assert full, "memory was never full"
    print("TCP is sound under faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
