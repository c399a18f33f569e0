# golden_pack.py - cases of the golden vectors of pack, for make_golden.py
"""Writes the cases of packed floats."""
import struct

import reference_codec as ref
from golden_inputs import INF, NAN, NEG_INF, SIGN, SNAN, SPECIALS, laplace, scale_of
from reference_floats import FP16, FP32


class Floats:
    """Random and special floats of a codec's format."""

    def __init__(self, codec, rng):
        self.form, self.rng, self.scale = codec.form, rng, scale_of(codec)
        self.random_bits = lambda: rng.getrandbits(self.form.width)
        if self.form is FP32:
            self.narrow = lambda bits: bits
            self.sign, self.inf, self.neg_inf, self.nan, self.snan = SIGN, INF, NEG_INF, NAN, SNAN
            self.largest_nan = 0x7FFFFFFF
        else:
            self.narrow = ref.FlatCodec(codec.type).narrow
            self.sign, self.inf = 1 << (self.form.width - 1), self.form.inf
            self.neg_inf, self.snan = self.inf | self.sign, self.inf | self.sign | 1
            self.nan = self.inf | self.form.quiet | 1
            self.largest_nan = self.sign - 1
        self.top = 30 if self.form is FP16 else 200  # an exponent from which on there is room below

    def specials(self):
        return [self.narrow(f) for f in SPECIALS]

    def of(self, exponents):
        """Returns floats of these exponents, with random signs and mantissas."""
        rng, fraction = self.rng, self.form.fraction_bits
        return [rng.getrandbits(1) << (self.form.width - 1) | e << fraction | rng.getrandbits(fraction)
                for e in exponents]

    def spread(self, count, base, below):
        """Returns `count` floats of exponents from base - below to base, both of which occur."""
        rng = self.rng
        exponents = [base - rng.randrange(below + 1) for _ in range(count - 2)] + [base, base - below]
        return self.of(rng.sample(exponents, count))

    def with_zeros(self, count, bits):
        """Returns the floats with `count` +0 among them, in a random order."""
        return self.rng.sample([0] * count + bits, count + len(bits))

    def groups(self):
        """Yields (title, floats): the kinds of groups, and where they change."""
        spread, with_zeros, top, sign = self.spread, self.with_zeros, self.top, self.sign
        low = top - 80 if top > 80 else top - 10
        normal = [low - 20 + e for e in (0, 1, 3)]
        yield "zeros", [0] * 32
        yield "one float, +0", [0]
        yield "one float, -0", [sign]
        yield "one +0", with_zeros(1, spread(31, low, 3))
        yield "two +0", with_zeros(2, spread(30, low, 3))
        yield "one float is not +0", with_zeros(31, [self.nan])
        yield "zeros of both signs", [0, sign] * 16
        yield "-0", [sign] * 32
        yield "-0 and +0 once", [sign] * 31 + [0]
        yield "-0 and others", self.of(normal * 10) + [sign, sign]
        yield "-0, +0 and others", [0, sign] * 5 + self.of(normal * 7)
        yield "denormals", self.of([0] * 32)
        yield "denormals and others", self.of([0, *normal] * 8)
        yield "denormals, +0 and others", with_zeros(8, self.of([0, *normal] * 6))
        yield "denormals and the least normal numbers", self.of([0, 1] * 16)
        yield "Inf", [self.inf, self.neg_inf] * 16
        yield "Inf and others", [self.inf, self.neg_inf] + self.of(normal * 10)
        yield "Inf and large ones", [self.inf, self.neg_inf] + spread(30, *((254, 40) if top == 200 else (30, 7)))
        yield "NaN", [self.nan, self.snan, self.largest_nan, self.neg_inf | self.form.quiet] * 8
        yield "NaN, Inf and +0", with_zeros(8, [self.nan, self.inf, self.neg_inf, self.snan] * 6)
        most = 8 if top == 200 else 5
        for k in range(most):
            yield "k = %d" % k, spread(32, top, 2**k - 1)
            yield "k = %d, +0" % k, with_zeros(7, spread(25, top, 2**k - 1))
            if k > 0:
                yield "k = %d, denormals" % k, [1, sign] + spread(30, top, 2**k - 2)
                yield "no room in k = %d for denormals" % k, [1, sign] + spread(30, top, 2**k - 1)
        if self.form is not FP32:
            yield "any exponent", self.of(range(0, self.form.inf >> self.form.fraction_bits, 1 + 7 * (top == 200)))
        if top == 200:
            yield "exponents too far apart", spread(32, top, 128)
            yield "too far apart, mostly +0", [0] * 29 + spread(3, top, 128)
        # The first k gives a packed group of `count` floats of fp32, and the next one a plain group.
        for count, least in ((2, 0), (3, 1), (4, 2), (5, 3), (8, 6), (9, 3), (16, 7)):
            for k in range(least, min(least + 2, most)):
                yield "%d floats, k = %d" % (count, k), spread(count, top, 2**k - 1)
        for k in (5, 6) if top == 200 else (3, 4):
            yield "5 floats, of which 2 are +0, k = %d" % k, [0, *spread(3, top, 2**k - 1), 0]

    def gradients(self, count, factor=1):
        """Returns gradients, of which some are +0, -0 or denormal."""
        rng = self.rng
        return [rng.choice((0, 0, self.sign, rng.getrandbits(self.form.fraction_bits))) if rng.randrange(9) == 0
                else self.narrow(f) for f in laplace(rng, count, self.scale * factor)]


