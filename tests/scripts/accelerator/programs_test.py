#!/usr/bin/python3
"""Tests programs that know nothing of accelerators, between two hosts that have one each.

Data without the mark must arrive exactly as sent, and data with the mark within the codec's bound.

With --bump testpmd, dpdk-testpmd replaces the accelerators, and only cases without compression run. This tests the test
itself.
"""

import argparse
import functools
import hashlib
import itertools
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

from tests.scripts.accelerator import rig, traffic
from tests.scripts.fixtures import networks, rings

FLOATS = 200_000  # floats of each kind in each direction
DOWNLOAD = f"""
import hashlib, sys, urllib.request
for url in sys.argv[1:]:
    with urllib.request.urlopen(url, timeout={rig.PATIENCE}) as answer:
        print(hashlib.sha256(answer.read()).hexdigest(), flush=True)
"""


# ---- Without the mark


def bumps_matter(hosts, bumps):
    """Checks that no packet passes around the bumps."""
    ping = hosts.command(0, "ping", "-c", "1", "-W", "1", rig.address(1))
    bumps.stop(1)
    assert subprocess.run(ping, capture_output=True, timeout=rig.PATIENCE).returncode != 0, "a ping without a bump"
    bumps.cont(1)
    bumps.wait_up()


def fragments(bumps, *sizes):
    """Returns `sizes`, for packets that the sender must fragment; none for testpmd. The kernel reassembles fragments
    before testpmd gets them, and the results are longer than the MTU."""
    return list(sizes) if bumps.kind == "accelerator" else []


def ping(hosts, bumps, sizes=range(1473)):
    traffic.ping_all_sizes(hosts, 0, 1, sizes)
    traffic.ping_all_sizes(hosts, 1, 0, fragments(bumps, 1473, 4000, 8000), together=1)
    for size in (0, 56, 1472, *fragments(bumps, 4000)):
        # The kernel drops fragments of long packets if it gets no CPU for a while, so there are three tries.
        for left in (2, 1, 0):
            output = hosts.node(1).run("ping", "-c", "3", "-i", "0.05", "-W", "30", "-s", size, rig.address(0))
            assert "wrong data" not in output, output
            if " 0% packet loss" in output:
                break
            assert left != 0, output


def iperf(hosts, *options):
    server = hosts.process(1, "iperf3", "-s", "-1", "--forceflush")
    for line in server.stdout:
        if "listening" in line:
            break
    output = hosts.node(0).run("iperf3", "-c", rig.address(1), "-J", "-t", "1", *options)
    server.communicate(timeout=rig.PATIENCE)
    assert server.returncode == 0
    assert json.loads(output)["end"]["sum_received"]["bytes"] > 1 << 20, output


def iperf_ways(hosts, _bumps):
    iperf(hosts)
    iperf(hosts, "--reverse")
    iperf(hosts, "--parallel", "8")


def interactive(hosts, _bumps, times=2000):
    """Exchanges a few bytes in each direction, many times, as a remote shell does."""
    generator = random.Random(1)
    client, server = traffic.connect(hosts, 0, 1)
    for sock in (client, server):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(times):
        for sender, receiver in ((client, server), (server, client)):
            data = generator.randbytes(generator.choice((1, 1, 2, 3, 5, 36, 37, 52, 115, 1001)))
            sender.sendall(data)
            assert traffic.read(receiver, len(data)) == data
    traffic.close((client, server))


def downloads(hosts, _bumps, folder):
    generator = random.Random(2)
    sums, urls = [], []
    for size in (0, 1, 1447, 1448, 1449, 100_003, 1 << 20, 8_000_001):
        data = generator.randbytes(size)
        (folder / f"file{size}").write_bytes(data)
        sums.append(hashlib.sha256(data).hexdigest())
        urls.append(f"http://{rig.address(1)}:8000/file{size}")
    server = hosts.process(1, sys.executable, "-u", "-m", "http.server", "--bind", rig.address(1),
                           "--directory", folder, "8000", stdout=subprocess.PIPE)
    try:
        assert "Serving" in server.stdout.readline()
        output = hosts.node(0).run(sys.executable, "-c", DOWNLOAD, *urls)
    finally:
        server.kill()
        server.communicate()
    assert output.split() == sums, output


