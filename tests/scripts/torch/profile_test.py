#!/usr/bin/python3
"""Tests of gradlane.torch.profile(): the content of a profile, that the model is unchanged, and that gradlane plan
takes it.

GRADLANE in the environment: path of the program.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import unittest.mock


class Profiles(unittest.TestCase):
    def setUp(self):
        import torch

        self.torch, self.nn = torch, torch.nn
        torch.manual_seed(3)

    def net(self):
        return self.nn.Sequential(self.nn.Linear(20, 300), self.nn.BatchNorm1d(300), self.nn.ReLU(), self.nn.Dropout(0.5),
                                  self.nn.Linear(300, 10))

    def profile(self, *arguments, **keywords):
        from gradlane.torch import profile

        return profile(*arguments, **{"steps": 2, **keywords})

    def refused(self, *arguments, **keywords):
        from gradlane import BadArgument

        with self.assertRaises(BadArgument) as caught:
            self.profile(*arguments, **keywords)
        return str(caught.exception)

    def test_layers(self):
        """Layers that get a gradient are listed in the order of forward. Their times are those of backward."""
        net = self.net()
        net[1].bias.requires_grad_(False)
        result = self.profile(net, self.torch.randn(16, 20), name="mine")
        self.assertEqual((result["name"], result["batch"]), ("mine", 16))
        self.assertEqual({layer["name"]: layer["elements"] for layer in result["layers"]},
                         {"0.weight": 6000, "0.bias": 300, "1.weight": 300, "4.weight": 3000, "4.bias": 10})
        names = [layer["name"] for layer in result["layers"]]
        self.assertLess(max(names.index("0.weight"), names.index("0.bias")), names.index("1.weight"))
        self.assertLess(names.index("1.weight"), min(names.index("4.weight"), names.index("4.bias")))
        self.assertGreater(result["forward_ms"], 0)
        spent = sum(layer["backward_ms"] for layer in result["layers"])
        self.assertTrue(0 < spent <= result["backward_ms"] * (1 + 1e-9), result)

    def test_times_are_those_of_backward(self):
        """Backward's times do not depend on how long forward takes. The clock advances by a millisecond per reading."""
        import time

        now = iter(range(1_000_000))
        skipped = 0

        class Slow(self.nn.Linear):
            def forward(self, x):
                nonlocal skipped
                skipped += 300
                return super().forward(x)

        with unittest.mock.patch.object(time, "perf_counter", lambda: (next(now) + skipped) / 1000):
            result = self.profile(Slow(3, 2), self.torch.randn(5, 3), steps=1)
        self.assertTrue(300 < result["forward_ms"] < 310, result)
        spent = sum(layer["backward_ms"] for layer in result["layers"])
        self.assertTrue(0 < spent <= result["backward_ms"] * (1 + 1e-9) < 10, result)

    def test_nothing_else_changes(self):
        torch, net = self.torch, self.net()
        images = torch.randn(16, 20)
        net(images).sum().backward()
        state = {name: value.clone() for name, value in net.state_dict().items()}
        gradients = [(parameter.grad, parameter.grad.clone()) for parameter in net.parameters()]
        random = torch.get_rng_state()
        self.profile(net, images)
        self.assertTrue(torch.equal(torch.get_rng_state(), random))
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, state[name]), name)
        for parameter, (gradient, content) in zip(net.parameters(), gradients):
            self.assertIs(parameter.grad, gradient)
            self.assertTrue(torch.equal(gradient, content))
        self.refused(net, images, loss=lambda output: output)
        self.assertTrue(torch.equal(torch.get_rng_state(), random))
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, state[name]), name)
        for parameter, (gradient, _) in zip(net.parameters(), gradients):
            self.assertIs(parameter.grad, gradient)

    def test_buffers_of_all_kinds(self):
        """Buffers are changed, resized, replaced, or cannot be written. The model is unchanged even if forward fails.
        """
        torch, nn = self.torch, self.nn

        class BucketState(nn.Linear):
            def __init__(self):
                super().__init__(3, 2)
                self.register_buffer("calls", torch.zeros(1))
                self.register_buffer("seen", torch.zeros(0))
                self.register_buffer("spread", torch.zeros(1).expand(8))
                self.register_buffer("nothing", None)
                self.register_buffer("last", torch.ones(2))
                self.most = 1000

            def forward(self, x):
                self.calls = self.calls + 1
                self.seen.resize_(x.shape[0])
                self.seen.fill_(float(self.calls))
                self.last.add_(1)
                if self.calls > self.most:
                    raise ValueError("enough")
                return super().forward(x)

        net = BucketState()
        before = dict(net.named_buffers())
        for most in (1000, 2):
            net.most = most
            if most == 1000:
                self.profile(net, torch.randn(5, 3))
            else:
                with self.assertRaisesRegex(ValueError, "enough"):
                    self.profile(net, torch.randn(5, 3))
            for name, buffer in net.named_buffers():
                self.assertIs(buffer, before[name])
            self.assertEqual((net.calls.tolist(), net.seen.tolist(), net.last.tolist(), net.spread.tolist()),
                             ([0.0], [], [1.0, 1.0], [0.0] * 8))

    def test_forms(self):
        """Models take arguments and keywords, have losses of their own, and use parameters twice or not at all."""
        torch, nn = self.torch, self.nn

        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.unused = nn.Embedding(50, 8), nn.Linear(3, 3)
                self.head = nn.Linear(8, 50, bias=False)
                self.head.weight = self.embedding.weight

            def forward(self, words, scale=1.0):
                return {"loss": self.head(self.embedding(words)).mean() * scale, "words": words}

        words = torch.zeros(4, 6, dtype=torch.long)
        for inputs in (words, (words, 2.0), {"words": words, "scale": 3.0}):
            result = self.profile(Tied(), inputs)
            self.assertEqual([(layer["name"], layer["elements"]) for layer in result["layers"]],
                             [("embedding.weight", 400)])
            self.assertEqual(result["batch"], 4)
        with torch.no_grad():
            result = self.profile(nn.Linear(3, 2), torch.randn(5, 3), batch=7, loss=lambda y: (y ** 2).sum())
        self.assertEqual((result["name"], result["batch"]), ("Linear", 7))

    def test_wrong(self):
        torch, nn = self.torch, self.nn
        x = torch.randn(5, 3)
        self.assertIn("is not a torch.nn.Module", self.refused("resnet50", x))
        self.assertIn("without parameters", self.refused(nn.ReLU(), x))
        self.assertIn("pass batch=", self.refused(nn.Linear(3, 2), {"input": 3}))
        self.assertIn("needs a loss", self.refused(nn.Linear(3, 2), x, loss=lambda y: 3.0))
        self.assertIn("that depends on no parameter",
                      self.refused(nn.Linear(3, 2), x, loss=lambda _: torch.ones(1, requires_grad=True)))
        self.assertIn("cannot write to '/nowhere/p.json': No such file", self.refused(nn.Linear(3, 2), x,
                                                                                      path="/nowhere/p.json"))
        self.assertIn("cannot write to '/'", self.refused(nn.Linear(3, 2), x, path="/"))
        self.assertIn("must be a function", self.refused(nn.Linear(3, 2), x, loss="mse"))
        with tempfile.TemporaryDirectory() as folder:
            self.refused(nn.Linear(3, 2), x, loss=lambda output: output, path=pathlib.Path(folder) / "p.json")
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])
        self.assertIn("weight has no shape yet: call the model once first", self.refused(nn.LazyLinear(2), x))
        self.assertIn("steps is 0", self.refused(nn.Linear(3, 2), x, steps=0))

    def test_the_planner_takes_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mine.json"
            result = self.profile(self.net(), self.torch.randn(16, 20), path=path)
            self.assertEqual(json.loads(path.read_text()), result)
            # replaces the file that the first call has written
            again = self.profile(self.net(), self.torch.randn(16, 20), path=path)
            self.assertEqual(json.loads(path.read_text()), again)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [path])
            plan = subprocess.run([os.environ["GRADLANE"], "plan", "--model", path, "--nodes", "4", "--gbps", "1"], check=False,
                                  capture_output=True, text=True)
            self.assertEqual(plan.returncode, 0, plan)
            self.assertIn("Sequential", plan.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
