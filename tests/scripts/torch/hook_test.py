#!/usr/bin/python3
"""Tests of gradlane.torch's hook. ranks.py runs them, on backend gradlane or gloo."""

import gc
import math
import os
import subprocess
import sys
import unittest
import unittest.mock

import torch
import torch.distributed as dist

import gradlane
import gradlane.torch
from tests.scripts.torch.ddp import BACKEND, RANK, SHAPES, WORLD, Given, Training, draw, exact_average, rms
from tests.scripts.torch.ddp import same_everywhere, step, worst, wrapped


class Average(unittest.TestCase):
    def test_within_the_bound(self):
        for codec, bound in (("fixed:10", 2.0**-10), ("fixed:6", 2.0**-6), ("raw", 0)):
            for feedback in (False,) if codec == "raw" else (False, True):
                with self.subTest(codec=codec, feedback=feedback):
                    ddp = wrapped(Given(*SHAPES), gradlane.torch.State(codec, feedback), 8)
                    for seed in range(4):
                        result = step(ddp, draw(seed, SHAPES))
                        # With feedback, the residual adds as much error again.
                        allowed = bound * (2 if feedback else 1) + 2.0**-20
                        self.assertLessEqual(worst(result, exact_average(seed, SHAPES)), allowed)
                        self.assertTrue(same_everywhere(result))

    @unittest.skipIf(BACKEND == "gloo", "nothing is counted there")
    def test_explained(self):
        ddp = wrapped(Given(*SHAPES), gradlane.torch.State("raw", False), 8)
        gradlane.torch.call_statistics.clear()
        step(ddp, draw(1, SHAPES))
        rows = [row for row in gradlane.torch.explain(show=False) if row["operation"] == "gradients of the hook"]
        self.assertEqual([(row["where"], row["bytes"]) for row in rows],
                         [("gradlane", 4 * sum(math.prod(shape) for shape in SHAPES))])

    def test_chosen_by_the_library(self):
        """Every codec that the library tries or chooses is within the bound, and ranks have the same results."""
        shapes = [(300_000,), (600, 600), (100,)]
        for feedback in (False, True):
            with self.subTest(feedback=feedback):
                ddp = wrapped(Given(*shapes), gradlane.torch.State("auto:2^-10", feedback), 8)
                for seed in range(16):
                    result = step(ddp, draw(seed, shapes))
                    allowed = 2.0**-10 * (2 if feedback else 1) + 2.0**-20
                    self.assertLessEqual(worst(result, exact_average(seed, shapes)), allowed)
                    self.assertTrue(same_everywhere(result))

    def test_types(self):
        types = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
        if BACKEND == "gloo":
            types[3] = torch.float16  # Gloo has no bfloat16 for DDP's broadcast at the start
        shapes = [(100,), (2000,), (30, 30), (500,), (5,), (1,)]
        state = gradlane.torch.State("fixed:10", error_feedback=True)
        self.assertRegex(repr(state), r"State\(codec='fixed:10', error_feedback=True\): rank \d of \d>$")
        ddp = wrapped(Given(*shapes, dtypes=types), state, 2)
        for seed in range(4):
            # All types hold these whole numbers and their sums.
            given = [(torch.arange(math.prod(shape)) * 3 + RANK + seed).remainder(5).reshape(shape) for shape in shapes]
            result = step(ddp, given)
            for shape, dtype, got in zip(shapes, types, result):
                parts = [(torch.arange(math.prod(shape)) * 3 + rank + seed).remainder(5) for rank in range(WORLD)]
                exact = (sum(parts).double() / WORLD).reshape(shape)
                self.assertEqual(got.dtype, dtype)
                torch.testing.assert_close(got.double(), exact, rtol=float(torch.finfo(dtype).eps), atol=0)
        residuals = state.state_dict()["residuals"]
        self.assertEqual(sorted(r is not None for r in residuals), [False] * 4 + [True] * 2)

    def test_packed_halves(self):
        """Gradients of 16 bits go through pack, and have the bits of uncompressed ones."""
        shapes, types = [(30, 100), (20011,)], [torch.float16, torch.bfloat16]
        results = []
        for codec in ("raw", "pack"):
            state = gradlane.torch.State(codec)
            ddp = wrapped(Given(*shapes, dtypes=types), state, 2)
            with unittest.mock.patch.object(state._engine, "all_reduce", wraps=state._engine.all_reduce) as calls:
                results.append(step(ddp, draw(1, shapes)))
            self.assertEqual({call.kwargs["codec"] for call in calls.mock_calls}, {codec})
        for raw, packed in zip(*results):
            self.assertTrue(torch.equal(packed.view(torch.int16), raw.view(torch.int16)))

    def test_no_sync(self):
        state = gradlane.torch.State("fixed:10", error_feedback=True)
        ddp = wrapped(Given(*SHAPES), state, 8)
        for seed in range(0, 6, 3):
            ddp.zero_grad(set_to_none=True)
            with ddp.no_sync():
                ddp(draw(seed, SHAPES)).backward()
                ddp(draw(seed + 1, SHAPES)).backward()
            ddp(draw(seed + 2, SHAPES)).backward()
            exact = [sum(values) for values in zip(*[exact_average(seed + i, SHAPES) for i in range(3)])]
            self.assertLessEqual(worst([v.grad for v in ddp.module.values], exact), 2.0**-9 + 2.0**-20)

    def test_two_models(self):
        states = [gradlane.torch.State("fixed:8", True), gradlane.torch.State("fixed:adaptive", True)]
        models = [wrapped(Given(*SHAPES), states[0], 8), wrapped(Given(*SHAPES[::-1]), states[1], 8)]
        for seed in range(4):
            self.assertLessEqual(worst(step(models[0], draw(seed, SHAPES)), exact_average(seed, SHAPES)), 2.0**-7)
            other = exact_average(seed, SHAPES[::-1], 1e-3)
            result = step(models[1], draw(seed, SHAPES[::-1], 1e-3))
            self.assertLessEqual(worst(result, other), 3 * 2.0**-4 * 1e-3)
        for state, shapes in zip(states, (SHAPES, SHAPES[::-1])):
            self.assertEqual([tuple(r.shape) for r in state.state_dict()["residuals"]], shapes)


