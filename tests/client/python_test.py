#!/usr/bin/python3
"""Tests of the Python package, at any world size: run it under `gradlane run -n N`, with PYTHONPATH=client/python.

All ranks run the same tests in the same order, so that their collectives match.
"""

import contextlib
import gc
import io
import itertools
import os
import select
import signal
import threading
import types
import unittest
import unittest.mock

import numpy

import gradlane

gl = None  # one connection for all tests: ranks would have to agree on when to reconnect
FAKE = os.environ.get("GRADLANE_FAKE_PID")
BOUND = 2.0**-10  # error of fixed:10, per rank


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


def rank_data(rank, count, dtype=numpy.float32):
    """Return what this rank contributes: integers that all types can hold, and so are their sums."""
    return ((numpy.arange(count) * 3 + rank) % 5).astype(dtype)


def expected_sum(count):
    return sum(rank_data(rank, count, numpy.float64) for rank in range(gl.world))


def as_bfloat16(array):
    return (array.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)


def from_bfloat16(array):
    return (array.astype(numpy.uint32) << 16).view(numpy.float32)


class Connection(unittest.TestCase):
    def test_what_it_knows(self):
        self.assertEqual(gl.world, int(os.environ.get("WORLD_SIZE", gl.world)))
        self.assertEqual(gl.rank, int(os.environ.get("RANK", gl.rank)))
        self.assertIsInstance(gl.codec, str)

    def test_no_daemon(self):
        with self.assertRaisesRegex(gradlane.NoDaemon, "no daemon at /tmp/gradlane-nobody"):
            gradlane.open(socket="/tmp/gradlane-nobody", timeout=0.3)
        with self.assertRaisesRegex(gradlane.BadArgument, "the limit is 107"):
            gradlane.open(socket="/tmp/" + "x" * 200)

    def test_long_wait_is_reported(self):
        text, ticks = io.StringIO(), itertools.count()
        clock = types.SimpleNamespace(monotonic=lambda: next(ticks) * 0.1)
        with (contextlib.redirect_stderr(text), self.assertRaises(gradlane.NoDaemon),
              unittest.mock.patch.object(gradlane._context, "time", clock)):
            gradlane.open(socket="/tmp/gradlane-nobody", timeout=1.3)
        self.assertRegex(text.getvalue(), "^gradlane: waiting up to 1.3 s: no daemon at /tmp/gradlane-nobody: [^\n]*\n$")

    def test_rank_of_another_node(self):
        with self.assertRaises(gradlane.NoDaemon) as caught:
            gradlane.open(rank=10**6)
        self.assertEqual(caught.exception.code, -2)
        self.assertNotIn("no daemon", str(caught.exception))  # a daemon is there and refuses


