#!/usr/bin/python3
"""Runs the real daemon as its users would, and as an attacker would.

daemon_test.py GRADLANE GRADLANED [unittest's arguments]; GRADLANE_LIBRARY: libgradlane.so.0, if not in build/.
"""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

from tests.scripts.daemon.client_library import LibraryTest  # noqa: F401 - run from here
from tests.scripts.daemon.hostile import HostileTest  # noqa: F401 - run from here
from tests.scripts.fixtures import daemons
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest, Ring, gradlane_package, wait_for


def gradlaned(*arguments):
    return subprocess.run(
        [daemons.BINARIES["gradlaned"], *arguments], capture_output=True, text=True, timeout=PATIENCE
    )


class ConfigTest(DaemonTest):
    def test_errors_tell_where(self):
        good = Ring(self.folder, 1).files[0].read_text()
        cases = [
            (good + "trainer: 2\n", "trainer: unknown key, did you mean 'trainers'"),
            (good.replace("10.77.0.1", "10.77.0.300"), "ip: "),
            (good.replace("mtu: 1500", "mtu: 100"), "mtu: "),
            (good.replace("peer: 30s", "peer: 30"), "timeouts.peer: "),
            (good.replace("trainers: 1", "trainers: 17"), "trainers: "),
            (good.replace("lanes: 1, threads: 1", "lanes: 1, threads: 2"), "workers.threads: "),
            (good.replace("rank: 0\n", "", 1), "rank: "),
            (good + "codec: fixed:99\n", "codec: "),
            (good + "socket: '/tmp/" + "x" * 120 + "'\n", "socket: "),
            ("nodes: [", "not YAML: "),
        ]
        file = self.folder / "bad.yaml"
        for text, what in cases:
            with self.subTest(what):
                file.write_text(text)
                for options in ([], ["--check"]):
                    result = gradlaned(*options, "--config", str(file))
                    self.assertEqual(result.returncode, 2, result)
                    self.assertRegex(result.stderr, rf"^gradlaned: {file}:\d+:\d+: .*{what}")
                    self.assertEqual(result.stdout, "")
        self.assertEqual(list(self.folder.glob("*.sock*")), [])

    def test_files_that_are_not(self):
        for path in (self.folder / "none.yaml", self.folder):
            result = gradlaned("--config", str(path))
            self.assertEqual(result.returncode, 2, result)
            self.assertIn(str(path), result.stderr)
        self.assertEqual(gradlaned().returncode, 2)
        self.assertEqual(gradlaned("--confg", "x").returncode, 2)

    def test_one_bad_file_of_several(self):
        ring = Ring(self.folder, 2)
        bad = ring.files[1]
        bad.write_text(bad.read_text() + "trainer: 1\n")
        result = gradlaned("--config", str(ring.files[0]), "--config", str(bad))
        self.assertEqual(result.returncode, 2, result)
        self.assertIn(str(bad), result.stderr)
        self.assertEqual(list(self.folder.glob("*.sock*")), [])

    def test_half_a_link(self):
        result = gradlaned("--config", str(Ring(self.folder, 2).files[0]))
        self.assertEqual(result.returncode, 2, result)
        self.assertIn("only one end", result.stderr)
        self.assertEqual(list(self.folder.glob("*.sock*")), [])

    def test_no_permission_for_the_socket(self):
        ring = Ring(self.folder, 1)
        file = ring.files[0]
        file.write_text(file.read_text().replace(f"{self.folder}/n0.sock", "/proc/gradlane/n0.sock"))
        result = gradlaned("--config", str(file))
        self.assertEqual(result.returncode, 2, result)
        self.assertIn("/proc/gradlane", result.stderr)

    def test_check_prints_what_loads_again(self):
        for link in ("ring", "memif"):
            ring = Ring(self.folder, 3, link=link, trainers=2, lanes=2, mtu=9000, codec="raw", local_reduce="true")
            first = gradlaned("--check", "--config", str(ring.files[1]))
            self.assertEqual(first.returncode, 0, first)
            printed = self.folder / "printed.yaml"
            printed.write_text(first.stdout)
            again = gradlaned("--check", "--config", str(printed))
            self.assertEqual(again.returncode, 0, again)
            self.assertEqual(again.stdout, first.stdout)
            for setting in ("udp_port: 18400", "codec: raw", "mtu: 9000", "local_reduce: true"):
                self.assertIn(setting, first.stdout)
        self.assertEqual(list(self.folder.glob("*.sock*")), [])

    def test_help_and_version(self):
        for option, word in (("--help", "--config"), ("--version", "gradlaned ")):
            result = gradlaned(option)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result)
            self.assertIn(word, result.stdout)


class EndTest(DaemonTest):
    """Tests of ends that need signals or memif. All other tests of ends are in tests/stack/ends_test.cc."""

    def test_signals_while_idle(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                ring = self.ring(2, link="memif")
                ring.wait_until_ready()
                with ring.open(0) as first, ring.open(1) as second:
                    self.check_all_reduce([first, second])
                    for daemon in ring.daemons:
                        daemon.signal(number)
                    for daemon in ring.daemons:
                        self.assertEqual(daemon.end(), 0, daemon.log())
                    with self.assertRaisesRegex(gradlane_package().DaemonGone, "shutting down"):
                        first.barrier()
                self.finish(ring)

    def test_one_node_is_restarted(self):
        for node in (0, 1):  # the server of the link, and its client
            ring = self.ring(2, link="memif")
            contexts = self.open_all(ring)
            self.check_all_reduce(contexts)
            request = contexts[1 - node].barrier(async_=True)
            contexts[node].close()
            self.assertEqual(ring.daemons[node].stop(), 0)
            self.assertIn(f"rank {node}", str(self.failures([request])[0]))
            ring.start(node)
            contexts[node] = self.open(ring, node)
            wait_for(lambda: ring.daemons[node].lines("the ring is ready"), "the ring is ready again")
            for gl in contexts:
                gl.resume(1000)
            self.check_all_reduce(contexts)
            self.finish(ring, contexts)


class IdleTest(DaemonTest):
    def test_adaptive_daemon_lets_others_have_the_cpu(self):
        for link, nodes in (("ring", 2), ("memif", 2)):
            ring = self.ring(nodes, link=link)
            contexts = self.open_all(ring)
            self.check_all_reduce(contexts)
            for daemon in ring.daemons:
                daemon.check_that_it_idles()
            self.check_all_reduce(contexts)
            self.finish(ring, contexts)


def main():
    names = {"gradlane": 1, "gradlaned": 2}
    for name, place in names.items():
        daemons.BINARIES[name] = str(pathlib.Path(sys.argv[place]).resolve())
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)


if __name__ == "__main__":
    main()
