#!/usr/bin/python3
"""Tests of types and layouts of NumPy arrays: sums are right, copies exact bit by bit. Run it as python_test.py is run.
"""

import functools
import unittest

import numpy

import gradlane

gl = None
COUNT = 3000
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", ">i2", ">u4", ">i8")
PADDED = numpy.dtype([("a", "i1"), ("b", "f8"), ("c", "S3"), ("d", ">u2", (2, 2))], align=True)
COPIED = (*INTEGERS, "bool", "float16", "float32", "float64", "longdouble", ">f4", "complex64", "complex128", ">c16",
          "S7", "U5", ">U2", "M8[ns]", "m8[s]", "V3", PADDED)


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


def random_bytes(rank, count, dtype):
    """Return elements of random bytes: among them are signalling NaN, nonzero padding of structures, and booleans other
    than 0 and 1."""
    dtype = numpy.dtype(dtype)
    data = numpy.random.default_rng(rank).integers(0, 256, count * dtype.itemsize, "uint8")
    return numpy.frombuffer(data.tobytes(), dtype) if dtype.itemsize > 0 else numpy.zeros(count, dtype)


def layouts(count, dtype):
    """Yield writable arrays of `count` elements (an even number): shared and not, contiguous and not, of two
    dimensions."""
    yield gl.zeros(count, dtype)
    yield gl.zeros((count // 2, 2), dtype)
    yield numpy.zeros(count, dtype)
    yield numpy.zeros(2 * count, dtype)[::2]
    yield gl.zeros(2 * count, dtype)[::-2]
    yield numpy.zeros((2, count // 2), dtype, order="F")


def fill(array, values):
    """Fill the array byte by byte, because assignments do not copy the padding of structures."""
    dtype = array.dtype
    if dtype.itemsize > 0:
        array.view(f"V{dtype.itemsize}")[...] = values.view(f"V{dtype.itemsize}").reshape(array.shape)


def raw(array):
    return numpy.array(array.view(f"V{array.dtype.itemsize}") if array.dtype.itemsize > 0 else array).tobytes()


class Sums(unittest.TestCase):
    def check(self, parts, expected, **options):
        dtype = parts[0].dtype
        for array in layouts(parts[0].size, dtype):
            with self.subTest(dtype=dtype, shape=array.shape, strides=array.strides):
                array[...] = parts[gl.rank].reshape(array.shape)
                self.assertIs(gl.all_reduce(array, codec="raw", **options), array)
                self.assertEqual(array.dtype, dtype)
                numpy.testing.assert_array_equal(array.ravel(), expected.astype(dtype))

    def test_integers_wrap(self):
        for dtype in INTEGERS:
            parts = [random_bytes(rank, COUNT, dtype) for rank in range(gl.world)]
            with numpy.errstate(over="ignore"):
                self.check(parts, numpy.add.reduce(parts, dtype=numpy.dtype(dtype).newbyteorder("=")))

    def test_bool(self):
        parts = [numpy.random.default_rng(rank).random(COUNT) < 0.3 for rank in range(gl.world)]
        self.check(parts, numpy.any(parts, axis=0))

    def test_floats(self):
        for dtype in ("float16", "float32", "float64", ">f4", ">f8", ">f2"):
            parts = [numpy.random.default_rng(rank).integers(-99, 99, COUNT).astype(dtype) for rank in range(gl.world)]
            self.check(parts, sum(parts))

    def test_complex(self):
        for dtype in ("complex64", "complex128", ">c8"):
            parts = [(numpy.arange(COUNT) % 100 * (1 + 2j) + rank * 1j).astype(dtype) for rank in range(gl.world)]
            self.check(parts, sum(parts))
            four = [part * 4 * gl.world for part in parts]
            self.check(four, sum(four) / gl.world, average=True)

    def test_reduce_scatter(self):
        for dtype in ("int16", "bool", "complex64", ">f4", "uint64"):
            parts = [random_bytes(rank, 10 * gl.world, "uint8").reshape(gl.world, 10) % 2 for rank in range(gl.world)]
            parts = [part.astype(dtype) for part in parts]
            array = parts[gl.rank].copy()
            gl.reduce_scatter(array, codec="raw")
            numpy.testing.assert_array_equal(array[gl.rank], functools.reduce(numpy.add, parts)[gl.rank])

    def test_single_values(self):
        for dtype in ("int16", "complex64", "float32", "bool"):
            array = numpy.array(1, dtype)
            self.assertEqual(gl.all_reduce(array), numpy.array(gl.world, dtype))

    def test_no_sum(self):
        for dtype in ("M8[s]", "m8[s]", "S3", "U3", "V4", "longdouble", "clongdouble", PADDED):
            sums = "bool, int8 to int64, uint8 to uint64, float16, float32, float64, complex64, complex128, bfloat16"
            with self.assertRaisesRegex(gradlane.BadArgument, f"cannot sum arrays of .*; allowed: {sums}"):
                gl.all_reduce(numpy.zeros(4, dtype))
        for dtype in ("bool", "int8", "int16", "uint64"):
            with self.assertRaisesRegex(gradlane.BadArgument, f"cannot average {dtype}: only floating types"):
                gl.all_reduce(numpy.zeros(4, dtype), average=True)
        gl.barrier()


class Picks(unittest.TestCase):
    """Tests of minima and maxima, which are exact with any codec of the daemon."""

    def check(self, parts):
        dtype = parts[0].dtype
        for name, pick in (("min", numpy.minimum), ("max", numpy.maximum)):
            expected = functools.reduce(pick, parts)
            for array in layouts(parts[0].size, dtype):
                with self.subTest(name, dtype=dtype, shape=array.shape, strides=array.strides):
                    array[...] = parts[gl.rank].reshape(array.shape)
                    self.assertIs(gl.all_reduce(array, reduction=name), array)
                    self.assertEqual(array.dtype, dtype)
                    numpy.testing.assert_array_equal(array.ravel(), expected)

    def test_integers(self):
        for dtype in INTEGERS:
            if dtype != "uint64":
                self.check([random_bytes(rank, COUNT, dtype) for rank in range(gl.world)])

    def test_bool(self):
        self.check([numpy.random.default_rng(rank).random(COUNT) < 0.6 for rank in range(gl.world)])

    def test_floats(self):
        for dtype in ("float16", "float32", "float64", ">f4", ">f8", ">f2"):
            parts = [numpy.random.default_rng(rank).normal(0, 1, COUNT).astype(dtype) for rank in range(gl.world)]
            parts[0][::7] = numpy.nan
            parts[-1][::5] = -numpy.inf
            self.check(parts)

    def test_zeros_have_signs(self):
        for name, negative in (("min", gl.world > 1), ("max", False)):
            array = numpy.full(10, -0.0 if gl.rank > 0 else 0.0)
            gl.all_reduce(array, reduction=name)
            self.assertTrue(numpy.all(numpy.signbit(array) == negative))

    def test_bfloat16(self):
        values = [numpy.float32([rank - 1, -rank, 0.5, numpy.inf]) for rank in range(gl.world)]
        array = (values[gl.rank].view("uint32") >> 16).astype("uint16")
        gl.all_reduce(array, reduction="min", type="bfloat16")
        result = (array.astype("uint32") << 16).view("float32")
        numpy.testing.assert_array_equal(result, functools.reduce(numpy.minimum, values))

    def test_reduce_scatter(self):
        for dtype in ("int16", "bool", "float32", "uint32"):
            parts = [random_bytes(rank, 10 * gl.world, "uint8").reshape(gl.world, 10) for rank in range(gl.world)]
            parts = [(part % 2 if dtype == "bool" else part).astype(dtype) for part in parts]
            array = parts[gl.rank].copy()
            gl.reduce_scatter(array, reduction="max")
            numpy.testing.assert_array_equal(array[gl.rank], functools.reduce(numpy.maximum, parts)[gl.rank])


class Copies(unittest.TestCase):
    def test_broadcast(self):
        for index, dtype in enumerate(COPIED):
            root = index % gl.world
            values = [random_bytes(rank, 30, dtype) for rank in range(gl.world)]
            for array in layouts(30, dtype):
                with self.subTest(dtype=dtype, shape=array.shape, strides=array.strides):
                    fill(array, values[gl.rank])
                    self.assertIs(gl.broadcast(array, root=root), array)
                    self.assertEqual(raw(array), raw(values[root]))

    def test_all_gather(self):
        for dtype in COPIED:
            values = [random_bytes(rank, 10, dtype) for rank in range(gl.world)]
            for array in layouts(10 * gl.world, dtype):
                flat = numpy.zeros(10 * gl.world, dtype)
                fill(flat[10 * gl.rank:10 * gl.rank + 10], values[gl.rank])
                fill(array, flat)
                gl.all_gather(array)
                self.assertEqual(raw(array), b"".join(map(raw, values)))

    def test_large(self):
        for dtype in ("float32", PADDED):
            values = random_bytes(5, 20000, dtype)
            array = gl.zeros(20000, dtype)
            if gl.rank == 0:
                fill(array, values)
            gl.broadcast(array)
            self.assertEqual(raw(array), raw(values))

    def test_ranks_that_mean_other_types(self):
        if gl.world == 1:
            self.skipTest("there are no other ranks")
        with self.assertRaisesRegex(gradlane.OperationFailed, "float32.*int32|int32.*float32"):
            gl.broadcast(numpy.zeros(10, "float32" if gl.rank == 0 else "int32"))
        gl.resume(10**6)
        gl.barrier()

    def test_what_cannot_travel(self):
        cases = [
            ("hold Python objects", numpy.array([None, 1], object)),
            ("hold Python objects", numpy.zeros(3, [("a", "O"), ("b", "i4")])),
            ("masked array", numpy.ma.masked_array([1.0, 2.0], mask=[0, 1])),
            ("read-only", numpy.broadcast_to(numpy.float32(1), 3)),
            ("is list, not a NumPy array", [1.0]),
            ("is float32, not a NumPy array", numpy.float32(1)),
        ]
        for text, array in cases:
            for call in (gl.broadcast, gl.all_reduce, gl.all_gather, gl.reduce_scatter):
                sums = call in (gl.all_reduce, gl.reduce_scatter)
                allowed = f"{text}|cannot sum" if sums and "objects" in text else text
                with self.assertRaisesRegex(gradlane.BadArgument, allowed):
                    call(array)
        gl.barrier()


class Layouts(unittest.TestCase):
    def test_nothing(self):
        for array in (numpy.zeros(0), gl.zeros((0, 5)), numpy.zeros((3, 0), "i2"), numpy.zeros(0, PADDED),
                      numpy.zeros(4 * gl.world, [])):
            self.assertIs(gl.broadcast(array), array)
            self.assertIs(gl.all_gather(array), array)
            if array.dtype.kind != "V":
                self.assertIs(gl.all_reduce(array), array)
                self.assertIs(gl.reduce_scatter(array), array)

    def test_subclasses(self):
        class Mine(numpy.ndarray):
            def __setitem__(self, *arguments):
                raise AssertionError("it has its own ways")

        mine = numpy.full((4, 5), gl.rank + 1.0).view(Mine)
        self.assertIs(gl.all_reduce(mine), mine)
        self.assertEqual(set(mine.flat), {gl.world * (gl.world + 1) / 2})
        record = numpy.zeros(3, [("x", "i4")]).view(numpy.recarray)
        record.x = gl.rank + 1
        gl.broadcast(record, root=gl.world - 1)
        self.assertEqual(set(record.x), {gl.world})

    def test_the_same_array_twice(self):
        for make in (gl.zeros, lambda count: numpy.zeros(count, numpy.float32)):
            array = make(1000)
            request = gl.all_reduce(array[:600], async_=True)
            with self.assertRaisesRegex(gradlane.BadArgument, "in use by all_reduce of 600 float32: wait"):
                gl.all_reduce(array[500:])
            gl.all_reduce(array[600:])
            request.wait()
            gl.all_reduce(array[500:])
        columns = numpy.ones((50, 4), numpy.float32)
        for request in [gl.all_reduce(columns[:, index], async_=True) for index in range(4)]:
            request.wait()
        self.assertEqual(set(columns.flat), {gl.world})


if __name__ == "__main__":
    unittest.main(verbosity=2)
