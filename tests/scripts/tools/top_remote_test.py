#!/usr/bin/python3
"""Tests `gradlane top` where each node is a machine of its own. It asks the other nodes at their metrics' ports.

Usage: top_remote_test.py GRADLANE GRADLANED. A ring of four runs in network namespaces, and one cable is shaped down.
Each node has a folder with its own admin socket and no other. Needs root.
"""

import contextlib
import json
import os
import pathlib
import random
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.screens import Screen
from tests.scripts.fixtures.trainers import Trainers
from tests.scripts.fixtures.waiting import PATIENCE, wait_for
from lab.net.spaces import Spaces

GRADLANE, GRADLANED = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
NODES = 4
SLOW = 2  # node whose cable is slow
LAST = NODES - 1
PORT = 9400
MOST_GROWTH = 40 << 10  # KiB; largest additional memory for a wrong answer
GET = """
import json, sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[2], method=sys.argv[1])
try:
    answer = urllib.request.urlopen(request, timeout=10)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.headers["Content-Type"], answer.read().decode()]))
"""


def alone(folder, node):
    """Returns the admin socket of one node, in a folder that has no other."""
    path = folder / f"alone{node}"
    path.mkdir(exist_ok=True)
    link = path / f"n{node}.admin"
    if not link.is_symlink():
        link.symlink_to(folder / f"n{node}.admin")
    return link


