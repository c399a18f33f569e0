#!/usr/bin/python3
"""Tests daemons on UDP sockets of the kernel, at loopback addresses of their own: sums, faults, restarts, refusals.

udp_test.py GRADLANE GRADLANED [unittest's arguments]

Needs no root. GRADLANE_LIBRARY: libgradlane.so.0, if not in build/.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import unittest
import unittest.mock

import numpy

from tests.scripts.daemon.udp_addresses import AddressesTest  # noqa: F401 - run from here
from tests.scripts.fixtures import daemons, networks
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest, wait_for
from tests.scripts.fixtures.nobody import AS_NOBODY, copies
from tests.scripts.fixtures.waiting import DEATH_TIMEOUTS

PORT = 18400


def tool(*words):
    return subprocess.run([daemons.BINARIES["gradlane"], *map(str, words)], capture_output=True, text=True,
                          timeout=PATIENCE)


class UdpTest(DaemonTest):
    def udp_ring(self, nodes=3, **settings):
        ring = self.ring(nodes, "udp", **settings)
        return ring, self.open_all(ring)

    def stats(self, ring, node):
        return json.loads(tool("stats", "--admin", ring.sockets[node].with_suffix(".admin"), "--json").stdout)

    def counters(self, ring, node):
        return self.stats(ring, node)["ports"][0]["queues"][0]["counters"]

    def test_sums(self):
        """Checks sums of all sizes, with packets of all lengths, by both strategies."""
        ring, contexts = self.udp_ring(strategies="[ring, direct]", trainers=2)
        for strategy in ("ring", "direct"):
            for count in (1, 1000, 300_001):
                self.check_all_reduce(contexts, count=count, strategy=strategy)
            for codec in ("fixed:10", "topk:1%+fixed:10", "bf16"):
                self.check_all_reduce(contexts, count=5, codec=codec, strategy=strategy)
        self.finish(ring, contexts)

    def test_faults(self):
        """Checks that loss, duplicates, reordering and damage of single packets of superpackets change no result."""
        expected = None
        for settings in ({}, {"faults": "{drop: 2%, duplicate: 2%, reorder: 5%, corrupt: 1%}"}):
            ring, contexts = self.udp_ring(**settings)
            results = [self.sum_of_noise(contexts, codec) for codec in ("raw", "fixed:10", "bf16")]
            expected = expected or results
            self.assertEqual(results, expected)
            for kind in ("drop", "duplicate", "reorder", "corrupt") if settings else ():
                self.assertGreater(sum(self.counters(ring, node)[f"injected_{kind}"] for node in range(3)), 0, kind)
            self.finish(ring, contexts)

    def sum_of_noise(self, contexts, codec):
        """Returns the bytes of the sum, which must be the same on all ranks."""
        data = [gl.zeros(200_000) for gl in contexts]
        for gl, array in zip(contexts, data):
            array[:] = numpy.random.default_rng(gl.rank).normal(0, 0.01, array.size)
        for request in [gl.all_reduce(array, codec=codec, async_=True) for gl, array in zip(contexts, data)]:
            request.wait(PATIENCE)
        self.assert_same_bytes(data)
        return data[0].tobytes()

    def test_key(self):
        key = self.folder / "key"
        key.write_text(os.urandom(32).hex() + "\n")
        key.chmod(0o600)
        ring, contexts = self.udp_ring(2, auth=f"{{key_file: '{key}'}}")
        self.check_all_reduce(contexts, count=100_000)
        # The daemon ignores packets of a sender that has no key.
        before = self.counters(ring, 0)["received"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for _ in range(100):
                stranger.sendto(os.urandom(1000), (ring.address.format(1), PORT))
        wait_for(lambda: self.counters(ring, 0)["received"] >= before + 100, "junk that came")
        self.check_all_reduce(contexts, count=100_000)
        self.finish(ring, contexts)

    def test_restart(self):
        """Checks that errors name a daemon that was killed, and that sums work again after its restart."""
        ring, contexts = self.udp_ring(timeouts=DEATH_TIMEOUTS)
        self.check_all_reduce(contexts)
        daemon = ring.daemons[1]
        self.killed.add(daemon.pid)
        daemon.signal(signal.SIGKILL)
        daemon.end()
        left = [contexts[0], contexts[2]]
        arrays = [gl.zeros(1000) for gl in left]
        errors = self.failures([gl.all_reduce(array, async_=True) for gl, array in zip(left, arrays)])
        self.assertTrue(all(re.search("rank 1", str(error)) for error in errors), errors)
        contexts[1].close()
        self.contexts.remove(contexts[1])
        ring.start(1)
        everybody = [left[0], self.open(ring, 1), left[1]]
        for gl in everybody:
            gl.resume(1 << 20)
        self.check_all_reduce(everybody)

    def test_two_jobs(self):
        """Checks that two jobs of one user work on one machine at the same time. Their daemons use different addresses
        and share nothing."""
        rings = [self.udp_ring(2) for _ in range(2)]
        for _ in range(3):
            for _, contexts in rings:
                self.check_all_reduce(contexts, count=50_000)

    def folder_of_nobody(self):
        folder = self.folder / "nobody"
        folder.mkdir()
        folder.chmod(0o777)
        return folder

    def test_two_users(self):
        """Checks that a second user at the same addresses gets the name of the setting to change, and that both jobs
        then work."""
        networks.need_root(self)
        ring, contexts = self.udp_ring(2)
        folder = self.folder_of_nobody()
        (gradlaned,) = copies(self.folder, daemons.BINARIES["gradlaned"])
        as_nobody = folder / "gradlaned"
        as_nobody.write_text(f"#!/bin/sh\nexec {' '.join(AS_NOBODY)} {gradlaned} \"$@\"\n")
        as_nobody.chmod(0o755)
        with unittest.mock.patch.dict(daemons.BINARIES, gradlaned=str(as_nobody)):
            second = daemons.Ring(folder, 2, "udp", address=ring.address).start()
            for daemon in second.daemons:
                self.assertEqual(daemon.end(), 4)
                self.assertRegex(daemon.log(), rf":{PORT}: .*another daemon or job uses this port; see `udp_port`")
            second = daemons.Ring(folder, 2, "udp", address=ring.address, udp_port=PORT + 100).start()
            self.rings.append(second)
        others = self.open_all(second)
        for _ in range(3):
            for both in (contexts, others):
                self.check_all_reduce(both, count=50_000)
        self.finish(ring, contexts)

    def test_refusals(self):
        ring, contexts = self.udp_ring(2)
        second = self.folder / "second.yaml"
        text = ring.files[0].read_text()
        second.write_text(text.replace("n0.sock", "other.sock"))
        daemon = daemons.Daemon(second)
        self.assertEqual(daemon.end(), 4)
        self.assertRegex(daemon.log(), rf"port e0: UDP 127\.[0-9.]+:{PORT}: .*another daemon or job uses this port")
        second.write_text(text.replace("n0.sock", "other.sock").replace(ring.address.format(1), "192.0.2.1"))
        daemon = daemons.Daemon(second)
        self.assertNotEqual(daemon.end(), 0)
        self.assertIn("192.0.2.1", daemon.log())
        self.assertIn("this machine has no such address", daemon.log())
        second.write_text(text.replace("udp: auto", "udp: eth0"))
        check = subprocess.run([daemons.BINARIES["gradlaned"], "--check", "--config", second], capture_output=True,
                               text=True, timeout=PATIENCE)
        self.assertIn("'eth0' is unknown for sockets, allowed: auto", check.stdout + check.stderr)
        self.finish(ring, contexts)

    def test_nobody(self):
        """Checks that a job needs no privileges."""
        networks.need_root(self)
        example = pathlib.Path(daemons.BINARIES["gradlane"]).parent.parent / "client/all_reduce_example"
        gradlane, gradlaned, example = copies(self.folder, *daemons.BINARIES.values(), example)
        run = subprocess.run(
            [*AS_NOBODY, "env", "-u", "XDG_RUNTIME_DIR", f"TMPDIR={self.folder_of_nobody()}", f"GRADLANED={gradlaned}",
             gradlane, "run", "-n", "2", "--link", "udp", "--", example],
            capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    daemons.BINARIES["gradlane"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    daemons.BINARIES["gradlaned"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