class Residuals(unittest.TestCase):
    def check_nothing_is_lost(self, state, magnitudes):
        """Checks that sent values plus residuals are all gradients, to the last bit."""
        unit = 2.0**-34
        layouts = []

        def spy(state, bucket):
            layouts.append((bucket.index(), len(bucket.parameters())))
            return gradlane.torch.hook(state, bucket)

        ddp = wrapped(Given(*SHAPES), state, 8, spy)
        total = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
        for seed, magnitude in enumerate(magnitudes):
            result = step(ddp, draw(seed, SHAPES, magnitude, unit=unit))
            for sum_, sent, exact in zip(total, result, exact_average(seed, SHAPES, magnitude, unit)):
                # All sent values are multiples of the unit, but the quotients by WORLD are not.
                sum_ += ((sent.double() - exact) * (WORLD / unit)).round() * unit
        for number, owed in enumerate(state.state_dict()["residuals"]):
            owed = owed.double()
            self.assertGreater(float(owed.abs().max()), 0)
            dist.all_reduce(owed)
            self.assertEqual(float((total[number] + owed).abs().max()), 0)
        # DDP must have rebuilt its buckets. Otherwise this has tested little.
        self.assertEqual(layouts[0], (0, len(SHAPES)))
        self.assertGreater(len(layouts), 2 * len(magnitudes))

    def test_fixed(self):
        # Gradients have few enough bits that fp32 holds gradient plus residual.
        self.check_nothing_is_lost(gradlane.torch.State("fixed:14", True), [2.0**-14] * 6)

    def test_auto(self):
        # The magnitude changes twice, and each time a raw step sends all residuals.
        magnitudes = [2.0**-14] * 3 + [2.0**-18] * 3 + [2.0**-14] * 3
        for codec in ("fixed:adaptive", "fixed:adaptive:1"):
            with self.subTest(codec):
                self.check_nothing_is_lost(gradlane.torch.State(codec, True), magnitudes)

    def test_feedback_trains_where_rounding_does_not(self):
        inputs = torch.randn(64, 10, generator=torch.Generator().manual_seed(RANK))
        targets = (inputs @ torch.linspace(-0.02, 0.02, 10)).unsqueeze(1).expand(64, 128)
        losses = {}
        for feedback in (False, True):
            model = torch.nn.Linear(10, 128)  # a sum of fewer than 1024 gradients would be exact
            torch.nn.init.zeros_(model.weight)
            torch.nn.init.zeros_(model.bias)
            ddp = wrapped(model, gradlane.torch.State("fixed:4", feedback))
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.02)
            losses[feedback] = []
            for _ in range(200):
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(ddp(inputs), targets, reduction="sum") / 64
                loss.backward()
                optimizer.step()
                losses[feedback].append(float(loss))
            self.assertTrue(same_everywhere(model.parameters()))
        # All gradients are below half a step of 2^-3.
        self.assertEqual(losses[False][-1], losses[False][0])
        self.assertLess(losses[True][-1], 0.2 * losses[True][0])