class Operations(unittest.TestCase):
    def test_all_reduce_of_every_type(self):
        for dtype in ("float32", "float64", "float16", "int32", "int64", "uint8", "int8"):
            with self.subTest(dtype):
                data = gl.empty(1000, dtype)
                data[:] = rank_data(gl.rank, 1000, dtype)
                self.assertIs(gl.all_reduce(data), data)
                numpy.testing.assert_allclose(data, expected_sum(1000), atol=gl.world * BOUND)

    def test_bfloat16(self):
        data = gl.empty(500, "uint16")
        data[:] = as_bfloat16(rank_data(gl.rank, 500))
        gl.all_reduce(data, type="bfloat16")
        numpy.testing.assert_array_equal(from_bfloat16(data), expected_sum(500))
        gl.all_gather(blocks := gl.zeros((gl.world, 3), "uint16"), type="bfloat16")
        self.assertEqual(numpy.count_nonzero(blocks), 0)
        with self.assertRaisesRegex(gradlane.BadArgument, "uint16"):
            gl.all_reduce(gl.empty(5), type="bfloat16")
        with self.assertRaisesRegex(gradlane.BadArgument, "'bf16'; allowed: 'bfloat16'"):
            gl.all_reduce(data, type="bf16")

    def test_average(self):
        data = gl.empty((10, 20))
        data[:] = rank_data(gl.rank, 200).reshape(10, 20)
        gl.all_reduce(data, average=True, codec="raw")
        numpy.testing.assert_allclose(data.ravel(), expected_sum(200) / gl.world, rtol=1e-6)

    def test_plain_arrays(self):
        data = rank_data(gl.rank, 300)
        self.assertIs(gl.all_reduce(data, codec="raw"), data)
        numpy.testing.assert_array_equal(data, expected_sum(300))
        # These views have strides, another order of axes, or one element.
        for make in (lambda a: a[::3], lambda a: a[::-1], lambda a: a.reshape(20, 15).T, lambda a: a[7:8]):
            whole = rank_data(gl.rank, 300)
            before = whole.copy()
            view = make(whole)
            gl.all_reduce(view, codec="raw")
            numpy.testing.assert_array_equal(view, make(expected_sum(300)))
            untouched = numpy.ones(300, bool)
            make(untouched)[...] = False
            numpy.testing.assert_array_equal(whole[untouched], before[untouched])
        scalar = numpy.array(1, "int64")
        gl.all_reduce(scalar)
        self.assertEqual(scalar, gl.world)

    def test_views_of_shared_arrays(self):
        whole = gl.zeros((4, 100))
        whole[:] = 9
        whole[2] = rank_data(gl.rank, 100)
        gl.all_reduce(whole[2], codec="raw")
        numpy.testing.assert_array_equal(whole[2], expected_sum(100))
        whole[:, 5] = gl.rank
        gl.all_reduce(whole[:, 5], codec="raw")  # this view has strides, so it is copied
        numpy.testing.assert_array_equal(whole[:, 5], sum(range(gl.world)))
        self.assertEqual(whole[0, 0], 9)

    def test_reduce_scatter_and_all_gather(self):
        blocks = gl.zeros((gl.world, 50))
        blocks[:] = rank_data(gl.rank, gl.world * 50).reshape(gl.world, 50)
        gl.reduce_scatter(blocks, codec="raw")
        expected = expected_sum(gl.world * 50).reshape(gl.world, 50)
        numpy.testing.assert_array_equal(blocks[gl.rank], expected[gl.rank])
        gl.all_gather(blocks, codec="raw")
        numpy.testing.assert_array_equal(blocks, expected)
        if gl.world > 1:
            with self.assertRaisesRegex(gradlane.BadArgument, f"{gl.world + 1} elements cannot be divided into {gl.world} blocks"):
                gl.all_gather(gl.zeros(gl.world + 1))
        with self.assertRaisesRegex(gradlane.BadArgument, "codec fixed:8 rounds, but copies are exact"):
            gl.all_gather(blocks, codec="fixed:8")

    def test_broadcast(self):
        for root in {0, gl.world - 1}:
            data = gl.zeros(40, "int32")
            data[:] = rank_data(gl.rank, 40)
            gl.broadcast(data, root=root)
            numpy.testing.assert_array_equal(data, rank_data(root, 40))
        with self.assertRaisesRegex(gradlane.BadArgument, f"root is {gl.world} .int.; allowed: a whole"):
            gl.broadcast(gl.zeros(1), root=gl.world)

    def test_hashes(self):
        """All ranks have the same hash of a result, which is that of its bytes in C order."""
        hashes = gl.zeros(gl.world, numpy.uint64)
        for data in (gl.zeros((50, 41)), numpy.zeros((30, 33)).T, numpy.zeros(100, bool), numpy.zeros(0)):
            data[...] = gl.rank + 1
            hashes[gl.rank] = gl.hash_of(gl.all_reduce(data))
            gl.all_gather(hashes)
            self.assertEqual(set(hashes.tolist()), {gl.hash_of(data)})
            self.assertEqual(gl.hash_of(data), gl.hash_of(numpy.frombuffer(data.tobytes(), numpy.uint8)))
        self.assertEqual(gl.hash_of(numpy.frombuffer(b"abc", numpy.uint8)), 0x44BC2CF5AD770999)
        for wrong in (b"abc", numpy.array([None])):
            with self.assertRaisesRegex(gradlane.BadArgument, "a NumPy array of any type but objects"):
                gl.hash_of(wrong)

    def test_error_feedback(self):
        # 0.3 * 2^-9 is rounded to zero in fixed:10. Error feedback must keep it.
        steps = 40
        value = 0.3 * 2.0**-9
        for make in (gl.zeros, lambda count: numpy.zeros(count, numpy.float32)):
            residual = make(2048)  # fewer than 1024 elements are exact
            total = numpy.zeros(2048)
            for _ in range(steps):
                data = gl.empty(2048)
                data[:] = value
                gl.all_reduce(data, codec="fixed:10", residual=residual)
                total += data
            if FAKE is None:
                numpy.testing.assert_allclose(total, steps * value * gl.world, atol=gl.world * 2.0**-9)
                self.assertTrue(numpy.any(residual != 0))

    def test_barrier(self):
        self.assertIsNone(gl.barrier())
        self.assertIsNone(gl.barrier(tag=5, async_=True).wait())

    def test_empty_array(self):
        self.assertEqual(gl.all_reduce(gl.zeros(0)).size, 0)
        self.assertEqual(gl.all_reduce(numpy.zeros((3, 0), numpy.float32)).shape, (3, 0))

    def test_figures(self):
        before = gl.figures()
        gl.all_reduce(gl.zeros(100))
        after = gl.figures()
        self.assertEqual(after.operations, before.operations + 1)
        self.assertGreaterEqual(after.data_bytes, before.data_bytes)

    def test_bad_arguments(self):
        read_only = numpy.zeros(3, numpy.float32)
        read_only.flags.writeable = False
        cases = [
            ("not a NumPy array", lambda: gl.all_reduce([1.0, 2.0])),
            ("data is read-only", lambda: gl.all_reduce(read_only)),
            ("cannot average int32", lambda: gl.all_reduce(gl.zeros(3, "int32"), average=True)),
            ("fixd:10", lambda: gl.all_reduce(gl.zeros(3), codec="fixd:10")),
            ("takes no residual", lambda: gl.all_reduce(gl.zeros(3), codec="raw", residual=gl.zeros(3))),
            ("residual has 4 elements, and data has 3", lambda: gl.all_reduce(gl.zeros(3), residual=gl.zeros(4))),
            ("tag is -1", lambda: gl.all_reduce(gl.zeros(3), tag=-1)),
            ("tag is 18446744073709551616", lambda: gl.barrier(tag=1 << 64)),
            ("object", lambda: gl.zeros(3, object)),
        ]
        for text, call in cases:
            with self.subTest(text), self.assertRaisesRegex(gradlane.BadArgument, text) as caught:
                call()
            self.assertEqual(caught.exception.code, -1)
        gl.barrier()  # the count of operations is still the same on all ranks


