#!/usr/bin/python3
"""Tests metrics with the real promtool and a real Prometheus, which finds the slow one of four nodes.

metrics_test.py GRADLANED [unittest's arguments]

The four nodes are a ring in network namespaces. One of their network links has a lower rate. Prometheus runs on another
host of that network. Needs root.
"""

import contextlib
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

import numpy

from tests.scripts.fixtures import networks, node_file, rings
from tests.scripts.fixtures.paths import gradlane_package
from tests.scripts.fixtures.waiting import PATIENCE, wait_for

GRADLANED = str(pathlib.Path(sys.argv[1]).resolve())
HERE = pathlib.Path(__file__).parent
DOCS = HERE.parents[2] / "docs"
RULES = DOCS / "metrics" / "alerts.yml"
NODES = 4
SLOW = 2  # node whose network link is slow
PORT = 9400
PROMETHEUS = f"""
global: {{scrape_interval: 500ms, scrape_timeout: 400ms, evaluation_interval: 500ms}}
rule_files: [{RULES}]
scrape_configs:
  - job_name: gradlane
    static_configs:
      - targets: {[f"10.77.0.{node + 1}:{PORT}" for node in range(NODES)]}
"""
NAME = re.compile(r"\bgradlane_[a-z_]+\b")


def promtool(*words, text=None):
    """Runs promtool, which must succeed. Returns its output."""
    result = subprocess.run(["promtool", *map(str, words)], input=text, capture_output=True, text=True, timeout=PATIENCE,
                            check=False)
    assert result.returncode == 0, f"{words}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout + result.stderr


def families(text):
    """Returns the names of all metrics with samples in a scrape, as queries write them."""
    names = {line.split("{")[0].split()[0] for line in text.splitlines() if not line.startswith("#")}
    return {name for name in names if NAME.fullmatch(name)}


class Trainers:
    """One trainer on each node, all in this process, which all-reduce again and again."""

    def __init__(self, ring):
        self.contexts = [ring.open(rank) for rank in range(NODES)]
        self.arrays = [gl.zeros(1 << 17) for gl in self.contexts]
        for array in self.arrays:
            array[:] = numpy.random.default_rng(1).normal(0, 1, array.size)
        self.end = threading.Event()
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self):
        while not self.end.is_set():
            for array in self.arrays:
                array *= 0.25  # restores the values from before the sum
            for request in [gl.all_reduce(array, codec="fixed:10", async_=True)
                            for gl, array in zip(self.contexts, self.arrays)]:
                request.wait(PATIENCE)

    def close(self):
        self.end.set()
        self.thread.join()
        for gl in self.contexts:
            gl.close()


