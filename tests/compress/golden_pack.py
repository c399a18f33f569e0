# golden_pack.py - cases of the golden vectors of pack, for make_golden.py
"""Writes the cases of packed floats."""
import struct

import reference_codec as ref
from golden_inputs import INF, NAN, NEG_INF, SIGN, SNAN, SPECIALS, fp32, laplace, scale_of


def floats_of(rng, exponents):
    """Returns floats of these exponents, with random signs and mantissas."""
    return [rng.getrandbits(1) << 31 | e << 23 | rng.getrandbits(23) for e in exponents]


def spread(rng, count, base, below):
    """Returns `count` floats of exponents from base - below to base, both of which occur."""
    exponents = [base - rng.randrange(below + 1) for _ in range(count - 2)] + [base, base - below]
    return floats_of(rng, rng.sample(exponents, count))


def with_zeros(rng, count, bits):
    """Returns the floats with `count` +0 among them, in a random order."""
    return rng.sample([0] * count + bits, count + len(bits))


def groups(rng):
    """Yields (title, floats): the kinds of groups, and where they change."""
    normal = [100, 101, 103]
    yield "zeros", [0] * 32
    yield "one float, +0", [0]
    yield "one float, -0", [SIGN]
    yield "one +0", with_zeros(rng, 1, spread(rng, 31, 120, 3))
    yield "two +0", with_zeros(rng, 2, spread(rng, 30, 120, 3))
    yield "one float is not +0", with_zeros(rng, 31, [NAN])
    yield "zeros of both signs", [0, SIGN] * 16
    yield "-0", [SIGN] * 32
    yield "-0 and +0 once", [SIGN] * 31 + [0]
    yield "-0 and others", floats_of(rng, normal * 10) + [SIGN, SIGN]
    yield "-0, +0 and others", [0, SIGN] * 5 + floats_of(rng, normal * 7)
    yield "denormals", floats_of(rng, [0] * 32)
    yield "denormals and others", floats_of(rng, [0, *normal] * 8)
    yield "denormals, +0 and others", with_zeros(rng, 8, floats_of(rng, [0, *normal] * 6))
    yield "denormals and the least normal numbers", floats_of(rng, [0, 1] * 16)
    yield "Inf", [INF, NEG_INF] * 16
    yield "Inf and others", [INF, NEG_INF] + floats_of(rng, normal * 10)
    yield "Inf and large ones", [INF, NEG_INF] + spread(rng, 30, 254, 40)
    yield "NaN", [NAN, SNAN, 0x7FFFFFFF, 0xFFC00000] * 8
    yield "NaN, Inf and +0", with_zeros(rng, 8, [NAN, INF, NEG_INF, SNAN] * 6)
    for k in range(8):
        yield "k = %d" % k, spread(rng, 32, 200, 2**k - 1)
        yield "k = %d, +0" % k, with_zeros(rng, 7, spread(rng, 25, 200, 2**k - 1))
        if k > 0:
            yield "k = %d, denormals" % k, [1, SIGN] + spread(rng, 30, 200, 2**k - 2)
            yield "no room in k = %d for denormals" % k, [1, SIGN] + spread(rng, 30, 200, 2**k - 1)
    yield "exponents too far apart", spread(rng, 32, 200, 128)
    yield "too far apart, mostly +0", [0] * 29 + spread(rng, 3, 200, 128)
    # The first k gives a packed group of `count` floats, and the next one a plain group.
    for count, most in ((2, 0), (3, 1), (4, 2), (5, 3), (8, 6), (9, 3), (16, 7)):
        for k in range(most, min(most + 2, 8)):
            yield "%d floats, k = %d" % (count, k), spread(rng, count, 200, 2**k - 1)
    for k in (5, 6):
        yield "5 floats, of which 2 are +0, k = %d" % k, [0, *spread(rng, 3, 200, 2**k - 1), 0]


