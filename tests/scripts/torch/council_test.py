#!/usr/bin/python3
"""Ranks that ask each other through a TCPStore, some of them late: each is a thread with a connection of its own."""

import concurrent.futures
import datetime
import threading
import time
import unittest
import unittest.mock

import torch.distributed as dist

import gradlane
from gradlane.torch import council, meeting

PATIENCE = datetime.timedelta(seconds=30)


def ms(number):
    return datetime.timedelta(milliseconds=number)


class Late(dist.PrefixStore):
    """What a thread sets in it is there `ms` later."""

    thread = threading.local()

    def set(self, key, value):
        time.sleep(getattr(self.thread, "ms", 0) / 1000)
        super().set(key, value)


class Ranks(unittest.TestCase):
    def setUp(self):
        self.server = dist.TCPStore("127.0.0.1", 0, 1, True, PATIENCE, wait_for_workers=False)
        # What a store that has lost its way waits for.
        self.stores = [dist.TCPStore("127.0.0.1", self.server.port, 1, False, ms(5000), wait_for_workers=False)
                       for _ in range(3)]
        # The server has taken all connections when it answers the last one. Of one that it has not taken when it ends,
        # PyTorch 1's store hears of a reset in a thread of its own, and that ends the program.
        self.stores[-1].add("all are here", 1)

    def each(self, call):
        """What call(rank, its store) has returned, or raised, on each rank."""
        def answer(rank):
            try:
                return call(rank, self.stores[rank])
            except RuntimeError as error:
                return error

        with concurrent.futures.ThreadPoolExecutor(len(self.stores)) as pool:
            return list(pool.map(answer, range(len(self.stores))))


class Waiting(Ranks):
    def test_in_vain(self):
        """What comes later is no answer to other questions."""
        mine, other, _ = self.stores
        council._set(other, "known", "yes")
        self.assertFalse(council._wait(mine, ["late"], ms(100)))
        council._set(other, "late", "")
        for _ in range(3):
            self.assertEqual(mine.get("known"), b"yes")
        self.assertTrue(council._wait(mine, ["known", "late"], ms(100)))

    def test_for_several_again_and_again(self):
        mine, other, _ = self.stores
        for _ in range(3):
            self.assertFalse(council._wait(mine, ["one", "two"], ms(30)))
        timer = threading.Timer(0.1, council._set, [other, "one", ""])
        timer.start()
        self.assertFalse(council._wait(mine, ["one", "two"], ms(400)))
        timer.join()
        council._set(other, "two", "")
        self.assertTrue(council._wait(mine, ["one", "two"], ms(400)))

    def test_beside_other_threads(self):
        """Looks are no danger to what these make of memory."""
        end = time.monotonic() + 1
        council._set(self.server, "known", "x" * 100)

        def work():
            while time.monotonic() < end:
                [bytes(100 + number) for number in range(50)]

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()

        def look(rank, store):
            while time.monotonic() < end:
                self.assertTrue(council._is_there(store, ["known"]))

        self.assertEqual(self.each(look), [None] * 3)
        for thread in threads:
            thread.join()

    def test_looks_set_nothing(self):
        for _ in range(2):
            self.assertFalse(council._is_there(self.stores[0], ["nothing"]))

    def test_long_enough(self):
        """More than a look."""
        threading.Timer(0.3, council._set, [self.stores[1], "late", ""]).start()
        self.assertTrue(council._wait(self.stores[0], ["late"], PATIENCE))


class Convening(Ranks):
    def test_however_late_somebody_is(self):
        """About as long as a look takes, or longer, at each step of the meeting."""
        for rank in range(3):
            for late in (30, 95, 101, 103, 105, 107, 109, 111, 150):
                def convene(mine, store, late=late, rank=rank, word=f"{rank} {late}"):
                    Late.thread.ms = late if mine == rank else 0
                    return council.convene(dist.PrefixStore(word, store), mine, 3, PATIENCE)

                with self.subTest(rank=rank, late=late), unittest.mock.patch.object(council.dist, "PrefixStore", Late):
                    words = self.each(convene)
                    self.assertEqual(len(set(words)), 1, words)
                    self.assertRegex(str(words[0]), "^[0-9a-f]{16}$")

    def test_who_does_not_come_is_named(self):
        def convene(rank, store):
            return council.convene(store, rank, 3, ms(300)) if rank != 1 else None

        zero, _, two = self.each(convene)
        self.assertRegex(str(zero), "^gradlane: rank 0 has waited 0.3 s, the timeout of the process group, for rank 1$")
        self.assertIsInstance(two, gradlane.OperationFailed)


class Refusals(Ranks):
    def join(self, rank, store):
        """As rank 0's process does when it has failed: its store goes with it."""
        def start(own):
            council.Council(own, rank, PATIENCE).ask("start", [0], self.refuse, (OSError,))

        try:
            return meeting.join_all(store, rank, 3, PATIENCE, start)
        finally:
            if rank == 0:
                self.server = None

    def refuse(self):
        raise OSError("no such thing")

    def check(self, step, late):
        """Rank 1 has heard all at this step, and gets no time to read it."""
        wait = council._wait

        def slow(store, keys, limit):
            there = wait(store, keys, limit)
            if store is self.slow and keys[0].endswith(step):
                time.sleep(late)
            return there

        self.slow = self.stores[1]
        with unittest.mock.patch.object(council, "_wait", slow):
            for error in self.each(self.join):
                self.assertIsInstance(error, gradlane.NoDaemon)
                self.assertEqual(str(error), "gradlane: no daemon for rank 0: no such thing")

    def test_slow_to_hear(self):
        self.check("start 0", 0.5)

    def test_slow_to_read(self):
        self.check("joined 0", 6)

    def test_who_says_nothing_is_named(self):
        def hear(rank, store):
            return council.Council(store, rank, ms(300)).hear("it", range(3), "yes" if rank != 1 else None)

        for error in self.each(hear):
            self.assertEqual(str(error), "gradlane: nothing was heard from rank 1 for 0.3 s: it has ended, or hangs")

    def test_the_store_has_gone(self):
        self.server = None
        for error in self.each(lambda rank, store: council.Council(store, rank, ms(300)).hear("it", range(3), "yes")):
            self.assertIsInstance(error, gradlane.NoDaemon)
            self.assertRegex(str(error), "^gradlane: the store of the job has gone: ")


if __name__ == "__main__":
    unittest.main()
