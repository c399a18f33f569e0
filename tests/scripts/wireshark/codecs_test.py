#!/usr/bin/python3
"""Tests the dissector with blocks of every codec. It must show the floats that the library decodes, and reject the
blocks that the library rejects.

codecs_test.py PRINT_BLOCKS: the program that is built from tests/compress/print_blocks.cc. Needs tshark.
"""

import collections
import dataclasses
import math
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

from tests.scripts.fixtures.waiting import PATIENCE
from tests.scripts.wireshark.captures import Tshark, datagram, descriptor, hello, packet, run, write

HELLO, DATA = 1, 3
START, GATHER = 2, 1
VOTES, SPARSE, CHUNKS = range(9, 12), range(12, 16), range(16, 20)
SHOWN = 32
FIELDS = ("gradlane.codec", "gradlane.block.value", "gradlane.block.steps", "gradlane.block.place",
          "_ws.expert.message")
NO_BLOCK = "no block of this codec"


class Programs:
    print_blocks = ""


@dataclasses.dataclass
class Block:
    count: int
    bytes: bytes
    floats: tuple  # empty if the block is not valid


@dataclasses.dataclass
class Section:
    """Blocks of one operation."""

    codec: int
    name: str
    arguments: bytes
    offers: list = dataclasses.field(default_factory=list)
    blocks: list = dataclasses.field(default_factory=list)

    @property
    def sparse(self):
        return self.codec in SPARSE

    @property
    def plus(self):
        """Number b of the suffix "+fixed:b" of a codec's name."""
        return self.arguments[1]


def print_blocks():
    sections = []
    result = subprocess.run([Programs.print_blocks], capture_output=True, text=True, check=True, timeout=PATIENCE)
    for line in result.stdout.splitlines():
        word, *rest = line.split()
        if word == "codec":
            sections.append(Section(int(rest[0]), rest[1], bytes.fromhex(rest[2])))
        elif word == "offers":
            sections[-1].offers = [bytes.fromhex(text) for text in rest]
        else:
            count, block = int(rest[0]), bytes.fromhex(rest[1].strip("-"))
            floats = struct.unpack(f"<{count}f", bytes.fromhex(rest[2])) if len(rest) > 2 else ()
            sections[-1].blocks.append(Block(count, block, floats))
    return sections


def same(text, wanted, signed_zeros=True):
    """Returns whether the text that tshark writes is this float. Without `signed_zeros`, -0 is the same as 0."""
    if math.isnan(wanted):
        return text == "nan"
    if wanted == 0 and float(text) == 0 and not signed_zeros:
        return True
    return struct.pack("<f", float(text)) == struct.pack("<f", wanted)


def frames_of(section, operation):
    """Returns two lists of frames: the starts of three ranks (or one start, if there are no offers), and the section's
    blocks."""
    text, digest = descriptor(section.codec, section.arguments)
    param = section.arguments[0]

    def frame(payload, rank=0):
        return datagram(packet(DATA, payload), source=18400 + rank)

    starts = [frame(run(text + offer + bytes(4), 0, section.codec, param, START, digest, operation), rank)
              for rank, offer in enumerate(section.offers)]
    starts = starts or [frame(run(text, 0, section.codec, param, START, digest, operation))]
    return starts, [frame(run(block.bytes, block.count, section.codec, param, 0, digest, operation))
                    for block in section.blocks]


