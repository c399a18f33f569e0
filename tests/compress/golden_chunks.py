# golden_chunks.py - the cases of golden vectors of codecs in chunks and of baselines, for make_golden.py
"""Lists codecs in chunks and retired codecs, and writes their cases."""
import struct
from fractions import Fraction

import reference_chunks as chunks
import reference_codec as ref
from golden_inputs import INF, NAN, NEG_INF, SIGN, SNAN, SPECIALS, fp32, laplace
from reference_floats import FP32

CODECS = ("onebit", "qsgd:1/256", "qsgd:3/256", "qsgd:4/256", "qsgd:8/256", "int8", "fp8")
# Codecs of earlier releases. The Wireshark dissector reads their blocks, and no codec writes them.
RETIRED = ("trunc:16", "trunc:22", "deflate")
SCALE = Fraction(1, 1000)


def finite_specials():
    return [f for f in SPECIALS if FP32.is_finite(f)]


def inputs(out):
    """Yields (title, floats): inputs that test how a codec measures a chunk and how it rounds."""
    rng, step = out.rng, Fraction(1, 64)
    yield "gradients", laplace(rng, 300, SCALE)
    yield "one value", [fp32(step)] * 40
    yield "one negative value", [fp32(-step)] * 17
    yield "zeros of both signs", [0, SIGN] * 20
    yield "denormals", [rng.getrandbits(23) | rng.choice((0, SIGN)) for _ in range(40)]
    yield "too small for a step", [f | 1 << 23 for f in (0, SIGN, 5, SIGN | 9)] * 5
    yield "the largest numbers", [0x7F7FFFFF, 0xFF7FFFFF] * 10 + laplace(rng, 12, Fraction(2) ** 125)
    yield "all of the largest", [0x7F7FFFFF] * 33
    yield "huge ones", laplace(rng, 40, Fraction(2) ** 122)
    yield "halves of steps", [fp32(n * step / 2) for n in range(-127, 128)]
    yield "finite special values", finite_specials()
    yield "special values", SPECIALS + laplace(rng, 20, SCALE)


def chunk_cases(out):
    codec, rng = out.codec, out.rng
    for title, bits in inputs(out):
        out.encode(title, bits)
        out.encode(title + ", feedback", bits, laplace(rng, len(bits), SCALE / 7))
    for count in (0, 1, 15, 16, 17):
        out.encode("%d floats" % count, laplace(rng, count, SCALE))
    three = laplace(rng, 2 * codec.granule + 77, SCALE)
    three[codec.granule + 5] = INF
    needs = [len(codec.encode(three[: k * codec.granule])[1]) for k in (1, 2)]
    rooms = (0, needs[0] - 1, needs[0], needs[1] + 3)
    out.encode("three chunks", three, laplace(rng, len(three), SCALE), rooms=rooms)
    hop_cases(out)
    block_cases(out)


def hop_cases(out):
    codec, rng = out.codec, out.rng
    block = codec.encode(laplace(rng, codec.granule + 50, SCALE))[1]
    local = laplace(rng, codec.granule + 50, SCALE)
    out.hop("gradients", block, local)
    out.hop("gradients, feedback", block, local, laplace(rng, len(local), SCALE), rooms=(0, len(block) - 1),
            pieces=len(block) - 1)
    out.hop("special values", codec.encode([INF, NEG_INF, NAN, SNAN, INF, 0, 1])[1],
            [NEG_INF, NEG_INF, 0, 1, INF, NAN, fp32(1)], [0] * 6 + [NAN])
    out.hop("no floats", b"", [])


def block_cases(out):
    codec, rng = out.codec, out.rng
    heads = codec.heads
    for title, head in (("any codes", [fp32(Fraction(-3, 7)), fp32(Fraction(1, 9))]), ("a step below 0", [fp32(-1)] * 2),
                        ("codes of what is not finite", [NAN, 5])):
        size = codec.size(40, FP32.is_nan(head[0])) - 4 * heads
        block = struct.pack("<%dI" % heads, *head[:heads]) + bytes(rng.getrandbits(8) for _ in range(size))
        out.decode(title, block, 40)
    good = codec.encode(laplace(rng, codec.granule + 45, SCALE))[1]
    floats = codec.granule + 45
    out.invalid("empty", b"", floats, ref.SHORT)
    out.invalid("one byte too few", good[:-1], floats, ref.SHORT)
    out.invalid("one byte too many", good + b"\0", floats, ref.LONG)
    out.invalid("a header cut", good[: codec.size(codec.granule, False) + 3], floats, ref.SHORT)
    out.invalid("a byte for no floats", b"\0", 0, ref.LONG)


def trunc_cases(out):
    codec, rng = out.codec, out.rng
    out.encode("special values", SPECIALS)
    for count in (0, 1, 31, 32, 33, 70):
        out.encode("%d floats" % count, laplace(rng, count, SCALE), rooms=(0, codec.max_bytes(64), 4 * codec.param))
    block = codec.encode(SPECIALS)[1]
    out.decode("any bits", bytes(rng.getrandbits(8) for _ in range(codec.max_bytes(45))), 45)
    out.hop("special values", block, SPECIALS[::-1])
    out.hop("gradients", codec.encode(laplace(rng, 70, SCALE))[1], laplace(rng, 70, SCALE), rooms=(4 * codec.param,),
            pieces=codec.max_bytes(32))
    out.invalid("one byte too few", block[:-1], len(SPECIALS), ref.SHORT)
    out.invalid("one byte too many", block + b"\0", len(SPECIALS), ref.LONG)


def deflate_cases(out):
    codec, rng = out.codec, out.rng
    even, rest = laplace(rng, 64, SCALE), laplace(rng, 37, SCALE)
    both = [codec.record(even, True) + codec.record(rest, deflated) for deflated in (False, True)]
    out.decode("deflated and as they are", both[0], 101)
    out.decode("deflated both", both[1], 101)
    out.decode("special values", codec.record(SPECIALS, True), len(SPECIALS))
    out.decode("zeros", codec.record([0] * 2048, True), 2048)
    good = both[1]
    out.invalid("empty", b"", 101, ref.SHORT)
    out.invalid("one byte too few", good[:-1], 101, ref.SHORT)
    out.invalid("one byte too many", good + b"\0", 101, ref.LONG)
    out.invalid("half a head", good[:1], 101, ref.SHORT)
    out.invalid("one head of two", good[:2], 101, ref.SHORT)
    out.invalid("of nothing", b"\0\0" + good, 101, ref.BAD_ESCAPE)
    out.invalid("of too many", struct.pack("<H", 2049) + bytes(4 * 2049), 2049, ref.BAD_ESCAPE)
    out.invalid("more than the block has", good, 100, ref.BAD_TAIL)
    out.invalid("not deflated", struct.pack("<HH", 0x8001, 4) + b"\xff" * 4, 1, ref.BAD_ESCAPE)
    short = codec.record(even[:31], True)
    out.invalid("fewer floats than it says", struct.pack("<H", 0x8020) + short[2:], 32, ref.BAD_ESCAPE)
    out.invalid("more floats than it says", struct.pack("<H", 0x801E) + short[2:], 30, ref.BAD_ESCAPE)


def cases(out):
    if isinstance(out.codec, chunks.Chunked):
        chunk_cases(out)
    elif isinstance(out.codec, chunks.Trunc):
        trunc_cases(out)
    else:
        deflate_cases(out)
