#!/usr/bin/python3
"""Tests of processes that fork or start others while they have a context: which calls work, and that nothing is left
over."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
import traceback
import unittest

import numpy

import gradlane

gl = None
FAKE = os.environ.get("GRADLANE_FAKE_PID")
PATIENCE = 180  # seconds until a program counts as hanging


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


def floats(count=4):
    return numpy.ones(count, numpy.float32)


class Forks(unittest.TestCase):
    def in_child(self, check):
        """Run `check` in a child after fork(). A failure in the child fails this test."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            text = ""
            try:
                check()
            except BaseException:  # noqa: BLE001 - told to the parent
                text = traceback.format_exc()
            os.write(writer, text.encode() or b"fine")
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            self.assertEqual(pipe.read().decode(), "fine")
        os.waitpid(pid, 0)

    def test_uses(self):
        shared = gl.zeros(1000)
        shared[:] = 3
        plain = floats(1000)
        request = gl.all_reduce(shared, codec="raw", async_=True)
        over = gl.barrier(async_=True)
        over.wait()
        calls = [
            lambda: gl.all_reduce(plain), lambda: gl.all_reduce(shared), lambda: gl.broadcast(plain), gl.barrier,
            lambda: gl.all_gather(numpy.zeros(gl.world)), lambda: gl.zeros(10), gl.figures, gl.fileno, gl.close,
            lambda: gl.resume(5), request.wait, request.done, request.cancel,
            lambda: gl.__enter__().__exit__(None, None, None),
        ]

        def check():
            pattern = f"to process {os.getppid()}, from which process {os.getpid()} was forked"
            for number, call in enumerate(calls):
                with self.subTest(number), self.assertRaisesRegex(gradlane.BadArgument, pattern):
                    call()
            over.wait()
            self.assertIn(f"to process {os.getppid()}", repr(gl))
            gl.__exit__(SystemExit, SystemExit(0), None)

        self.in_child(check)
        request.wait()
        numpy.testing.assert_array_equal(shared, 3 * gl.world)
        gl.all_reduce(plain)
        self.works()

    def works(self):
        for _ in range(20):
            data = floats(1000)
            gl.all_reduce(data, codec="raw")
            self.assertEqual(set(data), {gl.world})

    def test_garbage(self):
        arrays = [gl.zeros(10000) for _ in range(20)]
        requests = [gl.all_reduce(array, async_=True) for array in arrays[:10]]

        def check():
            global gl
            arrays.clear()
            requests.clear()
            gl = None
            gc.collect()

        self.in_child(check)
        for request in requests:
            request.wait()
        arrays[15][:] = 7
        self.works()

    def test_multiprocessing(self):
        arrays = [gl.zeros(10000) for _ in range(5)]
        request = gl.all_reduce(arrays[0], async_=True)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            self.works()
            self.assertEqual(pool.map(abs, range(-5, 5)), list(map(abs, range(-5, 5))))
            self.works()
        process = multiprocessing.get_context("fork").Process(target=sorted, args=([3, 1, 2],))
        process.start()
        self.works()
        process.join()
        self.assertEqual(process.exitcode, 0)
        request.wait()
        self.works()


@unittest.skipUnless(FAKE, "needs tests/client/fake_daemon")
class WithFakeDaemon(unittest.TestCase):
    """Tests with connections of their own. They run last, by the class's name, as they close the connection of the
    tests above."""

    def run_python(self, code):
        run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=PATIENCE,
                             check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return run.stdout

    def test_children_that_end_inside(self):
        out = self.run_python("""
            import os, sys, gradlane
            with gradlane.open() as gl:
                array = gl.zeros(10)
                pid = os.fork()
                if pid == 0:
                    sys.exit(7)
                assert os.waitpid(pid, 0)[1] >> 8 == 7
                gl.all_reduce(array)
            print("fine")
        """)
        self.assertEqual(out, "fine\n")

    def test_children_that_open_their_own(self):
        out = self.run_python("""
            import os, gradlane
            gl = gradlane.open()
            array = gl.zeros(10)
            gl.close()
            pid = os.fork()
            if pid == 0:
                with gradlane.open() as mine:
                    mine.all_reduce(mine.zeros(10))
                    mine.all_reduce(array)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            gradlane.open().barrier()
            print("fine")
        """)
        self.assertEqual(out, "fine\n")

    def test_ends_without_closing(self):
        for code in ("gl", "gl, a = gl, gl.zeros(5)", "r = gl.all_reduce(gl.zeros(5), async_=True)", "gl.a = gl",
                     "gl.all_reduce(gl.zeros(5), async_=True)"):
            self.run_python(f"import gradlane; gl = gradlane.open(); {code}")


@unittest.skipIf(FAKE, "needs a daemon that refuses a second trainer")
class WithoutFakeDaemon(unittest.TestCase):
    """Tests that run last, by the class's name, because they close the connection, so that the rank can be opened
    again."""

    def test_children_that_outlive_a_parent_which_was_killed(self):
        # Another rank may be killed when its barrier has ended, which may end this one's with an error.
        code = "import gradlane, os, signal; gl = gradlane.open(); a = gl.zeros(9)\n" \
               "try:\n    gl.barrier(timeout=60)\nexcept gradlane.Error:\n    pass\n" \
               "if os.fork() == 0:\n    os.read(0, 1); os._exit(0)\n" \
               "os.kill(os.getpid(), signal.SIGKILL)"
        gl.barrier()
        gl.close()
        # The child lives until this end of the pipe is closed.
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
            self.assertEqual(process.wait(PATIENCE), -signal.SIGKILL)
            end = time.monotonic() + PATIENCE
            while True:
                try:
                    gradlane.open().close()
                    break
                except gradlane.NoDaemon as error:
                    self.assertIn("rank", str(error))
                    self.assertLess(time.monotonic(), end, error)


if __name__ == "__main__":
    unittest.main(verbosity=2)
