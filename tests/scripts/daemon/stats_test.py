#!/usr/bin/python3
"""What a daemon says of itself: its log while a ring is incomplete, the admin socket, `gradlane stats`, telemetry.

Usage: stats_test.py GRADLANE GRADLANED. Real daemons on memif and in-process links; no root.
"""

import contextlib
import itertools
import json
import os
import pathlib
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

from tests.scripts.fixtures.daemons import BINARIES, PATIENCE, Daemon, DaemonTest, Ring, wait_for


def ask(path, request=b"stats\n"):
    """The document that comes for a line."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(request)
        text = b""
        while part := client.recv(65536):
            text += part
    return json.loads(text)


def stats(*options, **settings):
    return subprocess.run([BINARIES["gradlane"], "stats", *map(str, options)], capture_output=True, text=True,
                          timeout=20, **settings)


class StatsTest(DaemonTest):
    def idle_ring(self, nodes=2, **settings):
        """Nodes whose daemons do not run yet."""
        folder = self.folder / str(len(self.rings))
        folder.mkdir()
        self.rings.append(Ring(folder, nodes, **settings))
        return self.rings[-1]

    def start(self, ring, node):
        ring.daemons.append(Daemon(ring.files[node]))
        return ring.daemons[-1]

    def admin(self, ring, node):
        return ring.folder / f"n{node}.admin"

    def neighbour(self, ring, node, other=None):
        """Its only one, or that one."""
        neighbours = ask(self.admin(ring, node))["neighbours"]
        (neighbour,) = [each for each in neighbours if other in (None, each["node"])]
        return neighbour

    def is_whole(self, ring, node):
        return all(rank["ring"] == "whole" for rank in ask(self.admin(ring, node))["ranks"])


class MissingTest(StatsTest):
    """Two nodes, of which the second one is not there; once with a link that knows, once with one that does not."""

    def test_missing_neighbour(self):
        ring = self.idle_ring(link="memif")
        self.start(ring, 0)
        began = time.monotonic()
        silent = self.start_without_neighbour()
        wait_for(lambda: ring.daemons[0].lines("node 0: node 1 is missing: "), "the line")
        self.assertGreater(time.monotonic() - began, 4, "nodes start one after the other: of that nothing is said")
        line = ring.daemons[0].lines("is missing")[0]
        self.assertIn("port e0: link is down: the daemon of node 1 is not running", line)
        self.assertIn(" warning ", line)

        neighbour = self.neighbour(ring, 0)
        self.assertEqual((neighbour["node"], neighbour["state"], neighbour["port"]), (1, "missing", "e0"))
        self.assertIn(neighbour["why"], line)
        self.assertIn(neighbour["why"], stats("--admin", self.admin(ring, 0)).stdout)

        self.check_no_answer(silent)
        self.start(ring, 1)
        for node in range(2):
            wait_for(lambda: ring.daemons[node].lines(f"node {node}: the ring is whole"), f"the ring of {node}")
            wait_for(lambda: self.neighbour(ring, node)["state"] == "up", f"neighbour of {node}")
            self.assertEqual(self.neighbour(ring, node)["why"], "")
        # And again, soon, when it ends.
        before = len(ring.daemons[0].lines("node 1 is missing"))
        ring.daemons[1].stop()
        wait_for(lambda: len(ring.daemons[0].lines("node 1 is missing")) > before, "another line")

    def start_without_neighbour(self):
        """A neighbour that does not answer ARP, as on Ethernet: a null device takes all and gives nothing."""
        ring = self.idle_ring(link="memif")
        text = ring.files[0].read_text()
        ring.files[0].write_text(re.sub(r"device: '[^']*'", "device: 'net_null0'", text))
        self.start(ring, 0)
        return ring

    def check_no_answer(self, ring):
        wait_for(lambda: ring.daemons[0].lines("is missing"), "the line")
        line = ring.daemons[0].lines("is missing")[0]
        tries = re.search(r"no answer from 10\.77\.0\.2 on port e0 after (\d+) s \(ARP, (\d+) tries\)", line)
        self.assertTrue(tries, line)
        seconds = int(tries[1])
        self.assertLessEqual(int(tries[2]), 10 * seconds + 3)
        # Asked for every second from the 50th time on.
        wait_for(lambda: self.neighbour(ring, 0)["arp_tries"] >= 50, "50 tries")
        began, before = time.monotonic(), self.neighbour(ring, 0)["arp_tries"]
        time.sleep(1.5)
        after = self.neighbour(ring, 0)["arp_tries"]
        self.assertLessEqual(after - before, time.monotonic() - began + 2)


class RefusedTest(StatsTest):
    def refused(self, field, values, **settings):
        """Nodes that differ in one field: all sides name it with both values, at once."""
        ring = self.idle_ring(nodes=len(values), **settings)
        for file, value in zip(ring.files, values):
            text = re.sub(rf"^{field}: .*\n", "", file.read_text(), flags=re.MULTILINE)
            file.write_text(f"{field}: {value}\n{text}")
        ring.start()
        for node, other in itertools.permutations(range(len(values)), 2):
            ours, theirs = values[node], values[other]
            if ours == theirs:
                continue
            line = f"node {node}: node {other} is missing: refused: rank {other} of node {other} "
            wait_for(lambda: ring.lines(line), f"refusal by {node}", 5)
            difference = f"{field}: {ours} here, {theirs} there"
            self.assertIn(difference, ring.lines(line)[0])
            self.assertIn(" error ", ring.lines(line)[0])
            wait_for(lambda: difference in self.neighbour(ring, node, other)["why"], "the reason")
            (rank,) = ask(self.admin(ring, node))["ranks"]
            self.assertEqual(rank["ring"], "refused")
            self.assertIn(difference, rank["refused"])

    def test_mtu(self):
        self.refused("mtu", (1500, 4000))

    def test_codec(self):
        self.refused("codec", ("fixed:10", "bf16"))

    def test_both_neighbours(self):
        self.refused("codec", ("bf16", "fixed:10", "fixed:10"))


class FiguresTest(StatsTest):
    def test_document_and_table(self):
        ring = self.ring(2, lanes=2, telemetry="true", codec="fixed:10")
        contexts = self.open_all(ring)
        self.check_all_reduce(contexts, 100_000)
        wait_for(lambda: self.is_whole(ring, 0), "the ring")
        path = self.admin(ring, 0)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o660)
        wait_for(lambda: ask(path)["ranks"][0]["counters"]["operations_done"] == 1, "the counter")
        document = json.loads(stats("--admin", path, "--json").stdout)
        self.assertEqual(document["pid"], ring.daemons[0].pid)
        expected = {"node": 0, "nodes": 2, "codec": "fixed:10", "mtu": 1500, "lanes": 2, "trainers": 1, "attached": 1,
                    "in_flight": 0, "auth": False, "faults": None}
        self.assertEqual({key: document[key] for key in expected}, expected)
        self.assertGreater(document["rss_kb"], 1000)
        self.assertRegex(document["config_digest"], "^0x[0-9a-f]{16}$")
        self.assertEqual([pool["lane"] for pool in document["pools"]], [0])
        for pool in document["pools"]:
            self.assertTrue(0 < pool["free"] <= pool["buffers"], pool)
        self.assertEqual([(rank["rank"], rank["lane"], rank["ring"]) for rank in document["ranks"]],
                         [(0, 0, "whole"), (0, 1, "whole")])
        for rank in document["ranks"]:
            self.assertEqual([(link["rank"], link["up"]) for link in rank["links"]], [(1, True)])
            self.assertGreater(rank["links"][0]["rtt_us"], 0)
        (port,) = document["ports"]
        self.assertEqual((port["name"], port["link"], len(port["queues"])), ("e0", "up", 2))
        self.assertEqual((port["driver"], port["speed_mbps"], port["checksums"]), ("net_ring", 10000, None))
        self.assertGreater(port["queues"][0]["counters"]["received"], 0)

        table = stats("--socket", ring.sockets[0]).stdout
        for words in ("node 0 of 2", "codec fixed:10", "node 1", "10.77.0.2", "whole", "e0"):
            self.assertIn(words, table)
        self.assertNotIn("packets for the exchange", table)
        full = stats("--config", ring.files[0], "--all").stdout
        self.assertRegex(full, r"operations_done +1  operations that succeeded")
        self.assertRegex(full, r"gradlane +\d+  packets for the exchange")
        self.watch(ring, contexts)

    def test_what_rounding_takes(self):
        ring = self.ring(2)
        contexts = self.open_all(ring)
        tiny = [gl.zeros(100_000) for gl in contexts]
        for array in tiny:
            array[:] = 1e-5
        path = self.admin(ring, 0)
        for codec, words in (("raw", None), ("fixed:20", "made 0.0 % of the values zero and took"),
                             ("fixed:10", "made 50.0 % of the values zero and took")):
            for request in [gl.all_reduce(array, codec=codec, async_=True) for gl, array in zip(contexts, tiny)]:
                request.wait(10)
            wait_for(lambda: ask(path)["in_flight"] == 0, "the end")
            table = stats("--admin", path).stdout
            if words is None:
                self.assertNotIn("rounding", table)
            else:
                self.wait_for_line(path, words)
        counters = ask(path)["ranks"][0]["counters"]
        self.assertEqual((counters["lossy_operations"], counters["lossy_values"], counters["lossy_zeroed"]),
                         (2, 4096, 2048))

    def wait_for_line(self, path, words):
        wait_for(lambda: words in stats("--admin", path).stdout, words)

    def watch(self, ring, contexts):
        """A few rounds, on a pipe and on a terminal."""
        command = [BINARIES["gradlane"], "stats", "--admin", str(self.admin(ring, 0)), "--watch", "0.2"]
        with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as watching:
            rounds = [json.loads(watching.stdout.readline()) for _ in range(3)]
            watching.send_signal(signal.SIGINT)
            self.assertEqual(watching.wait(PATIENCE), 0)
        every_second = [*command[:-1], "--json"]  # no number
        with subprocess.Popen(every_second, stdout=subprocess.PIPE, text=True) as watching:
            times = [json.loads(watching.stdout.readline())["uptime_s"] for _ in range(2)]
            watching.send_signal(signal.SIGINT)
            self.assertEqual(watching.wait(PATIENCE), 0)
        self.assertGreater(times[1] - times[0], 0.5)
        self.assertLess(rounds[0]["uptime_s"], rounds[2]["uptime_s"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
            self.check_all_reduce(contexts, 100_000)
            blocks = ""
            while blocks.count("node 0 of 2") < 2 or "rx Gb/s" not in blocks:
                blocks += watching.stdout.readline()
            watching.send_signal(signal.SIGINT)
            blocks += watching.communicate(timeout=PATIENCE)[0]
            self.assertEqual(watching.returncode, 0)
        self.assertIn("rx Gb/s", blocks)
        self.assertNotIn("\x1b", blocks)
        master, terminal = pty.openpty()
        with subprocess.Popen(command, stdout=terminal) as watching:
            screen = ""
            while screen.count("node 0 of 2") < 2:
                screen += os.read(master, 1 << 16).decode()
            watching.send_signal(signal.SIGINT)
            self.assertEqual(watching.wait(PATIENCE), 0)
        os.set_blocking(master, False)
        with contextlib.suppress(BlockingIOError):
            while True:  # a terminal hands out some 4 KiB at a time
                screen += os.read(master, 1 << 16).decode()
        os.close(master)
        os.close(terminal)
        self.assertEqual(screen.count("\x1b[2J"), 1, "cleared once, and then written over")
        self.assertTrue(screen.endswith("\x1b[?25h"), "the cursor is back")

    def test_requests_of_all_sorts(self):
        ring = self.ring(2)
        ring.wait_until_ready()
        path = self.admin(ring, 0)
        self.assertIn("error", ask(path, b"what?\n"))
        self.assertIn("error", ask(path, b"probe 99999999\n"))
        self.assertIn("error", ask(path, b"x" * 100_000))
        crowd = []
        for _ in range(40):
            crowd.append(socket.socket(socket.AF_UNIX))
            crowd[-1].connect(str(path))
        self.assertEqual(ask(path)["node"], 0)
        for client in crowd:
            client.close()
        self.assertIn("probes", ask(path, b"probe 300\n"))

    def test_nobody_there(self):
        path = self.folder / "none.admin"
        for options, words in (
            (["--admin", path], "is the daemon running?"),
            (["--admin", path, "--socket", path], "one of them is enough"),
            (["--watch", "soon", "--admin", path], "no interval"),
        ):
            ended = stats(*options)
            self.assertEqual((ended.returncode, ended.stdout), (3 if words == "is the daemon running?" else 2, ""))
            self.assertIn(words, ended.stderr)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        self.assertIn("nobody listens", stats("--admin", path).stderr)
        (self.folder / "old.sock").touch()
        environment = {**os.environ, "GRADLANE_SOCKET": str(self.folder / "old.sock")}
        self.assertIn("too old", stats(env=environment).stderr)
        del environment["GRADLANE_SOCKET"]
        if not list(pathlib.Path("/run/gradlane").glob("*.admin")):
            ended = stats(env=environment)
            self.assertEqual((ended.returncode, ended.stdout), (3, ""))
            self.assertRegex(ended.stderr, "/run/gradlane/node0.admin: .*daemon running|no permission")


if __name__ == "__main__":
    BINARIES["gradlane"], BINARIES["gradlaned"] = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
