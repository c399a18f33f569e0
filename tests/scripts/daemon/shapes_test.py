#!/usr/bin/python3
"""Tests the product of sizes, types, operations and codecs with real daemons, and many starts at once.

shapes_test.py GRADLANE GRADLANED [unittest's arguments]; GRADLANE_LIBRARY: libgradlane.so.0, if not in build/.
"""

import itertools
import os
import pathlib
import subprocess
import sys
import unittest

import numpy

from tests.scripts.fixtures import daemons
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest, gradlane_package

SIZES = (0, 1, 2, 31, 33, 65537)
TYPES = ("float32", "float64", "float16", "int32", "int64", "uint8")


class ShapeTest(DaemonTest):
    def run_all(self, contexts, start, data):
        """Starts an operation on each rank's array, and waits for all."""
        for request in [start(gl, array) for gl, array in zip(contexts, data)]:
            request.wait(PATIENCE)

    def noise(self, contexts, count, dtype="float32"):
        """Returns random small integers, which are exact in all types and codecs, and different on each rank."""
        data = [gl.zeros(count, dtype) for gl in contexts]
        for gl, array in zip(contexts, data):
            array[:] = numpy.random.default_rng(gl.rank).integers(0, 9, count)
        return data

    def check_all_operations(self, contexts, count, dtype="float32", **options):
        world = len(contexts)
        data = self.noise(contexts, count, dtype)
        total = sum(array.astype("float64") for array in data)
        self.run_all(contexts, lambda gl, array: gl.all_reduce(array, async_=True, **options), data)
        numpy.testing.assert_array_equal(data[0], total.astype(dtype))
        self.assert_same_bytes(data)

        root = count % world
        data = self.noise(contexts, count, dtype)
        wanted = data[root].copy()
        self.run_all(contexts, lambda gl, array: gl.broadcast(array, root=root, async_=True), data)
        for array in data:
            numpy.testing.assert_array_equal(array, wanted)

        data = self.noise(contexts, world * count, dtype)
        blocks = [array.reshape(world, count)[rank].copy() for rank, array in enumerate(data)]
        self.run_all(contexts, lambda gl, array: gl.all_gather(array, async_=True), data)
        for array in data:
            numpy.testing.assert_array_equal(array, numpy.concatenate(blocks))

        data = self.noise(contexts, world * count, dtype)
        total = sum(array.astype("float64") for array in data).astype(dtype).reshape(world, count)
        self.run_all(contexts, lambda gl, array: gl.reduce_scatter(array, async_=True, **options), data)
        for rank, array in enumerate(data):
            numpy.testing.assert_array_equal(array.reshape(world, count)[rank], total[rank])
        for request in [gl.barrier(async_=True) for gl in contexts]:
            request.wait(PATIENCE)

    def check_shapes(self, contexts):
        for count in SIZES:
            self.check_all_operations(contexts, count)
            for codec in ("raw", "fixed:7", "bf16", "inceptionn:10"):
                self.check_all_operations(contexts, count, codec=codec)
        for dtype, count in itertools.product(TYPES[1:], SIZES):
            self.check_all_operations(contexts, count, dtype)

    def check_noise_is_the_same(self, contexts):
        """Checks that sums have the same bytes on all ranks, and rounding errors within the bound of the codec."""
        for codec, bound in (("fixed:10", 2.0**-10), ("fixed:7", 2.0**-7), ("raw", 1e-6), ("bf16", 2.0**-7)):
            for average in (False, True):
                data = [gl.zeros(65537) for gl in contexts]
                for gl, array in zip(contexts, data):
                    array[:] = numpy.random.default_rng(gl.rank).normal(0, 0.1, array.size)
                total = sum(array.astype("float64") for array in data) / (len(data) if average else 1)
                self.run_all(
                    contexts, lambda gl, array: gl.all_reduce(array, codec=codec, average=average, async_=True), data
                )
                self.assert_same_bytes(data)
                self.assertLessEqual(abs(data[0] - total).max(), len(contexts) * bound)

    def check_many_at_once(self, contexts):
        rows = []
        for number in range(20):
            count = SIZES[number % len(SIZES)] + number
            data = self.noise(contexts, count)
            total = sum(data)
            requests = [gl.all_reduce(array, async_=True) for gl, array in zip(contexts, data)]
            rows.append((data, total, requests))
        for data, total, requests in reversed(rows):
            for request in requests:
                request.wait(PATIENCE)
            for array in data:
                numpy.testing.assert_array_equal(array, total)

    def check(self, nodes, **settings):
        with self.subTest(nodes=nodes, **settings):
            ring = self.ring(nodes, **settings)
            contexts = self.open_all(ring)
            self.check_shapes(contexts)
            self.check_noise_is_the_same(contexts)
            self.check_many_at_once(contexts)
            self.assertEqual(ring.lines("warn"), [])
            self.finish(ring, contexts)

    def test_alone(self):
        self.check(1)
        self.check(1, lanes=2)

    def test_ring(self):
        self.check(2, link="ring")
        self.check(3, link="ring", mtu=9000, lanes=2)

    def test_memif(self):
        self.check(2, link="memif", lanes=2)
        self.check(3, link="memif", mtu=9000)

    def test_lanes_share_a_thread(self):
        self.check(2, link="ring", lanes=3, threads=2)
        self.check(2, link="memif", lanes=2, threads=1)

    def test_several_trainers(self):
        self.check(2, link="ring", trainers=2)
        self.check(1, trainers=3, lanes=2)

    def test_local_reduce(self):
        for nodes, trainers in ((1, 3), (2, 2)):
            ring = self.ring(nodes, link="memif", trainers=trainers, local_reduce="true", lanes=2)
            contexts = self.open_all(ring)
            for count in SIZES:
                self.check_all_operations(contexts, count)
            self.check_noise_is_the_same(contexts)
            self.check_many_at_once(contexts)
            self.finish(ring, contexts)


