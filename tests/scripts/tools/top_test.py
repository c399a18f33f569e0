#!/usr/bin/python3
"""Tests `gradlane top` in a real terminal (tmux): which of four nodes is slow, who waits for whom, what comes and goes.

Usage: top_test.py GRADLANE GRADLANED. A ring of four runs in network namespaces, and one cable is shaped down. Needs
root.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.screens import Screen
from tests.scripts.fixtures.trainers import Trainers
from tests.scripts.fixtures.waiting import wait_for

GRADLANE, GRADLANED = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
NODES = 4
SLOW = 2  # node whose cable is slow


class TopTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        network = stack.enter_context(networks.Network(NODES, rate="200mbit"))
        cls.ring = stack.enter_context(rings.Ring("veth", NODES, folder, GRADLANED, network)).start().wait_whole()
        switch = network.spaces["sw"].name
        subprocess.run(f"tc -n {switch} qdisc replace dev p{SLOW} root tbf rate 20mbit burst 32768 latency 20ms".split(),
                       check=True)
        cls.trainers = Trainers(cls.ring, late=SLOW)
        stack.callback(cls.trainers.close)
        cls.folder = folder
        cls.command = f"{GRADLANE} top --admin {folder}/n0.admin"

    def screen(self):
        screen = Screen(pathlib.Path(tempfile.mkdtemp(dir=self.folder)))
        self.addCleanup(screen.close)
        return screen

    def lines(self, *options, **environment):
        return subprocess.run([*self.command.split(), *options], capture_output=True, text=True, timeout=30, check=True,
                              env={**os.environ, **environment}).stdout

    def test_1_slowest_link(self):
        """The screen is 80x24, wide and very small. Afterwards the terminal is as it was before."""
        screen = self.screen()
        screen.run(f"stty -g > {self.folder}/before; {self.command}; echo ov''er; stty -g > {self.folder}/after; echo end")
        text = screen.wait(f"1 -> {SLOW} .*<< slowest")
        self.assertIn(f"slowest link: node 1 -> node {SLOW}: full ", text)
        self.assertRegex(text, rf"(?m)^1 +whole .* the link to node {SLOW}$")
        self.assertRegex(text, r"(?m)^0 +whole .* packets of node 3$")
        self.assertNotIn("in flight", text)
        self.assertIn("\x1b[33m", screen.text("-e"), "colours")
        self.assertNotIn("ready>", text, "another screen")
        screen.resize(140, 30)
        text = screen.wait("in flight")
        self.assertRegex(text, r"10\.77\.0\.3")
        screen.resize(30, 8)
        wait_for(lambda: len(screen.text().rstrip("\n").splitlines()) <= 8 and "gradlane top" in screen.text(), "8 lines")
        screen.resize(80, 24)
        screen.wait("slowest")
        screen.type("q")
        text = screen.wait("(?m)^over$(.*\n)*^end$")
        self.assertNotIn("slowest", text)
        self.assertEqual(*((self.folder / name).read_text() for name in ("before", "after")))

    def test_2_plain(self):
        """The output works without colours, screen or terminal, and after Ctrl-C and Ctrl-Z."""
        screen = self.screen()
        screen.run(f"NO_COLOR=1 {self.command}; echo over")
        screen.wait("slowest")
        self.assertNotIn("\x1b[33m", screen.text("-e"))
        screen.type("C-z")
        screen.wait("(?i)stopped|suspended")
        screen.run("fg")
        screen.wait("gradlane top.*\n(.*\n)*1 -> 2")
        screen.type("C-c")
        screen.wait("ready>")
        screen.run(f"clear; TERM=dumb {self.command}; echo do''ne")
        text = screen.wait("(?m)^done$")
        self.assertIn("slowest", text)

        text = self.lines()
        self.assertNotIn("\x1b", text)
        self.assertRegex(text, f"(?m)^1 -> {SLOW} .*<< slowest$")
        document = json.loads(self.lines("--json"))
        (slowest,) = [link for link in document["links"] if link["mark"] == "slowest"]
        self.assertEqual((slowest["from"], slowest["to"]), (1, SLOW))
        self.assertGreater(slowest["full"], 0.3)
        self.assertEqual([(node["node"], node["state"]) for node in document["nodes"]],
                         [(node, "whole") for node in range(NODES)])
        for node in document["nodes"]:
            self.assertGreater(node["ratio"], 2)
        alone = json.loads(self.lines("--json", "--one"))
        self.assertEqual([node["state"] for node in alone["nodes"]], ["whole", "not asked", "not asked"])

    def test_3_late_trainer(self):
        self.trainers.late.set()
        screen = self.screen()
        screen.run(self.command)
        screen.wait(rf"(?m)^{SLOW} +whole .* its own trainer\n3 +whole .* trainer of node {SLOW}$")
        self.trainers.late.clear()
        screen.wait(rf"(?m)^1 +whole .* the link to node {SLOW}$")
        screen.type("q")

    def test_4_daemons_come_and_go(self):
        screen = self.screen()
        screen.run(self.command)
        screen.wait("slowest")
        self.ring.stop(3)
        text = screen.wait(r"\d\d:\d\d:\d\d node 3 has gone: no answer")
        self.assertRegex(text, r"the ring is not ready: node 3 is gone")
        self.ring.cont(3)
        screen.wait(r"node 3 answers again")
        self.ring.kill(3)
        screen.wait(r"node 3 has gone: (no daemon listens|there is no)")
        self.ring.start_node(3)
        screen.wait(r"node 3 has restarted, pid \d+")
        screen.type("q")

    def test_5_faults(self):
        for options, status, words in ((["--admin", "/nowhere.admin"], 3, "is the daemon running"),
                                       (["--interval", "0"], 2, "0.1 to 3600"),
                                       (["--rank", "1"], 2, "--rank")):
            ended = subprocess.run([GRADLANE, "top", *options], capture_output=True, text=True, timeout=20, check=False)
            self.assertEqual((ended.returncode, ended.stdout), (status, ""))
            self.assertIn(words, ended.stderr)


if __name__ == "__main__":
    networks.require("tmux")
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