class Auto(unittest.TestCase):
    def test_gradients_of_1e_6(self):
        losses = {}
        for codec in ("raw", "fixed:10", "fixed:adaptive", "fixed:adaptive:6"):
            # Gradients are 1e-6 and less. They are in one bucket, because sums of fewer than 1024 elements are exact.
            training = Training(codec, False, scale=1e-5, bucket_kib=64)
            before, first = training.parameters(), training.loss()
            training.run(0, 60)
            losses[codec] = training.loss()
            if codec == "fixed:10":
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(before, training.parameters())))
            self.assertTrue(same_everywhere(training.parameters()))
        self.assertLess(losses["raw"], 0.5 * first)
        self.assertLess(abs(losses["fixed:adaptive"] - losses["raw"]), 0.05 * losses["raw"])
        self.assertLess(abs(losses["fixed:adaptive:6"] - losses["raw"]), 0.02 * losses["raw"])

    def test_promise(self):
        for bits, feedback in ((4, False), (4, True), (1, False), (1, True)):
            ddp = wrapped(Given((5000,)), gradlane.torch.State(f"fixed:adaptive:{bits}", feedback))
            previous = None
            for seed, magnitude in enumerate([1e-3] * 4 + [1e-5] * 3 + [1.0] * 3 + [0.0] * 2 + [1e-2] * 3):
                unit = 2.0**-40 if magnitude < 1e-4 else 2.0**-20
                result = step(ddp, draw(seed, [(5000,)], magnitude, unit=unit))
                exact = exact_average(seed, [(5000,)], magnitude, unit)
                self.assertTrue(same_everywhere(result))
                if previous is not None and not feedback:
                    self.assertLessEqual(worst(result, exact), 2.0**-bits * previous + 2.0**-22 * magnitude)
                previous = max(rms(result), 2.0**-40)

    def test_nan(self):
        for codec in ("fixed:10", "fixed:adaptive", "raw"):
            with self.subTest(codec):
                ddp = wrapped(Given(*SHAPES), gradlane.torch.State(codec, codec != "raw"), 8)
                for seed in range(6):
                    given = draw(seed, SHAPES, 0.1)
                    if seed == 3 and RANK == WORLD - 1:
                        given[1][1234] = math.nan
                        given[3][5, 6] = math.inf
                    result = step(ddp, given)
                    self.assertTrue(same_everywhere(result))
                    exact = exact_average(seed, SHAPES, 0.1)
                    if seed == 3:
                        self.assertTrue(result[1][1234].isnan())
                        self.assertTrue(result[3][5, 6].isinf())
                        result[1][1234] = exact[1][1234]
                        result[3][5, 6] = exact[3][5, 6]
                    self.assertLessEqual(worst(result, exact), 0.1 * 2.0**-2)


