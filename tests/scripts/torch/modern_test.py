#!/usr/bin/python3
"""Tests of calls that PyTorch makes to a c10d::Backend, and of what is built on them: meshes, functional collectives,
FSDP2, DTensor. The backend of ranks.py, which runs these tests, may also be "cpu:gradlane".
"""

import datetime
import gc
import os
import time
import unittest

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel

import gradlane
import gradlane.torch
from gradlane.torch import summary
from tests.scripts.torch.ddp import BACKEND, RANK, WORLD
from tests.scripts.torch.fsdp_test import FSDP2

CPU = torch.device("cpu")
TOTAL = WORLD * (WORLD + 1) / 2  # sum of RANK + 1 over all ranks
OLD_WRAPPER = "DETAIL" in os.environ.get("TORCH_DISTRIBUTED_DEBUG", "") and torch.__version__.startswith("2.6")
unless_wrapped_by_2_6 = unittest.skipIf(OLD_WRAPPER, "the backend that PyTorch 2.6 puts around lacks an operation")


def mine(*shape):
    return torch.full(shape, float(RANK + 1))


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))


def trained(model, optimizer, steps=3):
    """Trains the model. Each rank has batches of its own."""
    for step in range(steps):
        torch.manual_seed(100 * step + RANK)
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def alone(steps=3):
    """Returns the parameters that training on all ranks' batches gives in one process."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        for rank in range(WORLD):
            torch.manual_seed(100 * step + rank)
            (model(torch.randn(4, 8)).square().mean() / WORLD).backward()
        optimizer.step()
        optimizer.zero_grad()
    return list(model.parameters())


class Case(unittest.TestCase):
    def assertAll(self, tensor, value):  # noqa: N802
        self.assertEqual(tensor.tolist(), torch.full_like(tensor, value).tolist())

    def assertTrained(self, parameters):  # noqa: N802
        for one, other in zip(parameters, alone()):
            torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-5, atol=1e-6)


class Groups(Case):
    def test_is_a_backend(self):
        """PyTorch keeps its own ProcessGroup, with a backend for each device."""
        group = dist.group.WORLD
        self.assertIs(type(group), dist.ProcessGroup)
        if "DETAIL" not in os.environ.get("TORCH_DISTRIBUTED_DEBUG", ""):
            backend = group._get_backend(CPU)
            self.assertEqual(backend.name(), "gradlane")
            self.assertEqual(backend.options._timeout, datetime.timedelta(minutes=30))
            backend.set_timeout(datetime.timedelta(minutes=5))
            self.assertEqual(backend.options._timeout, datetime.timedelta(minutes=5))
            self.assertEqual(backend.supports_splitting, True)
            before = backend._get_sequence_number_for_group()
            dist.all_reduce(mine(3))
            self.assertEqual(backend._get_sequence_number_for_group(), before + 1)
        self.assertIn("gradlane", dist.get_backend())

    def test_new_group(self):
        group = dist.new_group(list(range(WORLD)))
        tensor = mine(5)
        dist.all_reduce(tensor, group=group)
        self.assertAll(tensor, TOTAL)
        dist.destroy_process_group(group)

    def test_mesh(self):
        mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("all",))
        tensor = mine(5)
        dist.all_reduce(tensor, group=mesh.get_group("all"))
        self.assertAll(tensor, TOTAL)

    def test_memory_of_the_backend(self):
        backend = dist.group.WORLD._get_backend(CPU)
        if not getattr(backend, "supports_tensor_alloc", lambda _: False)(CPU):
            self.skipTest("it has none to offer")
        tensor = backend.allocate_tensor(1000, dtype=torch.float32, device=CPU)
        self.assertIsNotNone(gradlane.torch.Engine.existing()._memory.address(tensor))
        tensor.fill_(RANK + 1)
        dist.all_reduce(tensor)
        self.assertAll(tensor, TOTAL)


class Operations(Case):
    def test_single_tensors(self):
        for numel in (3, 5000, 300000):
            output = torch.empty(WORLD * numel)
            dist.all_gather_into_tensor(output, mine(numel))
            for rank, part in enumerate(output.split(numel)):
                self.assertAll(part[:3], rank + 1)
            part = torch.empty(numel)
            dist.reduce_scatter_tensor(part, mine(WORLD * numel))
            self.assertAll(part, TOTAL)
            dist.reduce_scatter_tensor(part, mine(WORLD * numel), op=dist.ReduceOp.AVG)
            self.assertAll(part, TOTAL / WORLD)

    @unless_wrapped_by_2_6
    def test_coalescing_manager(self):
        outputs = [torch.empty(2 * WORLD), torch.empty(5 * WORLD)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for output in outputs:
                dist.all_gather_into_tensor(output, mine(output.numel() // WORLD))
        manager.wait()
        for output in outputs:
            self.assertEqual(output.view(WORLD, -1)[:, 0].tolist(), [rank + 1 for rank in range(WORLD)])
        parts = [torch.empty(3), torch.empty(4)]
        with dist._coalescing_manager():
            for part in parts:
                dist.reduce_scatter_tensor(part, mine(part.numel() * WORLD))
        tensors = [mine(3), mine(4)]
        with dist._coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)
        for tensor in parts + tensors:
            self.assertAll(tensor, TOTAL)

    @unless_wrapped_by_2_6
    def test_functional(self):
        group = dist.group.WORLD
        gradlane.torch.call_statistics.clear()
        self.assertAll(functional.all_reduce(mine(4), "sum", group), TOTAL)
        gathered = functional.all_gather_tensor(mine(2, 2), 0, group)
        self.assertEqual(gathered[:, 0].tolist(), [rank + 1 for rank in range(WORLD) for _ in range(2)])
        self.assertAll(functional.reduce_scatter_tensor(mine(WORLD, 3), "sum", 0, group), TOTAL)
        several = functional.all_reduce_coalesced([mine(2), mine(3)], "sum", group)
        for tensor in several:
            self.assertAll(tensor, TOTAL)
        counted = {row["operation"]: (row["where"], row["calls"]) for row in gradlane.torch.explain(show=False)}
        self.assertEqual(counted, {"all_reduce": ("gradlane", 1), "all_gather": ("gradlane", 1),
                                   "reduce_scatter": ("gradlane", 1), "all_reduce_coalesced": ("gradlane", 1)})

    def test_futures(self):
        work = dist.all_reduce(mine(4), async_op=True)
        future = work.get_future().then(lambda it: it.value()[0] * 2)
        self.assertAll(future.wait(), 2 * TOTAL)
        self.assertTrue(work.is_completed())
        self.assertTrue(work.wait())

    def test_dropped(self):
        """Nobody waits for the works of these operations, and nothing else holds their tensors."""
        for numel in (5, 2000, 400000):
            for _ in range(20):
                dist.all_reduce(mine(numel), async_op=True)
                dist.all_reduce(mine(numel), async_op=True).get_future()
            gc.collect()
        tensor = mine(7)
        dist.all_reduce(tensor)
        self.assertAll(tensor, TOTAL)

    def test_many_under_way(self):
        tensors = [mine(numel) for numel in (5, 400000, 1000, 300000, 20) * 4]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work, tensor in zip(works, tensors):
            self.assertTrue(work.wait())
            self.assertAll(tensor[:9], TOTAL)

    def test_words(self):
        with self.assertRaisesRegex(gradlane.BadArgument, "torch.bool has no average"):
            dist.all_reduce(torch.ones(4, dtype=torch.bool), op=dist.ReduceOp.AVG)
        with self.assertRaisesRegex(gradlane.BadArgument, "reduce_scatter_tensor with 3 elements per rank"):
            dist.reduce_scatter_tensor(torch.empty(3), torch.empty(3 * WORLD + 1))
        tensor = mine(3)
        dist.all_reduce(tensor)  # the refused calls have started nothing
        self.assertAll(tensor, TOTAL)

    @unittest.skipIf(WORLD == 1, "all go by Python")
    def test_by_either_way(self):
        """Some ranks run the sum in C++, within the call, while others run it in Python."""
        engine = gradlane.torch.Engine.existing()
        before = engine._context.figures().operations
        for numel in (1024, 5000, 1 << 18):
            for op, value in ((dist.ReduceOp.SUM, TOTAL), (dist.ReduceOp.AVG, TOTAL / WORLD)):
                for codec in (None, "raw", "fixed:10"):
                    with gradlane.torch.use_codec(codec):
                        for python in (0, 1, WORLD):  # rank that uses Python; WORLD if none
                            if python == RANK:
                                engine.tell(None, None, False)
                            tensor = mine(numel)
                            dist.all_reduce(tensor, op=op)
                            self.assertAll(tensor, value)
                            gradlane.torch.default_options.DefaultOptions.tell()
        self.assertEqual(engine._context.figures().operations, before + 3 * 2 * 3 * 3)

    def test_late(self):
        """A rank waits for another one for longer than a call waits before it leaves the operation to the engine's
        thread."""
        for numel in (5, 5000, 1 << 18):
            for late in range(WORLD):
                if RANK == late:
                    time.sleep(0.03)
                tensor = mine(numel)
                work = dist.all_reduce(tensor, async_op=True)
                self.assertTrue(work.wait())
                self.assertAll(tensor, TOTAL)

    def test_waits_hide_nothing(self):
        """If a rank is late, the others leave the operation to the engine's thread. The summary must count the time of
        wait() as waited time, in C++ or Python, and must record the start of the operation."""
        if WORLD == 1 or "DETAIL" in os.environ.get("TORCH_DISTRIBUTED_DEBUG", ""):
            self.skipTest("nobody is waited for in gradlane: with DETAIL, PyTorch has ranks meet before")
        overlap = gradlane.torch.Engine.existing()._tasks.overlap
        for numel in (5, 1 << 20):
            for late in range(WORLD):
                dist.barrier()
                waited, at = summary.Overlap.waited, overlap._at
                if RANK == late:
                    time.sleep(0.3)
                dist.all_reduce(mine(numel))
                if RANK != late and BACKEND == "gradlane":
                    self.assertTrue(summary.Overlap.waited > waited and overlap._at > at, numel)

    def test_codecs(self):
        for numel in (1000, 5000, 400000):
            for codec in ("fixed:10", "raw", "fixed:adaptive"):
                for op, value in ((dist.ReduceOp.SUM, TOTAL), (dist.ReduceOp.AVG, TOTAL / WORLD)):
                    with gradlane.torch.use_codec(codec), self.subTest(numel=numel, codec=codec, op=op):
                        tensor = mine(numel)
                        dist.all_reduce(tensor, op=op)
                        torch.testing.assert_close(tensor, torch.full((numel,), value), rtol=0.1, atol=0)

    def test_lost(self):
        """A group that has failed refuses even sums that would bypass Python. Other groups go on."""
        if "DETAIL" in os.environ.get("TORCH_DISTRIBUTED_DEBUG", ""):
            self.skipTest("PyTorch puts another backend around it")
        group = dist.new_group(list(range(WORLD)))
        dist.all_reduce(mine(5), group=group)
        error = gradlane.OperationFailed(gradlane.errors.Code.FAILED, "gradlane: all is lost")
        group._get_backend(CPU).policy.state.give_up(error)
        with self.assertRaisesRegex(gradlane.OperationFailed, "all is lost .an earlier operation failed"):
            dist.all_reduce(mine(5), group=group)
        tensor = mine(5)
        dist.all_reduce(tensor)
        self.assertAll(tensor, TOTAL)

    def test_shapes(self):
        """Tensors may be not contiguous, empty, without dimensions, with gradients, or of inference mode."""
        tensor = mine(6, 4).t()
        dist.all_reduce(tensor)
        self.assertAll(tensor, TOTAL)
        dist.all_reduce(mine(0))
        tensor = torch.tensor(RANK + 1.0)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.item(), TOTAL)
        with torch.inference_mode():
            tensor = mine(40)
            dist.all_reduce(tensor)
        self.assertAll(tensor, TOTAL)
        tensor = torch.nn.Parameter(mine(5000))
        with torch.no_grad():
            dist.all_reduce(tensor)
        self.assertAll(tensor, TOTAL)
        tensor = mine(400)[7:300]
        dist.all_reduce(tensor)
        self.assertAll(tensor, TOTAL)


class Trainings(Case):
    def test_ddp(self):
        model = DistributedDataParallel(network(), bucket_cap_mb=0.0001)
        trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertTrained(model.parameters())

    def test_replicate(self):
        model = replicate(network())
        trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertTrained(model.parameters())

    def test_zero(self):
        model = DistributedDataParallel(network())
        trained(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1))
        self.assertTrained(model.parameters())

    @FSDP2
    def test_fully_shard(self):
        mesh = init_device_mesh("cpu", (WORLD,))
        model = network()
        for layer in model:
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertTrained([parameter.full_tensor() for parameter in model.parameters()])

    @unless_wrapped_by_2_6
    def test_dtensor(self):
        mesh = init_device_mesh("cpu", (WORLD,))
        whole = DTensor.from_local(mine(3), mesh, [Partial()]).redistribute(mesh, [Replicate()])
        self.assertAll(whole.to_local(), TOTAL)
        sharded = DTensor.from_local(mine(2, 3), mesh, [Shard(0)])
        self.assertAll(sharded.full_tensor().sum(0), 2 * TOTAL)
        self.assertEqual(sharded.sum().full_tensor().item(), 6 * TOTAL)

    def test_objects(self):
        every = [None] * WORLD
        dist.all_gather_object(every, {"rank": RANK})
        self.assertEqual(every, [{"rank": rank} for rank in range(WORLD)])
        objects = ["first" if RANK == 0 else None]
        dist.broadcast_object_list(objects)
        self.assertEqual(objects, ["first"])
