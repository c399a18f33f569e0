# reference_floats.py - the floats of docs/codec-format.md in exact arithmetic: their formats, rounding and add()
"""Implements floating-point formats on bit patterns, in integers and fractions. Only the display of a number uses
floats."""
import struct
from fractions import Fraction

CANONICAL_NAN = 0x7FC00000


class BinaryFormat:
    """A binary floating-point format of IEEE 754 with its widths in bits."""

    def __init__(self, exponent_bits, fraction_bits):
        self.fraction_bits = fraction_bits
        self.width = 1 + exponent_bits + fraction_bits
        self.inf = ((1 << exponent_bits) - 1) << fraction_bits
        self.quiet = 1 << (fraction_bits - 1)
        self.min_exponent = 2 - (1 << (exponent_bits - 1))  # least exponent of normal numbers

    def negative(self, bits):
        return bits >> (self.width - 1) == 1

    def magnitude_bits(self, bits):
        return bits & ((1 << (self.width - 1)) - 1)

    def is_nan(self, bits):
        return self.magnitude_bits(bits) > self.inf

    def is_inf(self, bits):
        return self.magnitude_bits(bits) == self.inf

    def is_finite(self, bits):
        return self.magnitude_bits(bits) < self.inf

    def with_sign(self, magnitude_bits, negative):
        return magnitude_bits | (1 << (self.width - 1) if negative else 0)

    def value(self, bits):
        """Returns the exact value of a finite number."""
        magnitude = self.magnitude_bits(bits)
        field, fraction = magnitude >> self.fraction_bits, magnitude % (1 << self.fraction_bits)
        if field != 0:
            fraction += 1 << self.fraction_bits
            field -= 1
        result = fraction * Fraction(2) ** (field + self.min_exponent - self.fraction_bits)
        return -result if self.negative(bits) else result

    def round(self, value, negative_zero=False):
        """Returns the nearest number of this format, ties to even; Inf past the largest one."""
        magnitude = abs(value)
        if magnitude == 0:
            return self.with_sign(0, negative_zero)
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        if magnitude < Fraction(2) ** exponent:
            exponent -= 1
        exponent = max(exponent, self.min_exponent)
        units = round(magnitude / Fraction(2) ** (exponent - self.fraction_bits))  # round() takes ties to even
        # The leading bit of `units` adds 1 to the exponent field, also where rounding has carried into it.
        bits = ((exponent - self.min_exponent) << self.fraction_bits) + units
        return self.with_sign(min(bits, self.inf), value < 0)


FP32 = BinaryFormat(8, 23)
FP16 = BinaryFormat(5, 10)
BF16 = BinaryFormat(8, 7)


def add(a, b):
    """Returns add() of the format: the IEEE sum, with a single NaN."""
    if FP32.is_nan(a) or FP32.is_nan(b):
        return CANONICAL_NAN
    if FP32.is_inf(a) or FP32.is_inf(b):
        if FP32.is_inf(a) and FP32.is_inf(b) and a != b:
            return CANONICAL_NAN
        return a if FP32.is_inf(a) else b
    return FP32.round(FP32.value(a) + FP32.value(b), FP32.negative(a) and FP32.negative(b))


def floats_of(bits):
    return struct.unpack("<%df" % len(bits), struct.pack("<%dI" % len(bits), *bits))


def bits_of(floats):
    return list(struct.unpack("<%dI" % len(floats), struct.pack("<%df" % len(floats), *floats)))
