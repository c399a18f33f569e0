#!/usr/bin/python3
"""Tests that trainings with gradlane's defaults, and with fixed:adaptive, reach the same loss as with Gloo. ranks.py
runs them on four ranks. Gradients are small, so that fixed:10, whose bound is an absolute one, stops such trainings."""

import contextlib
import unittest

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch

LAST = 5  # number of final steps; the loss of a training is their mean
WAYS = {
    "backend": {},
    "backend with fixed:adaptive": {"use": "fixed:adaptive"},
    "hook": {"hook": {}},
    "hook with fixed:adaptive:3": {"hook": {"codec": "fixed:adaptive:3"}},
    "hook with fixed:adaptive and no feedback": {"hook": {"codec": "fixed:adaptive", "error_feedback": False}},
}


def perceptron(generator):
    """Returns a network of three layers, Adam and the loss function, which together reach a loss of nearly zero, and
    the number of steps."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 128), torch.nn.Tanh(),
                                torch.nn.Linear(128, 32))
    inputs = torch.randn(32, 64, generator=generator)
    targets = 0.2 * inputs[:, :32]
    return model, torch.optim.Adam(model.parameters(), lr=1e-2), lambda ddp: mse_loss(ddp(inputs), targets), 80


def transformer(generator):
    model = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    inputs = torch.randn(16, 10, 32, generator=generator)
    targets = inputs.roll(1, 1).tanh()
    return model, torch.optim.Adam(model.parameters(), lr=3e-3), lambda ddp: mse_loss(ddp(inputs), targets), 60


def readme(generator):
    """Returns README's own example with SGD and its loss function, and the number of steps."""
    model, inputs = torch.nn.Linear(1000, 1000), torch.randn(32, 1000, generator=generator)
    return model, torch.optim.SGD(model.parameters(), lr=10.0), lambda ddp: ddp(inputs).square().mean(), 10


def train(make, group, hook=None):
    """Returns the first loss, the mean of the last ones, and the share of gradients that are not zero in the first
    step."""
    torch.manual_seed(1)
    model, optimizer, loss_of, steps = make(torch.Generator().manual_seed(100 + dist.get_rank()))
    ddp = DistributedDataParallel(model, process_group=group)
    if hook is not None:
        ddp.register_comm_hook(gradlane.torch.State(**hook), gradlane.torch.hook)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(ddp)
        loss.backward()
        if step == 0:
            kept = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()]).ne(0).double().mean()
        optimizer.step()
        losses.append(loss.detach())
    ends = torch.stack([losses[0], torch.stack(losses[-LAST:]).mean()]).double()
    dist.all_reduce(ends, op=dist.ReduceOp.AVG)
    return ends[0].item(), ends[1].item(), kept.item()


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gloo = dist.new_group(backend="gloo")

    def check(self, make, end):
        """Checks that Gloo's loss falls below `end` times the first loss, and that gradlane's last loss is close to
        Gloo's."""
        first, wanted, all_kept = train(make, self.gloo)
        self.assertLess(wanted, end * first)
        for name, way in WAYS.items():
            with self.subTest(name):
                scope = gradlane.torch.use_codec(way["use"]) if "use" in way else contextlib.nullcontext()
                with scope:
                    _, last, kept = train(make, self.gloo if "hook" in way else dist.group.WORLD, way.get("hook"))
                text = f"{make.__name__}, {name}: {first:.5f} -> {last:.6f} (Gloo {wanted:.6f}), {kept:.2%} kept"
                print(text, flush=True)
                # A loss near zero may differ by 1e-4 of the first one.
                self.assertLessEqual(abs(last - wanted), 0.05 * wanted + 1e-4 * first)
                self.assertGreater(kept, 0.9 * all_kept)

    def test_perceptron(self):
        self.check(perceptron, 1e-3)

    def test_transformer(self):
        self.check(transformer, 0.5)

    def test_readme(self):
        self.check(readme, 0.2)

    def test_fixed_10_stops_them(self):
        """fixed:10 must stop these trainings. Otherwise the other tests show nothing."""
        for make in (perceptron, readme):
            with gradlane.torch.use_codec("fixed:10"):
                first, last, kept = train(make, dist.group.WORLD)
            print(f"{make.__name__}, fixed:10: {first:.5f} -> {last:.6f}, {kept:.3%} kept", flush=True)
            self.assertGreater(last, 0.8 * first)
            self.assertLess(kept, 0.05)