def encode_cases(out, floats):
    for title, bits in floats.groups():
        out.encode(title, bits)
    out.encode("special values", floats.specials())
    out.encode("random bits", [floats.random_bits() for _ in range(64)])
    for count in (0, *range(1, 32)):
        out.encode("%d floats" % count, floats.gradients(count))
    several = [f for _, bits in floats.groups() if len(bits) == 32 for f in bits]
    out.tile("groups of all kinds", several, len(several), [out.codec.max_bytes(len(several))])


def cut_cases(out, floats):
    codec = out.codec
    bits = [0] * 32 + floats.gradients(32) + [floats.random_bits() for _ in range(32)] + floats.gradients(7)
    needs = [len(codec.encode(bits[:n])[1]) for n in (32, 64, 96, 103)]
    out.encode("limited room", bits, rooms=sorted({0, 2, 3, 100} | {need + d for need in needs for d in (-1, 0, 1)}))
    # These runs take more than 16384 bytes, so an encoder stops there unless the room is at least max_bytes().
    count = 19600 // codec.width
    most = codec.max_bytes(count)
    rooms = (16383, 16384, 16392, most - 1, most, most + 1)
    out.tile("long, all plain", [floats.random_bits() for _ in range(35)], count, rooms)
    count = 24000 // codec.width
    out.tile("long", floats.gradients(35), count, (1000, 16384, codec.max_bytes(count)))


