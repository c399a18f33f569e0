#!/usr/bin/python3
"""Tests of DistributedDataParallel on the backend "gradlane", and of calls that it refuses. ranks.py runs them."""

import os
import signal
import threading
import unittest
import unittest.mock

os.environ.setdefault("GLOG_minloglevel", "2")  # no warnings about options that a test sets on purpose

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import gradlane
import gradlane.torch

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
SMALL_BUCKETS = {"bucket_cap_mb": 0.02}


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(30, 200), torch.nn.Tanh(), torch.nn.Linear(200, 100), torch.nn.Tanh(), torch.nn.Linear(100, 3)
    )


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 30, generator=generator), torch.randn(8, 3, generator=generator)


def train(ddp, steps=5, rank=RANK):
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        data, target = batch(step, rank)
        torch.nn.functional.mse_loss(ddp(data), target).backward()
        optimizer.step()


def train_alone(steps=5):
    """Trains in one process, with the batches of all ranks. Returns the model."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(WORLD):
            data, target = batch(step, rank)
            (torch.nn.functional.mse_loss(model(data), target) / WORLD).backward()
        optimizer.step()
    return model


class Case(unittest.TestCase):
    def assertClose(self, model, other, **tolerance):  # noqa: N802
        for parameter, wanted in zip(model.parameters(), other.parameters()):
            torch.testing.assert_close(parameter, wanted, **tolerance)

    def assertSameEverywhere(self, model):  # noqa: N802
        mine = [tensor.detach().numpy().tobytes() for tensor in model.state_dict().values()]
        everybody = [None] * WORLD
        dist.all_gather_object(everybody, mine)
        self.assertEqual(everybody.count(mine), WORLD)


class Training(Case):
    def test_equals_one_process(self):
        alone = train_alone()
        for options in ({}, SMALL_BUCKETS, {"gradient_as_bucket_view": True}, {"static_graph": True},
                        {"find_unused_parameters": True}):
            with self.subTest(**options), gradlane.torch.use_codec("raw"):
                ddp = DistributedDataParallel(network(), **options)
                train(ddp)
            self.assertClose(ddp.module, alone, rtol=1e-5, atol=1e-6)
            self.assertSameEverywhere(ddp.module)

    def test_gradients_within_the_codecs_bound(self):
        models = [network(), network()]
        gradients = []
        for model, codec in zip(models, ("raw", "fixed:10")):
            with gradlane.torch.use_codec(codec):
                ddp = DistributedDataParallel(model, **SMALL_BUCKETS)
                data, target = batch(0, RANK)
                torch.nn.functional.mse_loss(ddp(data), target).backward()
            gradients.append(torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()]))
        error = (gradients[0] - gradients[1]).abs().max().item()
        self.assertLessEqual(error, WORLD * 2.0**-10 + 1e-7)  # DDP divides before the sum
        if WORLD > 1:
            self.assertGreater(error, 1e-6, "the codec was not used")

    def test_uneven_inputs(self):
        """Ranks that have run out of data join the all-reduces of the others. They end with the parameters of the last
        rank."""
        with gradlane.torch.use_codec("raw"):
            ddp = DistributedDataParallel(network(), **SMALL_BUCKETS)
            with ddp.join():
                train(ddp, steps=2 + RANK)
        self.assertSameEverywhere(ddp.module)

    def test_parameters_arrive_exactly(self):
        with gradlane.torch.use_codec("fixed:1"):
            ddp = DistributedDataParallel(network(seed=RANK))
        self.assertClose(ddp.module, network(seed=0), rtol=0, atol=0)

    def test_buffers(self):
        model = torch.nn.Sequential(torch.nn.Linear(30, 3), torch.nn.BatchNorm1d(3))
        ddp = DistributedDataParallel(model)
        train(ddp)
        with torch.no_grad():
            ddp(batch(9, RANK)[0])  # broadcasts rank 0's buffers before it uses them
        dist.barrier()
        every = [torch.zeros(3) for _ in range(WORLD)]
        dist.all_gather(every, list(ddp.parameters())[0].detach()[:, 0].contiguous())
        for other in every:
            self.assertTrue(torch.equal(other, every[0]))
        self.assertEqual(model[1].num_batches_tracked.item(), 6)

    def test_unused_parameters(self):
        model = torch.nn.ModuleList([torch.nn.Linear(30, 3) for _ in range(3)])
        model.forward = lambda x, which: model[which](x)
        ddp = DistributedDataParallel(model, find_unused_parameters=True)
        for step in range(6):
            ddp.zero_grad(set_to_none=True)
            ddp(batch(step, RANK)[0], (step + RANK) % 2).sum().backward()
            self.assertTrue(all(parameter.grad is None for parameter in model[2].parameters()))

    def test_no_sync(self):
        with gradlane.torch.use_codec("raw"):
            ddp = DistributedDataParallel(network())
            with ddp.no_sync():
                ddp(batch(0, RANK)[0]).sum().backward()
            ddp(batch(1, RANK)[0]).sum().backward()
        alone = network()
        for rank in range(WORLD):
            for step in range(2):
                (alone(batch(step, rank)[0]).sum() / WORLD).backward()
        for parameter, wanted in zip(ddp.module.parameters(), alone.parameters()):
            torch.testing.assert_close(parameter.grad, wanted.grad, rtol=1e-4, atol=1e-4)


class Hooks(Case):
    """Tests of PyTorch's own hooks."""

    def run_hook(self, state, hook, tolerance):
        with gradlane.torch.use_codec("raw"):
            ddp = DistributedDataParallel(network(), **SMALL_BUCKETS)
            ddp.register_comm_hook(state, hook)
            train(ddp)
        self.assertSameEverywhere(ddp.module)
        if tolerance is not None:
            self.assertClose(ddp.module, train_alone(), rtol=tolerance, atol=tolerance)

    def test_all_reduce(self):
        self.run_hook(None, default_hooks.allreduce_hook, 1e-5)

    def test_fp16(self):
        self.run_hook(None, default_hooks.fp16_compress_hook, 1e-2)

    def test_bf16(self):
        try:
            self.run_hook(None, default_hooks.bf16_compress_hook, 3e-2)
        except TypeError as error:
            self.skipTest(f"PyTorch itself refuses: {error}")

    def test_power_sgd(self):
        for rank in (1, 2):
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2,
                                                min_compression_rate=1)
            self.run_hook(state, powerSGD_hook.powerSGD_hook, None)


