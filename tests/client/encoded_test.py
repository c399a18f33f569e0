#!/usr/bin/python3
"""Tests of contributions that are encoded before an all-reduce, and of results as encoded runs. Run it as python_test.py
is run."""

import ctypes
import gc
import pickle
import unittest

import numpy

import gradlane
from gradlane import _library, errors

gl = None


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


def values(count):
    return numpy.random.default_rng(gl.rank).normal(scale=0.01, size=count).astype("float32")


class Sums(unittest.TestCase):
    def test_of_encoded_contributions(self):
        # The last tensor travels in two parts.
        for codec, count in (("fixed:10", 1), ("fixed:10", 1000), ("fixed:10", 100_000), ("fixed:30", 100_000),
                             ("raw", 5000), ("pack", 4097), ("fixed:10", (17 << 20) + 11)):
            given = values(count)
            encoded = gl.encode(given, codec=codec)
            if codec == "fixed:10" and count > 1000:
                self.assertLess(encoded.nbytes, 0.9 * count)
            kept = encoded.array.copy()
            # The sum of the floats. Small sums do not go through a codec, so their contributions are rounded before.
            if codec == "fixed:10" and count <= 1000:
                given = numpy.round(given * 512) / 512 + numpy.float32(0)
            expected = gl.all_reduce(given.copy(), codec=codec).tobytes()
            data = gl.zeros(count)
            for _ in range(2):
                data[:] = numpy.nan
                gl.all_reduce(data, encoded=encoded)
                self.assertEqual(data.tobytes(), expected, (codec, count))
            self.assertEqual(encoded.array.tobytes(), kept.tobytes())
            # One rank repeats it from bytes that it has written itself, the others have floats.
            data[:] = given
            if gl.rank == 0:
                written = gl.zeros(gl.encoded_space(count), "uint8")
                written[:kept.size] = kept
                data[:] = numpy.nan
                encoded = gradlane.Encoded(written[:kept.size], count, codec)
            gl.all_reduce(data, codec=codec, encoded=encoded if gl.rank == 0 else None)
            self.assertEqual(data.tobytes(), expected, (codec, count))

    def test_averages_in_ordinary_memory(self):
        """Arrays outside shared memory, of any shape and strides, get the result; encode() takes read-only ones."""
        given = values(50_000).reshape(2, 25_000).T
        given.flags.writeable = False
        encoded = gl.encode(given, codec="fixed:10")
        expected = gl.all_reduce(given.copy(), average=True, codec="fixed:10")
        result = numpy.zeros_like(given)
        self.assertIs(gl.all_reduce(result, average=True, encoded=encoded), result)
        numpy.testing.assert_array_equal(result, expected)

    def test_memory_of_the_caller(self):
        out, result = gl.zeros(gl.encoded_space(20_000), "uint8"), gl.zeros(20_000)
        for codec in "fixed:10", "raw":
            encoded = gl.encode(values(20_000), codec=codec, out=out)
            self.assertTrue(numpy.shares_memory(encoded.array, out))
            self.assertEqual(encoded.array.tobytes(), gl.encode(values(20_000), codec=codec).array.tobytes())
            gl.all_reduce(result, encoded=encoded)
            numpy.testing.assert_array_equal(result, gl.all_reduce(values(20_000), codec=codec))

    def test_pairs(self):
        pairs = values(6000).view("complex64")
        encoded = gl.encode(pairs)
        self.assertEqual((encoded.count, encoded.codec), (6000, gl.codec))
        numpy.testing.assert_array_equal(gl.all_reduce(gl.zeros(3000, "complex64"), encoded=encoded),
                                         gl.all_reduce(pairs.copy()))

    def test_requests(self):
        """An operation in flight keeps its contribution, though the program has freed it."""
        contributions = [gl.encode(values(20_000 + i), codec="fixed:10") for i in range(3)]
        expected = [gl.all_reduce(values(20_000 + i), codec="fixed:10") for i in range(3)]
        requests = [gl.all_reduce(gl.zeros(it.count), encoded=it, async_=True) for it in contributions]
        for encoded in contributions:
            encoded.free()
        gc.collect()
        for request, result in zip(requests, expected):
            numpy.testing.assert_array_equal(request.wait(), result)
        again = gl.encode(values(20_000), codec="fixed:10")
        request = gl.all_reduce(gl.zeros(20_000), encoded=again, async_=True)
        numpy.testing.assert_array_equal(request.wait(), expected[0])
        del request
        gl.all_reduce(gl.zeros(20_000), encoded=again, async_=True)  # dropped: the next use waits for its end
        numpy.testing.assert_array_equal(gl.all_reduce(gl.zeros(20_000), encoded=again), expected[0])


