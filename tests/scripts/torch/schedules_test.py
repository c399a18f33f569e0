#!/usr/bin/python3
"""Tests elastic trainings with real daemons. Members die, stop, leave, join and lose their links at random.

usage: schedules_test.py GRADLANED [CASE...]

Each training must end with the SHA-256 of a training on one node without failures. SCHEDULES is the number of random
schedules, SEED the first seed. A failed schedule prints its seed and its events.
"""

import ast
import contextlib
import json
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.ports import free_port
from tests.scripts.fixtures.waiting import PATIENCE, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
GRADLANED = ""
NODES = 4
STEPS, SHARDS = 30, 6
STOP_S = (0, 7, 30)  # how long nodes stay stopped, and links cut, at most
PAUSE = {"digits": "0.1", "gpt": "0.05"}


class Node:
    """A node: a process in a network namespace of its own, which forks trainers."""

    def __init__(self, network, number, folder):
        self.number, self.folder, self.count = number, folder, 0
        self.network = network
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GRADLANE_")}
        clean.update(PYTHONPATH=f"{ROOT}:{ROOT / 'client/python'}", GRADLANED=GRADLANED, TMPDIR=str(folder),
                     OMP_NUM_THREADS="1", GRADLANE_INTERFACE="gl0")
        self.process = subprocess.Popen(
            network.command(number, sys.executable, "-m", "tests.scripts.torch.elastic_node"), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=clean, cwd=ROOT)
        self.trainer = None
        self.stopped = []  # pidfds of daemons that were stopped

    def start(self, **environment):
        self.count += 1
        self.output = self.folder / f"node{self.number}.{self.count}"
        self.process.stdin.write(json.dumps({**environment, "output": str(self.output)}) + "\n")
        self.process.stdin.flush()
        self.trainer = int(self.process.stdout.readline())

    def log(self):
        return self.output.read_text() if self.trainer and self.output.exists() else ""

    def step(self):
        steps = [line.split()[1] for line in self.log().splitlines() if line.startswith("step ")]
        return int(steps[-1]) if steps else 0

    def lives(self):
        return self.trainer is not None and pathlib.Path(f"/proc/{self.trainer}").exists()

    def daemons(self):
        """Returns the daemons of the trainer: the processes that it has started."""
        with contextlib.suppress(OSError):
            tasks = pathlib.Path(f"/proc/{self.trainer}/task").glob("*/children")
            return [int(child) for task in tasks for child in task.read_text().split()]
        return []

    def stop_daemons(self):
        for daemon in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                self.stopped.append(os.pidfd_open(daemon))
                os.kill(daemon, signal.SIGSTOP)

    def send(self, number, daemons=True):
        for process in [*(self.daemons() if daemons else []), self.trainer]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def end(self):
        if self.lives():
            self.send(signal.SIGCONT)
            self.send(signal.SIGKILL)
            wait_for(lambda: not self.lives(), "the trainer ends")
        while self.stopped:  # daemons that are still stopped do not notice that their trainer has ended
            daemon = self.stopped.pop()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(daemon, signal.SIGKILL)
            os.close(daemon)


