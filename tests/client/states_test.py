#!/usr/bin/python3
"""Tests of residuals of several arrays, and of what a context reports about codecs: gradlane run -n N --strategies
ring,direct -- states_test.py."""

import unittest

import numpy

import gradlane

COUNT = 5000
gl = None


# All tests share one connection: if a rank reconnects, the operations of other ranks fail.
def setUpModule():
    global gl
    gl = gradlane.open()


class Codecs(unittest.TestCase):
    def test_listed(self):
        codecs = gl.codecs()
        self.assertEqual(len({(codec.word, codec.usage, codec.variant) for codec in codecs}), len(codecs))
        for codec in codecs:
            self.assertEqual(gl.find_codec(codec.example), codec)
            self.assertEqual(codec.states > 0, gradlane.Capability.FEEDBACK in codec.flags)
            self.assertTrue(codec.promise)
        self.assertEqual(gl.find_codec().word, gl.codec.partition(":")[0])
        self.assertEqual(gl.find_codec("fixed:7").most, 30)
        with self.assertRaisesRegex(gradlane.BadArgument, "fixd"):
            gl.find_codec("fixd:7")

    def test_residuals(self):
        """Check that each codec with feedback keeps its residual, in shared memory and in plain arrays."""
        values = numpy.random.default_rng(gl.rank).normal(0, 1e-2, COUNT).astype("float32")
        for codec in gl.codecs():
            if codec.states == 0:
                with self.assertRaisesRegex(gradlane.BadArgument, "takes no residual; one that does is (fixed|signsgd,ef)"):
                    gl.residual_for(values, codec.example)
                continue
            shared = gl.residual_for(values, codec.example)
            self.assertEqual(shared.shape, (codec.states, COUNT))
            plain = numpy.zeros(codec.states * COUNT, "float32")
            for _ in range(2):
                one, other = values.copy(), values.copy()
                gl.all_reduce(one, codec=codec.example, residual=shared)
                gl.all_reduce(other, codec=codec.example, residual=plain)
                total = gl.all_reduce(one.copy(), codec="raw")
                self.assertLessEqual(float(abs(total - one * gl.world).max()), 1e-5 * gl.world, "all have the same")
            self.assertTrue(shared.any())
            self.assertTrue(plain[:COUNT].any())

    def test_that_do_not_fit(self):
        codec = next(codec for codec in gl.codecs() if codec.states > 1)
        array = gl.zeros(COUNT)
        text = rf"residual has {COUNT} elements, and data has {COUNT}; needed: {codec.states} arrays of states"
        with self.assertRaisesRegex(gradlane.BadArgument, text):
            gl.all_reduce(array, codec=codec.example, residual=gl.zeros(COUNT))
        with self.assertRaisesRegex(gradlane.BadArgument, "residual has"):
            gl.all_reduce(array, codec="fixed:10", residual=gl.zeros((2, COUNT)))

    def test_too_coarse_for_feedback(self):
        """Check that qsgd:1 takes no residual: with two values a residual would grow forever."""
        array = gl.zeros(COUNT)
        self.assertEqual((gl.find_codec("qsgd:1").states, gl.find_codec("qsgd:2").states), (0, 2))
        self.assertNotIn(gradlane.Capability.FEEDBACK, gl.find_codec("qsgd:1").flags)
        with self.assertRaisesRegex(gradlane.BadArgument, "qsgd:1 takes no residual; one that does is qsgd:4"):
            gl.residual_for(array, "qsgd:1")
        with self.assertRaisesRegex(gradlane.BadArgument, "qsgd:1 takes no residual; one that does is qsgd:4"):
            gl.all_reduce(array, codec="qsgd:1", residual=gl.zeros(COUNT))
        array[:] = 1
        gl.all_reduce(array, codec="qsgd:1")
        self.assertEqual(float(array[0]), gl.world)

    def test_sums_are_exact_by_the_whole_name(self):
        for name in "topk:1%", "mstopk:1%", "dgc:1%", "graddrop:1%":
            self.assertNotIn(gradlane.Capability.EXACT_SUMS, gl.find_codec(name).flags)
            self.assertIn(gradlane.Capability.EXACT_SUMS, gl.find_codec(f"{name}+fixed:10").flags)

    def test_shapes(self):
        """Check that state arrays lie one after the other, and that other shapes of as many elements are refused."""
        array = gl.zeros((COUNT // 2, 2))
        for shape in (2 * COUNT,), (2, COUNT), (2, COUNT // 2, 2):
            gl.all_reduce(array, codec="onebit", residual=gl.zeros(shape))
        for shape in (COUNT, 2), (COUNT // 2, 2, 2), (1, 2, COUNT):
            with self.assertRaisesRegex(gradlane.BadArgument, rf"shape \({shape[0]}, .*shape \(2, {COUNT}\)"):
                gl.all_reduce(array, codec="onebit", residual=gl.zeros(shape))

    def test_small_sums_pay(self):
        codec = next(codec for codec in gl.codecs() if gradlane.Capability.OWNED in codec.flags and codec.states > 0)
        array = gl.zeros(10)
        residual = gl.residual_for(array, codec.example)
        residual[0], residual[1] = 1, 2
        gl.all_reduce(array, average=True, codec=codec.example, residual=residual)
        self.assertEqual(float(array[0]), 1 + 2)
        self.assertFalse(residual.any())

    def test_ways(self):
        codec = next(codec for codec in gl.codecs() if gradlane.Capability.OWNED in codec.flags and codec.states > 0)
        array = gl.zeros(COUNT)
        gl.all_reduce(array, codec=codec.example)
        gl.all_reduce(array, codec=codec.example, strategy="direct")
        if gl.world > 1:
            with self.assertRaisesRegex(gradlane.BadArgument, f"{codec.word} does not add, so it needs strategy direct"):
                gl.all_reduce(array, codec=codec.example, strategy="ring")


if __name__ == "__main__":
    unittest.main(failfast=True, verbosity=2)