class Runs(unittest.TestCase):
    """`runs` of gradlane_how. Runs by raw are the floats, so they need no decoder."""

    COUNT = 100_000

    def call(self, data, runs, codec="raw", strategy=None, average=False, more=None):
        """Returns the code of an all-reduce whose result goes to `runs`."""
        how = gl._how(None, None, strategy, average, codec=codec)
        how.runs, how.runs_bytes = runs.ctypes.data, runs.nbytes
        if more is not None:
            more(how)
        return gl._lib.gradlane_all_reduce(gl._connection.handle, data.ctypes.data, data.size, 0, how, None)

    def result(self, runs):
        found = numpy.full(self.COUNT, numpy.nan, "float32")
        for at, nbytes, table, count in runs[:512].view("uint64").reshape(16, 4).tolist():
            for run in (_library.Run * count).from_buffer_copy(runs[table:table + 24 * count].tobytes()):
                self.assertTrue(at <= run.at and run.at + run.bytes <= at + nbytes and run.bytes == 4 * run.floats)
                found[run.first:run.first + run.floats] = runs[run.at:run.at + run.bytes].view("float32")
        return found

    def test_have_the_sum(self):
        expected = gl.all_reduce(values(self.COUNT), codec="raw")
        data, runs = gl.zeros(self.COUNT), gl.zeros(gl._lib.gradlane_runs_space(self.COUNT), "uint8")
        for average in False, True:
            data[:] = values(self.COUNT)
            self.assertEqual(self.call(data, runs, average=average), errors.OK, gl._connection.error())
            self.assertEqual(self.result(runs).tobytes(), expected.tobytes())
        # One rank asks for runs and has an encoded contribution, the others have floats.
        encoded = gl.encode(values(self.COUNT), codec="raw")
        data[:] = values(self.COUNT)
        if gl.rank > 0:
            self.assertEqual(gl.all_reduce(data, codec="raw").tobytes(), expected.tobytes())
            return
        data[:] = numpy.nan

        def hand_over(how):
            how.encoded, how.encoded_bytes = encoded.array.ctypes.data, encoded.nbytes

        self.assertEqual(self.call(data, runs, more=hand_over), errors.OK, gl._connection.error())
        self.assertEqual(self.result(runs).tobytes(), expected.tobytes())

    def test_refused(self):
        data, runs = gl.zeros(self.COUNT), gl.zeros(gl._lib.gradlane_runs_space(self.COUNT) + 8, "uint8")

        def check(text, code):
            self.assertEqual(code, errors.Code.BAD_ARGUMENT)
            self.assertIn(text, gl._connection.error())

        def with_residual(how):
            how.residual = gl.zeros(self.COUNT).ctypes.data

        check("runs has 16 bytes", self.call(data, runs[:16]))
        check("is not at a multiple of 8", self.call(data, runs[1:]))
        check("has 1023 floats; a result as runs has 1024 or more", self.call(data[:1023], runs))
        check("raw, pack and fixed:B allow it", self.call(data, runs, codec="bf16"))
        check("codec exact excludes a result as runs", self.call(data, runs, codec="exact", strategy="direct"))
        check("data and runs overlap", self.call(runs[:400_000].view("float32"), runs))
        check("excludes a residual", self.call(data, runs, codec="fixed:10", more=with_residual))
        check("not in a buffer", self.call(data, numpy.zeros(runs.size, "uint8")))
        long = gl.zeros((16 << 20) + 1)
        check("16777217 floats are more than the 16777216 of one part", self.call(
            long, gl.zeros(gl._lib.gradlane_runs_space(long.size), "uint8")))
        look = gl._lib.gradlane_check_runs
        self.assertEqual(look(gl._connection.handle, b"fixed:10", None, 16 << 20), errors.OK)
        check("more than the 16777216 of one part", look(gl._connection.handle, b"fixed:10", None, long.size))
        check("has 100 floats", look(gl._connection.handle, b"fixed:10", None, 100))
        check("raw, pack and fixed:B allow it", look(gl._connection.handle, b"topk:1%", b"ring", 5000))


