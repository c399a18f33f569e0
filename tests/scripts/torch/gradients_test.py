#!/usr/bin/python3
"""Tests of the sums of elastic trainings: rounding, exponents, buffers, random numbers, state. They need no daemons."""

import copy
import math
import socket
import unittest
import unittest.mock

import torch

from gradlane import errors
from gradlane.torch.elastic.gradients import Gradients, _hash
from gradlane.torch.elastic.steps import RingFailed
from gradlane.torch.elastic.transfer import Receiver, Sender


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


class Pair:
    """The ring of one of two members. The first one's rows are gathered before the second one's."""

    hosts = ["127.0.0.1", "127.0.0.1"]

    def __init__(self, index, rows):
        self.index, self.rows, self.failed = index, rows, False

    def gather(self, own):
        self.rows.append([int(it) for it in own])
        return [*self.rows, None][:2]

    def check(self):
        if self.failed:
            raise RingFailed("failed")


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


class Transfers(unittest.TestCase):
    """One member takes over the state of another one, which goes on."""

    def setUp(self):
        self.begun = []
        self.models = linear((1.0, 2.0)), linear((3.0, 4.0))
        self.gradients = []
        for model in self.models:
            gradients = Gradients(model, torch.optim.Adam(model.parameters(), lr=0.1), {}, 4, None, 0)
            gradients.start_step()
            self.addCleanup(gradients.end_transfers)
            self.gradients.append(gradients)

    def start(self):
        self.train(0, [5.0, 0.1])
        rows = []
        self.rings = Pair(0, rows), Pair(1, rows)
        for ring, gradients in zip(self.rings, self.gradients):
            gradients.start_transfers(ring, {1: 0})

    def train(self, step, gradient):
        run_step(self.gradients[0], self.models[0], [gradient] * 4, step)

    def follow(self, step, gradient):
        """Completes a step on the source, with the other member following."""
        source, taker = self.gradients
        while True:  # attempts
            source.start_step()
            for shard in range(4):
                source.start_shard(step, shard)
                self.models[0].weight.grad = torch.tensor([gradient])
                source.add_shard(shard, True, False)
            magnitudes = source.magnitudes(), taker.magnitudes()
            fits = source.check(magnitudes)
            self.assertEqual(taker.check(magnitudes), fits)
            taker.start_step()
            if fits:
                break
        source.sum(Alone())
        taker._result.copy_(source._result)
        source.apply(step)
        taker.follow(step)

    def test_goes_on(self):
        self.start()
        self.follow(1, [3.0, 0.2])
        self.follow(2, [1e-9, 1e9])  # with other exponents
        self.assertFalse(torch.equal(self.models[0].weight, self.models[1].weight))
        self.assertTrue(self.gradients[1].catch_up(self.rings[1], True, self.begun.append))
        self.assertTrue(torch.equal(self.models[0].weight, self.models[1].weight))
        self.assertEqual(self.begun, [1, 2])
        for step in 3, None:
            self.assertEqual(*(it.state_hash(step) for it in self.gradients))
        for gradients, model in zip(self.gradients, self.models):
            run_step(gradients, model, [[0.5, 0.25]] * 4, 3)
        self.assertTrue(torch.equal(self.models[0].weight, self.models[1].weight))

    def test_many_results(self):
        """The member waits for the state as soon as the results need more memory."""
        self.start()
        receiver = self.gradients[1]._receiver
        size = 4 * 2 * 3  # three results
        self.gradients[1]._receiver = unittest.mock.Mock(size=size)
        self.gradients[1]._receiver.done.is_set.return_value = False
        for step in range(1, 4):
            self.follow(step, [1.0, 1.0])
            self.assertFalse(self.gradients[1].catch_up(self.rings[1], False, self.begun.append))
            self.gradients[1]._receiver.done.wait.assert_not_called()
        self.follow(4, [1.0, 1.0])
        self.gradients[1]._receiver = receiver
        receiver.size = size
        receiver.done.wait()
        wait = unittest.mock.Mock(side_effect=receiver.done.wait)
        receiver.done = unittest.mock.Mock(wait=wait, is_set=lambda: True)
        self.assertTrue(self.gradients[1].catch_up(self.rings[1], False, self.begun.append))
        wait.assert_called()
        self.assertTrue(torch.equal(self.models[0].weight, self.models[1].weight))

    def test_ends(self):
        self.start()
        for gradients, name in zip(self.gradients, ("_sender", "_receiver")):
            end, stand_in = getattr(gradients, name), unittest.mock.Mock()  # threads of `end` close it, too
            setattr(gradients, name, stand_in)
            gradients.end_transfers()
            stand_in.close.assert_called_once_with()
            end.close()

    def test_kept_results(self):
        """Kept results have their own random numbers, buffers and parameters without gradients."""

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.other = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))
                self.register_buffer("count", torch.zeros(1))

        sides = []
        for _ in range(2):
            model = Model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.25)
            gradients = Gradients(model, optimizer, {}, 1, None, 0)
            self.addCleanup(gradients.end_transfers)

            def add_noise(*_, model=model):
                with torch.no_grad():
                    model.one += torch.rand(2)

            optimizer.register_step_post_hook(add_noise)
            gradients.start_step()
            sides.append((model, gradients))
        (model, source), (copy_, taker) = sides
        rows = []
        self.rings = Pair(0, rows), Pair(1, rows)
        for ring, (_, gradients) in zip(self.rings, sides):
            gradients.start_transfers(ring, {1: 0})
        for step in range(6):
            while True:  # attempts
                source.start_step()
                source.start_shard(step, 0)
                model.one.grad = torch.full((2,), 1.0 + step)
                if step % 2 == 0:
                    model.other.grad = torch.full((3,), 1.0)
                if step % 3 == 0:
                    model.count += 1
                source.add_shard(0, True, False)
                magnitudes = source.magnitudes(), taker.magnitudes()
                fits = source.check(magnitudes)
                self.assertEqual(taker.check(magnitudes), fits)
                if fits:
                    break
            source.sum(Alone())
            taker._result.copy_(source._result)
            source.apply(step)
            taker.follow(step)
        self.assertTrue(taker.catch_up(self.rings[1], True, self.begun.append))
        self.assertEqual(model.count, 2)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, copy_.state_dict()[name]), name)

    def test_source_ends(self):
        """A member whose state does not arrive has its own scales again."""
        before = self.gradients[1]._exponents
        self.start()
        sender = self.gradients[0]._sender
        self.gradients[1]._receiver = Receiver("127.0.0.1", sender.port, sender.token ^ 1, memoryview(bytearray(9)))
        self.follow(1, [1e-9, 1e9])
        with self.assertRaisesRegex(RingFailed, "has not arrived"):
            self.gradients[1].catch_up(self.rings[1], True, self.begun.append)
        self.gradients[1].end_transfers()
        self.assertEqual(self.gradients[1]._exponents, before)

    def test_ring_ends(self):
        self.start()
        self.gradients[1]._receiver.done = unittest.mock.Mock(**{"wait.return_value": False})
        self.rings[1].failed = True
        with self.assertRaisesRegex(RingFailed, "failed"):
            self.gradients[1].catch_up(self.rings[1], True, self.begun.append)

    def test_hash_of_a_trial(self):
        """Members with other weights or moments have another hash, even if gradients are equal."""
        hashes = set()
        for change in range(4):
            self.setUp()
            gradients = self.gradients[0]
            self.train(0, [1.0, 1.0])
            with torch.no_grad():
                if change == 1:
                    self.models[0].weight[0, 1] += 1e-6
                elif change == 2:
                    gradients._optimizer.state[self.models[0].weight]["exp_avg"][0, 0] += 1e-6
            gradients.start_step()
            gradients.start_shard(1, 0)
            self.models[0].weight.grad = torch.ones(1, 2)
            hashes.add(gradients.add_shard(0, True, True))
        self.assertEqual(len(hashes), 3)  # the last change is none


