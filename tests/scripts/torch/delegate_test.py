#!/usr/bin/python3
"""Tests of operations that the backend "gradlane" hands over to Gloo. All ranks run the same tests in the same order.
"""

import contextlib
import datetime
import functools
import gc
import io
import os
import unittest
import unittest.mock

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import gradlane
import gradlane.torch
from tests.scripts.torch.backend_case import OTHERS, RANK, REAL, SIZES, WORLD, Case, given

TYPES = REAL + OTHERS + (torch.bool,)
NEXT, BEFORE = (RANK + 1) % WORLD, (RANK - 1) % WORLD
OP = dist.ReduceOp


def reduced(function, numel, dtype=torch.float32, ranks=range(WORLD)):
    return functools.reduce(function, [given(rank, numel, dtype) for rank in ranks])


class Reductions(Case):
    def test_product(self):
        for dtype in (*REAL, torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16, torch.bool):
            for numel in SIZES:
                with self.subTest(dtype=dtype, numel=numel):
                    tensor = given(RANK, numel, dtype)
                    dist.all_reduce(tensor, op=OP.PRODUCT)
                    self.assertSame(tensor, reduced(torch.mul, numel, dtype))

    def test_bitwise(self):
        for op, function in ((OP.BAND, torch.bitwise_and), (OP.BOR, torch.bitwise_or), (OP.BXOR, torch.bitwise_xor)):
            for dtype in (torch.int32, torch.uint8, torch.int16, torch.bool):
                tensor = given(RANK, 1000, dtype)
                work = dist.all_reduce(tensor, op=op, async_op=True)
                self.assertSame(work.get_future().wait()[0], tensor)
                self.assertSame(tensor, reduced(function, 1000, dtype))
                self.assertTrue(work.wait() and work.is_completed() and work.is_success())

    def test_over_when_its_future_is(self):
        """A work is completed once its future and wait() have returned, although Gloo completes the future earlier."""
        early = 0
        for _ in range(300):
            work = dist.all_reduce(given(RANK, 10, torch.int32), op=OP.BOR, async_op=True)
            work.get_future().wait()
            work.wait()
            early += not work.is_completed()
        self.assertEqual(early, 0)

    def test_to_one_rank_and_scattered(self):
        for root in range(WORLD):
            tensor = given(RANK, 1000)
            dist.reduce(tensor, root, op=OP.PRODUCT)
            self.assertSame(tensor, reduced(torch.mul, 1000) if RANK == root else given(RANK, 1000))
        blocks = [given(RANK + block, 1000) for block in range(WORLD)]
        output = torch.zeros(1000)
        wanted = functools.reduce(torch.mul, [given(rank + RANK, 1000) for rank in range(WORLD)])
        dist.reduce_scatter(output, blocks, op=OP.PRODUCT)
        self.assertSame(output, wanted)
        output.zero_()
        dist._reduce_scatter_base(output, torch.cat(blocks), op=OP.PRODUCT)
        self.assertSame(output, wanted)
        self.assertSame(blocks[0], given(RANK, 1000))

    def test_coalesced(self):
        tensors = [given(RANK, numel) for numel in (5, 5000)]
        dist.all_reduce_coalesced(tensors, op=OP.PRODUCT)
        for tensor in tensors:
            self.assertSame(tensor, reduced(torch.mul, tensor.numel()))

    def test_not_contiguous(self):
        tensor = given(RANK, 6000).view(60, 100).t()
        dist.all_reduce(tensor, op=OP.PRODUCT)
        self.assertSame(tensor, reduced(torch.mul, 6000).view(60, 100).t())

    def test_sparse(self):
        tensor = torch.sparse_coo_tensor([[RANK, WORLD]], [1.0, 2.0], (WORLD + 1,))
        dist.all_reduce(tensor)
        self.assertEqual(tensor.to_dense().tolist(), [1.0] * WORLD + [2.0 * WORLD])

    def test_premultiplied(self):
        op = dist._make_nccl_premul_sum(0.5)
        if not hasattr(op, "factor"):
            self.skipTest("PyTorch 2.6 hides the factor")
        tensor = given(RANK, 5000)
        dist.all_reduce(tensor, op=op)
        self.assertSame(tensor, reduced(torch.add, 5000) / 2)
        inputs = torch.cat([given(RANK, 1000)] * WORLD)
        dist.reduce_scatter_tensor(tensor[:1000], inputs, op=op)
        self.assertSame(tensor[:1000], reduced(torch.add, 1000) / 2)
        self.assertSame(inputs[:1000], given(RANK, 1000))

    def test_inference_mode(self):
        with torch.inference_mode():
            tensor = torch.ones(5, dtype=torch.bfloat16)
        dist.all_reduce(tensor, op=OP.PRODUCT)
        self.assertEqual(tensor[0], 1)

    def test_what_nobody_has(self):
        """Neither gradlane nor Gloo has these operations. The error does not make the group fail."""
        with self.assertRaisesRegex(gradlane.BadArgument, "all_reduce by .*BXOR needs whole numbers, not .*float"):
            dist.all_reduce(torch.ones(4), op=OP.BXOR)
        if hasattr(torch, "uint16"):
            with self.assertRaisesRegex(gradlane.BadArgument, "all_reduce of torch.uint16 is not supported by Gloo"):
                dist.all_reduce(torch.ones(4, dtype=torch.uint16), op=OP.PRODUCT)
        dist.all_reduce(torch.ones(4), op=OP.PRODUCT)

    def test_complex(self):
        """Complex numbers are reduced as pairs of real numbers. This is right for sums, but not for products."""
        with self.assertRaisesRegex(gradlane.BadArgument, "reduce of torch.complex64 can only be a sum or an average"):
            dist.reduce(torch.ones(3, dtype=torch.complex64), 0, op=OP.PRODUCT)
        total = torch.full((3,), 1 + 2j, dtype=torch.complex128)
        dist.reduce(total, 0)
        if RANK == 0:
            self.assertEqual(total.tolist(), [WORLD * (1 + 2j)] * 3)


