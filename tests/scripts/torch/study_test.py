#!/usr/bin/python3
"""Tests a few steps of the study's trainings, and its plain hooks. ranks.py runs them, on backend gloo."""

import math
import unittest
import unittest.mock

import torch
import torch.distributed as dist

from lab.study import gpt, methods, models, plain_hooks, plan, train

STEPS, EPOCHS = 3, 2


class Bucket:
    """A bucket, as DDP passes to hooks."""

    def __init__(self, parameters, gradient):
        self._parameters, self._gradient = parameters, gradient

    def buffer(self):
        return self._gradient

    def parameters(self):
        return self._parameters

    def is_last(self):
        return True


class Study(unittest.TestCase):
    def setUp(self):
        for patch in (unittest.mock.patch.dict(plan.GPT_STEPS, {"gpt": STEPS}),
                      unittest.mock.patch.object(gpt, "TEST_WINDOWS", 2)):
            patch.start()
            self.addCleanup(patch.stop)
        self.shares = {model: models.share_of(model, dist.get_rank(), dist.get_world_size())
                       for model in ("conv", "gpt")}
        self.shares["conv"].steps = STEPS

    def training(self, method, model="gpt"):
        return train.Training(self.shares[model], model, 1, method, EPOCHS)

    def test_each_kind(self):
        """Trains by the first method of each kind."""
        kinds = {(method.kind, method.what, bool(method.ramp)): method
                 for method in reversed(methods.BY_NAME.values())}
        self.assertGreaterEqual(len(kinds), 10)
        for kind, method in kinds.items():
            with self.subTest(kind):
                result = self.training(method).run()
                self.assertTrue(result["identical"] and all(map(math.isfinite, result["loss"])), result)
                self.assertLess(result["loss"][-1], result["loss"][0])

    def test_tbq_of_the_paper(self):
        """TBQ sends multiples of one threshold, which add exactly, so gradlane and the plain hook make the same bits.
        """
        own, other = (self.training(method, "conv").run() for method in methods.HIPRESS["tbq"])
        self.assertEqual(own, other)

    def test_nothing_is_lost(self):
        """With error feedback, results and residuals together are the sum of all gradients."""
        random = torch.Generator().manual_seed(dist.get_rank())
        parameters = [torch.zeros(3000), torch.zeros(2000)]
        for words in ("onebit 256 bucket", "onebit tensor", "tbq 3", "graddrop 1%"):
            hook = plain_hooks.hook_of(words, [])
            given, got = torch.zeros(5000), torch.zeros(5000)
            for step in range(4):
                gradient = torch.randn(5000, generator=random)
                given += gradient
                # DDP has other buckets in the first step.
                buckets = [parameters] if step == 0 else [[parameter] for parameter in parameters]
                views = gradient.split([sum(map(len, bucket)) for bucket in buckets])
                for bucket, view in zip(buckets, views):
                    hook(None, Bucket(bucket, view)).wait()
                got += gradient
            dist.all_reduce(given)
            left = torch.zeros(5000)
            for (name, parameter), residual in hook.__self__._states.items():
                if name == "own":
                    dist.all_reduce(residual)
                if name != "velocity":
                    at = 0 if parameter is parameters[0] else len(parameters[0])
                    left[at : at + len(residual)] += residual
            with self.subTest(words):
                self.assertLess(float((got * dist.get_world_size() + left - given).abs().max()), 1e-3)
                self.assertGreater(float(left.abs().max()), 0.01)

    def test_terngrad_of_the_paper(self):
        """The mean of many results is the mean of the clipped gradients, and each result is -s, 0 or s per rank."""
        hook = plain_hooks.hook_of("terngrad tensor", [])
        gradient = torch.linspace(-1, 1, 2000)
        total, count = torch.zeros(2000), 400
        for _ in range(count):
            result = hook(None, Bucket([gradient], gradient.clone())).wait()
            world = dist.get_world_size()
            self.assertTrue(set((result * world).round(decimals=4).tolist()) <= set(range(-world, world + 1)))
            total += result
        self.assertLess(float((total / count - gradient).abs().max()), 0.15)

    def test_dgc_of_the_paper(self):
        """Velocities add up where nothing is sent, and are forgotten where something is."""
        hook = plain_hooks.hook_of("dgc 0.05%", [])
        gradient = torch.full((2000,), 0.5)
        gradient[7] = 2
        first, second = (hook(None, Bucket([gradient], gradient.clone())).wait().clone() for _ in range(2))
        self.assertEqual((float(first[7]), float(second[7]), int((first != 0).sum())), (2, 2, 1))
        self.assertAlmostEqual(float(hook.__self__.state("own", gradient)[0]), 0.5 + (0.9 * 0.5 + 0.5), places=6)

    def test_nothing_but_gradients_travels(self):
        """The model has no buffers, because DDP broadcasts buffers in each forward."""
        self.assertEqual(list(gpt.Gpt().buffers()), [])

    def test_ranks_that_differ(self):
        training = self.training(methods.FP32)
        self.assertEqual(len(set(train.digests(training.model))), 1)
        next(training.model.parameters()).data.view(-1)[0] += dist.get_rank()
        self.assertEqual(len(set(train.digests(training.model))), dist.get_world_size())