def connections(hosts, _bumps, count=100):
    """Opens many connections at the same time, with bytes in both directions of each."""
    generator = random.Random(3)
    pairs = [traffic.connect(hosts, i % 2, 1 - i % 2) for i in range(count)]
    transfers = []
    for i, (one, other) in enumerate(pairs):
        for ends in ((one, other), (other, one)):
            data = generator.randbytes(generator.randint(1, 100_000))
            transfers.append(traffic.Transfer(*ends, data, traffic.odd_chunks(i), what=f"connection {i}"))
    for transfer in transfers:
        transfer.check_exact()
    traffic.close(*pairs)


def other_marks(hosts, bumps):
    """Checks that programs can use any other ToS, even 0x30, which accelerators use among themselves."""
    generator = random.Random(4)

    def is_tcp(frame, outgoing):
        return not outgoing and frame[12:14] == b"\x08\0" and frame[23] == 6

    with (rig.Sniffer(hosts, hosts.names[1], "gl0", is_tcp) as arrived,
          rig.Sniffer(hosts, hosts.switch, "p0", is_tcp) as wire):
        client, server = traffic.connect(hosts, 0, 1, tos=0x30)
        port = client.getsockname()[1].to_bytes(2, "big")
        data = generator.randbytes(300_000)
        traffic.Transfer(client, server, data, traffic.odd_chunks(), what="TCP, 0x30").check_exact()
        traffic.close((client, server))
        for sniffer, bit in ((arrived, 0), (wire, 0x80 if bumps.kind == "accelerator" else 0)):
            seen = {(frame[15], frame[20] & 0x80) for frame in sniffer.stop() if frame[34:36] == port}
            assert seen == {(0x30, bit)}, f"(ToS, reserved bit): {seen}, {bit:#x}"
    for tos in (0x30, 0x32, 0x2C, 0x08, 0x68, 0xFC, 0):
        sizes = [0, 1, 3, 4, 12, 400, 1471, 1472, *fragments(bumps, 1473, 4000)]
        payloads = [generator.randbytes(size) for size in sizes] * 3
        with traffic.Datagrams(hosts, 1, 0, tos) as datagrams:
            traffic.check_datagrams(payloads, datagrams.send(payloads), tos, f"UDP, ToS {tos:#x}")


# ---- With the mark


class Wire:
    """Measures the traffic of a `with` block. `grown` has the growth of the counters. `ratio` is the bytes from the
    host divided by the bytes on the wire."""

    def __init__(self, bumps, i):
        self.bumps, self.i, self.before = bumps, i, self._read(bumps, i)

    @staticmethod
    def _read(bumps, i):
        return traffic.wait_until_steady(lambda: {**(stats := bumps.stats(i))["counters"],
                                                  "host_bytes": stats["ports"]["host"]["received_bytes"],
                                                  "sent_bytes": stats["ports"]["wire"]["sent_bytes"]}, "counters rest")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            # A daemon that waits for a core publishes late, and its counters rest until then.
            rings.wait_for(lambda: self.bumps.stats(self.i)["ports"]["wire"]["sent_bytes"] > self.before["sent_bytes"],
                           "counters of the data", rig.PATIENCE)
            after = self._read(self.bumps, self.i)
            self.grown = {name: after[name] - self.before[name] for name in after}
            self.ratio = self.grown["host_bytes"] / max(1, self.grown["sent_bytes"])


def stream(hosts, codec, ways, kind, floats=FLOATS, **options):
    """Sends floats of one kind over a TCP connection, in both directions at the same time if `ways` is 2. Returns the
    number of floats that compression changed, in the direction with fewer of them."""
    pair = traffic.connect(hosts, 0, 1, tos=traffic.MARK, late=options.pop("late", False))
    for sock in pair:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, options.get("nodelay", 0))
    transfers = []
    for way in range(ways):
        values = traffic.KINDS[kind](floats, seed=10 + way)
        chunks = options.get("chunks", lambda: 65536)
        name = f"TCP, {kind}, way {way}, {options}"
        transfers.append((values, traffic.Transfer(pair[way], pair[1 - way], values.tobytes(), chunks, what=name)))
    changed = [traffic.check_floats(values, transfer.finish(), codec, transfer.what) for values, transfer in transfers]
    traffic.close(pair)
    return min(changed)