class ScrapedRing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gl-metrics-")))
        network = stack.enter_context(networks.Network(NODES, rate="200mbit", kernel=True))
        ring = rings.Ring("udp", NODES, cls.folder, GRADLANED, network,
                          extra_yaml=lambda node: f"metrics: 10.77.0.{node + 1}:{PORT}\n")
        stack.enter_context(ring).start()
        cls.host = network.stranger()
        cls.host.ip("link", "set", "lo", "up")  # queries to Prometheus come from its own host
        (cls.folder / "prometheus.yml").write_text(PROMETHEUS)
        prometheus = subprocess.Popen(
            cls.host.command("prometheus", f"--config.file={cls.folder}/prometheus.yml",
                             f"--storage.tsdb.path={cls.folder}/data", "--web.listen-address=10.77.0.200:9090"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=stack.enter_context(open(cls.folder / "prometheus.log", "wb")))
        stack.callback(prometheus.wait, PATIENCE)
        stack.callback(prometheus.terminate)
        ring.wait_whole()
        subprocess.run(f"tc -n {network.spaces['sw'].name} qdisc replace dev p{SLOW} root tbf rate 20mbit burst 32768 "
                       "latency 20ms".split(), check=True)
        stack.callback(Trainers(ring).close)

    def get(self, url, *options):
        """Sends a request from a host of that network. Returns the answer, which is empty if nobody answers."""
        fetch = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(u.Request(sys.argv[1], headers=dict(" \
                "[sys.argv[2:4]] if sys.argv[2:] else [])), timeout=60).read().decode())"
        return subprocess.run(self.host.command(sys.executable, "-c", fetch, url, *options), capture_output=True,
                              text=True, timeout=PATIENCE, check=False).stdout

    def scrape(self, node, *options):
        return self.get(f"http://10.77.0.{node + 1}:{PORT}/metrics", *options)

    def query(self, expression):
        """Returns the results of a query to Prometheus as [(labels, value)]."""
        text = self.get("http://10.77.0.200:9090/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        answer = json.loads(text) if text else {}
        return [(it["metric"], float(it["value"][1])) for it in answer.get("data", {}).get("result", [])]

    def wait_for(self, expression, right):
        """Waits until the results of a query are right, and returns them."""
        seen = [None]

        def look():
            seen[0] = self.query(expression)
            return seen[0] and right(seen[0])

        try:
            wait_for(look, expression)
        except AssertionError as error:
            raise AssertionError(f"{error}, but {seen[0]}\n{(self.folder / 'prometheus.log').read_text()[-2000:]}") from None
        return seen[0]

    def test_1_promtool(self):
        """Checks that promtool accepts the metrics, and that docs, dashboard and rules use only metrics that exist."""
        wait_for(lambda: "gradlane_operation_seconds_count" in self.scrape(0), "the first sum")
        text = self.scrape(0)
        self.assertEqual(promtool("check", "metrics", text=text), "")
        there = families(text)
        self.assertGreater(len(there), 50)

        open_metrics = self.scrape(0, "Accept", "application/openmetrics-text;version=1.0.0")
        self.assertTrue(open_metrics.endswith("\n# EOF\n"))
        self.assertEqual(families(open_metrics), there)

        table = set(re.findall(r"^\| ?`(gradlane_[a-z_]+)`", (DOCS / "counters.md").read_text(), re.MULTILINE))
        plain = {re.sub("_(bucket|sum|count)$", "", name) for name in there}
        # These have samples only with a shorter path, a device that reports its speed, and local_reduce.
        seldom = {"gradlane_neighbour_path_mtu_bytes", "gradlane_port_speed_bytes", "gradlane_trainer_awaited_seconds_total"}
        self.assertEqual(table - seldom, plain - seldom, "the table of docs/counters.md")
        dashboard = json.loads((DOCS / "metrics" / "dashboard.json").read_text())
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        queries.append(dashboard["templating"]["list"][-1]["query"]["query"])
        self.assertGreater(len(queries), 8)
        for source in [*queries, RULES.read_text(), *re.findall(r"```promql\n(.*?)```", (DOCS / "monitoring.md").read_text(),
                                                                 re.DOTALL)]:
            self.assertLessEqual(set(NAME.findall(source)), there, source)

    def test_2_rules(self):
        self.assertIn("5 rules found", promtool("check", "rules", RULES))
        for file in (RULES, HERE / "alerts_test.yml"):
            shutil.copy(file, self.folder)
        promtool("test", "rules", self.folder / "alerts_test.yml")

    def test_3_prometheus(self):
        """Checks that Prometheus scrapes all four nodes, and finds the slow node and the cause."""
        self.wait_for('count(up{job="gradlane"} == 1)', lambda found: found[0][1] == NODES)
        self.wait_for("count(count by (node) (gradlane_ring_whole == 1))", lambda found: found[0][1] == NODES)
        full = "topk(1, rate(gradlane_link_window_full_seconds_total[4s]) > 0.3)"
        (labels, share), = self.wait_for(full, lambda found: str(SLOW) in (found[0][0]["peer"], found[0][0]["rank"]))
        self.assertEqual((labels["node"], labels["peer"]), (str(SLOW - 1), str(SLOW)), share)
        link = f'node="{SLOW - 1}",peer="{SLOW}"'
        self.wait_for(f"8e-6 * rate(gradlane_link_sent_bytes_total{{{link}}}[4s])",
                      lambda found: 0 < found[0][1] < 40)  # Mb/s: the rate of the slow link; other links have 200
        self.wait_for(f"histogram_quantile(0.5, rate(gradlane_link_rtt_seconds_bucket{{{link}}}[4s])) > 0.002",
                      lambda found: found[0][1] < 1)
        for node in range(NODES):
            self.wait_for(f'sum(rate(gradlane_worker_busy_seconds_total{{node="{node}"}}[4s]))',
                          lambda found: 0 < found[0][1] < 1.1)
        groups = json.loads(self.get("http://10.77.0.200:9090/api/v1/rules"))["data"]["groups"]
        self.assertEqual([rule["health"] for group in groups for rule in group["rules"]], ["ok"] * 5)
        # Every query of the dashboard has a result.
        dashboard = json.loads((DOCS / "metrics" / "dashboard.json").read_text())
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                expression = target["expr"].replace("$__rate_interval", "5s").replace("$node", ".*")
                self.assertTrue(self.query(expression), f"{panel['title']}: {expression}")


class AloneTest(unittest.TestCase):
    """Tests the metrics of a ring of one node, on loopback."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gl-metrics-")))

    def start(self, port):
        file, sock = self.folder / "n0.yaml", self.folder / "n0.sock"
        node_file.write(file, 0, 1, 1, sock, 1500, 1, None, {"metrics": f"127.0.0.1:{port}"}, [])
        daemon = subprocess.Popen([GRADLANED, "--config", str(file)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        self.addCleanup(daemon.stdout.close)
        self.addCleanup(daemon.wait, PATIENCE)
        self.addCleanup(daemon.terminate)
        return daemon, sock

    def test_address_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            daemon, _ = self.start(port)
            text = daemon.communicate(timeout=PATIENCE)[0]
        self.assertEqual(daemon.returncode, 2, text)
        self.assertIn(f"metrics: cannot listen at 127.0.0.1:{port}: Address already in use; another program listens "
                      "there", text)

    def test_hostile_scrapers(self):
        """Checks that hostile scrapers delay neither trainers nor other scrapers."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        _, sock = self.start(port)
        wait_for(sock.exists, "the daemon")
        with contextlib.ExitStack() as stack:
            gl = stack.enter_context(gradlane_package().open(str(sock), rank=0, timeout=PATIENCE))
            crowd = []
            for bytes_sent in (b"", b"GET /metrics HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET /metrics HTTP/1.0\r\n\r\n"):
                for _ in range(16):
                    crowd.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)))
                    crowd[-1].sendall(bytes_sent)
            data = gl.zeros(1000)
            data[:] = 3
            for _ in range(20):
                gl.all_reduce(data)
            self.assertEqual(set(data), {3})
            text = b""
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as scraper:
                scraper.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                while part := scraper.recv(65536):
                    text += part
            self.assertTrue(text.startswith(b"HTTP/1.1 200 OK\r\n"), text[:100])
            self.assertIn(b'gradlane_operations_total{node="0",rank="0",lane="0",result="done"} 20\n', text)


if __name__ == "__main__":
    networks.require("prometheus", "promtool")
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
