#!/usr/bin/python3
"""Tests of the backend "gradlane" of PyTorch. All ranks run the same tests in the same order, so that collectives
match."""

import functools
import os
import unittest
import unittest.mock

import torch
import torch.distributed as dist

import gradlane
import gradlane.torch
from gradlane.torch.default_options import DefaultOptions, of_the_job
from tests.scripts.torch.backend_case import OTHERS, RANK, REAL, SIZES, WORLD, Case, given, summed


class Sums(Case):
    def test_all_reduce(self):
        with gradlane.torch.use_codec("raw"):
            for dtype in REAL + OTHERS:
                for numel in SIZES:
                    with self.subTest(dtype=dtype, numel=numel):
                        tensor = given(RANK, numel, dtype)
                        dist.all_reduce(tensor)
                        self.assertSame(tensor, summed(numel, dtype))

    def test_average(self):
        with gradlane.torch.use_codec("raw"):
            for dtype in REAL:
                tensor = given(RANK, 5000, dtype)
                dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
                torch.testing.assert_close(tensor.double(), summed(5000).double() / WORLD, rtol=1e-2, atol=1e-2)
            with self.assertRaisesRegex(gradlane.BadArgument, "torch.bool has no average"):
                dist.all_reduce(given(RANK, 4, torch.bool), op=dist.ReduceOp.AVG)

    def test_average_of_whole_numbers(self):
        """Averages of integers are truncated towards zero, as in NCCL, even if the sum does not fit the type."""
        total = WORLD * (WORLD + 1) // 2  # sum of RANK + 1 over all ranks
        expected = [int(-7 * total / WORLD), 40 * total // WORLD, 3 * total // WORLD]
        for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
            given_here = (torch.tensor([-7, 40, 3]) * (RANK + 1)).to(dtype)
            tensor = given_here.clone()
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
            self.assertEqual((tensor.dtype, tensor.tolist()), (dtype, expected))
            tensor = given_here.clone()
            dist.reduce(tensor, WORLD - 1, op=dist.ReduceOp.AVG)
            self.assertEqual(tensor.tolist(), expected if RANK == WORLD - 1 else given_here.tolist())
            output = torch.zeros(3, dtype=torch.int64)
            dist.reduce_scatter(output, [given_here.long()] * WORLD, op=dist.ReduceOp.AVG)
            self.assertEqual(output.tolist(), expected)

    def test_minima_and_maxima(self):
        """Minima and maxima are exact with every codec, for large values of either sign."""
        ops = ((dist.ReduceOp.MIN, torch.minimum), (dist.ReduceOp.MAX, torch.maximum))
        with gradlane.torch.use_codec("fixed:4"):
            for dtype in REAL + OTHERS[:5]:
                for numel in SIZES:
                    every = [(given(rank, numel, torch.int64) * 37 % 256 - 128).to(dtype) for rank in range(WORLD)]
                    for op, pick in ops:
                        with self.subTest(dtype=dtype, numel=numel, op=op):
                            tensor = every[RANK].clone()
                            dist.all_reduce(tensor, op=op)
                            self.assertSame(tensor, functools.reduce(pick, every))
        tensor = torch.tensor([RANK == 0, True, False])
        dist.all_reduce(tensor, op=dist.ReduceOp.MIN)
        self.assertEqual(tensor.tolist(), [WORLD == 1, True, False])
        tensor = torch.tensor([float("nan") if RANK == 0 else 1.0, -0.0 if RANK == 0 else 0.0])
        dist.all_reduce(tensor, op=dist.ReduceOp.MIN)
        self.assertTrue(tensor[0].isnan() and tensor[1].signbit())
        if WORLD > 1:  # PyTorch itself refuses such a call, so the test calls the engine
            with self.assertRaisesRegex(gradlane.BadArgument, "torch.complex64 has no minimum or maximum"):
                gradlane.torch.Engine.existing().all_reduce(given(RANK, 4, torch.complex64), reduction="min")

    def test_maxima_scattered(self):
        for dtype in (torch.float32, torch.int16, torch.bfloat16):
            every = [[given(rank + block, 3000, dtype) for block in range(WORLD)] for rank in range(WORLD)]
            output = torch.zeros(3000, dtype=dtype)
            dist.reduce_scatter(output, every[RANK], op=dist.ReduceOp.MAX)
            self.assertSame(output, functools.reduce(torch.maximum, [blocks[RANK] for blocks in every]))

    def test_strategy(self):
        with gradlane.torch.use_strategy("ring"):
            tensor = given(RANK, 5000)
            dist.all_reduce(tensor)
            dist.barrier()
        self.assertIsNone(DefaultOptions.strategy)
        self.assertSame(tensor, summed(5000))
        with self.assertRaisesRegex(gradlane.BadArgument, "strategy is 5"):
            gradlane.torch.use_strategy(5)
        if WORLD > 1:
            with self.assertRaisesRegex(gradlane.BadArgument, "strategy 'star': the daemon allows ring"):
                gradlane.torch.use_strategy("star")
        self.assertIsNone(DefaultOptions.strategy)

    def test_bool_is_or(self):
        tensor = torch.tensor([False, RANK == 0, True])
        dist.all_reduce(tensor)
        self.assertEqual(tensor.tolist(), [False, True, True])

    def test_bytes_wrap_around(self):
        tensor = torch.full((3,), 200, dtype=torch.uint8)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.tolist(), [200 * WORLD % 256] * 3)

    def test_same_bits_on_all_ranks(self):
        generator = torch.Generator().manual_seed(RANK)
        for codec in ("raw", "bf16", "fixed:10", "inceptionn:10"):
            with gradlane.torch.use_codec(codec):
                tensor = torch.randn(300001, generator=generator) * 0.1
                dist.all_reduce(tensor)
            self.assertSameEverywhere(tensor)

    def test_codec_bound(self):
        every = [torch.randn(100000, generator=torch.Generator().manual_seed(rank)) * 0.01 for rank in range(WORLD)]
        exact = torch.stack(every).double().sum(0)
        for codec, bound in (("fixed:10", WORLD * 2.0**-10), ("fixed:7", WORLD * 2.0**-7), ("raw", 1e-6)):
            for average in (False, True):
                tensor = every[RANK].clone()
                with gradlane.torch.use_codec(codec):
                    dist.all_reduce(tensor, op=dist.ReduceOp.AVG if average else dist.ReduceOp.SUM)
                error = (tensor - exact / (WORLD if average else 1)).abs().max().item()
                self.assertLessEqual(error, bound / (WORLD if average else 1) + 1e-7)
                if codec != "raw" and WORLD > 1:
                    self.assertGreater(error, bound / WORLD / 16, "the codec was not used")

    def test_packed_halves(self):
        """Sums of 16 bits through pack have the bits of uncompressed ones, whether C++ or Python starts them."""
        def sums(codec, own):
            with gradlane.torch.use_codec(codec):
                tensor, strided, block = own.clone(), torch.zeros(len(own), 2, dtype=own.dtype)[:, 0], own.clone()
                strided.copy_(own)
                dist.all_reduce(tensor)
                dist.all_reduce(strided)
                dist.reduce_scatter(block, [own * (rank + 1) for rank in range(WORLD)])
            return torch.cat([tensor, strided, block]).view(torch.int16)

        for dtype in (torch.bfloat16, torch.float16):
            own = (torch.randn(50000, generator=torch.Generator().manual_seed(RANK)) * 0.01).to(dtype)
            own[RANK::5000] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-7] * 2)
            packed = sums("pack", own)
            self.assertTrue(torch.equal(packed, sums("raw", own)))
            self.assertSameEverywhere(packed[:len(own)])

    def test_few_elements_are_exact(self):
        tensor = torch.full((1023,), 1e-6)
        with gradlane.torch.use_codec("fixed:4"):
            dist.all_reduce(tensor)
        torch.testing.assert_close(tensor, torch.full((1023,), WORLD * 1e-6))

    def test_adaptive_bound(self):
        """Several asynchronous operations of one size are in flight. All ranks must compute the same bounds."""
        with gradlane.torch.use_codec("fixed:adaptive:6"):
            for step in range(6):
                every = [torch.randn(20000, generator=torch.Generator().manual_seed(step * WORLD + rank)) * 1e-5
                         for rank in range(WORLD)]
                works = [(tensor, dist.all_reduce(tensor, async_op=True))
                         for tensor in (every[RANK].clone() for _ in range(4))]
                exact = torch.stack(every).sum(0)
                for tensor, work in works:
                    work.wait()
                    error = (tensor - exact).abs().max() / WORLD
                    self.assertLessEqual(error, 2.0**-6 * exact.square().mean().sqrt() / WORLD * 2)
                    self.assertSameEverywhere(tensor)
            if WORLD > 1:
                self.assertGreater(error, 0)

    def test_codec_for_a_while(self):
        with gradlane.torch.use_codec("fixed:adaptive"):
            dist.all_reduce(torch.ones(5000))
            with gradlane.torch.use_codec("raw"):
                dist.all_reduce(torch.ones(5000))
            if WORLD > 1:
                self.assertNotEqual(DefaultOptions.bounds[5000].codec(), "raw")

    def test_codec_of_the_job(self):
        """GRADLANE_CODEC, which gradlane run --codec sets, is the default. Daemons need not know this codec."""
        of_the_job.cache_clear()
        self.addCleanup(of_the_job.cache_clear)
        for name, wanted in (("fixed:adaptive:6", "raw"), ("fixed", "raw"), ("bf16", "bf16"), ("", None)):
            with unittest.mock.patch.dict(os.environ, GRADLANE_CODEC=name):
                codec, bound = DefaultOptions.choose(torch.ones(5000))
                self.assertEqual(codec if bound is None else bound.codec(), wanted)
                with gradlane.torch.use_codec("fp16"):
                    self.assertEqual(DefaultOptions.choose(torch.ones(5000)), ("fp16", None))
            DefaultOptions.bounds.clear()
            of_the_job.cache_clear()
        for name in ("fixed:adaptive:20", "fixd"):
            if name == "fixd" and WORLD == 1:  # there is no daemon to ask
                continue
            wrong = self.assertRaisesRegex(gradlane.BadArgument, f"GRADLANE_CODEC in the environment: .*codec '{name}'")
            with unittest.mock.patch.dict(os.environ, GRADLANE_CODEC=name), wrong:
                dist.new_group([RANK])
            of_the_job.cache_clear()

    @unittest.skipIf(WORLD == 1, "there is no daemon")
    def test_names_of_codecs(self):
        """use_codec() accepts the same names as the daemon, at both ends of each range. (use_codec() also accepts
        "fixed", which means fixed:adaptive.)"""
        words = ["raw", "raw:1", "bf16", "bf16:", "fp", "fixed:", "inceptionn", "inceptionn:8,truncate",
                 "inceptionn:,truncate", "inceptionn:8,", "fixed:8,truncate", "fixed:+8", "fixed: 8", "Raw", " raw", ""]
        for word in words + [f"{word}:{b}" for word in ("fixed", "inceptionn") for b in (0, 1, 2, 14, 15, 30, 31)]:
            try:
                with gradlane.torch.use_codec(word):
                    known = True
            except gradlane.BadArgument:
                known = False
            try:
                gradlane.torch.Engine.existing().all_reduce(torch.ones(5000), codec=lambda: word).wait()  # noqa: B023
                daemons = True
            except RuntimeError as error:
                self.assertIn("BadArgument", str(error))
                daemons = False
            self.assertEqual(known, daemons, word)

    def test_reduce(self):
        for root in range(WORLD):
            tensor = given(RANK, 5000)
            dist.reduce(tensor, root)
            self.assertSame(tensor, summed(5000) if RANK == root else given(RANK, 5000))

    def test_coalesced(self):
        tensors = [given(RANK, numel) for numel in (5, 5000)]
        dist.all_reduce_coalesced(tensors)
        for tensor in tensors:
            self.assertSame(tensor, summed(tensor.numel()))

    def test_reduce_scatter(self):
        with gradlane.torch.use_codec("raw"):
            for dtype in REAL + OTHERS:
                for numel in SIZES:
                    blocks = [given(RANK + block, numel, dtype) for block in range(WORLD)]
                    wanted = sum(given(rank + RANK, numel, torch.int64) for rank in range(WORLD)).to(dtype)
                    output = torch.zeros(numel, dtype=dtype)
                    dist.reduce_scatter(output, [block.clone() for block in blocks])
                    self.assertSame(output, wanted)
                    whole = torch.cat(blocks)
                    output.zero_()
                    dist._reduce_scatter_base(output, whole)
                    self.assertSame(output, wanted)
                    self.assertSame(whole, torch.cat(blocks))  # inputs are unchanged


