#!/usr/bin/env python3
"""`gradlane check` and `gradlane stats` about accelerators: against a daemon that says what the test wants it to say, and
with interfaces in network namespaces, as root: without root those cases are left out, and told.

Usage: accelerator_tools_test.py GRADLANE GRADLANED.
"""

import copy
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import links_net
from links_ring import wait_for

TIMEOUT = 60
BINARIES = {}  # gradlane, gradlaned

DOCUMENT = {
    "mode": "accelerator", "version": "0.1.0", "uptime_s": 3.64, "pid": 1752, "rss_kb": 62566,
    "config": {"host": "net_tap0,iface=gl0", "wire": "net_af_packet0,iface=glnone", "codec": "fixed:10", "mtu": 1500,
               "repack": True, "hold_us": 20, "tos_compressed": 0x28, "tos_wire": 0x30},
    "ports": {
        "host": {"device": "net_tap0", "link_up": True, "received": 12000, "received_bytes": 17_000_000, "sent": 6000,
                 "sent_bytes": 500_000, "dropped_full": 0},
        "wire": {"device": "net_af_packet0", "link_up": True, "received": 6000, "received_bytes": 500_000,
                 "sent": 4000, "sent_bytes": 5_000_000, "dropped_full": 7},
    },
    "counters": {"from_host": 12000, "marked": 10000, "compressed": 8000, "payload_bytes": 11_000_000,
                 "compressed_bytes": 4_000_000, "wire_frames": 4000, "raw_flags": 500, "raw_no_peer": 1500, "raw_small": 0,
                 "restored": 300, "restored_frames": 200, "wire_dropped": 0, "bundle_bad_checksum": 0,
                 "stream_begun": 6},
    "streams": {"tracked": 5, "most": 65536, "records": 34, "record_bytes": 12345},
    "peers": [{"ip": "10.77.0.2", "state": "answers", "compressed_packets": 8000, "uncompressed_packets": 1500,
               "used_s_ago": 0.5}],
    "advice": [],
}


SENDER = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
    for _ in range(3):
        sender.sendto(bytes(1000), ("10.77.0.2", 5000))
