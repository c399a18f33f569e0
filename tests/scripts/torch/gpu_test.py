#!/usr/bin/python3
"""Tests of pinned blocks and their pool, without a GPU."""

import types
import unittest
import unittest.mock

import gradlane
from gradlane.torch import gpu


class Event:
    def __init__(self, over=False):
        self.over = over

    def query(self):
        return self.over

    def synchronize(self):
        self.over = True


class Pools(unittest.TestCase):
    def setUp(self):
        self.made, self.room = [], 1 << 40
        self.pool = gpu.Pool(self.allocate)

    def allocate(self, size):
        if size > self.room:
            raise gradlane.OutOfMemory(-5, "no room")
        self.made.append(size)
        return types.SimpleNamespace(size=size)

    def test_sizes(self):
        for nbytes in (0, 1, 4096, 4097, 5000, 1 << 20, (1 << 20) + 1, 25 << 20, 26214401, 100 << 20):
            size = gpu.size_of(nbytes)
            self.assertGreaterEqual(size, max(nbytes, 1))
            self.assertLessEqual(size, max(nbytes * 9 / 8 + 4096, 4096))
            self.assertEqual(gpu.size_of(size), size)

    def test_blocks_come_again(self):
        """Blocks that were given back are lent again, however many are lent at a time."""
        for _ in range(5):
            lent = [self.pool.lend(25 << 18) for _ in range(100)]
            for block in lent:
                self.assertEqual(self.pool.give_back(block, Event(True)), [])
        self.assertEqual(len(self.made), 100)

    def test_not_while_it_is_copied(self):
        block, event = self.pool.lend(5000), Event()
        self.pool.give_back(block, event)
        other = self.pool.lend(5000)
        self.assertIsNot(other, block)
        event.over = True
        self.assertIs(self.pool.lend(5000), block)

    def test_no_more_than_a_limit(self):
        with unittest.mock.patch.object(gpu, "_FREE", 10000):
            blocks = [self.pool.lend(4096) for _ in range(4)]
            events = [Event(), Event(True), Event(True), Event(True)]
            excess = [self.pool.give_back(block, event) for block, event in zip(blocks, events)]
            self.assertEqual(excess, [[], [], [], []], "the first of them is still copied from")
            events[0].over = True
            more = self.pool.lend(8192)
            self.assertEqual([block for block, _ in self.pool.give_back(more, None)], blocks)

    def test_without_room(self):
        """If memory is full, the pool frees unused blocks. For a block that is still being copied, it waits until the
        copy has finished."""
        block, event = self.pool.lend(1 << 20), Event()
        self.pool.give_back(block, event)
        self.room = 0
        with self.assertRaises(gradlane.OutOfMemory):
            self.pool.lend(4096)
        self.assertTrue(event.over)
        self.assertFalse(self.pool.clear(), "nothing is left")

    def test_whatever_becomes_of_the_operation(self):
        block, event = self.pool.lend(4096), Event()
        self.pool.follow(block, event)
        self.assertIn((block, event), self.pool._lent)
        self.pool.lend(4096)
        self.assertIn((block, event), self.pool._lent)
        event.over = True
        self.pool.lend(4096)
        self.assertEqual(self.pool._lent, [])


class Pinned(unittest.TestCase):
    def pin(self, codes):
        runtime = unittest.mock.Mock()
        runtime.cudaHostRegister.side_effect = codes

        class Block:
            size, address = 4096, 1 << 20

        block = Block()
        with unittest.mock.patch.object(gpu.torch, "cuda") as cuda:
            cuda.is_available.return_value = True
            cuda.cudart.return_value = runtime
            gpu.pin(block)
            del block
        return runtime

    def test_until_the_end(self):
        self.pin([0]).cudaHostUnregister.assert_called_once_with(1 << 20)

    def test_cannot_be(self):
        self.pin([2]).cudaHostUnregister.assert_not_called()

    def test_what_was_there_before(self):
        runtime = self.pin([712, 0])
        self.assertEqual(runtime.cudaHostRegister.call_count, 2)
        self.assertEqual(runtime.cudaHostUnregister.call_count, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
