#!/usr/bin/python3
"""Tests of exceptions from signal handlers, at any moment: to be run as python_test.py is.

Rank 0 is interrupted. The other ranks run the same operations, which may fail as cancelled, until rank 0 says stop.
"""

import gc
import os
import random
import signal
import sys
import unittest
import unittest.mock

import numpy

import gradlane

gl = None
COUNT = 64
STOP = 1000.0
INTERRUPTS = 150
PACKAGE = os.path.dirname(gradlane.__file__)
FAKE = os.environ.get("GRADLANE_FAKE_PID")
# distance of the bytecodes that are tested; on a ring, only each third one is, as neighbours hardly differ
STEP = 1 if FAKE else 3


def setUpModule():
    global gl
    gl = gradlane.open()


def tearDownModule():
    gl.close()


class Injector:
    """Raises an exception before bytecode `number`, counted among those that run in the package."""

    def __init__(self, number, exception=KeyboardInterrupt):
        self.left = number
        self.exception = exception
        self.fired = False

    def trace(self, frame, event, _):
        # Python ignores exceptions in a finalizer.
        if not frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code.co_name in ("__del__", "disconnect"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if self.left == 0:
                self.fired = True
                sys.settrace(None)
                raise self.exception("injected")
            self.left -= 1
        return self.trace

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, kind, value, traceback):
        sys.settrace(None)
        return kind is not None and issubclass(kind, self.exception)


def zeros():
    return numpy.zeros(COUNT, numpy.float32)


def arrays():
    """Return arrays in shared memory and in ordinary memory, complete arrays and views."""
    return [gl.zeros(COUNT), zeros(), gl.zeros((2, COUNT))[1], numpy.zeros(2 * COUNT, numpy.float32)[::2]]


class Base(unittest.TestCase):
    def on_rank_0(self, test):
        if gl.rank != 0:
            self.answer()
            return
        try:
            test()
            gc.collect()
            gl.all_reduce(zeros())
            self.assertIn("unfinished operations: 0>", repr(gl))
        finally:
            gl.all_reduce(zeros() + STOP)

    def answer(self):
        while True:
            try:
                if gl.all_reduce(zeros())[0] == STOP:
                    return
            except gradlane.OperationFailed as error:
                self.assertIn("cancel", str(error))

    def check_works(self, array):
        """Check that an all-reduce of this array works, whatever happened before. The other ranks add zeros."""
        value = random.randrange(100)
        array[...] = value
        self.assertIs(gl.all_reduce(array), array)
        self.assertEqual(set(array.flat), {value})


