#!/usr/bin/python3
"""Tests the dissector with packets made by hand: floats of golden blocks, superpackets, and everything that can be
wrong.

Needs tshark.
"""

import math
import pathlib
import shutil
import struct
import sys
import tempfile
import unittest

from tests.scripts.fixtures.paths import ROOT
from tests.scripts.wireshark.captures import (Tshark, crc32c, datagram, hello, packet, probe, report, run, segments,
                                              write)

CODECS = ("raw", "bf16", "fp16", "pack", "fixed-1", "fixed-10", "fixed-30", "inceptionn-2", "inceptionn-10",
          "inceptionn-10-truncate", "inceptionn-14", "inceptionn-10-literal", "retired/trunc-16", "retired/trunc-22",
          "retired/deflate")
HELLO, ACK, DATA = 1, 2, 3


def number(text, name):
    """Returns the number of these hexadecimal digits in the golden file of a name."""
    form = ">e" if name.endswith("fp16") and len(text) == 4 else ">f"
    return struct.unpack(form, bytes.fromhex(text if form == ">e" else text.ljust(8, "0")))[0]


def golden(name):
    """Yields (codec, parameter, block, its floats) for a golden file's valid blocks that fit into a packet."""
    cases, wire, case = [], (0, 0), {}
    for line in (ROOT / "tests" / "compress" / "golden" / f"{name}.txt").read_text(encoding="ascii").splitlines():
        word, _, rest = line.partition(" ")
        if word == "wire":
            wire = tuple(map(int, rest.split()))
        elif word == "case":
            case = {"kind": rest.split()[0], "block": "", "out": ""}
            cases.append(case)
        elif word in ("block", "out"):
            case[word] += " " + rest
    for case in cases:
        block = bytes.fromhex(case["block"])
        floats = [number(text, name) for text in case["out"].split()]
        if case["kind"] in ("encode", "decode") and floats and len(block) < 9000:
            yield *wire, block, floats


def same(text, wanted):
    """Returns whether the text that tshark writes is this float."""
    if math.isnan(wanted):
        return "nan" in text.lower()
    return struct.pack("<f", float(text)) == struct.pack("<f", wanted)


class BlocksTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "made.pcap"
        self.tshark = self.reader()

    def reader(self, **options):
        tshark = Tshark(**options)
        self.addCleanup(tshark.close)
        return tshark

    def capture(self, *payloads, **options):
        write(self.file, [datagram(payload, **options) for payload in payloads])

    def verdicts(self):
        """Returns, for each frame, the texts of its expert remarks and the status of its CRCs."""
        return self.tshark.rows(self.file, "_ws.expert.message", "gradlane.crc.status", filter="udp")

    def test_floats(self):
        """Checks that the first 32 floats of each block are those of the golden files."""
        cases = []
        for name in CODECS:
            before = len(cases)
            cases += [(name, *case) for case in golden(name)]
            self.assertGreater(len(cases) - before, 2, name)
        self.capture(*(packet(DATA, run(block, len(floats), codec, param)) for _, codec, param, block, floats in cases))
        rows = self.tshark.rows(self.file, "gradlane.block.value", "_ws.expert.message")
        self.assertEqual(len(rows), len(cases))
        for (values, experts), (name, _, _, block, floats) in zip(rows, cases):
            with self.subTest(name, block=block.hex()):
                self.assertEqual(experts, [])
                self.assertEqual(len(values), min(32, len(floats)))
                self.assertEqual([pair for pair in zip(values, floats) if not same(*pair)], [])

    def test_packed(self):
        """Checks the parts of packed groups: one of +0, a plain one, one without and one with a mask."""
        blocks = (("40", 2), ("20 0000803f 00000000", 2), ("02 81 06 01 000080 000080 000000", 3),
                  ("1a 80 07000080 01 03 010000 000000 000000 000080", 32))
        self.capture(*(packet(DATA, run(bytes.fromhex(block), count, 23, 0)) for block, count in blocks))
        rows = self.tshark.rows(self.file, *(f"gradlane.block.{name}" for name in (
            "head", "planes", "base", "mask", "plane", "mantissas", "value")), "_ws.expert.message")
        self.assertEqual(rows, [
            [["0x0040"], [], [], [], [], [], ["0", "0"], []],
            [["0x0020"], [], [], [], [], [], ["1", "0"], []],
            [["0x0002"], ["2"], ["129"], [], ["06", "01"], ["000080000080000000"], ["-1", "-2", "2"], []],
            [["0x001a"], ["2"], ["128"], ["0x80000007"], ["01", "03"], ["010000000000000000000080"],
             ["1.40129846432482e-45", "0.5", "2"] + ["0"] * 28 + ["-2"], []]])

    def test_packed_halves(self):
        """Checks packed float16 and bfloat16. The start of their operation names the type."""
        for name, kind in (("pack-fp16", 2), ("pack-bf16", 3)):
            start = struct.pack("<QQHBBBBBB", 7, 3, 0, 0, kind, 0, 23, 0, 0)
            about = {"digest": crc32c(start), "operation": 5}
            cases = [case for case in golden(name) if len(case[3]) >= 32]
            payloads = [packet(DATA, run(start, 0, 0, 0, phase=2, **about))]
            payloads += [packet(DATA, run(block, len(floats), codec, param, **about))
                         for codec, param, block, floats in cases]
            self.capture(*payloads)
            rows = self.tshark.rows(self.file, "gradlane.block.value", "_ws.expert.message")[1:]
            self.assertEqual(len(rows), len(cases))
            for (values, experts), (_, _, block, floats) in zip(rows, cases):
                with self.subTest(name, block=block.hex()):
                    self.assertEqual(experts, [])
                    self.assertEqual([pair for pair in zip(values, floats) if not same(*pair)], [])

    def test_types(self):
        """Checks elements without a codec. They have the type that the start of their operation names."""
        kinds = {0: ("<f", 2.5), 1: ("<d", 1e300), 2: ("<e", -0.5), 4: ("<i", -7), 5: ("<q", -(1 << 40)), 6: ("<B", 200)}
        packets = []
        for kind, (form, value) in kinds.items():
            start = struct.pack("<QQHBBBBBB", 7, 3, 0, 0, kind, 0, 0, 0, 0)
            about = {"digest": crc32c(start), "operation": 5 + kind}
            block = struct.pack(form, value) * 3
            packets.append(packet(DATA, run(start, 0, 0, 0, phase=2, **about) + run(block, 3, 0, 0, **about)))
        self.capture(*packets)
        rows = self.tshark.rows(self.file, "gradlane.block.value", "_ws.expert.message")
        self.assertEqual(len(rows), len(kinds))
        for (values, experts), (form, value) in zip(rows, kinds.values()):
            self.assertEqual(([float(text) for text in values], experts), ([value] * 3, []), form)

    def test_superpackets(self):
        """Checks superpackets: packets of one length and a shorter last one, data that looks like a header, probes, and
        tags after packets."""
        bait = packet(DATA, run(bytes(4), 1, 0, 0))
        inner = bait + bytes(200 - len(bait))  # elements that begin like a packet
        long = [packet(DATA, run(inner, 50, 0, 0), sequence) for sequence in range(5)]
        last = packet(DATA, run(bytes(8), 2, 0, 0), 5)
        envelope = bytes(10) + bytes([2, 0]) + bytes([9]) * 16
        tagged = [part + envelope for part in (*long, last)]
        probes = [probe(548), probe(44)]
        mixed = [long[0], probe(len(long[0]), 2), packet(2, b"")]
        bare = bytes([0x11]) * 36 + bytes(10) + bytes([1, 0]) + bytes([9]) * 16  # a hello without a packet
        ended = [tagged[0], bare]
        ended_later = [*tagged[:3], bare]
        cases = ([*long, last], long, tagged, [packet(2, b"")] * 3, probes, mixed, ended, ended_later)
        self.capture(*(b"".join(parts) for parts in cases))
        rows = self.tshark.rows(
            self.file, "gradlane.packet.length", "gradlane.crc.status", "gradlane.sequence", "gradlane.envelope.tag")
        self.assertEqual(len(rows), len(cases))
        for (lengths, crcs, sequences, tags), parts in zip(rows, cases):
            self.assertEqual(lengths, [str(len(part)) for part in parts])
            self.assertEqual(set(crcs), {"good"})
            self.assertEqual(len(tags), len(parts) if parts in (tagged, ended, ended_later) else 0)
            self.assertEqual(len(sequences), sum(part[:2] == b"GL" for part in parts))

    def test_envelopes(self):
        """Checks packets in envelopes: with a CRC of the link header alone, and encrypted ones."""
        def envelope(kind, counter):
            return struct.pack("<QHBB", counter, 0x5051, kind, 0) + bytes([9]) * 16

        whole = packet(DATA, run(bytes(8), 2, 0, 0))
        header = whole[:40] + packet(DATA, b"")[40:44] + whole[44:]  # its CRC is that of the link header
        self.capture(header + envelope(2, 7), bytes([0xa5]) * 100 + envelope(2, 8), bytes([0xa5]) * 36 + envelope(1, 9))
        rows = self.tshark.rows(self.file, "gradlane.crc.status", "gradlane.envelope.counter", "gradlane.sealed",
                                "gradlane.lives")
        self.assertEqual(rows, [
            [["good for the link header - the tag covers the rest"], ["7"], [], []],
            [[], ["8"], ["a5" * 100], []],
            [[], ["9"], [], ["a5" * 36]]])

    def check_in_both_passes(self, wanted, *fields):
        """Asserts that these are the rows of fields, also if Wireshark dissects the frames a second time."""
        for passes in ((), ("-2",)):
            self.assertEqual(self.tshark.rows(self.file, *fields, between=";", options=passes), wanted, passes)

    def test_segments(self):
        """Checks that a packet is shown where the last of its segments is, in any order, and that nothing else is
        joined: segments of others, of another sequence, or of a packet that lost its place."""
        block = struct.pack("<100f", *range(100))
        first, second, later = (packet(DATA, run(block, 100, 0, 0), sequence) for sequence in (17, 18, 17 + 128))
        again = packet(DATA, run(block, 100, 0, 0), 17)  # the same packet with another acknowledgement
        again = again[:24] + b"\7" + again[25:40]
        again += struct.pack("<I", crc32c(first[44:], again)) + first[44:]
        a, b, c, d = (segments(it, 120) for it in (first, second, again, later))
        self.assertEqual(len(a), 4)
        whole = "data seq {} ack {}: reduce op 5 block 1 granule 0, 100 by raw"
        cases = [
            (a[0], 18400, "segment 0 of packet 17"),
            (b[0], 18400, "segment 0 of packet 18"),
            (a[3], 18400, "segment 3 of packet 17, the last"),
            (a[1], 18401, "segment 1 of packet 17"),
            (a[2], 18400, "segment 2 of packet 17"),
            (report(first, (0, 2, 3)), 18400, "report: packet 17, 3 of its segments have arrived"),
            (report(first, (0, 2, 3), overdue=True), 18400,
             "report: packet 17, 3 of its segments have arrived, it is overdue"),
            (c[0], 18400, "segment 0 of packet 17"),
            (c[1], 18400, "segment 1 of packet 17: " + whole.format(17, 7)),
            (b[2], 18400, "segment 2 of packet 18"),
            (b[1], 18400, "segment 1 of packet 18"),
            (b[3], 18400, "segment 3 of packet 18, the last: " + whole.format(18, 0)),
            (b[3], 18400, "segment 3 of packet 18, the last"),
            (a[0], 18400, "segment 0 of packet 17"),
            (d[1], 18400, "segment 1 of packet 145"),
            (a[1], 18400, "segment 1 of packet 17"),
            (a[2], 18400, "segment 2 of packet 17"),
            (a[3], 18400, "segment 3 of packet 17, the last"),
            (a[0], 18400, "segment 0 of packet 17: " + whole.format(17, 0)),
        ]
        write(self.file, [datagram(payload, source=source) for payload, source, _ in cases])
        values = [str(value) for value in range(32)]
        self.check_in_both_passes(
            [[[text], ["good"] if "data" in text else [], values if "data" in text else [], []] for *_, text in cases],
            "_ws.col.Info", "gradlane.crc.status", "gradlane.block.value", "_ws.expert.message")
        fields = ("magic", "number", "last", "report", "session", "sequence", "arrived")
        rows = self.tshark.rows(self.file, *(f"gradlane.segment.{name}" for name in fields))
        self.assertEqual(rows[2], [["0x5347"], ["3"], ["1"], ["0"], ["0xee"], ["17"], []])
        self.assertEqual(rows[5], [["0x5347"], ["0"], ["0"], ["1"], ["0xee"], ["17"], ["0x000000000000000d"]])

    def test_superpackets_of_segments(self):
        """Checks superpackets: segments of several packets, data that looks like a header, a packet as long as a
        segment, and last datagrams that are shorter."""
        ack = packet(ACK, b"", 9)
        bait = ack[:8] + b"\1" + ack[9:] + b"GS\1\1" + bytes(24)  # of another session

        def cut(sequence, elements=bait * 4 + bytes(56), padding=b""):
            return segments(packet(DATA, run(elements, len(elements) // 4, 0, 0) + padding, sequence), 136)

        a, b, c, d, e, f = *map(cut, range(1, 5)), cut(5, bytes(200)), cut(6, bytes(208), b"\0")
        single = packet(DATA, run(bytes(80), 20, 0, 0), 8)
        reports = [report(packet(DATA, b"", sequence), (0, 63)) for sequence in (3, 4, 7)]
        self.assertEqual({len(it) for it in (*a, *b, *c, *d, single)}, {144})
        self.assertEqual(([len(it) for it in e], [len(it) for it in f]), ([144, 136], [144, 144, 9]))
        data = "data seq {} ack 0: reduce op 5 block 1 granule 0, {} by raw"
        end = "segment {} of packet {}, the last: " + data
        cases = [
            ([a[0]], "segment 0 of packet 1"),
            ([*a[1:], *b], "5 datagrams: " + end.format(2, 1, 1, 86) + " | " + end.format(2, 2, 2, 86)),
            ([*c[:2], reports[0]], "3 datagrams: segment 1 of packet 3 | "
                                   "report: packet 3, 2 of its segments have arrived"),
            ([c[2], ack], "2 datagrams: " + end.format(2, 3, 3, 86) + " | acknowledgement seq 9 ack 0"),
            ([single, *d], "4 datagrams: " + data.format(8, 20) + " | " + end.format(2, 4, 4, 86)),
            (reports, "3 datagrams: " + " | ".join(
                f"report: packet {sequence}, 2 of its segments have arrived" for sequence in (3, 4, 7))),
            (e, "2 datagrams: " + end.format(1, 5, 5, 50)),
            (f, "3 datagrams: " + end.format(2, 6, 6, 52)),
        ]
        self.capture(*(b"".join(datagrams) for datagrams, _ in cases))
        self.check_in_both_passes(
            [[[text], [str(len(datagrams))] if len(datagrams) > 1 else [], ["good"] * text.count(" seq "), []]
             for datagrams, text in cases],
            "_ws.col.Info", "gradlane.superpacket", "gradlane.crc.status", "_ws.expert.message")

    def test_segments_that_are_no_packet(self):
        """Checks segments of which a part is not captured, and segments that cannot be a packet."""
        whole = packet(DATA, run(bytes(400), 100, 0, 0), 1)
        first, last = segments(whole, 300)
        no_packet = bytes(4) + whole[4:]
        long = packet(DATA, bytes(16384 - 43), 2)
        frames = [datagram(first), datagram(last, snap=42 + 60),
                  *map(datagram, segments(no_packet, 300)), *map(datagram, segments(long, 8200)),
                  datagram(b"GS\x40" + bytes(6)), datagram(segments(first, 300)[0])]
        write(self.file, frames)
        rows = self.verdicts()
        self.assertEqual(self.tshark.count(self.file, "gradlane"), len(frames))
        remarks = [[], ["The capture has less of this packet than was sent"], [], ["The segments are no packet"]]
        self.assertEqual(rows, [[it, []] for it in (*remarks, *remarks[2:], *remarks[3:], *remarks[:1])])
        self.assertEqual(self.tshark.count(self.file, "_ws.malformed || _ws.lua.error"), 0)

    def test_segments_of_other_ports(self):
        """Checks that segments between any ports are shown if a packet or a first segment comes before them. The second
        pass shows those before it, too."""
        first, second, last = segments(packet(DATA, run(bytes(200), 50, 0, 0)), 100)
        frames = [(second, 30001), (packet(ACK, b""), 30000), (last, 30000), (first, 30001), (second, 30001),
                  (last, 30001)]
        write(self.file, [datagram(payload, source=port, target=port) for payload, port in frames])
        wanted = [[["1"], []], [["2"], ["2"]], [["3"], []], [["4"], []], [["5"], []], [["6"], ["3"]]]
        for passes, rows in (((), wanted[1:]), (("-2",), wanted)):
            self.assertEqual(self.tshark.rows(self.file, "frame.number", "gradlane.kind", options=passes), rows)

    def test_mtu_of_a_hello(self):
        for bits, wanted in ((0, [["1472"], ["0"]]), (0x8000, [["1472"], ["1"]])):
            text = bytearray(hello(0, 2))
            text[38:40] = struct.pack("<H", bits | 1472)
            self.capture(packet(HELLO, bytes(text)))
            self.assertEqual(self.tshark.rows(self.file, "gradlane.hello.mtu", "gradlane.hello.in_segments"), [wanted])

    def test_what_is_wrong(self):
        good = packet(DATA, run(bytes(8), 2, 0, 0))
        start = struct.pack("<QQHBBBBBB", 7, 3, 0, 0, 0, 0, 0, 0, 0)
        abort = struct.pack("<QQHBBI", 1, 2, 3, 4, 9, 0)
        cases = [
            (good[:-1] + b"\1", "CRC is wrong"),
            (packet(DATA, b"", version=3), "Another version"),
            (packet(1, bytes(40)), "fewer than 56 bytes"),
            (packet(DATA, run(bytes(8), 2, 0, 0)[:-1]), "does not fit its packet"),
            (packet(DATA, run(bytes(8), 2, 0, 0) + b"\0\0\1"), "no padding"),
            (packet(DATA, run(bytes(6), 2, 1, 0)), "no block of this codec: 6 bytes, but 4 expected"),
            (packet(DATA, run(b"\x0f" + bytes(4), 5, 4, 10)), "no block of this codec: it ends within its escapes"),
            (packet(DATA, run(start, 0, 0, 0, phase=2)), "not that of the descriptor"),
            (packet(DATA, run(abort, 0, 0, 0, phase=3)), "operation failed: mismatch, rank 3, count"),
            (packet(1, bytes(44) + b"\1\0\2\0" + bytes(13) + b"\x17" + bytes(20)), "silent, rank 2"),
        ]
        self.capture(*(payload for payload, _ in cases))
        found = self.verdicts()
        self.assertEqual(len(found), len(cases))
        for (payload, wanted), (experts, _) in zip(cases, found):
            self.assertIn(wanted, ",".join(experts), payload.hex())
        self.assertEqual([status for _, status in found], [["bad"]] + [["good"]] * (len(cases) - 1))
        self.assertEqual(self.tshark.count(self.file, "_ws.malformed || _ws.lua.error"), 0)

    def test_cut(self):
        """Checks packets of which the capture has only a part. The CRC is unknown, and the only remark is that bytes
        are missing."""
        payload = packet(DATA, run(bytes(400), 100, 0, 0))
        write(self.file, [datagram(payload, snap=snap) for snap in range(42 + 44, 42 + len(payload))])
        rows = self.tshark.rows(self.file, "gradlane.crc.status", "_ws.expert.message", "gradlane.sequence")
        self.assertEqual(len(rows), len(payload) - 44)
        for status, experts, _ in rows:
            self.assertIn("unknown", "".join(status))
            self.assertEqual(experts, ["The capture has less of this packet than was sent"])

    def test_others(self):
        """Checks that the dissector does not dissect packets that are not gradlane's."""
        self.capture(bytes(100), b"GL" + bytes(20), b"GL\2\7" + bytes(60), b"\xa6\x21" + bytes(60))
        self.assertEqual(self.tshark.count(self.file, "gradlane"), 0)

    def test_examples_of_the_page(self):
        """Checks the example packets of docs/wire-format.md."""
        ack = "474c0202070000 00eeffc000 01000000 0500000000000000 e803000080000000 4533221105030201 c9735d07"
        probe = ("47500101443322 11ccbbaa9988776655 efcdab8967452301 04000200dc05040a 0200000028000000"
                 "200be8540000")
        self.capture(bytes.fromhex(ack), bytes.fromhex(probe))
        rows = self.tshark.rows(self.file, "gradlane.crc.status", "gradlane.ack", "gradlane.sack", "gradlane.probe.node",
                                "gradlane.probe.codec", "gradlane.codec")
        self.assertEqual(rows, [[["good"], ["1000"], ["0x0000000000000005"], [], [], []],
                                [["good"], [], [], ["2"], ["4"], ["fixed:10"]]])

    def test_installed(self):
        """Checks that a link to the dissector's folder in the plugin folder is enough, and that its other files do no
        harm there."""
        self.capture(packet(2, b""))
        rows = self.reader(installed=True).rows(self.file, "gradlane.crc.status")
        self.assertEqual(rows, [[["good"]]])

    def test_coloring_rules(self):
        good = packet(DATA, run(bytes(8), 2, 0, 0))
        self.capture(good, good[:-1] + b"\1", packet(2, b""), packet(1, bytes(56)), *segments(good, 50))
        self.tshark.color()
        rows = self.tshark.rows(self.file, "frame.coloring_rule.name", options=("--color",))
        plain = [text.split("gradlane: ", 1)[1].split("\x1b")[0] for ((text, *_),) in rows]
        self.assertEqual(plain, ["sums on their way (reduce)", "a wrong CRC", "acknowledgements", "hellos and probes",
                                 "segments and reports", "sums on their way (reduce)"])


if __name__ == "__main__":
    if shutil.which("tshark") is None:
        print("needs tshark; tools/setup.sh installs it")
        sys.exit(77)
    unittest.main(verbosity=2)