class Elastic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with contextlib.ExitStack() as stack:
            cls.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gl-")))
            cls.network = stack.enter_context(networks.Network(NODES + 1, kernel=True))
            cls.nodes = [Node(cls.network, number, cls.folder) for number in range(NODES)]
            for node in cls.nodes:
                stack.callback(node.process.wait)
                stack.callback(node.process.kill)
            for node in cls.nodes:
                assert node.process.stdout.readline() == "ready\n"
            cls.port = free_port()
            store = subprocess.Popen(
                cls.network.command(NODES, sys.executable, "-m", "gradlane.torch.elastic.serve_store",
                                    f"0.0.0.0:{cls.port}"),
                stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "client/python")})
            stack.callback(store.wait)
            stack.callback(store.kill)
            assert "store is" in store.stdout.readline()
            cls.expected = {}
            cls.count = 0
            cls.stack = stack.pop_all()

    @classmethod
    def tearDownClass(cls):
        for node in cls.nodes:
            node.end()
        cls.stack.close()

    def setUp(self):
        self.addCleanup(self.network.heal)
        self.addCleanup(lambda: [node.end() for node in self.nodes])

    def begin(self, model, nodes, **options):
        """Starts a training on some nodes."""
        type(self).count += 1
        self.environment = {
            "MODEL": model, "STEPS": str(STEPS), "SHARDS": str(SHARDS), "PAUSE": PAUSE[model],
            "GRADLANE_STORE": f"tcp://10.77.0.{NODES + 1}:{self.port}", "GRADLANE_TRAINING": f"t{self.count}",
            "GRADLANE_NODE_COUNT": str(len(nodes)), **options}
        for node in nodes:
            node.start(**self.environment)

    def undisturbed(self, model, **options):
        """Returns the last line of a training on one node."""
        key = model, *options.items()
        if key not in self.expected:
            self.begin(model, self.nodes[:1], **options, PAUSE="0")
            self.expected[key] = self.result(self.nodes[0])
            self.assertEqual(self.expected[key].split()[:2], ["done", str(STEPS)], self.nodes[0].log())
        return self.expected[key]

    def result(self, node):
        wait_for(lambda: not node.lives(), f"node {node.number} ends: {node.log()[-2000:]}", 2 * PATIENCE)
        lines = [line for line in node.log().splitlines() if not line.startswith("gradlane: elastic: ")]
        return lines[-1] if lines else ""

    def wait_for_step(self, step, nodes):
        wait_for(lambda: any(node.step() >= step for node in nodes) or not any(node.lives() for node in nodes),
                 f"step {step}: {[node.log()[-1000:] for node in nodes]}")

    def check(self, model, nodes, **options):
        """Checks that these nodes complete the training with the right bits."""
        for node in nodes:
            self.assertEqual(self.result(node), self.expected[model, *options.items()], node.log())

    def test_sizes(self):
        coded = {"CODEC": "fixed:rel=8"}
        for model, options, sizes in (("digits", {}, (2, 4)), ("gpt", {}, (3,)), ("digits", coded, (2,))):
            self.undisturbed(model, **options)
            for size in sizes:
                with self.subTest(model=model, size=size, **options):
                    self.begin(model, self.nodes[:size], **options, PAUSE="0")
                    self.check(model, self.nodes[:size], **options)

    def test_other_bits(self):
        """A process that computes other bits is refused, and the others go on."""
        self.undisturbed("digits")
        self.begin("digits", self.nodes[:2], PAUSE="0.2")
        self.wait_for_step(2, self.nodes[:2])
        self.nodes[2].start(**self.environment, WRONG="1")
        self.check("digits", self.nodes[:2])
        wait_for(lambda: not self.nodes[2].lives(), "the process ends")
        self.assertIn("computes other bits: its gradients of shard 0", self.nodes[2].log())

    def test_stopped_daemon(self):
        """Operations in flight fail on all members when a daemon does not answer for some seconds."""
        self.undisturbed("digits")
        self.begin("digits", self.nodes[:2])
        self.wait_for_step(5, self.nodes[:2])
        self.nodes[1].stop_daemons()
        self.addCleanup(self.nodes[1].send, signal.SIGCONT)
        wait_for(lambda: "epoch 2" in self.nodes[0].log() + self.nodes[1].log(), "the members change")
        self.nodes[1].send(signal.SIGCONT)
        self.check("digits", self.nodes[:2])

    def test_schedules(self):
        seed = int(os.environ.get("SEED", "1"))
        for number in range(int(os.environ.get("SCHEDULES", "2"))):
            model = ("digits", "gpt")[number % 2]
            self.undisturbed(model)
            with self.subTest(model=model, seed=seed + number):
                self.run_schedule(model, random.Random(seed + number), seed + number)

    # ---- Schedules

    def run_schedule(self, model, chance, seed):
        size = chance.randint(1, NODES)
        members = self.nodes[:size]
        self.gone = set()
        for node in self.nodes:
            node.trainer = None
        self.said = [f"seed {seed}: {model}, {size} nodes"]
        self.begin(model, members)
        step = 0
        for _ in range(chance.randint(2, 4)):
            step += chance.randint(1, 6)
            self.wait_for_step(step, self.nodes)
            self.restore(chance, step)
            for _ in range(chance.choice((1, 1, 1, 2))):
                self.disturb(chance, step)
        print("; ".join(self.said), flush=True)
        time.sleep(chance.choice(STOP_S))
        self.network.heal()
        for node in self.nodes:
            if node.trainer:
                node.send(signal.SIGCONT)
        done = 0
        for node in self.nodes:
            if node.trainer is None:
                continue
            result = self.result(node)
            if result.startswith("done"):
                done += 1
                self.assertEqual(result, self.expected[model,], f"{self.said}\n{node.log()}")
            elif not self.may_end(node, result):
                self.fail(f"{self.said}: node {node.number} ended with {node.log()}")
            node.trainer = None
        self.assertGreater(done, 0, self.said)

    def may_end(self, node, result):
        """Returns whether a node may end without a result: it was killed, has left, or came after the end."""
        return node.number in self.gone or result == "left" or "this training has ended" in result

    def restore(self, chance, step):
        """Restores cut links and continues stopped nodes, or leaves them for later."""
        if chance.random() < 0.5:
            self.network.heal()
            for node in self.nodes:
                if node.lives():
                    node.send(signal.SIGCONT)
            self.said.append(f"step {step}: restore")

    def disturb(self, chance, step):
        alive = [node for node in self.nodes if node.lives()]
        kinds = ["join"] if len(alive) < NODES else []
        if len(alive) > 1:
            kinds += ["kill", "kill node", "leave", "stop", "stop daemon", "cut"]
        kind = chance.choice(kinds)
        if kind == "join":
            node = next(node for node in self.nodes if node not in alive)
            node.start(**self.environment)
            self.gone.discard(node.number)
        else:
            # Node 0 always stays, because one member must have the state.
            node = chance.choice(alive[1:])
            self.disturb_node(kind, node)
        self.said.append(f"step {step}: {kind} {node.number}")

    def disturb_node(self, kind, node):
        if kind in ("kill", "kill node"):
            self.gone.add(node.number)
            node.send(signal.SIGKILL, daemons=kind == "kill node")
            wait_for(lambda: not node.lives(), "the trainer ends")
        elif kind == "leave":
            # It may have no handler yet, or be in no epoch.
            self.gone.add(node.number)
            node.send(signal.SIGTERM, daemons=False)
        elif kind == "stop":
            node.stop_daemons()
            node.send(signal.SIGSTOP, daemons=False)
        elif kind == "stop daemon":
            node.stop_daemons()
        elif kind == "cut":
            self.network.partition([[other.number for other in self.nodes if other is not node] + [NODES]])


