#!/usr/bin/python3
"""Tests of codec exact: sums and averages of random numbers, against Python's own correctly rounded ones. Run it as
python_test.py is run, with strategy direct."""

import fractions
import math
import struct
import unittest

import numpy

import gradlane

gl = None


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


def inputs(count, dtype, spread, seed):
    """Returns the arrays of all ranks: numbers of many magnitudes, which cancel in part."""
    draw = numpy.random.default_rng(seed)
    parts = [(draw.normal(size=count) * numpy.exp2(draw.integers(-spread, spread, count))).astype(dtype)
             for _ in range(gl.world)]
    parts[-1][::3] = -parts[0][::3]
    return parts


def to_float32(value):
    """Rounds a fraction to float32. A float64 has bits enough to do it in two steps, unless the first one lands on a
    midpoint."""
    wide = float(value)
    if fractions.Fraction(wide) != value and int.from_bytes(struct.pack("<d", wide), "little") % (1 << 29) == 1 << 28:
        wide = math.nextafter(wide, math.inf if value > fractions.Fraction(wide) else -math.inf)
    return numpy.float32(wide)


class Exact(unittest.TestCase):
    def test_float64(self):
        for spread in (1, 40, 300):
            parts = inputs(5000, "float64", spread, spread)
            for strategy in ("direct", "aggregator:1"):
                total = gl.all_reduce(parts[gl.rank].copy(), codec="exact", strategy=strategy)
                wanted = numpy.array([math.fsum(column) for column in zip(*parts)])
                self.assertEqual(total.tobytes(), (wanted + 0.0).tobytes(), (spread, strategy))

    def test_averages(self):
        for dtype, rounded in (("float64", float), ("float32", to_float32)):
            parts = inputs(2000, dtype, 30, 7)
            mean = gl.all_reduce(parts[gl.rank].copy(), average=True, codec="exact", strategy="direct")
            for i in range(2000):
                exact = sum(fractions.Fraction(float(part[i])) for part in parts) / gl.world
                self.assertEqual(mean[i], rounded(exact), (dtype, i))

    def test_any_size_and_bucket(self):
        parts = inputs(3000, "float32", 10, 3)
        whole = gl.all_reduce(parts[gl.rank].copy(), codec="exact", strategy="direct")
        pieces = parts[gl.rank].copy()
        for first, last in ((0, 7), (7, 1100), (1100, 3000)):
            pieces[first:last] = gl.all_reduce(pieces[first:last].copy(), codec="exact", strategy="direct")
        self.assertEqual(whole.tobytes(), pieces.tobytes())
        self.assertEqual(gl.hash_of(whole), gl.hash_of(pieces))


if __name__ == "__main__":
    unittest.main()
