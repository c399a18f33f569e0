#!/usr/bin/python3
"""Tests of gradlane.torch's hook with three kinds of codecs: codecs with several state arrays, codecs whose blocks
cannot be summed while encoded, and codecs that scan whole tensors. ranks.py runs them, under gradlane run --strategies
ring,direct.
"""

import io
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import gradlane
import gradlane.torch
from tests.scripts.torch.ddp import SHAPES, WORLD, Given, Training, draw, exact_average, same_everywhere
from tests.scripts.torch.ddp import step, worst, wrapped


def codecs():
    return gradlane.torch.Engine.existing()._context.codecs()


class Rows(unittest.TestCase):
    """Tests of all codecs in the daemon's list."""

    def setUp(self):
        gradlane.torch.State()  # creates the engine
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("error", gradlane.LossWarning)

    def test_training(self):
        """Training reduces the loss, and all ranks have the same weights. There is no LossWarning for values that are
        sent later, or that are noise. The learning rate is small and gradients are large, because sign codecs do not
        send magnitudes."""
        for codec in codecs():
            with self.subTest(codec.example):
                training = Training(codec.example, codec.states > 0, 25.0)
                first = training.loss()
                training.run(0, 10)
                self.assertLess(training.loss(), first)
                self.assertTrue(same_everywhere(training.parameters()))

    def test_of_several_pieces(self):
        """A tensor that is exchanged in several pieces has each state array only once. Each piece uses its own part of
        every array."""
        shapes = [(600_001,)]
        given = draw(1, shapes)
        for codec in codecs():
            with self.subTest(codec.example), warnings.catch_warnings():
                warnings.simplefilter("ignore", gradlane.LossWarning)
                state = gradlane.torch.State(codec.example, codec.states > 0)
                ddp = wrapped(Given(*shapes), state)
                for _ in range(2):
                    self.assertTrue(same_everywhere(step(ddp, given)))
                if codec.states == 0:
                    continue
                (owed,) = state.state_dict()["residuals"]
                self.assertEqual(owed.numel(), codec.states * shapes[0][0])
                for part in owed.view(codec.states, -1)[0].split(shapes[0][0] // 6):
                    self.assertTrue(part.any())


class Encoded(unittest.TestCase):
    """Tests of Engine.all_reduce() with contributions that another program has encoded."""

    def setUp(self):
        gradlane.torch.State()  # creates the engine
        self.engine = gradlane.torch.Engine.existing()

    def test_sums(self):
        """The table and blocks of codec raw are written by hand. The other ranks have floats."""
        rank = dist.get_rank()
        tensor, encoded = self.engine.zeros(5000), self.engine.zeros(24 + 4 * 5000, torch.uint8)
        encoded[:24] = torch.tensor([24, 24 + 4 * 4096, 24 + 4 * 5000]).view(torch.uint8)
        encoded[24:] = (torch.arange(5000, dtype=torch.float32) + rank).view(torch.uint8)
        kept = encoded.clone()
        for first in range(WORLD):
            if rank >= first:
                tensor.fill_(torch.nan)
                self.engine.all_reduce(tensor, codec="raw", encoded=encoded).wait()
            else:
                tensor.copy_(torch.arange(5000) + rank)
                self.engine.all_reduce(tensor, codec="raw", pieces=False).wait()
            torch.testing.assert_close(tensor, torch.arange(5000.0) * WORLD + sum(range(WORLD)), rtol=0, atol=0)
        torch.testing.assert_close(encoded, kept, rtol=0, atol=0)

    def test_what_is_refused(self):
        tensor, encoded = self.engine.zeros(5000), self.engine.zeros(20024, torch.uint8)
        for wrong in (torch.zeros(20024, dtype=torch.uint8), encoded.view(torch.int8), encoded[::2]):
            with self.assertRaisesRegex(gradlane.BadArgument, "`encoded` must be contiguous uint8 of Engine.zeros"):
                self.engine.all_reduce(tensor, codec="raw", encoded=wrong)
        with self.assertRaisesRegex(gradlane.BadArgument, "encoded, and pieces=False, need a tensor of Engine.zeros"):
            self.engine.all_reduce(torch.zeros(5000), codec="raw", encoded=encoded)


class States(unittest.TestCase):
    def setUp(self):
        gradlane.torch.State()  # creates the engine

    def names(self):
        """Returns the names of all codecs that have error feedback."""
        found = [codec.example for codec in codecs() if codec.states > 0]
        self.assertTrue(any(codec.states > 1 for codec in codecs()))
        return found

    def test_nothing_is_lost(self):
        """With the same gradients in each step, the mean of the results converges to these gradients."""
        steps = 24
        size = 2.0**-9, 2.0**-29  # magnitude, unit; so small that codecs with steps of one size catch up, too
        given = exact_average(1, SHAPES, *size)
        for name in self.names():
            with self.subTest(name):
                state = gradlane.torch.State(name, error_feedback=True)
                ddp = wrapped(Given(*SHAPES), state)
                total = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
                for _ in range(steps):
                    result = step(ddp, draw(1, SHAPES, size[0], unit=size[1]))
                    self.assertTrue(same_everywhere(result))
                    for sum_, value in zip(total, result):
                        sum_ += value
                one = torch.cat([value.reshape(-1).double() for value in result])
                exact = torch.cat([value.reshape(-1) for value in given])
                mean = torch.cat([value.reshape(-1) for value in total]) / steps
                self.assertLessEqual(float((mean - exact).norm()), float((one - exact).norm()) + 1e-6)

    def test_defaults(self):
        for codec in codecs():
            if codec.states == 0:
                self.assertFalse(gradlane.torch.State(codec.example).error_feedback)
                text = f"codec '{codec.example}' does not support error_feedback; .* '(fixed:10|signsgd,ef)'"
                with self.assertRaisesRegex(gradlane.BadArgument, text):
                    gradlane.torch.State(codec.example, True)
            else:
                wanted = gradlane.Capability.ADAPTIVE not in codec.flags
                self.assertEqual(gradlane.torch.State(codec.example).error_feedback, wanted, codec.example)
        self.assertFalse(gradlane.torch.State("qsgd:1").error_feedback)
        for name, other in ("qsgd:1", "qsgd:4"), ("signsgd", "signsgd,ef"):
            with self.assertRaisesRegex(gradlane.BadArgument, f"one that does is '{other}'"):
                gradlane.torch.State(name, True)

    def test_checkpoints(self):
        """The sum of sent values and residuals equals the sum of all gradients. Both the contributors and the owner of
        a sum have residuals. This also holds after DDP has rebuilt its buckets, and after a checkpoint, where other
        ranks own sums."""
        for name in [codec.example for codec in codecs() if gradlane.Capability.OWNED in codec.flags and codec.states]:
            with self.subTest(name):
                state = gradlane.torch.State(name)
                ddp = wrapped(Given(*SHAPES), state, 8)
                total = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
                for seed in range(6):
                    if seed == 3:
                        saved = io.BytesIO()
                        torch.save(state.state_dict(), saved)
                        saved.seek(0)
                        state = gradlane.torch.State(name)
                        state.load_state_dict(torch.load(saved))
                        ddp = wrapped(Given(*SHAPES), state, 8)
                    for sum_, sent, exact in zip(total, step(ddp, draw(seed, SHAPES)), exact_average(seed, SHAPES)):
                        sum_ += exact - sent.double()
                for shape, missing, owed in zip(SHAPES, total, state.state_dict()["residuals"]):
                    self.assertEqual(tuple(owed.shape), (2, *shape))
                    debt = owed.double().sum(0) / WORLD
                    dist.all_reduce(debt)
                    self.assertLessEqual(float((missing - debt).abs().max()), 1e-5)

    def test_state_dicts_of_other_codecs(self):
        state = gradlane.torch.State("onebit")
        step(wrapped(Given(*SHAPES), state), draw(0, SHAPES))
        saved = state.state_dict()
        self.assertEqual(saved["codec"], "onebit")
        for other in "fixed:10", "int8":  # codecs with one state array, and with as many as onebit
            with self.assertRaisesRegex(gradlane.BadArgument, f"residuals of codec 'onebit'.*State has codec '{other}'"):
                gradlane.torch.State(other, True).load_state_dict(saved)
        gradlane.torch.State("onebit:512").load_state_dict(saved)
        gradlane.torch.State("int8").load_state_dict({**saved, "residuals": [None] * len(saved["residuals"])})

    def test_state_dicts_that_name_no_codec(self):
        """State dicts of older versions name no codec."""
        state = gradlane.torch.State("onebit")
        step(wrapped(Given(*SHAPES), state), draw(0, SHAPES))
        saved = state.state_dict()
        del saved["codec"]
        with self.assertWarnsRegex(UserWarning, "too old to name the codec of its residuals; assuming that it is onebit"):
            state.load_state_dict(saved)
        with warnings.catch_warnings(), self.assertRaisesRegex(gradlane.BadArgument, "residuals of another codec"):
            warnings.simplefilter("ignore")
            gradlane.torch.State("fixed:10", True).load_state_dict(saved)

    def test_ways(self):
        """A codec whose blocks cannot be summed while encoded uses strategy `direct`. With a strategy that does not
        fit, the error names those that do."""
        name = next(codec.example for codec in codecs() if gradlane.Capability.OWNED in codec.flags and codec.states)
        self.assertIsNone(gradlane.torch.State(name).strategy)
        gradlane.torch.State(name, strategy="direct")
        if WORLD > 1:
            with self.assertRaisesRegex(gradlane.BadArgument, f"{name} does not add, so it needs strategy direct or"):
                gradlane.torch.State(name, strategy="ring")


class Steps(unittest.TestCase):
    def test_warmup(self):
        state = gradlane.torch.State("fixed:4", warmup=3)
        ddp = wrapped(Given(*SHAPES), state, 8)
        for seed in range(5):
            error = worst(step(ddp, draw(seed, SHAPES)), exact_average(seed, SHAPES))
            self.assertEqual(error < 2.0**-19, seed < 3, seed)
        self.assertEqual(state.state_dict()["step"], 5)
        again = gradlane.torch.State("fixed:4", warmup=3)
        again.load_state_dict(state.state_dict())
        again._where = {}
        self.assertEqual(again._step, 5)

    def test_ramp(self):
        state = gradlane.torch.State("fixed:4", warmup=1, ramp=[("fixed:16", 1), ("fixed:10", 2)])
        ddp = wrapped(Given(*SHAPES), state)
        for seed, bits in enumerate((19, 16, 10, 10, 4)):
            error = worst(step(ddp, draw(seed, SHAPES)), exact_average(seed, SHAPES))
            self.assertLessEqual(error, 2.0**-bits + 2.0**-19)
            self.assertGreaterEqual(error, 0 if bits == 19 else 2.0 ** -(bits + 2))
        for ramp, text in (
            ([("raw", 1)], "it must be fixed:B"), ([("fixed:rel=8", 1)], "it must be fixed:B"), ([("fixed:99", 1)], "fixed"), (3, "ramp is 3"),
            ([("fixed:8", 0)], "steps of a ramp"),
        ):
            with self.assertRaisesRegex(gradlane.BadArgument, text):
                gradlane.torch.State("fixed:4", ramp=ramp)
        gradlane.torch.State("topk:1%", ramp=[("topk:10%+fixed:10", 1)])
        with self.assertRaisesRegex(gradlane.BadArgument, "have 0 and 2 arrays of states"):
            gradlane.torch.State("qsgd:4", ramp=[("qsgd:1", 1)])
        for bad in (-1, 1.5, True):
            with self.assertRaisesRegex(gradlane.BadArgument, "warmup"):
                gradlane.torch.State("fixed:4", warmup=bad)


class BucketLayout(unittest.TestCase):
    def test_exact(self):
        """Named parameters are sent exactly, in whichever bucket they are."""
        for bucket_kib in (8, 25 * 1024):
            model = Given(*SHAPES)
            state = gradlane.torch.State("fixed:4", True, exact=["*.1", "values.4"], model=model)
            ddp = wrapped(model, state, bucket_kib)
            for seed in range(3):
                result = step(ddp, draw(seed, SHAPES))
                self.assertTrue(same_everywhere(result))
                exact = exact_average(seed, SHAPES)
                errors = [worst([one], [other]) for one, other in zip(result, exact)]
                self.assertLess(max(errors[1], errors[4]), 2.0**-19)
                self.assertGreater(min(errors[0], errors[3]), 2.0**-7)
            owed = state.state_dict()["residuals"]
            self.assertEqual(float(owed[1].abs().max()), 0)
            self.assertGreater(float(owed[0].abs().max()), 0)
        for exact, model_, text in (
            ("*.bias", model, "a list of patterns"), (["*.bias"], None, "the module"), (["*.bias"], model, "matches"),
        ):
            with self.assertRaisesRegex(gradlane.BadArgument, text):
                gradlane.torch.State("fixed:4", exact=exact, model=model_)

    def test_tensor_by_tensor(self):
        """Codecs that scan a whole tensor get each tensor in an operation of its own, even if it is longer than a
        piece."""
        shapes = [*SHAPES, (1_100_000,)]
        for feedback in (False, True):
            state = gradlane.torch.State("fixed:6", feedback)
            state._plan.looks = True
            ddp = wrapped(Given(*shapes), state)
            for seed in range(3):
                result = step(ddp, draw(seed, shapes))
                self.assertTrue(same_everywhere(result))
                exact = exact_average(seed, shapes)
                errors = [worst([one], [other]) for one, other in zip(result, exact)]
                self.assertLessEqual(max(errors), 2.0**-6 * (2 if feedback else 1) + 2.0**-20)
                self.assertLess(max(errors[2], errors[4]), 2.0**-19)  # tensors that are too small for a codec
                self.assertGreater(min(errors[0], errors[1], errors[5]), 2.0**-9)

    def test_a_failure_is_told(self):
        """The failure of an operation is reported even if it is not the last operation of its bucket."""
        model = Given(*SHAPES)
        state = gradlane.torch.State("fixed:4", exact=["*.1"], model=model)
        ddp = wrapped(model, state)
        step(ddp, draw(0, SHAPES))
        state._plan._codec = "fixed:99"
        with self.assertRaisesRegex(RuntimeError, "fixed:99"):
            step(ddp, draw(1, SHAPES))


class PowerSgd(unittest.TestCase):
    def test_over_the_backend(self):
        """PyTorch's own PowerSGD hook runs over the backend, which sums its factors."""
        for codec in ("raw", "fixed:16"):
            with self.subTest(codec), gradlane.torch.use_codec(codec):
                training = Training("raw", False)
                ddp = DistributedDataParallel(training.model)
                state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2,
                                                    min_compression_rate=0.5)
                ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
                training.ddp = ddp
                first = training.loss()
                training.run(0, 40)
                self.assertLess(training.loss(), 0.9 * first)
                self.assertTrue(same_everywhere(training.model.parameters()))
