#!/usr/bin/python3
"""Tests of users' mistakes, and of help texts: with the fake daemon, or `gradlane run -n N --strategies
ring,direct,aggregator:1`."""

import copy
import gc
import os
import pickle
import pydoc
import re
import select
import traceback
import unittest

import numpy

import gradlane

gl = None
FAKE = os.environ.get("GRADLANE_FAKE_PID")
STRANGE = (None, True, "5", [1], 1.5, numpy.float32(2), numpy.bool_(True), numpy.arange(2), -1, 1 << 70)


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


def floats(count=4):
    return numpy.ones(count, numpy.float32)


class Arguments(unittest.TestCase):
    def refused(self, call, pattern):
        with self.assertRaisesRegex(gradlane.BadArgument, pattern):
            call()

    def test_options_have_names(self):
        for call in (gl.all_reduce, gl.reduce_scatter, gl.all_gather, gl.broadcast):
            with self.assertRaisesRegex(TypeError, "takes 2 positional arguments but 3 were given"):
                call(floats(), "sum")
        for call in (gl.barrier, gradlane.open):
            with self.assertRaises(TypeError):
                call(5, 5)
        with self.assertRaisesRegex(TypeError, r"use gradlane\.open\(\)"):
            gradlane.Context()

    def test_whole_numbers(self):
        calls = {
            "tag": lambda value: gl.barrier(tag=value),
            "root": lambda value: gl.broadcast(floats(), root=value),
            "rank": lambda value: gradlane.open(rank=value),
            "spin_us": lambda value: gradlane.open(spin_us=value),
            "next_tag": gl.resume,
            "bits": gradlane.AdaptiveBound,
            "window": lambda value: gradlane.AdaptiveBound(window=value),
        }
        for name, call in calls.items():
            for value in STRANGE:
                if value is None and name in ("tag", "rank", "spin_us"):
                    continue
                with self.subTest(name, value=value):
                    kind = type(value).__name__
                    self.refused(lambda: call(value), rf"{name} is .* \({kind}\); allowed: a whole number, [01] to")

    def test_flags(self):
        for name in ("average", "async_"):
            for value in (None, 1, "yes", "sum"):
                self.refused(lambda: gl.all_reduce(floats(), **{name: value}), f"{name} is .*; allowed: True or False")
        self.refused(lambda: gl.barrier(async_=1), "True or False")
        self.refused(lambda: gradlane.AdaptiveBound(error_feedback="yes"), "True or False")

    def test_seconds(self):
        request = gl.barrier(async_=True)
        for value in ("5", True, [], -1, float("nan"), 1j):
            self.refused(lambda: request.wait(timeout=value), r"timeout is .*; allowed: a number of seconds, 0 or more")
            self.refused(lambda: gradlane.open(timeout=value), "timeout is .*; allowed: a number of seconds")
        request.wait(timeout=float("inf"))
        gl.barrier(async_=True).wait(timeout=numpy.float32(60))

    def test_codecs(self):
        for value in (10, b"raw", ["raw"], 1.5, gradlane.AdaptiveBound):
            self.refused(lambda: gl.all_reduce(floats(), codec=value), "codec is .*; allowed: a name such as 'raw' or")
        for value in ("fixed", "fixed:adaptive", "fixed:adaptive:6"):
            pattern = rf"'{value}'.*gradlane\.AdaptiveBound\((6, )?error_feedback=True\)"
            self.refused(lambda: gl.all_reduce(floats(), codec=value), pattern)
        # Codecs are checked for arrays of every type.
        for array in (floats(), numpy.ones(4, "i4"), numpy.ones(4, "f8"), floats(0)):
            for value in ("fixd:10", "", "raw\0", "r\xe4w", "x" * 100, *([] if FAKE else ["fixed:99"])):
                self.refused(lambda: gl.all_reduce(array, codec=value), "codec")
            self.refused(lambda: gl.broadcast(array, codec="fixed:8"), "rounds, but copies are exact; use raw, or no codec")
        gl.broadcast(floats(), codec="raw")
        for value, text in () if FAKE else (
            ("fixd:10", r"unknown codec \(did you mean fixed:10\?\); there are raw, pack, exact, bf16, fp16, inceptionn, fixed, terngrad,"),
            ("inceptionn:123456789", r"B must be 2 to 14, not '123456789'; usage: inceptionn:B\[,truncate\] or inceptionn:B,literal$"),
            ("raw:5", "takes no parameter; usage: raw$"),
            ("fixed:rel", "write fixed:rel=B, as in .*; usage: fixed:B or fixed:B,stochastic or fixed:rel=B$"),
            ("dgc:0.1%,m=2", r"m must be 0 to 0.999, .*; usage: dgc:RATE\[,m=M\]\[,clip=C\]\[\+fixed:B\]$"),
        ):
            self.refused(lambda: gl.all_reduce(floats(), codec=value), f"codec '{re.escape(value)}': .*{text}")
        if not FAKE:  # a name of the greatest length
            gl.all_reduce(floats(2000), codec="dgc:12.3456%,m=0.899,clip=25.4+fixed:30")
            self.refused(lambda: gl.all_reduce(floats(), codec="dgc:0.1%,m=0." + 60 * "0"), "more than 63 characters")

    def test_strategies(self):
        self.assertEqual(gl.strategies, ("ring", "direct", "aggregator:1"))
        for value in (10, b"ring", ["ring"], True, "r\xefng", "ring\n"):
            self.refused(lambda: gl.all_reduce(floats(), strategy=value), "strategy is .*; allowed: a name such as 'ring', ")
        allowed = ", ".join(gl.strategies)
        calls = {
            "all_reduce": lambda value: gl.all_reduce(floats(), strategy=value),
            "reduce_scatter": lambda value: gl.reduce_scatter(numpy.ones(gl.world), strategy=value),
            "all_gather": lambda value: gl.all_gather(numpy.ones(gl.world), strategy=value),
            "broadcast": lambda value: gl.broadcast(floats(), strategy=value),
            "barrier": lambda value: gl.barrier(strategy=value),
        }
        for name, call in calls.items():
            for value in ("rings:7", "", "RING", "x" * 100):
                self.refused(lambda: call(value), f"{name}: strategy '{value[:40]}.*': the daemon allows {allowed} "
                             r"\(strategies in its configuration\)")
            call("ring")
        self.refused(lambda: gl.all_reduce(floats(), codec="raw/raw"), "one for the way back.*; strategy is ring")
        self.refused(lambda: gl.broadcast(floats(), strategy="aggregator:1"), "cannot do this operation; .*: ring, direct$")
        gl.all_reduce(floats(2000), strategy="aggregator:1", codec="fixed:10/raw")

    def test_reductions(self):
        for value in (None, 1, "SUM", "mean", b"min", numpy.min):
            self.refused(lambda: gl.all_reduce(floats(), reduction=value), "reduction is .*; allowed: 'sum', 'min' or 'max'")
        self.refused(lambda: gl.all_reduce(floats(), reduction="min", average=True), "average and minimum")
        self.refused(lambda: gl.all_reduce(floats(), reduction="max", codec="fixed:8"), "minima and maxima are exact")
        self.refused(lambda: gl.all_reduce(floats(), reduction="max", codec=gradlane.AdaptiveBound()), "for sums")
        self.refused(lambda: gl.all_reduce(floats(), reduction="max", residual=floats()), "for sums")
        for dtype in ("uint64", "complex64", "longdouble", "S3", "m8[s]"):
            self.refused(lambda: gl.all_reduce(numpy.zeros(4, dtype), reduction="min"), "cannot take the minimum or maximum of ")

    def test_residuals(self):
        read_only = floats()
        read_only.flags.writeable = False
        data = floats()
        for residual, pattern in (
            (list, "residual is type, not a NumPy array"),
            ([0.0] * 4, "residual is list, not a NumPy array"),
            (numpy.zeros(4), "residual of float64 for data of float32: both must be float32"),
            (floats(5), "residual has 5 elements, and data has 4"),
            (read_only, "residual is read-only"),
            (data, "residual and data overlap in memory"),
        ):
            self.refused(lambda: gl.all_reduce(data, codec="fixed:8", residual=residual), pattern)
        self.refused(lambda: gl.all_reduce(numpy.zeros(4), residual=floats()), "for data of float64")

    def test_shapes(self):
        for shape in (-1, 1.5, "3", (2, -1), None, (2, None), True, [[1]]):
            self.refused(lambda: gl.zeros(shape), "shape is .*; allowed: a whole number of elements, or a tuple")
        self.refused(lambda: gl.zeros((1 << 40, 1 << 40)), "bytes")
        self.refused(lambda: gl.zeros(3, "float31"), "dtype is 'float31'")
        self.refused(lambda: gl.zeros(3, "S"), "dtype .S0 has no length")
        for shape in (numpy.int64(6), [2, 3], numpy.array([6]), (6,), ()):
            self.assertEqual(numpy.shape(gl.zeros(shape)), numpy.shape(numpy.zeros(shape)))

    def test_numbers_of_numpy(self):
        data = floats()
        gl.all_reduce(data, average=numpy.bool_(True), tag=numpy.uint64(1 << 63), async_=numpy.False_)
        gl.broadcast(data, root=numpy.int8(0), tag=numpy.int32(7))
        gradlane.AdaptiveBound(numpy.int16(4))

    def tearDown(self):
        gl.barrier()  # no operation has begun on any rank


