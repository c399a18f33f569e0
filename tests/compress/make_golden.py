#!/usr/bin/python3
# make_golden.py - writes the golden vectors of all codecs (golden/*.txt), or checks that the files are up to date
"""Writes golden/<codec>.txt: the results of reference_codec.py for chosen inputs. golden_test.cc replays them.

A line of a file has a key and its values, separated by spaces. A line that starts with '#' is a comment. A list that
does not fit a line continues in the next line with the same key. Floats are their bits in 8 hex digits, or 4 for halves.
Bytes are 2 hex digits each, without spaces.

  codec NAME, wire ID PARAM     of all cases that follow. "pack:bf16" is pack for elements of bf16.
  case encode TITLE             in [residual] [second] [looked] block [residual_out] [second_out] out {cut}. "looked"
                                means that the codec scans the contribution first.
  case tile TITLE               in floats {cut}. It encodes `in`, repeated to `floats` values.
  case decode TITLE             block out acc sum. The block is valid, and sum is acc + out.
  case invalid TITLE            floats block status. All functions that read this block of `floats` values give this
                                status.
  case hop TITLE                block local [residual] [looked] result [residual_out] {cut}.
  cut FIRST ROOM FLOATS SIZE HASH    the same case from float FIRST on (0 in encode) into ROOM bytes consumes FLOATS and
                                     writes SIZE bytes, whose 64-bit FNV-1a hash is HASH
"""
import argparse
import pathlib
import random
import struct
import sys
from fractions import Fraction
from itertools import product

import golden_chunks
import golden_pack
import golden_sparse
import reference_chunks
import reference_codec as ref
import reference_sparse
from golden_inputs import INF, NAN, NEG_INF, SIGN, SNAN, SPECIALS, boundaries, fp32, laplace, scale_of, step_mixes
from reference_floats import FP32

CODECS = ("raw", "bf16", "fp16", "pack", "pack:bf16", "pack:fp16", "inceptionn:2", "inceptionn:6", "inceptionn:10", "inceptionn:10,truncate",
          "inceptionn:14", "inceptionn:6,literal", "inceptionn:10,literal", "fixed:1", "fixed:10", "fixed:30",
          *golden_sparse.CODECS)
# These codecs have all cases. Others leave out the cases that do not depend on their parameter.
FULL = ("inceptionn:10", "fixed:10")
PER_LINE = 16


