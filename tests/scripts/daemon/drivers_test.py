#!/usr/bin/python3
"""Tests devices that DPDK cannot open: gradlaned ends with exit status 2, and names the missing package or step.

drivers_test.py GRADLANED LIBRARY [unittest's arguments]

LIBRARY is made of fixtures/hidden_files.cc. Needs no root. Messages about cards that are present are tested in
tests/dataplane/kernel/pci_device_test.cc.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.scripts.fixtures.paths import preloaded
from tests.scripts.fixtures.waiting import PATIENCE

NODE = """
nodes: [{{rank: 0, ip: 10.77.73.1}}, {{rank: 1, ip: 10.77.73.2}}]
rank: 0
socket: {folder}/sock
ports: [{port}]
"""
NO_CARD = "0000:fe:1e.6"


class DriversTest(unittest.TestCase):
    def last_line(self, port, hidden="", more=""):
        """Runs a daemon that does not see files with `hidden` in their names. The daemon must refuse to start. Returns
        the last line that it prints."""
        environment = dict(os.environ)
        with tempfile.TemporaryDirectory() as folder:
            if hidden:
                environment |= {"LD_PRELOAD": preloaded(LIBRARY, folder), "HIDDEN_FILES": hidden}
            file = pathlib.Path(folder, "node.yaml")
            file.write_text(NODE.format(folder=folder, port=port) + more)
            result = subprocess.run([GRADLANED, "--config", file], env=environment, stderr=subprocess.PIPE, text=True,
                                    timeout=PATIENCE)
        self.assertEqual(result.returncode, 2, result.stderr)
        return result.stderr.rstrip("\n").split("\n")[-1]

    def test_pools(self):
        self.assertRegex(self.last_line("{device: net_null0}", "librte_mempool_ring"),
                         r"^gradlaned: DPDK's driver librte_mempool_ring\.so is not in /\S+: on Debian, "
                         r"apt install librte-mempool-ring[0-9]+$")

    def test_virtual_devices(self):
        for device, driver, package in (
                ("net_memif0,role=client,socket=/nowhere", "net_memif", "librte-net-memif[0-9]+"),
                ("net_tap0", "net_tap", "librte-net-tap[0-9]+"),
                ("net_null0", "net_null", "librte-net-null[0-9]+")):
            with self.subTest(device):
                self.assertRegex(self.last_line(f"{{device: '{device}'}}", f"librte_{driver}."),
                                 rf"port e0: DPDK has no device '{device}'; DPDK's driver librte_{driver}\.so is not "
                                 rf"in /\S+: on Debian, apt install {package}$")

    def test_no_card(self):
        for hidden in ("", "librte_net_"):
            self.assertRegex(self.last_line(f"{{pci: '{NO_CARD}'}}", hidden),
                             f"port e0: PCI device {NO_CARD}: there is no such PCI device; `lspci -D` lists")

    def test_hugepages(self):
        free = sum(int(path.read_text()) for path in pathlib.Path("/sys/kernel/mm/hugepages").glob("*/free_hugepages"))
        if free:
            self.skipTest("there are free hugepages")
        self.assertRegex(self.last_line("{device: net_null0}", more="memory: {hugepages: true}\n"),
                         "DPDK did not start: too few hugepages: 0 MiB free, [0-9]+ MiB needed; as root: gradlane nic setup "
                         "--hugepages [0-9]+ PCI, or echo [0-9]+ > "
                         r"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages, or memory: \{hugepages: false\}$")


if __name__ == "__main__":
    GRADLANED, LIBRARY = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
