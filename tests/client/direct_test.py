#!/usr/bin/python3
"""Tests of operations that need links between all nodes, at any world size: run it under `gradlane run -n N
--strategies ring,direct`, with PYTHONPATH=client/python.

All ranks run the same tests in the same order, so that their collectives match.
"""

import unittest

import numpy

import gradlane

gl = None  # one connection for all tests: ranks would have to agree on when to reconnect
COUNT = 5000  # elements of a block


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


def rank_data(rank, dtype=numpy.float32, blocks=1):
    """Return what this rank contributes.

    These are integers that all types can hold, and so are their sums. Each block is different.
    """
    return ((numpy.arange(blocks * COUNT) // 7 + 3 * rank) % 11).astype(dtype)


def block(data, number):
    return data[number * COUNT:(number + 1) * COUNT]


class Direct(unittest.TestCase):
    def test_reduce(self):
        for root in range(gl.world):
            for dtype in ("float32", "float64", "int32", "int16", "bool"):
                array = rank_data(gl.rank, dtype)
                self.assertIs(gl.reduce(array, root=root, codec="raw"), array)
                want = rank_data(gl.rank, dtype)
                if gl.rank == root:
                    want = sum(rank_data(rank, "int64") for rank in range(gl.world)).astype(dtype)
                    if dtype == "bool":
                        want = numpy.any([rank_data(rank, dtype) for rank in range(gl.world)], axis=0)
                numpy.testing.assert_array_equal(array, want)
        array = rank_data(gl.rank)
        gl.reduce(array, reduction="max")
        if gl.rank == 0:
            numpy.testing.assert_array_equal(array, numpy.max([rank_data(rank) for rank in range(gl.world)], axis=0))
        array = gl.zeros(COUNT)
        array[:] = gl.rank + 1
        gl.reduce(array, average=True, codec="raw", strategy="direct")
        self.assertEqual(array[0], (gl.world + 1) / 2 if gl.rank == 0 else gl.rank + 1)

    def test_gather_and_scatter(self):
        for root in range(gl.world):
            for dtype in ("float32", "uint8", "complex128"):
                array = rank_data(gl.rank, dtype, gl.world)
                self.assertIs(gl.gather(array, root=root), array)
                for number in range(gl.world):
                    of = number if gl.rank == root else gl.rank
                    numpy.testing.assert_array_equal(
                        block(array, number), block(rank_data(of, dtype, gl.world), number))
                array = rank_data(gl.rank, dtype, gl.world)
                self.assertIs(gl.scatter(array, root=root), array)
                for number in range(gl.world):
                    of = root if number == gl.rank else gl.rank
                    numpy.testing.assert_array_equal(
                        block(array, number), block(rank_data(of, dtype, gl.world), number))

    def test_all_to_all(self):
        for dtype in ("float32", "float16", "int64", "S5"):
            for shared in False, True:
                data = rank_data(gl.rank, "int64", gl.world).astype(dtype)
                array, out = (gl.zeros(data.size, dtype), gl.zeros(data.size, dtype)) if shared else (
                    data.copy(), numpy.zeros_like(data))
                array[:] = data
                request = gl.all_to_all(array, out, async_=True)
                self.assertIs(request.wait(), out)
                numpy.testing.assert_array_equal(array, data)
                for rank in range(gl.world):
                    theirs = rank_data(rank, "int64", gl.world).astype(dtype)
                    numpy.testing.assert_array_equal(block(out, rank), block(theirs, gl.rank))

    def test_all_to_all_through_a_codec(self):
        array = numpy.full(gl.world * COUNT, 1 + 2.0**-20, numpy.float32)
        out = gl.all_to_all(array, numpy.zeros_like(array), codec="fixed:10")
        for rank in range(gl.world):
            self.assertEqual(block(out, rank)[0], 1 + 2.0**-20 if rank == gl.rank else 1)
        out = gl.all_to_all(array, numpy.zeros_like(array))
        numpy.testing.assert_array_equal(out, array)

    def test_arguments(self):
        def refused(call, text):
            with self.assertRaisesRegex(gradlane.BadArgument, text):
                call()

        array = numpy.zeros(gl.world * 4, "float32")
        refused(lambda: gl.reduce(array, root=gl.world), "root is")
        refused(lambda: gl.gather(array, root=-1), "root is")
        refused(lambda: gl.all_to_all(array, array), "overlap in memory")
        refused(lambda: gl.all_to_all(array, array.astype("int32")), "must be equal")
        refused(lambda: gl.all_to_all(array, numpy.zeros(gl.world * 5, "float32")), "must be equal")
        refused(lambda: gl.scatter(array, strategy="ring"), "scatter: strategy ring cannot do this operation; .*: direct$")
        refused(lambda: gl.gather(array, codec="fixed:10"), "rounds, but copies are exact")
        refused(lambda: gl.reduce(array, codec=gradlane.AdaptiveBound(bits=8)), "AdaptiveBound")
        if gl.world > 1:
            refused(lambda: gl.gather(numpy.zeros(gl.world * 4 + 1)), "not .* blocks of equal size")
        request = gl.all_to_all(array, numpy.ones_like(array), async_=True)
        refused(lambda: gl.all_reduce(array), "in use by all_to_all")
        request.wait()


if __name__ == "__main__":
    unittest.main(verbosity=2)