class Example(unittest.TestCase):
    """examples/elastic.py, by the commands in its docstring."""

    def setUp(self):
        doc = ast.get_docstring(ast.parse((ROOT / "examples/elastic.py").read_text()))
        self.commands = {name: shlex.split(re.search(rf"^{name}: +(.*)$", doc, re.MULTILINE)[1])
                         for name in ("The store", "Each node")}

    def start(self, name, changes, count=1, **environment):
        """Starts `count` processes by a command, after replacing words in it."""
        words = self.commands[name]
        for old, new in changes.items():
            words = [word.replace(old, new) for word in words]
        given = dict(word.split("=", 1) for word in words if re.match("[A-Z_]+=", word))
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GRADLANE_")}
        clean.update(given, PYTHONPATH=str(ROOT / "client/python"), GRADLANED=GRADLANED, **environment)
        begun = [subprocess.Popen([sys.executable, *words[len(given) + 1:]], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, env=clean, cwd=ROOT / "examples")
                 for _ in range(count)]
        for process in begun:
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
        return begun

    def test_a_node_dies(self):
        store, = self.start("The store", {"0.0.0.0:29400": "127.0.0.1:0"})
        url = store.stdout.readline().split()[-1]
        alone, = self.start("Each node", {"tcp://HOST:29400": url, "COUNT=2": "COUNT=1"}, GRADLANE_TRAINING="alone")
        expected = alone.communicate()[0].splitlines()[-1]
        self.assertRegex(expected, r"^weights [0-9a-f]{16}$")
        one, other = self.start("Each node", {"tcp://HOST:29400": url}, 2)
        self.assertRegex(one.stdout.readline(), "^step 100$")
        other.kill()
        self.assertEqual(one.communicate()[0].splitlines()[-1], expected)


if __name__ == "__main__":
    GRADLANED = os.path.abspath(sys.argv.pop(1))
    networks.require("ip", "nft")
    unittest.main(verbosity=2)
