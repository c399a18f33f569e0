#!/usr/bin/python3
"""Tests four daemons with links between any two of them: sums, reports of their state, and failures.

mesh_test.py GRADLANE GRADLANED [unittest's arguments]

GRADLANE_LIBRARY: libgradlane.so.0, if not in build/.
"""

import json
import pathlib
import signal
import subprocess
import sys
import unittest

from tests.scripts.fixtures import daemons
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest, wait_for
from tests.scripts.fixtures.waiting import DEATH_TIMEOUTS

NODES = 4


def tool(*words):
    return subprocess.run([daemons.BINARIES["gradlane"], *map(str, words)], capture_output=True, text=True,
                          timeout=PATIENCE)


class MeshTest(DaemonTest):
    def mesh(self, link):
        ring = self.ring(NODES, link, mesh=True, strategies="[direct, ring]", timeouts=DEATH_TIMEOUTS)
        return ring, self.open_all(ring)

    def stats(self, ring, node):
        return json.loads(tool("stats", "--admin", ring.sockets[node].with_suffix(".admin"), "--json").stdout)

    def packets(self, ring, node):
        """Returns the number of frames that were received from each node."""
        stats = self.stats(ring, node)
        ports = {port["name"]: sum(queue["counters"]["received"] for queue in port["queues"]) for port in stats["ports"]}
        return {it["node"]: ports[it["port"]] for it in stats["neighbours"]}

    def test_every_pair(self):
        for link in ("ring", "memif"):
            with self.subTest(link=link):
                ring, contexts = self.mesh(link)
                self.check_all_reduce(contexts)
                before = [self.packets(ring, node) for node in range(NODES)]
                self.check_all_reduce(contexts, count=400_000)
                for node in range(NODES):
                    # Each node receives 1.6 MB / 4 of elements from each other node, and as much of results. A daemon
                    # publishes its figures every 100 ms.
                    wait_for(lambda: all(count - before[node][other] > 400
                                         for other, count in self.packets(ring, node).items()), "packets of all")
                    self.assertEqual(sorted(before[node]), sorted({0, 1, 2, 3} - {node}))
                self.finish(ring, contexts)

    def test_what_it_says(self):
        ring, contexts = self.mesh("vhost")
        self.check_all_reduce(contexts)
        wait_for(lambda: all(rank["ring"] == "whole" for rank in self.stats(ring, 0)["ranks"]), "it is whole")
        stats = self.stats(ring, 0)
        self.assertEqual(stats["strategies"], ["direct", "ring"])
        self.assertEqual([it["node"] for it in stats["neighbours"]], [3, 1, 2])
        self.assertEqual([it["rank"] for it in stats["ranks"][0]["links"]], [1, 3, 2])
        text = tool("stats", "--admin", ring.sockets[0].with_suffix(".admin")).stdout
        self.assertIn("strategies direct, ring", text)
        check = tool("check", "--config", ring.files[0])
        self.assertEqual(check.returncode, 0, check.stdout)
        for node in (1, 2, 3):
            self.assertIn(f"round trip to node {node}", check.stdout)
            self.assertIn(f"configuration of node {node}", check.stdout)
        self.finish(ring, contexts)

    def test_each_failure_is_named(self):
        """Checks that all other nodes name a daemon that is killed or stopped, whether they are its neighbours in the
        ring or not."""
        ring, contexts = self.mesh("vhost")
        self.check_all_reduce(contexts)
        victim = ring.daemons[2]
        self.killed.add(victim.pid)
        self.fail_by(contexts, 2, lambda: (victim.signal(signal.SIGKILL), victim.end()))
        contexts[2].close()
        ring.start(2)
        contexts[2] = self.open(ring, 2)
        self.recover(ring, contexts)
        self.fail_by(contexts, 3, lambda: ring.daemons[3].signal(signal.SIGSTOP))
        wait_for(lambda: ring.daemons[1].lines("node 1: node 3 is missing"), "it is missed")
        ring.daemons[3].signal(signal.SIGCONT)
        self.recover(ring, contexts)
        self.finish(ring, contexts)

    def fail_by(self, contexts, victim, harm):
        others = [gl for gl in contexts if gl.rank != victim]
        data = [gl.zeros(1000) for gl in others]
        requests = [gl.all_reduce(array, async_=True) for gl, array in zip(others, data)]
        harm()
        for error in self.failures(requests):
            self.assertRegex(str(error), rf"(rank|node) {victim}\b")

    def recover(self, ring, contexts):
        def whole():
            return all(rank["ring"] == "whole" for node in range(NODES) for rank in self.stats(ring, node)["ranks"])

        wait_for(whole, "all have met again")
        for gl in contexts:
            gl.resume(1 << 20)
        self.check_all_reduce(contexts)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    daemons.BINARIES["gradlane"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    daemons.BINARIES["gradlaned"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
