#!/usr/bin/python3
"""Tests of AdaptiveBound as the codec of operations: under `gradlane run -n N`, with PYTHONPATH=client/python."""

import gc
import math
import unittest

import numpy

import gradlane

COUNT = 3000
MAGNITUDES = [1e-6] * 4 + [1e-2] * 4 + [0.0] * 2 + [1e-7] * 3 + [1e-3] * 3
gl = None


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


def parts(step, magnitude):
    """Return the contributions of all ranks."""
    return [(numpy.random.default_rng([step, rank]).standard_normal(COUNT) * magnitude).astype(numpy.float32)
            for rank in range(gl.world)]


def both():
    """Return a shared array, and a plain one that is not contiguous."""
    return gl.zeros(COUNT), numpy.zeros((2, COUNT), numpy.float32).T[:, 1]


class Choices(unittest.TestCase):
    def check_same_on_all_ranks(self, bound):
        names = gl.zeros((gl.world, 16), "S1")
        names[gl.rank] = list(bound.codec().encode().ljust(16).decode())
        gl.all_gather(names)
        self.assertEqual(len({name.tobytes() for name in names}), 1)

    def test_as_by_hand(self):
        for array in both():
            for average in (True, False):
                bound, hand = gradlane.AdaptiveBound(), gradlane.AdaptiveBound()
                by_hand = gl.zeros(COUNT)
                for step, magnitude in enumerate(MAGNITUDES):
                    array[:] = by_hand[:] = parts(step, magnitude)[gl.rank]
                    self.check_same_on_all_ranks(bound)
                    self.assertEqual(bound.codec(), hand.codec())
                    gl.all_reduce(array, average=average, codec=bound)
                    gl.all_reduce(by_hand, average=average, codec=hand.codec())
                    hand.update(by_hand, 1.0 if average else 1 / gl.world)
                    self.assertEqual(array.tobytes(), by_hand.tobytes())
                self.assertTrue(bound.codec().startswith("fixed:1"), bound)

    def test_asynchronous(self):
        bounds = [gradlane.AdaptiveBound() for _ in range(5)]
        arrays = [numpy.zeros(COUNT, numpy.float32) for _ in bounds]
        for step in range(4):
            requests = []
            for array, bound in zip(arrays, bounds):
                array[:] = 1e-3
                requests.append(gl.all_reduce(array, average=True, codec=bound, async_=True))
                with self.assertRaisesRegex(gradlane.BadArgument, "the AdaptiveBound is in use by all_reduce of 3000"):
                    gl.all_reduce(gl.zeros(COUNT), codec=bound)
            for request, bound in zip(requests, bounds):
                before = bound.codec()
                request.wait()
                self.assertEqual((before, bound.codec()), ("raw" if step == 0 else "fixed:14", "fixed:14"))

    def test_dropped(self):
        bound = gradlane.AdaptiveBound()
        for _ in range(10):
            gl.all_reduce(gl.zeros(COUNT) + numpy.float32(1e-3), codec=bound, async_=True)
            gc.collect()
        gl.all_reduce(gl.zeros(COUNT), codec=bound)
        self.assertEqual(bound.codec(), "raw")

    def test_refused(self):
        bound = gradlane.AdaptiveBound(error_feedback=True)
        array = gl.zeros(COUNT)
        array[:] = 1e-3
        gl.all_reduce(array, codec=bound)
        state = bound.state_dict()["squares"]
        ones = numpy.ones(COUNT, numpy.float32)
        for pattern, call in (
            ("reduce_scatter of float32 with an A", lambda: gl.reduce_scatter(numpy.ones(gl.world, "f4"), codec=bound)),
            ("all_reduce of int32 with an Adapt", lambda: gl.all_reduce(numpy.ones(COUNT, "i4"), codec=bound)),
            ("all_reduce of complex64 with an Adapt", lambda: gl.all_reduce(numpy.ones(COUNT, "c8"), codec=bound)),
            ("keeps its own residual", lambda: gl.all_reduce(ones, codec=bound, residual=gl.zeros(COUNT))),
            ("to a tensor of 3000 elements, this one has 5", lambda: gl.all_reduce(gl.zeros(5), codec=bound)),
            ("codec is .*AdaptiveBound.* allowed: a name", lambda: gl.broadcast(ones, codec=bound)),
            ("async_ is", lambda: gl.all_reduce(ones, codec=bound, async_=5)),
        ):
            with self.assertRaisesRegex(gradlane.BadArgument, pattern):
                call()
        self.assertEqual(bound.state_dict()["squares"], state)
        self.assertEqual(set(ones), {1})
        gl.all_reduce(array, codec=bound)

    def test_failed(self):
        if gl.world == 1:
            self.skipTest("nothing fails alone")
        bound = gradlane.AdaptiveBound(error_feedback=True)
        array = numpy.full(COUNT, 1e-3, numpy.float32)
        for _ in range(2):
            gl.all_reduce(array.copy(), codec=bound)
        self.assertNotEqual(bound.codec(), "raw")
        with self.assertRaises(gradlane.OperationFailed):
            gl.all_reduce(array, codec=bound, tag=10**6 + gl.rank)
        self.assertEqual(bound.codec(), "raw")
        self.assertEqual(numpy.count_nonzero(bound.state_dict()["residual"]), 0)
        self.assertEqual(set(array), {numpy.float32(1e-3)})
        gl.resume(2 * 10**6)
        gl.all_reduce(array, codec=bound)


