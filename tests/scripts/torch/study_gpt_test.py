#!/usr/bin/python3
"""Tests a few steps of the study's GPT with each method of its race. ranks.py runs them, on backend gloo."""

import math
import unittest
import unittest.mock

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather

import gradlane.torch
from lab.study import gpt, hooks, plan, train

SPEC = {"epochs": 2, "momentum": 0.9, "rate": 0.1}
STEPS = 3


class Race(unittest.TestCase):
    def setUp(self):
        for target, value in ((gpt, {"GPT_STEPS": STEPS}), (gpt, {"TEST_WINDOWS": 2}), (train, {"PROBES": 1}),
                              (train, {"sent_bytes": lambda: None})):
            patch = unittest.mock.patch.multiple(target, **value)
            patch.start()
            self.addCleanup(patch.stop)
        self.share = gpt.Share(dist.get_rank(), dist.get_world_size())

    def training(self, method):
        return train.Training(SPEC, self.share, "gpt", 1, method)

    def test_each_method(self):
        engine = gradlane.torch.Engine.shared()  # shared by all methods, as in the study
        self.addCleanup(engine.release)
        for method in plan.RACE["gpt"]:
            with self.subTest(method):
                result = self.training(method).run()
                self.assertTrue(result["identical"] and all(map(math.isfinite, result["loss"])), result)
                self.assertLess(result["loss"][-1], result["loss"][0])
                sharded = plan.BY_NAME[method].kind == "fsdp"
                self.assertEqual((result["operation_seconds"], result["compute_seconds"]) == ([], []), sharded)

    def test_bf16_is_that_of_pytorch(self):
        _, hook, _ = hooks.hook_of(plan.BY_NAME[plan.BF16], STEPS)
        self.assertIs(hook, default_hooks.bf16_compress_hook)

    def test_nothing_but_gradients_travels(self):
        """The model has no buffers, because DDP broadcasts buffers in each forward."""
        self.assertEqual(list(gpt.Gpt().buffers()), [])

    def test_ranks_that_differ(self):
        """The digest is of parameters that ranks compute with, not of each rank's shard."""
        for method in (plan.GLOO, plan.FSDP):
            training = self.training(method)
            self.assertEqual(len(set(train.digests(training.model))), 1)
            if method == plan.GLOO:
                next(training.model.parameters()).data.view(-1)[0] += dist.get_rank()
            with unittest.mock.patch.object(DefaultAllGather, "__call__", spoiled(DefaultAllGather.__call__)):
                self.assertEqual(len(set(train.digests(training.model))), 2, method)


def spoiled(gather):
    """Returns a gather that changes one byte of the result on rank 1."""
    def gathering(own, output_tensor, *arguments, **options):
        work = gather(own, output_tensor, *arguments, **options)
        if work is not None:
            work.wait()
        if dist.get_rank() == 1:
            output_tensor.view(torch.uint8)[0] ^= 1
        return work

    return gathering
