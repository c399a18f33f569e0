#!/usr/bin/python3
"""Tests of ranks that ask each other through a TCPStore, some of them late. Each rank is a thread with its own
connection."""

import concurrent.futures
import datetime
import json
import threading
import unittest
import unittest.mock

import torch.distributed as dist

import gradlane
from gradlane.torch.bootstrap import joining, store_group

PATIENCE = datetime.timedelta(seconds=30)


def ms(number):
    return datetime.timedelta(milliseconds=number)


class Ranks(unittest.TestCase):
    def setUp(self):
        options = {"wait_for_workers": False, "use_libuv": store_group.uses_libuv()}
        self.server = dist.TCPStore("127.0.0.1", 0, 1, True, PATIENCE, **options)
        self.stores = [dist.TCPStore("127.0.0.1", self.server.port, 1, False, PATIENCE, **options) for _ in range(3)]

    def each(self, call):
        """Returns the result of call(rank, the rank's store), or the error that it has raised, for each rank."""
        def answer(rank):
            try:
                return call(rank, self.stores[rank])
            except RuntimeError as error:
                return error

        with concurrent.futures.ThreadPoolExecutor(len(self.stores)) as pool:
            return list(pool.map(answer, range(len(self.stores))))


class Waiting(Ranks):
    def test_short_and_long(self):
        """A short wait polls, and a long one waits in the store."""
        mine, other, _ = self.stores
        for number, limit in enumerate((store_group._LOOK, PATIENCE)):
            keys = [f"one {number}", f"two {number}"]
            self.assertFalse(store_group._wait(mine, keys, store_group._LOOK))
            other.set(keys[0], "")
            self.assertFalse(store_group._wait(mine, keys, store_group._LOOK))
            other.set(keys[1], "")
            self.assertTrue(store_group._wait(mine, keys, limit))

    def test_long_in_vain(self):
        mine, other, _ = self.stores
        self.assertFalse(store_group._wait(mine, ["late"], 2 * store_group._LOOK))
        other.set("late", "yes")
        self.assertEqual(mine.get("late"), b"yes")


class Convening(Ranks):
    def rendezvous(self, rank, store):
        return store_group.rendezvous(store, rank, 3, PATIENCE)

    def test_one_word_for_all(self):
        words = self.each(self.rendezvous)
        self.assertEqual(len(set(words)), 1, words)
        self.assertRegex(str(words[0]), "^[0-9a-f]{16}$")

    def test_what_an_earlier_attempt_has_left(self):
        """Keys "hello" of ranks that have gone are still in the store. Rank 0 proposes a new word each time that a new
        rank replaces such a key."""
        left = dist.PrefixStore(store_group._PREFIX, self.stores[0])
        for rank in (1, 2):
            left.set(f"hello {rank}", "of an earlier attempt")

        def late(rank, store):
            before = dist.PrefixStore(store_group._PREFIX, store)
            if rank == 1:
                before.wait(["proposal"], PATIENCE)
            if rank == 2:  # waits until a proposal includes rank 1
                while before.get("hello 1") == b"of an earlier attempt" or \
                        before.get("hello 1").decode() not in json.loads(before.get("proposal"))[1]:
                    pass
            return self.rendezvous(rank, store)

        words = self.each(late)
        self.assertEqual(len(set(words)), 1, words)
        self.assertRegex(str(words[0]), "^[0-9a-f]{16}$")

    def test_who_does_not_come_is_named(self):
        def rendezvous(rank, store):
            return store_group.rendezvous(store, rank, 3, ms(300)) if rank != 1 else None

        zero, _, two = self.each(rendezvous)
        self.assertRegex(str(zero), "^gradlane: rank 0 has waited 0.3 s, the timeout of the process group, for rank 1$")
        self.assertIsInstance(two, gradlane.OperationFailed)


class Refusals(Ranks):
    def join(self, rank, store):
        """Joins as a rank of a job does. When rank 0 has returned, its store ends, as it does when the process of rank
        0 ends."""
        def start(own):
            store_group.StoreGroup(own, rank, PATIENCE).ask("start", [0], self.refuse, (OSError,))

        try:
            return joining.join_all(store, rank, 3, PATIENCE, start)
        finally:
            if rank == 0:
                self.server = None

    def refuse(self):
        raise OSError("no such thing")

    def check(self, step, then):
        """Rank 1 has all answers of `step`, but cannot read them before the other ranks wait for the key `then`."""
        wait, waiting = store_group._wait, threading.Semaphore(0)

        def slow(store, keys, limit):
            if store is not self.slow and keys[0].endswith(then):
                waiting.release()
            there = wait(store, keys, limit)
            if store is self.slow and keys[0].endswith(step):
                for _ in range(2):
                    waiting.acquire()
            return there

        def joined(rank, store):
            try:
                return self.join(rank, store)
            finally:
                waiting.release()  # it has not waited, which is an error; rank 1 must not hang then

        self.slow = self.stores[1]
        with unittest.mock.patch.object(store_group, "_wait", slow):
            for error in self.each(joined):
                self.assertIsInstance(error, gradlane.NoDaemon)
                self.assertEqual(str(error), "gradlane: no daemon for rank 0: no such thing")

    def test_slow_to_gather(self):
        self.check("start 0", "joined 0")

    def test_slow_to_read(self):
        self.check("joined 0", "all have parted")

    def test_who_says_nothing_is_named(self):
        def gather(rank, store):
            return store_group.StoreGroup(store, rank, ms(300)).gather("it", range(3), "yes" if rank != 1 else None)

        for error in self.each(gather):
            self.assertEqual(str(error), "gradlane: no answer from rank 1 for 0.3 s: it has ended, or hangs")

    def test_the_store_has_gone(self):
        self.server = None
        for error in self.each(lambda rank, store: store_group.StoreGroup(store, rank, ms(300)).gather("it", range(3), "yes")):
            self.assertIsInstance(error, gradlane.NoDaemon)
            self.assertRegex(str(error), "^gradlane: lost the connection to the job's store: ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