def run_measured(command):
    """Runs the command. Returns its output and its largest memory (KiB)."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)
        killer = threading.Timer(PATIENCE, process.kill)
        killer.start()
        _, status, usage = os.wait4(process.pid, 0)
        killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, process.returncode
        output.seek(0)
        return output.read(), usage.ru_maxrss


class Peer:
    """Server that answers at a node's address and port in its place. It sends `first`, and then `more` until nobody
    listens."""

    def __init__(self, space, address, first=b"", more=b"", pause=0.0):
        self.first, self.more, self.pause = first, more, pause
        with space.inside():
            self.listener = socket.create_server((address, PORT))
        self.listener.settimeout(0.1)
        self.end = threading.Event()
        self.came = 0
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self):
        while not self.end.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = self.listener.accept()
                self.came += 1
                self.threads.append(threading.Thread(target=self._serve, args=[client]))
                self.threads[-1].start()

    def _serve(self, client):
        with client, contextlib.suppress(OSError):
            client.settimeout(5)
            client.recv(4096)
            client.sendall(self.first)
            while self.more and not self.end.wait(self.pause):
                client.sendall(self.more)
            if self.more is None:
                self.end.wait()

    def close(self):
        self.end.set()
        self.threads[0].join()
        for thread in self.threads[1:]:
            thread.join()
        self.listener.close()


class RingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gl-top-")))
        cls.network = stack.enter_context(networks.Network(NODES, rate="200mbit", kernel=True))
        cls.ring = stack.enter_context(
            rings.Ring("udp", NODES, cls.folder, GRADLANED, cls.network, metrics=f"node:{PORT}"))
        cls.ring.start().wait_whole()
        switch = cls.network.spaces["sw"].name
        subprocess.run(f"tc -n {switch} qdisc replace dev p{SLOW} root tbf rate 20mbit burst 32768 latency 20ms".split(),
                       check=True)
        stack.callback(Trainers(cls.ring).close)

    def command(self, *options, node=0):
        return self.network.command(node, GRADLANE, "top", "--admin", alone(self.folder, node), *options)

    def document(self, *options, node=0):
        return json.loads(run_measured(self.command("--json", *options, node=node))[0])

    def screen(self, *options):
        """Returns a screen that shows `gradlane top`."""
        screen = Screen(pathlib.Path(tempfile.mkdtemp(dir=self.folder)))
        self.addCleanup(screen.close)
        screen.run(shlex.join(self.command(*options)))
        return screen

    def get(self, path, method="GET", node=SLOW):
        """Sends a request from the host of node 0. Returns status, type and text."""
        url = f"http://10.77.0.{node + 1}:{PORT}{path}"
        return json.loads(subprocess.run(self.network.command(0, sys.executable, "-c", GET, method, url), check=True,
                                         capture_output=True, text=True, timeout=30).stdout)

    def test_1_all_nodes(self):
        """Any node shows all four nodes, and the slow link."""
        for node in (0, SLOW):
            document = wait_for(lambda: self._with_slowest(node), f"link {SLOW - 1} -> {SLOW} is the slowest", 40)
            self.assertEqual([(it["node"], it["state"]) for it in document["nodes"]],
                             [(it, "whole") for it in range(NODES)])
            self.assertIn(f"node {SLOW - 1} -> node {SLOW}", document["verdict"])
            self.assertEqual([note for note in document["notes"] if "no figures" in note], [])
            self.assertEqual({link["from"] for link in document["links"]}, set(range(NODES)))
            for it in document["nodes"]:
                self.assertGreater(it["ratio"], 2)
                self.assertGreater(it["done_per_s"], 0)
        one = self.document("--one")
        self.assertEqual([(it["node"], it["state"]) for it in one["nodes"]],
                         [(0, "whole"), (1, "not asked"), (LAST, "not asked")])

    def _with_slowest(self, node):
        document = self.document("-i", "2", node=node)
        slowest = [(link["from"], link["to"]) for link in document["links"] if link["mark"] == "slowest"]
        return document if slowest == [(SLOW - 1, SLOW)] else None

    def test_2_screen(self):
        screen = self.screen()
        text = screen.wait(f"1 -> {SLOW} .*<< slowest")
        self.assertRegex(text, f"gradlane top +{NODES} of {NODES} nodes answer")
        screen.wait(rf"(?m)^1 +whole .* the link to node {SLOW}$")
        screen.type("q")
        screen.wait("ready>")

    def test_3_the_document(self):
        """The document is that of the admin socket. Nothing else of the admin socket can be asked for."""
        status, kind, text = self.get("/stats")
        self.assertEqual((status, kind), (200, "application/json"))
        document, here = json.loads(text), self.ring.stats(SLOW)
        self.assertEqual(set(document), set(here))
        for key in ("node", "nodes", "pid", "config_digest", "table", "metrics"):
            self.assertEqual(document[key], here[key])
        self.assertEqual(document["metrics"], f"10.77.0.{SLOW + 1}:{PORT}")
        self.assertEqual(document["table"][1], {"node": 1, "address": "10.77.0.2", "reach": "10.77.0.2"})
        for path in ("/trace%20start", "/probe", "/worth", "/stats/", "/"):
            self.assertEqual(self.get(path)[0], 404, path)
        for method in ("POST", "PUT", "DELETE"):
            self.assertEqual(self.get("/stats", method)[0], 405, method)
        self.assertTrue(self.get("/metrics")[2].startswith("# HELP gradlane_"))

    def test_4_who_does_not_answer(self):
        """A node that does not answer within 2 s, or refuses connections, is reported. The others stay on the screen.
        """
        screen = self.screen("-i", "0.5")
        screen.wait(f"{NODES} of {NODES} nodes answer")
        self.ring.stop(LAST)
        screen.wait(r"node 3 has gone: 10\.77\.0\.4:9400: no answer within 2000")
        text = screen.wait(rf"(?m)^{LAST} +gone ")
        self.assertIn(f"{NODES - 1} of {NODES} nodes answer", text)
        self.ring.cont(LAST)
        screen.wait("node 3 answers again")
        self.ring.kill(LAST)
        screen.wait(r"node 3 has gone: 10\.77\.0\.4:9400: Connection refused")
        screen.wait("the ring is not ready: node 3 is gone")
        self.ring.start_node(LAST)
        screen.wait(r"node 3 has restarted, pid \d+")
        self.network.cable(LAST, up=False)
        screen.wait(r"node 3 has gone: 10\.77\.0\.4:9400: no answer within 2000")
        # A command that starts now finds three nodes.
        document = self.document()
        self.assertIn(document["nodes"][LAST]["state"], ("missing", "not asked"))
        self.assertIn("node 3: no figures at 10.77.0.4:9400: ", "\n".join(document["notes"]))
        self.assertEqual({link["from"] for link in document["links"]}, set(range(LAST)))
        self.network.cable(LAST, up=True)
        screen.wait("node 3 answers again")
        screen.type("q")
        screen.wait("ready>")

    def test_5_whoever_else_answers(self):
        """A wrong answer is reported, and its figures are not shown. It costs neither much time nor much memory."""
        self._kill_last()
        _, least = run_measured(self.command("--json"))
        self.assertIn("node 3: no figures at 10.77.0.4:9400: Connection refused", self.document()["notes"])
        foreign = {**self.ring.stats(0), "node": LAST, "config_digest": "0x1"}
        ok = b"HTTP/1.1 200 OK\r\n"
        rows = {
            "stranger": (self._response(foreign), b"", "its config_digest differs"),
            "other node": (self._response(self.ring.stats(1)), b"", "node 1 answers there"),
            "older": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b"", "it has no /stats"),
            "garbage": (random.Random(1).randbytes(100_000), b"", "does not come from gradlaned"),
            "a long header": (ok, b"X-Header: and so on\r\n", "does not come from gradlaned"),
            "a gigabyte": (ok + b"Content-Length: 1000000000\r\n\r\n", bytes(1 << 20), "too long"),
            "no end": (ok + b"\r\n", b" " * (1 << 20), "too long"),
            "deep": (ok + b"\r\n" + b"[" * 1_000_000, b"", "not a document"),
            "many": (ok + b"\r\n[" + b"[]," * 1_000_000 + b"0]", b"", "not a document"),
            "text": (ok + b'\r\n{"node": "' + b"x" * 3_000_000 + b'"}', b"", "not a document"),
            "nothing": (b"", None, "no answer within 2000 ms"),
        }
        for name, (first, more, words) in rows.items():
            with self.subTest(name):
                self._answered(least, words, first=first, more=more)
        with self.subTest("slow"):
            self._answered(least, "no answer within 2000 ms", first=ok, more=b"X", pause=0.02)

    @staticmethod
    def _response(document):
        text = json.dumps(document).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)

    def _kill_last(self):
        if self.ring.running(LAST):
            self.ring.kill(LAST)

    def _peer(self, **says):
        peer = Peer(self.network.node(LAST), f"10.77.0.{LAST + 1}", **says)
        self.addCleanup(peer.close)
        return peer

    def _answered(self, least, words, **says):
        peer = self._peer(**says)
        text, memory = run_measured(self.command("--json", "-i", "0.5"))
        self.assertGreater(peer.came, 0)
        peer.close()
        (node,) = [it for it in json.loads(text)["nodes"] if it["node"] == LAST]
        self.assertIn(words, node["waits_for"])
        self.assertIn(node["state"], ("missing", "not asked"))
        self.assertLess(memory, least + MOST_GROWTH)

    def test_6_lies(self):
        """False figures of a node of this ring are shown, but the terminal obeys no control characters in them."""
        self._kill_last()
        liar = {**self.ring.stats(0), "node": LAST, "pid": 1e300, "workers": "\x1b[2J", "in_flight": -7}
        liar["ranks"][0]["links"] = [{"rank": rank, "up": True, "bytes": "x"} for rank in (-1, 1e18, "\x1b[2J", None, 2)]
        liar["ranks"][0]["ring"] = "incomplete"
        why = "\x1b[2J\x07" + "y" * 400
        liar["neighbours"] = [{"node": 0, "state": "missing", "why": why, "ip": why}] * 1000
        self._peer(first=self._response(liar))
        screen = self.screen("-i", "0.2")
        text = screen.wait(rf"(?m)^{LAST} +incomplete .* node 0: \?\[2J\?y")
        self.assertRegex(text, "gradlane top +4 of 4 nodes answer")
        screen.type("q")
        screen.wait("ready>")

    def test_7_a_screen_beside_who_never_ends(self):
        """The screen goes on while a node's answer never ends. It closes at once when the user types q."""
        self._kill_last()
        self._peer(first=b"HTTP/1.1 200 OK\r\n\r\n", more=b" ", pause=0.01)
        screen = self.screen("-i", "0.2")
        screen.wait("node 3: no figures at 10.77.0.4:9400: no answer within")
        self.ring.kill(1)
        screen.wait(r"node 1 has gone: 10\.77\.0\.2:9400")
        screen.type("q")
        screen.wait("ready>")


