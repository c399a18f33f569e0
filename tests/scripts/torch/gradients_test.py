#!/usr/bin/python3
"""Tests of the sums of elastic trainings: rounding, exponents, buffers, random numbers, state. They need no daemons."""

import copy
import math
import unittest

import torch

from gradlane import errors
from gradlane.torch.elastic.gradients import Gradients


class Members:
    """The rings of members that run one after the other: operations add what the earlier members have left."""

    def __init__(self, count):
        self.rings = [Member(self) for _ in range(count)]


class Member:
    """The ring of one member. With several, sum() must be called once for each member, and then once more."""

    def __init__(self, members):
        self.members = members

    def sum(self, tensor, codec=None):
        self.last = tensor.clone()
        tensor.copy_(sum(ring.last for ring in self.members.rings if hasattr(ring, "last")))
        assert codec in (None, "fixed:1")
        if codec:
            assert torch.equal(tensor, tensor.round()) and tensor.abs().max() <= 1 << 24


class Alone:
    """The ring of the only member."""

    def sum(self, tensor, codec=None):
        pass


def linear(values=(0.0,)):
    model = torch.nn.Linear(len(values), 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([values]))
    return model


def make(model, shards=4, bits=None):
    return Gradients(model, torch.optim.SGD(model.parameters(), lr=1.0), {}, shards, bits, 0)


def run_step(gradients, model, grads, step=0):
    """Computes shards with these gradients of the first parameter, until they fit, and applies them. Returns the number
    of attempts."""
    parameter = next(model.parameters())
    for attempt in range(1, 4):
        gradients.start_step()
        for shard, grad in enumerate(grads):
            gradients.start_shard(step, shard)
            parameter.grad = None if grad is None else torch.as_tensor(grad).float().view(parameter.shape)
            gradients.add_shard(shard, True, False)
        if gradients.check([gradients.magnitudes()]):
            gradients.sum(Alone())
            gradients.apply(0)
            return attempt
    raise AssertionError("it never fits")


