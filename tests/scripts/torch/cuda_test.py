#!/usr/bin/python3
"""Tests of CUDA tensors, on one GPU that all ranks share. ranks.py runs them. Without a GPU, a stand-in whose copies
finish at once takes its place, and tests of streams are skipped."""

import statistics
import time
import unittest
import unittest.mock
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradlane
import gradlane.torch
from gradlane.torch import Engine, gpu, gpu_codec, gpu_sum
from tests.scripts.torch.ddp import RANK, WORLD, draw, same_everywhere
from tests.scripts.torch.far import DEVICE, HERE, far, gpu_codec_on
from tests.scripts.torch.feedback_test import Picky
from tests.scripts.torch.fsdp_test import FSDP2

SIZES = (0, 1, 1000, 5000, 5000001)  # the largest one is exchanged in several pieces
CODECS = ("raw", "bf16", "fixed:10", "signsgd,ternary", "topk:1%", "dgc:1%", "fixed:adaptive:5")
SHAPES = ((300, 400), (1000,), (17,), (100, 100))
CYCLES = 200_000_000  # GPU cycles, about a tenth of a second


def given(numel, dtype=torch.float32, rank=RANK):
    return (torch.randn(numel, generator=torch.Generator().manual_seed(rank)) * 100).to(dtype)


