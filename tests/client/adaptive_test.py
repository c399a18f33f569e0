#!/usr/bin/python3
"""Tests of AdaptiveBound: alone, with a model of the codec in NumPy, and on a ring under `gradlane run -n N`.

PYTHONPATH=client/python.
"""

import math
import os
import unittest
import unittest.mock

import numpy

import gradlane
from gradlane import _library as library, adaptive

RANKS = 4
COUNT = 1024
gl = None  # connection, for the class Ring


def setUpModule():
    global gl
    gl = gradlane.open() if "GRADLANE_SOCKET" in os.environ else None


def tearDownModule():
    if gl is not None:
        gl.close()


def rms(array):
    return math.sqrt(numpy.mean(numpy.square(array, dtype=numpy.float64)))


def average_through(codec, parts):
    """Return the average that an all-reduce of the ranks' float32 arrays gives, by a model of the codec.

    The codec fixed rounds each array to multiples of its step, ties to even.
    """
    if codec == "raw":
        return numpy.mean(parts, axis=0, dtype=numpy.float64).astype(numpy.float32)
    step = 2.0 ** (1 - int(codec.split(":")[1]))
    parts = numpy.asarray(parts, numpy.float64)
    rounded = numpy.where(numpy.abs(parts) < 2.0**23 * step, numpy.rint(parts / step) * step, parts)
    return numpy.mean(rounded, axis=0).astype(numpy.float32)


def gradients(step, magnitude, shape="gauss"):
    """Return the gradients of all ranks in one training step. They are the same random values on all ranks, plus noise
    of each rank."""
    random = numpy.random.default_rng(step)
    draw = random.standard_normal if shape == "gauss" else lambda n: random.laplace(size=n) ** 3
    shared = draw(COUNT)
    return [((shared + 0.5 * draw(COUNT)) * magnitude).astype(numpy.float32) for _ in range(RANKS)]


def run(bound, magnitudes, shape="gauss"):
    """Return (codec, exact average, result) for each training step."""
    steps = []
    for step, magnitude in enumerate(magnitudes):
        parts = gradients(step, magnitude, shape)
        codec = bound.codec()
        with numpy.errstate(all="ignore"):
            result = average_through(codec, parts)
            steps.append((codec, numpy.mean(parts, axis=0, dtype=numpy.float64), result))
        bound.update(result)
    return steps


def codecs(steps):
    return [codec for codec, _, _ in steps]


SEQUENCES = {
    "steady": [1e-3] * 20,
    "shrinks slowly": [1e-2 * 0.8**i for i in range(40)],
    "grows slowly": [1e-5 * 1.3**i for i in range(40)],
    "shrinks 10 times": [1e-2] * 3 + [1e-3] * 5,
    "grows 10 times": [1e-3] * 3 + [1e-2] * 5,
    "shrinks 1000 times": [1e-2] * 3 + [1e-5] * 5,
    "grows 1000 times": [1e-5] * 3 + [1e-2] * 5,
    "a spike": [1e-3] * 3 + [1e3] + [1e-3] * 5,
    "a dip": [1e-3] * 3 + [1e-9] + [1e-3] * 5,
    "always 10 times less": [10.0**-i for i in range(12)],
    "zeros and back": [1e-3] * 3 + [0.0] * 3 + [1e-3] * 3,
    "zeros at first": [0.0] * 3 + [1e-4] * 3,
    "1e-6": [1e-6] * 10,
    "1e-9": [1e-9] * 10,
    "1e-12": [1e-12] * 10,
    "denormal": [1e-41] * 10,
    "large": [100.0] * 10,
    "very large": [1e10] * 10,
    "to the end of the range": [1e30, 1e35, 1e37] * 3,
    "noisy": [1e-4 * f for f in (1, 2, 0.5, 3, 0.4, 7, 1, 0.2, 1, 5) * 3],
}


