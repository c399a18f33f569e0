#!/usr/bin/python3
"""Tests of residuals of several arrays, and of what a context tells of codecs:
gradlane run -n N --strategies ring,direct -- states_test.py."""

import unittest

import numpy

import gradlane

COUNT = 5000


class Codecs(unittest.TestCase):
    def test_listed(self):
        with gradlane.open() as gl:
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
        """Each codec with feedback, and what it keeps; arrays in shared memory, and plain ones."""
        with gradlane.open() as gl:
            values = numpy.random.default_rng(gl.rank).normal(0, 1e-2, COUNT).astype("float32")
            for codec in gl.codecs():
                if codec.states == 0:
                    with self.assertRaisesRegex(gradlane.BadArgument, "takes no residual; one that does is fixed:10"):
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
        with gradlane.open() as gl:
            codec = next(codec for codec in gl.codecs() if codec.states > 1)
            array = gl.zeros(COUNT)
            text = rf"residual has {COUNT} elements, and data {COUNT} with {codec.states} arrays of states"
            with self.assertRaisesRegex(gradlane.BadArgument, text):
                gl.all_reduce(array, codec=codec.example, residual=gl.zeros(COUNT))
            with self.assertRaisesRegex(gradlane.BadArgument, "residual has"):
                gl.all_reduce(array, codec="fixed:10", residual=gl.zeros((2, COUNT)))

    def test_small_sums_pay(self):
        with gradlane.open() as gl:
            codec = next(codec for codec in gl.codecs() if gradlane.Capability.OWNED in codec.flags)
            array = gl.zeros(10)
            residual = gl.residual_for(array, codec.example)
            residual[0], residual[1] = 1, 2
            gl.all_reduce(array, average=True, codec=codec.example, residual=residual)
            self.assertEqual(float(array[0]), 1 + 2)
            self.assertFalse(residual.any())

    def test_ways(self):
        with gradlane.open() as gl:
            codec = next(codec for codec in gl.codecs() if gradlane.Capability.OWNED in codec.flags)
            array = gl.zeros(COUNT)
            gl.all_reduce(array, codec=codec.example)
            gl.all_reduce(array, codec=codec.example, strategy="direct")
            if gl.world > 1:
                with self.assertRaisesRegex(gradlane.BadArgument, f"{codec.word} does not add: use strategy direct"):
                    gl.all_reduce(array, codec=codec.example, strategy="ring")


if __name__ == "__main__":
    unittest.main(failfast=True)