class StartTest(DaemonTest):
    """Starts jobs, several at a time, so that the machine is busy."""

    TRAINER = """
import ctypes, os, sys
lib = ctypes.CDLL(os.environ["GRADLANE_LIBRARY"])
lib.gradlane_error.restype = ctypes.c_char_p
gl = ctypes.c_void_p()
if lib.gradlane_open(ctypes.byref(gl), None): sys.exit(lib.gradlane_error(None))
data = ctypes.c_void_p()
if lib.gradlane_alloc(gl, ctypes.c_size_t(4000), ctypes.byref(data)): sys.exit(lib.gradlane_error(gl))
floats = (ctypes.c_float * 1000).from_address(data.value)
floats[999] = 2
if lib.gradlane_all_reduce(gl, data, ctypes.c_size_t(1000), 0, None, None): sys.exit(lib.gradlane_error(gl))
if floats[999] != 2 * lib.gradlane_world(gl): sys.exit(f"wrong: {floats[999]}")
lib.gradlane_close(gl)
"""
    STARTS, AT_A_TIME = 12, 6

    def check(self, *options):
        command = [daemons.BINARIES["gradlane"], "run", *options, "--", sys.executable, "-I", "-S", "-c",
                   self.TRAINER]
        env = {**os.environ, "TMPDIR": str(self.folder), "GRADLANED": daemons.BINARIES["gradlaned"],
               "GRADLANE_LIBRARY": library_path()}
        env.pop("XDG_RUNTIME_DIR", None)
        for _ in range(self.STARTS // self.AT_A_TIME):
            runs = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, env=env) for _ in range(self.AT_A_TIME)]
            outputs = [run.communicate(timeout=PATIENCE)[0] for run in runs]
            for run, output in zip(runs, outputs):
                self.assertEqual(run.returncode, 0, output)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_ring(self):
        self.check("-n", "3", "--link", "ring")

    def test_memif(self):
        self.check("-n", "3", "--link", "memif")

    def test_vhost(self):
        self.check("-n", "3", "--link", "vhost")

    def test_memif_with_several_trainers(self):
        self.check("-n", "2", "--trainers", "2", "--link", "memif")


def library_path():
    gradlane_package()
    from gradlane import _library as library

    return library.load()._name


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    daemons.BINARIES["gradlane"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    daemons.BINARIES["gradlaned"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
