#!/usr/bin/python3
"""Warnings about what codecs take, in Python: losses_test.py, once per rank, under `gradlane run`."""

import unittest
import warnings

import numpy

import gradlane

COUNT = 5000


class LossesTest(unittest.TestCase):
    def caught(self, call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        return [warning for warning in caught if warning.category is gradlane.LossWarning]

    def test_numpy(self):
        with gradlane.open() as gl:
            tiny = numpy.full(COUNT, 1e-6, numpy.float32)
            for options in ({}, {"codec": "raw"}, {"codec": "fixed:30"}, {"codec": "bf16"}):
                self.assertEqual(self.caught(lambda o=options: gl.all_reduce(tiny, **o)), [], options)
            residual = gl.zeros(COUNT)
            self.assertEqual(self.caught(lambda: gl.all_reduce(tiny, codec="fixed:10", residual=residual)), [])
            self.assertEqual(gl.figures().lossy_zeroed, 0)

            tiny[:] = 1e-6
            (warning,) = self.caught(lambda: gl.all_reduce(tiny, codec="fixed:10"))
            self.assertIn(f"all_reduce of {COUNT} elements by codec fixed:10: rounding took 100 % of the norm of what "
                          f"rank {gl.rank} gave, and made zero of 100 % of its values", str(warning.message))
            self.assertEqual(warning.filename, __file__)
            tiny[:] = 1e-6
            self.assertEqual(self.caught(lambda: gl.all_reduce(tiny, codec="fixed:10")), [], "once")
            figures = gl.figures()
            self.assertEqual(figures.lossy_zeroed, 2 * 2048)
            self.assertGreater(figures.lossy_values, 3 * 2048)

            # Where warnings are errors the operation has ended all the same.
            tiny = numpy.full(COUNT + 1, 1e-6, numpy.float32)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with self.assertRaises(gradlane.LossWarning):
                    gl.all_reduce(tiny, codec="fixed:10")
            self.assertEqual(numpy.count_nonzero(tiny), 0)
            ones = gl.all_reduce(numpy.ones(COUNT + 1, numpy.float32))
            numpy.testing.assert_array_equal(ones, gl.world)

    def test_torch(self):
        try:
            import torch
            import torch.distributed as dist
        except ImportError:
            self.skipTest("no PyTorch here; tools/setup.sh installs it")
        import gradlane.torch

        dist.init_process_group("gradlane")
        large = 600_000  # more than a piece
        tiny = torch.full((large,), 1e-6)
        self.assertEqual(self.caught(lambda: dist.all_reduce(tiny)), [])
        with gradlane.torch.use_codec("fixed:10"):
            (warning,) = self.caught(lambda: dist.all_reduce(tiny))
        self.assertIn(f"all_reduce of {large} elements by codec fixed:10: rounding took 100 %", str(warning.message))

        # An error on one rank, in the first of many pieces, after which the others have the sum all the same.
        rank = dist.get_rank()
        values = torch.full((5 * large,), 1.0 if rank == 0 else 1e-6)
        with gradlane.torch.use_codec("fixed:10"), warnings.catch_warnings():
            warnings.simplefilter("error")
            if rank == 0:
                dist.all_reduce(values)
            else:
                with self.assertRaises(gradlane.LossWarning):
                    dist.all_reduce(values)
        self.assertEqual((values.min().item(), values.max().item()), (1.0, 1.0))
        ones = torch.ones(5)
        dist.all_reduce(ones)
        self.assertEqual(ones[0].item(), dist.get_world_size())
        dist.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
