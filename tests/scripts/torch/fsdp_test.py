#!/usr/bin/python3
"""Tests of gradlane.torch.fsdp(). ranks.py runs them, on backend gradlane or gloo."""

import os
import unittest

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard

import gradlane
import gradlane.torch

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
FSDP2 = unittest.skipUnless(hasattr(FSDPModule, "set_custom_reduce_scatter"), "FSDP2 of this PyTorch is too old")


def network(**options):
    """Returns a sharded network. options: arguments of fully_shard()."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Tanh(), torch.nn.Linear(96, 33))
    for layer in (model[0], model[2]):
        fully_shard(layer, **options)
    fully_shard(model, **options)
    return model


def step(model, optimizer, number):
    torch.manual_seed(100 * number + RANK)
    model(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def trained(model, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(steps):
        step(model, optimizer, number)
    return whole(model)


def whole(model):
    return [parameter.full_tensor().detach().clone() for parameter in model.parameters()]


class Given(torch.nn.Module):
    """Module whose weight gets the gradient that is passed to forward()."""

    def __init__(self, numel):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(numel))

    def forward(self, gradient):
        return (self.weight * gradient).sum()


def given(numel, **options):
    model = Given(numel)
    fully_shard(model)
    return model, gradlane.torch.fsdp(model, **options)


def gradient(numel, number):
    """Returns multiples of 2^-12 below 1/8. Their sums and rounding errors are exact in float32."""
    generator = torch.Generator().manual_seed(1000 * number + RANK)
    return torch.randint(-511, 512, (numel,), generator=generator).float() / 4096


def run(model, numbers):
    """Runs a step with gradient() of each number. Returns the gradients that are applied."""
    results = []
    for number in numbers:
        model(gradient(model.weight.numel(), number)).backward()
        results.append(model.weight.grad.full_tensor().clone())
        model.zero_grad()
    return results


def debt(tensor):
    """Returns the sum of all ranks' residuals, in the scale of gradients."""
    return total(tensor) * gradlane.torch.Engine.existing().residual_scale


def total(tensor, group=None):
    """Returns the exact sum over ranks."""
    result = tensor.double()
    dist.all_reduce(result, group=group)
    return result


