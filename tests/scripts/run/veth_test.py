#!/usr/bin/python3
"""Tests `gradlane run --link veth` as a user runs it: results, its network, and what it leaves behind.

Usage: veth_test.py GRADLANE GRADLANED. Needs root, ip, tc and ethtool; without them it is skipped (exit status 77).
"""

import json
import os
import pathlib
import signal
import sys
import time
import unittest

from tests.scripts.fixtures import networks
from tests.scripts.run.runs import Programs
from tests.scripts.run.spaces import Endings, SpacesTest, inside, namespaces

EXACT = ["-n", "2", "-w", "1", "--json"]


class RunVethTest(Endings, SpacesTest):
    link = "veth"

    # ---- Results

    def perf(self, *arguments, sizes=("1000", "256000", "256"), codecs="raw,fixed:10"):
        first, last, factor = sizes
        command = [Programs.gradlane, "perf", *EXACT, "-b", first, "-e", last, "-f", factor, "--codec", codecs]
        run = self.run_it("-n", "4", "--no-prefix", *arguments, command=command)
        result = json.loads(run.out)
        self.assertEqual([row["wrong"] for row in result["rows"]], [0] * len(result["rows"]), result)
        return {(row["codec"], row["bytes"]): row for row in result["rows"]}

    def test_right_results(self):
        self.assertEqual(len(self.perf()), 4)

    def test_right_results_with_jumbo_frames(self):
        self.assertEqual(len(self.perf("--mtu", "9000")), 4)

    def test_links_have_the_rate(self):
        rows = self.perf("--rate", "50mbit", sizes=("400000", "400000", "2"), codecs="raw")
        (row,) = rows.values()
        # A link must carry at least busbw. The rate does not limit the burst, 64 KiB of 600 KB.
        self.assertLess(row["busbw"] * 8000, 50 / 0.85)

    # ---- The network

    def test_network(self):
        run = self.started("--rate", "200mbit", "--mtu", "4000", nodes=3)
        base = f"gradlane-{run.process.pid}"
        self.assertEqual(namespaces(run), [f"{base}-n0", f"{base}-n1", f"{base}-n2", f"{base}-sw"])
        ends = [(f"{base}-n{i}", "gl0") for i in range(3)] + [(f"{base}-sw", f"n{i}") for i in range(3)]
        for namespace, interface in ends:
            link = json.loads(inside(namespace, "ip", "-j", "link", "show", interface))[0]
            self.assertEqual((link["mtu"], link["operstate"]), (4000, "UP"), link)
            # The interface has no addresses, not even link-local ones, so the kernel sends nothing of its own.
            addresses = json.loads(inside(namespace, "ip", "-j", "addr", "show", interface))[0]["addr_info"]
            self.assertEqual(addresses, [])
            shaper = inside(namespace, "tc", "qdisc", "show", "dev", interface)
            self.assertIn("qdisc tbf", shaper)
            self.assertIn("rate 200Mbit burst 64Kb", shaper)
            offloads = inside(namespace, "ethtool", "-k", interface).splitlines()
            for name in ("tx-checksumming", "generic-segmentation-offload", "generic-receive-offload"):
                self.assertTrue(any(line.startswith(f"{name}: off") for line in offloads), (name, offloads))
        bridge = json.loads(inside(f"{base}-sw", "ip", "-j", "link", "show", "br0"))[0]
        self.assertEqual(bridge["mtu"], 4000)
        for i in range(3):
            daemon = run.pid_of(f"n{i}.yaml")
            self.assertEqual(os.stat(f"/proc/{daemon}/ns/net").st_ino, os.stat(f"/run/netns/{base}-n{i}").st_ino)
        # Trainers are in the caller's namespace.
        trainer = run.pid_of("sleep")
        self.assertEqual(os.readlink(f"/proc/{trainer}/ns/net"), os.readlink("/proc/self/ns/net"))
        self.stop(run, signal.SIGINT)

    def test_config(self):
        for mtu, sizes in (("1500", "framesz=2048,blocksz=4096"), ("9000", "framesz=9088,blocksz=290816")):
            folder = self.folder()
            self.run_it("-n", "2", "--mtu", mtu, "--keep-configs", folder, command=["true"])
            text = (folder / "n1.yaml").read_text(encoding="ascii")
            self.assertIn(f"  - device: 'net_af_packet0,iface=gl0,qdisc_bypass=0,{sizes}'\nworkers:", text)
            self.assertIn(f"mtu: {mtu}\n", text)

    def test_one_node(self):
        self.run_it("-n", "1", command=["true"])

    # ---- Nothing stays behind

    def test_sigkill_while_it_is_built(self):
        for wait in (0, 0.01, 0.03):
            run = self.being_built()
            time.sleep(wait)
            self.killed(run)

    def test_daemon_that_does_not_start(self):
        run = self.run_it("-n", "2", command=["true"], code=1, env={"GRADLANED": "/bin/false"})
        self.assertIn("exited with code 1 before it was ready", run.err)

    def test_network_that_cannot_be_finished(self):
        # The fake tc fails on the third call. Namespaces and veth pairs exist by then.
        folder = self.folder()
        fake = self.fake_program("tc", f"echo x >> {folder}/calls\ntest $(wc -l < {folder}/calls) -lt 3 && exit 0\n"
                                 "echo Error: Specified qdisc kind is unknown. >&2; exit 2\n")
        run = self.run_it("-n", "2", "--rate", "1gbit", command=["true"], code=2, env=fake)
        self.assertIn("gradlane: 'tc qdisc add dev gl0 root tbf rate 1000000000bit burst", run.err)
        self.assertIn("exited with code 2: Error: Specified qdisc kind is unknown.; --rate needs the kernel's tbf",
                      run.err)

    # ---- Bad input, bad machines

    def test_bad_options(self):
        veth = ["-n", "2", "--link", "veth"]
        rates = "fast", "1", "1gb", "-1gbit", "1gbit ", "0mbit", "101gbit", "999kbit", "1e3mbit", "nanbit", "gbit"
        for rate in rates:
            with self.subTest(rate=rate):
                self.refused([*veth, "--rate=" + rate], [f"--rate '{rate}'", "1mbit to 100gbit"])
        self.refused(["-n", "2", "--rate", "1gbit"], ["--rate 1gbit", "--link veth"])
        self.refused([*veth, "--mtu", "9001"], ["--mtu '9001'", "576 to 9000"])
        self.refused([*veth, "--lanes", "2"], ["--lanes 2", "--link veth", "1"])

    def test_good_rates(self):
        for rate, shown in (("2.5GBIT", "2500Mbit"), ("1000kbit", "1Mbit")):
            run = self.started("--rate", rate)
            shaper = inside(f"gradlane-{run.process.pid}-n0", "tc", "qdisc", "show", "dev", "gl0")
            self.assertIn(f"rate {shown}", shaper)
            self.stop(run)

    def test_without_namespaces(self):
        self.refused(["-n", "2", "--link", "veth"], ["'ip netns add gradlane-", "--privileged"],
                     prefix=("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    networks.require("setpriv")
    Programs.gradlane = str(pathlib.Path(sys.argv.pop(1)).resolve())
    Programs.daemon = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
