#!/usr/bin/python3
"""Tests of gradlane.torch.check_replicas(). ranks.py runs them, on backend gradlane or gloo."""

import unittest

import numpy
import torch
import torch.distributed as dist

import gradlane
import gradlane.torch
from gradlane.torch import replicas
from tests.scripts.torch.ddp import BACKEND, RANK, WORLD

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.BatchNorm1d(20), torch.nn.Linear(20, 5))
        self.others = torch.nn.ParameterList([torch.randn(3, 4).to(dtype) for dtype in DTYPES])
        self.scalar = torch.nn.Parameter(torch.tensor(1.0))
        self.none = torch.nn.Parameter(torch.zeros(0))
        self.turned = torch.nn.Parameter(torch.randn(6, 4).t())

    def forward(self, inputs):
        return self.body(inputs)


def flip(tensor, bit, element=0):
    """Flips one bit of an element."""
    numbers = tensor.detach().view(torch.int32).view(-1)
    numbers[element] ^= 1 << bit


def raised(call):
    """Returns the error's text on this rank, and checks that all ranks have the same one."""
    try:
        call()
        text = "nothing"
    except gradlane.OperationFailed as error:
        text = str(error)
    texts = [None] * WORLD
    dist.all_gather_object(texts, text)
    assert texts == [text] * WORLD, texts
    return text


class Replicas(unittest.TestCase):
    def setUp(self):
        self.model = Model()

    def test_the_same(self):
        self.assertEqual(raised(lambda: gradlane.torch.check_replicas(self.model, buffers=True)), "nothing")

    def test_one_bit_of_one_rank(self):
        wrong = WORLD - 1
        if RANK == wrong:
            flip(self.model.body[2].weight, 0, 77)
        text = raised(lambda: gradlane.torch.check_replicas(self.model))
        self.assertRegex(text, "^gradlane: 1 of 15 parameters differ between ranks: body.2.weight: ")
        if WORLD == 2:  # it is unknown which of two is wrong
            self.assertRegex(text, r": rank 0 has float32 \[5, 20\] \w{8}, rank 1 has float32 \[5, 20\] \w{8}\. Load")
        else:
            self.assertRegex(text, rf": rank {wrong} has float32 \[5, 20\] \w{{8}}, the other {WORLD - 1} ranks float32 ")
        if RANK == wrong:
            flip(self.model.body[2].weight, 0, 77)
        self.assertEqual(raised(lambda: gradlane.torch.check_replicas(self.model)), "nothing")

    def test_each_type(self):
        for number, parameter in enumerate(self.model.others):
            if RANK == 0:
                parameter.detach().view(-1)[5] *= 2
            text = raised(lambda: gradlane.torch.check_replicas(self.model))
            self.assertRegex(text, rf": others\.{number}: ")
            if RANK == 0:
                parameter.detach().view(-1)[5] /= 2
        for name in ("scalar", "turned"):
            if RANK == 0:
                getattr(self.model, name).detach().mul_(2)
            self.assertRegex(raised(lambda: gradlane.torch.check_replicas(self.model)), name)

    def test_all_of_a_rank(self):
        if RANK == 0:
            for parameter in self.model.parameters():
                parameter.detach().add_(1)
        text = raised(lambda: gradlane.torch.check_replicas(self.model))
        self.assertRegex(text, "^gradlane: 14 of 15 .*; and 9 more")  # one parameter has no elements

    def test_another_model(self):
        model = torch.nn.Linear(3, 4 if RANK == 0 else 5, bias=RANK != 0)
        text = raised(lambda: gradlane.torch.check_replicas(model))
        self.assertRegex(text, r"weight: .*rank 0 has float32 \[4, 3\].*bias: .*rank 0 has no such parameter")

    def test_buffers(self):
        if RANK == 0:
            self.model.body[1].running_mean += 1
        self.assertEqual(raised(lambda: gradlane.torch.check_replicas(self.model)), "nothing")
        text = raised(lambda: gradlane.torch.check_replicas(self.model, buffers=True))
        self.assertRegex(text, "1 of 18 .*: body.1.running_mean: ")

    def test_every(self):
        ddp = torch.nn.parallel.DistributedDataParallel(self.model.body)
        checks = gradlane.torch.check_replicas(ddp, every=3)
        calls = []
        inputs = torch.randn(4, 30)

        def count(*arguments):
            calls.append(arguments[-1])
            return original(*arguments)

        original, replicas._check = replicas._check, count
        try:
            for _ in range(7):
                ddp(inputs).sum().backward()
            if RANK == 0:  # an evaluation on one rank
                ddp.module.eval()
                with torch.no_grad():
                    ddp.module(inputs)
                ddp.module.train()
            self.assertEqual(calls, [" before step 0", " before step 3", " before step 6"])
            if RANK == 0:
                flip(self.model.body[0].bias, 20)
            for _ in range(2):
                ddp(inputs).sum().backward()
            self.assertRegex(raised(lambda: ddp(inputs)),
                             "parameters differ between ranks before step 9: module.0.bias: ")
            checks.remove()
            self.assertEqual(raised(lambda: ddp(inputs)), "nothing")
        finally:
            replicas._check = original

    @unittest.skipIf(WORLD < 3, "two of the ranks")
    def test_of_a_group(self):
        """The error names ranks by their numbers in the job."""
        group = dist.new_group([1, 2], backend="gloo")
        flip(self.model.scalar, RANK)
        if RANK in (1, 2):
            with self.assertRaisesRegex(gradlane.OperationFailed, "1 of 15 .* scalar: rank 1 has .*, rank 2 has "):
                gradlane.torch.check_replicas(self.model, process_group=group)

    def test_refused(self):
        with self.assertRaisesRegex(gradlane.BadArgument, "every"):
            gradlane.torch.check_replicas(self.model, every=-1)


