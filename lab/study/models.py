"""models.py - networks of the study, their optimizers, and the digits (the study's trainers)"""

import functools
import math

import numpy
import torch

from lab.study import gpt, plan
from tools.demo import digits

SPLIT = 3  # seed of the digits' split into training and tests, as in the demo
CLASSIFIER = (64, 500, 500, 500, 500, 10)


def classifier():
    """The network of tools/demo/digits.py."""
    layers = []
    for inputs, outputs in zip(CLASSIFIER, CLASSIFIER[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def convolutional():
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8, 8)),
        torch.nn.Conv2d(1, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(1024, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 10),
    )


MAKE = {"digits": classifier, "conv": convolutional,
        **{name: functools.partial(gpt.Gpt, width) for name, width in plan.GPT_WIDTHS.items()}}


def optimizer_of(name, parameters, rate, momentum, small_momentum):
    """Returns SGD, as in the INCEPTIONN paper; AdamW for GPTs, because they are trained with it. `small_momentum` is for
    parameters that a codec leaves as they are, because they are small."""
    if name in plan.GPT_WIDTHS:
        return torch.optim.AdamW(parameters, lr=rate)
    groups = {momentum: [], small_momentum: []}
    for parameter in parameters:
        groups[small_momentum if parameter.numel() < plan.SMALL else momentum].append(parameter)
    return torch.optim.SGD([{"params": group, "momentum": value} for value, group in groups.items() if group], lr=rate)


def first_rate(name):
    return plan.GPT_RATE if name in plan.GPT_WIDTHS else plan.RATE


def batch_of(name):
    return plan.GPT_BATCH if name in plan.GPT_WIDTHS else plan.BATCH


def share_of(name, rank, world):
    return gpt.Share(rank, world, plan.GPT_STEPS[name]) if name in plan.GPT_WIDTHS else Share(rank, world)


def loss_of(outputs, wanted):
    return torch.nn.functional.cross_entropy(outputs.float().flatten(0, -2), wanted.flatten())


def rate_of(first, epoch, epochs):
    """Returns the learning rate of an epoch: half a wave of the cosine, from the first rate down to almost 0."""
    return first * (1 + math.cos(math.pi * epoch / epochs)) / 2


def initialize(model, seed):
    """Sets weights as He et al., 2015: normal with variance 2 / inputs; biases are 0. The GPT has its own initialize().
    """
    if isinstance(model, gpt.Gpt):
        model.initialize(seed)
        return
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in model:
            if hasattr(layer, "weight"):
                spread = math.sqrt(2 / layer.weight[0].numel())
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=random) * spread)
                layer.bias.zero_()


class Share:
    """The part of the digits that this rank trains on and is tested with. An epoch is the same for all methods."""

    def __init__(self, rank, world):
        parts = digits.load_digits(SPLIT)
        self.images, self.labels, test_images, test_labels = map(torch.from_numpy, parts)
        self.rank, self.world = rank, world
        self.steps = len(self.labels) // (world * plan.BATCH)
        self.tests = len(test_labels)
        self.test_images, self.test_labels = test_images[rank::world], test_labels[rank::world]

    def epoch(self, seed, epoch):
        """Returns the rank's batches of images and labels, one for each step."""
        order = torch.from_numpy(numpy.random.default_rng((seed, epoch)).permutation(len(self.labels)))
        batches = []
        for step in range(self.steps):
            first = (step * self.world + self.rank) * plan.BATCH
            mine = order[first : first + plan.BATCH]
            batches.append((self.images[mine], self.labels[mine]))
        return batches

    def test(self, model):
        """Returns how many of the rank's test images the model gets right, and the sum of their losses in nats."""
        with torch.no_grad():
            values = model(self.test_images)
        loss = torch.nn.functional.cross_entropy(values, self.test_labels, reduction="sum")
        return int((values.argmax(1) == self.test_labels).sum()), float(loss)
