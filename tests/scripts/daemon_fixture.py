"""Rings of real daemons for daemon_test.py: configuration files, processes, trainers.

Trainers are mostly contexts of this process, one per rank: operations are started on all of them with async_=True, and
then waited for. Those that must die are processes of their own.
"""

import hashlib
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import numpy
except ImportError:
    print("skipped: this python3 has no numpy; tools/setup.sh installs it for /usr/bin/python3")
    sys.exit(77)

PATIENCE = 20  # seconds; nothing here takes that long if all is well
BINARIES = {}  # gradlane, gradlaned: filled in by daemon_test.py


def gradlane_package():
    """The Python package of the source tree, with the library of this build."""
    root = pathlib.Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(root / "client" / "python"))
    import gradlane

    return gradlane


def wait_for(condition, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(0.01)


class Daemon:
    """One gradlaned, with its log in a file."""

    def __init__(self, *files):
        self.files = [str(file) for file in files]
        arguments = [word for file in self.files for word in ("--config", file)]
        self._log = os.memfd_create("log")
        self.process = subprocess.Popen(
            [BINARIES["gradlaned"], *arguments], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        self.pid = self.process.pid

    def __del__(self):
        os.close(self._log)

    def log(self):
        return os.pread(self._log, os.fstat(self._log).st_size, 0).decode(errors="replace")

    def lines(self, text):
        return [line for line in self.log().splitlines() if text in line]

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        return self.process.wait(PATIENCE)

    def stop(self):
        """Orderly; the exit status."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Ring:
    """Configuration files of some nodes, and their daemons: one process with link "ring", else one each."""

    def __init__(self, folder, nodes, link="ring", trainers=1, lanes=1, threads=None, mtu=1500, **settings):
        self.folder = pathlib.Path(folder)
        self.nodes, self.trainers, self.link, self.lanes = nodes, trainers, link, lanes
        self.files = [self.folder / f"n{node}.yaml" for node in range(nodes)]
        self.sockets = [self.folder / f"n{node}.sock" for node in range(nodes)]
        self.daemons = []
        settings = {"log": "info", "timeouts": "{peer: 1s, start: 8s, operation: 15s, shutdown: 500ms}", **settings}
        for node, file in enumerate(self.files):
            lines = [f"rank: {node}", "nodes:", *(f"  - {{rank: {i}, ip: 10.77.0.{i + 1}}}" for i in range(nodes))]
            lines += [f"trainers: {trainers}", f"socket: '{self.sockets[node]}'", f"mtu: {mtu}"]
            lines += [f"workers: {{lanes: {lanes}, threads: {threads or lanes}}}"]
            lines += [f"{key}: {value}" for key, value in settings.items()]
            lines += ["ports:" if nodes > 1 else "ports: []", *self._ports(node)]
            file.write_text("\n".join(lines) + "\n")

    def _ports(self, node):
        after, before = (node + 1) % self.nodes, (node - 1) % self.nodes
        links = [(node, after), (before, before)] if self.nodes > 2 else [(0, 1 - node)] if self.nodes == 2 else []
        for number, (first, other) in enumerate(links):
            if self.link == "ring":
                yield f"  - {{ring: link{first}, nodes: [{other}]}}"
                continue
            if self.link == "vhost":
                device = (f"net_virtio_user{number},path={self.folder}/link{first}.sock,server=1,queue_size=256"
                          if first == node else f"net_vhost{number},iface={self.folder}/link{first}.sock,client=1")
                yield f"  - {{device: '{device},queues={self.lanes}', nodes: [{other}]}}"
                continue
            role = "server" if first == node else "client"
            yield (f"  - {{device: 'net_memif{number},role={role},id=0,socket={self.folder}/link{first}.sock,"
                   f"socket-abstract=no,bsize=9216,rsize=10', nodes: [{other}]}}")

    def start(self, node=None):
        """All daemons, or that of one node (not with link "ring")."""
        if node is not None:
            self.daemons[node] = Daemon(self.files[node])
        elif self.link == "ring":
            self.daemons = [Daemon(*self.files)]
        else:
            self.daemons = [Daemon(file) for file in self.files]
        return self

    def daemon_of(self, rank):
        return self.daemons[0 if self.link == "ring" else rank // self.trainers]

    def socket_of(self, rank):
        return str(self.sockets[rank // self.trainers])

    def wait_until_ready(self):
        for rank in range(0, self.nodes * self.trainers, self.trainers):
            wait_for(lambda: self.daemon_of(rank).lines(f"node {rank // self.trainers} of"), f"start of {rank}")

    def open(self, rank, timeout=PATIENCE):
        return gradlane_package().open(self.socket_of(rank), rank=rank, timeout=timeout)

    def open_all(self):
        return [self.open(rank) for rank in range(self.nodes * self.trainers)]

    def log(self):
        return "\n".join(daemon.log() for daemon in self.daemons)

    def lines(self, text):
        return [line for line in self.log().splitlines() if text in line]


class TrainerProcess:
    """A trainer that dies by SIGKILL: it all-reduces `count` floats again and again."""

    CODE = """
import gradlane, sys
gl = gradlane.open(sys.argv[1], rank=int(sys.argv[2]))
data = gl.zeros(int(sys.argv[3]))
print("ready", flush=True)
while True:
    gl.all_reduce(data)
    print("done", flush=True)
"""

    def __init__(self, ring, rank, count):
        package = str(pathlib.Path(gradlane_package().__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, ring.socket_of(rank), str(rank), str(count)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": package},
        )

    def wait_for(self, word):
        while True:
            if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
                raise AssertionError(f"trainer did not say {word}")
            line = self.process.stdout.readline().decode().strip()
            if line == word:
                return
            assert line, "trainer has ended"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class DaemonTest(unittest.TestCase):
    """Own folder; no daemon outlives its test, and each has ended well unless the test has killed it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gl-daemon-"))
        self.rings, self.contexts, self.trainers, self.killed = [], [], [], set()

    def tearDown(self):
        for gl in self.contexts:
            gl.close()
        for trainer in self.trainers:
            trainer.kill()
        statuses = {}
        for ring in self.rings:
            statuses.update({daemon.pid: (daemon.stop(), daemon.log()) for daemon in ring.daemons})
        shutil.rmtree(self.folder, ignore_errors=True)
        for pid, (status, log) in statuses.items():
            self.assertTrue(pid in self.killed or status == 0, f"daemon {pid} ended with {status}:\n{log}")

    def ring(self, nodes, *arguments, **settings):
        folder = self.folder / str(len(self.rings))
        folder.mkdir()
        self.rings.append(Ring(folder, nodes, *arguments, **settings))
        return self.rings[-1].start()

    def finish(self, ring, contexts=()):
        """Orderly, and nothing is left."""
        for gl in contexts:
            gl.close()
        for daemon in ring.daemons:
            self.assertEqual(daemon.stop(), 0, daemon.log())
        self.assertEqual([path.name for path in ring.folder.iterdir() if path.suffix != ".yaml"], [])

    def open_all(self, ring):
        contexts = ring.open_all()
        self.contexts += contexts
        return contexts

    def open(self, ring, rank):
        gl = ring.open(rank)
        self.contexts.append(gl)
        return gl

    def check_all_reduce(self, contexts, count=1000, **options):
        """Integers, which every codec but the coarsest carries exactly; the result's bytes are the same everywhere."""
        data = []
        for gl in contexts:
            data.append(gl.zeros(count))
            data[-1][:] = gl.rank + numpy.arange(count) % 5
        requests = [gl.all_reduce(array, async_=True, **options) for gl, array in zip(contexts, data)]
        for request in requests:
            request.wait(PATIENCE)
        world = len(contexts)
        expected = world * (numpy.arange(count) % 5) + world * (world - 1) // 2
        for array in data:
            numpy.testing.assert_array_equal(array, expected)

    def failures(self, requests, patience=PATIENCE):
        """How requests end that must not end well: a list of the errors. Bounded in time."""
        errors = []
        for request in requests:
            with self.assertRaises(gradlane_package().Error) as caught:
                request.wait(patience)
            errors.append(caught.exception)
        return errors

    def assert_same_bytes(self, arrays):
        hashes = {hashlib.sha256(array.tobytes()).hexdigest() for array in arrays}
        self.assertEqual(len(hashes), 1)

    def assert_one_line(self, ring, pattern):
        found = [line for line in ring.log().splitlines() if re.search(pattern, line)]
        self.assertEqual(len(found), 1, f"'{pattern}' in\n{ring.log()}")