def without_delegate():
    """Returns a context. Groups that are made in it delegate nothing to Gloo."""
    return unittest.mock.patch.dict(os.environ, GRADLANE_DELEGATE="0")


class Refusals(unittest.TestCase):
    def test_operations_it_does_not_have(self):
        with without_delegate():
            group = dist.new_group(list(range(WORLD)))
        tensor, many = torch.ones(4), [torch.ones(4) for _ in range(WORLD)]
        calls = {
            "all_reduce with PRODUCT": lambda: dist.all_reduce(tensor, op=dist.ReduceOp.PRODUCT, group=group),
            "reduce with BAND": lambda: dist.reduce(tensor, 0, op=dist.ReduceOp.BAND, group=group),
            "reduce_scatter with BXOR": lambda: dist.reduce_scatter(tensor, many, op=dist.ReduceOp.BXOR, group=group),
            "no all_to_all;": lambda: dist.all_to_all(many, many, group=group),
            "no all_to_all_single": lambda: dist.all_to_all_single(torch.ones(WORLD), torch.ones(WORLD), group=group),
            "no gather": lambda: dist.gather(tensor, many if RANK == 0 else None, group=group),
            "no scatter": lambda: dist.scatter(tensor, many if RANK == 0 else None, group=group),
        }
        if WORLD > 1:
            calls["no send"] = lambda: dist.send(tensor, (RANK + 1) % WORLD, group=group)
            calls["no recv"] = lambda: dist.recv(tensor, (RANK + 1) % WORLD, group=group)
        for text, call in calls.items():
            with self.assertRaisesRegex(NotImplementedError, f"gradlane.*{text}.*make a group of another backend"):
                call()

    def test_bad_tensors(self):
        if WORLD == 1:
            return
        # PyTorch itself refuses sparse tensors for a backend that is written in C++.
        with self.assertRaisesRegex((gradlane.BadArgument, NotImplementedError), "dense|SparseCPU"):
            dist.broadcast(torch.ones(4).to_sparse(), 0)
        with self.assertRaisesRegex(gradlane.BadArgument, "all must be of one size and type"):
            dist.all_gather([torch.zeros(5) for _ in range(WORLD)], torch.zeros(4))
        with self.assertRaisesRegex(gradlane.BadArgument, "needs a contiguous tensor of"):
            dist._all_gather_base(torch.zeros(WORLD * 4 + 1), torch.zeros(4))
        engine = gradlane.torch.Engine.existing()
        with self.assertRaisesRegex(gradlane.BadArgument, "on meta; allowed: CPU and CUDA"):
            engine.all_reduce(torch.ones(4, device="meta"))
        for call in (gradlane.torch.use_codec, gradlane.torch.State,
                     lambda codec: engine.all_reduce(torch.zeros(5000), codec=codec)):
            with self.assertRaisesRegex(gradlane.BadArgument, "codec 8 is int"):
                call(8)
            for codec in ("nonsense", "fixd:8", "fixed:99", "fixed:", "fixed:adaptive:99", "inceptionn:8,trunc", ""):
                # The call that sets the codec raises the error. The error lists all codecs, or shows the usage of the
                # codec that the name begins with.
                said = {"inceptionn:8,trunc": "usage: inceptionn:B", "": "empty name; there are raw"}.get(
                    codec, "fixed:adaptive or fixed:adaptive:BITS")
                with self.assertRaisesRegex(gradlane.BadArgument, f"codec '{codec}'[:;] .*{said}"):
                    call(codec)
        tensor = torch.ones(5000)  # the refused calls have done nothing
        dist.all_reduce(tensor)
        self.assertEqual(tensor[0], WORLD)

    def test_groups(self):
        tensor = torch.ones(5000)
        dist.all_reduce(tensor, group=dist.new_group(list(range(WORLD))))
        self.assertEqual(tensor[0], WORLD)
        for rank in range(WORLD):
            alone = dist.new_group([rank])
            if RANK == rank:
                dist.all_reduce(tensor, group=alone)
        self.assertEqual(tensor[0], WORLD)

    @unittest.skipIf(WORLD < 3, "there are only groups of all or of one")
    def test_other_groups(self):
        """Groups of some of the ranks are refused at once on all ranks, members or not."""
        with without_delegate():
            self.refuse_other_groups()

    def refuse_other_groups(self):
        wanted = f"a group of 2 of {WORLD} ranks; .* backend='gloo'"
        with self.assertRaisesRegex(gradlane.BadArgument, wanted):
            dist.new_group([0, 1])
        with self.assertRaisesRegex(gradlane.BadArgument, wanted):
            dist.new_group(ranks=(WORLD - 1, 0), backend="gradlane")
        # A program may have a reference to new_group() from before gradlane.torch wrapped it. It can make such a group,
        # but calls on the group are refused, and no rank waits.
        group = dist.new_group.__wrapped__([0, 1])
        if RANK < 2:
            for call in (lambda: dist.all_reduce(torch.ones(4), group=group), lambda: dist.barrier(group=group)):
                with self.assertRaisesRegex(gradlane.BadArgument, wanted):
                    call()
        dist.barrier()

    def test_another_backend_beside_it(self):
        group = dist.new_group(backend="gloo")
        tensor = torch.tensor([float(RANK)])
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
        self.assertEqual(tensor.item(), WORLD - 1)

    @unittest.skipIf(WORLD == 1, "without a daemon")
    def test_fork(self):
        reading, writing = os.pipe()
        held, free = threading.Event(), threading.Event()

        def hold():  # a thread of the parent holds the lock during the fork
            with gradlane.torch.Engine.existing()._tasks.lock:
                held.set()
                free.wait()

        threading.Thread(target=hold).start()
        held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                dist.all_reduce(torch.ones(4))
                text = "no error"
            except BaseException as error:  # noqa: BLE001
                text = str(error)
            os.write(writing, text.encode())
            os._exit(0)
        free.set()
        os.waitpid(child, 0)
        os.close(writing)
        self.assertIn("belongs to the parent", os.read(reading, 1000).decode())
        dist.barrier()
