#!/usr/bin/python3
"""Measures the experiment `packets` for a short time. Every kind of port must have packets; times are not checked.

packets_test.py GRADLANE: needs root; without it, only kinds that need no network namespaces are measured.
"""

import os
import pathlib
import shutil
import sys
import unittest
import unittest.mock

from lab import packets
from lab.results import reproduce
from tests.scripts.fixtures import networks


class Options:
    gradlane = ""


class Kinds(unittest.TestCase):
    def test_all(self):
        context = reproduce.Context(pathlib.Path(Options.gradlane).resolve(), shutil.which("python3"))
        keys = [key for key, (kind, mtu) in packets.KEYS.items() if mtu == 1500]
        if os.geteuid() != 0 and not networks.in_ci():
            keys = [key for key in keys if packets.KEYS[key][0] not in packets.DEVICES]
        samples = {}
        with unittest.mock.patch.multiple(packets, BYTES=1 << 20, REPETITIONS=10):
            for batch in packets.batches({}):
                if batch.argument in keys and batch.argument not in samples:
                    (key, values, _), = packets.measure(batch, context)
                    samples[key] = [values]
                    with self.subTest(key):
                        bytes_each = packets.packet_bytes(*packets.KEYS[key])
                        self.assertGreaterEqual(values["packets"], 10 * (1 << 20) // bytes_each)
                        self.assertGreater(values["busy"], 0)
        self.assertEqual(packets.table(samples).count("\n"), 1 + len(keys))

    def test_the_parts(self):
        hops = [{"codec_ns": 30, "crc_ns": 100, "engine_ns": 150}, {"codec_ns": 10, "crc_ns": 60, "engine_ns": 90}]
        run = {"packets": 1000, "busy": 1e-3, "user": 3.0, "system": 1.0, "hops": hops}
        self.assertEqual(packets.breakdown("udp", run),
                         {"codec": 20, "crc": 80, "engine": 120, "kernel": 250, "rest": 530, "total": 1000})
        self.assertEqual(packets.breakdown("memif", run)["rest"], 780)


if __name__ == "__main__":
    Options.gradlane = sys.argv[1]
    unittest.main(argv=sys.argv[:1], verbosity=2)
