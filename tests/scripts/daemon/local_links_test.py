#!/usr/bin/python3
"""Kills daemons under load, and checks their neighbours on the same machine.

  local_links_test.py GRADLANED [unittest's arguments]                        the short form
  local_links_test.py GRADLANED --kills N [--link memif] [--nodes 3] [--seed 1]   the long form: counts, and prints them

GRADLANE_LIBRARY: libgradlane.so.0, if not in build/.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from tests.scripts.fixtures import daemons
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest, Ring, gradlane_package, wait_for
from tests.scripts.fixtures.waiting import DEATH_TIMEOUTS

FLOATS = 2_000_000
IN_FLIGHT = 6  # operations of FLOATS floats, which take longer together than the wait before a kill
# buffers: a larger change in the number of free buffers is a leak; a link has more in flight when it goes down
LOST = 100


class Killer:
    """A ring with a trainer on each node. Its daemons are killed in the middle of traffic, and restarted."""

    def __init__(self, ring, seed, victims=None):
        self.ring, self.random = ring, random.Random(seed)
        self.victims = victims or range(ring.nodes)
        self.counts = collections.Counter()
        self.notes, self.recoveries = [], []
        self.contexts = ring.open_all()
        self.killed = set()  # pids
        self.reduce()

    def close(self):
        for gl in self.contexts:
            gl.close()

    def reduce(self, count=10_000):
        """All-reduces whole numbers once. Returns whether it succeeds with right sums on all nodes."""
        import numpy

        data = [gl.zeros(count) for gl in self.contexts]
        for rank, array in enumerate(data):
            array[:] = rank + numpy.arange(count) % 5
        requests = [gl.all_reduce(array, async_=True) for gl, array in zip(self.contexts, data)]
        ended = self.ends(requests)
        if any(ended):
            self.notes += [f"after a restart: {error}" for error in ended if error]
            return False
        nodes = len(data)
        expected = nodes * (numpy.arange(count) % 5) + nodes * (nodes - 1) // 2
        right = all((array == expected).all() for array in data)
        self.counts["wrong sums"] += not right
        return right

    def free_buffers(self, nodes):
        """Returns the free buffers of each node, in pools that idle after traffic.

        Drivers release sent packets only when others follow.
        """
        for _ in range(10):
            assert self.reduce(1_000_000), self.notes
        time.sleep(0.3)
        return [self.free_of(node) for node in nodes]

    def free_of(self, node):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(self.ring.sockets[node].with_suffix(".admin")))
            connection.sendall(b"stats\n")
            stats = json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))
        return sum(pool["free"] for pool in stats["pools"])

    @staticmethod
    def ends(requests):
        """Returns the error of each request, or None."""
        errors = []
        for request in requests:
            try:
                request.wait(PATIENCE)
                errors.append(None)
            except gradlane_package().Error as error:
                errors.append(error)
        return errors

    def kill_one(self):
        victim = self.random.choice(self.victims)
        daemon = self.ring.daemons[victim]
        tensors = [[gl.zeros(FLOATS) for _ in range(IN_FLIGHT)] for gl in self.contexts]
        requests = [[gl.all_reduce(tensor, codec="raw", async_=True) for tensor in mine]
                    for gl, mine in zip(self.contexts, tensors)]
        time.sleep(self.random.uniform(0, 0.04))
        self.killed.add(daemon.pid)
        daemon.signal(signal.SIGKILL)
        killed = time.monotonic()
        daemon.process.wait()
        self.counts["kills"] += 1
        errors = [[error for error in self.ends(each) if error] for each in requests]
        for rank, mine in enumerate(errors):
            if not mine:
                self.counts["rank had ended"] += 1
            elif rank == victim and not isinstance(mine[0], gradlane_package().DaemonGone):
                self.counts["unnamed errors"] += 1
            elif rank != victim and not any(re.search(rf"(rank|node) {victim}\b", str(error)) for error in mine):
                self.counts["unnamed errors"] += 1
                self.notes.append(f"rank {rank}, without {victim}: {mine[0]}")
        self.revive(victim, killed)

    def revive(self, victim, killed):
        for node, daemon in enumerate(self.ring.daemons):
            if node != victim and daemon.process.poll() is not None:
                self.counts["survivors crashed"] += 1
                self.notes.append(f"killed {victim}, and node {node} ended with {daemon.process.returncode}")
                self.killed.add(daemon.pid)
        dead = [node for node, daemon in enumerate(self.ring.daemons) if daemon.process.poll() is not None]
        for node in dead:
            self.contexts[node].close()
            self.ring.start(node)
        for node in dead:
            self.contexts[node] = self.ring.open(node)
        for gl in self.contexts:
            gl.resume(1 << 20)
        began = time.monotonic()
        # An operation that starts before all nodes are in one session again may fail together with those in flight.
        while not self.reduce():
            if time.monotonic() - began > PATIENCE:
                raise AssertionError(f"no all-reduce after {self.counts['kills']} kills: {self.notes[-3:]}")
            self.counts["second tries"] += 1
            time.sleep(0.1)
            for gl in self.contexts:
                gl.resume(1 << 20)
        self.recoveries.append(time.monotonic() - killed)

    def summary(self):
        self.recoveries.sort()
        names = ("kills", "survivors crashed", "wrong sums", "unnamed errors", "rank had ended", "second tries")
        figures = ", ".join(f"{self.counts[name]} {name}" for name in names)
        middle, last = self.recoveries[len(self.recoveries) // 2], self.recoveries[-1]
        return f"{figures}; from a kill to the next sum: median {middle:.1f} s, longest {last:.1f} s"


class LocalLinksTest(DaemonTest):
    def test_survivors_of_kills(self):
        ring = self.ring(3, "vhost", timeouts=DEATH_TIMEOUTS)
        seed = time.time_ns()
        victim, *survivors = random.Random(seed).sample(range(3), 3)
        killer = Killer(ring, seed, victims=[victim])
        self.contexts = killer.contexts
        free = []
        for _ in range(2):
            killer.kill_one()
            self.killed |= killer.killed
            free.append(killer.free_buffers(survivors))
        print(f"node {victim}: {killer.summary()}; free buffers of the others: {free}", *killer.notes, sep="\n",
              file=sys.stderr)
        for first, last in zip(free[0], free[-1]):
            self.assertLess(abs(first - last), LOST, free)
        for bad in ("survivors crashed", "wrong sums", "unnamed errors"):
            self.assertEqual(killer.counts[bad], 0, f"{bad}:\n{ring.log()}")
        self.finish(ring, killer.contexts)

    def test_any_order_and_lanes(self):
        for first, lanes in ((0, 2), (1, 1)):
            with self.subTest(first=first):
                ring = self.unstarted(2, lanes=lanes)
                ring.daemons = [None, None]
                ring.start(first)
                wait_for(lambda: ring.daemons[first].lines(f"node {first} of"), "it serves without its neighbour")
                time.sleep(0.5)
                self.assertEqual(ring.daemons[first].lines("the link is up"), [])
                ring.start(1 - first)
                contexts = self.open_all(ring)
                self.check_all_reduce(contexts)
                self.check_all_reduce(contexts, count=200_000)
                self.finish(ring, contexts)

    def test_orderly_restarts(self):
        ring = self.ring(2, "vhost", timeouts=DEATH_TIMEOUTS)
        contexts = self.open_all(ring)
        for node in (0, 1):
            self.check_all_reduce(contexts)
            contexts[node].close()
            self.assertEqual(ring.daemons[node].stop(), 0, ring.daemons[node].log())
            ring.start(node)
            contexts[node] = self.open(ring, node)
            other = ring.daemons[1 - node]
            wait_for(lambda: "is up" in "".join(other.lines("port e0: the link is")[-1:]), "the link is up again")
            wait_for(lambda: ring.daemons[node].lines("the ring is ready"), "the ring is ready again")
            for gl in contexts:
                gl.resume(1000)
        self.check_all_reduce(contexts)
        self.finish(ring, contexts)

    def test_end_while_the_neighbour_is_not_there(self):
        for node in (0, 1):
            ring = self.unstarted(2)
            ring.daemons = [daemons.Daemon(ring.files[node])]
            wait_for(lambda: ring.daemons[0].lines(f"node {node} of"), "it serves without its neighbour")
            self.finish(ring)

    def test_memif_clients_that_are_gone_before_they_are_greeted(self):
        ring = self.ring(2, "memif", timeouts=DEATH_TIMEOUTS, **daemons.COUNTED)
        contexts = self.open_all(ring)
        self.check_all_reduce(contexts)
        server = ring.daemons[0]
        files = server.open_files()
        for _ in range(200):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(str(ring.folder / "link0.sock"))
        self.check_all_reduce(contexts)
        wait_for(lambda: server.open_files() <= files, "the daemon has closed what came")
        self.finish(ring, contexts)

    def test_socket_that_cannot_be_made(self):
        ring = self.unstarted(2)
        file = ring.files[0]
        text = file.read_text()
        folder = re.search(r"path=([^,]*)/", text)[1]
        for path, what in ((f"{folder}/none/link.sock", "No such file"), (f"{folder}/{'x' * 120}", "at most 107 bytes"),
                           (str(file), "in use")):
            file.write_text(re.sub(r"path=[^,]*", f"path={path}", text))
            run = subprocess.run([daemons.BINARIES["gradlaned"], "--config", str(file)], capture_output=True,
                                 text=True, timeout=PATIENCE)
            self.assertEqual(run.returncode, 2, run)
            self.assertRegex(run.stderr, f"gradlaned: port e0: socket '{re.escape(path)}': .*{what}")
        self.assertTrue(file.exists())
        ring.daemons = []

    def unstarted(self, nodes, **settings):
        folder = self.folder / str(len(self.rings))
        folder.mkdir()
        self.rings.append(Ring(folder, nodes, "vhost", timeouts=DEATH_TIMEOUTS, **settings))
        return self.rings[-1]


def long_form(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--link", choices=("vhost", "memif"), default="vhost")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--mtu", type=int, default=9000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gl-links-"))
    ring = Ring(folder, options.nodes, options.link, mtu=options.mtu, timeouts=DEATH_TIMEOUTS).start()
    try:
        killer = Killer(ring, options.seed)
        for _ in range(options.kills):
            killer.kill_one()
        print(f"{options.link}, {options.nodes} nodes: {killer.summary()}", *killer.notes, sep="\n")
        killer.close()
        return 1 if killer.counts["survivors crashed"] + killer.counts["wrong sums"] else 0
    finally:
        for daemon in ring.daemons:
            daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    daemons.BINARIES["gradlaned"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if any(word.startswith("--kills") for word in sys.argv):
        sys.exit(long_form(sys.argv[1:]))
    unittest.main(verbosity=2)
