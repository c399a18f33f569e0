"""Shared code of tests for `gradlane check` and `gradlane stats` with accelerators: a fake daemon that gives the test's
answers, and methods that run the programs. Each test needs the paths of gradlane and gradlaned as arguments.
"""

import copy
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.waiting import PATIENCE, wait_for
from lab.net.spaces import Spaces

BINARIES = {}  # paths of gradlane and gradlaned, by name

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
    "kernel": {"kept_off": True, "bypass": True},
    "advice": [],
    "advice_about": [],
}


def changed(**fields):
    """Returns DOCUMENT with these fields replaced. The given keys of "counters" and "config" are added to theirs."""
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
    """Answers "stats" on an admin socket. The first requests get the documents in their order, all later ones get the
    last document."""

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
        self.thread.join(PATIENCE)
        self.listener.close()

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(PATIENCE)
                request = client.recv(100)
                if not request:  # the client only checks whether somebody listens
                    continue
                self.requests.append(request)
                client.sendall(self.documents[min(len(self.requests), len(self.documents)) - 1].encode())


class ToolsTest(unittest.TestCase):
    namespace = None  # network namespace (a Space) in which the programs run; None for the namespace of this process

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
        command = [BINARIES.get(program, program), *map(str, options)]
        if self.namespace:
            command = self.namespace.command(*command)
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)

    def check(self, status, *patterns, options=(), others=False):
        """Runs `gradlane check`, which must end with this status. Each pattern must match a line; without `others`,
        every FAIL must match a pattern. Returns the lines."""
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


class SpaceTest(ToolsTest):
    """Runs the programs in a namespace. `other` is a second namespace."""

    ipv6 = False

    def setUp(self):
        super().setUp()
        networks.need(self)
        spaces = self.enterContext(Spaces())
        self.namespace, self.other = (spaces.add(label, ipv6=self.ipv6) for label in ("host", "other"))

    def inside(self, *command):
        return self.namespace.run(*command)

    def ip(self, *words):
        return self.namespace.ip(*words)

    def start_daemon(self):
        """Starts a real daemon and waits until it answers."""
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            command = self.namespace.command(BINARIES["gradlaned"], "--config", self.config)
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(daemon.wait, PATIENCE)
        self.addCleanup(daemon.kill)
        wait_for(lambda: daemon.poll() is not None or
                 self.run_program("gradlane", "stats", "--config", self.config).returncode == 0, "the daemon answers")
        self.assertIsNone(daemon.poll(), (self.folder / "log").read_text())
        return daemon


def main():
    BINARIES.update(gradlane=os.path.abspath(sys.argv[1]), gradlaned=os.path.abspath(sys.argv[2]))
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
