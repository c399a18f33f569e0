#!/usr/bin/python3
"""Tests of strategies by name in PyTorch. ranks.py runs them, under gradlane run -n 4 --strategies
direct,ring,rings:2,aggregator:1."""

import unittest

import torch
import torch.distributed as dist

import gradlane.torch

STRATEGIES = ("direct", "ring", "rings:2", "aggregator:1")


class StrategiesTest(unittest.TestCase):
    def test_by_name(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        large = 600_000  # more than a piece
        for strategy in (None, *STRATEGIES):
            with gradlane.torch.use_strategy(strategy):
                tensor = torch.full((large,), float(rank))
                dist.all_reduce(tensor)
                self.assertEqual((tensor.min().item(), tensor.max().item()), (6.0, 6.0))
                dist.all_reduce(tensor.fill_(rank), op=dist.ReduceOp.MAX)
                self.assertEqual((tensor.min().item(), tensor.max().item()), (3.0, 3.0))
                blocks = [torch.full((10,), rank + block) for block in range(world)]
                dist.reduce_scatter(blocks[0], list(blocks))  # a reduce-scatter always uses the daemons' own strategy
                self.assertEqual(blocks[0][0].item(), 6 + world * rank)
        # Rounding errors of gradients differ between strategies, so they show which strategy was used.
        weights = {}
        for strategy, codec in ((None, "bf16"), ("direct", "bf16"), ("ring", "bf16"), ("aggregator:1", "fixed:12/raw")):
            torch.manual_seed(0)
            model = torch.nn.Linear(100, 100)
            ddp = torch.nn.parallel.DistributedDataParallel(model)
            ddp.register_comm_hook(gradlane.torch.State(codec, strategy=strategy), gradlane.torch.hook)
            data = torch.randn(7, 100, generator=torch.Generator().manual_seed(rank))
            (100 * ddp(data).square().mean()).backward()
            weights[strategy] = model.weight.grad.clone()
        self.assertTrue(torch.equal(weights[None], weights["direct"]))
        self.assertFalse(torch.equal(weights["ring"], weights["direct"]))
        self.assertFalse(torch.equal(weights["ring"], weights["aggregator:1"]))
        torch.testing.assert_close(weights["ring"], weights["direct"], rtol=0.05, atol=0.05)
        torch.testing.assert_close(weights["ring"], weights["aggregator:1"], rtol=0.05, atol=0.05)