class Sockets(unittest.TestCase):
    def send(self, size, takers=1):
        self.data = torch.randint(256, (size,), dtype=torch.uint8)
        self.sender = Sender("127.0.0.1", memoryview(self.data.numpy()), takers)
        self.addCleanup(self.sender.close)

    def receive(self, token=None):
        """Returns a receiver and its buffer after the transfer has ended."""
        target = torch.zeros(self.data.numel(), dtype=torch.uint8)
        receiver = Receiver("127.0.0.1", self.sender.port, self.sender.token if token is None else token,
                            memoryview(target.numpy()))
        self.addCleanup(receiver.close)
        self.assertTrue(receiver.done.wait(60))
        return receiver, target

    def test_bytes(self):
        for size in 1, 100_003, 30_000_000:
            self.send(size, 2)
            for _ in range(2):
                receiver, target = self.receive()
                receiver.check()
                self.assertTrue(torch.equal(target, self.data))

    def test_slow_reader(self):
        """The time limit of a call of sendall() is for all its bytes, so no call has many."""
        self.send(5_000_000)
        token = bytearray(self.sender.token.to_bytes(8, "little"))
        sent = []

        def receive(target):
            target[:1] = token[:1]
            del token[:1]
            return 1

        connection = unittest.mock.MagicMock(recv_into=receive, sendall=lambda data: sent.append(bytes(data)))
        self.sender._serve(connection)
        self.assertEqual(b"".join(sent), self.data.numpy().tobytes())
        self.assertLessEqual(max(map(len, sent)), 1 << 20)

    def test_many_strangers(self):
        self.send(1000)
        strangers = [socket.create_connection(("127.0.0.1", self.sender.port)) for _ in range(40)]
        for it in strangers:
            self.addCleanup(it.close)
        self.assertEqual(strangers[-1].recv(1), b"")  # refused
        for it in strangers:
            it.shutdown(socket.SHUT_RDWR)
        receiver, target = self.receive()
        while receiver._error is not None:  # until the sender has noticed that they are gone
            receiver, target = self.receive()
        self.assertTrue(torch.equal(target, self.data))

    def test_strangers(self):
        self.send(1000)
        for token in 0, self.sender.token ^ 1:
            receiver, target = self.receive(token)
            with self.assertRaises(RingFailed):
                receiver.check()
            self.assertEqual(target.sum(), 0)
        receiver, target = self.receive()
        receiver.check()
        self.assertTrue(torch.equal(target, self.data))

    def test_closed(self):
        self.send(1000)
        self.sender.close()
        receiver, _ = self.receive()
        with self.assertRaisesRegex(RingFailed, "has not arrived"):
            receiver.check()

    def test_no_such_address(self):
        with self.assertRaisesRegex(RingFailed, "cannot listen at 192.0.2.1"):
            Sender("192.0.2.1", memoryview(b"1"), 1)


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
        state = gradients._save_state()
        make(other)._load_state(state, _hash(state))
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
        state = gradients[0][0]._save_state()
        with self.assertRaisesRegex(errors.OperationFailed, "another hash"):
            gradients[1][0]._load_state(state, 0)
        gradients[1][0]._load_state(state, _hash(state))
        self.assertTrue(torch.equal(one.weight, other.weight))
        self.assertEqual(gradients[1][2].state_dict(), gradients[0][2].state_dict())
        for model, (mine, _, _) in zip((one, other), gradients):
            run_step(mine, model, [[0.3, 0.1]] * 4, 1)
        self.assertTrue(torch.equal(one.weight, other.weight))

    def test_types_of_the_optimizer_are_kept(self):
        models = [linear((1.0, 2.0)).bfloat16() for _ in range(2)]
        optimizers = [torch.optim.Adam(it.parameters(), lr=0.1) for it in models]
        one, other = (Gradients(model, optimizer, {}, 1, None, 0) for model, optimizer in zip(models, optimizers))
        moments = {"step": torch.tensor(3.0), "exp_avg": torch.full((1, 2), 0.1), "exp_avg_sq": torch.full((1, 2), 0.2)}
        optimizers[0].state[models[0].weight].update(moments)
        state = one._save_state()
        other._load_state(state, _hash(state))
        for name, value in optimizers[1].state[models[1].weight].items():
            self.assertEqual(value.dtype, torch.float32)
            self.assertTrue(torch.equal(value, moments[name]))

    def test_optimizer_runs_by_itself(self):
        model = linear((1.0, 2.0))
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        gradients = Gradients(model, optimizer, {}, 4, None, 0)
        with self.assertRaisesRegex(errors.BadArgument, "do not call optimizer.step"):
            optimizer.step()
        run_step(gradients, model, [[1.0, 1.0]] * 4)
        with self.assertRaisesRegex(errors.BadArgument, "do not call optimizer.step"):
            optimizer.step()
        gradients.close()
        run_step(Gradients(model, optimizer, {}, 4, None, 0), model, [[1.0, 1.0]] * 4)

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
