#!/usr/bin/env python3
# reference_selection.py - an independent implementation of the codecs that select, and the golden vectors that it makes
"""Writes tests/compress/golden_selection.txt: exchanges of three ranks, each in seven lines."""
import argparse
import math
import pathlib
import random
import struct
import sys
from fractions import Fraction

import reference_codec as ref
from reference_floats import FP32, add

WORD = 2**32
INF, NEG_INF, NAN, SIGN = 0x7F800000, 0xFF800000, 0x7FC00000, 0x80000000
NAMES = ["fixed:1,stochastic", "fixed:10,stochastic", "fixed:rel=1", "fixed:rel=8", "terngrad", "terngrad:1", "tbq:1",
         "tbq:7", "signsgd", "signsgd,ternary", "signsgd,ef"]


def random_bits(seed, position):
    """Returns 32 random bits. Random fractions use the upper 23 bits, and random signs use bit 31."""
    mask = 2**64 - 1
    seed = (seed + 0x9E3779B97F4A7C15) & mask
    seed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & mask
    seed = (seed ^ seed >> 27) * 0x94D049BB133111EB & mask
    seed ^= seed >> 31
    x = (position + seed) % WORD
    x = (x ^ x >> 16) * 0x85EBCA6B % WORD
    return ((x ^ x >> 13) + (seed >> 32)) * 0xC2B2AE35 % WORD


def chance(seed, position):
    """Returns a random fraction: an odd multiple of 2^-24."""
    return Fraction(2 * (random_bits(seed, position) >> 9) + 1, 2**24)


def mixed_chance(seed, position):
    bits = random_bits(seed, position)
    return Fraction(2 * ((bits ^ bits >> 16) >> 9) + 1, 2**24)


class OnLattice:
    """A codec whose values are multiples of a step, in blocks of `fixed`."""

    def __init__(self, step, choose):
        self.fixed = ref.Fixed(1)
        self.fixed.step = step
        self.choose = choose

    def contribution(self, bits, seed, position):
        if not FP32.is_finite(bits):
            return bits
        v = FP32.round(self.choose(abs(FP32.value(bits)), seed, position))
        return v ^ SIGN if FP32.negative(bits) and v != 0 else v

    def blocks(self, ranks):
        """Yields the block of each partial sum, as the hops write it."""
        total = None
        for floats in ranks:
            total = floats if total is None else [add(a, b) for a, b in zip(total, floats)]
            yield self.fixed.write(total, self.fixed.max_bytes(len(total)))[1]


def power_below(value):
    exponent = 0
    while Fraction(2) ** exponent > value:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= value:
        exponent += 1
    return exponent


def stochastic(step):
    def choose(size, seed, position):
        if size >= 2**23 * step:
            return size
        below = size // step
        return (below + (mixed_chance(seed, position) < size / step - below)) * step
    return choose


def nearest(step):
    return lambda size, seed, position: size if size >= 2**23 * step else round(size / step) * step


def ternary(step, clip):
    return lambda size, seed, position: step if chance(seed, position) < min(size, clip) / step else Fraction(0)