class Feedback(unittest.TestCase):
    def test_nothing_is_lost(self):
        """Check that the sum of all inputs is the sum of all results and residuals; a raw step leaves no residual."""
        for array in both():
            bound = gradlane.AdaptiveBound(1, error_feedback=True)
            inside, outside = numpy.zeros(COUNT), numpy.zeros(COUNT)
            paid = 0
            for step, magnitude in enumerate(MAGNITUDES):
                mine = parts(step, magnitude)
                inside += numpy.sum(mine, axis=0, dtype=numpy.float64)
                array[:] = mine[gl.rank]
                codec = bound.codec()
                owed = 0 if step == 0 else numpy.count_nonzero(bound.state_dict()["residual"])
                gl.all_reduce(array, codec=bound)
                outside += array
                debts = bound.state_dict()["residual"].astype(numpy.float64)
                if codec == "raw":
                    self.assertEqual(numpy.count_nonzero(debts), 0)
                    paid += owed > 0
                gl.all_reduce(debts)
                numpy.testing.assert_allclose(outside + debts, inside, atol=gl.world * 1e-8, err_msg=f"step {step}")
            self.assertGreater(paid, 1)

    def test_what_vanishes_arrives_late(self):
        totals = []
        for feedback in (True, False):
            bound = gradlane.AdaptiveBound(1, error_feedback=feedback)
            total = 0
            for _ in range(50):
                array = numpy.full(COUNT, 0.01, numpy.float32)
                array[:30] = 1.0
                gl.all_reduce(array, average=True, codec=bound)
                total += array[-1]
            totals.append(total)
        self.assertAlmostEqual(totals[0], 0.5, delta=0.07)
        self.assertLess(totals[1], 0.02)

    def test_state(self):
        bound = gradlane.AdaptiveBound(2, error_feedback=True)
        other = gradlane.AdaptiveBound(2, error_feedback=True)
        results = {}
        for step, magnitude in enumerate(MAGNITUDES):
            if step == 5:
                other.load_state_dict(bound.state_dict())
            for one in (bound, other) if step >= 5 else (bound,):
                array = parts(step, magnitude)[gl.rank]
                results[one] = gl.all_reduce(array, codec=one).tobytes()
            if step >= 5:
                self.assertEqual(results[bound], results[other])
        with self.assertRaisesRegex(gradlane.BadArgument, "error_feedback=True, this one has False"):
            gradlane.AdaptiveBound(2).load_state_dict(bound.state_dict())
        with self.assertRaisesRegex(gradlane.BadArgument, "error_feedback=False, this one has True"):
            bound.load_state_dict(gradlane.AdaptiveBound(2).state_dict())

    def test_own_residual(self):
        """Check that a raw step also adds a residual of the caller's own."""
        bound = gradlane.AdaptiveBound(1)
        residual = numpy.zeros(COUNT, numpy.float32)
        for magnitude in (1.0, 1.0, 1e-4):
            gl.all_reduce(parts(1, magnitude)[gl.rank], codec=bound, residual=residual)
        self.assertTrue(numpy.any(residual))
        gl.all_reduce(parts(1, math.nan)[gl.rank], codec=bound)
        self.assertEqual(bound.codec(), "raw")
        gl.all_reduce(parts(1, 1.0)[gl.rank], codec=bound, residual=residual)
        self.assertFalse(numpy.any(residual))

    def test_matrices(self):
        """Check that a raw step adds residuals of arrays of any shape."""
        for make in (gl.zeros, numpy.zeros):
            bound = gradlane.AdaptiveBound(1, error_feedback=True)
            array = make((60, COUNT // 60), "float32")
            for magnitude in (1.0, 1.0, 1.0, 1e-4, 1.0):
                owed = bound.state_dict()["residual"]
                array[...] = parts(2, magnitude)[gl.rank].reshape(array.shape)
                codec = bound.codec()
                gl.all_reduce(array, codec=bound)
            self.assertTrue(numpy.any(owed))
            self.assertEqual((codec, numpy.any(bound.state_dict()["residual"])), ("raw", False))


if __name__ == "__main__":
    unittest.main(verbosity=2)
