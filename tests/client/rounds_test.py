#!/usr/bin/python3
"""Which way round, in Python: once per rank, under `gradlane run -n 4 --strategies direct,ring,rings:2,aggregator:1`."""

import functools
import unittest

import numpy

import gradlane

STRATEGIES = ("direct", "ring", "rings:2", "aggregator:1")
COUNT = 30_000


def given(rank):
    return numpy.random.default_rng(rank).normal(0, 0.01, COUNT).astype("float32")


class RoundsTest(unittest.TestCase):
    def test_numpy(self):
        with gradlane.open() as gl:
            self.assertEqual(gl.strategies, STRATEGIES)
            every = [given(rank) for rank in range(gl.world)]
            exact = numpy.sum(every, axis=0, dtype=numpy.float64)
            results = {}
            for strategy in (None, *STRATEGIES):
                for codec, bound in (("raw", 1e-7), ("fixed:10", 2.0**-10), ("bf16", 1e-3)):
                    array = given(gl.rank)
                    gl.all_reduce(array, strategy=strategy, codec=codec)
                    self.assertLess(numpy.abs(array - exact).max(), gl.world * bound)
                    results[strategy, codec] = array
                gl.barrier(strategy=strategy)
                picked = gl.all_reduce(given(gl.rank), strategy=strategy, reduction="max")
                numpy.testing.assert_array_equal(picked, functools.reduce(numpy.maximum, every))
            # The same bytes whatever the way; of the others the daemons' own is the one that is named first.
            for strategy in STRATEGIES:
                numpy.testing.assert_array_equal(results[strategy, "fixed:10"], results[None, "fixed:10"])
                numpy.testing.assert_array_equal(results["direct", "bf16"], results[None, "bf16"])
            self.check_aggregator(gl, exact)
            self.check_refusals(gl)
            # Ranks that name others hear of both.
            with self.assertRaisesRegex(gradlane.OperationFailed, "strategy: (ring .*direct|direct .*ring)"):
                gl.all_reduce(numpy.ones(COUNT), strategy="ring" if gl.rank == 2 else "direct")
            gl.barrier()  # nobody leaves before all have heard

    def check_aggregator(self, gl, exact):
        """What comes back has a codec of its own."""
        there, both, back = (gl.all_reduce(given(gl.rank), strategy="aggregator:1", codec=codec)
                             for codec in ("fixed:12", "fixed:12/fixed:4", "raw/fixed:4"))
        step = 2.0**-3  # of fixed:4
        self.assertLess(numpy.abs(there - exact).max(), gl.world * 2.0**-12)
        self.assertGreater(numpy.count_nonzero(there / step % 1), COUNT // 2)
        for rounded in (both, back):
            self.assertEqual(numpy.count_nonzero(rounded / step % 1), 0)
            self.assertLess(numpy.abs(rounded - exact).max(), step / 2 + gl.world * 2.0**-12)

    def check_refusals(self, gl):
        ones = numpy.ones(gl.world)
        for strategy in ("rings:2", "aggregator:1"):
            for call in (gl.all_gather, gl.broadcast, gl.reduce_scatter):
                with self.assertRaisesRegex(gradlane.BadArgument, f"strategy {strategy} cannot do that; .*direct, ring$"):
                    call(ones, strategy=strategy)
        for strategy in ("rings:4", "aggregator:0", "aggregator:1,stream"):
            with self.assertRaisesRegex(gradlane.BadArgument, "the daemon allows direct, ring, rings:2, aggregator:1"):
                gl.all_reduce(ones, strategy=strategy)
        with self.assertRaisesRegex(gradlane.BadArgument, "one for the way back.*; strategy is direct"):
            gl.all_reduce(given(0), codec="fixed:10/raw")
        for strategy in ("direct", "ring"):
            array = numpy.arange(gl.world) * (numpy.arange(gl.world) == gl.rank)
            numpy.testing.assert_array_equal(gl.all_gather(array, strategy=strategy), numpy.arange(gl.world))
            numpy.testing.assert_array_equal(gl.broadcast(numpy.full(9, gl.rank), root=2, strategy=strategy), 2)
            array = numpy.arange(gl.world)
            gl.reduce_scatter(array, strategy=strategy)
            self.assertEqual(array[gl.rank], gl.rank * gl.world)

    def test_torch(self):
        try:
            import torch
            import torch.distributed as dist
        except ImportError:
            self.skipTest("no PyTorch here; tools/setup.sh installs it")
        import gradlane.torch

        dist.init_process_group("gradlane")
        rank, world = dist.get_rank(), dist.get_world_size()
        large = 600_000  # more than a piece
        for strategy in (None, *STRATEGIES):
            with gradlane.torch.use_strategy(strategy):
                tensor = torch.full((large,), float(rank))
                dist.all_reduce(tensor)
                self.assertEqual((tensor.min().item(), tensor.max().item()), (6.0, 6.0))
                dist.all_reduce(tensor.fill_(rank), op=dist.ReduceOp.MAX)
                self.assertEqual((tensor.min().item(), tensor.max().item()), (3.0, 3.0))
                blocks = [torch.full((10,), rank + block) for block in range(world)]
                dist.reduce_scatter(blocks[0], list(blocks))  # by the daemons' own
                self.assertEqual(blocks[0][0].item(), 6 + world * rank)
        # Gradients that differ a little, so that which way they went can be seen.
        weights = {}
        for strategy, codec in ((None, "bf16"), ("direct", "bf16"), ("ring", "bf16"), ("aggregator:1", "fixed:12/raw")):
            torch.manual_seed(0)
            model = torch.nn.Linear(100, 100)
            ddp = torch.nn.parallel.DistributedDataParallel(model)
            ddp.register_comm_hook(gradlane.torch.State(codec, strategy=strategy), gradlane.torch.hook)
            data = torch.randn(7, 100, generator=torch.Generator().manual_seed(rank))
            (100 * ddp(data).square().mean()).backward()
            weights[strategy] = model.weight.grad.clone()
        self.assertTrue(torch.equal(weights[None], weights["direct"]))
        self.assertFalse(torch.equal(weights["ring"], weights["direct"]))
        self.assertFalse(torch.equal(weights["ring"], weights["aggregator:1"]))
        torch.testing.assert_close(weights["ring"], weights["direct"], rtol=0.05, atol=0.05)
        torch.testing.assert_close(weights["ring"], weights["aggregator:1"], rtol=0.05, atol=0.05)
        dist.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