class Far(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")

    def assertSame(self, tensor, expected):  # noqa: N802
        self.assertEqual(tensor.device.type, DEVICE)
        self.assertTrue(torch.equal(tensor.cpu(), expected), f"{tensor} is not {expected}")

    def test_sums_as_on_the_cpu(self):
        """Sums have the same bits as on the CPU, for all types, codecs and strides."""
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64,
                      torch.uint8, torch.int16, torch.complex64):
            for numel in SIZES:
                near = given(numel, dtype)
                tensor = near.to(DEVICE, copy=True)
                dist.all_reduce(near)
                with far():
                    dist.all_reduce(tensor)
                self.assertSame(tensor, near)
        engine = Engine.existing()
        for codec in CODECS[:-1]:
            near = given(300000)
            tensor = near.to(DEVICE, copy=True)
            strided = given(600000).to(DEVICE).view(-1, 2)[:, 0]
            strided.copy_(tensor)
            engine.all_reduce(near, codec=codec, average=True).wait()
            with far():
                for it in (tensor, strided):
                    engine.all_reduce(it, codec=codec, average=True).wait()
                    self.assertSame(it, near)

    def test_sums_by_the_gpu_codec(self):
        """Sums that the GPU encodes and decodes have the bits of those of the CPU, even if only rank 0's GPU does."""
        engine = Engine.existing()
        for codec, average in (("fixed:10", False), ("fixed:10", True), ("fixed:3", True), ("fixed:24", False)):
            for numel in (1024, 1 << 18, 600_001):
                near = given(numel)
                near[RANK] = 1e30  # beyond the codec
                near[10 + RANK] = float("nan")
                sums = []
                for ranks in (), range(WORLD), (0,):
                    tensor = near.to(DEVICE, copy=True)
                    with far(), unittest.mock.patch.object(gpu, "PART", 1 << 20), gpu_codec_on(1 if RANK in ranks else 1 << 40), \
                            unittest.mock.patch.object(gpu_sum, "GpuSum", wraps=gpu_sum.GpuSum) as made:
                        engine.all_reduce(tensor, codec=codec, average=average).wait()
                        self.assertEqual(made.called, RANK in ranks and engine.world > 1)
                    sums.append(tensor.cpu().view(torch.int32))
                self.assertTrue(torch.equal(sums[0], sums[1]), (codec, numel))
                self.assertTrue(torch.equal(sums[0], sums[2]), (codec, numel))

    def test_gpu_codec_in_flight(self):
        """Several sums are in flight, and others that the GPU does not encode are among them."""
        engine, sizes = Engine.existing(), (300_000, 2000, 700_000, 1024, 300_001)
        expected = [given(numel, rank=RANK) for numel in sizes]
        for tensor in expected:
            engine.all_reduce(tensor, codec="fixed:9").wait()
        tensors = [given(numel, rank=RANK).to(DEVICE) for numel in sizes]
        with far(), gpu_codec_on(2000):
            futures = [engine.all_reduce(tensor, codec="fixed:9") for tensor in tensors]
            for future in futures:
                future.wait()
        for tensor, near in zip(tensors, expected):
            self.assertSame(tensor, near)

    def test_gpu_codec_that_cannot_be_used(self):
        """The daemons encode for other codecs, types and strides, and for a GPU whose codec fails its test."""
        engine = Engine.existing()
        with far(), gpu_codec_on(), unittest.mock.patch.object(gpu_sum, "GpuSum", None):
            for codec in "raw", "fixed:10,stochastic", "fixed:rel=10", "topk:1%", "signsgd,ternary":
                engine.all_reduce(given(5000).to(DEVICE), codec=codec).wait()
            engine.all_reduce(given(10_000).to(DEVICE)[::2], codec="fixed:10").wait()
            engine.all_reduce(given(5000, torch.float64).to(DEVICE), codec="fixed:10").wait()
            with unittest.mock.patch.dict(gpu_sum._codecs, clear=True), warnings.catch_warnings(record=True) as seen, \
                    unittest.mock.patch.object(gpu_codec.GpuCodec, "decode", lambda *_: None):
                warnings.simplefilter("always")
                for _ in range(2):
                    engine.all_reduce(given(5000).to(DEVICE), codec="fixed:10").wait()
                texts = [str(each.message) for each in seen if "cannot encode" in str(each.message)]
                self.assertEqual(len(texts), 1, texts)
                self.assertIn("other numbers", texts[0])

    def test_gpu_codec_in_any_state(self):
        """Inference mode and PyTorch's defaults change nothing, whatever the first sum has met."""
        engine, drawn = Engine.existing(), given(5000)
        expected = drawn.clone()
        engine.all_reduce(expected, codec="fixed:8").wait()
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        with far(), gpu_codec_on(), unittest.mock.patch.dict(gpu_sum._codecs, clear=True), \
                unittest.mock.patch.dict(engine._workspaces, clear=True):
            torch.set_default_dtype(torch.float64)
            for inference in True, False:
                with torch.inference_mode(inference), \
                        unittest.mock.patch.object(gpu_sum, "GpuSum", wraps=gpu_sum.GpuSum) as made:
                    tensor = drawn.to(DEVICE, copy=True)
                    engine.all_reduce(tensor, codec="fixed:8").wait()
                self.assertTrue(made.called)
                self.assertSame(tensor, expected)

    def test_results_that_the_gpu_refuses(self):
        """The sum fails, and the daemon encodes the next ones."""
        engine = Engine.existing()
        expected = given(5000)
        engine.all_reduce(expected, codec="fixed:7").wait()
        with far(), gpu_codec_on(), unittest.mock.patch.dict(gpu_sum._codecs, clear=True):
            engine.all_reduce(given(5000).to(DEVICE), codec="fixed:7").wait()
            gpu_sum.codec_for("fixed:7", torch.zeros(1, device=DEVICE).device).fault.fill_(1)
            with self.assertRaisesRegex(RuntimeError, "could not decode a sum by fixed:7.*unset GRADLANE_GPU_CODEC"):
                engine.all_reduce(given(5000).to(DEVICE), codec="fixed:7").wait()
            with unittest.mock.patch.object(gpu_sum, "GpuSum", None):
                tensor = given(5000).to(DEVICE)
                engine.all_reduce(tensor, codec="fixed:7").wait()
            self.assertSame(tensor, expected)

    def test_feedback_in_pieces(self):
        """Each piece has its part of the residual."""
        engine, numel = Engine.existing(), 5000001
        for codec in ("fixed:10", "dgc:1%"):
            rows = engine.find_codec(codec).states
            outcomes = []
            for device, is_on_gpu in (("cpu", False), (DEVICE, True)):
                residual = engine.zeros(rows * numel).view(rows, numel)
                tensor = given(numel).to(device)
                with far(is_on_gpu):
                    for _ in range(2):
                        engine.all_reduce(tensor, codec=codec, residual=residual).wait()
                outcomes.append((tensor.cpu(), residual.clone()))
            self.assertTrue(outcomes[0][1].any())
            for one, other in zip(*outcomes):
                self.assertTrue(torch.equal(one, other), codec)

    def test_other_operations(self):
        with far():
            self.check_other_operations(100000)

    def check_other_operations(self, numel):
        mine = given(numel).to(DEVICE)
        expected = [given(numel, rank=rank) for rank in range(WORLD)]
        together = torch.empty(WORLD * numel, device=DEVICE)
        dist.all_gather_into_tensor(together, mine)
        self.assertSame(together, torch.cat(expected))
        parts = [torch.empty(numel, device=DEVICE) for _ in range(WORLD)]
        dist.all_gather(parts, mine)
        for part, other in zip(parts, expected):
            self.assertSame(part, other)
        for op, pick in ((dist.ReduceOp.MIN, torch.minimum), (dist.ReduceOp.MAX, torch.maximum)):
            least = mine.clone()
            dist.all_reduce(least, op=op)
            other = expected[0]
            for more in expected[1:]:
                other = pick(other, more)
            self.assertSame(least, other)
        # PyTorch only marks these tensors as conjugate or negative. It does not change their memory.
        turned = torch.complex(mine, mine + 1).conj()
        Engine.existing().broadcast(turned, 0).wait()
        self.assertSame(turned.resolve_conj(), torch.complex(expected[0], -(expected[0] + 1)))
        negative = torch.complex(mine, mine.round()).conj().imag  # sums of whole numbers do not depend on the order
        self.assertTrue(negative.is_neg())
        Engine.existing().all_reduce(negative).wait()
        self.assertSame(negative.clone(), -sum(one.round() for one in expected))
        true = torch.arange(2000, device=DEVICE) % 7 == RANK
        dist.all_reduce(true)
        self.assertSame(true, torch.arange(2000) % 7 < WORLD)
        for root in range(WORLD):
            sent = mine.clone()
            dist.broadcast(sent, root)
            self.assertSame(sent, expected[root])
        whole = torch.arange(WORLD * numel, dtype=torch.int64, device=DEVICE) + RANK
        part = torch.empty(numel, dtype=torch.int64, device=DEVICE)
        dist.reduce_scatter_tensor(part, whole)
        first = RANK * numel
        self.assertSame(part, torch.arange(first, first + numel) * WORLD + sum(range(WORLD)))
        dist.barrier()

    def test_many_at_once(self):
        """Nothing but the works holds the tensors, and other tensors want their GPU memory. Sums are right, and few
        pinned blocks are allocated."""
        pool, made = Engine.existing()._memory.pinned, []
        allocate = pool._allocate
        with far(), unittest.mock.patch.object(pool, "_allocate", lambda size: made.append(size) or allocate(size)):
            for _ in range(5):
                works = []
                for number in range(40):
                    tensor = torch.full((2, 200000), float(number + RANK), device=DEVICE)
                    works.append(dist.all_reduce(tensor[:, ::2] if number % 2 else tensor[0], async_op=True))
                    del tensor
                    torch.empty(2, 200000, device=DEVICE).fill_(-1.0)
                for _ in range(3):  # no thread waits for these operations
                    dist.all_reduce(torch.ones(400000, device=DEVICE), async_op=True)
                for number, work in enumerate(works):
                    work.wait()
                    result = work.result()[0]
                    self.assertEqual(float(result.min()), number * WORLD + sum(range(WORLD)))
                    self.assertEqual(float(result.max()), number * WORLD + sum(range(WORLD)))
            dist.barrier()
        self.assertLessEqual(len(made), 2 * 43)

    def test_without_room(self):
        """If there is no memory for another pinned block, a call waits for earlier operations."""
        pool, made = Engine.existing()._memory.pinned, []
        allocate = pool._allocate

        def little(size):
            if len(made) == 3:
                raise gradlane.OutOfMemory(-5, "no room")
            made.append(size)
            return allocate(size)

        pool.clear()
        with far(), unittest.mock.patch.object(pool, "_allocate", little):
            works = [dist.all_reduce(torch.full((250000,), 1.0 + RANK, device=DEVICE), async_op=True)
                     for _ in range(20)]
            for work in works:
                work.wait()
                self.assertEqual(float(work.result()[0].max()), WORLD * (WORLD + 1) / 2)
        self.assertEqual(len(made), 3)

    def test_failures(self):
        with far():
            for _ in range(3):
                with self.assertRaises(gradlane.OperationFailed):
                    dist.all_reduce(torch.ones(4000 + 1000 * RANK, device=DEVICE))
                tensor = torch.ones(4000, device=DEVICE)
                dist.all_reduce(tensor)
                self.assertSame(tensor, torch.full((4000,), float(WORLD)))
            with self.assertRaises(gradlane.BadArgument):
                Engine.existing().all_reduce(torch.ones(4000, device=DEVICE), codec="nonsense")

    def test_hook_as_on_the_cpu(self):
        """Gradients and residuals have the same bits as on the CPU. Some steps do not use some parameters."""
        for codec in CODECS:
            for feedback in (False, None):
                with far(False):
                    near = self.train(codec, feedback, "cpu")
                with far():
                    there = self.train(codec, feedback, DEVICE)
                for one, other in zip(near, there):
                    self.assertTrue(torch.equal(one, other), f"{codec}, feedback {feedback}")
                self.assertTrue(same_everywhere(there[:len(SHAPES)]), codec)

    def train(self, codec, feedback, device):
        state = gradlane.torch.State(codec, feedback)
        model = Picky(*SHAPES).to(device)
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.3, find_unused_parameters=True)
        ddp.register_comm_hook(state, gradlane.torch.hook)
        sums = [torch.zeros(shape) for shape in SHAPES]
        for step in range(6):
            gradients = [gradient.to(device) for gradient in draw(step, SHAPES, 1e-3)]
            if step in (2, 4):
                gradients[1] = None
            ddp.zero_grad(set_to_none=True)
            ddp(gradients).backward()
            for total, value in zip(sums, model.values):
                if value.grad is not None:
                    total += value.grad.cpu()
        owed = [residual for residual in state.state_dict()["residuals"] if residual is not None]
        return sums + owed


