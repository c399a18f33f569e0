#!/usr/bin/python3
"""Tests of warnings that codecs lose much of the values, in PyTorch. ranks.py runs them on two ranks."""

import unittest
import warnings

import torch
import torch.distributed as dist

import gradlane.torch


class LossesTest(unittest.TestCase):
    def caught(self, call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        return [warning for warning in caught if warning.category is gradlane.LossWarning]

    def test_all_reduce(self):
        large = 600_000  # more than a piece
        tiny = torch.full((large,), 1e-6)
        self.assertEqual(self.caught(lambda: dist.all_reduce(tiny)), [])
        with gradlane.torch.use_codec("fixed:10"):
            (warning,) = self.caught(lambda: dist.all_reduce(tiny))
        self.assertIn(f"all_reduce of {large} elements by codec fixed:10 lost 100 %", str(warning.message))

        # The warning is an error on one rank, in the first of many pieces. All ranks have the sum nevertheless.
        rank = dist.get_rank()
        values = torch.full((5 * large,), 1.0 if rank == 0 else 1e-6)
        with gradlane.torch.use_codec("fixed:10"), warnings.catch_warnings():
            warnings.simplefilter("error")
            if rank == 0:
                dist.all_reduce(values)
            else:
                with self.assertRaises(gradlane.LossWarning):
                    dist.all_reduce(values)
        self.assertEqual((values.min().item(), values.max().item()), (1.0, 1.0))
        ones = torch.ones(5)
        dist.all_reduce(ones)
        self.assertEqual(ones[0].item(), dist.get_world_size())
