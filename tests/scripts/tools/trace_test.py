#!/usr/bin/python3
"""Tests `gradlane trace` of a ring that `gradlane run` has started: the file, the table, wrong calls, dead daemons.

Usage: trace_test.py GRADLANE GRADLANED. The file must have the "Trace Event Format" of the Chromium project.
"""

import collections
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from tests.scripts.fixtures.paths import PACKAGE
from tests.scripts.fixtures.waiting import PATIENCE, wait_for

GRADLANE, GRADLANED = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
NODES = 3
LATE = 2
TRAINER = pathlib.Path(__file__).with_name("trace_trainer.py")
ROUNDING = 0.0015  # us; times have three decimals


def by_thread(events):
    threads = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    return threads


class TraceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        environment = {**os.environ, "GRADLANED": GRADLANED, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1",
                       "PYTHONWARNINGS": "ignore"}
        command = [GRADLANE, "run", "-n", str(NODES), "--", sys.executable, str(TRAINER), str(cls.folder)]
        cls.log = open(cls.folder / "log", "w+")
        cls.addClassCleanup(cls.log.close)
        cls.job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=cls.log, stderr=cls.log, env=environment)
        cls.addClassCleanup(cls.job.wait)
        cls.addClassCleanup(cls.job.terminate)
        sockets = [cls.folder / f"socket{rank}" for rank in range(NODES)]

        def there():
            assert cls.job.poll() is None, (cls.folder / "log").read_text()
            return all(path.exists() for path in sockets)

        wait_for(there, "the trainers")
        cls.sockets = [path.read_text() for path in sockets]

    def start(self, *options):
        return subprocess.Popen([GRADLANE, "trace", "--socket", self.sockets[0], *options], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)

    def trace(self, *options, status=0):
        process = self.start(*options)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def read(self, name):
        return json.loads((self.folder / name).read_text())

    def check_form(self, document):
        """Checks the fields of each kind of event. Spans of a thread must be nested or disjoint, as the format demands.
        """
        self.assertEqual(document["displayTimeUnit"], "ms")
        events = document["traceEvents"]
        names = set()
        for event in events:
            self.assertIn(event["ph"], "MXsf")
            self.assertIsInstance(event["name"], str)
            self.assertIsInstance(event["pid"], int)
            if event["ph"] == "M":
                self.assertIn(event["name"], ("process_name", "process_sort_index", "thread_name", "thread_sort_index"))
                names.add((event["pid"], event.get("tid")))
                continue
            self.assertIsInstance(event["tid"], int)
            self.assertIsInstance(event["cat"], str)
            self.assertGreaterEqual(event["ts"], 0)
            if event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0)
            else:
                self.assertLess(event["id"], 1 << 53)
        for event in events:
            if event["ph"] == "X":
                self.assertIn((event["pid"], event["tid"]), names, "a thread without a name")
        for spans in by_thread(events).values():
            open_spans = []
            for event in sorted(spans, key=lambda event: (event["ts"], -event["dur"])):
                end = event["ts"] + event["dur"]
                while open_spans and open_spans[-1] <= event["ts"] + ROUNDING:
                    open_spans.pop()
                self.assertLessEqual(end, (open_spans or [end])[-1] + ROUNDING, event)
                open_spans.append(end)
        return events

    def check_flows(self, document, least):
        """Checks that each flow goes from a hop's span on one node to one on another, and never backwards in time."""
        ends = {"s": {}, "f": {}}
        threads = by_thread(document["traceEvents"])
        for event in document["traceEvents"]:
            if event["ph"] in ends:
                self.assertNotIn(event["id"], ends[event["ph"]], "a flow with two beginnings or ends")
                ends[event["ph"]][event["id"]] = event
        whole = ends["s"].keys() & ends["f"].keys()
        self.assertGreater(len(whole), least)
        # A flow that began before the trace or ended after it has only one end.
        self.assertGreater(len(whole), 0.9 * max(len(ends["s"]), len(ends["f"])))
        starts = {thread: {span["ts"] for span in spans if span["cat"] == "hop"} for thread, spans in threads.items()}
        for flow in whole:
            sent, came = ends["s"][flow], ends["f"][flow]
            self.assertNotEqual(sent["pid"], came["pid"])
            self.assertGreaterEqual(came["ts"] - sent["ts"], -document["otherData"]["clock_error_us"] - ROUNDING)
            for end in (sent, came):
                self.assertIn(end["ts"], starts[end["pid"], end["tid"]])

    def test_1_file_and_table(self):
        out, err = self.trace("--seconds", "1", "-o", "ring.json")
        self.assertEqual(err, f"gradlane: tracing {NODES} nodes for 1 s; Ctrl-C ends it\n")
        self.assertIn("ring.json: open it in ui.perfetto.dev", out)
        document = self.read("ring.json")
        events = self.check_form(document)
        self.check_flows(document, 20)
        about = document["otherData"]
        self.assertEqual([node["node"] for node in about["nodes"]], list(range(NODES)))
        self.assertEqual(about["nodes_of_ring"], NODES)
        self.assertGreater(about["clock_error_us"], 0)
        for node in range(NODES):
            self.assertRegex(out, rf"(?m)^{node} +[\d.k]+ ")
            of_node = [event for event in events if event["ph"] == "X" and event["pid"] == node]
            operations = [event for event in of_node if event["cat"] == "operation"]
            sums = [event for event in operations if event["name"] == "all-reduce 512 KiB fixed:10"]
            self.assertGreater(len(sums), 3)
            whole = [event for event in sums if not event["args"].keys() & {"began_before_the_trace", "not_over_at_its_end"}]
            hops = collections.Counter(event["args"]["number"] for event in of_node if event["cat"] == "hop")
            for event in whole:
                # In a ring's all-reduce, each block but one is sent and received, both as sum and as result.
                self.assertEqual(hops[event["args"]["number"]], 4 * (NODES - 1))
                waited = sum(event["args"]["waited_us"].values())
                self.assertLessEqual(waited, event["dur"] + ROUNDING)
                self.assertGreater(waited, 0.5 * event["dur"])
                self.assertLess(event["args"]["sent_bytes"], event["args"]["bytes"])
            self.assertTrue(any(event["cat"] == "wait" for event in of_node))
            self.assertGreater(sum(event["args"]["encode_us"] for event in sums), 0)

    def test_2_who_is_late(self):
        (self.folder / "late").touch()
        out, _ = self.trace("--summary", "-s", "1")
        self.assertRegex(out, rf"^the trainer of node {LATE} is late: ")
        self.assertFalse((self.folder / "gradlane-trace.json").exists())
        out, _ = self.trace("--json", "-s", "0.5")
        (self.folder / "late").unlink()
        self.check_form(self.read("gradlane-trace.json"))
        document = json.loads(out)
        self.assertTrue(document["held_up"])
        late = {node["node"]: node["late_us"] for node in document["nodes"]}
        self.assertEqual(max(late, key=late.get), LATE)
        self.assertGreater(document["nodes"][1]["waits"]["start"], 0.3)  # the successor of node 1 is the late node
        self.assertEqual(document["nodes"][1]["waits_for"]["start"], LATE)
        out, _ = self.trace("--one", "--json", "-s", "0.1", "-o", "one.json")
        self.assertEqual([node["node"] for node in json.loads(out)["nodes"]], [0])

    def test_3_wrong_calls(self):
        for options, status, words in ((["-s", "0"], 2, "0.1 to 600"), (["-s", "601"], 2, "0.1 to 600"),
                                       (["-s", "nan"], 2, "0.1 to 600"), (["-s", "x"], 2, "x"),
                                       (["-o", "/nowhere/ring.json"], 2, "cannot write /nowhere/ring.json: No such file"),
                                       (["-o", "/"], 2, "cannot write /: "),
                                       (["-s", "0.1", "-o", "/dev/full"], 2, "cannot write /dev/full: No space"),
                                       (["--summary", "-o", "a.json"], 2, "--summary writes no file")):
            out, err = self.trace(*options, status=status)
            self.assertEqual(out.count("\n") > 1, "/dev/full" in options, out)
            self.assertIn(words, err)
        ended = subprocess.run([GRADLANE, "trace", "--admin", "/nowhere.admin", "-o", str(self.folder / "none.json")],
                               capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual((ended.returncode, ended.stdout), (3, ""))
        self.assertIn("is the daemon running", ended.stderr)
        self.assertFalse((self.folder / "none.json").exists())

    def test_4_one_at_a_time(self):
        first = self.start_long("-o", "first.json")
        self.assertTrue(self.busy())
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=PATIENCE)
        self.assertEqual((first.returncode, err), (0, ""))
        self.check_form(self.read("first.json"))
        self.assertIn("first.json", out)
        # The daemon stops a trace as soon as its client has ended, even if the client did not ask for that.
        killed = self.start_long("--summary")
        killed.kill()
        killed.communicate()
        wait_for(lambda: not self.busy(), "its end")

    def test_5_what_is_left_belongs_to_its_client(self):
        one = self.admin("trace start")["trace"]
        self.assertGreater(one, 0)
        time.sleep(2)
        answer = self.admin(f"trace stop {one}")
        self.assertTrue(answer["on"])
        if answer["more"]:  # what the trainers did in 2 s may fit into one answer
            self.assertEqual(self.admin("trace start")["trace"], 0)
        while answer["more"]:
            answer = self.admin(f"trace fetch {one}")
            self.assertFalse(answer["on"])
        other = self.admin("trace start")["trace"]
        self.assertEqual(other, one + 1)
        self.assertIn("has ended", self.admin(f"trace fetch {one}")["error"])
        self.admin(f"trace stop {other}")

    def test_6_a_client_that_stood_still(self):
        process = self.start_long("-o", "still.json")
        time.sleep(0.5)
        process.send_signal(signal.SIGSTOP)
        time.sleep(4.5)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 4, out + err)
        self.assertIn("its trace ended early", err)
        self.assertIn("broke_off", self.read("still.json")["otherData"]["nodes"][0])

    def admin(self, request):
        path = pathlib.Path(self.sockets[0]).with_suffix(".admin")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(path))
            connection.sendall(request.encode() + b"\n")
            with connection.makefile() as answer:
                return json.loads(answer.read())

    def start_long(self, *options):
        """Starts a trace. Returns when it is under way."""
        process = self.start("-s", "60", *options)
        self.assertIn(f"tracing {NODES} nodes", process.stderr.readline())
        return process

    def busy(self):
        process = self.start("--summary", "-s", "0.1")
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 3 if "another trace" in err else 0)
        return process.returncode == 3

    def test_7_a_daemon_goes(self):
        stats = subprocess.run([GRADLANE, "stats", "--json", "--socket", self.sockets[1]], capture_output=True, text=True,
                               check=False)
        process = self.start_long("-o", "rest.json")
        time.sleep(1)  # usually long enough for some events
        os.kill(json.loads(stats.stdout)["pid"], signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 4, out + err)
        self.assertIn("node 1: ", err)
        self.assertIn("does not answer any more", out)
        document = self.read("rest.json")
        events = self.check_form(document)
        self.assertIn("broke_off", document["otherData"]["nodes"][1])
        self.assertLessEqual({0, 2}, {event["pid"] for event in events if event["ph"] == "X"})
        self.assertEqual(self.job.wait(PATIENCE), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