def gradients(rng, count, scale):
    """Returns gradients, of which some are +0, -0 or denormal."""
    return [rng.choice((0, 0, SIGN, rng.getrandbits(23))) if rng.randrange(9) == 0 else f
            for f in laplace(rng, count, scale)]


def encode_cases(out):
    rng, scale = out.rng, scale_of(out.codec)
    for title, bits in groups(rng):
        out.encode(title, bits)
    out.encode("special values", SPECIALS)
    out.encode("random bits", [rng.getrandbits(32) for _ in range(64)])
    for count in (0, *range(1, 32)):
        out.encode("%d floats" % count, gradients(rng, count, scale))
    several = [f for _, bits in groups(rng) if len(bits) == 32 for f in bits]
    out.tile("groups of all kinds", several, len(several), [out.codec.max_bytes(len(several))])


def cut_cases(out):
    codec, rng, scale = out.codec, out.rng, scale_of(out.codec)
    bits = [0] * 32 + gradients(rng, 32, scale) + [rng.getrandbits(32) for _ in range(32)] + gradients(rng, 7, scale)
    needs = [len(codec.encode(bits[:n])[1]) for n in (32, 64, 96, 103)]
    out.encode("limited room", bits, rooms=sorted({0, 2, 3, 100} | {need + d for need in needs for d in (-1, 0, 1)}))
    # These runs take more than 16384 bytes, so an encoder stops there unless the room is at least max_bytes().
    most = codec.max_bytes(4900)
    rooms = (16383, 16384, 16392, most - 1, most, most + 1)
    out.tile("long, all plain", [rng.getrandbits(32) for _ in range(35)], 4900, rooms)
    out.tile("long", gradients(rng, 35, scale), 6000, (1000, 16384, codec.max_bytes(6000)))


