#!/usr/bin/python3
"""Tests that error feedback of the hook loses nothing, whatever a training does. Applied values plus residuals are the
computed gradients, to the bit. ranks.py runs them, under gradlane run -n 2 [--trainers 2 --local-reduce].

Gradients are multiples of a power of two, with few enough bits that float32 holds all sums. The number of ranks is a
power of two, so that averages are exact.
"""

import unittest

import torch
import torch.distributed as dist

import gradlane.torch
from tests.scripts.torch.ddp import WORLD, Given, draw, same_everywhere, wrapped

SHAPES = [(60, 50), (5000,), (2048,), (7,)]
UNIT = 2.0**-24
MAGNITUDE = 2.0**-10
CODECS = ("fixed:12", "fixed:adaptive:1", "topk:25%")  # steps of one size, steps that change, values that are sent late


class Picky(Given):
    """A `Given` module that skips a parameter in a step where its gradient is None."""

    def forward(self, gradients):
        return sum((value * given).sum().double() for value, given in zip(self.values, gradients) if given is not None)


class Books:
    """Computed gradients of this rank, and gradients that all ranks have applied, of a DDP model with a State."""

    def __init__(self, shapes, codec, module=Given, **options):
        self.state = gradlane.torch.State(codec, True)
        self.ddp = wrapped(module(*shapes), self.state, 16, **options)
        self.values = list(self.ddp.module.values)
        self.computed = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
        self.applied = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]

    def backward(self, gradients, scale=1.0):
        for total, gradient in zip(self.computed, gradients):
            if gradient is not None:
                total += gradient.double()
        (self.ddp(gradients) * scale).backward()

    def apply(self, scale=1.0):
        """Adds gradients to `applied`, as an optimizer would apply them."""
        for total, value in zip(self.applied, self.values):
            if value.grad is not None:
                total += value.grad.double() * (WORLD / scale)

    def clear(self):
        self.ddp.zero_grad(set_to_none=True)

    def step(self, gradients):
        self.clear()
        self.backward(gradients)
        self.apply()

    def owed(self):
        numbers = {id(parameter): number for parameter, number in self.state._order.items()}
        residuals = self.state.state_dict()["residuals"]
        return [residuals[numbers[id(value)]] for value in self.values]


def gradients(seed, shapes=SHAPES, magnitude=MAGNITUDE):
    return draw(seed, shapes, magnitude, unit=UNIT)