class CodecsCase(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.sections = print_blocks()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "made.pcap"
        self.tshark = Tshark()
        self.addCleanup(self.tshark.close)

    def rows(self, frames):
        """Returns the FIELDS of each of these frames. Asserts that the dissector's scripts have not failed on any of
        them."""
        write(self.file, frames)
        rows = self.tshark.rows(self.file, *FIELDS, "_ws.malformed", "_ws.lua.error")
        self.assertEqual(len(rows), len(frames))
        self.assertEqual([row for row in rows if row[-2:] != [[], []]], [])
        return [row[:-2] for row in rows]


class CodecsTest(CodecsCase):
    def check_dense(self, section, block, values, places):
        self.assertEqual((len(values), places), (min(SHOWN, block.count), []))
        # Signs of zeros are not compared for votes: the library has -0 where no value of a record has votes.
        signed = section.codec not in VOTES
        self.assertEqual([pair for pair in zip(values, block.floats) if not same(*pair, signed)], [])

    def check_sparse(self, _, block, values, places):
        """Checks that all values that are not 0 are shown, up to the last one shown. Some values that are 0 may be
        shown, too."""
        places = [int(text) for text in places]
        self.assertEqual(len(values), len(places))
        self.assertEqual([(place, value) for place, value in zip(places, values)
                          if not same(value, block.floats[place])], [])
        end = places[-1] + 1 if len(places) == SHOWN else block.count
        self.assertEqual({i for i, value in enumerate(block.floats[:end]) if value != 0} - set(places), set())
        self.assertEqual(places, sorted(set(places)))

    def test_what_the_library_decodes(self):
        """Checks valid and invalid blocks of every codec, with the starts of their operations and the ranks' offers."""
        frames = [datagram(packet(HELLO, hello(rank, 3)), source=18400 + rank) for rank in range(3)]
        wanted = [None] * len(frames)
        for operation, section in enumerate(self.sections):
            starts, blocks = frames_of(section, operation)
            frames += starts + blocks
            wanted += [None] * len(starts) + [(section, block) for block in section.blocks]
        seen = collections.Counter()
        for one, (codec, values, steps, places, experts) in zip(wanted, self.rows(frames)):
            if one is None:
                self.assertEqual(experts, [])
                continue
            section, block = one
            with self.subTest(section.name, count=block.count, block=block.bytes.hex()):
                self.assertEqual(",".join(codec), section.name)
                self.assertEqual(steps, [])
                seen[section.codec, bool(block.floats)] += 1
                if not block.floats:
                    self.assertEqual(values, [])
                    self.assertIn(NO_BLOCK if block.bytes else "Elements without bytes", ",".join(experts))
                    continue
                self.assertEqual(experts, [])
                (self.check_sparse if section.sparse else self.check_dense)(section, block, values, places)
        for codec in {section.codec for section in self.sections}:
            self.assertGreater(seen[codec, True], 20, codec)
            self.assertGreater(seen[codec, False], 1, codec)

    def test_without_starts(self):
        """Checks blocks whose starts are not captured, so that arguments and offers are unknown. Some values are then
        shown as numbers of steps."""
        frames, wanted = [], []
        for operation, section in enumerate(self.sections):
            frames += frames_of(section, operation)[1]
            wanted += [(section, block) for block in section.blocks]
        in_steps = collections.Counter()
        for (section, block), (_, values, steps, places, experts) in zip(wanted, self.rows(frames)):
            with self.subTest(section.name, count=block.count, block=block.bytes.hex()):
                # Some invalid blocks may look valid: as elements of another type, chunks of another size, or records of
                # another form.
                if block.floats or not (section.codec == 0 or section.sparse or section.codec in CHUNKS):
                    self.assertEqual(bool(experts), not block.floats)
                if not block.floats or section.sparse:
                    continue
                self.assertEqual(len(values) + len(steps), min(SHOWN, block.count))
                if not section.offers:
                    self.check_dense(section, block, values, places)
                elif not values:
                    in_steps[section.codec] += 1
                    ratios = {value / float(count) for value, count in zip(block.floats, steps) if float(count) != 0}
                    self.assertLessEqual(len(ratios), 1)
                    self.assertTrue(all(math.frexp(ratio)[0] == 0.5 for ratio in ratios), ratios)
        for codec in (6, 7, 11):
            self.assertGreater(in_steps[codec], 10, codec)

    def test_values_in_steps(self):
        """Checks records whose values are numbers of steps, if the length of a step is unknown."""
        record = bytes([2, 3, 200, 4, 0x5F])  # -1 and 5 steps, in 4 bits each
        ((_, values, steps, places, experts),) = self.rows([datagram(packet(DATA, run(record, 256, 12, 0)))])
        self.assertEqual((values, steps, places, experts), ([], ["-1", "5"], ["3", "200"], []))

    def test_what_is_no_block(self):
        """Checks rules that random blocks seldom break."""
        def deflated(data, count=2):
            return struct.pack("<HH", 0x8000 + count, len(data)) + data

        stream = zlib.compressobj(9, zlib.DEFLATED, -15)
        stream = stream.compress(bytes(8)) + stream.flush()
        cases = [
            (4, 10, 32, b"\x10", "a tag behind the last group"),
            (4, 10, 5, b"\x0f" + bytes(4) + b"\0\x20\0\0\0", "an escape behind the last float"),
            (4, 10, 32, b"\x0f" + bytes(4 * 17) + b"\x11\0\0\0\0", "an invalid escape"),
            (4, 10, 32, b"\x0f" + bytes(4 * 33) + b"\1\xff\xff\xff\xff", "an invalid escape"),
            (4, 31, 32, b"\0", "it does not allow parameter 31"),
            (3, 10, 1, b"\x0c" + bytes(8), "a tag behind the last float"),
            (9, 0, 8, b"\1\1" + bytes(10), "an invalid head"),
            (9, 0, 8, b"\1\4\0", "an invalid head"),
            (9, 0, 8, b"\1", "it ends within a head"),
            (9, 0, 8, b"\1\x80\0\0", "it ends within its planes"),
            (12, 0, 8, b"\2\1\2" + bytes(8), "more places than a list may have"),
            (12, 0, 16, b"\2\2\2" + bytes(8), "places that do not ascend"),
            (12, 0, 4, b"\1\4" + bytes(4), "a place behind the last float"),
            (12, 0, 4, b"\xff\x10" + bytes(4), "a place behind the last float"),
            (17, 9, 8, bytes(17), "it does not allow parameter 9"),
            (18, 0, 300, bytes(303), "303 bytes, but 308 expected"),
            (23, 0, 33, b"\x40", "it ends before a head"),
            (23, 0, 32, b"\x21" + bytes(128), "an invalid head"),
            (23, 0, 32, b"\x10" + bytes(97), "an invalid head"),
            (23, 0, 32, b"\x08\x7f\1", "it ends within a mask"),
            (23, 0, 32, b"\x20" + bytes(127), "it ends within a group"),
            (23, 0, 2, b"\1\x7f" + bytes(6), "it ends within a group"),
            (23, 0, 5, b"\x08\x7f\x20" + bytes(6), "a mask behind the last float"),
            (23, 0, 32, b"\x40\0", "2 bytes, but 1 expected"),
            (21, 0, 8, b"\0\0", "an invalid head"),
            (21, 0, 3000, b"\1\x08" + bytes(4 * 2049), "an invalid head"),
            (21, 0, 1, b"\2\0" + bytes(8), "more floats than the run has"),
            (21, 0, 2, deflated(stream + b"\0"), "bytes behind its stream"),
            (21, 0, 3, deflated(stream, 3), "fewer floats in its stream"),
            (21, 0, 1, deflated(stream, 1), "more floats in its stream"),
            (21, 0, 2, deflated(stream[:-1]), "its stream ends too early"),
            (21, 0, 2, deflated(b"\7"), "an invalid block in its stream"),
            (21, 0, 2, deflated(b"\1\x08\0\0\0" + bytes(8)), "an invalid length in its stream"),
            (21, 0, 2, deflated(b"\x03\x02\0"), "its stream repeats bytes before its start"),
        ]
        frames = [datagram(packet(DATA, run(block, count, codec, param))) for codec, param, count, block, _ in cases]
        for (*case, wanted), (_, values, _, _, experts) in zip(cases, self.rows(frames)):
            self.assertEqual(values, [], case)
            self.assertIn(f"{NO_BLOCK}: {wanted}", ",".join(experts), case)

    def test_what_a_start_says_wrong(self):
        text, digest = descriptor(16, bytes([0, 0, 44, 1, 0, 0, 0, 0]))
        block = run(bytes(8 + 4), 32, 16, 0, 0, digest)
        _, (_, values, _, _, experts) = self.rows([
            datagram(packet(DATA, run(text, 0, 16, 0, START, digest))), datagram(packet(DATA, block))])
        self.assertEqual((values, experts), ([], [f"The payload is {NO_BLOCK}: it does not allow chunks of 300"]))

    def test_offers_that_are_missing(self):
        """Checks that values are in steps if an offer or a hello of a rank is missing, or if its start is damaged."""
        section = next(section for section in self.sections if section.name == "terngrad")
        hellos = [datagram(packet(HELLO, hello(rank, 3)), source=18400 + rank) for rank in range(3)]
        starts, blocks = frames_of(section, 1)
        frame, length = starts[1]
        damaged = (frame[:-5] + bytes([frame[-5] ^ 1]) + frame[-4:], length)
        for known, others in ((hellos, [starts[0], starts[2]]), (hellos, [starts[0], damaged, starts[2]]),
                              (hellos[:2], starts)):
            rows = self.rows([*known, *others, blocks[0]])
            self.assertEqual((rows[-1][1], len(rows[-1][2])), ([], section.blocks[0].count))

    def test_the_way_back(self):
        """Checks gather runs of an aggregator, which have a codec of their own."""
        there, back = (12, bytes([0, 12, 0, 0, 0x10, 0x27, 0, 0])), (16, bytes([0, 0, 0, 2, 0, 0, 0, 0]))
        text, digest = descriptor(*there, back, strategy=4)
        onebit = struct.pack("<ff", -1, 2) + bytes([0x55]) * 64
        topk = bytes([1, 9, 3, 3, 0])
        rows = self.rows([datagram(packet(DATA, payload)) for payload in (
            run(text, 0, 12, 0, START, digest), run(topk, 300, 12, 0, 0, digest),
            run(onebit, 512, 16, 0, GATHER, digest))])
        self.assertEqual([row[0] for row in rows], [["topk:1%+fixed:12"], ["topk:1%+fixed:12"], ["onebit:512"]])
        self.assertEqual(rows[1][1:], [[str(3 * 2**-11)], [], ["9"], []])
        self.assertEqual(rows[2][1:], [["2", "-1"] * 16, [], [], []])
        backs = self.tshark.rows(self.file, "gradlane.codec.back", filter="gradlane.run.phase == 2")
        self.assertEqual(backs, [[["onebit:512"]]])


class AnythingTest(CodecsCase):
    """Checks that no input makes the dissector's scripts fail."""

    def test_cut(self):
        """Cuts a valid block of each codec at many places: in a packet that is complete, and by the capture."""
        frames = []
        for operation, section in enumerate(self.sections):
            starts, _ = frames_of(section, operation)
            block = min((block for block in section.blocks if block.floats and block.count > 32),
                        key=lambda block: abs(len(block.bytes) - 150))
            some = Section(section.codec, section.name, section.arguments, blocks=[
                Block(block.count, block.bytes[:length], ()) for length in range(0, len(block.bytes), 3)] + [block])
            cuts = frames_of(some, operation)[1]
            whole, length = cuts.pop()
            frames += starts + cuts + [(whole[:snap], length) for snap in range(90, len(whole), 7)]
        rows = self.rows(frames)
        self.assertGreater(len(rows), 2000)

    def test_noise(self):
        """Checks random blocks, with any codec, any parameter and any number of floats."""
        dice = random.Random(25)
        frames = []
        for _ in range(4000):
            block = bytearray(dice.randbytes(dice.choice((1, 2, 3, 5, 9, 40, 300))))
            for i in range(min(4, len(block))):  # blocks that begin with small numbers get farther in decoders
                block[i] = dice.choice((0, 1, 2, 3, 8, 16, 32, 128, 255, block[i]))
            codec, param = dice.randrange(24), dice.choice((0, 0, 1, 2, 8, 10, 16, 30, 127, 138, 255))
            count = dice.choice((0, 1, 2, 8, 31, 32, 33, 255, 256, 257, 2048, 32768, 65535))
            frames.append(datagram(packet(DATA, run(bytes(block), count, codec, param))))
        good = sum(not experts for *_, experts in self.rows(frames))
        self.assertGreater(good, 10)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    if shutil.which("tshark") is None:
        print("needs tshark; tools/setup.sh installs it")
        sys.exit(77)
    Programs.print_blocks = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