class Refused(unittest.TestCase):
    def refused(self, text, call, *arguments, **options):
        with self.assertRaisesRegex(gradlane.BadArgument, text):
            call(*arguments, **options)

    def test_by_encode(self):
        data = gl.zeros(5000)
        self.refused("topk:1%", gl.encode, data, codec="topk:1%")
        self.refused("stochastic", gl.encode, data, codec="fixed:10,stochastic")
        self.refused("raw, pack and fixed:B allow it", gl.encode, data, codec="auto:2^-10")
        self.refused("AdaptiveBound", gl.encode, data, codec="fixed:adaptive")
        self.refused("no floats", gl.encode, data[:0])
        self.refused("encode of float64; allowed: float32", gl.encode, data.astype("float64"))
        self.refused("not a NumPy array", gl.encode, [1.0])
        out = gl.zeros(gl.encoded_space(5000), "uint8")
        self.refused("5000 floats need", gl.encode, data, out=out[:-1])
        self.refused("allowed: contiguous uint8", gl.encode, data, out=out.copy())
        self.refused("overlap", gl.encode, out[:4].view("float32"), out=out)
        request = gl.all_reduce(data, encoded=gl.encode(data, out=out), async_=True)
        self.refused("in use by all_reduce", gl.encode, values(5000), out=out)
        request.wait()

    def test_by_all_reduce(self):
        data, encoded = gl.zeros(5000), gl.encode(values(5000), codec="fixed:10")
        self.refused("encoded is 5 .int.; allowed: a gradlane.Encoded", gl.all_reduce, data, encoded=5)
        self.refused("encoded has 5000 floats, and the array has 4999", gl.all_reduce, data[1:], encoded=encoded)
        self.refused("codec is 'fixed:9', but the contribution is encoded by 'fixed:10'", gl.all_reduce, data,
                     encoded=encoded, codec="fixed:9")
        self.refused("encoded by 'fixed:10'", gl.all_reduce, data, encoded=encoded, codec=gradlane.AdaptiveBound())
        self.refused("only for sums of float32", gl.all_reduce, data.astype("float64"), encoded=encoded)
        self.refused("only for sums", gl.all_reduce, data, encoded=gl.encode(data, codec="raw"), reduction="max")
        self.refused("an encoded contribution excludes a residual", gl.all_reduce, data, encoded=encoded, residual=gl.zeros(5000))
        if gl.world > 1:
            self.refused("needs a strategy that is named", gl.all_reduce, data, encoded=encoded, strategy="auto")
        overlapping = gradlane.Encoded(data.view("uint8"), 5000, "raw")
        self.refused("overlap", gl.all_reduce, data, encoded=overlapping)
        copied = pickle.loads(pickle.dumps(encoded))  # its array lies in ordinary memory
        self.refused("not in this context's memory", gl.all_reduce, data, encoded=copied)
        self.assertEqual(repr(encoded), f"<gradlane.Encoded: 5000 float32, codec fixed:10, {encoded.nbytes} bytes>")
        encoded.free()
        self.assertEqual(encoded.nbytes, 0)
        self.refused("codec fixed:10, freed>: encode the data again", gl.all_reduce, data, encoded=encoded)

    def test_by_encoded(self):
        space = gl.zeros(gl.encoded_space(5000), "uint8")
        for array in (numpy.zeros(9, "uint8"), space[::2], space.view("int8"), space.reshape(-1, 2), bytes(9)):
            self.refused("array is (bytes|u?int8 of shape .*); allowed: contiguous uint8", gradlane.Encoded, array, 5000, "raw")
        self.refused("count is 0", gradlane.Encoded, space, 0, "raw")
        self.refused("codec is None", gradlane.Encoded, space, 5000, None)

    def test_malformed(self):
        encoded = gl.encode(values(5000))
        kept = encoded.array.copy()
        if gl.rank == 0:
            encoded.array[:8] = 255
        with self.assertRaisesRegex(gradlane.OperationFailed, "the encoded contribution of rank 0 is malformed"):
            gl.all_reduce(gl.zeros(5000), encoded=encoded)
        encoded.array[:] = kept
        for _ in range(20):
            gl.resume(gl.world)
            try:
                gl.all_reduce(gl.zeros(5000), encoded=encoded)
                break
            except gradlane.OperationFailed:
                continue
        else:
            self.fail("it does not succeed again")

    def test_by_the_c_functions(self):
        """Check what the package never passes."""
        data, encoded, ordinary = gl.zeros(5000), gl.zeros(gl.encoded_space(5000), "uint8"), numpy.zeros(1 << 16, "uint8")
        lib, handle = gl._lib, gl._connection.handle

        def encode(data, encoded, how=None):
            return lib.gradlane_encode(handle, data.ctypes.data, data.size, encoded.ctypes.data, encoded.nbytes, how, None)

        def check(text, code):
            self.assertEqual(code, errors.Code.BAD_ARGUMENT)
            self.assertIn(text, gl._connection.error())

        check("not in a buffer", encode(data, ordinary))
        how = gl._how(None, None)
        how.encoded, how.encoded_bytes = encoded.ctypes.data, encoded.nbytes
        check("only for sums", lib.gradlane_broadcast(handle, data.ctypes.data, data.size, 0, 0, how, None))
        how.verify = 1
        check("cannot be verified", lib.gradlane_all_reduce(handle, data.ctypes.data, data.size, 0, how, None))
        # of a program that was built with an older gradlane.h
        older = _library.How(ctypes.sizeof(_library.How) - 16)
        self.assertEqual(encode(data, encoded, older), errors.OK, gl._connection.error())


if __name__ == "__main__":
    unittest.main()
