#!/usr/bin/python3
"""Runs the real daemon as its users would, and as an attacker would.

daemon_test.py GRADLANE GRADLANED [unittest's arguments]; GRADLANE_LIBRARY: libgradlane.so.0, if not in build/.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from tests.scripts.daemon.client_library import LibraryTest  # noqa: F401 - run from here
from tests.scripts.daemon.hostile import HostileTest  # noqa: F401 - run from here
from tests.scripts.fixtures import daemons
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest, Ring, TrainerProcess, gradlane_package, wait_for

MANY = 3_000_000  # floats: a tensor that takes a while


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
    def test_signals_while_idle(self):
        for link in ("ring", "memif"):
            for number in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(link=link, signal=number):
                    ring = self.ring(2, link=link)
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

    def test_what_can_finish_does(self):
        for link in ("ring", "memif"):
            ring = self.ring(2, link=link, codec="raw", timeouts="{shutdown: 40s}")
            contexts = self.open_all(ring)
            self.check_all_reduce(contexts)
            data = [gl.zeros(4 * MANY) for gl in contexts]
            for array in data:
                array[:] = 1
            requests = [gl.all_reduce(array, async_=True) for gl, array in zip(contexts, data)]
            # Both have begun where some of the sums have come to one of them.
            wait_for(lambda: any((array[::1000] != 1).any() for array in data), "the first sums")
            ring.daemons[0].signal(signal.SIGTERM)
            for array, request in zip(data, requests):
                request.wait(PATIENCE)
                self.assertTrue((array == 2).all())
            self.assertEqual(ring.daemons[0].end(), 0)
            self.finish(ring, contexts)

    def test_what_cannot_finish_fails(self):
        for link in ("ring", "memif"):
            ring = self.ring(2, link=link)
            contexts = self.open_all(ring)
            self.check_all_reduce(contexts)
            request = contexts[0].all_reduce(contexts[0].zeros(1000), async_=True)
            time.sleep(0.1)
            ring.daemons[0].signal(signal.SIGTERM)
            self.assertRegex(str(self.failures([request])[0]), r"shutting down|rank \d has left")
            self.assertEqual(ring.daemons[0].end(), 0)
            self.finish(ring, contexts)

    def test_second_daemon_is_refused(self):
        ring = self.ring(1)
        ring.wait_until_ready()
        gl = self.open(ring, 0)
        second = gradlaned("--config", str(ring.files[0]))
        self.assertEqual(second.returncode, 2, second)
        self.assertRegex(second.stderr, f"another daemon listens on {ring.sockets[0]}; stop it")
        self.check_all_reduce([gl])
        gl.close()
        self.check_all_reduce([self.open(ring, 0)])

    def test_kill_tells_trainers_and_restart_works(self):
        for link in ("ring", "memif"):
            ring = self.ring(2, link=link)
            contexts = self.open_all(ring)
            self.check_all_reduce(contexts)
            request = contexts[0].all_reduce(contexts[0].zeros(1000), async_=True)
            time.sleep(0.05)
            for daemon in ring.daemons:
                self.killed.add(daemon.pid)
                daemon.signal(signal.SIGKILL)
            error = self.failures([request])[0]
            self.assertIsInstance(error, gradlane_package().DaemonGone)
            self.assertIn(str(ring.sockets[0]), str(error))
            for gl in contexts:
                gl.close()
            for daemon in ring.daemons:
                daemon.end()
            ring.start()  # over the files that are still there
            contexts = self.open_all(ring)
            self.check_all_reduce(contexts)
            self.finish(ring, contexts)

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
            wait_for(lambda: ring.daemons[node].lines("the ring is whole"), "the ring is whole again")
            for gl in contexts:
                gl.resume(1000)
            self.check_all_reduce(contexts)
            self.finish(ring, contexts)


class TrainerDiesTest(DaemonTest):
    def check(self, nodes, victim, **settings):
        ring = self.ring(nodes, timeouts="{peer: 6s, start: 15s, operation: 60s}", **settings)
        world = nodes * ring.trainers
        process = TrainerProcess(ring, victim, MANY)
        self.trainers.append(process)
        contexts = [self.open(ring, rank) for rank in range(world) if rank != victim]
        data = [gl.zeros(MANY) for gl in contexts]
        process.wait_for("ready")
        for _ in range(2):
            for request in [gl.all_reduce(array, async_=True) for gl, array in zip(contexts, data)]:
                request.wait(PATIENCE)
        requests = [gl.all_reduce(array, async_=True) for gl, array in zip(contexts, data)]
        process.kill()
        errors, well = [], []
        # Long before the operation's limit. What all of them had nearly finished may end well: then the next one fails.
        for gl, array, request in zip(contexts, data, requests):
            try:
                request.wait(PATIENCE)
                well.append((gl, array))
            except gradlane_package().OperationFailed as error:
                errors.append(error)
        errors += self.failures([gl.all_reduce(array, async_=True) for gl, array in well])
        # With local reduction the ranks of the ring are nodes.
        named = victim // ring.trainers if settings.get("local_reduce") else victim
        texts = [str(error) for error in errors]
        self.assertRegex("\n".join(texts), rf"(rank|node) {named}\b|trainer of this node has gone")
        # Whoever starts another operation later may find that the others have failed theirs, and do not start it.
        for text in texts:
            self.assertRegex(text, r"(rank|node) \d|trainer of this node has gone")
        self.assert_one_line(ring, rf"trainer of rank {victim} .* has left")
        self.assertEqual(ring.lines("error"), [])
        contexts.insert(victim, self.open(ring, victim))
        for gl in contexts:
            gl.resume(1 << 20)
        self.check_all_reduce(contexts)
        self.check_all_reduce(contexts, count=MANY)
        self.finish(ring, contexts)

    def test_ring(self):
        for victim in range(3):
            self.check(3, victim, link="ring")

    def test_memif(self):
        self.check(3, 1, link="memif")

    def test_several_ranks_on_a_node(self):
        self.check(2, 1, link="ring", trainers=2, lanes=2)
        self.check(2, 2, link="memif", trainers=2)

    def test_local_reduce(self):
        self.check(2, 1, link="ring", trainers=2, local_reduce="true")
        self.check(2, 2, link="memif", trainers=2, local_reduce="true")


class DisagreementTest(DaemonTest):
    def test_counts_types_codecs_kinds(self):
        for link in ("ring", "memif"):
            for lanes in (1, 2):
                with self.subTest(link=link, lanes=lanes):
                    ring = self.ring(2, link=link, lanes=lanes)
                    contexts = self.open_all(ring)
                    self.check_pairs(contexts)
                    self.finish(ring, contexts)

    def check_pairs(self, contexts):
        big = 100_000  # divided among lanes, 1000 are not

        def reduce(count, dtype="float32", **options):
            return lambda gl: gl.all_reduce(gl.zeros(count, dtype), async_=True, **options)

        pairs = [
            (reduce(1000), reduce(1001), "count", "1000", "1001"),
            (reduce(big), reduce(big + 1), "count", str(big), str(big + 1)),
            (reduce(10), reduce(big), "count", "10", str(big)),
            (reduce(0), reduce(10), "count", "0", "10"),
            (reduce(1000), reduce(1000, "int32"), "type", "float32", "int32"),
            (reduce(big, "float64"), reduce(big, "float16"), "type", "float64", "float16"),
            (reduce(big, codec="raw"), reduce(big, codec="fixed:7"), "codec", "raw", "fixed:7"),
            (reduce(1000, average=True), reduce(1000), "reduction", "average", "sum"),
            (reduce(1000, tag=7), reduce(1000, tag=8), "tag", "7", "8"),
            (reduce(1000), lambda gl: gl.barrier(async_=True), "kind", "all-reduce", "barrier"),
            (lambda gl: gl.broadcast(gl.zeros(big), root=0, async_=True),
             lambda gl: gl.broadcast(gl.zeros(big), root=1, async_=True), "root", "0", "1"),
        ]
        for first, second, what, *values in pairs:
            for start in ((first, second), (second, first)):
                errors = self.failures([begin(gl) for begin, gl in zip(start, contexts)])
                for error in errors:
                    self.assertIsInstance(error, gradlane_package().OperationFailed)
                    for value in values:
                        self.assertRegex(str(error), rf"{what}: .*\b{value}\b")
                # Whoever saw it fail first may have begun anew alone: that is what docs/client.md says to do.
                for gl in contexts:
                    gl.resume(0)
                self.check_all_reduce(contexts)
                self.check_all_reduce(contexts, count=big)


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
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])


if __name__ == "__main__":
    main()