@FSDP2
class Sharded(unittest.TestCase):
    def test_as_on_the_cpu(self):
        """Gradients and residuals have the same bits as on the CPU."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        for codec in ("fixed:10", "fixed:adaptive:5"):
            outcomes = []
            for device, is_on_gpu in (("cpu", False), (DEVICE, True)):
                model = Picky((300000,)).to(device)
                fully_shard(model, mesh=init_device_mesh(device, (WORLD,)))
                sharded = gradlane.torch.fsdp(model, codec, error_feedback=True, parameters="bf16")
                results = []
                with far(is_on_gpu):
                    for step in range(5):
                        model([gradient.to(device) for gradient in draw(step, [(300000,)], 1e-3)]).backward()
                        results.append(model.values[0].grad.full_tensor().cpu())
                        model.zero_grad()
                outcomes.append(results + [unit["residual"].cpu() for unit in sharded.state_dict()["units"].values()])
            for one, other in zip(*outcomes):
                self.assertTrue(torch.equal(one, other), codec)


@unittest.skipUnless(HERE, "there is no CUDA here")
class Streams(unittest.TestCase):
    def test_behind_the_stream(self):
        """The call returns before earlier work of the GPU is done, but the sum contains the results of that work."""
        side = torch.cuda.Stream()
        tensor = torch.zeros(1000000, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(CYCLES)
            tensor.fill_(RANK + 1)
            done = side.record_event()
            work = dist.all_reduce(tensor, async_op=True)
            self.assertFalse(done.query(), "the call has waited for the GPU")
            work.wait()
            sums = tensor * 2
        side.synchronize()
        self.assertTrue(torch.equal(sums.cpu(), torch.full((1000000,), WORLD * (WORLD + 1.0))))

    def test_result_in_streams(self):
        """After wait() of a future, the result is ready in the stream of the thread that waited. It is also ready in
        the stream of a callback.
        """
        seen = []
        tensor = torch.full((3000000,), float(RANK), device="cuda")
        work = dist.all_reduce(tensor, async_op=True)
        then = work.get_future().then(lambda future: seen.append(future.value()[0].sum()) or future.value()[0] * 2)
        other = torch.cuda.Stream()
        with torch.cuda.stream(other):
            twice = then.wait() + 0
        other.synchronize()
        self.assertTrue(torch.equal(twice.cpu(), torch.full((3000000,), float(WORLD * (WORLD - 1)))))
        torch.cuda.synchronize()
        self.assertEqual(float(seen[0]), 3000000 * WORLD * (WORLD - 1) / 2)

    def test_hook_does_not_wait(self):
        """With error feedback, the caller's thread still goes on while the GPU computes."""
        state = gradlane.torch.State("fixed:10", True)
        model = Picky((100000,)).to("cuda")
        ddp = DistributedDataParallel(model, find_unused_parameters=True)
        waited = []

        def timed(state, bucket):
            torch.cuda._sleep(CYCLES)
            began = time.perf_counter()
            future = gradlane.torch.hook(state, bucket)
            waited.append(time.perf_counter() - began)
            return future

        ddp.register_comm_hook(state, timed)
        for step in range(4):
            ddp.zero_grad(set_to_none=True)
            ddp([gradient.cuda() for gradient in draw(step, [(100000,)], 1e-3)]).backward()
        self.assertLess(statistics.median(waited[1:]), 0.05, "the hook has waited for the GPU, a tenth of a second")