"""


def changed(**fields):
    """The document with other fields; "counters" and "config" are merged."""
    document = copy.deepcopy(DOCUMENT)
    for key, value in fields.items():
        if key in ("counters", "config"):
            document[key].update(value)
        else:
            document[key] = value
    return document


def peer(state, uncompressed=12, ago=0.1):
    return [{"ip": "10.77.0.2", "state": state, "compressed_packets": 0, "uncompressed_packets": uncompressed,
             "used_s_ago": ago}]


class FakeDaemon:
    """Answers "stats" on an admin socket: with each of the documents once, and then the last one again and again."""

    def __init__(self, path, *documents):
        self.documents = [json.dumps(document) for document in documents]
        self.requests = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(16)
        self.thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(TIMEOUT)
        self.listener.close()

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(TIMEOUT)
                request = client.recv(100)
                if not request:  # only looks whether somebody listens
                    continue
                self.requests.append(request)
                client.sendall(self.documents[min(len(self.requests), len(self.documents)) - 1].encode())


class ToolsTest(unittest.TestCase):
    namespace = None  # of the programs

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gl-tools-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.admin = self.folder / "a.admin"
        self.config = self.folder / "a.yaml"
        self.write_config()

    def write_config(self, host="net_tap0,iface=gl0", wire="net_af_packet0,iface=glnone", more=""):
        self.config.write_text(f"mode: accelerator\nhost: {{device: '{host}'}}\nwire: {{device: '{wire}'}}\n"
                               f"admin: {self.admin}\n{more}")

    def daemon(self, *documents):
        return FakeDaemon(self.admin, *documents)

    def run_program(self, program, *options):
        command = [BINARIES[program], *map(str, options)]
        if self.namespace:
            command = ["ip", "netns", "exec", self.namespace, *command]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL)

    def check(self, status, *patterns, options=(), others=False):
        """Lines of `gradlane check`. Each pattern has a line; without `others` every FAIL is one of those."""
        ended = self.run_program("gradlane", "check", "--config", self.config, *(options or ("--time", "300ms")))
        output = ended.stdout + ended.stderr
        self.assertEqual(ended.returncode, status, output)
        lines = output.splitlines()
        for line in lines:
            self.assertRegex(line, r"^(ok  |note|FAIL) \S")
        for pattern in patterns:
            self.assertTrue(any(re.search(pattern, line) for line in lines), f"no line '{pattern}':\n{output}")
        unexpected = [line for line in lines if line.startswith("FAIL") and
                      not any(re.search(pattern, line) for pattern in patterns)]
        self.assertTrue(others or not unexpected, output)
        return lines


class CheckTest(ToolsTest):
    def test_in_order(self):
        with self.daemon(DOCUMENT) as daemon:
            self.check(0, "^ok   configuration .*: accelerator, host net_tap0,iface=gl0, wire net_af_packet0",
                       "^note daemon: asked the one that runs, process 1752", "^ok   link of port host: up",
                       "^ok   link of port wire: up",
                       r"^ok   10\.77\.0\.2: an accelerator answers; 8000 packets went there compressed",
                       "^note interface glnone of port wire: not in this network namespace")
            self.assertEqual(daemon.requests, [b"stats\n"])

    def test_nobody_answers(self):
        silent = changed(peers=peer("silent"), advice=["10.77.0.2: marked traffic goes uncompressed, what else"])
        with self.daemon(silent):
            lines = self.check(1, r"^FAIL 10\.77\.0\.2: marked traffic \(ToS 0x28\) goes there uncompressed: no "
                               r"accelerator answers; misconfigured: start an accelerator there with udp_port: 18400 and tos: "
                               r"\{wire: 0x30\}, .*")
            self.assertEqual(len([line for line in lines if "10.77.0.2" in line]), 1, "told once")

    def test_asked_until_it_is_known(self):
        with self.daemon(changed(peers=peer("asked")), changed(peers=peer("asked")), DOCUMENT) as daemon:
            self.check(0, r"^ok   10\.77\.0\.2: an accelerator answers")
            self.assertEqual(len(daemon.requests), 3)

    def test_asked_in_vain(self):
        with self.daemon(changed(peers=peer("asked"))) as daemon:
            self.check(1, r"^FAIL 10\.77\.0\.2: marked traffic \(ToS 0x28\) goes there uncompressed")
            self.assertGreater(len(daemon.requests), 1)

    def test_nothing_is_sent_any_more(self):
        """Nobody is asked then, so nothing is known, and nothing is wrong."""
        for state in ("silent", "asked"):
            with self.daemon(changed(peers=peer(state, ago=60.5))) as daemon:
                self.check(0, r"^note 10\.77\.0\.2: no marked traffic has gone there lately")
                self.assertEqual(len(daemon.requests), 1)
            self.admin.unlink()
        with self.daemon(changed(peers=peer("silent", ago=59.5))):
            self.check(1, r"^FAIL 10\.77\.0\.2: marked traffic")

    def test_nothing_is_sent(self):
        with self.daemon(changed(peers=peer("silent", uncompressed=0))):
            self.check(0, r"^note 10\.77\.0\.2: no accelerator answers there, and no marked traffic")
        self.admin.unlink()
        with self.daemon(changed(peers=[])):
            self.check(0, "^note peers: no marked traffic")

    def test_what_the_daemon_says(self):
        with self.daemon(changed(advice=["7 packets longer than the MTU were dropped: ethtool -K gl0 tx off"])):
            self.check(1, "^FAIL accelerator: 7 packets longer than the MTU were dropped: ethtool -K gl0 tx off$")
        self.admin.unlink()
        down = copy.deepcopy(DOCUMENT)
        down["ports"]["wire"]["link_up"] = False
        with self.daemon(down):
            self.check(1, "^FAIL link of port wire: down")
        self.admin.unlink()
        with self.daemon(changed(counters={"wire_dropped": 5, "bundle_bad_checksum": 3, "bundle_not_ours": 2})):
            self.check(0, "^note packets from the wire: 5 .*dropped: bad_checksum 3, not_ours 2;")

    def test_other_configuration(self):
        with self.daemon(changed(config={"codec": "fixed:8", "mtu": 9000})):
            self.check(1, "^FAIL daemon: it runs with another configuration than this file has now: codec is \"fixed:8\""
                       " there and \"fixed:10\" in the file, mtu is 9000 there and 1500 in the file; restart it")

    def test_documents_of_all_sorts(self):
        for document, pattern in (({"node": 0}, "^FAIL daemon: what answers on .* is no accelerator"),
                                  ({"error": "no"}, "^FAIL daemon: the daemon does not answer 'stats'"),
                                  ([], "^FAIL daemon: the answer on .* is none of a gradlane daemon")):
            with self.daemon(document):
                self.check(1, pattern)
            self.admin.unlink()
        for part in DOCUMENT:
            for value in (None, 7, "x", [], {}, [3], {"a": 1}):
                if part == "mode":
                    continue
                with self.daemon(changed(**{part: value}) if part not in ("counters", "config")
                                 else {**DOCUMENT, part: value}):
                    self.check(0, "^note daemon: asked")
                    for options in ([], ["--all"]):
                        ended = self.run_program("gradlane", "stats", "--admin", self.admin, *options)
                        self.assertEqual((ended.returncode, ended.stderr), (0, ""), (part, value))
                self.admin.unlink()

    def test_json(self):
        with self.daemon(changed(peers=peer("silent"))):
            ended = self.run_program("gradlane", "check", "--config", self.config, "--json")
        self.assertEqual(ended.returncode, 1)
        document = json.loads(ended.stdout)
        self.assertFalse(document["ok"])
        self.assertEqual([item["what"] for item in document["items"] if item["verdict"] == "FAIL"], ["10.77.0.2"])
        self.assertEqual(document["daemon"]["pid"], 1752)

    def test_no_daemon(self):
        self.check(1, "^note daemon: none runs on .*/a.admin", "^FAIL interface glnone of port wire: there is no such",
                   "^note interface gl0 of port host: the daemon makes it", "^ok   folder of `admin`",
                   "^FAIL permissions" if os.getuid() else "^ok   permissions for port host")

    def test_configuration_is_wrong(self):
        self.write_config(more="rank: 0\n")
        self.check(1, "^FAIL configuration: .*/a.yaml:5:1: rank: a key of `mode: node`, and this is an accelerator's")
        self.write_config(more="worker: {core: 1023, idle: spin}\nuser: no-such-user\n")
        self.check(1, "^FAIL CPU 1023 of `worker.core`: there is no such CPU", "^FAIL user 'no-such-user'", others=True)


class DaemonTest(ToolsTest):
    """The command line of gradlaned."""

    def test_check_prints_all_settings(self):
        first = self.run_program("gradlaned", "--check", "--config", self.config)
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertIn("\nrepack: {enabled: true, hold: 20us}\n", first.stdout)
        printed = self.folder / "printed.yaml"
        printed.write_text(first.stdout)
        self.assertEqual(self.run_program("gradlaned", "--check", "--config", printed).stdout, first.stdout)

    def test_one_accelerator_in_a_process(self):
        node = self.folder / "n.yaml"
        node.write_text("rank: 0\nnodes: [{rank: 0, ip: 10.77.0.1}]\n")
        for other in (node, self.config):
            ended = self.run_program("gradlaned", "--config", other, "--config", self.config)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertIn("start a gradlaned for each accelerator", ended.stderr)


class StatsTest(ToolsTest):
    def stats(self, *options):
        ended = self.run_program("gradlane", "stats", *options)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout

    def test_table(self):
        with self.daemon(changed(advice=["switch it off"])):
            table = self.stats("--config", self.config)
            for pattern in (r"^accelerator   up 3\.6 s   gradlane 0\.1\.0   pid 1752   61\.1 MiB$",
                            r"^codec fixed:10   MTU 1500   ToS 0x28, on the wire 0x30   repacked within 20 us$",
                            "^  WRONG: switch it off$", r"^host +up +17\.0M +500k +12\.0k +6\.00k +0 +net_tap0$",
                            r"^wire +up +500k +5\.00M +6\.00k +4\.00k +7 +net_af_packet0$",
                            r"^compressed +8\.00k +80\.0 %$", r"^uncompressed: no accelerator answers there +1\.50k +15\.0 %$",
                            r"^uncompressed: SYN, FIN, RST, URG +500 +5\.0 %$",
                            r"^compressed payload   11\.0M bytes in   4\.00M out   ratio 2\.75   2\.00 packets in a frame$",
                            r"^restored   300 packets   from 200 frames   0 damaged ones dropped$",
                            r"^TCP connections   5 of 65536   34 segments remembered, 12\.3k bytes$",
                            r"^10\.77\.0\.2 +answers +8\.00k +1\.50k +0\.5 s ago$"):
                self.assertTrue(re.search(pattern, table, re.MULTILINE), f"{pattern}:\n{table}")
            self.assertNotIn("too little payload", table)
            self.assertNotIn("stream_begun", table)
            full = self.stats("--admin", self.admin, "--all")
            self.assertRegex(full, r"\n  stream_begun +6  TCP connections whose start was seen")
            self.assertRegex(full, r"\n  raw_no_peer +1500  marked ones sent uncompressed: no accelerator")
            self.assertNotIn("bundle_bad_checksum", full)
            names = [line.split()[0] for line in full.split("\ncounters:\n")[1].splitlines()]
            self.assertEqual(names, ["from_host", "marked", "compressed", "payload_bytes", "compressed_bytes",
                                     "wire_frames", "raw_no_peer", "raw_flags", "restored", "restored_frames",
                                     "stream_begun"], "in the order that their texts refer to")
            self.assertEqual(json.loads(self.stats("--socket", self.folder / "a.sock", "--json"))["pid"], 1752)

    def test_unknown_reasons_have_their_names(self):
        with self.daemon(changed(counters={"raw_moon": 7, "bundle_bad_checksum": 2})):
            self.assertRegex(self.stats("--admin", self.admin), r"\nuncompressed: moon +7 ")
            self.assertRegex(self.stats("--admin", self.admin, "--all"),
                             r"\n  bundle_bad_checksum +2  wrong UDP or TCP checksum")

    def watch(self, documents, *options, rounds):
        """What a watch prints until the daemon has been asked so often."""
        command = [BINARIES["gradlane"], "stats", "--admin", str(self.admin), "--watch", "0.1", *options]
        with self.daemon(*documents) as daemon:
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
                while len(daemon.requests) < rounds:
                    self.assertIsNone(watching.poll())
                watching.send_signal(signal.SIGINT)
                output, _ = watching.communicate(timeout=TIMEOUT)
        self.assertEqual(watching.returncode, 0)
        return output

    def test_watch_shows_rates_and_shares_since_the_look_before(self):
        later = changed(counters={"marked": 11000, "compressed": 9000, "payload_bytes": 12_000_000,
                                  "compressed_bytes": 4_250_000, "wire_frames": 4250})
        blocks = self.watch([DOCUMENT, later], rounds=4).split("\n\naccelerator ")
        self.assertGreaterEqual(len(blocks), 2)
        self.assertRegex(blocks[1], r"rx Gb/s +tx Gb/s")
        self.assertRegex(blocks[1], r"\ncompressed +\S+ +100\.0 %\n")
        self.assertIn("ratio 4.00   4.00 packets in a frame", blocks[1])

    def test_watch_json_and_a_restart(self):
        lines = self.watch([DOCUMENT], "--json", rounds=3).splitlines()
        self.assertEqual({json.loads(line)["pid"] for line in lines}, {1752})
        self.admin.unlink()
        blocks = self.watch([DOCUMENT, changed(pid=1753)], rounds=3).split("\n\naccelerator ")
        self.assertIn("rx bytes", blocks[1])


class InterfacesTest(ToolsTest):
    """In a namespace: the host's interface gl0 and gla0 are a veth pair, eth1 and far another one."""

    def setUp(self):
        super().setUp()
        reason = links_net.can_run()
        if reason is not None:
            if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
                self.fail(f"{reason}; CI is set, where these cases must not be left out")
            self.skipTest(reason)
        links_net.end_orderly_on_sigterm()
        links_net.remove_leftovers()
        self.namespace = f"{links_net.PREFIX}{os.getpid()}-host"
        self.other = f"{links_net.PREFIX}{os.getpid()}-other"
        for name in (self.namespace, self.other):
            links_net.run("ip", "netns", "add", name)
            self.addCleanup(subprocess.run, ["ip", "netns", "del", name], capture_output=True, timeout=TIMEOUT)
        self.inside("sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        for one, two in (("gl0", "gla0"), ("eth1", "far")):
            self.inside("ip", "link", "add", one, "type", "veth", "peer", "name", two)
            self.inside("ip", "link", "set", one, "up")
            self.inside("ip", "link", "set", two, "up")
        self.write_config(host="net_af_packet0,iface=gla0", wire="net_af_packet1,iface=eth1")

    def inside(self, *command):
        return links_net.run("ip", "netns", "exec", self.namespace, *command)

    def mend(self, lines):
        """Does what the lines say, and returns the commands."""
        commands = [match[0] for line in lines for match in re.finditer(r"ethtool -K [a-z0-9 -]+", line)]
        for command in commands:
            self.inside(*shlex.split(command))
        return commands

    def test_the_commands_that_it_prints_mend_offloads(self):
        self.inside("ethtool", "-K", "gl0", "tx", "on", "tso", "on", "gso", "on")
        self.inside("ethtool", "-K", "eth1", "gro", "on")
        self.inside("ethtool", "-K", "gla0", "gro", "on")
        lines = self.check(1, "^FAIL offloads: port host: gla0 .*: ethtool -K gla0 gro off",
                           "^FAIL offloads: port wire: eth1 .*: ethtool -K eth1 gro off",
                           "^FAIL offloads: .*gl0, the host's end of gla0.*: ethtool -K gl0 tx off",
                           "^ok   interface gla0 of port host: up, MTU 1500", "^ok   interface eth1 of port wire: up",
                           "^ok   interface gl0, the host's end of gla0: MTU 1500")
        self.assertEqual(len(self.mend(lines)), 3)
        self.check(0, "^ok   offloads that change packets are off", "^note daemon: none runs")
        # Told once, not again by the daemon's own words.
        self.inside("ethtool", "-K", "eth1", "gro", "on")
        words = [line for line in self.check(1, "^FAIL offloads") if line.startswith("FAIL")][0]
        with self.daemon(changed(advice=[words.removeprefix("FAIL offloads: ")])):
            self.check(1, "^FAIL offloads")

    def good(self):
        for interface in ("gl0", "gla0", "eth1"):
            self.inside("ethtool", "-K", interface, "tx", "off", "tso", "off", "gso", "off", "gro", "off")

    def test_interfaces_that_do_not_fit(self):
        self.good()
        self.check(0, "^ok   offloads that change packets are off")
        self.inside("ip", "link", "set", "eth1", "down")
        self.check(1, "^FAIL interface eth1 of port wire: it is down; ip link set eth1 up")
        self.inside("ip", "link", "set", "eth1", "up")
        self.inside("ip", "link", "set", "far", "down")
        self.check(1, "^FAIL interface eth1 of port wire: no carrier")
        self.inside("ip", "link", "set", "far", "up")
        self.inside("ip", "link", "set", "eth1", "mtu", "1400")
        self.check(1, "^FAIL interface eth1 of port wire: its MTU is 1400, that of the configuration 1500")
        self.inside("ip", "link", "set", "eth1", "mtu", "1500")
        self.inside("ip", "link", "set", "gl0", "mtu", "3000")
        self.check(1, "^FAIL interface gl0, the host's end of gla0: its MTU is 3000, .*; ip link set gl0 mtu 1500")
        self.inside("ip", "link", "set", "gl0", "mtu", "1500")
        self.inside("ip", "link", "del", "eth1")
        self.check(1, "^FAIL interface eth1 of port wire: there is no such interface")
        with self.daemon(changed()):
            self.check(0, "^note interface eth1 of port wire: not in this network namespace")

    def test_addresses_of_the_wire(self):
        self.good()
        self.inside("ip", "addr", "add", "10.77.0.1/24", "dev", "eth1")
        self.check(0, r"^note interface eth1 of port wire: the kernel has 10\.77\.0\.1 there, .*ip addr flush dev eth1")
        self.inside("ip", "addr", "flush", "dev", "eth1")
        self.inside("sysctl", "-q", "-w", "net.ipv6.conf.eth1.disable_ipv6=0")
        self.inside("ip", "addr", "add", "fd77::1/64", "dev", "eth1")
        (line,) = [line for line in self.check(0) if "IPv6" in line]
        self.inside(*shlex.split(line[line.index("sysctl"):]))
        self.assertFalse([line for line in self.check(0) if "past the accelerator" in line])

    def test_the_kernel_is_kept_off_the_wire(self):
        self.good()
        note = "no nftables chain drops what comes in there"
        self.check(0, f"^note interface eth1 of port wire: {note}.*docs/accelerator.md")
        rule = "chain wire { type filter hook ingress device %s priority 0; policy drop; };"
        self.inside("nft", "table netdev gradlane { " + rule % "gla0" + " }")
        self.check(0, f"^note interface eth1 of port wire: {note}")
        self.inside("nft", "delete table netdev gradlane; table netdev gradlane { " + rule % "eth1" + " }")
        self.assertFalse([line for line in self.check(0) if note in line])

    def test_host_in_another_namespace(self):
        self.good()
        self.inside("ip", "link", "set", "gl0", "netns", self.other)
        links_net.run("ip", "-n", self.other, "link", "set", "gl0", "up")
        self.check(0, "^note interface gla0 of port host: the host's end of it is not in this network namespace")

    def test_a_real_daemon(self):
        """Its document is what these programs read."""
        self.good()
        command = ["ip", "netns", "exec", self.namespace, BINARIES["gradlaned"], "--config", str(self.config)]
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(daemon.wait, TIMEOUT)
        self.addCleanup(daemon.terminate)
        wait_for(lambda: self.admin.exists() or daemon.poll() is not None, "the daemon")
        self.assertIsNone(daemon.poll(), (self.folder / "log").read_text())
        self.check(0, f"^note daemon: asked the one that runs, process {daemon.pid}", "^ok   link of port host: up",
                   "^ok   link of port wire: up", r"^note peers: no marked traffic \(ToS 0x28\)")
        # To an address where nobody is.
        self.inside("ip", "addr", "add", "10.77.0.1/24", "dev", "gl0")
        self.inside("ip", "neigh", "add", "10.77.0.2", "lladdr", "02:00:00:00:00:02", "dev", "gl0")
        self.inside(sys.executable, "-c", SENDER)
        self.check(1, r"^FAIL 10\.77\.0\.2: marked traffic \(ToS 0x28\) goes there uncompressed: no accelerator answers; ",
                   options=("--time", "5s"))
        table = self.run_program("gradlane", "stats", "--config", self.config).stdout
        for pattern in (r"^accelerator   up ", r"^host +up ", "^uncompressed: no accelerator answers there +3 +100.0 %$",
                        "^TCP connections   0 of 65536   0 segments", r"^10\.77\.0\.2 +(silent|asked) +0 +3 "):
            self.assertTrue(re.search(pattern, table, re.MULTILINE), f"{pattern}:\n{table}")
        document = json.loads(self.run_program("gradlane", "stats", "--config", self.config, "--json").stdout)
        full = self.run_program("gradlane", "stats", "--config", self.config, "--all").stdout
        for name in document["counters"]:
            self.assertNotRegex(full, rf"\n  {name} +\d+  \n", "a counter that stats does not know")
        for part in ("ports", "config", "counters", "streams"):
            self.assertLessEqual(set(DOCUMENT[part]), set(document[part]), part)


if __name__ == "__main__":
    BINARIES.update(gradlane=os.path.abspath(sys.argv[1]), gradlaned=os.path.abspath(sys.argv[2]))
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