class Errors(unittest.TestCase):
    def test_feedback_needs_fixed(self):
        for codec in ("raw", "bf16", "inceptionn:8"):
            with self.assertRaisesRegex(gradlane.BadArgument, f"codec '{codec}' does not support error_feedback.*'fixed:10'"):
                gradlane.torch.State(codec, error_feedback=True)
        with self.assertRaisesRegex(gradlane.BadArgument, "error_feedback 'no' is str"):
            gradlane.torch.State("fixed:8", "no")

    def test_wrong_where_it_is_said(self):
        for codec, listed in (("fixd:10", " raw, pack, exact, bf16, "), ("fixed:31", "usage: fixed:B or "), ("fixed:adaptive:20", "")):
            with self.assertRaisesRegex(gradlane.BadArgument, f"codec '{codec}'[:;] .*{listed}.*BITS 1 to 12"):
                gradlane.torch.State(codec)
        with self.assertRaisesRegex(gradlane.BadArgument, "strategy 'star': the daemon allows ring.* .strategies in"):
            gradlane.torch.State(strategy="star")
        self.assertRegex(repr(gradlane.torch.State("raw", strategy="ring")), "State.codec='raw', .*, strategy='ring'.: rank")
        with self.assertRaisesRegex(gradlane.BadArgument, "codec 10 is int; allowed: a name"):
            gradlane.torch.State(codec=10)
        with self.assertRaisesRegex(gradlane.BadArgument, "process_group is list; leave it out"):
            gradlane.torch.State(process_group=[0, 1])

    def test_what_is_not_said(self):
        for codec in (None, "fixed", "fixed:adaptive"):
            for feedback in (None, False, True):
                state = gradlane.torch.State(codec, feedback)
                self.assertEqual((state.codec, state.error_feedback), ("fixed:adaptive", feedback is not False))
        for codec in ("raw", "fixed:8"):
            self.assertFalse(gradlane.torch.State(codec).error_feedback)

    def test_no_state(self):
        ddp = wrapped(Given((5,)), None)
        with self.assertRaisesRegex(Exception, "register_comm_hook"):
            step(ddp, draw(0, [(5,)]))

    def test_no_daemon(self):
        if RANK != 0:
            return
        # The socket is named, because otherwise another daemon of this machine would be found.
        environment = os.environ | {"GRADLANE_SOCKET": "/nowhere/n0.sock"}
        run = subprocess.run([sys.executable, "-c", "import gradlane.torch; gradlane.torch.State()"], env=environment,
                             capture_output=True, text=True, check=False)
        self.assertIn("no daemon at /nowhere/n0.sock", run.stderr)

    def test_subgroup(self):
        if WORLD < 2 or BACKEND != "gloo":
            self.skipTest("needs a backend with subgroups")
        group = dist.new_group([0])
        if RANK == 0:
            with self.assertRaisesRegex(gradlane.BadArgument, "rank 0 of 1 of the job"):
                gradlane.torch.State(process_group=group)

    def test_failure(self):
        """If ranks disagree about the codec of a bucket, the step fails on all ranks. Residuals and bounds then start
        again from zero."""
        if WORLD < 2:
            self.skipTest("there are no other ranks")
        state = gradlane.torch.State("fixed:adaptive", error_feedback=True)
        shape, module = (5000,), Given((5000,))
        ddp = wrapped(module, state)
        for seed in range(3):
            step(ddp, draw(seed, [shape], 0.1))
        self.assertGreater(float(state.state_dict()["residuals"][0].abs().max()), 0)
        if RANK == 1:
            kept, _ = state._where[module.values[0]]
            kept.reset()  # rank 1 sends this bucket raw, the others with fixed:B
        with self.assertRaisesRegex(Exception, "OperationFailed"):
            step(ddp, draw(4, [shape], 0.1))
        if RANK == 1:  # the other ranks learn of the failure in the next step
            self.assertEqual(float(state.state_dict()["residuals"][0].abs().max()), 0)
            self.assertEqual(state.state_dict()["bounds"][0]["squares"], [])
        # A DDP that has failed cannot be used any more.
        del ddp
        gc.collect()
        result = step(wrapped(module, state), draw(5, [shape], 0.1))
        self.assertLessEqual(worst(result, exact_average(5, [shape], 0.1)), 2.0**-20)

    def test_reset_after_a_failure(self):
        """Ranks had different numbers of buckets queued when an operation failed. So the number of operations differs
        between them."""
        if WORLD < 2 or BACKEND != "gloo":
            self.skipTest("with other backends make the process group again instead")
        shapes = [(600000,)] * 4
        module, state = Given(*shapes), gradlane.torch.State("fixed:adaptive", error_feedback=True)

        store = dist.distributed_c10d._get_default_store()

        def late(state, bucket):
            if RANK == 1:
                store.wait(["rank 0 has queued all buckets"])
            future = gradlane.torch.hook(state, bucket)
            if RANK == 0 and bucket.is_last():
                store.set("rank 0 has queued all buckets", "")
            return future

        ddp = wrapped(module, state, 1024)
        for seed in range(3):
            step(ddp, draw(seed, shapes, 0.1))
        if RANK == 1:
            for kept, _ in state._where.values():
                kept.reset()
        ddp = None
        gc.collect()
        ddp = wrapped(module, state, 1024, late)
        with self.assertRaisesRegex(Exception, "OperationFailed"):
            step(ddp, draw(3, shapes, 0.1))
        for seed in range(4, 6):
            ddp = None
            gc.collect()
            state.reset()
            ddp = wrapped(module, state, 1024)
            self.assertLessEqual(worst(step(ddp, draw(seed, shapes, 0.1)), exact_average(seed, shapes, 0.1)), 2.0**-20)


