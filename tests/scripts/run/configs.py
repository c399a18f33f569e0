"""Tests of configurations that `gradlane run` writes for its daemons: links of each kind, for each strategy, and
settings.

run_test.py runs them. With a real daemon, that checks each file.
"""

import pathlib
import re
import resource
import shutil
import socket
import subprocess
import tempfile

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.waiting import PATIENCE
from tests.scripts.run.runs import FAKE, Programs, RunCase, needs_fake, sh
from lab.net.spaces import Spaces


class ConfigsTest(RunCase):
    def kept_configs(self, *arguments, prefix=()):
        folder = tempfile.mkdtemp(prefix="run-test-")
        self.addCleanup(shutil.rmtree, folder)
        self.run_it(*arguments, "--keep-configs", folder, command=["true"], prefix=prefix)
        paths = sorted(pathlib.Path(folder).iterdir())
        if Programs.daemon != FAKE:
            for path in paths:
                subprocess.run([Programs.daemon, "--check", "--config", path], check=True, timeout=PATIENCE,
                               stdout=subprocess.DEVNULL)
        return [path.read_text(encoding="ascii") for path in paths]

    def ports(self, text):
        text = re.sub(r"(socket|path|iface)=[^ ,]*/", r"\1=", text.split("ports:")[1].split("workers:")[0])
        return [" ".join(port.split()) for port in text.split("  - ")[1:]]

    def test_vhost_config(self):
        server = "name: next device: 'net_virtio_user0,path=link%s.sock,server=1,queues=2' nodes: [%u]"
        client = "name: prev device: 'net_vhost%u,iface=link%s.sock,client=1,queues=2' nodes: [%u]"
        for link in ((), ("--link", "vhost")):
            texts = self.kept_configs("-n", "3", "--lanes", "2", *link)
            self.assertEqual(self.ports(texts[2]), [server % ("2-0", 0), client % (1, "1-2", 1)])
        texts = self.kept_configs("-n", "2", "--lanes", "2")
        self.assertEqual([self.ports(text) for text in texts], [[server % ("0-1", 1)], [client % (0, "0-1", 0)]])
        self.run_it("-n", "2", "--lanes", "9", command=["true"], code=2)

    def test_long_folder(self):
        """Checks that a TMPDIR that is too long for a device's arguments is not used, and its limit for each link."""
        for link, longest in (("vhost", 54), ("memif", 26), ("udp", 76)):
            for length in (longest, longest + 1):
                with self.subTest(link=link, length=length), tempfile.TemporaryDirectory(prefix="run-", dir="/tmp") as folder:
                    name = pathlib.Path(folder, "x" * (length - len(folder) - 1))
                    name.mkdir()
                    run = self.run_it("-n", "2", "--link", link, command=sh("echo $GRADLANE_SOCKET"), env={"TMPDIR": str(name)})
                    self.assertEqual(str(name) in run.out, length == longest, run.out)

    def test_memif_config(self):
        end = "socket-abstract=no,bsize=9216,rsize=8'"
        texts = self.kept_configs("-n", "3", "--link", "memif", "--codec", "bf16", "--lanes", "2", "--idle", "yield", "--mtu", "1500",
                                  "--log", "info", "--trainers", "2", "--local-reduce")
        self.assertEqual(len(texts), 3)
        self.assertEqual(self.ports(texts[2]), [
            f"name: next device: 'net_memif0,role=server,socket=link2-0.sock,{end} nodes: [0]",
            f"name: prev device: 'net_memif1,role=client,socket=link1-2.sock,{end} nodes: [1]"])
        for line in ("rank: 2", "  - {rank: 2, ip: 10.77.0.3}", "trainers: 2", "local_reduce: true", "codec: 'bf16'",
                     "mtu: 1500", "workers: {lanes: 2, threads: 2, idle: yield}", "log: info"):
            self.assertIn(line, texts[2].splitlines())

    def test_security(self):
        """Checks that sockets of the loopback interface have a key, unless the user says otherwise."""
        for options, word in ((("--link", "udp"), "authenticated"), (("--link", "udp", "--ipv6"), "authenticated"),
                              (("--link", "udp", "--security", "none"), "none"), (("--link", "memif"), "none"),
                              (("--link", "udp", "--security", "encrypted"), "encrypted")):
            for text in self.kept_configs("-n", "2", *options):
                self.assertIn(f"security: {word}", text.splitlines())
                self.assertEqual("auth: {key_file: " in text, word != "none")
        self.assertIn("security: none", self.kept_configs("-n", "1", "--link", "udp")[0].splitlines())

    def test_metrics(self):
        texts = self.kept_configs("-n", "3", "--link", "ring", "--metrics", "64001")
        for node, text in enumerate(texts):
            self.assertIn(f"metrics: 127.0.0.1:{64001 + node}", text.splitlines())
        self.assertNotIn("metrics", self.kept_configs("-n", "1")[0])

    def test_config_of_two_nodes(self):
        end = "socket=link0-1.sock,socket-abstract=no,bsize=9216,rsize=8'"
        first, second = self.kept_configs("-n", "2", "--link", "memif")
        self.assertEqual(self.ports(first), [f"name: next device: 'net_memif0,role=server,{end} nodes: [1]"])
        self.assertEqual(self.ports(second), [f"name: prev device: 'net_memif0,role=client,{end} nodes: [0]"])

    def test_ipv6_config(self):
        for text in self.kept_configs("-n", "2", "--link", "udp", "--ipv6", "--lanes", "2", "--trainers", "3"):
            first, second = (int(port) for port in re.findall(r"ip: '::1', udp_port: (\d+)}", text))
            self.assertEqual(second - first, 6)
            self.assertTrue(10000 <= first < second < 32768 - 6, text)
            self.assertEqual(self.ports(text), ["{udp: auto}"])
        for link, options in (("memif", ()), ("udp", ("--mtu", "1279"))):
            run = self.run_it("-n", "2", "--link", link, "--ipv6", *options, command=["true"], code=2)
            self.assertIn("1280" if options else "--ipv6: needs --link udp", run.err)

    def test_ipv6_ports_are_free(self):
        """Checks that six free ports in a row are found although every seventh port is taken."""
        networks.need(self)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        space = self.enterContext(Spaces()).add("ports", ipv6=True)
        space.ip("link", "set", "lo", "up")
        taken = range(10000, 32768, 7)
        with space.inside():
            for port in taken:
                self.enterContext(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)).bind(("::1", port))
        for _ in range(2):
            text = self.kept_configs("-n", "2", "--link", "udp", "--ipv6", "--trainers", "3", prefix=space.command())[0]
            first = int(re.search(r"ip: '::1', udp_port: (\d+)}", text)[1])
            self.assertEqual({*range(first, first + 6)} & {*taken}, set())

    def test_timeout_of_operations(self):
        for words, line in ((("--timeout", "90"), "timeouts: {peer: 10s, operation: 90s}"),
                            (("--timeout", "30min"), "timeouts: {peer: 10s, operation: 30min}"),
                            (("--timeout", "500ms"), "timeouts: {peer: 10s, operation: 500ms}")):
            for text in self.kept_configs("-n", "2", "--link", "ring", *words):
                self.assertIn(line, text.splitlines())
        self.assertIn("timeouts: {peer: 10s}", self.kept_configs("-n", "1", "--link", "ring")[0])

    def test_ring_config(self):
        texts = self.kept_configs("-n", "3", "--link", "ring")
        self.assertEqual(self.ports(texts[0]), ["name: next ring: link0 nodes: [1]",
                                                "name: prev ring: link2 nodes: [2]"])
        self.assertEqual(self.ports(self.kept_configs("-n", "1", "--link", "ring")[0]), [])

    def reached(self, text):
        return [[int(node) for node in re.findall(r"nodes: \[(.*)\]", port)[0].split(", ")] for port in self.ports(text)]

    def test_links_of_strategies(self):
        """Checks that links of each kind form a mesh, and that the configurations of both ends name the same link.
        (veth has one port to all nodes instead.)"""
        for link in ("vhost", "memif", "ring"):
            texts = self.kept_configs("-n", "4", "--link", link, "--strategies", "direct,ring")
            for node, text in enumerate(texts):
                self.assertIn("strategies: ['direct', 'ring']", text.splitlines())
                self.assertEqual(self.reached(text), [[(node + 1) % 4], [(node + 3) % 4], [(node + 2) % 4]])
            ends = [re.search(r"link[0-9]+-?[0-9]*(\.sock)?", port)[0] for text in texts for port in self.ports(text)]
            self.assertEqual(len(set(ends)), 6)
            self.assertTrue(all(ends.count(end) == 2 for end in ends), ends)
        end = "socket-abstract=no,bsize=9216,rsize=8'"
        texts = self.kept_configs("-n", "4", "--link", "memif", "--strategies", "direct")
        self.assertEqual(self.ports(texts[1])[2],
                         f"name: to3 device: 'net_memif2,role=server,socket=link1-3.sock,{end} nodes: [3]")
        self.assertEqual(self.ports(texts[3])[2],
                         f"name: to1 device: 'net_memif2,role=client,socket=link1-3.sock,{end} nodes: [1]")
        texts = self.kept_configs("-n", "6", "--strategies", "ring,aggregator:4,stream,rings:3", "--trainers", "2",
                                  "--local-reduce")
        self.assertIn("strategies: ['ring', 'aggregator:4,stream', 'rings:3']", texts[0].splitlines())
        self.assertEqual(self.reached(texts[0]), [[1], [5], [2], [3], [4]])
        self.assertEqual(self.reached(texts[1]), [[2], [0], [4]])
        self.assertNotIn("strategies", self.kept_configs("-n", "2", "--link", "ring", "--strategies", "ring")[0])
        # Node 0 has ranks 0 and 1, node 1 has ranks 2 and 3, and so on. So rank 0 is on node 0.
        texts = self.kept_configs("-n", "4", "--trainers", "2", "--link", "ring", "--strategies", "aggregator:0")
        self.assertEqual([self.reached(text) for text in texts], [[[1], [3], [2]], [[2], [0]], [[3], [1], [0]], [[0], [2]]])
        # With --link ring, one process has the links of all nodes. Six nodes have as many links as a process may have.
        self.assertEqual(len(self.reached(self.kept_configs("-n", "6", "--link", "ring", "--strategies", "direct")[5])), 5)

    def test_default_strategies(self):
        """Checks that direct is allowed without being named, up to 16 nodes and as far as links allow, and that the ring
        stays the first strategy, which operations use by default."""
        for link in ("vhost", "ring", "udp"):
            texts = self.kept_configs("-n", "4", "--link", link)
            for text in texts:
                self.assertIn("strategies: ['ring', 'direct']", text.splitlines())
            if link != "udp":
                self.assertEqual(self.reached(texts[0]), [[1], [3], [2]])
        self.assertNotIn("strategies", self.kept_configs("-n", "7", "--link", "ring")[0])
        self.assertNotIn("strategies", self.kept_configs("-n", "4", "--strategies", "ring")[0])

    @needs_fake
    def test_links_of_many_nodes(self):
        self.assertTrue(all(len(self.reached(text)) == 15 for text in self.kept_configs("-n", "16")))
        for nodes, options in (("17", ()), ("64", ("--link", "udp"))):
            self.assertNotIn("strategies", self.kept_configs("-n", nodes, *options)[0])
        self.assertTrue(all(len(self.reached(text)) == 15 for text in self.kept_configs("-n", "16", "--strategies", "direct")))
        texts = {int(re.search("rank: ([0-9]*)", text)[1]): text for text in self.kept_configs("-n", "24", "--strategies", "rings:8")}
        self.assertEqual(self.reached(texts[9]), [[10], [8], [1], [17]])
        self.assertEqual(self.reached(texts[8]), [[9], [7], [0], [15], [16]])
