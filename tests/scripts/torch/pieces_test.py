#!/usr/bin/python3
"""Tests of the engine's thread, with a library that only pretends: when it sleeps while pieces are under way."""

import threading
import types
import unittest

FIRST, SECOND, THIRD = 11, 12, 13  # requests


class Library:
    """Requests end in the order that is wanted. Its descriptor is readable while one is over that nobody asked about."""

    def __init__(self, order):
        from gradlane import errors

        self.order, self.ended, self.told = order, set(), set()
        self.over, self.pending = errors.OK, errors.PENDING

    def gradlane_wait(self, _, request, timeout_ms):
        assert timeout_ms == 0, timeout_ms
        if request.value not in self.ended:
            return self.pending
        assert request.value not in self.told, "the library says only once how it ended"
        self.told.add(request.value)
        return self.over

    def sleep(self):
        """Returns whether it slept: then the next request ends."""
        if self.ended - self.told:
            return False
        self.ended.add(self.order[len(self.ended)])
        return True


class Thread(unittest.TestCase):
    def exchange(self, order):
        """How often the thread did not sleep when it wanted to."""
        from gradlane.torch import driver, operations

        library = Library(order)
        it = driver.Driver.__new__(driver.Driver)
        it.lock, it.closed, it._lib, it._counted, it._past = threading.RLock(), False, library, 0, 0
        it._connection = types.SimpleNamespace(handle=None)
        it._note_warnings = lambda _: None
        awake = []
        it._sleep = lambda: awake.append(not library.sleep()) or self.assertLess(len(awake), 20, "it never sleeps")
        operation = operations.Operation()
        operation.piece_count = operation.next_piece = len(order)
        for piece, request in enumerate(sorted(order)):
            operation.flights.append(operations.Flight(piece, 4096))
            operation.flights[-1].request.value = request
        it._exchange(operation)
        self.assertIsNone(operation.error)
        self.assertEqual(library.told, set(order))
        return sum(awake)

    def test_sleeps_while_the_oldest_piece_takes_its_time(self):
        for order in ([FIRST, SECOND, THIRD], [SECOND, FIRST, THIRD], [THIRD, SECOND, FIRST], [SECOND, THIRD, FIRST]):
            with self.subTest(order=order):
                self.assertEqual(self.exchange(order), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