class Writer:
    """Collects the lines of one file."""

    def __init__(self, codec, rng):
        self.codec, self.rng = codec, rng
        self.lines = ["# %s - golden vectors of %s, written by make_golden.py" % (file_name(codec.name), codec.name),
                      "codec " + codec.name, "wire %d %d" % (codec.wire_id, codec.param)]

    def floats(self, key, bits):
        digits = self.codec.form.width // 4
        for at in range(0, max(len(bits), 1), PER_LINE) if bits is not None else ():
            self.lines.append(" ".join([key] + ["%0*x" % (digits, f) for f in bits[at : at + PER_LINE]]))

    def bytes(self, key, data):
        for at in range(0, max(len(data), 1), 4 * PER_LINE):
            self.lines.append((key + " " + data[at : at + 4 * PER_LINE].hex()).rstrip())

    def line(self, *words):
        self.lines.append(" ".join(map(str, words)))

    def cut(self, first, room, taken, block):
        self.line("cut", first, room, taken, len(block), "%016x" % fnv1a(block))

    def encode(self, title, bits, residual=None, rooms=()):
        _, block, left = self.codec.encode(bits, residual=residual)
        self.line("case encode", title)
        self.floats("in", bits)
        self.floats("residual", residual)
        self.bytes("block", block)
        self.floats("residual_out", left)
        self.floats("out", self.codec.decode(block, len(bits))[1])
        for room in rooms:
            taken, part, part_left = self.codec.encode(bits, room, residual)
            assert residual is None or part_left == left[:taken] + residual[taken:]
            self.cut(0, room, taken, part)
        return block

    def tile(self, title, pattern, count, rooms):
        bits = (pattern * (count // len(pattern) + 1))[:count]
        self.line("case tile", title)
        self.floats("in", pattern)
        self.line("floats", count)
        for room in rooms:
            self.cut(0, room, *self.codec.encode(bits, room)[:2])

    def decode(self, title, block, floats):
        status, out = self.codec.decode(block, floats)
        assert status == ref.OK, title
        acc = (self.rng.sample(SPECIALS, len(SPECIALS)) + laplace(self.rng, floats, scale_of(self.codec)))[:floats]
        if self.codec.form is not FP32:
            acc = [ref.FlatCodec(self.codec.type).narrow(f) for f in acc]
        self.rng.shuffle(acc)
        self.line("case decode", title)
        self.bytes("block", block)
        self.floats("out", out)
        self.floats("acc", acc)
        self.floats("sum", self.codec.decode_add(block, acc)[1])

    def invalid(self, title, block, floats, status):
        assert self.codec.validate(block, floats) == status, title
        self.line("case invalid", title)
        self.line("floats", floats)
        self.bytes("block", block)
        self.line("status", status)

    def hop(self, title, block, local, residual=None, rooms=(), pieces=None):
        """Writes a case with cuts: at each of `rooms` from the first float on, and the whole run in pieces of `pieces`
        bytes."""
        status, _, result, left = self.codec.hop(block, local, residual=residual)
        assert status == ref.OK, title
        self.line("case hop", title)
        self.bytes("block", block)
        self.floats("local", local)
        self.floats("residual", residual)
        self.bytes("result", result)
        self.floats("residual_out", left)
        for room in rooms:
            self.cut(0, room, *self.codec.hop(block, local, room, residual)[1:3])
        first = 0
        while pieces is not None and first < len(local):
            taken, part = self.codec.hop(block, local, pieces, residual, first)[1:3]
            assert taken != 0, title
            self.cut(first, pieces, taken, part)
            first += taken


def fnv1a(data):
    result = 0xCBF29CE484222325
    for byte in data:
        result = (result ^ byte) * 0x100000001B3 % 2**64
    return result


def block_of(codec, codes):
    """Returns a tagged block of `codes`, pairs (tag, number). A number may be one that no encoder makes."""
    words, payload = b"", b""
    for start in range(0, len(codes), ref.GROUP):
        group = codes[start : start + ref.GROUP]
        words += struct.pack("<Q", sum(tag << (2 * i) for i, (tag, _) in enumerate(group)))
        payload += b"".join(number.to_bytes(ref.PAYLOAD_WIDTH[tag], "little") for tag, number in group)
    assert codec.validate(words + payload, len(codes)) == ref.OK
    return words + payload


def block_of_planes(codec, groups, floats):
    """Returns a block of `groups` (tag, width, mask of raw floats, words), which may be groups that no encoder makes.
    """
    tags = [tag for tag, *_ in groups] + [0] * (len(groups) % 2)
    block = bytes(low | high << 4 for low, high in zip(tags[::2], tags[1::2]))
    block += b"".join(struct.pack("<%dI" % len(words), *words) for *_, words in groups)
    escapes = [struct.pack("<BI", width, mask) for tag, width, mask, _ in groups if tag == codec.escape]
    block += b"".join(reversed(escapes))
    assert codec.validate(block, floats) == ref.OK
    return block


def odd_groups(codec, rng, floats):
    """Returns groups that only a foreign encoder makes: too wide, escaped without need, with bits set for raw and
    missing floats, with any raw floats."""
    raw = [SIGN, 1, SIGN | 1, 0x00400000, 0, INF, NEG_INF, NAN, SNAN]
    raw += [fp32(n * codec.step) for n in (1, Fraction(1, 2), Fraction(5, 3), Fraction(-1000, 3), 2**23, 2**24)]
    groups = []
    for start in range(0, floats, ref.GROUP):
        width = rng.choice((0, 1, 7, 8, 9, 13, 14, 15, 16))
        planes = [rng.getrandbits(32) for _ in range(width)]
        if width < codec.escape and rng.random() < 0.5:
            groups.append((width, width, 0, planes))
            continue
        here = min(ref.GROUP, floats - start)
        lanes = rng.sample(range(here), min(here, rng.choice((0, 1, 5))))
        mask = sum(1 << i for i in lanes)
        groups.append((codec.escape, width, mask, planes + [rng.choice(raw) for _ in lanes]))
    return groups


def odd_block(codec, rng, floats):
    if isinstance(codec, ref.Fixed):
        return block_of_planes(codec, odd_groups(codec, rng, floats), floats)
    return block_of(codec, odd_codes(codec, rng)[:floats])


def odd_codes(codec, rng):
    """Returns codes that only a foreign encoder makes: ends of the integers, zeros, small, off-grid and special raw
    floats."""
    steps = (1, Fraction(1, 2), Fraction(3, 2), Fraction(5, 3), Fraction(-1000, 3), 2**23 - Fraction(1, 2), 2**24)
    codes = [(3, raw) for raw in (SIGN, 1, SIGN | 1, 0x00400000, 0, INF, NEG_INF, NAN, SNAN)]
    codes += [(3, fp32(n * codec.step)) for n in steps]
    codes += [(1, n) for n in (0, 0x80, 0x81, 0x7F, 0xFF, 1)]
    codes += [(2, n) for n in (0, 0x8000, 0x8001, 0x7FFF, 0xFFFF, 1, 0x7F, 0x80, 0xFF80, 0xFF7F)]
    codes += [(0, 0)] * 4
    codes += [(tag, rng.getrandbits(8 * ref.PAYLOAD_WIDTH[tag])) for tag in (rng.randrange(4) for _ in range(28))]
    rng.shuffle(codes)
    return codes


def worked_example(out):
    floats = [0.0009, -0.1, 0.0029296875, 0.25, 100]
    block = out.encode("the worked example of docs/codec-format.md", ref.bits_of(floats))
    local = ref.bits_of([0.0009, -0.15, -0.00390625, 0.0009]) + [SNAN]
    out.hop("the worked example of docs/codec-format.md", block, local)


def encode_cases(out, full):
    codec, rng = out.codec, out.rng
    if codec.name in ("fixed:10", "inceptionn:10"):
        worked_example(out)
    out.encode("special values", SPECIALS)
    edges = boundaries(codec)
    for at in range(0, len(edges), 96):
        out.encode("boundaries %d" % (at // 96 + 1), edges[at : at + 96])
    for count in (0, 1, 2, 31, 32, 33, 65) if full else (0, 1, 33):
        out.encode("%d floats" % count, laplace(rng, count, scale_of(codec)))
    out.encode("random bits", [rng.getrandbits(32) for _ in range(64 if full else 32)])
    if full:
        out.encode("all zero", [0] * 33)
        out.encode("all raw", [fp32(3 * 2**30 + n) for n in range(33)])
        out.encode("sparse gradients", laplace(rng, 65, scale_of(codec) / 30))
        out.encode("dense gradients", laplace(rng, 65, scale_of(codec) * 30))


def cut_cases(out, full):
    codec, rng = out.codec, out.rng
    scale = scale_of(codec)
    bits = laplace(rng, 36, scale) + laplace(rng, 36, scale * 20)
    needs = [len(codec.encode(bits[:n])[1]) for n in (32, 64, 72)]
    rooms = {0, 1, 3, 4, 7, 8, 9, 31, 32, 39, 40} | {need + d for need in needs for d in (-1, 0, 1)}
    out.encode("limited room", bits, rooms=sorted(rooms))
    if full or codec.granule == 1:
        # These runs take more than 16384 bytes. A tagged codec stops there unless the room is at least max_bytes().
        most = codec.max_bytes(4900)
        out.tile("long, nearly all raw", laplace(rng, 35, 2**20), 4900, (16383, 16384, 16392, most - 1, most, most + 1))
        out.tile("long, sparse", laplace(rng, 35, scale / 30), 4900, (1000, 2000, 4000, 8000, 16384, most - 1, most))


def block_cases(out, full):
    codec, rng = out.codec, out.rng
    out.decode("no floats", b"", 0)
    bits = laplace(rng, 45, scale_of(codec))
    good = codec.encode(bits)[1]
    if full:
        out.decode("what encode makes", good, 45)
    if codec.granule == 1:
        out.decode("random words", bytes(rng.getrandbits(8) for _ in range(64 * codec.width)), 64)
        specials = {"raw": SPECIALS, "bf16": [0x7F81, 0xFF81, 0x7FC1, 0xFFFF, 0x7F80, 0xFF80, 0x8000, 1, 0x8001, 0x7F],
                    "fp16": [0x7C01, 0xFC01, 0x7E01, 0xFFFF, 0x7C00, 0xFC00, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF]}
        words = specials[codec.name]
        out.decode("special words", b"".join(w.to_bytes(codec.width, "little") for w in words), len(words))
    else:
        for count in (64, 37) if full else (64,):
            out.decode("codes no encoder makes", odd_block(codec, rng, count), count)
    if isinstance(codec, ref.Fixed):
        for count in (32, 33, 63, 96, 165, 300):
            out.decode("groups no encoder makes", odd_block(codec, rng, count), count)
    out.invalid("empty", b"", 45, ref.SHORT)
    out.invalid("one byte too few", good[:-1], 45, ref.SHORT)
    out.invalid("one byte too many", good + b"\0", 45, ref.LONG)
    out.invalid("a byte for no floats", b"\0", 0, ref.LONG)
    if codec.granule == 1:
        return
    if isinstance(codec, ref.Fixed):
        return invalid_planes(out)
    out.invalid("tags cut", good[:15], 45, ref.SHORT)
    out.invalid("tags alone", good[:16], 45, ref.SHORT)
    for bit in (2 * 13, 2 * 13 + 1, 63):
        word = struct.unpack_from("<Q", good, 8)[0] | 1 << bit
        out.invalid("bit %d of the tail set" % bit, good[:8] + struct.pack("<Q", word) + good[16:], 45, ref.BAD_TAIL)
        out.invalid("bit %d of the tail set, and short" % bit, good[:8] + struct.pack("<Q", word), 45, ref.BAD_TAIL)
    out.invalid("all raw, one group short", b"\xff" * (8 + 127), 32, ref.SHORT)
    out.invalid("all raw, one group long", b"\xff" * (8 + 129), 32, ref.LONG)


def invalid_planes(out):
    one, two = b"\x01" + bytes(4), b"\x11" + bytes(8)
    out.invalid("tags alone", two[:1], 45, ref.SHORT)
    out.invalid("a plane cut", two[:-1], 45, ref.SHORT)
    out.invalid("a tag of no group", b"\x11" + bytes(4), 32, ref.BAD_TAIL)
    out.invalid("a tag of no group, and short", b"\x11", 32, ref.BAD_TAIL)
    out.invalid("no escape", b"\x0f" + bytes(4), 32, ref.SHORT)
    out.invalid("an escape, and no payload", b"\x0f" + struct.pack("<BI", 3, 0), 32, ref.SHORT)
    out.invalid("17 planes", b"\x0f" + bytes(68) + struct.pack("<BI", 17, 0), 32, ref.BAD_ESCAPE)
    out.invalid("255 planes", b"\x0f" + bytes(68) + struct.pack("<BI", 255, 0), 32, ref.BAD_ESCAPE)
    out.invalid("33 words", b"\x0f" + bytes(132) + struct.pack("<BI", 1, 0xFFFFFFFF), 32, ref.BAD_ESCAPE)
    out.invalid("a raw float of none", b"\x0f" + bytes(4) + struct.pack("<BI", 0, 1 << 13), 13, ref.BAD_TAIL)
    out.invalid("a byte behind an escape", b"\x0f" + bytes(4) + struct.pack("<BI", 1, 0) + b"\0", 32,
                ref.LONG)
    out.invalid("a byte in front of an escape", b"\x0f" + bytes(5) + struct.pack("<BI", 1, 0), 32, ref.LONG)
    out.invalid("a byte behind a plane", one + b"\0", 32, ref.LONG)


def hop_cases(out, full):
    codec, rng = out.codec, out.rng
    scale = scale_of(codec)
    mixes = [("narrow", scale, scale), ("narrow and wide", scale / 8, scale * 2000),
             ("wide and narrow", scale * 2000, scale / 8), ("wide", scale * 2**18, scale * 2**18)]
    for title, theirs, ours in mixes if full else mixes[1:3]:
        out.hop(title, codec.encode(laplace(rng, 40, theirs))[1], laplace(rng, 40, ours))
    out.hop("no floats", b"", [])
    wide = [INF, NEG_INF, NAN, SNAN, INF, fp32(2**40), fp32(-(2**40)), 0x7F7FFFFF, 0xFF7FFFFF, SIGN, 1]
    ours, theirs = laplace(rng, 64, scale), laplace(rng, 64, scale)
    for at in rng.sample(range(64), 10):
        ours[at] = rng.choice(wide)
        theirs[(at + rng.choice((0, 1))) % 64] = rng.choice(wide)
    out.hop("gradients and special values", codec.encode(theirs)[1], ours)
    pairs = [(a, b) for a in (INF, NEG_INF, NAN, SIGN, fp32(scale)) for b in (INF, NEG_INF, SNAN, SIGN, fp32(-scale))]
    out.hop("pairs of special values", codec.encode([a for a, _ in pairs])[1], [b for _, b in pairs])
    cancel = laplace(rng, 33, scale * 30)
    out.hop("cancelled", codec.encode(cancel)[1], [f ^ SIGN for f in cancel])
    edges = boundaries(codec)[:: 1 if full else 5]
    out.hop("boundaries and zero", codec.encode([0] * len(edges))[1], edges)
    if codec.granule > 1:
        pairs = list(product(*step_mixes(codec)))[:: 1 if full else 3]
        block = codec.encode([fp32(a * codec.step) for a, _ in pairs])[1]
        out.hop("edges of sums", block, [fp32(b * codec.step) for _, b in pairs])
        for factor in (0, 1, 2000) if full else (1,):
            out.hop("codes no encoder makes", odd_block(codec, rng, 64), laplace(rng, 64, scale * factor))


def cut_hop(out, title, residual=None):
    codec, rng = out.codec, out.rng
    block = codec.encode(laplace(rng, 70, scale_of(codec)))[1]
    local = laplace(rng, 70, scale_of(codec) * 10)
    whole = len(codec.hop(block, local, residual=residual)[2])
    out.hop(title, block, local, residual, rooms=(0, 7, whole // 2, whole - 1, whole), pieces=whole // 2)


def feedback_cases(out, full):
    codec, rng = out.codec, out.rng
    scale, owed = scale_of(codec), codec.step / 6
    half = fp32(codec.step / 2)
    bits = SPECIALS + [half] * 4 + [INF, 0x7F7FFFFF, 0x3F800000]
    debts = [0] * len(SPECIALS) + [half, half ^ SIGN, fp32(codec.step), 1, NEG_INF, 0x7F7FFFFF, SNAN]
    out.encode("special values, feedback", bits, debts)
    out.hop("special values, feedback", codec.encode([0] * len(bits))[1], bits, debts)
    if full:
        edges = boundaries(codec)[::5]
        out.encode("boundaries, feedback", edges, laplace(rng, len(edges), owed))
    for factor in (Fraction(1, 20), 1, 3000) if full else (3000,):
        block = codec.encode(laplace(rng, 40, scale))[1]
        out.hop("gradients, feedback", block, laplace(rng, 40, scale * factor), laplace(rng, 40, owed))
    bits = laplace(rng, 70, scale)
    needs = [len(codec.encode(bits[:count])[1]) for count in (32, 64)]
    out.encode("limited room, feedback", bits, laplace(rng, 70, owed), rooms=(0, needs[0], needs[1] + 7))
    cut_hop(out, "limited room, feedback", laplace(rng, 70, owed))


def file_name(name):
    for mark in ":,=+/":
        name = name.replace(mark, "-")
    return name.replace("%", "") + ".txt"


def chunks_text(name):
    out = Writer(reference_chunks.find_codec(name), random.Random("golden " + name))
    golden_chunks.cases(out)
    return "\n".join(out.lines) + "\n"


def golden_text(name):
    codec = reference_sparse.find_codec(name) or ref.find_codec(name)
    out = Writer(codec, random.Random("golden " + name))
    if isinstance(codec, reference_sparse.Sparse):
        golden_sparse.cases(out)
        return "\n".join(out.lines) + "\n"
    if isinstance(codec, ref.Pack):
        golden_pack.cases(out)
        return "\n".join(out.lines) + "\n"
    full = name in FULL
    encode_cases(out, full)
    cut_cases(out, full)
    block_cases(out, full)
    hop_cases(out, full)
    if full or not codec.feedback:
        cut_hop(out, "limited room")
    if codec.feedback:
        feedback_cases(out, full)
    return "\n".join(out.lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Writes the golden vectors of all codecs, from reference_codec.py.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the files are not up to date")
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "golden",
                        help="of the files (default: %(default)s)")
    args = parser.parse_args()
    files = {args.dir / file_name(name): golden_text(name) for name in CODECS}
    files |= {args.dir / file_name(name): chunks_text(name) for name in golden_chunks.CODECS}
    files |= {args.dir / "retired" / file_name(name): chunks_text(name) for name in golden_chunks.RETIRED}
    if not args.check:
        (args.dir / "retired").mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="ascii")
    present = {path: path.read_text(encoding="ascii") for path in args.dir.rglob("*.txt")}
    wrong = sorted(str(path) for path in {*files, *present} if files.get(path) != present.get(path))
    if wrong:
        sys.exit("not what this script writes: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