class Sums(unittest.TestCase):
    def test_mean(self):
        model = linear((0.0, 0.0))
        run_step(make(model), model, [[1.0, 0.5], [2.0, 0.5], [3.0, 0.5], [4.0, 0.5]])
        self.assertEqual(model.weight.tolist(), [[-2.5, -0.5]])

    def test_precision(self):
        """The error is at most that of float32 for the largest gradient."""
        for shards in (1, 3, 8, 1024):
            torch.manual_seed(shards)
            values = torch.randn(shards, 1000)
            model = linear((0.0,) * 1000)
            gradients = make(model, shards)
            run_step(gradients, model, values)
            with torch.no_grad():
                model.weight.zero_()
            run_step(gradients, model, values, 1)
            error = (model.weight.detach().double() + values.double().mean(0)).abs().max()
            bits = 24 - math.ceil(math.log2(shards)) - math.frexp(values.abs().max())[1]
            self.assertLessEqual(error, 2.0 ** -bits + 2e-7)

    def test_any_partition(self):
        """The sum does not depend on which member has which shard."""
        torch.manual_seed(0)
        grads = torch.randn(6, 50) * torch.logspace(-6, 3, 50)
        for bits in (None, 8):
            results = []
            for parts in ([range(6)], [[0, 2, 4], [1, 3, 5]], [[5], [], [3, 1, 0], [2, 4]]):
                members = Members(len(parts))
                models = [linear((0.0,) * 50) for _ in parts]
                all_gradients = [make(model, 6, bits) for model in models]
                for _ in range(2):  # the first attempt finds the exponents
                    for gradients, model, shards in zip(all_gradients, models, parts):
                        gradients.start_step()
                        for shard in shards:
                            gradients.start_shard(0, shard)
                            model.weight.grad = grads[shard].view(1, -1).clone()
                            gradients.add_shard(shard, True, False)
                    magnitudes = [gradients.magnitudes() for gradients in all_gradients]
                    fits = [gradients.check(magnitudes) for gradients in all_gradients]
                    self.assertEqual(len(set(fits)), 1)
                self.assertTrue(fits[0])
                for gradients, ring in zip(all_gradients, members.rings):
                    gradients.sum(ring)
                all_gradients[0].sum(members.rings[0])
                all_gradients[0].apply(0)
                results.append(models[0].weight.detach().clone())
            for result in results[1:]:
                self.assertTrue(torch.equal(result, results[0]))

    def test_changes_of_magnitude(self):
        """Gradients that grow or shrink too much are computed again, with other exponents."""
        model = linear()
        gradients = make(model)
        self.assertEqual(run_step(gradients, model, [[1.0]] * 4), 1)
        for factor, attempts in ((32.0, 1), (1.0, 1), (2.0 ** 20, 2), (2.0 ** -20, 2), (2.0 ** -126, 2), (3e38, 2)):
            with self.subTest(factor=factor), torch.no_grad():
                model.weight.zero_()
                self.assertEqual(run_step(gradients, model, [[factor]] * 4), attempts)
                self.assertEqual(model.weight.item(), -factor if factor < 3e38 else model.weight.item())
                self.assertEqual(run_step(gradients, model, [[factor]] * 4), 1)

    def test_no_gradient(self):
        """A parameter without a gradient in any shard is not updated; zeros are a gradient."""
        for grads, expected in (([None] * 4, 1.0), ([None, [0.0], None, None], 0.5)):
            model = linear((1.0,))
            gradients = Gradients(model, torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=0.5), {}, 4, None, 0)
            run_step(gradients, model, grads)
            self.assertEqual(model.weight.item(), expected)

    def test_not_finite(self):
        for bad in (math.nan, math.inf):
            model = linear()
            with self.assertRaisesRegex(errors.OperationFailed, "parameter weight has a NaN or Inf"):
                run_step(make(model), model, [[1.0], [bad], [1.0], [1.0]])

    def test_codec(self):
        model = linear((0.0, 0.0))
        gradients = make(model, 4, 3)
        run_step(gradients, model, [[1.0, 0.1]] * 4)
        run_step(gradients, model, [[1.0, 0.1]] * 4, 1)
        first, second = (-model.weight.detach() / 2).flatten().tolist()
        self.assertEqual(first, 1.0)
        self.assertLessEqual(abs(second - 0.1), 2.0 ** -3)
        self.assertNotEqual(second, 0.1)
        with self.assertRaisesRegex(errors.BadArgument, "B must be 1 to 8"):
            make(linear(), 1024, 11)

    def test_hash(self):
        model = linear()
        gradients = make(model)
        hashes = []
        for value in (1.0, 1.0, 1.0 + 2.0 ** -20):
            gradients.start_step()
            gradients.start_shard(0, 0)
            model.weight.grad = torch.full((1, 1), value)
            hashes.append(gradients.add_shard(0, False, True))
        self.assertEqual(hashes[0], hashes[1])
        self.assertNotEqual(hashes[0], hashes[2])
        self.assertTrue(all(0 < number < 1 << 62 for number in hashes))