class Votes:
    def __init__(self, abstains, scale):
        self.abstains, self.scale = abstains, scale

    def contribution(self, bits, seed, position):
        """Returns a vote, or "inf", "-inf", "nan"."""
        if FP32.is_nan(bits):
            return "nan"
        if FP32.is_inf(bits):
            return "-inf" if FP32.negative(bits) else "inf"
        if FP32.value(bits) == 0:
            return 0 if self.abstains else (-1 if random_bits(seed, position) >> 31 else 1)
        return -1 if FP32.negative(bits) else 1

    @staticmethod
    def add(a, b):
        if isinstance(a, str) or isinstance(b, str):
            if a == b or not isinstance(b, str):
                return a
            return b if not isinstance(a, str) else "nan"
        return a + b

    @staticmethod
    def record(values):
        known = [v for v in values if not isinstance(v, str)]
        reach = max((abs(v) for v in known), default=0)
        single = len({v % 2 for v in known}) > 1
        codes = [(reach + v) // (1 if single else 2) if not isinstance(v, str) else 0 for v in values]
        planes = (2 * reach if single else reach).bit_length()
        special = len(known) < len(values)
        head = reach | (0x4000 if single else 0) | (0x8000 if special else 0)
        numbers = [[c >> j & 1 for c in codes] for j in range(planes)]
        if special:
            kinds = [{"inf": 1, "-inf": 2, "nan": 3}.get(v, 0) for v in values]
            numbers += [[k >> j & 1 for k in kinds] for j in range(2)]
        body = b"".join(sum(bit << i for i, bit in enumerate(plane)).to_bytes(-(-len(values) // 8), "little")
                        for plane in numbers)
        return struct.pack("<H", head) + body

    def blocks(self, ranks):
        total = None
        for votes in ranks:
            total = votes if total is None else [self.add(a, b) for a, b in zip(total, votes)]
            yield b"".join(self.record(total[i:i + 256]) for i in range(0, len(total), 256))


def finite(floats):
    return [abs(FP32.value(f)) for f in floats if FP32.is_finite(f)]


def offer(name, floats):
    """Returns the value that a rank offers, as fp32 bits."""
    sizes = finite(floats)
    if name.startswith("terngrad"):
        clip = Fraction(name.partition(":")[2] or "2.5")
        square = float(sum(s * s for s in sizes) / len(sizes))
        return FP32.round(min(max(sizes), Fraction(float(clip) * math.sqrt(square))))
    if name.startswith("fixed:rel="):
        return FP32.round(max(sizes))
    return FP32.round(sum(sizes) / len(sizes)) if name == "signsgd,ef" else 0


def codec_of(name, agreed, own):
    agreed, own = FP32.value(agreed), FP32.value(own)
    if name.endswith("stochastic"):
        step = Fraction(2) ** (1 - int(name[6:].split(",")[0]))
        return OnLattice(step, stochastic(step))
    if name.startswith("fixed:rel="):
        step = Fraction(2) ** (power_below(agreed) + 1 - int(name[10:]))
        return OnLattice(step, nearest(step))
    if name.startswith("terngrad"):
        step = Fraction(2) ** power_below(agreed)
        step *= 2 if step < agreed else 1
        return OnLattice(step, ternary(step, own))
    if name.startswith("tbq:"):
        step = Fraction(2) ** -int(name[4:])
        return OnLattice(step, lambda size, seed, position: step if size >= step else Fraction(0))
    return Votes(name.endswith("ternary"), Fraction(1))


def some_floats(rng, count, scale):
    floats = [FP32.round(Fraction(rng.gauss(0, scale))) for _ in range(count)]
    for i in range(count):
        if rng.random() < 0.1:
            floats[i] = rng.choice((0, SIGN))
        elif rng.random() < 0.02:
            floats[i] = rng.choice((INF, NEG_INF, NAN, FP32.round(Fraction(20 * scale)), 1))
    return floats


def lines():
    yield "# name position seeds offers | floats of three ranks | blocks of one, two and three of them"
    for name in NAMES:
        rng = random.Random("selection " + name)
        for count in (1, 40, 300):
            ranks = [some_floats(rng, count, 2.0 ** -rng.randrange(1, 12)) for _ in range(3)]
            for floats in ranks:
                floats[0] = FP32.round(Fraction(rng.gauss(0, 1)))  # at least one finite value
            position, seeds = rng.choice((0, 1000, WORD - 100)), [rng.randrange(2**64) for _ in ranks]
            offers = [offer(name, floats) for floats in ranks]
            agreed = max(offers, key=FP32.value)
            codecs = [codec_of(name, agreed, own) for own in offers]
            chosen = [[codec.contribution(f, seed, position + i) for i, f in enumerate(floats)]
                      for codec, seed, floats in zip(codecs, seeds, ranks)]
            blocks = codecs[0].blocks(chosen)
            yield " ".join([name, str(position)] + ["%d" % seed for seed in seeds] + ["%08x" % o for o in offers])
            for floats in ranks:
                yield "  " + "".join("%08x" % f for f in floats)
            for block in blocks:
                yield "  " + block.hex()


def main():
    parser = argparse.ArgumentParser(description="Writes the golden vectors of codecs that select.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is not up to date")
    args = parser.parse_args()
    path = pathlib.Path(__file__).resolve().parent / "golden_selection.txt"
    text = "\n".join(lines()) + "\n"
    if not args.check:
        path.write_text(text, encoding="ascii")
    elif path.read_text(encoding="ascii") != text:
        sys.exit("not what this script writes: " + str(path))


if __name__ == "__main__":
    main()