class Copies(Case):
    def test_broadcast(self):
        for dtype in REAL + OTHERS + (torch.bool,):
            for root in range(WORLD):
                tensor = given(RANK, 300001 if root == 0 else 5, dtype)
                dist.broadcast(tensor, root)
                self.assertSame(tensor, given(root, tensor.numel(), dtype))

    def test_every_bit_arrives(self):
        raw = torch.randint(0, 256, (40000,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
        with gradlane.torch.use_codec("fixed:2"):
            for dtype in (torch.float32, torch.bfloat16, torch.float64):  # NaNs and denormals among them
                tensor = (raw.clone() if RANK == 0 else torch.zeros_like(raw)).view(dtype)
                dist.broadcast(tensor, 0)
                self.assertTrue(torch.equal(tensor.view(torch.uint8), raw))
                outputs = [torch.zeros_like(tensor) for _ in range(WORLD)]
                dist.all_gather(outputs, tensor)
                for output in outputs:
                    self.assertTrue(torch.equal(output.view(torch.uint8), raw))

    def test_all_gather(self):
        for dtype in REAL + OTHERS + (torch.bool,):
            for numel in SIZES:
                outputs = [torch.zeros(numel, dtype=dtype) for _ in range(WORLD)]
                dist.all_gather(outputs, given(RANK, numel, dtype))
                for rank, output in enumerate(outputs):
                    self.assertSame(output, given(rank, numel, dtype))
                whole = torch.zeros(WORLD, numel, dtype=dtype)
                dist._all_gather_base(whole, given(RANK, numel, dtype))
                self.assertSame(whole, torch.stack(outputs))

    def test_objects(self):
        everybody = [None] * WORLD
        dist.all_gather_object(everybody, {"rank": RANK, "text": "x" * RANK * 1000})
        self.assertEqual(everybody, [{"rank": rank, "text": "x" * rank * 1000} for rank in range(WORLD)])
        objects = [RANK, [RANK] * 3]
        dist.broadcast_object_list(objects, WORLD - 1)
        self.assertEqual(objects, [WORLD - 1, [WORLD - 1] * 3])


class Tensors(Case):
    @unittest.skipIf(WORLD != 2, "once is enough")
    def test_more_than_256_mib(self):
        """The tensor is larger than the largest operation of a daemon, so the library divides it."""
        tensor = torch.full((70_000_000,), 1.0 + RANK)
        dist.all_reduce(tensor)
        self.assertTrue((tensor == 3.0).all())
        raw = tensor.view(torch.uint8)
        raw[-5:] = RANK
        dist.broadcast(raw, 1)
        self.assertEqual(raw[-6:].tolist(), [64, 1, 1, 1, 1, 1])

    def test_not_contiguous(self):
        tensor = given(RANK, 60000).view(300, 200).t()
        dist.all_reduce(tensor)
        self.assertSame(tensor, summed(60000).view(300, 200).t())
        tensor = given(RANK, 60000)[::3]
        dist.broadcast(tensor, 0)
        self.assertSame(tensor, given(0, 60000)[::3])
        outputs = [torch.zeros(50, 40).t() for _ in range(WORLD)]
        dist.all_gather(outputs, given(RANK, 2000).view(50, 40).t())
        for rank, output in enumerate(outputs):
            self.assertSame(output, given(rank, 2000).view(50, 40).t())

    def test_nothing_in_it(self):
        empty = torch.zeros(0, 3)
        dist.all_reduce(empty)
        dist.broadcast(empty, 0)
        dist.all_gather([torch.zeros(0, 3) for _ in range(WORLD)], empty)
        dist.barrier()

    def test_parameters(self):
        parameter = torch.nn.Parameter(given(RANK, 5000))
        dist.broadcast(parameter, 0)
        self.assertSame(parameter.data, given(0, 5000))

    def test_shared_memory(self):
        for shape, dtype in (((5,), torch.float32), ((700, 1000), torch.float32), ((3000,), torch.bfloat16)):
            tensor = gradlane.torch.zeros(*shape, dtype=dtype)
            self.assertEqual((tuple(tensor.shape), tensor.dtype, tensor.sum().item()), (shape, dtype, 0))
            tensor.copy_(given(RANK, tensor.numel(), dtype).view(shape))
            with gradlane.torch.use_codec("raw"):
                dist.all_reduce(tensor)
                self.assertSame(tensor, summed(tensor.numel(), dtype).view(shape))
                dist.broadcast(tensor[1:], 0)
                dist.all_reduce(tensor[1:3])

    def test_shared_number(self):
        self.assertEqual((gradlane.torch.zeros(()).shape, gradlane.torch.zeros((2, 3)).shape), ((), (2, 3)))

    def test_inference_mode(self):
        """Inference mode is per thread. Inference tensors also work where the engine's thread finishes the operation.
        """
        with torch.inference_mode():
            tensors = [torch.ones(1500000, dtype=torch.uint8), torch.ones(5, dtype=torch.bool), torch.ones(1500000)]
            together = [torch.ones(400000) for _ in range(2)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        works.append(dist.all_reduce_coalesced(together, async_op=True))
        for tensor, work in zip(tensors + together[:1], works):
            work.wait()
            self.assertEqual(tensor[0], 1 if tensor.dtype == torch.bool else WORLD)

    def test_shared_and_ordinary_memory_go_together(self):
        tensor = gradlane.torch.zeros(700000) if RANK == 0 else torch.zeros(700000)
        tensor.copy_(given(RANK, 700000))
        dist.all_reduce(tensor)
        self.assertSame(tensor, summed(700000))
