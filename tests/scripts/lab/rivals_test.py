#!/usr/bin/python3
"""Checks that the codecs of lab/papers/rivals.py do what the papers define. Needs PyTorch and a C++ compiler.

rivals_test.py
"""

import sys
import unittest

import torch

from lab.papers import rivals

FLOATS = 1 << 15
SIGMA = 0.01


def gradients(seed):
    return torch.randn(FLOATS, generator=torch.Generator().manual_seed(seed)) * SIGMA


class RivalsTest(unittest.TestCase):
    def test_onebit(self):
        rival = rivals.RIVALS["onebit"](FLOATS)
        x = torch.zeros(FLOATS)
        for seed in range(3):
            x += gradients(seed)
            decoded = rival.decode(rival.encode(gradients(seed))).clone()
            expected = torch.where(x >= 0, x[x >= 0].mean(), x[x < 0].mean())
            torch.testing.assert_close(decoded, expected, rtol=1e-4, atol=1e-7)
            x -= decoded
            kept = rival.states[0]
            kept = kept - torch.where(kept >= 0, rival.high, rival.low)  # which the next encode does
            torch.testing.assert_close(kept, x, rtol=1e-4, atol=1e-6)

    def test_tbq(self):
        rival = rivals.RIVALS["tbq:7"](FLOATS)
        x = torch.zeros(FLOATS)
        for seed in range(3):
            x += gradients(seed)
            decoded = rival.decode(rival.encode(gradients(seed))).clone()
            t = rivals.THRESHOLD
            expected = torch.where(x >= t, t, torch.where(x <= -t, -t, 0.0))
            self.assertTrue(torch.equal(decoded, expected))
            x -= decoded
            torch.testing.assert_close(rival.states[0], x, rtol=0, atol=1e-7)

    def test_terngrad(self):
        trials = 300
        rival = rivals.RIVALS["terngrad"](FLOATS)
        x, total = gradients(1), torch.zeros(FLOATS)
        scale = min(x.abs().max().item(), rivals.CLIP * x.square().mean().sqrt().item())
        for _ in range(trials):
            decoded = rival.decode(rival.encode(x))
            torch.testing.assert_close(decoded.abs().unique(), torch.tensor([0, scale]), rtol=1e-4, atol=0)
            self.assertTrue(bool((decoded * x >= 0).all()))
            total += decoded
        off = (total / trials - x.clamp(-scale, scale)).abs().max().item()
        self.assertLess(off, 6 * scale / (2 * trials ** 0.5))

    def check_sparse(self, rival, velocity, sums, seed):
        """Encodes. Checks that the largest sums are sent and forgotten, about as many as wanted."""
        places, values = rival.encode(gradients(seed))
        decoded = rival.decode((places, values)).clone()
        sent = decoded != 0
        self.assertEqual(int(sent.sum()), places.numel())
        torch.testing.assert_close(decoded[sent], sums[sent], rtol=1e-5, atol=0)
        self.assertGreaterEqual(sums[sent].abs().min().item() * (1 + 1e-6), sums[~sent].abs().max().item())
        self.assertGreaterEqual(places.numel(), rivals.LEAST * rival.wanted)
        self.assertLessEqual(places.numel(), rivals.MOST * rival.wanted)
        for state in (velocity, sums):
            state[sent] = 0
        torch.testing.assert_close(rival.states[-1], sums, rtol=1e-5, atol=1e-8)

    def test_places_of_long_masks(self):
        mask = torch.rand(1 << 18, generator=torch.Generator().manual_seed(1)) < 0.001
        self.assertTrue(torch.equal(rivals.places_of(mask), mask.nonzero().view(-1)))

    def test_forget(self):
        rival = rivals.RIVALS["dgc:0.1%"](FLOATS)
        first = rival.encode(gradients(1))
        rival.forget()
        for one, other in zip(first, rival.encode(gradients(1))):
            self.assertTrue(torch.equal(one, other))

    def test_dgc(self):
        rival = rivals.RIVALS["dgc:0.1%"](FLOATS)
        velocity, sums = torch.zeros(FLOATS), torch.zeros(FLOATS)
        for seed in range(3):
            velocity.mul_(rivals.MOMENTUM).add_(gradients(seed))
            sums += velocity
            self.check_sparse(rival, velocity, sums, seed)
        torch.testing.assert_close(rival.states[0], velocity, rtol=1e-5, atol=1e-8)

    def test_graddrop(self):
        rival = rivals.RIVALS["graddrop:0.1%"](FLOATS)
        sums = torch.zeros(FLOATS)
        for seed in range(3):
            sums += gradients(seed)
            self.check_sparse(rival, sums, sums, seed)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    unittest.main(argv=sys.argv[:1])
