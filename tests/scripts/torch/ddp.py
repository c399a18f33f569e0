#!/usr/bin/python3
"""Models with given gradients, and one to train, for tests of gradlane.torch's hook."""

import io
import os
import sys
import unittest.mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch

WORLD = int(os.environ["WORLD_SIZE"])
RANK = int(os.environ["RANK"])
BACKEND = sys.argv[1]
SHAPES = [(50, 40), (3000,), (7,), (64, 64), (1,)]


class Given(torch.nn.Module):
    """Module whose parameters get the gradients that are passed to forward()."""

    def __init__(self, *shapes, dtypes=None):
        super().__init__()
        dtypes = dtypes or [torch.float32] * len(shapes)
        self.values = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape, dtype in zip(shapes, dtypes)]
        )

    def forward(self, gradients):
        return sum((value * gradient).sum().double() for value, gradient in zip(self.values, gradients))


def wrapped(module, state, bucket_kib=25 * 1024, hook=gradlane.torch.hook, **options):
    """Returns DDP with the hook, and with buckets of this size from the second step on."""
    with unittest.mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", bucket_kib * 1024):
        ddp = DistributedDataParallel(module, bucket_cap_mb=bucket_kib / 1024, **options)
    ddp.register_comm_hook(state, hook)
    return ddp


def step(ddp, gradients):
    """Averages these gradients. Returns the result."""
    ddp.zero_grad(set_to_none=True)
    ddp(gradients).backward()
    return [value.grad.clone() for value in ddp.module.values]


def draw(seed, shapes, magnitude=1.0, rank=RANK, unit=2.0**-20):
    """Returns a rank's gradients of a step: whole multiples of `unit`, so that sums in doubles are exact."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return [
        (torch.randn(shape, generator=generator) * (magnitude / unit)).round() * unit for shape in shapes
    ]


def exact_average(seed, shapes, magnitude=1.0, unit=2.0**-20):
    parts = [draw(seed, shapes, magnitude, rank, unit) for rank in range(WORLD)]
    return [sum(values).div(WORLD) for values in zip(*[[p.double() for p in part] for part in parts])]


def rms(tensors):
    flat = torch.cat([tensor.double().reshape(-1) for tensor in tensors])
    return float(flat.square().mean().sqrt())


def worst(results, exact):
    return max(float((result.double() - value).abs().max()) for result, value in zip(results, exact))


def same_everywhere(tensors):
    """Returns whether all ranks have the same bits."""
    flat = torch.cat([tensor.detach().reshape(-1).view(torch.int32) for tensor in tensors])
    everybody = [torch.empty_like(flat) for _ in range(WORLD)]
    dist.all_gather(everybody, flat)
    return all(torch.equal(flat, other) for other in everybody)


class Training:
    """A small network and its data."""

    def __init__(self, codec, feedback, scale=1.0, bucket_kib=8):
        torch.manual_seed(7)
        self.model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 50),
                                         torch.nn.Tanh(), torch.nn.Linear(50, 3))
        self.state = gradlane.torch.State(codec, feedback)
        self.ddp = wrapped(self.model, self.state, bucket_kib)
        self.scale = scale
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.5 / scale, momentum=0.5)

    def run(self, first, last):
        for number in range(first, last):
            generator = torch.Generator().manual_seed(100 * number + RANK)
            inputs = torch.randn(32, 20, generator=generator)
            targets = inputs[:, :3].argmax(1)
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.ddp(inputs), targets) * self.scale
            loss.backward()
            self.optimizer.step()

    def loss(self):
        inputs = torch.randn(1000, 20, generator=torch.Generator().manual_seed(12345))
        with torch.no_grad():
            return float(torch.nn.functional.cross_entropy(self.model(inputs), inputs[:, :3].argmax(1)))

    def save(self):
        file = io.BytesIO()
        torch.save([x.state_dict() for x in (self.model, self.optimizer, self.state)], file)
        return file.getvalue()

    def load(self, saved):
        for target, state in zip((self.model, self.optimizer, self.state), torch.load(io.BytesIO(saved))):
            target.load_state_dict(state)

    def parameters(self):
        return [parameter.detach().clone() for parameter in self.model.parameters()]