class Survives(unittest.TestCase):
    def check(self, books):
        some = False
        for applied, computed, owed in zip(books.applied, books.computed, books.owed()):
            computed, owed = computed.clone(), owed.double() * gradlane.torch.Engine.existing().residual_scale
            for tensor in (computed, owed):
                dist.all_reduce(tensor)
            some = some or bool(owed.any())
            self.assertEqual(float((applied + owed - computed).abs().max()), 0)
            self.assertTrue(same_everywhere([applied.float()]))
        self.assertTrue(some, "nothing was owed, so this has tested nothing")

    def each(self, run, *arguments, **options):
        for codec in CODECS:
            with self.subTest(codec):
                books = Books(SHAPES, codec, *arguments, **options)
                run(books)
                self.check(books)

    def test_accumulation(self):
        def run(books):
            for seed in range(0, 9, 3):
                books.clear()
                with books.ddp.no_sync():
                    books.backward(gradients(seed))
                    books.backward(gradients(seed + 1))
                books.backward(gradients(seed + 2))
                books.apply()

        self.each(run)

    def test_clipping(self):
        """Clipping changes gradients in the buckets, after the hook. Residuals do not depend on it."""
        def run(books):
            for seed in range(4):
                books.step(gradients(seed))
                torch.nn.utils.clip_grad_norm_(books.values, 1e-3)

        self.each(run, gradient_as_bucket_view=True)

    def test_zeros_instead_of_none(self):
        def run(books):
            for seed in range(4):
                books.ddp.zero_grad(set_to_none=False)
                books.backward(gradients(seed))
                books.apply()

        self.each(run, gradient_as_bucket_view=True)

    def test_scaled_losses(self):
        """Losses are scaled, as with a GradScaler. Residuals have the scale of the gradients."""
        def run(books):
            for seed in range(4):
                books.clear()
                books.backward(gradients(seed), 256.0)
                books.apply(256.0)
            for total in books.computed:
                total *= 256.0  # residuals are scaled as well
            for total in books.applied:
                total *= 256.0

        self.each(run)

    def test_skipped(self):
        """A GradScaler skips a step because gradients are not finite, and the hook does not learn that. Residuals that
        the skipped step has sent are lost, and the new residuals of the step are applied later. Each of these is at
        most the codec's bound on each rank.
        """
        books, bound = Books(SHAPES, "fixed:12"), 2.0**-12
        for seed in range(4):
            given = gradients(seed)
            if seed == 2:
                given[1][dist.get_rank()] = float("inf")
                books.clear()
                books.ddp(given).backward()
                self.assertTrue(books.values[1].grad.isinf().any())
            else:
                books.step(given)
        for applied, computed, owed in zip(books.applied, books.computed, books.owed()):
            dist.all_reduce(computed)
            owed = owed.double() * gradlane.torch.Engine.existing().residual_scale
            dist.all_reduce(owed)
            self.assertLessEqual(float((applied + owed - computed).abs().max()), 2 * WORLD * bound)

    def test_unused(self):
        """Parameters are unused on all ranks (then DDP drops the result) or only on some ranks."""
        def run(books):
            for seed in range(8):
                given = gradients(seed, magnitude=MAGNITUDE * 2.0**(-seed % 3))
                if seed % 4 in (1, 2):
                    given[1] = None
                if seed % 2 == dist.get_rank() % 2:
                    given[2] = None
                books.step(given)

        self.each(run, Picky, find_unused_parameters=True)

    def test_frozen(self):
        """A parameter is frozen later, in another DDP with fewer parameters. Then all have gradients again."""
        codec = "fixed:12"
        books = Books(SHAPES, codec)
        for seed in range(3):
            books.step(gradients(seed))
        books.values[1].requires_grad_(False)
        books.clear()
        books.ddp = wrapped(books.ddp.module, books.state, 16)
        for seed in range(3, 6):
            given = gradients(seed)
            given[1] = torch.zeros(SHAPES[1])
            books.step(given)
            books.state.load_state_dict(books.state.state_dict())  # a new process group would do the same
        books.values[1].requires_grad_(True)
        books.clear()
        books.ddp = wrapped(books.ddp.module, books.state, 16)
        for seed in range(6, 9):
            books.step(gradients(seed))
        self.check(books)

    def test_added(self):
        """A parameter is added later, before the others. A new DDP has one more parameter, and the optimizer has one
        more group."""
        def run(books):
            optimizer = torch.optim.SGD(books.values, lr=1.0)
            for seed in range(3):
                books.step(gradients(seed))
                optimizer.step()
            self.check(books)
            books.state.load_state_dict(books.state.state_dict())  # a new process group would do the same
            added = torch.nn.Parameter(torch.zeros(40, 100))
            books.values.insert(0, added)
            books.computed.insert(0, torch.zeros(40, 100, dtype=torch.float64))
            books.ddp.module.values = torch.nn.ParameterList(books.values)
            optimizer.add_param_group({"params": [added]})
            books.clear()
            books.ddp = wrapped(books.ddp.module, books.state, 16)
            for seed in range(3, 7):
                books.clear()
                books.backward(gradients(seed, [(40, 100), *SHAPES]))
                optimizer.step()
            books.applied = [value.detach().double() * -WORLD for value in books.values]

        self.each(run)

    def test_two_models(self):
        both = [Books(SHAPES, "fixed:12"), Books(SHAPES[::-1], "fixed:adaptive:1")]
        for seed in range(4):
            for books in both:
                books.clear()
                books.backward(gradients(seed, SHAPES if books is both[0] else SHAPES[::-1]))
            for books in both:
                books.apply()
        for books in both:
            self.check(books)

    def test_optimizer_in_backward(self):
        """An optimizer steps in a hook that runs after gradlane's. It no longer uses gradients afterwards."""
        def hook(state, bucket):
            future = gradlane.torch.hook(state, bucket)

            def step(future):
                for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
                    parameter.data.add_(gradient, alpha=-1.0)
                return future.value()

            return future.then(step)

        for codec in CODECS:
            with self.subTest(codec):
                books = Books(SHAPES, codec, hook=hook)
                for seed in range(4):
                    books.clear()
                    books.backward(gradients(seed))
                books.applied = [value.detach().double() * -WORLD for value in books.values]
                self.check(books)