class Copies(Case):
    def test_types_that_differ(self):
        group = dist.group.WORLD
        rows = [torch.ones(2) for _ in range(WORLD)]
        with self.assertRaisesRegex(gradlane.BadArgument, "all_to_all of torch.float32 and torch.int32; all must"):
            group.alltoall([torch.ones(2, dtype=torch.int32) for _ in range(WORLD)], rows)

    def test_no_place_for_the_result(self):
        """If a result cannot be written to its output, wait() raises and is_success() is false."""
        outputs = [torch.zeros(1).expand(3) for _ in range(WORLD)] if RANK == 0 else None
        work = dist.gather(torch.ones(3), outputs, async_op=True)
        if RANK == 0:
            with self.assertRaises(RuntimeError):
                work.wait()
            self.assertFalse(work.is_success())
        else:
            work.wait()

    def test_gather_and_scatter(self):
        for dtype in TYPES:
            for root in range(WORLD):
                blocks = [torch.zeros(700, dtype=dtype) for _ in range(WORLD)] if RANK == root else None
                dist.gather(given(RANK, 700, dtype), blocks, dst=root)
                for rank, block in enumerate(blocks or ()):
                    self.assertSame(block, given(rank, 700, dtype))
                blocks = [given(root + rank, 700, dtype) for rank in range(WORLD)] if RANK == root else None
                output = torch.zeros(7, 100, dtype=dtype).t()
                dist.scatter(output, blocks and [block.view(7, 100).t() for block in blocks], src=root)
                self.assertSame(output, given(root + RANK, 700, dtype).view(7, 100).t())

    def test_all_to_all(self):
        for dtype in TYPES:
            inputs = [given(RANK + rank, 10 + RANK * rank, dtype) for rank in range(WORLD)]
            outputs = [torch.zeros_like(tensor) for tensor in inputs]
            dist.all_to_all(outputs, inputs)
            for rank, output in enumerate(outputs):
                self.assertSame(output, given(rank + RANK, 10 + RANK * rank, dtype))

    def test_all_to_all_single(self):
        for dtype in TYPES:
            tensor = torch.cat([given(RANK + rank, 12, dtype).view(4, 3) for rank in range(WORLD)])
            output = torch.zeros_like(tensor)
            dist.all_to_all_single(output, tensor)
            self.assertSame(output, torch.cat([given(rank + RANK, 12, dtype).view(4, 3) for rank in range(WORLD)]))
            mine, theirs = [RANK + rank for rank in range(WORLD)], [rank + RANK for rank in range(WORLD)]
            tensor = torch.cat([given(RANK, 3 * rows, dtype).view(-1, 3) for rows in mine])
            output = torch.zeros(sum(theirs), 3, dtype=dtype)
            dist.all_to_all_single(output, tensor, theirs, mine)
            wanted = [given(rank, 3 * rows, dtype).view(-1, 3) for rank, rows in enumerate(theirs)]
            self.assertSame(output, torch.cat(wanted))
        if WORLD > 1:
            with self.assertRaisesRegex(gradlane.BadArgument, "rows without sizes"):
                dist.all_to_all_single(torch.zeros(WORLD + 1), torch.zeros(WORLD + 1))

    def test_several(self):
        rows = [[torch.zeros(5), torch.zeros(300)] for _ in range(WORLD)]
        dist.all_gather_coalesced(rows, [given(RANK, 5), given(RANK, 300)])
        for rank, row in enumerate(rows):
            self.assertSame(row[0], given(rank, 5))
            self.assertSame(row[1], given(rank, 300))
        outputs, inputs = [torch.zeros(WORLD * 5), torch.zeros(WORLD * 300)], [given(RANK, 5), given(RANK, 300)]
        work = dist.group.WORLD.allgather_into_tensor_coalesced(outputs, inputs)
        self.assertSame(work.get_future().wait()[1], outputs[1])
        self.assertSame(outputs[1], torch.cat([given(rank, 300) for rank in range(WORLD)]))
        work = dist.group.WORLD.reduce_scatter_tensor_coalesced(inputs, [output.clone() for output in outputs])
        self.assertTrue(work.wait() and work.is_completed() and work.is_success())
        self.assertSame(inputs[1], given(RANK, 300) * WORLD)

    def test_objects(self):
        things = [{"rank": rank, "text": "x" * rank * 1000} for rank in range(WORLD)]
        gathered = [None] * WORLD if RANK == WORLD - 1 else None
        dist.gather_object(things[RANK], gathered, dst=WORLD - 1)
        self.assertEqual(gathered, things if RANK == WORLD - 1 else None)
        mine = [None]
        dist.scatter_object_list(mine, things if RANK == 0 else None, src=0)
        self.assertEqual(mine, [things[RANK]])


