#!/usr/bin/python3
"""Tests of checkpoints of gradlane.torch's hook. ranks.py runs them, on backend gradlane or gloo."""

import gc
import os
import pathlib
import unittest

import torch
import torch.distributed as dist

import gradlane
import gradlane.torch
from tests.scripts.torch.ddp import BACKEND, RANK, WORLD, Given, Training, draw, same_everywhere, step, wrapped


class Checkpoints(unittest.TestCase):
    def check_resumed(self, codec, feedback, cut, bucket_kib):
        whole = Training(codec, feedback, bucket_kib=bucket_kib)
        whole.run(0, 8)
        first = Training(codec, feedback, bucket_kib=bucket_kib)
        first.run(0, cut)
        second = Training(codec, feedback, bucket_kib=bucket_kib)
        second.load(first.save())
        self.assertEqual(second.save(), first.save())  # save() and load() lose nothing
        second.run(cut, 8)
        for one, other in zip(whole.parameters(), second.parameters()):
            self.assertTrue(torch.equal(one, other))
        self.assertTrue(same_everywhere(second.parameters()))
        return first

    def test_resumed_is_as_not_stopped(self):
        for cut in (1, 2, 5):
            with self.subTest(cut=cut):
                self.check_resumed("fixed:7", True, cut, 8)
        # With one bucket, the bound is the same for any order of its parameters.
        self.check_resumed("fixed:adaptive", True, 4, 1024)

    def test_the_residuals_matter(self):
        whole = Training("fixed:7", True)
        whole.run(0, 6)
        first = Training("fixed:7", True)
        first.run(0, 3)
        saved = first.save()
        second = Training("fixed:7", True)
        second.load(saved)
        second.state.reset()
        second.run(3, 6)
        self.assertFalse(all(torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters())))
        # Loading discards what the state got after the checkpoint, even while the state is in use.
        second.load(saved)
        second.run(3, 6)
        for one, other in zip(whole.parameters(), second.parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_bounds_go_on(self):
        first = Training("fixed:adaptive", False)
        first.run(0, 4)
        self.assertGreater(len(first.state.state_dict()["bounds"]), 1)
        second = Training("fixed:adaptive", False)
        second.load(first.save())
        second.run(4, 5)
        third = Training("fixed:adaptive", False)
        third.load(second.save())
        self.assertEqual(third.state.state_dict()["bounds"], second.state.state_dict()["bounds"])
        self.assertTrue(all(bound["steady"] for bound in second.state.state_dict()["bounds"]))

    def test_of_another_model(self):
        def state_of(*shapes):
            state = gradlane.torch.State("fixed:8", True)
            step(wrapped(Given(*shapes), state), draw(0, shapes))
            return state.state_dict()

        def loading(saved, *shapes):
            state = gradlane.torch.State("fixed:8", True)
            state.load_state_dict(saved)
            step(wrapped(Given(*shapes), state), draw(0, shapes))

        saved = state_of((10,), (4, 5), (6,))
        loading(saved, (10,), (4, 5), (6,))
        cases = [
            (((10,), (5, 4), (6,)), r"its parameter 1 .* has shape \(4, 5\), but here \(5, 4\)"),
            (((10,), (4, 5)), r"it has 3 parameters, of which parameter 2 has shape \(6,\); this model has only 2"),
            (((10,), (4, 5), (6,), (2,)), r"it has 3 parameters, and this model has one more, of shape \(2,\)"),
        ]
        for shapes, text in cases:
            with self.subTest(shapes), self.assertRaisesRegex(Exception, text):
                loading(saved, *shapes)
        state = gradlane.torch.State("fixed:8", True)
        step(wrapped(Given((3,)), state), draw(0, [(3,)]))
        with self.assertRaisesRegex(gradlane.BadArgument, "but here"):
            state.load_state_dict(saved)
        with self.assertRaisesRegex(gradlane.BadArgument, "no error_feedback"):
            gradlane.torch.State("fixed:8").load_state_dict(saved)
        with self.assertRaisesRegex(gradlane.BadArgument, "version"):
            gradlane.torch.State().load_state_dict({})

    def given(self, thawed, state):
        module = Given((5000,), (5000,), (5000,))
        for value, needed in zip(module.values, thawed):
            value.requires_grad_(needed)
        return wrapped(module, state, 16)

    def steps(self, ddp, seeds):
        """Runs a step per seed. All parameters get gradients, except frozen ones."""
        for seed in seeds:
            ddp.zero_grad(set_to_none=True)
            ddp(draw(seed, [(5000,)] * 3)).backward()

    def check_goes_on(self, state, ddp, thawed):
        """Checks that a fresh State with the state dict of `state` gives the same bits as `state`. Returns it and its
        DDP."""
        other = gradlane.torch.State("fixed:7", True)
        other.load_state_dict(state.state_dict())
        fresh = self.given(thawed, other)
        for seed in (14, 15):
            for each in (ddp, fresh):
                self.steps(each, [seed])
            for one, another in zip(ddp.module.values, fresh.module.values):
                self.assertTrue(one.grad is another.grad or torch.equal(one.grad, another.grad))
        for residual, another in zip(state.state_dict()["residuals"], other.state_dict()["residuals"]):
            self.assertTrue(residual.any() and torch.equal(residual, another))
        return other, fresh

    def test_thawed_later(self):
        """The state dict fits a model in which the thawed parameters had gradients from the start. Each parameter gets
        its own residual."""
        state = gradlane.torch.State("fixed:7", True)
        ddp = self.given((True, False, False), state)
        self.steps(ddp, [1])
        for thawed in ((True, True, False), (True, True, True)):
            with self.subTest(thawed):
                for value, needed in zip(ddp.module.values, thawed):
                    value.requires_grad_(needed)
                ddp = wrapped(ddp.module, state, 16)
                self.steps(ddp, (2, 3))
                # The next parameter is thawed in the State that check_goes_on() returns, right after a state dict was
                # loaded into it.
                state.load_state_dict(state.state_dict())
                state, ddp = self.check_goes_on(state, ddp, thawed)

    def test_frozen_later(self):
        """The state dict fits a model that has the parameter frozen from the start. The State itself keeps the residual
        of the frozen parameter.
        """
        state = gradlane.torch.State("fixed:7", True)
        ddp = self.given((True, True, True), state)
        self.steps(ddp, (1, 2))
        ddp.module.values[1].requires_grad_(False)
        ddp = wrapped(ddp.module, state, 16)
        self.steps(ddp, (3, 4))
        saved = state.state_dict()
        state.load_state_dict(saved)
        self.assertEqual((len(saved["shapes"]), saved["frozen"]), (3, 1))
        self.assertTrue(torch.equal(state.state_dict()["residuals"][2], saved["residuals"][2]))
        self.check_goes_on(state, ddp, (True, False, True))
        # Another parameter is frozen instead. Then all parameters have gradients again.
        for thawed in ((True, True, False), (True, True, True)):
            for value, needed in zip(ddp.module.values, thawed):
                value.requires_grad_(needed)
            ddp = wrapped(ddp.module, state, 16)
            self.steps(ddp, (5, 6))
            self.assertEqual(sum(state.state_dict()["buckets"]), sum(thawed))
        self.check_goes_on(state, ddp, (True, True, True))

    def test_of_other_buckets(self):
        """All parameters have one shape. Without the check of buckets, residuals would go to wrong parameters
        unnoticed."""
        shapes = [(3000,)] * 4
        saved = {}
        for kib in (1024, 8):
            state = gradlane.torch.State("fixed:8", True)
            step(wrapped(Given(*shapes), state, kib, find_unused_parameters=True), draw(0, shapes))
            saved[kib] = state.state_dict()
        for kib, other in ((1024, 8), (8, 1024)):
            state = gradlane.torch.State("fixed:8", True)
            state.load_state_dict(saved[kib])
            step(wrapped(Given(*shapes), state, kib, find_unused_parameters=True), draw(1, shapes))
            with self.assertRaisesRegex(gradlane.BadArgument, "of other buckets"):
                state.load_state_dict(saved[other])
            state = gradlane.torch.State("fixed:8", True)
            state.load_state_dict(saved[other])
            with self.assertRaisesRegex(Exception, "of other buckets: bucket 0 of the first step had [14] param"):
                step(wrapped(Given(*shapes), state, kib, find_unused_parameters=True), draw(1, shapes))


class Reconnecting(unittest.TestCase):
    def test_another_process_group(self):
        if BACKEND != "gradlane":
            self.skipTest("the hook has a connection of its own")
        whole = Training("fixed:7", True)
        whole.run(0, 6)
        cut = Training("fixed:7", True)
        cut.run(0, 3)
        dist.barrier()
        dist.destroy_process_group()
        # MASTER_ADDR and MASTER_PORT still name the old store, so the rendezvous of the new group is at a file.
        meeting = f"/tmp/gradlane-test-{os.environ['MASTER_PORT']}"
        self.addCleanup(pathlib.Path(meeting).unlink, missing_ok=True)
        dist.init_process_group(BACKEND, init_method=f"file://{meeting}", rank=RANK, world_size=WORLD)
        cut.ddp = None
        gc.collect()
        cut.ddp = wrapped(cut.model, cut.state, 8)
        cut.run(3, 6)
        for one, other in zip(whole.parameters(), cut.parameters()):
            self.assertTrue(torch.equal(one, other))
