#!/usr/bin/python3
"""Tests the reports of a ring: the log, the admin socket, `gradlane stats`, `top` and `trace`, and metrics.

observe_test.py GRADLANE GRADLANED [unittest's arguments]

Three nodes on memif links have trainers that all-reduce all the time. Needs no root. Details of the output are tested
in tests/dataplane/status/, tests/dataplane/watch/ and tests/tools/.
"""

import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from tests.scripts.fixtures import ports, rings
from tests.scripts.fixtures.paths import ROOT, gradlane_package
from tests.scripts.fixtures.trainers import Trainers
from tests.scripts.fixtures.waiting import DEATH_TIMEOUTS, PATIENCE, wait_for

GRADLANE, GRADLANED = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
NODES = 3
LATE = 1  # node whose trainer may be late
SETTINGS = {"codec": "fixed:10", "lanes": 2, "timeouts": DEATH_TIMEOUTS}


def ask(path, request=b"stats\n"):
    """Sends a request line to an admin socket. Returns the JSON document of the answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        client.connect(str(path))
        client.sendall(request)
        return json.loads(b"".join(iter(lambda: client.recv(65536), b"")))


def tool(*words, status=0, **variables):
    ended = subprocess.run([GRADLANE, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, check=False,
                           env={**os.environ, **variables})
    assert ended.returncode == status, ended
    return ended.stdout + ended.stderr


class ObserveTest(unittest.TestCase):
    """All cases share one ring and run in order: the first case completes the ring, the last one breaks it."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="gl-observe-")))
        cls.ports = [ports.free_port() for _ in range(NODES)]
        cls.ring = cls.enterClassContext(rings.Ring(
            "memif", NODES, cls.folder, GRADLANED, extra_yaml=lambda node: f"metrics: 127.0.0.1:{cls.ports[node]}\n",
            **SETTINGS))
        cls.ring.start_node(0)
        cls.ring.start_node(1)

    def admin(self, node):
        return self.folder / f"n{node}.admin"

    def stats(self, node, *options, status=0):
        return tool("stats", "--admin", self.admin(node), *options, status=status)

    def done(self, node):
        """Returns the number of operations that succeeded, for each lane."""
        return [rank["counters"]["operations_done"] for rank in ask(self.admin(node))["ranks"]]

    def wait_for_sums(self, count=3):
        """Waits until each node has completed `count` more operations on each lane."""
        before = [min(self.done(node)) for node in range(NODES)]
        wait_for(lambda: all(min(self.done(node)) >= before[node] + count for node in range(NODES)), "sums")

    def test_1_a_neighbour_is_missing(self):
        wait_for(lambda: self.ring.lines(0, "node 0: node 2 is missing: "), "a line in the log")
        (line,) = self.ring.lines(0, "node 0: node 2 is missing: ")
        self.assertIn("port e1: not started yet: the daemon of node 2 is not running", line)
        self.assertIn(" warning ", line)
        states = {it["node"]: (it["state"], it["why"]) for it in ask(self.admin(0))["neighbours"]}
        self.assertEqual((states[1], states[2][0]), (("up", ""), "missing"))
        self.assertIn(states[2][1], line)
        self.assertIn(states[2][1], self.stats(0, status=4))
        self.ring.start_node(2)
        self.ring.wait_whole()
        for node in range(NODES):
            wait_for(lambda: all(it["why"] == "" for it in ask(self.admin(node))["neighbours"]), "no complaint")
        type(self).trainers = Trainers(self.ring, late=LATE)
        self.addClassCleanup(self.trainers.close)
        self.wait_for_sums()

    def test_2_stats(self):
        self.assertEqual(stat.S_IMODE(self.admin(0).stat().st_mode), 0o660)
        document = json.loads(self.stats(0, "--json"))
        expected = {"pid": self.ring.pid(0), "node": 0, "nodes": NODES, "codec": "fixed:10", "mtu": 1500, "lanes": 2,
                    "trainers": 1, "attached": 1, "auth": False, "faults": None}
        self.assertEqual({key: document[key] for key in expected}, expected)
        self.assertGreater(document["rss_kb"], 1000)
        self.assertRegex(document["config_digest"], "^0x[0-9a-f]{16}$")
        for pool in document["pools"]:
            self.assertTrue(0 <= pool["free"] <= pool["buffers"], pool)
        self.assertEqual([(rank["rank"], rank["lane"], rank["ring"]) for rank in document["ranks"]],
                         [(0, 0, "whole"), (0, 1, "whole")])
        for rank in document["ranks"]:
            self.assertEqual([(link["rank"], link["up"]) for link in rank["links"]], [(1, True), (2, True)])
            self.assertTrue(all(link["rtt_us"] > 0 for link in rank["links"]))
        self.assertEqual([(port["driver"], port["link"], len(port["queues"])) for port in document["ports"]],
                         [("net_memif", "up", 2)] * 2)
        self.assertTrue(all(queue["counters"]["received"] > 0 for port in document["ports"] for queue in port["queues"]))

        table = tool("stats", "--socket", self.ring.socket(0))
        for words in ("node 0 of 3", "codec fixed:10", "node 1", "10.77.0.2", "whole", "e0"):
            self.assertIn(words, table)
        self.assertNotIn("packets for the exchange", table)
        full = tool("stats", "--config", self.ring.config(0), "--all")
        self.assertRegex(full, r"operations_done +\d+  operations that succeeded")
        self.assertRegex(full, r"gradlane +\d+  packets for the exchange")

    def watch(self, *options, stdout=subprocess.PIPE):
        return subprocess.Popen([GRADLANE, "stats", "--admin", str(self.admin(0)), "--watch", "0.2", *options],
                                stdout=stdout, text=True)

    def interrupt(self, process):
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_3_stats_again_and_again(self):
        with self.watch("--json") as watching:
            first, second = (json.loads(watching.stdout.readline())["uptime_s"] for _ in range(2))
            self.interrupt(watching)
        self.assertLess(first, second)
        with self.watch() as watching:
            blocks = ""
            while blocks.count("node 0 of 3") < 2 or "rx Gb/s" not in blocks:
                blocks += watching.stdout.readline()
            self.interrupt(watching)
        self.assertNotIn("\x1b", blocks)
        master, terminal = pty.openpty()
        with self.watch(stdout=terminal) as watching:
            screen = ""
            while screen.count("node 0 of 3") < 2:
                screen += os.read(master, 1 << 16).decode()
            self.interrupt(watching)
        os.set_blocking(master, False)
        with contextlib.suppress(BlockingIOError):
            while True:  # one read from a terminal returns at most some 4 KiB
                screen += os.read(master, 1 << 16).decode()
        os.close(master)
        os.close(terminal)
        self.assertEqual(screen.count("\x1b[2J"), 1, "cleared once, and then written over")
        self.assertTrue(screen.endswith("\x1b[?25h"), "the cursor is back")

    def test_3_requests_of_all_sorts(self):
        for request in (b"what?\n", b"probe 99999999\n", b"x" * 100_000):
            self.assertIn("error", ask(self.admin(0), request))
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(self.admin(0)))
            self.assertEqual(ask(self.admin(0))["node"], 0)
        self.assertIn("probes", ask(self.admin(0), b"probe 300\n"))

    def top(self):
        return json.loads(tool("top", "--admin", self.admin(0), "--json"))

    def test_4_top(self):
        text = tool("top", "--admin", self.admin(0))
        self.assertNotIn("\x1b", text)
        for node in range(NODES):
            self.assertRegex(text, rf"(?m)^{node} +whole ")
        document = self.top()
        self.assertEqual([(node["node"], node["state"]) for node in document["nodes"]],
                         [(node, "whole") for node in range(NODES)])
        wait_for(lambda: all(node["ratio"] > 2 for node in self.top()["nodes"]), "sums that are compressed")
        self.assertEqual({(link["from"], link["to"]) for link in document["links"]},
                         {*itertools.permutations(range(NODES), 2)})
        alone = json.loads(tool("top", "--admin", self.admin(0), "--json", "--one"))
        self.assertEqual([node["state"] for node in alone["nodes"]], ["whole", "not asked", "not asked"])

    def trace(self, *options, until):
        """Runs `gradlane trace` until until() returns. Returns its output."""
        with subprocess.Popen([GRADLANE, "trace", "--admin", str(self.admin(0)), "-s", "500", *options],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder) as tracing:
            self.assertIn(f"tracing {NODES} nodes", tracing.stderr.readline())
            until()
            tracing.send_signal(signal.SIGINT)
            out, err = tracing.communicate(timeout=PATIENCE)
            self.assertEqual((tracing.returncode, err), (0, ""), out)
        return out

    def test_5_trace(self):
        out = self.trace("-o", "ring.json", until=lambda: self.wait_for_sums(20))
        self.assertIn("ring.json: open it in ui.perfetto.dev", out)
        document = json.loads((self.folder / "ring.json").read_text())
        self.assertEqual([node["node"] for node in document["otherData"]["nodes"]], [*range(NODES)])
        spans = [event for event in document["traceEvents"] if event["ph"] == "X"]
        for node in range(NODES):
            sums = [event for event in spans if event["pid"] == node and event["cat"] == "operation"]
            self.assertGreater(len(sums), 3)
            self.assertEqual({event["name"] for event in sums}, {"all-reduce 512 KiB fixed:10"})
            self.assertTrue(all(event["args"]["sent_bytes"] < event["args"]["bytes"] for event in sums
                                if "not_over_at_its_end" not in event["args"]))
        ends = {kind: {event["id"]: event["pid"] for event in document["traceEvents"] if event["ph"] == kind}
                for kind in "sf"}
        flows = {(ends["s"][flow], ends["f"][flow]) for flow in ends["s"].keys() & ends["f"].keys()}
        self.assertEqual(flows, {(0, 1), (1, 2), (2, 0)})

    def test_6_who_is_late(self):
        def it_is_late():
            self.trainers.late.set()
            wait_for(lambda: self.waits(LATE + 1), "a node that waits for a trainer")
            self.trainers.late.clear()
            self.wait_for_sums()

        # Any trainer may lack a CPU for longer than this one is late, so any verdict is right. tests/tools/trace/ tests
        # which node is named.
        verdict, _, rest = self.trace("--summary", until=it_is_late).partition("\n")
        self.assertRegex(verdict, "^(the trainer of node|the worker of node|slowest link|no node stands out)")
        for node in range(NODES):
            self.assertRegex(rest, rf"(?m)^{node} +\d+ +[\d.]+ ")

    def waits(self, node):
        return f"trainer of node {LATE}" in tool("top", "--admin", self.admin(node))

    def scrape(self, node, accept="text/plain"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[node]}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def test_7_metrics(self):
        table = set(re.findall(r"^\| ?`(gradlane_[a-z_]+)`", (ROOT / "docs/counters.md").read_text(), re.MULTILINE))
        self.assertGreater(len(table), 40)
        for node in range(NODES):
            text = self.scrape(node)
            names = set(re.findall(r"(?m)^gradlane_\w+", text))
            self.assertGreater(len(names), 50)
            self.assertLessEqual({re.sub("_(bucket|sum|count)$", "", name) for name in names}, table)
            self.assertIn(f'gradlane_ring_whole{{node="{node}",rank="{node}",lane="0"}} 1\n', text)
            done = re.search(rf'gradlane_operations_total{{node="{node}",rank="{node}",lane="0",result="done"}} (\d+)', text)
            self.assertGreater(int(done[1]), 0)
        self.assertTrue(self.scrape(0, "application/openmetrics-text;version=1.0.0").endswith("\n# EOF\n"))
        if shutil.which("promtool"):
            said = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                                  timeout=PATIENCE, check=False)
            self.assertEqual((said.returncode, said.stdout + said.stderr), (0, ""))

    def test_8_wrong_calls(self):
        missing = self.folder / "none.admin"
        for words, status, text in (
                (("stats", "--admin", missing), 3, "is the daemon running?"),
                (("stats", "--admin", missing, "--socket", missing), 2, "give only one of them"),
                (("stats", "--watch", "soon", "--admin", missing), 2, "0.1 to 3600"),
                (("top", "--admin", missing), 3, "is the daemon running"),
                (("top", "--interval", "0"), 2, "0.1 to 3600"),
                (("trace", "--admin", missing, "-o", self.folder / "none.json"), 3, "is the daemon running"),
                (("trace", "--admin", self.admin(0), "-s", "601"), 2, "0.1 to 600"),
                (("trace", "--admin", self.admin(0), "-o", "/nowhere/x.json"), 2, "cannot write /nowhere/x.json")):
            self.assertIn(text, tool(*words, status=status))
        self.assertFalse((self.folder / "none.json").exists())
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(missing))
        self.assertIn("no daemon listens", tool("stats", "--admin", missing, status=3))
        old = self.folder / "old.sock"
        old.touch()
        self.assertIn("too old", tool("stats", status=3, GRADLANE_SOCKET=str(old)))

    def test_9_a_daemon_dies(self):
        with subprocess.Popen([GRADLANE, "trace", "--admin", str(self.admin(0)), "-s", "500", "-o", "rest.json"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder) as tracing:
            self.assertIn(f"tracing {NODES} nodes", tracing.stderr.readline())
            self.wait_for_sums()
            lines = len(self.ring.lines(0, "node 2 is missing"))
            self.ring.kill(2)
            wait_for(lambda: self.ring.lines(0, "node 2 is missing")[lines:], "another line in the log")
            tracing.send_signal(signal.SIGINT)
            out, err = tracing.communicate(timeout=PATIENCE)
            self.assertEqual(tracing.returncode, 4, out + err)
        self.assertIn("node 2: ", err)
        self.assertIn("broke_off", json.loads((self.folder / "rest.json").read_text())["otherData"]["nodes"][2])
        wait_for(lambda: self.top()["nodes"][2]["state"] == "missing", "top's word for it")
        self.assertIn("2 of 3 nodes answer", tool("top", "--admin", self.admin(0)))
        wait_for(lambda: 'gradlane_ring_whole{node="0",rank="0",lane="0"} 0\n' in self.scrape(0), "a ring with a hole")


class RefusedTest(unittest.TestCase):
    def test_codec(self):
        """Checks that two nodes with different codecs refuse each other. Each side names the setting, with both values.
        """
        values = ("bf16", "fixed:10")
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gl-observe-")))
        ring = self.enterContext(rings.Ring("memif", 2, folder, GRADLANED,
                                            extra_yaml=lambda node: f"codec: {values[node]}\n"))
        ring.start()
        for node, other in ((0, 1), (1, 0)):
            difference = f"codec: {values[node]} here, {values[other]} there"
            start = f"node {node}: node {other} is missing: refused: rank {other} of node {other} "
            wait_for(lambda: ring.lines(node, start), "a refusal")
            self.assertIn(difference, ring.lines(node, start)[0])
            self.assertIn(" error ", ring.lines(node, start)[0])
            wait_for(lambda: ring.stats(node)["ranks"][0]["ring"] == "refused", "a ring that is refused")
            self.assertIn(difference, ring.stats(node)["ranks"][0]["refused"])
            self.assertIn(difference, ring.stats(node)["neighbours"][0]["why"])


class PlanTest(unittest.TestCase):
    def test_what_auto_has_chosen(self):
        """Checks the reports of what `auto` has chosen. The first report says that nothing is chosen yet. Later there
        are a table (printed once, or repeatedly with --watch), a JSON document, and a file for `plan`."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gl-observe-")))
        ring = self.enterContext(rings.Ring("memif", 2, folder, GRADLANED))
        ring.start().wait_whole()
        stats = ("stats", "--admin", folder / "n0.admin")
        self.assertIn("nothing is settled yet", tool(*stats, "--freeze", status=7))
        self.assertIn("the library has not chosen anything yet", tool(*stats, "--plan"))
        contexts = [self.enterContext(ring.open(rank)) for rank in range(2)]
        pool = self.enterContext(concurrent.futures.ThreadPoolExecutor(len(contexts)))

        def settled():
            """Runs some more all-reduces. Returns the settled rows. Each rank has a thread, as ranks agree only in
            their own calls."""
            for _ in range(8):
                list(pool.map(lambda gl: gl.all_reduce(gl.zeros(100_000), codec="auto:2^-10"), contexts))
            return [row for row in json.loads(tool(*stats, "--plan", "--json")) if row["settled"]]

        (row,) = wait_for(settled, "a choice")
        self.assertEqual((row["operation"], row["type"], row["asked"]), ("all_reduce", "float32", "auto:2^-10"))
        line = rf"(?m)^0 +all_reduce +float32 .* auto:2\^-10 +{row['codec']} by {row['strategy']} "
        self.assertRegex(tool(*stats, "--plan"), line)
        self.assertIn(f"strategy: '{row['strategy']}', codec: '{row['codec']}'", tool(*stats, "--freeze"))
        with subprocess.Popen([GRADLANE, *map(str, stats), "--plan", "--watch", "0.2"], stdout=subprocess.PIPE,
                              text=True) as watching:
            blocks = ""
            while len(re.findall(line, blocks)) < 2:
                blocks += watching.stdout.readline()
            watching.send_signal(signal.SIGINT)
            self.assertEqual(watching.wait(PATIENCE), 0)


class FailingTest(unittest.TestCase):
    def test_exit_status(self):
        """Checks that `gradlane stats` ends with 0 while all is well, and with 5 soon after an operation has failed."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gl-observe-")))
        ring = self.enterContext(rings.Ring("memif", 1, folder, GRADLANED, trainers=2))
        ring.start().wait_whole()
        first, second = (self.enterContext(ring.open(rank)) for rank in range(2))
        for request in [gl.barrier(async_=True) for gl in (first, second)]:
            request.wait(PATIENCE)

        def status():
            return subprocess.run([GRADLANE, "stats", "--admin", folder / "n0.admin"], stdout=subprocess.DEVNULL,
                                  timeout=PATIENCE, check=False).returncode

        def fails():
            """Runs an operation that the other rank does not start. Returns the exit status of `gradlane stats` after
            it."""
            with self.assertRaisesRegex(gradlane_package().OperationFailed, "took too long"):
                first.barrier(timeout=0.2)
            return status()

        self.assertEqual(status(), 0)
        wait_for(lambda: fails() == 5, "a failure that is told")


