# golden_inputs.py - the floats of golden vectors: special values, gradients, and the edges of codecs' classes
"""Makes floats as fp32 bits, the same on every machine."""
from fractions import Fraction

import reference_codec as ref
from reference_floats import FP32

SIGN = 0x80000000
# NaN (quiet, signalling, with payload), Inf, zero, denormals, the least and the largest normal number, one.
SPECIALS = [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FBFFFFF, 0x7FC12345, 0xFFFFFFFF, 0x7FFFE000, 0x7F801FFF,
            0x7F800000, 0xFF800000, 0, SIGN, 1, SIGN | 1, 0x00400000, 0x007FFFFF, SIGN | 0x007FFFFF, 0x00800000,
            0x80800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x3F800001]
NAN, SNAN, INF, NEG_INF = 0x7FC12345, 0xFF800001, 0x7F800000, 0xFF800000


def fp32(value):
    return FP32.round(Fraction(value))


def around(values):
    """Returns each value with its fp32 neighbours, in both signs."""
    bits = []
    for value in values:
        at = fp32(value)
        for near in (at - 1, at, at + 1):
            bits += [near, near | SIGN]
    return bits


def exponential(rng):
    """Returns an exponential variate by von Neumann's comparisons. No logarithm is used, so every machine gets the same
    bits."""
    whole = 0
    while True:
        first = last = rng.random()
        length = 1
        while (u := rng.random()) < last:
            last = u
            length += 1
        if length % 2 == 1:
            return whole + first
        whole += 1


def laplace(rng, count, scale):
    return [fp32(Fraction(exponential(rng)) * scale * rng.choice((1, -1))) for _ in range(count)]


def boundaries(codec):
    """Returns values around the points where this codec's result changes: edges of classes, ties, ends of the range."""
    if isinstance(codec, ref.Fixed):
        steps = [Fraction(n, 2) for n in (1, 2, 3, 4, 5, 253, 254, 255, 256, 257, 509, 511, 513, 65533, 65534, 65535,
                                          65536, 65537, 2**17 + 1, 2**23 - 1, 2**23 + 1, 2**24 - 3, 2**24 - 1, 2**24,
                                          2**24 + 2, 2**25)]
        return around(n * codec.step for n in steps)
    if isinstance(codec, ref.Inceptionn):
        unit = codec.byte_unit
        tie = codec.byte_below * 3 / 4 + unit / 2
        edges = [at + codec.step * Fraction(n, 2) for at in (codec.zero_below, codec.byte_below - unit / 2, 1, tie)
                 for n in (-2, -1, 0, 1)]
        edges += [1 + codec.step * 3 / 2, 256 - codec.step / 2, 256, codec.byte_below, codec.byte_below - codec.step,
                  codec.zero_below / 2, codec.zero_below + unit / 2, tie + unit, codec.byte_below + codec.step * 3 / 2]
        if isinstance(codec, ref.InceptionnLiteral):
            edges += [unit, 2 * unit, 3 * unit, 64 * unit]
        return around(edges)
    if codec.name == "raw":
        return []
    bf16 = codec.name == "bf16"
    fraction, least, most = (7, -126, 127) if bf16 else (10, -14, 15)
    half_ulp = Fraction(2) ** -(fraction + 1)
    edges = [1 + half_ulp * n for n in (1, 2, 3, 4, 5)] + [2 - half_ulp, 2 - 3 * half_ulp]
    below = Fraction(2) ** least
    edges += [below * (1 + n * half_ulp) for n in (1, 0, -1, -2, -3)]
    edges += [2 * below * half_ulp * Fraction(n, 2) for n in (1, 2, 3, 4, 6)]
    top = Fraction(2) ** most * (2 - half_ulp)
    return around(edges + [top, top - Fraction(2) ** most * half_ulp])


def step_mixes(codec):
    """Returns the steps of two summands. Their sums lie at edges of classes, at ties, and where fp32 rounds. Only the
    second summand has half steps."""
    if isinstance(codec, ref.Fixed):
        return ((127, 128, -127, -128, 32767, -32767, 32768, 40000, 2**23 - 1, 2**23, 2**24, 2**24 + 2),
                (1, -1, 100, -20000, 20000, 32767, -40000, 3))
    zero, byte = int(codec.zero_below / codec.step), int(codec.byte_below / codec.step)
    return ((0, zero, -zero, byte + 1, -byte, 32766, -32767, 32769 + Fraction(1, 8), 2**23 - 1, -(2**24)),
            (Fraction(1, 2), Fraction(-3, 2), 1, zero - Fraction(1, 2), -byte, byte - Fraction(3, 2), 32767, -(2**23)))


def scale_of(codec):
    """Returns the scale of gradients that spread over the classes of this codec."""
    if isinstance(codec, ref.Fixed):
        return codec.step * 40
    if isinstance(codec, ref.Inceptionn):
        return min(codec.byte_below, Fraction(1, 4))
    return Fraction(1, 1000)