def float_streams(hosts, bumps, codec, floats=FLOATS):
    bumps.warm(0, 1)
    bumps.warm(1, 0)
    with Wire(bumps, 0) as wire:
        assert stream(hosts, codec, 1, "laplace", floats) > floats / 2, "Laplace's floats arrived as they were sent"
    assert wire.ratio > 3, f"only {wire.ratio:.2f} times fewer bytes on the wire: {wire.grown}"
    for kind in traffic.KINDS:
        stream(hosts, codec, 2, kind, floats)
        stream(hosts, codec, 2, kind, floats, chunks=traffic.odd_chunks())
    for kind in ("laplace", "special"):
        with Wire(bumps, 1) as wire:
            changed = stream(hosts, codec, 2, kind, floats, late=True, nodelay=1, chunks=traffic.odd_chunks())
        assert changed > 0 and wire.grown["compressed"] > 0, f"{kind}: {changed} floats changed, {wire.grown}"


def float_datagrams(hosts, bumps, codec):
    """Checks that datagrams arrive in order, within the bound, and with the ToS that they were sent with. Payloads that
    are not arrays of floats arrive exactly."""
    bumps.warm(0, 1)
    # Compressed and uncompressed datagrams alternate. They must not overtake each other.
    sizes = [size for _ in range(20) for size in (368, 1, 367, 256, 2, 16, 255, 3, 100, 17)]
    for tos, (kind, make) in itertools.product((0x28, 0x2A), traffic.KINDS.items()):
        arrays = [make(size, seed=i) for i, size in enumerate(sizes)]
        with traffic.Datagrams(hosts, 0, 1, tos) as datagrams:
            received = datagrams.send([array.tobytes() for array in arrays])
            datagrams.nothing_more()
        changed = 0
        for i, (array, (payload, seen)) in enumerate(zip(arrays, received)):
            changed += traffic.check_floats(array, payload, codec, f"UDP, {kind}, datagram {i}")
            assert seen == tos, f"ToS {seen:#x}"
        assert changed > 0 or kind == "wide", f"UDP, {kind}: nothing was compressed"
    arrays = [traffic.laplace(368, seed=i) for i in range(1000)]
    with traffic.Datagrams(hosts, 0, 1, 0x28) as datagrams, Wire(bumps, 0) as wire:
        received = datagrams.send([array.tobytes() for array in arrays])
    assert sum(traffic.check_floats(array, got[0], codec) for array, got in zip(arrays, received)) > 368 * 500
    assert wire.ratio > 3, f"only {wire.ratio:.2f} times fewer bytes on the wire: {wire.grown}"
    shapeless = [traffic.laplace(1100).tobytes()[:size] for size in (0, 1, 2, 3, 5, 401, 1470, 1471, 1473, 1500, 4397)]
    with traffic.Datagrams(hosts, 0, 1, 0x28) as datagrams:
        traffic.check_datagrams(shapeless, datagrams.send(shapeless), 0x28, "no floats")


def congestion(hosts, bumps, tos, what):
    """Checks that the switch's congestion mark (ECN) arrives with each packet."""
    arrays = [traffic.laplace(300, seed=i) for i in range(100)]
    hosts.congest(True)
    with traffic.Datagrams(hosts, 0, 1, tos | 2) as datagrams:
        received = datagrams.send([array.tobytes() for array in arrays])
    hosts.congest(False)
    for array, (payload, seen) in zip(arrays, received):
        assert seen == tos | 3, f"{what}: ToS {seen:#x}"
        changed = traffic.check_floats(array, payload, bumps.codec, what)
        assert (changed > 0) == (tos == traffic.MARK), f"{what}: {changed} floats changed"


def no_checksum(hosts, bumps):
    """Checks that a datagram without a checksum arrives without one."""
    bumps.warm(0, 1)

    def marked(frame, outgoing):
        return not outgoing and frame[12:14] == b"\x08\0" and frame[23] == 17 and frame[15] == 0x28

    arrays = [traffic.laplace(300, seed=i) for i in range(20)]
    for without in (True, False):
        with (rig.Sniffer(hosts, hosts.names[1], "gl0", marked) as arrived,
              traffic.Datagrams(hosts, 0, 1, 0x28, no_checksum=without) as datagrams):
            for array, (payload, _) in zip(arrays, datagrams.send([array.tobytes() for array in arrays])):
                assert traffic.check_floats(array, payload, bumps.codec) > 0, "not compressed"
            frames = arrived.stop()
        assert len(frames) == len(arrays)
        assert all((frame[40:42] == b"\0\0") == without for frame in frames), "UDP checksums"