class Two:
    """Two machines with one cable."""

    mtu = 1500

    def __init__(self, **options):
        self.spaces, self.options = Spaces(), options

    def __enter__(self):
        self.spaces.__enter__()
        spaces = [self.spaces.add(f"n{node}", **self.options) for node in range(2)]
        spaces[0].veth("gl0", spaces[1], "gl0")
        for space in spaces:
            space.ip("link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        self.spaces.__exit__()

    def add_addresses(self, address, *options):
        for node in range(2):
            self.spaces[f"n{node}"].ip("addr", "add", address.format(node + 1), "dev", "gl0", *options)

    def command(self, node, *argv):
        return self.spaces[f"n{node}"].command(*argv)


class TwoTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gl-top-")))

    def document(self, kind, network, **settings):
        with rings.Ring(kind, 2, self.folder, GRADLANED, network, **settings) as ring:
            ring.start().wait_whole()
            command = network.command(0, GRADLANE, "top", "--admin", alone(self.folder, 0), "--json", "-i", "0.5")
            return json.loads(run_measured(command)[0])

    def check(self, document, address):
        self.assertEqual([(it["node"], it["state"], it["waits_for"]) for it in document["nodes"]],
                         [(node, "whole", "no trainer is here") for node in range(2)])
        self.assertEqual(document["nodes"][1]["address"], address)
        self.assertEqual({(link["from"], link["to"]) for link in document["links"]}, {(0, 1), (1, 0)})

    def test_ipv6(self):
        with Two(ipv6=True) as network:
            network.add_addresses("fd77::{}/64", "nodad")
            self.check(self.document("udp", network, address="fd77::{}", metrics=f"node:{PORT}"), "fd77::2")

    def test_addresses_of_gradlane_alone(self):
        """The table of nodes has the addresses of their machines."""
        with Two() as network:
            network.add_addresses("10.77.0.10{}/24")
            document = self.document("veth", network, address="10.77.0.{0}, host: 10.77.0.10{0}",
                                     metrics=f"0.0.0.0:{PORT}")
            self.check(document, "10.77.0.2")

    def test_what_to_set(self):
        with Two() as network:
            network.add_addresses("10.77.0.{}/24")
            for metrics, words in (({}, f"set `metrics: node:{PORT}` on all nodes"),
                                   ({"metrics": "127.0.0.1:9401"}, "set `metrics: node:9401`")):
                document = self.document("udp", network, **metrics)
                self.assertEqual(len(document["notes"]), 1, document)
                self.assertIn("node 1: no figures: ", document["notes"][0])
                self.assertIn(words, document["notes"][0])
                self.assertEqual([it["state"] for it in document["nodes"]], ["whole", "not asked"])


if __name__ == "__main__":
    networks.require("tmux")
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