class Promise(unittest.TestCase):
    """Check the error that the docstring promises, in every step of every sequence."""

    def check(self, steps, bits, window):
        for i, (codec, exact, result) in enumerate(steps):
            if not numpy.isfinite(result).all():
                continue  # the sum overflowed float32
            error = numpy.max(numpy.abs(result - exact))
            rounding = 2.0**-23 * numpy.max(numpy.abs(exact)) + 2.0**-149
            if codec == "raw":
                self.assertLessEqual(error, rounding, f"step {i}")
                continue
            previous = [rms(r) for _, _, r in steps[max(i - window, 0):i]]
            self.assertLessEqual(error, 2.0**-bits * previous[-1] + rounding, f"step {i}: {codec}")
            # This step is not raw. So the previous result was within a factor of 8 of the one before it, and not only
            # rounding error.
            if bits >= 4:
                true = rms(steps[i - 1][1])
                self.assertLessEqual(error, 2.0 ** (1 - bits) * true + rounding, f"step {i}: {codec}")

    def test_every_sequence(self):
        for name, magnitudes in SEQUENCES.items():
            for shape in ("gauss", "heavy"):
                for bits in (1, 4, 12):
                    for window in (1, 8):
                        with self.subTest(name, shape=shape, bits=bits, window=window):
                            bound = gradlane.AdaptiveBound(bits, window)
                            self.check(run(bound, magnitudes, shape), bits, window)

    def test_the_smallest_of_the_window(self):
        steps = run(gradlane.AdaptiveBound(4, window=8), [1e-3, 2e-4] * 10)
        for i in range(3, 20):
            smallest = min(rms(result) for _, _, result in steps[max(i - 8, 0):i])
            error = numpy.max(numpy.abs(steps[i][2] - steps[i][1]))
            self.assertLessEqual(error, 2.0**-4 * smallest)

    def test_not_finer_than_needed(self):
        for magnitude in (1e-6, 1e-3, 0.1, 5.0):
            bound = gradlane.AdaptiveBound(4)
            bound.update(numpy.full(100, magnitude, numpy.float32))
            b = int(bound.codec().split(":")[1])
            self.assertLessEqual(2.0**-b, 2.0**-4 * magnitude)
            self.assertGreater(2.0**-b, 2.0**-5 * magnitude)

    def test_gradients_of_1e_6_are_not_lost(self):
        steps = run(gradlane.AdaptiveBound(), SEQUENCES["1e-6"])
        self.assertTrue(all(codec.startswith("fixed:2") for codec in codecs(steps)[1:]), codecs(steps))
        for _, exact, result in steps:
            self.assertLess(rms(result - exact), 0.04 * rms(exact))
        self.assertEqual(numpy.count_nonzero(average_through("fixed:10", gradients(0, 1e-6))), 0)


class Feedback(unittest.TestCase):
    """Check that error feedback delivers the rounding errors of a coarse bound in later training steps.

    The bound is computed from the results. It must not follow the errors.
    """

    def test_few_bits(self):
        for bits in (1, 2, 4):
            for shape in ("gauss", "heavy"):
                with self.subTest(bits=bits, shape=shape):
                    self.check(bits, shape)

    def check(self, bits, shape):
        bound, owed = gradlane.AdaptiveBound(bits), numpy.zeros((RANKS, COUNT))
        given, got, sizes, results = 0.0, 0.0, [], []
        for step in range(100):
            parts = gradients(step, 1e-3, shape) + owed
            codec = bound.codec()
            sent = [average_through(codec, [part]) for part in parts]
            # the codec is never raw again, because rounding errors do not count as a change of the gradients' size
            if step > 0:
                b = int(codec.split(":")[1])
                self.assertLessEqual(numpy.max(numpy.abs(parts - sent)), 2.0**-b)
            owed = parts - sent
            result = numpy.mean(sent, axis=0, dtype=numpy.float64).astype(numpy.float32)
            bound.update(result)
            exact = numpy.mean(gradients(step, 1e-3, shape), axis=0, dtype=numpy.float64)
            given, got = given + exact, got + result
            sizes.append(rms(exact))
            results.append(rms(result))
        late = numpy.mean(owed, axis=0)
        self.assertLessEqual(numpy.max(numpy.abs(given - got - late)), 1e-6 * numpy.max(numpy.abs(given)))
        self.assertLessEqual(rms(late), 2.0**-bits * max(results))
        self.assertLess(max(results), 1.5 * max(sizes))


