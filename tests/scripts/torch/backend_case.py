"""Tensors, and comparisons on all ranks, for tests of the backend."""

import os
import unittest

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OTHERS = (torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16, torch.complex64, torch.complex128)
SIZES = (1, 7, 1000, 5000, 300001)  # the largest one is exchanged in several pieces


def given(rank, numel, dtype=torch.float32):
    """Returns what a rank contributes: small whole numbers, whose sums all types hold."""
    return ((torch.arange(numel) * 3 + rank) % 5).to(dtype)


def summed(numel, dtype=torch.float32):
    return sum(given(rank, numel, torch.int64) for rank in range(WORLD)).to(dtype)


class Case(unittest.TestCase):
    def assertSame(self, tensor, other):  # noqa: N802
        self.assertEqual((tensor.dtype, tensor.shape), (other.dtype, other.shape))
        self.assertTrue(torch.equal(tensor, other), f"{tensor} is not {other}")

    def assertSameEverywhere(self, tensor):  # noqa: N802
        """Checks that all ranks have the same tensor, bit by bit."""
        mine = tensor.detach().contiguous().numpy().tobytes()
        everybody = [None] * WORLD
        dist.all_gather_object(everybody, mine)
        self.assertEqual(everybody, [mine] * WORLD)