class Requests(unittest.TestCase):
    def test_many(self):
        arrays = [gl.zeros(100) for _ in range(20)] + [numpy.zeros(100, numpy.float32) for _ in range(20)]
        for index, array in enumerate(arrays):
            array[:] = gl.rank + index
        requests = [gl.all_reduce(array, codec="raw", async_=True) for array in arrays]
        for index, request in reversed(list(enumerate(requests))):
            self.assertIs(request.wait(timeout=60), arrays[index])
            self.assertIs(request.wait(), arrays[index])
            self.assertTrue(request.done())
            request.cancel()  # has no effect any more
            numpy.testing.assert_array_equal(arrays[index], sum(range(gl.world)) + gl.world * index)

    def test_more_than_the_daemon_takes(self):
        requests = [gl.barrier(async_=True) for _ in range(200)]
        gl.barrier()
        for request in requests:
            request.wait()

    def test_select(self):
        requests = {gl.all_reduce(gl.zeros(100), async_=True) for _ in range(5)}
        while requests:
            ready, _, _ = select.select([gl.fileno()], [], [], 60)
            self.assertTrue(ready)
            requests = {request for request in requests if not request.done()}
        self.assertEqual(select.select([gl.fileno()], [], [], 0)[0], [])

    def test_arrays_are_kept(self):
        # Only the request holds the array.
        requests = []
        for _ in range(30):
            data = gl.zeros(5000)
            data[:] = gl.rank
            requests.append(gl.all_reduce(data, codec="raw", async_=True))
            del data
            gc.collect()
        for request in requests:
            numpy.testing.assert_array_equal(request.wait(), sum(range(gl.world)))

    def test_ranks_that_disagree(self):
        if gl.world == 1:
            self.skipTest("there are no other ranks")
        plain = numpy.ones(10, numpy.float32)
        residual = numpy.ones(10, numpy.float32)
        with self.assertRaises(gradlane.OperationFailed) as caught:
            gl.all_reduce(plain, tag=10**6 + gl.rank, codec="fixed:10", residual=residual)
        self.assertEqual(caught.exception.code, -4)
        self.assertIn("tag", str(caught.exception))
        self.assertEqual(numpy.count_nonzero(residual), 0)
        numpy.testing.assert_array_equal(plain, 1)
        gl.resume(2 * 10**6)
        data = gl.zeros(10)
        data[:] = 1
        gl.all_reduce(data)
        numpy.testing.assert_allclose(data, gl.world, atol=gl.world * BOUND)