def foreign_group(rng, floats):
    """Returns a group that a decoder must accept, and most encoders never make."""
    head = rng.choice((ref.Pack.zeros, ref.Pack.plain, rng.randrange(8), rng.randrange(16), 16 + rng.randrange(1, 8),
                       24 + rng.randrange(1, 8)))
    if head == ref.Pack.zeros:
        return bytes([head])
    if head == ref.Pack.plain:
        return bytes([head]) + rng.randbytes(4 * floats)
    group = bytes([head, rng.choice((0, 1, 90, 127, 255, rng.randrange(256)))])
    if head & ref.Pack.masked:
        mask = rng.getrandbits(floats) & rng.choice((0, 1, rng.getrandbits(32), 2**32 - 1))
        group += struct.pack("<I", mask)
        floats = bin(mask).count("1")
    return group + rng.randbytes((head & 7) * -(-floats // 8) + 3 * floats)


def foreign_block(rng, floats):
    return b"".join(foreign_group(rng, min(ref.GROUP, floats - start)) for start in range(0, floats, ref.GROUP))


def block_cases(out):
    codec, rng = out.codec, out.rng
    out.decode("no floats", b"", 0)
    out.decode("an exponent below 0", b"\x01\x05" + b"\xff" + bytes(24), 8)
    out.decode("bits behind the last float", b"\x11\x05" + b"\xfe" + bytes(9), 3)
    out.decode("a mask of no float", b"\x0b\x05" + bytes(4), 32)
    out.decode("a mask of all floats", b"\x08\x7f" + b"\xff" * 4 + bytes(96), 32)
    out.decode("zeros as they are", b"\x20" + bytes(128), 32)
    for count in (1, 7, 31, 32, 33, 63, 100, 300, 500):
        out.decode("groups no encoder makes", foreign_block(rng, count), count)
    invalid_cases(out, codec.encode(gradients(rng, 45, scale_of(codec)))[1])


def invalid_cases(out, good):
    zeros, one = bytes([ref.Pack.zeros]), bytes([0, 127, 1, 2, 3])
    out.invalid("empty", b"", 45, ref.SHORT)
    out.invalid("one byte too few", good[:-1], 45, ref.SHORT)
    out.invalid("one byte too many", good + b"\0", 45, ref.LONG)
    out.invalid("a byte for no floats", b"\0", 0, ref.LONG)
    out.invalid("one group of two", zeros, 33, ref.SHORT)
    out.invalid("zeros, and a byte", zeros * 2, 32, ref.LONG)
    out.invalid("a head alone", one[:1], 1, ref.SHORT)
    out.invalid("a base alone", one[:2], 1, ref.SHORT)
    out.invalid("a float cut", one[:4], 1, ref.SHORT)
    out.invalid("a byte behind a float", one + b"\0", 1, ref.LONG)
    out.invalid("a plain head alone", b"\x20", 1, ref.SHORT)
    out.invalid("a plain float cut", b"\x20\0\0\0", 1, ref.SHORT)
    out.invalid("a byte behind a plain float", b"\x20" + bytes(5), 1, ref.LONG)
    out.invalid("a mask cut", b"\x08\x7f\1\0\0", 32, ref.SHORT)
    out.invalid("a plane cut", b"\x01\x7f\1\0\0", 32, ref.SHORT)
    out.invalid("no plane", b"\x01\x7f" + bytes(3), 1, ref.SHORT)
    for head in (0x10, 0x18, 0x21, 0x28, 0x30, 0x41, 0x48, 0x60, 0x80, 0xC0, 0xFF):
        out.invalid("head %02x" % head, bytes([head, 127]) + bytes(200), 32, ref.BAD_ESCAPE)
    out.invalid("a bad head after a good group", zeros + b"\x80", 33, ref.BAD_ESCAPE)
    out.invalid("a bad head behind the last group", zeros + b"\x80", 32, ref.LONG)
    for bit in (13, 31):
        block = b"\x08\x7f" + struct.pack("<I", 1 | 1 << bit) + bytes(6)
        out.invalid("bit %d of the mask of 13 floats" % bit, block, 13, ref.BAD_TAIL)
        out.invalid("bit %d of the mask of 13 floats, and short" % bit, block[:-1], 13, ref.SHORT)
        out.invalid("bit %d of the mask of 13 floats, and long" % bit, block + b"\0", 13, ref.BAD_TAIL)


def hop_cases(out):
    codec, rng, scale = out.codec, out.rng, scale_of(out.codec)
    for title, theirs, ours in (("gradients", 1, 1), ("small and large", 1, 2**20), ("large and small", 2**20, 1),
                                ("large", 2**130, 2**130)):
        out.hop(title, codec.encode(gradients(rng, 75, scale * theirs))[1], gradients(rng, 75, scale * ours))
    out.hop("no floats", b"", [])
    out.hop("zeros", codec.encode([0] * 40)[1], [0] * 40)
    out.hop("zeros of both signs", codec.encode([0, 0, SIGN, SIGN])[1], [0, SIGN, 0, SIGN])
    cancel = gradients(rng, 70, scale)
    out.hop("cancelled", codec.encode(cancel)[1], [f ^ SIGN for f in cancel])
    out.hop("denormal sums", codec.encode([1 << 23 | n for n in range(40)])[1],
            [SIGN | 1 << 23 | rng.randrange(60) for _ in range(40)])
    values = [INF, NEG_INF, NAN, SNAN, SIGN, 0, 1, 0x7F7FFFFF, 0xFF7FFFFF, fp32(scale)]
    pairs = [(a, b) for a in values for b in values]
    out.hop("pairs of special values", codec.encode([a for a, _ in pairs])[1], [b for _, b in pairs])
    for count in (1, 31, 64, 200):
        out.hop("groups no encoder makes", foreign_block(rng, count), gradients(rng, count, scale))
    block, local = codec.encode(gradients(rng, 103, scale))[1], gradients(rng, 103, scale * 10)
    whole = len(codec.hop(block, local)[2])
    out.hop("limited room", block, local, rooms=(0, 7, whole // 2, whole - 1, whole), pieces=whole // 2)


def cases(out):
    encode_cases(out)
    cut_cases(out)
    block_cases(out)
    hop_cases(out)
