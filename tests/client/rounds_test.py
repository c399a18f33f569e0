#!/usr/bin/python3
"""Tests of strategies by name, in Python. Each rank runs them, under `gradlane run -n N --strategies ...`, with any
strategies that N ranks can use."""

import functools
import unittest

import numpy

import gradlane

COUNT = 30_000
gl = None


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


def given(rank):
    return numpy.random.default_rng(rank).normal(0, 0.01, COUNT).astype("float32")


class RoundsTest(unittest.TestCase):
    def test_all_of_them(self):
        every = [given(rank) for rank in range(gl.world)]
        exact = numpy.sum(every, axis=0, dtype=numpy.float64)
        results = {}
        for strategy in (None, *gl.strategies):
            for codec, bound in (("raw", 1e-7), ("fixed:10", 2.0**-10), ("bf16", 1e-3)):
                array = given(gl.rank)
                gl.all_reduce(array, strategy=strategy, codec=codec)
                self.assertLess(numpy.abs(array - exact).max(), gl.world * bound)
                results[strategy, codec] = array
            gl.barrier(strategy=strategy)
            picked = gl.all_reduce(given(gl.rank), strategy=strategy, reduction="max")
            numpy.testing.assert_array_equal(picked, functools.reduce(numpy.maximum, every))
        # fixed gives the same bytes with every strategy. bf16 does not, so it is compared only with the daemons'
        # default, the first one.
        for strategy in gl.strategies:
            numpy.testing.assert_array_equal(results[strategy, "fixed:10"], results[None, "fixed:10"])
        numpy.testing.assert_array_equal(results[gl.strategies[0], "bf16"], results[None, "bf16"])
        self.check_aggregator(exact)

    def test_ranks_that_name_others(self):
        """Check that the errors of all ranks name both strategies."""
        with self.assertRaisesRegex(gradlane.OperationFailed, "strategy: (ring .*direct|direct .*ring)"):
            gl.all_reduce(numpy.ones(COUNT), strategy="ring" if gl.rank == 2 else "direct")
        gl.barrier()  # no rank leaves before all have got the error

    def check_aggregator(self, exact):
        """Check that an aggregator can send results with another codec than that of the contributions."""
        there, both, back = (gl.all_reduce(given(gl.rank), strategy="aggregator:1", codec=codec)
                             for codec in ("fixed:12", "fixed:12/fixed:4", "raw/fixed:4"))
        step = 2.0**-3  # step of fixed:4
        self.assertLess(numpy.abs(there - exact).max(), gl.world * 2.0**-12)
        self.assertGreater(numpy.count_nonzero(there / step % 1), COUNT // 2)
        for rounded in (both, back):
            self.assertEqual(numpy.count_nonzero(rounded / step % 1), 0)
            self.assertLess(numpy.abs(rounded - exact).max(), step / 2 + gl.world * 2.0**-12)

    def test_refusals(self):
        ones = numpy.ones(gl.world)
        whole = ", ".join(name for name in gl.strategies if name in ("direct", "ring"))
        for strategy in set(gl.strategies) - {"direct", "ring"}:
            for call in (gl.all_gather, gl.broadcast, gl.reduce_scatter):
                with self.assertRaisesRegex(gradlane.BadArgument, f"strategy {strategy} cannot do this operation; .*{whole}$"):
                    call(ones, strategy=strategy)
        for strategy in ("rings:4", "aggregator:0", "aggregator:1,stream"):
            with self.assertRaisesRegex(gradlane.BadArgument, f"the daemon allows {', '.join(gl.strategies)}"):
                gl.all_reduce(ones, strategy=strategy)
        with self.assertRaisesRegex(gradlane.BadArgument, f"one for the way back.*; strategy is {gl.strategies[0]}"):
            gl.all_reduce(given(0), codec="fixed:10/raw")
        for strategy in ("direct", "ring"):
            array = numpy.arange(gl.world) * (numpy.arange(gl.world) == gl.rank)
            numpy.testing.assert_array_equal(gl.all_gather(array, strategy=strategy), numpy.arange(gl.world))
            numpy.testing.assert_array_equal(gl.broadcast(numpy.full(9, gl.rank), root=2, strategy=strategy), 2)
            array = numpy.arange(gl.world)
            gl.reduce_scatter(array, strategy=strategy)
            self.assertEqual(array[gl.rank], gl.rank * gl.world)


if __name__ == "__main__":
    unittest.main(verbosity=2)