@FSDP2
class Fsdp(unittest.TestCase):
    def test_exact(self):
        expected = trained(network())
        for parameters in (None, "raw"):
            model = network()
            gradlane.torch.fsdp(model, "raw", parameters=parameters)
            for one, other in zip(trained(model), expected):
                torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)

    def test_same_on_all_ranks(self):
        model = network()
        gradlane.torch.fsdp(model, "fixed:12", True)
        for parameter in trained(model):
            theirs = [torch.empty_like(parameter) for _ in range(WORLD)]
            dist.all_gather(theirs, parameter)
            for one in theirs:
                self.assertTrue(torch.equal(one, parameter))

    def test_frozen(self):
        """After parameters are frozen, a step is refused. Residuals are kept until the caller discards them with
        reset()."""
        model = network()
        sharded = gradlane.torch.fsdp(model, "fixed:8", True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer, 0)
        for needed, count in ((False, 96 * 64), (True, 96 * 65)):
            model[0].bias.requires_grad_(needed)
            sharded.reset()
            for number in (1, 2):
                step(model, optimizer, number)
            owed = sharded.state_dict()["units"]["0"]["residual"]
            self.assertEqual(owed.numel(), count)
        model[0].bias.requires_grad_(False)
        with self.assertRaisesRegex(Exception, "has 6144 now: .*If some were frozen or thawed, call reset"):
            step(model, optimizer, 3)
        self.assertTrue(owed.any() and torch.equal(sharded.state_dict()["units"]["0"]["residual"], owed))

    def test_nothing_is_lost(self):
        """Applied values plus residuals are the computed gradients, to the bit. This includes gradient accumulation."""
        numel = 5000
        for accumulate in (1, 3):
            model, sharded = given(numel, codec="fixed:5", error_feedback=True)
            applied = torch.zeros(numel, dtype=torch.float64)
            computed = torch.zeros(numel, dtype=torch.float64)
            for number in range(6):
                mine = gradient(numel, number)
                computed += mine
                model.set_requires_gradient_sync((number + 1) % accumulate == 0)
                model(mine).backward()
                if (number + 1) % accumulate == 0:
                    applied += model.weight.grad.full_tensor().double() * WORLD
                    model.zero_grad()
            residual = sharded.state_dict()["units"]["(root)"]["residual"].view(-1)[:numel]
            owed, computed = debt(residual), total(computed)
            self.assertGreater(owed.abs().max().item(), 0)
            if WORLD & (WORLD - 1) == 0:  # otherwise the average is rounded
                self.assertTrue(torch.equal(applied + owed, computed))
            else:
                torch.testing.assert_close(applied + owed, computed, rtol=1e-6, atol=1e-6)

    def test_unused(self):
        """A parameter may have no gradient, on one rank or on all. Its residual is kept until the parameter has a
        gradient again."""
        class Two(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Parameter(torch.zeros(2000))
                self.second = torch.nn.Parameter(torch.zeros(1000))

            def forward(self, first, second):
                loss = (self.first * first).sum()
                return loss if second is None else loss + (self.second * second).sum()

        model = Two()
        fully_shard(model)
        sharded = gradlane.torch.fsdp(model, "fixed:5", True)
        computed = torch.zeros(3000, dtype=torch.float64)
        applied = torch.zeros(3000, dtype=torch.float64)
        for number in range(6):
            mine = gradient(3000, number)
            without = number % 3 == 1 or number % 3 == 2 and RANK == 0
            if without:
                mine[2000:] = 0
            computed += mine
            model(mine[:2000], None if without else mine[2000:]).backward()
            applied += torch.cat([p.grad.full_tensor() for p in (model.first, model.second)]).double() * WORLD
            model.zero_grad()
        owed = debt(sharded.state_dict()["units"]["(root)"]["residual"].view(WORLD, -1))
        shard = 2000 // WORLD if 2000 % WORLD == 0 else -(-2000 // WORLD)
        owed = torch.cat([owed[:, :shard].reshape(-1)[:2000], owed[:, shard:].reshape(-1)[:1000]])
        torch.testing.assert_close(applied + owed, total(computed), rtol=0,
                                   atol=0 if WORLD & (WORLD - 1) == 0 else 1e-6)

    def test_adaptive(self):
        numel = 4096
        model, sharded = given(numel, codec="fixed:adaptive:6")
        for number in range(4):
            mine = gradient(numel, number)
            mean = total(mine) / WORLD
            before = sharded.state_dict()["units"]["(root)"]
            model(mine).backward()
            result = model.weight.grad.full_tensor()
            model.zero_grad()
            wrong = (result - mean).abs().max().item()
            if number == 0:
                self.assertLess(wrong, 1e-7)
                continue
            rms = before["bound"]["squares"][0] ** 0.5
            owed = debt(before["residual"].view(-1)[:numel]).abs().max().item() / WORLD
            self.assertGreater(wrong, 1e-5)
            self.assertLessEqual(wrong, rms * 2.0**-6 + owed + 1e-6)

    def test_parameters_in_bf16(self):
        model = network()
        gradlane.torch.fsdp(model, "raw", parameters="bf16")
        plain = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Tanh(), torch.nn.Linear(96, 33))
        for parameter, exact in zip(plain.parameters(), whole(model)):
            parameter.data = exact.bfloat16().float()
        data = torch.randn(5, 64, generator=torch.Generator().manual_seed(3))
        self.assertTrue(torch.equal(model(data), plain(data)))

    def test_checkpoint(self):
        def make():
            return given(3000, codec="fixed:5", error_feedback=True)

        model, sharded = make()
        run(model, range(3))
        saved = sharded.state_dict()
        expected = run(model, range(3, 6))
        model, sharded = make()
        sharded.load_state_dict(saved)
        for one, other in zip(run(model, range(3, 6)), expected):
            self.assertTrue(torch.equal(one, other))
        _, other = given(3000, codec="fixed:7", error_feedback=True)
        with self.assertRaisesRegex(gradlane.BadArgument, "fixed:5"):
            other.load_state_dict(saved)

    def test_refused(self):
        with self.assertRaisesRegex(gradlane.BadArgument, "fully_shard"):
            gradlane.torch.fsdp(torch.nn.Linear(3, 3))
        model = network()
        with self.assertRaisesRegex(gradlane.BadArgument, "whole tensors"):
            gradlane.torch.fsdp(model, "topk:1%")
        with self.assertRaisesRegex(gradlane.BadArgument, "int8"):
            gradlane.torch.fsdp(model, parameters="int8")