def restart(hosts, bumps, codec):
    """Restarts both daemons. They leave an older connection uncompressed, because they have not seen its start."""
    old = traffic.connect(hosts, 0, 1, tos=traffic.MARK)
    values = traffic.laplace(FLOATS)
    before = traffic.Transfer(*old, values.tobytes(), what="before the restart").finish()
    assert traffic.check_floats(values, before, codec) > 0
    for i in range(2):
        rings.wait_for(lambda i=i: bumps.stats(i)["streams"]["records"] == 0, "all is acknowledged")
        assert bumps.terminate(i) == 0, bumps.log(i)
    bumps.start().wait_up().warm(0, 1)
    for way in range(2):
        traffic.Transfer(old[way], old[1 - way], values.tobytes(), traffic.odd_chunks(), what="after it").check_exact()
    bumps.counted(0, "raw_unknown", 1)
    assert stream(hosts, codec, 1, "laplace") > FLOATS / 2, "a new connection is not compressed"
    traffic.close(old)


def check_superpackets(bumps, wanted):
    """Checks that superpackets are sent in both directions if `wanted`, and that there are none otherwise."""
    for i in range(2):
        stats = bumps.stats(i)
        port = stats["ports"]["host"]
        for name in ("superpackets_received", "superpackets_sent"):
            assert (port[name] > 0) == wanted, f"host {i}: {name} is {port[name]}"
        assert stats["counters"]["super_segment"] == 0 and stats["advice"] == [], stats


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    parser.add_argument("--superpackets", action="store_true", help="accelerators have them with their kernels")
    parser.add_argument("--bump", choices=("accelerator", "testpmd"), default="accelerator")
    args = parser.parse_args()
    networks.require("ping", "iperf3", *(["dpdk-testpmd"] if args.bump == "testpmd" else []))

    def check(what, function, hosts, bumps, *more):
        begin = time.monotonic()
        function(hosts, bumps, *more)
        print(f"{what}: {time.monotonic() - begin:.1f} s", flush=True)

    with tempfile.TemporaryDirectory() as name, rig.Hosts() as hosts:
        folder = pathlib.Path(name)
        with rig.Bumps(hosts, folder, args.gradlaned, args.bump, args.superpackets) as bumps:
            bumps.codec = "fixed:10"
            bumps.start().wait_up()
            check("nothing goes around", bumps_matter, hosts, bumps)
            check("ping", ping, hosts, bumps)
            check("iperf3", iperf_ways, hosts, bumps)
            check("interactive", interactive, hosts, bumps)
            check("downloads", functools.partial(downloads, folder=folder), hosts, bumps)
            check("100 connections", connections, hosts, bumps)
            check("other marks", other_marks, hosts, bumps)
            check("congestion", congestion, hosts, bumps, 0, "ECN without the mark")
        if args.bump == "accelerator":
            for codec in traffic.BOUNDS:
                for repack in ("true", "false"):
                    settings = {"codec": codec, "repack": f"{{enabled: {repack}}}", "superpackets": args.superpackets}
                    with rig.Bumps(hosts, folder, args.gradlaned, **settings) as bumps:
                        bumps.codec = codec
                        bumps.start().wait_up()
                        check(f"{codec}, repack {repack}: TCP", float_streams, hosts, bumps, codec)
                        check_superpackets(bumps, args.superpackets)
                        check(f"{codec}, repack {repack}: UDP", float_datagrams, hosts, bumps, codec)
                        if repack == "true":
                            check(f"{codec}: UDP checksums", no_checksum, hosts, bumps)
                            check(f"{codec}: congestion", congestion, hosts, bumps, traffic.MARK, codec)
                            check(f"{codec}: restart", restart, hosts, bumps, codec)
    print("programs get what they sent")
    return 0


if __name__ == "__main__":
    sys.exit(main())
