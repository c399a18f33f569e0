#!/usr/bin/python3
"""Tests kernels with fewer features for superpackets. Daemons send and receive packets one by one, log that once, and
get the same sums.

older_kernel_test.py GRADLANED LIBRARY [unittest's arguments]

LIBRARY is made of fixtures/older_kernel.cc. Needs no root. GRADLANE_LIBRARY: libgradlane.so.0, if not in build/.
"""

import os
import pathlib
import sys
import unittest
import unittest.mock

import numpy

from tests.scripts.fixtures import daemons
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest, wait_for
from tests.scripts.fixtures.paths import preloaded

SAID = "the kernel cannot send many packets in one call (UDP_SEGMENT)"
COUNT = 200_000
NODES = 3


class OlderKernelTest(DaemonTest):
    def start(self, mode):
        """Starts a ring whose daemons see an older kernel, as `mode` says. With an empty `mode`, they see the real
        kernel."""
        environment = {"LD_PRELOAD": preloaded(LIBRARY, self.folder), "OLDER_KERNEL": mode} if mode else {}
        with unittest.mock.patch.dict(os.environ, environment):
            ring = self.ring(NODES, "udp", lanes=2)
        return ring, self.open_all(ring)

    def results(self, contexts):
        """Returns the bytes of sums of noise, for each codec. All ranks must have the same bytes."""
        results = []
        for codec in ("raw", "fixed:10"):
            data = [gl.zeros(COUNT) for gl in contexts]
            for gl, array in zip(contexts, data):
                array[:] = numpy.random.default_rng(gl.rank).normal(0, 0.01, COUNT)
            for request in [gl.all_reduce(array, codec=codec, async_=True) for gl, array in zip(contexts, data)]:
                request.wait(PATIENCE)
            self.assert_same_bytes(data)
            results.append(data[0].tobytes())
        return results

    def test_kernels(self):
        ring, contexts = self.start("")
        expected = self.results(contexts)
        self.assertEqual(ring.lines(SAID), [])
        self.finish(ring, contexts)
        for mode in ("unaware", "denied", "EIO", "EINVAL", "EMSGSIZE"):
            with self.subTest(mode):
                ring, contexts = self.start(mode)
                self.assertEqual(self.results(contexts), expected)
                self.assertEqual(self.results(contexts), expected)
                for daemon in ring.daemons:
                    wait_for(lambda: daemon.lines(SAID), "a line in the log")
                self.finish(ring, contexts)
                for daemon in ring.daemons:
                    self.assertEqual(len(daemon.lines(SAID)), 1, daemon.log())


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    daemons.BINARIES["gradlaned"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    LIBRARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