class State(unittest.TestCase):
    def test_random_numbers(self):
        """A shard has the same random numbers, whatever was computed before."""
        model = linear()
        gradients = make(model)
        numbers = {}
        for shard in (0, 1, 2, 1, 0):
            gradients.start_step()
            gradients.start_shard(3, shard)
            numbers.setdefault(shard, set()).add(torch.rand(1).item())
        self.assertEqual([len(values) for values in numbers.values()], [1, 1, 1])
        self.assertEqual(len(set.union(*numbers.values())), 3)

    def test_buffers(self):
        """Buffers are those that shard 0 leaves behind, whatever else was computed."""
        for order in ((0, 1, 2, 3), (3, 0, 1, 2), (2, 1, 3, 0)):
            model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
            alone = copy.deepcopy(model)
            gradients = make(model)
            inputs = [torch.full((2, 3), float(shard)) + torch.eye(3)[:2] for shard in range(4)]
            alone(inputs[0])
            gradients.start_step()
            for shard in order:
                gradients.start_shard(0, shard)
                model(inputs[shard]).sum().backward()
                gradients.add_shard(shard, True, False)
            self.assertEqual(model[1].num_batches_tracked.item(), 0)
            gradients.check([gradients.magnitudes()])
            gradients.sum(Alone())
            gradients.apply(0)
            for buffer, expected in zip(model.buffers(), alone.buffers()):
                self.assertTrue(torch.equal(buffer, expected), (order, buffer, expected))

    def test_assigned_buffers(self):
        """A module may replace a buffer by another tensor."""
        model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Identity())
        model[1].register_buffer("mean", torch.tensor([1.0]), persistent=False)
        gradients = make(model)
        gradients.start_step()
        for shard in (2, 0, 1, 3):
            gradients.start_shard(0, shard)
            self.assertEqual(model[1].mean.item(), 1.0)
            model[1].mean = model[1].mean + shard + 1
            gradients.add_shard(shard, True, False)
        gradients.check([gradients.magnitudes()])
        gradients.sum(Alone())
        gradients.apply(0)
        self.assertEqual(model[1].mean.item(), 2.0)
        other = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Identity())
        other[1].register_buffer("mean", torch.tensor([1.0]), persistent=False)
        make(other)._load_state(gradients._save_state())
        self.assertEqual(other[1].mean.item(), 2.0)

    def test_random_numbers_of_the_optimizer(self):
        """They do not depend on the shards that were computed before."""
        numbers = []
        for shards in ((0, 1, 2, 3), (3, 2, 1, 0)):
            model = linear()
            gradients = make(model)
            gradients._optimizer.register_step_pre_hook(lambda *_: numbers.append(torch.rand(1).item()))
            gradients.start_step()
            for shard in shards:
                gradients.start_shard(0, shard)
                torch.rand(shard + 1)
                model.weight.grad = torch.ones(1, 1)
                gradients.add_shard(shard, True, False)
            gradients.check([gradients.magnitudes()])
            gradients.sum(Alone())
            gradients.apply(0)
        self.assertEqual(numbers[0], numbers[1])

    def test_save_and_load(self):
        one, other = linear((1.0, 2.0)), linear((3.0, 4.0))
        gradients = []
        for model in (one, other):
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            gradients.append((Gradients(model, optimizer, {"scheduler": scheduler}, 4, None, 0), optimizer, scheduler))
        run_step(gradients[0][0], one, [[1.0, 2.0]] * 4)
        gradients[0][2].step()
        gradients[1][0]._load_state(gradients[0][0]._save_state())
        self.assertTrue(torch.equal(one.weight, other.weight))
        self.assertEqual(gradients[1][2].state_dict(), gradients[0][2].state_dict())
        for model, (mine, _, _) in zip((one, other), gradients):
            run_step(mine, model, [[0.3, 0.1]] * 4, 1)
        self.assertTrue(torch.equal(one.weight, other.weight))

    def test_models_that_are_refused(self):
        frozen = linear()
        frozen.weight.requires_grad_(False)
        with self.assertRaisesRegex(errors.BadArgument, "has no parameters that need gradients"):
            make(frozen)
        with self.assertRaisesRegex(errors.BadArgument, "no parameters of the model"):
            Gradients(linear(), torch.optim.SGD(linear().parameters(), lr=1.0), {}, 4, None, 0)
        with self.assertRaisesRegex(errors.BadArgument, "LBFGS"):
            model = linear()
            Gradients(model, torch.optim.LBFGS(model.parameters()), {}, 4, None, 0)
        with self.assertRaisesRegex(errors.BadArgument, r"state\['x'\] must have state_dict"):
            model = linear()
            Gradients(model, torch.optim.SGD(model.parameters(), lr=1.0), {"x": 1}, 4, None, 0)
        sparse = torch.nn.Embedding(3, 2, sparse=True)
        gradients = make(sparse)
        gradients.start_step()
        gradients.start_shard(0, 0)
        sparse(torch.tensor([1])).sum().backward()
        with self.assertRaisesRegex(errors.BadArgument, "gradient of parameter weight is sparse"):
            gradients.add_shard(0, True, False)
        self.assertNotEqual(make(linear()).kind, make(linear(), 5).kind)


if __name__ == "__main__":
    unittest.main(verbosity=2)