class Decisions(unittest.TestCase):
    def after(self, *values, **options):
        bound = gradlane.AdaptiveBound(**options)
        for value in values:
            bound.update(numpy.full(10, value, numpy.float32))
        return bound.codec()

    def test_first(self):
        self.assertEqual(self.after(), "raw")
        self.assertEqual(self.after(2.0**-10), "fixed:14")

    def test_edges(self):
        self.assertEqual(self.after(numpy.nextafter(numpy.float32(2.0**-10), numpy.float32(0))), "fixed:15")
        self.assertEqual(self.after(2.0**-26), "fixed:30")
        self.assertEqual(self.after(2.0**-26 * 0.99), "raw")
        self.assertEqual(self.after(2.0**3), "fixed:1")
        self.assertEqual(self.after(2.0**12), "fixed:1")
        self.assertEqual(self.after(8191), "fixed:1")
        self.assertEqual(self.after(8192), "raw")
        self.assertEqual(self.after(2.0**-10, bits=12), "fixed:22")

    def test_change(self):
        self.assertEqual(self.after(1, 8), "fixed:1")
        self.assertEqual(self.after(1, 8.01), "raw")
        self.assertEqual(self.after(1, 8.01, 8), "fixed:1")
        self.assertEqual(self.after(1, 0.125), "fixed:7")
        self.assertEqual(self.after(1, 0.1249), "raw")
        self.assertEqual(self.after(1, 0.1249, 0.1249), "fixed:8")
        self.assertEqual(self.after(1, 1e-3, 1), "raw")
        self.assertEqual(self.after(1, 8, 60, window=3), "fixed:4")
        self.assertEqual(self.after(1, 8, 65, window=3), "raw")

    def test_what_is_no_measure(self):
        for value in (0, -0.0, math.nan, math.inf, -math.inf):
            with self.subTest(value=value):
                self.assertEqual(self.after(0.25, 0.25, value), "raw")
                self.assertEqual(self.after(0.25, 0.25, value, value), "raw")
                self.assertEqual(self.after(0.25, value, 0.25), "fixed:6")
                self.assertEqual(self.after(0.25, value, 2.0**-20), "fixed:24")
                bound = gradlane.AdaptiveBound(window=4)
                for _ in range(3):
                    bound.update(numpy.array([1, value, 1], numpy.float32) * numpy.float32(value))
                self.assertEqual(bound.state_dict()["squares"], [])

    def test_one_nan_among_many(self):
        data = numpy.ones(1000, numpy.float32)
        data[777] = math.nan
        bound = gradlane.AdaptiveBound()
        bound.update(numpy.ones(1000, numpy.float32))
        bound.update(data)
        self.assertEqual(bound.codec(), "raw")

    def test_scale(self):
        bound = gradlane.AdaptiveBound()
        bound.update(numpy.full(10, 8.0, numpy.float32), scale=1 / 8)
        self.assertEqual(bound.codec(), self.after(1.0))

    def test_no_elements(self):
        bound = gradlane.AdaptiveBound()
        bound.update(numpy.ones(3, numpy.float32))
        bound.update(numpy.empty(0, numpy.float32))
        self.assertEqual(bound.codec(), "fixed:4")

    def test_reset(self):
        bound = gradlane.AdaptiveBound()
        bound.update(numpy.ones(3, numpy.float32))
        bound.reset()
        self.assertEqual(bound.codec(), "raw")

    def test_sequences(self):
        raw_at = {
            "steady": [0],
            "shrinks slowly": [0],
            "grows slowly": [0],
            "shrinks 10 times": [0, 4],
            "grows 10 times": [0, 4],
            "shrinks 1000 times": [0, 4],
            "grows 1000 times": [0, 4],
            "a spike": [0, 4, 5],
            "always 10 times less": [0] + list(range(2, 12)),
            "zeros and back": [0, 4, 5, 6],
            "zeros at first": [0, 1, 2, 3],
            "1e-9": list(range(10)),
            "1e-12": list(range(10)),
            "very large": list(range(10)),
        }
        for name, expected in raw_at.items():
            with self.subTest(name):
                got = codecs(run(gradlane.AdaptiveBound(), SEQUENCES[name]))
                self.assertEqual([i for i, codec in enumerate(got) if codec == "raw"], expected, got)


