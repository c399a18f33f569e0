#!/usr/bin/python3
"""Tests of time limits in Python: run it under `gradlane run -n 2`, with PYTHONPATH=client/python."""

import os
import pathlib
import tempfile
import time
import unittest

import numpy

import gradlane

LIMIT = 0.25  # seconds; a number that float32 can hold
PATIENCE = 60  # seconds; time limit that the daemons have by default
gl = None
# Ranks find the same files, because all ranks have the same parent process.
PLACE = pathlib.Path(tempfile.gettempdir(), f"gradlane-timeouts-{os.getppid()}")


def setUpModule():
    global gl
    gl = gradlane.open(operation_timeout=LIMIT)


def tearDownModule():
    gl.close()


class Limits(unittest.TestCase):
    """Tests in which rank 0 starts an operation early, and then signals the other rank to start it too."""

    def setUp(self):
        self.place = PLACE.with_suffix("." + self.id().rsplit(".", 1)[-1])

    def call(self):
        self.place.touch()

    def await_call(self):
        while not self.place.exists():
            time.sleep(0.01)
        self.place.unlink()

    def fails(self, **options):
        with self.assertRaises(gradlane.OperationFailed) as caught:
            gl.all_reduce(numpy.ones(10, numpy.float32), **options)
        return str(caught.exception)

    def go_on(self, tag):
        """Resume as docs/client.md describes."""
        gl.resume(tag)
        while True:
            try:
                gl.barrier(timeout=PATIENCE)
                return
            except gradlane.OperationFailed:
                gl.resume(tag)

    def check_late(self, **options):
        if gl.rank == 0:
            text = self.fails(**options)
            self.call()
            self.assertIn("it was waiting for rank 1 (limit: 250 ms)", text)
        else:
            self.await_call()
            self.fails(**options)

    def test_of_the_context(self):
        self.check_late()
        self.go_on(1 << 20)

    def test_of_a_call(self):
        self.check_late(timeout=numpy.float32(LIMIT))
        self.go_on(2 << 20)

    def test_longer_than_the_context(self):
        data = numpy.ones(10, numpy.float32)
        if gl.rank == 0:
            request = gl.all_reduce(data, timeout=PATIENCE, async_=True)
            try:
                with self.assertRaises(TimeoutError):
                    request.wait(timeout=3 * LIMIT)
            finally:
                self.call()
            request.wait()
        else:
            self.await_call()
            gl.all_reduce(data, timeout=PATIENCE)
        self.assertEqual(set(data), {2})

    def test_wrong(self):
        for value in (0, -1, "5", True, float("nan")):
            with self.assertRaisesRegex(gradlane.BadArgument, "timeout is .*; allowed: a number of seconds"):
                gl.barrier(timeout=value)
            with self.assertRaisesRegex(gradlane.BadArgument, "operation_timeout is .*; allowed: a number of seconds"):
                gradlane.open(operation_timeout=value)
        gl.barrier(timeout=float("inf"))
        gl.barrier(timeout=1e9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