class Sparse(unittest.TestCase):
    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.embedding = torch.nn.Embedding(40, 8, sparse=True)
            self.linear = torch.nn.Linear(8, 200)

        def forward(self, words):
            return self.linear(self.embedding(words).mean(1))

    def test_an_embedding_is_averaged_exactly(self):
        model, alone = self.Words(), self.Words()
        state = gradlane.torch.State("raw")
        ddp = wrapped(model, state, 1)
        for seed in range(3):
            given = [torch.randint(0, 40, (16, 3), generator=torch.Generator().manual_seed(10 * seed + rank))
                     for rank in range(WORLD)]
            for module, words in ((ddp, given[RANK]), (alone, torch.cat(given))):
                module.zero_grad()
                module(words).square().mean().backward()
            for one, other in zip(model.parameters(), alone.parameters()):
                self.assertEqual(one.grad.is_sparse, other.grad.is_sparse)
                self.assertLess(float((one.grad.to_dense() - other.grad.to_dense()).abs().max()), 1e-6)
        self.assertEqual(len(state.state_dict()["shapes"]), 2)  # shapes of the dense parameters


class Compiled(unittest.TestCase):
    def test_nothing_of_gradlane_is_compiled(self):
        """torch.compile() compiles a step with its backward pass. The hook and the backend run uncompiled."""
        training, plain = (Training("fixed:10", True, bucket_kib=4096) for _ in range(2))

        def run(one, inputs):
            one.ddp(inputs).square().mean().backward()
            counts = torch.ones(3)
            dist.all_reduce(counts)
            one.optimizer.step()
            one.optimizer.zero_grad()
            return counts

        compiled = torch.compile(run, backend="eager")
        for number in range(4):
            inputs = torch.randn(8, 20, generator=torch.Generator().manual_seed(100 * number + RANK))
            for one, how in ((training, compiled), (plain, run)):
                self.assertEqual(how(one, inputs).tolist(), [WORLD] * 3)
        for one, other in zip(training.parameters(), plain.parameters()):
            self.assertTrue(torch.equal(one, other))