class Interface(unittest.TestCase):
    def test_parse(self):
        self.assertEqual(gradlane.AdaptiveBound.parse("fixed:adaptive").bits, 4)
        self.assertEqual(gradlane.AdaptiveBound.parse("fixed:auto:6").bits, 6)  # the spelling of release 0.1
        self.assertEqual(gradlane.AdaptiveBound.parse("fixed:adaptive:6").bits, 6)
        self.assertEqual(gradlane.AdaptiveBound.parse("fixed:adaptive:12", window=8).window, 8)
        for other in (None, "raw", "fixed", "fixed:10", "fixed:aut", "bf16", 3):
            self.assertIsNone(gradlane.AdaptiveBound.parse(other))
        for bad in ("fixed:adaptive:", "fixed:adaptive:0", "fixed:adaptive:13", "fixed:adaptive:x", "fixed:adaptive:4:5",
                    "fixed:adaptively", "fixed:automatic",
                    "fixed:adaptive:-1", "fixed:adaptive: 4", "fixed:adaptive:\u0664"):
            with self.subTest(bad), self.assertRaisesRegex(gradlane.BadArgument, "BITS 1 to 12"):
                gradlane.AdaptiveBound.parse(bad)

    def test_bad_arguments(self):
        for bits in (0, 13, 4.0, "4", True, None):
            with self.subTest(bits=bits), self.assertRaisesRegex(gradlane.BadArgument, "1 to 12"):
                gradlane.AdaptiveBound(bits)
        with self.assertRaisesRegex(gradlane.BadArgument, "window"):
            gradlane.AdaptiveBound(window=0)
        bound = gradlane.AdaptiveBound()
        for result in (numpy.ones(3), numpy.ones((4, 4), numpy.float32).T[1:], numpy.ones(8, numpy.float32)[::2]):
            with self.assertRaisesRegex(gradlane.BadArgument, "C-contiguous NumPy array of float32"):
                bound.update(result)

    def test_state_dict(self):
        magnitudes = SEQUENCES["noisy"] + SEQUENCES["zeros and back"]
        for window in (1, 8):
            for cut in range(len(magnitudes)):
                whole = gradlane.AdaptiveBound(window=window)
                first = gradlane.AdaptiveBound(window=window)
                second = gradlane.AdaptiveBound(window=window)
                expected = codecs(run(whole, magnitudes))[cut:]
                run(first, magnitudes[:cut])
                second.load_state_dict(first.state_dict())
                got = []
                # Use the same data as in the run without an interruption.
                for step in range(cut, len(magnitudes)):
                    got.append(second.codec())
                    second.update(average_through(got[-1], gradients(step, magnitudes[step])))
                self.assertEqual(got, expected)

    def test_state_dict_of_another(self):
        bound = gradlane.AdaptiveBound(6, window=2)
        with self.assertRaisesRegex(gradlane.BadArgument, "4 bits, this one has 6"):
            bound.load_state_dict(gradlane.AdaptiveBound(4).state_dict())
        for squares in ([math.nan], [0.0], [-1.0], [math.inf], [1.0] * 3):
            with self.assertRaisesRegex(gradlane.BadArgument, "mean squares"):
                bound.load_state_dict({"bits": 6, "squares": squares, "steady": True})
        bound.load_state_dict({"bits": 6, "squares": [], "steady": True})
        self.assertEqual(bound.codec(), "raw")

    def test_join(self):
        def of(*values):
            bound = gradlane.AdaptiveBound()
            for value in values:
                bound.update(numpy.full(5, value, numpy.float32))
            return bound

        def joined(*bounds):
            bound = of(1.0)
            bound.join(bounds)
            return bound.codec()

        self.assertEqual(joined(of(2.0**-3), of(2.0**-9), of(1.0)), "fixed:13")
        self.assertEqual(joined(of(2.0**-3), of(2.0**-9), of()), "raw")
        self.assertEqual(joined(of(2.0**-3), of(1.0, 1e-4)), "raw")
        self.assertEqual(joined(), "raw")

    def test_sum_of_squares(self):
        data = numpy.random.default_rng(1).standard_normal(100003).astype(numpy.float32)
        exact = math.fsum(float(x) ** 2 for x in data)
        self.assertAlmostEqual(adaptive.sum_of_squares(data) / exact, 1, delta=1e-12)
        self.assertEqual(adaptive.sum_of_squares(data[3:]), adaptive.sum_of_squares(data[3:].copy()))

    def test_older_library(self):
        class Older:
            gradlane_version = staticmethod(lambda: 1)

        with unittest.mock.patch.object(library.ctypes, "CDLL", lambda path: Older()):
            wanted = f"interface version 1, this package needs {library.API_VERSION}: install"
            with self.assertRaisesRegex(gradlane.NoDaemon, wanted):
                library.load()