def rest_bytes(codec, floats):
    """Returns the bytes of signs and mantissas."""
    return codec.split * -(-floats // 8) + codec.rest * floats


def foreign_group(codec, rng, floats):
    """Returns a group that a decoder must accept, and most encoders never make."""
    head = rng.choice((ref.Pack.zeros, ref.Pack.plain, rng.randrange(8), rng.randrange(16), 16 + rng.randrange(1, 8),
                       24 + rng.randrange(1, 8)))
    if head == ref.Pack.zeros:
        return bytes([head])
    if head == ref.Pack.plain:
        return bytes([head]) + rng.randbytes(codec.width * floats)
    group = bytes([head, rng.choice((0, 1, 90, 127, 255, rng.randrange(256)))])
    if head & ref.Pack.masked:
        mask = rng.getrandbits(floats) & rng.choice((0, 1, rng.getrandbits(32), 2**32 - 1))
        group += struct.pack("<I", mask)
        floats = bin(mask).count("1")
    return group + rng.randbytes((head & 7) * -(-floats // 8) + rest_bytes(codec, floats))


def foreign_block(codec, rng, floats):
    return b"".join(foreign_group(codec, rng, min(ref.GROUP, floats - at)) for at in range(0, floats, ref.GROUP))


def block_cases(out, floats):
    codec = out.codec
    out.decode("no floats", b"", 0)
    out.decode("an exponent below 0", b"\x01\x05" + b"\xff" + bytes(rest_bytes(codec, 8)), 8)
    out.decode("bits behind the last float", b"\x11\x05" + b"\xfe" + bytes(rest_bytes(codec, 3)), 3)
    out.decode("a mask of no float", b"\x0b\x05" + bytes(4), 32)
    out.decode("a mask of all floats", b"\x08\x7f" + b"\xff" * 4 + bytes(rest_bytes(codec, 32)), 32)
    out.decode("zeros as they are", b"\x20" + bytes(32 * codec.width), 32)
    for count in (1, 7, 31, 32, 33, 63, 100, 300, 500):
        out.decode("groups no encoder makes", foreign_block(codec, floats.rng, count), count)
    invalid_cases(out, codec.encode(floats.gradients(45))[1])


def invalid_cases(out, good):
    rest, width = rest_bytes(out.codec, 1), out.codec.width
    zeros, one = bytes([ref.Pack.zeros]), bytes([0, 127, 1, 2, 3, 4][: 2 + rest])
    out.invalid("empty", b"", 45, ref.SHORT)
    out.invalid("one byte too few", good[:-1], 45, ref.SHORT)
    out.invalid("one byte too many", good + b"\0", 45, ref.LONG)
    out.invalid("a byte for no floats", b"\0", 0, ref.LONG)
    out.invalid("one group of two", zeros, 33, ref.SHORT)
    out.invalid("zeros, and a byte", zeros * 2, 32, ref.LONG)
    out.invalid("a head alone", one[:1], 1, ref.SHORT)
    out.invalid("a base alone", one[:2], 1, ref.SHORT)
    out.invalid("a float cut", one[:-1], 1, ref.SHORT)
    out.invalid("a byte behind a float", one + b"\0", 1, ref.LONG)
    out.invalid("a plain head alone", b"\x20", 1, ref.SHORT)
    out.invalid("a plain float cut", b"\x20" + bytes(width - 1), 1, ref.SHORT)
    out.invalid("a byte behind a plain float", b"\x20" + bytes(width + 1), 1, ref.LONG)
    out.invalid("a mask cut", b"\x08\x7f\1\0\0", 32, ref.SHORT)
    out.invalid("a plane cut", b"\x01\x7f\1\0\0", 32, ref.SHORT)
    out.invalid("no plane", b"\x01\x7f" + bytes(rest), 1, ref.SHORT)
    for head in (0x10, 0x18, 0x21, 0x28, 0x30, 0x41, 0x48, 0x60, 0x80, 0xC0, 0xFF):
        out.invalid("head %02x" % head, bytes([head, 127]) + bytes(200), 32, ref.BAD_ESCAPE)
    out.invalid("a bad head after a good group", zeros + b"\x80", 33, ref.BAD_ESCAPE)
    out.invalid("a bad head behind the last group", zeros + b"\x80", 32, ref.LONG)
    for bit in (13, 31):
        block = b"\x08\x7f" + struct.pack("<I", 1 | 1 << bit) + bytes(rest_bytes(out.codec, 2))
        out.invalid("bit %d of the mask of 13 floats" % bit, block, 13, ref.BAD_TAIL)
        out.invalid("bit %d of the mask of 13 floats, and short" % bit, block[:-1], 13, ref.SHORT)
        out.invalid("bit %d of the mask of 13 floats, and long" % bit, block + b"\0", 13, ref.BAD_TAIL)


def hop_cases(out, floats):
    codec, rng, sign = out.codec, floats.rng, floats.sign
    for title, theirs, ours in (("gradients", 1, 1), ("small and large", 1, 2**20), ("large and small", 2**20, 1),
                                ("large", 2**130, 2**130)):
        out.hop(title, codec.encode(floats.gradients(75, theirs))[1], floats.gradients(75, ours))
    out.hop("no floats", b"", [])
    out.hop("zeros", codec.encode([0] * 40)[1], [0] * 40)
    out.hop("zeros of both signs", codec.encode([0, 0, sign, sign])[1], [0, sign, 0, sign])
    cancel = floats.gradients(70)
    out.hop("cancelled", codec.encode(cancel)[1], [f ^ sign for f in cancel])
    least = 1 << codec.form.fraction_bits
    out.hop("denormal sums", codec.encode([least | n for n in range(40)])[1],
            [sign | least | rng.randrange(60) for _ in range(40)])
    values = [floats.inf, floats.neg_inf, floats.nan, floats.snan, sign, 0, 1, floats.inf - 1,
              sign | floats.inf - 1, codec.form.round(floats.scale)]
    pairs = [(a, b) for a in values for b in values]
    out.hop("pairs of special values", codec.encode([a for a, _ in pairs])[1], [b for _, b in pairs])
    for count in (1, 31, 64, 200):
        out.hop("groups no encoder makes", foreign_block(codec, rng, count), floats.gradients(count))
    block, local = codec.encode(floats.gradients(103))[1], floats.gradients(103, 10)
    whole = len(codec.hop(block, local)[2])
    pieces = whole // 2 if codec.width == 4 else whole * 3 // 4
    out.hop("limited room", block, local, rooms=(0, 7, whole // 2, whole - 1, whole), pieces=pieces)


def cases(out):
    floats = Floats(out.codec, out.rng)
    encode_cases(out, floats)
    cut_cases(out, floats)
    block_cases(out, floats)
    hop_cases(out, floats)
