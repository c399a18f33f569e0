#!/usr/bin/python3
"""Tests of contributions that are encoded before an all-reduce, through the C functions. Run it as python_test.py is
run."""

import ctypes
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


class Encoded(unittest.TestCase):
    def setUp(self):
        self.lib, self.handle = gl._lib, gl._connection.handle

    def how(self, **fields):
        how = _library.How()
        how.struct_size = ctypes.sizeof(how)
        for name, value in fields.items():
            setattr(how, name, value)
        return ctypes.byref(how)

    def check(self, code):
        self.assertEqual(code, errors.OK, self.lib.gradlane_error(self.handle))

    def refused(self, code):
        self.assertEqual(code, errors.Code.BAD_ARGUMENT)
        return self.lib.gradlane_error(self.handle).decode()

    def encode(self, data, encoded, **fields):
        return self.lib.gradlane_encode(self.handle, data.ctypes.data, data.size, encoded.ctypes.data, encoded.nbytes,
                                        self.how(**fields), None)

    def all_reduce(self, data, encoded, size, **fields):
        how = self.how(encoded=encoded.ctypes.data, encoded_bytes=size, **fields)
        return self.lib.gradlane_all_reduce(self.handle, data.ctypes.data, data.size, 0, how, None)

    def space(self, count):
        return gl.zeros(self.lib.gradlane_encoded_space(count), dtype="uint8")

    def values(self, count):
        return numpy.random.default_rng(gl.rank).normal(scale=0.01, size=count).astype("float32")

    def test_sums_of_encoded_contributions(self):
        # The last tensor travels in two parts.
        for codec, count in ((b"fixed:10", 1), (b"fixed:10", 1000), (b"fixed:10", 100_000), (b"fixed:30", 100_000),
                             (b"raw", 5000), (b"pack", 4097), (b"fixed:10", (17 << 20) + 11)):
            values, encoded = self.values(count), self.space(count)
            data = gl.zeros(count)
            data[:] = values
            self.check(self.encode(data, encoded, codec=codec))
            size = self.lib.gradlane_encoded_bytes(encoded.ctypes.data, count)
            kept = encoded[:size].copy()
            if codec == b"fixed:10" and count > 1000:
                self.assertLess(size, 0.9 * count)
            # The sum of the floats. Small sums do not go through a codec, so their contributions are rounded before.
            rounded = values
            if codec == b"fixed:10" and count <= 1000:
                rounded = numpy.round(values * 512) / 512 + numpy.float32(0)
            data[:] = rounded
            expected = gl.all_reduce(data, codec=codec.decode()).copy()
            for _ in range(2):
                data[:] = numpy.nan
                self.check(self.all_reduce(data, encoded, size, codec=codec))
                self.assertEqual(data.tobytes(), expected.tobytes(), (codec, count))
            self.assertEqual(encoded[:size].tobytes(), kept.tobytes())
            # One rank repeats it from a copy, the others have floats.
            encoded[:] = 0
            encoded[:size] = kept
            data[:] = rounded if gl.rank != 0 else numpy.nan
            if gl.rank == 0:
                self.check(self.all_reduce(data, encoded, size, codec=codec))
            else:
                gl.all_reduce(data, codec=codec.decode())
            self.assertEqual(data.tobytes(), expected.tobytes(), (codec, count))

    def test_averages(self):
        values, encoded, data = self.values(50_000), self.space(50_000), gl.zeros(50_000)
        data[:] = values
        self.check(self.encode(data, encoded, codec=b"fixed:10"))
        expected = gl.all_reduce(data, average=True, codec="fixed:10").copy()
        self.check(self.all_reduce(data, encoded, encoded.nbytes, average=1, codec=b"fixed:10"))
        self.assertEqual(data.tobytes(), expected.tobytes())

    def test_what_is_refused(self):
        encoded, data = self.space(5000), gl.zeros(5000)
        self.assertIn("topk:1%", self.refused(self.encode(data, encoded, codec=b"topk:1%")))
        self.assertIn("stochastic", self.refused(self.encode(data, encoded, codec=b"fixed:10,stochastic")))
        self.assertIn("no encoded contributions", self.refused(self.encode(data, encoded, codec=b"auto:2^-10")))
        self.assertIn("5000 floats need", self.refused(self.encode(data, encoded[:-1])))
        self.assertIn("no floats", self.refused(self.encode(data[:0], encoded)))
        self.assertIn("not in a buffer", self.refused(self.encode(data, numpy.zeros(1 << 16, "uint8"))))
        self.assertIn("overlap", self.refused(self.encode(encoded[:4].view("float32"), encoded[:1 << 14])))
        self.assertIn("only for sums", self.refused(self.all_reduce(data, encoded, 9999, reduction=1)))
        self.assertIn("cannot be verified", self.refused(self.all_reduce(data, encoded, 9999, verify=1)))
        # of a program that was built with an older gradlane.h
        older = _library.How()
        older.struct_size = ctypes.sizeof(older) - 16
        self.check(self.lib.gradlane_encode(self.handle, data.ctypes.data, data.size, encoded.ctypes.data,
                                            encoded.nbytes, ctypes.byref(older), None))
        how = self.how(encoded=encoded.ctypes.data, encoded_bytes=9999)
        self.assertIn("only for sums", self.refused(
            self.lib.gradlane_broadcast(self.handle, data.ctypes.data, data.size, 0, 0, how, None)))

    def test_malformed_ones(self):
        encoded, data = self.space(5000), gl.zeros(5000)
        self.check(self.encode(data, encoded))
        if gl.rank == 0:
            encoded[:8] = 255
        self.assertEqual(self.all_reduce(data, encoded, encoded.nbytes), errors.Code.FAILED)
        if gl.rank == 0:
            self.assertIn(b"the encoded contribution of rank 0 is malformed", self.lib.gradlane_error(self.handle))
        gl.resume(gl.world)
        self.check(self.encode(data, encoded))
        for _ in range(20):
            if self.all_reduce(data, encoded, encoded.nbytes) == errors.OK:
                break
            gl.resume(gl.world)
        else:
            self.fail("it does not succeed again")


if __name__ == "__main__":
    unittest.main()