class EveryPoint(Base):
    """Tests that repeat a call with an exception before its first bytecode, then before a later one, up to the last
    one."""

    def every_point(self, call, after, least=20):
        number = 0
        while True:
            with Injector(number) as injector:
                call()
            after()
            if not injector.fired:
                break
            number += STEP
        self.assertGreater(number, least)

    def test_all_reduce(self):
        def test():
            for array in arrays()[:2]:
                self.every_point(lambda: gl.all_reduce(array), lambda: self.check_works(array), 100)
        self.on_rank_0(test)

    def test_starts(self):
        def test():
            for array in arrays()[:2]:
                start = lambda: gl.all_reduce(array, async_=True)  # noqa: E731
                self.every_point(start, lambda: after(array), 100)

        def after(array):
            gl.all_reduce(array)  # the operation that was started may still write to it
            self.check_works(array)

        self.on_rank_0(test)

    def test_ends(self):
        request = None

        def test():
            for array in arrays():
                for look in (gradlane.Request.wait, gradlane.Request.done):
                    start(array)
                    self.every_point(lambda: look(request), lambda: end(array), 10)
                    request.wait()

        def start(array):
            nonlocal request
            array[...] = 7
            request = gl.all_reduce(array, async_=True)

        def end(array):
            self.assertIs(request.wait(), array)
            self.assertTrue(request.done())
            self.assertEqual(set(array), {7})
            start(array)

        self.on_rank_0(test)

    def test_exceptions_while_cancelling(self):
        abandon = gradlane.Context._abandon

        def test():
            array = gl.zeros(COUNT)
            for first in range(200, 500, 30):
                second = 0
                while self.twice(array, first, second):
                    self.check_works(array)
                    second += 3
                self.check_works(array)
        self.abandon = abandon
        self.on_rank_0(test)

    def twice(self, array, first, second):
        injector = Injector(second, TimeoutError)

        def abandon(context, operation):
            sys.settrace(injector.trace)
            try:
                self.abandon(context, operation)
            finally:
                sys.settrace(None)

        with unittest.mock.patch.object(gradlane.Context, "_abandon", abandon):
            try:
                with Injector(first):
                    gl.all_reduce(array)
            except TimeoutError:
                pass
        return injector.fired

    def test_memory(self):
        held = len(gl._connection._live)

        def use():
            gl.zeros(5000)[:] = 1

        def check():
            self.assertEqual(numpy.count_nonzero(gl.zeros(5000)), 0)

        self.every_point(use, check)
        gc.collect()
        check()
        self.assertLessEqual(len(gl._connection._live), held + 1)

    def test_bounds(self):
        if gl.world > 1:
            self.skipTest("the other ranks would need one, too")
        bound = gradlane.AdaptiveBound(error_feedback=True)
        array = numpy.zeros(2048, numpy.float32)

        def step():
            array[:] = 0.3
            gl.all_reduce(array, codec=bound)

        self.every_point(step, step, 200)
        self.assertEqual(bound.codec(), "fixed:6")
        self.assertNotIn("in use", repr(bound))


class AnyMoment(Base):
    """Tests with signals at random times."""

    def setUp(self):
        self.raised = 0
        self.exception = KeyboardInterrupt
        self.before = signal.signal(signal.SIGALRM, self.handle)
        random.seed(1)

    def tearDown(self):
        signal.signal(signal.SIGALRM, self.before)

    def handle(self, number, frame):
        if self.exception is not None:
            self.raised += 1
            raise self.exception("a signal")

    def interrupt(self, call, array, volley=600.0):
        """Repeat `call` until the exception is raised. After the first signal, more signals follow every `volley`
        seconds."""
        exception = self.exception
        array[...] = 2
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3), volley)
            while True:
                call(array)
        except exception:
            self.exception = None
        except BaseException:
            self.exception = None
            raise
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.exception = exception

    def check_each_is_seen(self, call, array):
        self.raised = 0
        for _ in range(INTERRUPTS):
            self.interrupt(call, array)
        self.assertEqual(self.raised, INTERRUPTS)
        self.check_works(array)

    def test_all_reduce(self):
        def test():
            for self.exception in (KeyboardInterrupt, TimeoutError):
                for array in arrays()[:2]:
                    self.check_each_is_seen(gl.all_reduce, array)
        self.on_rank_0(test)

    def test_requests(self):
        def call(array):
            requests = [gl.all_reduce(part, async_=True) for part in (array, zeros())]
            try:
                for request in requests:
                    request.wait()
            except KeyboardInterrupt:
                for request in requests:
                    request.wait()
                self.assertEqual(set(array), {2})
                raise

        self.on_rank_0(lambda: self.check_each_is_seen(call, gl.zeros(COUNT)))

    def test_volleys(self):
        def test():
            for array in arrays()[:2]:
                for _ in range(30):
                    self.interrupt(gl.all_reduce, array, volley=3e-4)
                self.check_works(array)
        self.on_rank_0(test)


@unittest.skipUnless(FAKE, "ranks of a ring that close end what others do")
class WithFakeDaemon(unittest.TestCase):
    """Tests with connections of their own. They run last, by the class's name, as they close the connection of the
    tests above."""

    def test_open(self):
        def session():
            with gradlane.open(timeout=60) as context:
                context.barrier()

        number = 0
        while True:
            with Injector(number) as injector:
                session()
            session()  # it would be refused if the first connection were still open
            if not injector.fired:
                break
            number += 9


if __name__ == "__main__":
    unittest.main(verbosity=2)