class Memory(unittest.TestCase):
    def test_views_keep_memory(self):
        data = gl.zeros((10, 10))
        view = data[3]
        bits = view.view("uint32")
        del data, view
        gc.collect()
        others = [gl.zeros(100) for _ in range(50)]
        for other in others:
            other[:] = 7
        numpy.testing.assert_array_equal(bits, 0)

    def test_memory_comes_back(self):
        if FAKE is None:
            self.skipTest("the fake daemon counts it; real ones: server_test.cc")
        # Arrays of 64 MiB, 72 times: together more than a trainer may have, so the memory of dropped arrays must be
        # used again.
        for _ in range(72):
            data = gl.zeros(1 << 24)
            data[0] = data[-1] = 1
            del data

    def test_finalizers_in_other_threads(self):
        def drop(arrays):
            while arrays:
                arrays.pop()

        for _ in range(5):
            arrays = [gl.zeros(10000) for _ in range(50)]
            thread = threading.Thread(target=drop, args=(arrays,))
            thread.start()
            for _ in range(50):
                self.assertEqual(numpy.count_nonzero(gl.zeros(3000)), 0)
            thread.join()


@unittest.skipUnless(FAKE, "needs tests/client/fake_daemon")
class WithFakeDaemon(unittest.TestCase):
    """Tests with connections of their own. They run last, by the class's name, as they close the connection of the
    tests above."""

    def test_arrays_outlive_their_context(self):
        with gradlane.open() as context:
            data = context.zeros(1000)
            data[:] = 3
        with self.assertRaises(gradlane.DaemonGone):
            context.all_reduce(data)
        with self.assertRaises(gradlane.DaemonGone):
            context.zeros(3)
        context.close()
        numpy.testing.assert_array_equal(data, 3)
        with gradlane.open() as other:
            other.all_reduce(data)  # an ordinary array for this context
        numpy.testing.assert_allclose(data, 3, atol=BOUND)

    def test_closing_with_requests(self):
        context = gradlane.open()
        requests = [context.all_reduce(numpy.zeros(10, numpy.float32), async_=True) for _ in range(3)]
        requests[0].wait()
        self.tell(signal.SIGUSR2)
        requests[1:] = [context.barrier(async_=True) for _ in range(2)]
        context.close()
        self.tell(signal.SIGUSR2)
        with self.assertRaises(gradlane.DaemonGone):
            requests[1].wait()

    def test_interrupts(self):
        with gradlane.open() as context:
            self.tell(signal.SIGUSR2)
            request = context.barrier(async_=True)
            with self.assertRaises(TimeoutError):
                request.wait(timeout=0.05)
            for call in (request.wait, context.barrier):
                timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
                with self.assertRaises(KeyboardInterrupt):
                    timer.start()
                    call()
                timer.join()
            self.tell(signal.SIGUSR2)
            request.wait()
            context.barrier()

    def tell(self, what):
        """Send the daemon a signal, and wait until the daemon has handled it."""
        os.kill(int(FAKE), what)
        self.assertEqual(os.read(int(os.environ["GRADLANE_FAKE_ANSWERS"]), 1), b"\0", "the fake daemon has ended")

    def test_daemon_says_goodbye(self):
        with gradlane.open() as context:
            data = context.zeros(10)
            context.all_reduce(data)
            self.tell(signal.SIGUSR1)
            with self.assertRaisesRegex(gradlane.DaemonGone, "told to by SIGUSR1"):
                while True:
                    context.barrier()
            with self.assertRaises(gradlane.DaemonGone):
                context.barrier()
            data[0] = 1


if __name__ == "__main__":
    unittest.main(verbosity=2)