@unittest.skipIf(WORLD == 1, "nobody to talk to")
class TwoRanks(Case):
    def test_ring(self):
        for dtype in TYPES:
            tensor = torch.zeros(100, dtype=dtype)
            works = [dist.isend(given(RANK, 100, dtype), NEXT), dist.irecv(tensor, BEFORE)]
            for work in works:
                work.wait()
                work.wait()
            self.assertSame(tensor, given(BEFORE, 100, dtype))

    def test_not_contiguous(self):
        tensor = torch.zeros(20, 30).t()
        send = dist.isend(given(RANK, 600).view(20, 30).t(), NEXT, tag=5)
        dist.recv(tensor, BEFORE, tag=5)
        send.wait()
        self.assertSame(tensor, given(BEFORE, 600).view(20, 30).t())

    def test_beside_sums(self):
        """Sends start before the sums and are received after them. Neither engine waits for the other."""
        sends = [dist.isend(given(RANK, 100 + i), NEXT, tag=i) for i in range(3)]
        sums = [dist.all_reduce(given(RANK, 300001), async_op=True) for _ in range(3)]
        dist.all_reduce(given(RANK, 10))
        for i in reversed(range(3)):
            tensor = torch.zeros(100 + i)
            dist.recv(tensor, BEFORE, tag=i)
            self.assertSame(tensor, given(BEFORE, 100 + i))
            sums[i].wait()
            self.assertSame(sums[i].result()[0], reduced(torch.add, 300001))
        for send in sends:
            send.wait()

    def test_from_any_rank(self):
        if RANK > 0:
            dist.send(torch.full((3,), float(RANK)), 0)
        else:
            ranks = set()
            for _ in range(WORLD - 1):
                tensor = torch.zeros(3)
                ranks.add(dist.recv(tensor))
                self.assertIn(tensor[0].item(), ranks)
            self.assertEqual(ranks, set(range(1, WORLD)))
        dist.barrier()

    def test_batch(self):
        tensor = torch.zeros(50)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, given(RANK, 50), NEXT),
                                            dist.P2POp(dist.irecv, tensor, BEFORE)]):
            work.wait()
        self.assertSame(tensor, given(BEFORE, 50))


