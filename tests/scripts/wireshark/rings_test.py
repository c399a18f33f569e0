#!/usr/bin/python3
"""Tests the dissector with the packets of rings and accelerators. It must dissect every packet, and show the floats
that were sent.

rings_test.py GRADLANED: needs root, ip, tc, nft, ethtool, and tshark with dumpcap.
"""

import collections
import pathlib
import sys
import tempfile
import unittest
import warnings

import numpy

from tests.scripts.accelerator import rig, traffic
from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.waiting import PATIENCE
from tests.scripts.wireshark.captures import Capture, Tshark

COUNT = 12_000  # floats of each operation
BY_RING = ("raw", "fp16", "fixed:10", "fixed:rel=10", "topk:10%+fixed:10")
CODECS = ("raw", "pack", "bf16", "fp16", "fixed:10", "fixed:10,stochastic", "fixed:rel=10", "inceptionn:10",
          "terngrad", "tbq:7", "signsgd", "signsgd,ternary", "signsgd,ef", "topk:10%", "topk:10%+fixed:10",
          "mstopk:10%", "dgc:10%", "graddrop:10%")
# codecs whose blocks cannot be summed while encoded; an owner adds the decoded elements
OWNED = ("onebit", "qsgd:4/256", "int8:512", "fp8")
WRONG = ("_ws.malformed || _ws.lua.error || gradlane.crc.status == \"bad\" || gradlane.expert.bad_version || "
         "gradlane.expert.bad_kind || gradlane.expert.too_short || gradlane.expert.bad_run || "
         "gradlane.expert.bad_digest || gradlane.expert.bad_block || gradlane.expert.bad_record || "
         "gradlane.expert.bad_segment || gradlane.expert.cut")
DATA = "3"  # kind
REDUCE = "0"  # phase


# Fields that are read of each frame. All are read in one pass, because the dissector is slow.
Frame = collections.namedtuple("Frame", "source target kinds probes sessions sequences crcs tags superpackets phases "
                                        "codecs counts types values steps names lengths segments")
FIELDS = ("ip.src", "ip.dst", "gradlane.kind", "gradlane.probe.kind", "gradlane.session", "gradlane.sequence",
          "gradlane.crc.status", "gradlane.envelope.tag", "gradlane.superpacket", "gradlane.run.phase", "gradlane.run.codec",
          "gradlane.run.count", "gradlane.run.type", "gradlane.block.value", "gradlane.block.steps", "gradlane.codec",
          "gradlane.packet.length", "gradlane.segment.number")


class Programs:
    daemon = ""


def floats_of(rank):
    """Returns multiples of 2^-9. Only codecs with few bits, or with steps relative to the largest float, round them."""
    return (numpy.random.default_rng(rank).integers(-200, 200, COUNT) / 512).astype("<f4")


class RingsTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gl-wireshark-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "ring.pcapng"
        self.tshark = Tshark()
        self.addCleanup(self.tshark.close)
        # These all-reduces keep no residuals, so warnings about rounding losses are expected.
        self.enterContext(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "all_reduce of .* by codec")

    def exchange(self, kind, nodes, network, **settings):
        """Captures at node 0's interface while a ring starts, all-reduces and ends. Returns the number of captured
        frames."""
        capture = Capture(self.file, "gl0", lambda *argv: network.command(0, *argv), "udp", 4 * COUNT)
        with capture, rings.Ring(kind, nodes, self.folder, Programs.daemon, network, strategies="[ring, direct]",
                                 **settings) as ring:
            ring.start().wait_whole()
            contexts = [ring.open(rank) for rank in range(nodes)]
            # The capture may lack the last frames, so the only all-reduce of doubles is not the last one.
            whole = [gl.zeros(100, "f8") for gl in contexts]
            for request in [gl.all_reduce(array, async_=True) for gl, array in zip(contexts, whole)]:
                request.wait(PATIENCE)
            for strategy in ("ring", "direct"):
                for codec in BY_RING if strategy == "ring" else CODECS + OWNED:
                    arrays = [gl.zeros(COUNT) for gl in contexts]
                    for rank, array in enumerate(arrays):
                        array[:] = floats_of(rank)
                    requests = [gl.all_reduce(array, codec=codec, strategy=strategy, async_=True)
                                for gl, array in zip(contexts, arrays)]
                    for request in requests:
                        request.wait(PATIENCE)
            for gl in contexts:
                gl.close()
        return capture.frames

    def check_nothing_wrong(self):
        wrong = self.tshark.rows(self.file, "frame.number", "_ws.expert.message", "_ws.col.Info", filter=WRONG)
        self.assertEqual(wrong[:5], [])

    def check_all(self, frames, nodes):
        """Asserts that each frame is one of gradlane's without any error, and that sequence numbers have no gaps.
        Returns the number of packets."""
        self.assertEqual(self.tshark.count(self.file, "udp", plain=True), frames)
        self.table = [Frame(*row) for row in self.tshark.rows(self.file, *FIELDS, between=";")]
        self.assertEqual(len(self.table), frames)
        self.check_nothing_wrong()
        numbers = collections.defaultdict(set)
        packets = 0
        for it in self.table:
            # A daemon that waits for long sends probes. A superpacket may have probes, too.
            self.assertEqual((len(it.sessions), len(it.sequences), len(it.crcs) - len(it.probes)), 3 * (len(it.kinds),), it)
            self.assertLessEqual(set(it.crcs), {"good", "good for the link header - the tag covers the rest"})
            self.assertTrue(it.crcs or it.segments or it.tags, it)
            packets += len(it.kinds)
            for kind, session, sequence in zip(it.kinds, it.sessions, it.sequences):
                if kind == DATA:
                    numbers[it.source[0], it.target[0], session].add(int(sequence))
        self.assertGreaterEqual(len(numbers), 2 * (nodes - 1), numbers.keys())
        for way, found in numbers.items():
            self.assertEqual(found, set(range(len(found))), way)
        return packets

    def check_floats(self, codec, name, more_than=5):
        """Checks floats that rank 0 sends before anything is added to them. In a ring of p ranks, these are block p -
        1, with which rank 0 begins."""
        sent, found = floats_of(0), 0
        values = {tuple(sent[at : at + 32].tolist()) for at in range(0, COUNT, 32)}
        for it in self.table:
            if it.source != ["10.77.0.1"] or REDUCE not in it.phases or str(codec) not in it.codecs:
                continue
            floats = [float(text) for text in it.values]
            at = 0
            for count in map(int, it.counts):
                group = tuple(floats[at : at + min(32, count)])
                found += group in values
                at += len(group)
        self.assertGreater(found, more_than, name)

    def check_what_was_told(self):
        """Checks that names of codecs have all arguments, and that no values are in steps, because all offers have been
        captured."""
        names = {name for it in self.table if REDUCE in it.phases for name in it.names}
        self.assertEqual(names, set(CODECS + OWNED))
        self.assertEqual([it for it in self.table if it.steps], [])

    def test_ring_on_ethernet(self):
        with networks.Network(4) as network:
            frames = self.exchange("veth", 4, network)
        self.assertEqual(self.check_all(frames, 4), sum(bool(it.kinds) for it in self.table))
        for codec, name in ((0, "raw"), (2, "fp16"), (4, "fixed:10"), (6, "fixed:rel=10")):
            self.check_floats(codec, name)
        self.check_what_was_told()
        self.assertEqual({kind for it in self.table for kind in it.types}, {"0", "1"})

    def test_ring_of_sockets(self):
        """Checks superpackets in which each packet is followed by its tag."""
        key = self.folder / "ring.key"
        key.write_text("07" * 32 + "\n", encoding="ascii")
        key.chmod(0o600)
        with networks.Network(2, kernel=True, offloads=True) as network:
            frames = self.exchange("udp", 2, network, auth=f"{{key_file: {key}}}")
        packets = self.check_all(frames, 2)
        self.assertGreater(sum(bool(it.superpackets) for it in self.table), 10)
        self.assertGreater(packets, frames)
        # Each packet has a tag. A hello without a packet may end a superpacket.
        self.assertEqual([it for it in self.table if it.kinds and len(it.tags) - len(it.crcs) not in (0, 1)], [])
        self.check_floats(0, "raw")
        self.check_floats(4, "fixed:10")

    def test_ring_in_segments(self):
        """Checks superpackets of segments, and the packets that are joined of them."""
        with networks.Network(2, kernel=True, offloads=True) as network:
            frames = self.exchange("udp", 2, network)
        self.check_all(frames, 2)
        self.assertGreater(sum(bool(it.superpackets) for it in self.table if it.segments), 10)
        self.assertGreater(sum(any(int(length) > 1472 for length in it.lengths) for it in self.table), 10)
        for codec, name in ((0, "raw"), (4, "fixed:10")):
            self.check_floats(codec, name, 0)  # the packets are so long that few are enough

    def test_accelerators(self):
        sent = traffic.laplace(60_000)
        with rig.Hosts() as hosts, rig.Bumps(hosts, self.folder, Programs.daemon) as bumps:
            capture = Capture(self.file, "p0", hosts.in_switch, "ip", sent.nbytes // 20)
            with capture:
                bumps.start().wait_up()
                bumps.warm()
                pair = traffic.connect(hosts, 0, 1, tos=traffic.MARK)
                traffic.check_floats(sent, traffic.Transfer(*pair, sent.tobytes()).finish())
                traffic.close(pair)
        # tshark does not show the content of a segment again that TCP has sent again.
        again = " || ".join(f"tcp.analysis.{kind}retransmission" for kind in ("", "fast_", "spurious_"))
        marked = f"ip.dsfield == 0x30 && !icmp && !({again})"
        self.assertEqual(self.tshark.count(self.file, "ip", plain=True), capture.frames)
        self.assertEqual(self.tshark.count(self.file, "gradlane"), self.tshark.count(self.file, marked, plain=True))
        self.check_nothing_wrong()
        self.assertGreater(self.tshark.count(self.file, "gradlane.bundle.kind == 2"), 0)
        self.assertGreater(self.tshark.count(self.file, "gradlane.bundle.kind == 3"), 0)
        rows = self.tshark.rows(self.file, "tcp.seq", "gradlane.record.lead", "gradlane.record.payload_bytes",
                                "gradlane.record.floats", "gradlane.block.value", filter="gradlane.record && tcp",
                                options=("-o", "tcp.relative_sequence_numbers:true"))
        self.assertGreater(len(rows), 10)
        self.assertGreater(max(len(payloads) for _, _, payloads, _, _ in rows), 1, "several packets share a frame")
        for (sequence,), leads, _, floats, values in rows:
            if leads:  # the payload begins in the middle of a float
                continue
            begin = (int(sequence) - 1) // 4
            expected = sent[begin : begin + min(32, int(floats[0]))].astype("f8")
            numpy.testing.assert_allclose([float(value) for value in values[: len(expected)]], expected, atol=2.0**-10)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    networks.require("tshark", "dumpcap")
    Programs.daemon = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