@unittest.skipUnless(BACKEND == "gradlane" and WORLD > 1, "results of gradlane")
class Results(unittest.TestCase):
    def setUp(self):
        gradlane.torch.hash_results()
        self.addCleanup(gradlane.torch.hash_results, False)

    def fold(self, before, result):
        """Returns the count and the hash that follow `before` after this result."""
        hash_of = gradlane.torch.Engine.existing()._context.hash_of
        return before[0] + 1, hash_of(numpy.array([before[1], hash_of(result.numpy())], numpy.uint64))

    def test_hash(self):
        before = gradlane.torch.results_hash()
        data, blocks = torch.full((3000,), RANK + 1.5), [torch.zeros(777) for _ in range(WORLD)]
        large = torch.full((1 << 20,), RANK + 0.5)
        for call, result in ((lambda: dist.all_reduce(data), lambda: data), (lambda: dist.all_reduce(large), lambda: large),
                             (lambda: dist.broadcast(data, WORLD - 1), lambda: data),
                             (lambda: dist.all_gather(blocks, data[RANK:RANK + 777]), lambda: torch.cat(blocks))):
            call()
            after = gradlane.torch.results_hash()
            self.assertEqual(after, self.fold(before, result()))
            before = after
        dist.reduce_scatter(torch.zeros(10), [torch.ones(10)] * WORLD)
        dist.barrier()
        self.assertEqual(gradlane.torch.results_hash(), before)
        gradlane.torch.hash_results(False)
        dist.all_reduce(data)
        self.assertEqual(gradlane.torch.results_hash(), before)

    def test_one_result_of_one_rank(self):
        """A difference is noticed by the hash of results, before it reaches the model."""
        torch.manual_seed(3)
        model, wrong = torch.nn.Linear(3, 4), WORLD - 1
        blocks = [torch.zeros(100) for _ in range(WORLD)]
        dist.all_gather(blocks, torch.full((100,), float(RANK)))
        self.assertEqual(raised(lambda: gradlane.torch.check_replicas(model)), "nothing")
        if RANK == wrong:  # the blocks overwrite each other, so that the result is wrong on this rank
            blocks = blocks[:1] * WORLD
        dist.all_gather(blocks, torch.full((100,), float(RANK)))
        text = raised(lambda: gradlane.torch.check_replicas(model))
        self.assertRegex(text, r"^gradlane: the hashes of the first \d+ results differ between ranks: .*All parameters are")
        if WORLD > 2:
            self.assertRegex(text, rf"ranks: rank {wrong} has \w{{16}}, the other {WORLD - 1} ranks \w{{16}}\. Possible")
        if RANK == wrong:
            flip(model.weight, 0)
        text = raised(lambda: gradlane.torch.check_replicas(model))
        self.assertRegex(text, r"(?s)^gradlane: the hashes of .*operation\ngradlane: 1 of 2 parameters differ .*: weight: ")
        gradlane.torch.hash_results(False)
        self.assertRegex(raised(lambda: gradlane.torch.check_replicas(model)), "^gradlane: 1 of 2 parameters differ ")


class Words(unittest.TestCase):
    """Tests of error texts for more ranks than this job has."""

    def test_who(self):
        for values, text in (("aaaa", ""), ("aaba", "rank 2 has b, the other 3 ranks a"),
                             ("abab", "ranks 0, 2 have a, ranks 1, 3 have b"),
                             ("abcaa", "rank 1 has b, rank 2 has c, the other 3 ranks a"),
                             ("abb", "rank 0 has a, the other 2 ranks b"),
                             ("abc", "rank 0 has a, rank 1 has b, rank 2 has c")):
            self.assertEqual(replicas._who(values, range(len(values))), text)
        self.assertEqual(replicas._who("ab", (4, 7)), "rank 4 has a, rank 7 has b")

    def test_of_many(self):
        """The text stays short."""
        self.assertEqual(replicas._who("a" * 6 + "b" * 7, range(13)),
                         "ranks 0, 1, 2, 3, 4 and 1 more have a, the other 7 ranks b")
        text = replicas._who([str(rank % 200) for rank in range(256)], range(256))
        self.assertEqual(text, "ranks 0, 200 have 0, ranks 1, 201 have 1, ranks 2, 202 have 2, ranks 3, 203 have 3, "
                               "ranks 4, 204 have 4, 195 more values on 246 ranks")

    def test_where_numbers_are(self):
        """The texts are exchanged on another device than the CPU if any parameter or buffer is there. NCCL takes no CPU
        tensors."""
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, device="meta"), torch.nn.Linear(2, 2))
        self.assertEqual(replicas._device(model, False).type, "meta")
        self.assertEqual(replicas._device(model[0], False).type, "cpu")