@unittest.skipIf(WORLD < 3, "there are only groups of all or of one")
class Groups(Case):
    @classmethod
    def setUpClass(cls):
        cls.ranks = [0, WORLD - 1]
        cls.group = dist.new_group(cls.ranks)
        cls.member = RANK in cls.ranks

    def setUp(self):
        if not self.member:
            self.skipTest("no member")

    def test_sums(self):
        for dtype in TYPES:
            tensor = given(RANK, 1000, dtype)
            dist.all_reduce(tensor, group=self.group)
            self.assertSame(tensor, reduced(torch.add, 1000, torch.int64, self.ranks).to(dtype))

    def test_average(self):
        """Averages work, although Gloo lacks them for some operations."""
        for dtype in REAL:
            wanted = (reduced(torch.add, 1000, torch.float32, self.ranks) / 2).to(dtype)
            tensor = given(RANK, 1000, dtype)
            work = dist.all_reduce(tensor, op=OP.AVG, group=self.group, async_op=True)
            while not work.is_completed():
                pass
            self.assertSame(tensor, wanted)
            output = torch.zeros(500, dtype=dtype)
            dist.reduce_scatter(output, list(given(RANK, 1000, dtype).split(500)), op=OP.AVG, group=self.group)
            self.assertSame(output, wanted.split(500)[self.ranks.index(RANK)])
            tensor = given(RANK, 1000, dtype)
            dist.reduce(tensor, 0, op=OP.AVG, group=self.group)
            self.assertSame(tensor, wanted if RANK == 0 else given(RANK, 1000, dtype))
        count = torch.tensor([-7, 8]) * (RANK + 1)
        dist.all_reduce(count, op=OP.AVG, group=self.group)
        total = sum(rank + 1 for rank in self.ranks)
        self.assertEqual(count.tolist(), [int(-7 * total / len(self.ranks)), 8 * total // len(self.ranks)])
        with self.assertRaisesRegex(gradlane.BadArgument, "torch.bool has no average"):
            dist.all_reduce(given(RANK, 4, torch.bool), op=OP.AVG, group=self.group)

    def test_copies(self):
        for dtype in TYPES:
            tensor = given(RANK, 100, dtype)
            outputs = [torch.zeros(100, dtype=dtype) for _ in self.ranks]
            dist.all_gather(outputs, tensor, group=self.group)
            whole = torch.zeros(2, 100, dtype=dtype)
            dist._all_gather_base(whole, tensor, group=self.group)
            self.assertSame(whole, torch.stack([given(rank, 100, dtype) for rank in self.ranks]))
            self.assertSame(whole, torch.stack(outputs))
            dist.broadcast(tensor, WORLD - 1, group=self.group)
            self.assertSame(tensor, given(WORLD - 1, 100, dtype))

    def test_sends(self):
        tensor = given(RANK, 10)
        if RANK == 0:
            dist.send(tensor, WORLD - 1, group=self.group)
        else:
            dist.recv(tensor, 0, group=self.group)
        self.assertSame(tensor, given(0, 10))

    def test_objects_and_barrier(self):
        everybody = [None, None]
        dist.all_gather_object(everybody, RANK, group=self.group)
        self.assertEqual(everybody, self.ranks)
        dist.barrier(group=self.group)

    def test_parallel_module(self):
        module = torch.nn.Linear(4, 1, bias=False)
        ddp = DistributedDataParallel(module, process_group=self.group)
        ddp(torch.full((1, 4), float(RANK))).backward()
        self.assertEqual(module.weight.grad.tolist(), [[(WORLD - 1) / 2] * 4])


class Whole(Case):
    def test_join(self):
        """Join works for ranks with unequal numbers of batches."""
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(5, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        seen = 0
        with Join([model]):
            for _ in range(2 + RANK):
                optimizer.zero_grad()
                model(torch.ones(2, 5)).sum().backward()
                optimizer.step()
                seen += 1
        self.assertEqual(seen, 2 + RANK)
        self.assertSameEverywhere(model.module.weight)

    def test_dropped(self):
        for _ in range(50):
            dist.all_reduce(given(RANK, 1000), op=OP.PRODUCT, async_op=True)
        dist.barrier()

    def test_barrier_waits_for_both(self):
        tensors = [given(RANK, 100000) for _ in range(10)]
        works = [dist.all_reduce(tensor, op=OP.PRODUCT, async_op=True) for tensor in tensors]
        dist.barrier()
        self.assertTrue(all(work.is_completed() for work in works))
        for tensor in tensors:
            self.assertSame(tensor, reduced(torch.mul, 100000))
        dist.barrier(async_op=True).wait()

    def test_explain(self):
        group = dist.new_group([RANK]) if WORLD == 1 else dist.new_group(list(range(WORLD)))
        gradlane.torch.call_statistics.clear()
        dist.all_reduce(torch.ones(1000), group=group)
        dist.all_reduce(torch.ones(1000), group=group)
        dist.all_reduce(torch.ones(500), op=OP.PRODUCT, group=group)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            rows = gradlane.torch.explain()
        here = {"operation": "all_reduce", "where": "gradlane", "why": "", "calls": 2, "bytes": 8000}
        there = {"operation": "all_reduce", "where": "Gloo", "why": "PRODUCT", "calls": 1, "bytes": 2000}
        self.assertEqual(rows, [here, there])
        self.assertRegex(shown.getvalue(), r"operation +goes to +calls +bytes +why\n.*\n.*Gloo +1 +2000 +PRODUCT\n")

    def test_without(self):
        with unittest.mock.patch.dict(os.environ, GRADLANE_DELEGATE="0"):
            group = dist.new_group(list(range(WORLD)))
        with self.assertRaisesRegex(NotImplementedError, "has no gather; make a group of another backend"):
            dist.gather(torch.ones(3), [torch.ones(3)] * WORLD if RANK == 0 else None, group=group)
        with self.assertRaisesRegex(NotImplementedError, "all_reduce with PRODUCT; the backend gradlane has only SUM"):
            dist.all_reduce(torch.ones(3), op=OP.PRODUCT, group=group)

    @unittest.skipIf(WORLD == 1, "nobody to wait for")
    def test_a_failure(self):
        """The operation in flight fails. Then both engines refuse operations of this group, and other groups go on."""
        group = dist.new_group(list(range(WORLD)), timeout=datetime.timedelta(seconds=1))
        if RANK == 0:
            with self.assertRaisesRegex(gradlane.OperationFailed, "recv from rank 1 of the group by Gloo: "):
                dist.recv(torch.zeros(3), 1, group=group)
            for call in (lambda: dist.all_reduce(torch.ones(3), group=group), lambda: dist.send(torch.ones(3), 1, group)):
                with self.assertRaisesRegex(gradlane.OperationFailed, "recv from rank 1 .* earlier operation failed"):
                    call()
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        self.assertEqual(tensor[0], WORLD)

    @unittest.skipIf(WORLD == 1, "nobody to wait for")
    def test_a_failure_is_told_again(self):
        group = dist.new_group(list(range(WORLD)), timeout=datetime.timedelta(seconds=3))
        if RANK == 0:
            work = dist.all_reduce(torch.ones(3), op=OP.PRODUCT, group=group, async_op=True)
            future = work.get_future()
            for _ in range(2):
                with self.assertRaisesRegex(gradlane.OperationFailed, "all_reduce by Gloo: "):
                    work.wait()
                with self.assertRaisesRegex(RuntimeError, "OperationFailed: gradlane: all_reduce by Gloo: "):
                    future.wait()
            self.assertFalse(work.is_success())
            with contextlib.suppress(TypeError):  # PyTorch 2.6 does not pass exceptions of C++ to Python
                self.assertIsInstance(work.exception(), gradlane.OperationFailed)
        dist.barrier()

    @unittest.skipIf(WORLD < 3, "there are only groups of all or of one")
    def test_a_work_outlives_its_group(self):
        ranks = [0, WORLD - 1]
        group = dist.new_group(ranks)
        if RANK in ranks:
            blocks = [given(RANK + block, 1000) for block in range(2)]
            output = torch.zeros(1000)
            work = dist.reduce_scatter(output, blocks, op=OP.AVG, group=group, async_op=True)
            dist.destroy_process_group(group)
            del group
            gc.collect()
            work.wait()
            index = ranks.index(RANK)
            self.assertSame(output, sum(given(rank + index, 1000) for rank in ranks) / 2)
        dist.barrier()
