"""models.py - networks of the study, their optimizers, and the digits (the study's trainers)"""

import functools
import math

import numpy
import torch

from lab.study import gpt
from lab.study import plan

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


def optimizer_of(name, parameters, rate, momentum):
    """Returns SGD, as in the INCEPTIONN paper; AdamW for GPTs, because they are trained with it."""
    if name in plan.GPT_WIDTHS:
        return torch.optim.AdamW(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum)


def first_rate(name, rate):
    return plan.GPT_RATE if name in plan.GPT_WIDTHS else rate


def share_of(name, file, rank, world, batch):
    return gpt.Share(rank, world, plan.GPT_STEPS[name]) if name in plan.GPT_WIDTHS else Share(file, rank, world, batch)


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

    def __init__(self, file, rank, world, batch):
        with numpy.load(file) as arrays:
            images, labels, test_images, test_labels = (
                torch.from_numpy(arrays[name]) for name in ("images", "labels", "test_images", "test_labels")
            )
        self.images, self.labels = images, labels
        self.rank, self.world, self.batch = rank, world, batch
        self.steps = len(labels) // (world * batch)
        self.tests = len(test_labels)
        self.test_images, self.test_labels = test_images[rank::world], test_labels[rank::world]

    def epoch(self, seed, epoch):
        """Returns the rank's batches of images and labels, one for each step."""
        order = torch.from_numpy(numpy.random.default_rng((seed, epoch)).permutation(len(self.labels)))
        batches = []
        for step in range(self.steps):
            first = (step * self.world + self.rank) * self.batch
            mine = order[first : first + self.batch]
            batches.append((self.images[mine], self.labels[mine]))
        return batches

    def test(self, model):
        """Returns how many of the rank's test images the model gets right, and the sum of their losses in nats."""
        with torch.no_grad():
            values = model(self.test_images)
        loss = torch.nn.functional.cross_entropy(values, self.test_labels, reduction="sum")
        return int((values.argmax(1) == self.test_labels).sum()), float(loss)