@unittest.skipUnless("GRADLANE_SOCKET" in os.environ and "GRADLANE_FAKE_PID" not in os.environ, "for gradlane run")
class Ring(unittest.TestCase):
    def test_training(self):
        magnitudes = [1e-6] * 4 + [1e-2] * 4 + [0.0] * 2 + [1e-7] * 3 + [math.nan] + [1e-3] * 3
        for bits, count in ((4, 1000), (4, 70000), (1, 70000)):
            bound = gradlane.AdaptiveBound(bits)
            data = gl.zeros(count)
            previous = None
            for step, magnitude in enumerate(magnitudes):
                parts = [
                    (numpy.random.default_rng([step, rank]).standard_normal(count) * magnitude)
                    .astype(numpy.float32)
                    for rank in range(gl.world)
                ]
                data[:] = parts[gl.rank]
                codec = bound.codec()
                self.check_same(codec)
                gl.all_reduce(data, average=True, codec=codec)
                bound.update(data)
                if math.isnan(magnitude):
                    self.assertTrue(numpy.isnan(data).all())
                    continue
                exact = numpy.mean(parts, axis=0, dtype=numpy.float64)
                allowed = 0 if codec == "raw" else 2.0**-bits * previous
                # Allow for sums in fp32 and a division, of numbers no larger than this.
                rounding = gl.world * 2.0**-23 * numpy.max(numpy.abs(parts), initial=0)
                self.assertLessEqual(numpy.max(numpy.abs(data - exact)), allowed + rounding, f"step {step}")
                previous = rms(data)

    def check_same(self, codec):
        """Check that all ranks have chosen this codec."""
        text = codec.encode().ljust(16)
        names = gl.zeros((gl.world, 16), "uint8")
        names[gl.rank] = numpy.frombuffer(text, numpy.uint8)
        gl.all_gather(names)
        self.assertEqual({bytes(name) for name in names}, {text})


if __name__ == "__main__":
    unittest.main(verbosity=2)
