#!/usr/bin/python3
"""Tests of warnings about the loss by codecs, in Python. Each rank runs them, under `gradlane run`."""

import unittest
import warnings

import numpy

import gradlane

COUNT = 5000
gl = None


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


class LossesTest(unittest.TestCase):
    def caught(self, call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        return [warning for warning in caught if warning.category is gradlane.LossWarning]

    def test_numpy(self):
        before = gl.figures()
        tiny = numpy.full(COUNT, 1e-6, numpy.float32)
        for options in ({}, {"codec": "raw"}, {"codec": "fixed:30"}, {"codec": "bf16"}):
            self.assertEqual(self.caught(lambda o=options: gl.all_reduce(tiny, **o)), [], options)
        residual = gl.zeros(COUNT)
        self.assertEqual(self.caught(lambda: gl.all_reduce(tiny, codec="fixed:10", residual=residual)), [])
        self.assertEqual(gl.figures().lossy_zeroed, before.lossy_zeroed)

        tiny[:] = 1e-6
        (warning,) = self.caught(lambda: gl.all_reduce(tiny, codec="fixed:10"))
        self.assertIn(f"all_reduce of {COUNT} elements by codec fixed:10 lost 100 % of the norm of rank "
                      f"{gl.rank}'s values, and 100 % of its nonzero values became zero", str(warning.message))
        self.assertEqual(warning.filename, __file__)
        tiny[:] = 1e-6
        self.assertEqual(self.caught(lambda: gl.all_reduce(tiny, codec="fixed:10")), [], "once")
        after = gl.figures()
        self.assertEqual(after.lossy_zeroed - before.lossy_zeroed, 2 * 2048)
        self.assertGreater(after.lossy_values - before.lossy_values, 3 * 2048)

        # If warnings are errors, the operation has ended nevertheless.
        tiny = numpy.full(COUNT + 1, 1e-6, numpy.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(gradlane.LossWarning):
                gl.all_reduce(tiny, codec="fixed:10")
        self.assertEqual(numpy.count_nonzero(tiny), 0)
        ones = gl.all_reduce(numpy.ones(COUNT + 1, numpy.float32))
        numpy.testing.assert_array_equal(ones, gl.world)


if __name__ == "__main__":
    unittest.main(verbosity=2)