class Texts(unittest.TestCase):
    def help(self, thing):
        return pydoc.plain(pydoc.render_doc(thing))

    def test_help(self):
        text = "".join(self.help(gradlane).replace("|", "").split())  # newer Pythons break lines at other places
        for word in ("all_reduce(self,array:", "average:'bool'=False", "AdaptiveBound", "open(socket:", "docs/client.md"):
            self.assertIn(word, text)
        for thing in (gradlane.Context, gradlane.Request, gradlane.AdaptiveBound, gradlane.open):
            text = self.help(thing)
            for line in text.splitlines():
                name = line.lstrip(" |").split("(")[0]
                self.assertFalse(name.startswith("_") and not name.startswith("__") and "(" in line, line)
        for method in (gl.all_reduce, gl.reduce_scatter, gl.all_gather, gl.broadcast, gl.barrier, gl.zeros, gl.close):
            self.assertTrue(method.__doc__)
        public = {name for name in dir(gl) if not name.startswith("_")}
        self.assertEqual(public, {
            "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "close", "codec", "codecs", "empty",
            "encode", "encoded_space", "figures", "fileno", "find_codec", "gather", "hash_of", "rank", "reduce",
            "reduce_scatter", "residual_for", "resume", "scatter", "strategies", "world", "zeros"})

    def test_names(self):
        for name in gradlane.__all__:
            self.assertEqual(getattr(gradlane, name).__module__, "gradlane")
        self.assertEqual(gradlane.__all__, sorted(gradlane.__all__))
        try:
            gl.zeros(-1)
        except gradlane.BadArgument:
            self.assertIn("\ngradlane.BadArgument: shape", traceback.format_exc())

    def test_copies(self):
        cases = (lambda: gl, "call gradlane.open"), (lambda: gl.barrier(async_=True), "pass on the array")
        for make, pattern in cases:
            with self.assertRaisesRegex(TypeError, pattern):
                pickle.dumps(make())
            with self.assertRaisesRegex(TypeError, pattern):
                copy.deepcopy(make())
        bound = gradlane.AdaptiveBound(error_feedback=True)
        gl.all_reduce(floats(2000), codec=bound)
        request = gl.all_reduce(floats(2000), codec=bound, async_=True)
        for other in (copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
            self.assertEqual(repr(other), repr(bound))
            gl.all_reduce(floats(2000), codec=other)
        request.wait()

    def test_repr(self):
        about = f"rank {gl.rank} of {gl.world}, codec {gl.codec}, unfinished operations: 0"
        self.assertEqual(repr(gl), f"<gradlane.Context: {about}>")
        request = gl.all_reduce(floats(), async_=True)
        self.assertEqual(repr(request), "<gradlane.Request: all_reduce of 4 float32, not waited for>")
        request.wait()
        self.assertEqual(repr(request), "<gradlane.Request: all_reduce of 4 float32, over>")
        bound = gradlane.AdaptiveBound(5)
        about = "bits=5, window=1, error_feedback=False"
        self.assertEqual(repr(bound), f"<gradlane.AdaptiveBound({about}): next codec 'raw'>")
        bound.update(floats())
        self.assertIn("next codec 'fixed:5'", repr(bound))


class Many(unittest.TestCase):
    def test_requests(self):
        for count in (70, 1000):
            for make in (lambda: gl.zeros(10), lambda: floats(10)):
                arrays = [make() for _ in range(count)]
                for index, array in enumerate(arrays):
                    array[:] = index + gl.rank
                requests = [gl.all_reduce(array, codec="raw", async_=True) for array in arrays]
                for index, request in enumerate(requests):
                    self.assertEqual(set(request.wait()), {index * gl.world + sum(range(gl.world))})

    def test_dropped(self):
        array = gl.zeros(10)
        for index in range(300):
            gl.all_reduce(gl.zeros(1000), async_=True)
            if index % 10 == 0:
                gl.all_reduce(array, async_=True)  # refused: a request that was dropped still uses the array
        gl.barrier()
        request = gl.barrier(async_=True)
        while select.select([gl.fileno()], [], [], 0)[0]:
            request.done()
        request.wait()
        gc.collect()
        gl.barrier()
        self.assertIn("unfinished operations: 0", repr(gl))

    def test_memory_of_copies(self):
        """Check that unused memory of copies is freed: copies of these sizes are more than a trainer may have."""
        for megabytes in range(400, 700, 100) if gl.world == 1 and not FAKE else ():
            gl.all_reduce(numpy.zeros(megabytes << 18, numpy.float32), codec="raw")


if __name__ == "__main__":
    unittest.main(verbosity=2)
