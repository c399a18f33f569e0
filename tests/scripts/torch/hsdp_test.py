#!/usr/bin/python3
"""Tests of gradlane.torch.hsdp(), and of hooks over some ranks. ranks.py runs them on four ranks, on backend gradlane
or gloo."""

import datetime
import os
import unittest
import unittest.mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradlane
import gradlane.torch
from tests.scripts.torch.fsdp_test import FSDP2, Given, gradient, network, run, total, trained

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
REPLICAS = 2
NUMEL = 5000


class Again(unittest.TestCase):
    """Runs before the other tests, because it makes the job's group again."""

    def test_another_group_of_that_name(self):
        """After destroy_process_group(), PyTorch gives new groups the names of earlier ones. Such a group must still
        get its own ring."""
        store = dist.distributed_c10d._get_default_store()
        names = set()
        for number, ranks in enumerate(([0, 1, 2], [0, 1], [1, 2], [1, 2])):
            group = dist.new_group(ranks)
            if RANK in ranks:
                names.add(group.group_name)
                engine = gradlane.torch.State("raw", process_group=group)._engine
                self.assertEqual((engine.rank, engine.world), (ranks.index(RANK), len(ranks)))
                tensor = torch.full((NUMEL,), float(RANK))
                engine.all_reduce(tensor).wait()
                self.assertEqual(tensor.unique().tolist(), [sum(ranks)])
            dist.barrier()
            dist.destroy_process_group()
            dist.init_process_group(os.environ.get("HSDP", "gradlane"), store=dist.PrefixStore(f"{number}", store),
                                    rank=RANK, world_size=WORLD)
        self.assertLessEqual(len(names), 1)

    def test_other_numbers_of_ranks(self):
        """After destroy_process_group(), the same processes get other ranks. The rank in a group must follow, because a
        reduce-scatter depends on it."""
        store = dist.distributed_c10d._get_default_store()
        for rank in (RANK, WORLD - 1 - RANK):
            dist.destroy_process_group()
            dist.init_process_group("gloo", store=dist.PrefixStore(f"as {rank - RANK == 0}", store), rank=rank,
                                    world_size=WORLD)
            group = dist.new_group([0, 3])
            if rank in (0, 3):
                engine = gradlane.torch.State("raw", process_group=group)._engine
                self.assertEqual(engine.rank, rank // 3)
            dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group(os.environ.get("HSDP", "gradlane"), store=dist.PrefixStore("last", store), rank=RANK,
                                world_size=WORLD)


@FSDP2
class Hsdp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.mesh = init_device_mesh("cpu", (REPLICAS, WORLD // REPLICAS), mesh_dim_names=("replicate", "shard"))
        cls.replicate, cls.shard = cls.mesh["replicate"], cls.mesh["shard"]

    def given(self, **options):
        model = Given(NUMEL)
        fully_shard(model, mesh=self.shard)
        return model, gradlane.torch.hsdp(model, self.replicate, **options)

    def test_exact_as_by_pytorch(self):
        expected = trained(network(mesh=self.mesh))
        model = network(mesh=self.shard)
        sharded = gradlane.torch.hsdp(model, self.replicate, "raw")
        self.assertIn("2 units, codec='raw'", repr(sharded))
        for one, other in zip(trained(model), expected):
            self.assertTrue(torch.equal(one, other))

    def test_same_on_all_ranks(self):
        for codec in ("fixed:8", "fixed:adaptive"):
            model = network(mesh=self.shard)
            gradlane.torch.hsdp(model, self.replicate, codec, True)
            for parameter in trained(model):
                theirs = [torch.empty_like(parameter) for _ in range(WORLD)]
                dist.all_gather(theirs, parameter)
                for one in theirs:
                    self.assertTrue(torch.equal(one, parameter))

    def test_nothing_is_lost(self):
        """Applied values plus residuals are the computed gradients, to the bit. This includes gradient accumulation."""
        for accumulate in (1, 3):
            model, sharded = self.given(codec="fixed:5", error_feedback=True)
            applied = torch.zeros(NUMEL, dtype=torch.float64)
            computed = torch.zeros(NUMEL, dtype=torch.float64)
            for number in range(6):
                mine = gradient(NUMEL, number)
                computed += mine
                model.set_requires_gradient_sync((number + 1) % accumulate == 0)
                model(mine).backward()
                if (number + 1) % accumulate == 0:
                    applied += model.weight.grad.full_tensor().double() * WORLD
                    model.zero_grad()
            # This rank has the residual of its shard, of a mean over the shards. The residual of the sum is WORLD /
            # REPLICAS times as much.
            residual = sharded.state_dict()["units"]["(root)"]["residual"].view(-1)
            engine = next(iter(sharded._units.values()))._engine
            owed = total(residual, self.replicate.get_group()) * engine.residual_scale * (WORLD // REPLICAS)
            shards = [torch.empty_like(owed) for _ in range(WORLD // REPLICAS)]
            dist.all_gather(shards, owed, group=self.shard.get_group())
            owed, computed = torch.cat(shards)[:NUMEL], total(computed)
            self.assertGreater(owed.abs().max().item(), 0)
            self.assertTrue(torch.equal(applied + owed, computed))

    def test_checkpoint(self):
        model, sharded = self.given(codec="fixed:5", error_feedback=True)
        run(model, range(3))
        saved = sharded.state_dict()
        expected = run(model, range(3, 6))
        model, sharded = self.given(codec="fixed:5", error_feedback=True)
        sharded.load_state_dict(saved)
        for one, other in zip(run(model, range(3, 6)), expected):
            self.assertTrue(torch.equal(one, other))

    def test_one_ring_for_all_models(self):
        engines = {next(iter(self.given()[1]._units.values()))._engine for _ in range(3)}
        self.assertEqual([(engine.world, engine.rank) for engine in engines], [(REPLICAS, RANK // (WORLD // REPLICAS))])

    def test_a_group_of_all_ranks(self):
        """A group of all ranks is the job itself, even without GRADLANE_SOCKET."""
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("GRADLANE_SOCKET", None)
            engine = gradlane.torch.State("raw", process_group=dist.new_group(list(range(WORLD))))._engine
        self.assertEqual((engine.rank, engine.world, engine.is_subgroup), (RANK, WORLD, False))

    def test_ddp_of_some_ranks(self):
        """The hook averages over the replicas alone, as it does together with tensor parallelism."""
        group = self.replicate.get_group()
        module = Given(NUMEL)
        model = torch.nn.parallel.DistributedDataParallel(module, process_group=group)
        state = gradlane.torch.State("fixed:10", process_group=group)
        model.register_comm_hook(state, gradlane.torch.hook)
        for again in (False, True):
            mine = gradient(NUMEL, 7)
            model(mine).backward()
            mean = total(mine, group) / REPLICAS
            self.assertLessEqual((module.weight.grad - mean).abs().max().item(), 2.0**-10)
            theirs = [torch.empty_like(module.weight.grad) for _ in range(REPLICAS)]
            dist.all_gather(theirs, module.weight.grad, group=group)
            self.assertTrue(all(torch.equal(one, theirs[0]) for one in theirs))
            model.zero_grad()
            if not again:
                state.reset()  # makes another ring

    def test_a_rank_asks_for_something_else(self):
        model, _ = self.given(codec="fixed:5" if RANK < WORLD // 2 else "fixed:6")
        with self.assertRaisesRegex(Exception, "fixed:5|fixed:6|codec"):
            model(gradient(NUMEL, 0)).backward()
        model, _ = self.given(codec="fixed:5")  # uses another ring, if that one was lost
        model(gradient(NUMEL, 0)).backward()

    def test_a_rank_stays_away(self):
        group = [dist.new_group(ranks, timeout=datetime.timedelta(seconds=2)) for ranks in ([0, 2], [1, 3])][RANK % 2]
        if RANK == 2:
            for call in (lambda: gradlane.torch.hsdp(network(mesh=self.shard), group),
                         lambda: gradlane.torch.State(process_group=group)):
                with self.assertRaisesRegex(gradlane.OperationFailed, "rank 1 has waited 2 s.* for rank 0.*ranks in the job are 0, 2"):
                    call()
        dist.barrier()

    def test_refused(self):
        model = network(mesh=self.mesh)
        with self.assertRaisesRegex(gradlane.BadArgument, "replicated by PyTorch already"):
            gradlane.torch.hsdp(model, self.replicate)
        model = network(mesh=self.shard)
        with self.assertRaisesRegex(gradlane.BadArgument, "whole tensors"):
            gradlane.torch.hsdp(model, self.replicate, "topk:1%")
        known = set(gradlane.torch.subgroups._rings)
        with self.assertRaisesRegex(gradlane.BadArgument, "sharded over rank ., which is also in `replicate`"):
            gradlane.torch.hsdp(model, self.shard)
        crossed = [dist.new_group(ranks) for ranks in ([0, 3], [1, 2])][RANK in (1, 2)]
        with self.assertRaisesRegex(gradlane.BadArgument, "this rank has part . of 2 of 6240 elements, but rank .*part ."):
            gradlane.torch.hsdp(model, crossed)
        with self.assertRaisesRegex(gradlane.BadArgument, "sharded over ranks ., ., but this group has ., .: .*hsdp"):
            gradlane.torch.fsdp(model, process_group=crossed)
        self.assertEqual(set(gradlane.torch.subgroups._rings), known)  # refused calls have started no daemons
        with self.assertRaisesRegex(gradlane.BadArgument, "process_group is str"):
            gradlane.torch.hsdp(model, "replicate")
        with self.assertRaisesRegex(gradlane.BadArgument, "sharded over ranks ., ., but this group has 0, 1, 2, 3: .*hsdp"):
            gradlane.torch.fsdp(model)
        with unittest.mock.patch.dict(os.environ, GRADLANE_START="0"):
            error, words = (gradlane.BadArgument, "without this rank") if RANK == 0 else (
                gradlane.NoDaemon, "no daemon for rank 0: .*GRADLANE_START=0 .*ranks in the job are 1, 2, 3;")
            with self.assertRaisesRegex(error, words):
                gradlane.torch.State(process_group=dist.new_group([1, 2, 3]))