class JobTest(unittest.TestCase):
    """Tests tools that find the daemons of a job of the same user without being given a socket."""

    def setUp(self):
        for folder in (pathlib.Path("/run/gradlane"), pathlib.Path(f"/tmp/gradlane-{os.getuid()}")):
            if folder.is_dir() and any(folder.glob("*.admin")):
                self.skipTest(f"{folder} has sockets of this machine's own daemons, which come first")

    def job(self, nodes, command):
        """Runs a job in which rank 0 runs `command` without the socket of its daemon. Returns what rank 0 prints."""
        with tempfile.TemporaryDirectory(prefix="gl-job-") as folder:
            environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
            ended = subprocess.run(
                [GRADLANE, "run", "-n", str(nodes), "--", "sh", "-c",
                 f"test $RANK != 0 || env -u GRADLANE_SOCKET GRADLANE={GRADLANE} sh -c '{command}'"],
                capture_output=True, text=True, timeout=PATIENCE, check=False,
                env={**environment, "TMPDIR": folder, "GRADLANED": GRADLANED})
        self.assertEqual(ended.returncode, 0, ended)
        return "".join(line.removeprefix("[0] ") for line in ended.stdout.splitlines(keepends=True)
                       if line.startswith("[0] "))

    def test_is_found(self):
        status = json.loads(self.job(2, "$GRADLANE stats --json || test $? = 4"))  # the ring need not be ready yet
        self.assertEqual((status["node"], status["nodes"]), (0, 2))

    def test_is_found_by_top(self):
        nodes = json.loads(self.job(3, "$GRADLANE top --once --json"))["nodes"]
        self.assertEqual([node["node"] for node in nodes], [0, 1, 2])

    def test_must_be_chosen_among_two(self):
        said = self.job(1, '$GRADLANE run -n 1 -- sh -c "env -u GRADLANE_SOCKET $GRADLANE stats 2>&1; test \\$? = 2"')
        self.assertRegex(said, "daemons of 2 jobs run; choose one with --admin: .*/n0.admin, .*/n0.admin")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
