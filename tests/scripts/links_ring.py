"""Rings of real daemons over links of the kernel or shared memory, one process per node, for tests that break things.

    with links_net.Network(4) as network, links_ring.Ring("veth", 4, folder, gradlaned, network) as ring:
        ring.start().wait_whole()
        with ring.open(0) as gl: ...

Whoever leaves the `with` without an exception has had daemons that ended well, except those that it killed.
"""

import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

PATIENCE = 20  # seconds; nothing here takes that long if all is well
LOG_LINES = 40  # of each daemon, if a test fails


def wait_for(condition, what, patience=PATIENCE):
    """What `condition` returned, as soon as that is true."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(0.01)


def package_folder():
    """Where the Python package of this source tree is; its library is that of GRADLANE_LIBRARY, or of build/."""
    return str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python")


def gradlane_package():
    if package_folder() not in sys.path:
        sys.path.insert(0, package_folder())
    import gradlane

    return gradlane


# ---- Ports


def neighbours(node, nodes):
    """The link to the next node and to the one before, as (node at its beginning, node at its end, the other node)."""
    after, before = (node + 1) % nodes, (node - 1) % nodes
    if nodes == 1:
        return []
    if nodes == 2:  # one link does
        return [(0, 1, after)]
    return [(node, after, after), (before, node, before)]


def veth_ports(mtu):
    # A frame must fit into a packet buffer, and divide a block of whole pages.
    frame = 2048 if mtu <= 1968 else -(-(mtu + 80) // 16) * 16
    block = math.lcm(frame, 4096)
    return [f"{{name: e0, device: 'net_af_packet0,iface=gl0,qdisc_bypass=0,framesz={frame},blocksz={block}'}}"]


def memif_ports(node, nodes, folder):
    return [
        f"{{device: 'net_memif{number},role={'server' if first == node else 'client'},id=0,"
        f"socket={folder}/link{first}-{second}.sock,socket-abstract=no,bsize=9216,rsize=10', nodes: [{other}]}}"
        for number, (first, second, other) in enumerate(neighbours(node, nodes))
    ]


def vhost_ports(node, nodes, folder, lanes):
    """The node at the beginning of a link is its server."""
    ports = []
    for first, second, other in neighbours(node, nodes):
        path = f"{folder}/link{first}-{second}.sock"
        if first == node:
            name = "next"
            device = f"net_virtio_user0,path={path},server=1,queues={lanes},queue_size=1024,mrg_rxbuf=1,in_order=1"
        else:
            name, device = "prev", f"net_vhost0,iface={path},client=1,queues={lanes}"
        ports.append(f"{{name: {name}, device: '{device}', nodes: [{other}]}}")
    return ports


class Ring:
    """kind: "veth" (on a links_net.Network with as many nodes), "memif", "vhost".

    settings: further keys of the configuration file, in YAML; extra_yaml: lines for its end, or what makes them from
    the number of a node. A daemon's log is in folder/log<i>, those of its predecessors included.
    """

    def __init__(self, kind, nodes, folder, gradlaned, network=None, extra_yaml="", lanes=1, threads=None, trainers=1,
                 mtu=None, **settings):
        assert kind in ("veth", "memif", "vhost"), kind
        assert (kind == "veth") == (network is not None), "veth needs a network, others have none"
        self.kind, self.nodes, self.folder = kind, nodes, pathlib.Path(folder)
        self.gradlaned, self.network, self.trainers, self.lanes = str(gradlaned), network, trainers, lanes
        self.mtu = mtu or (network.mtu if network else 1500)
        self.processes = [None] * nodes
        self._begin = [0] * nodes  # of the log, in bytes: where the last start is
        self._killed = set()  # pids
        settings = {"log": "info", "timeouts": "{peer: 2s, start: 20s, operation: 60s, shutdown: 1s}", **settings}
        for node in range(nodes):
            lines = [f"rank: {node}", "nodes:", *(f"  - {{rank: {i}, ip: 10.77.0.{i + 1}}}" for i in range(nodes))]
            lines += [f"trainers: {trainers}", f"socket: '{self.socket(node)}'", f"mtu: {self.mtu}"]
            lines += [f"workers: {{lanes: {lanes}, threads: {threads or lanes}}}"]
            lines += [f"{key}: {value}" for key, value in settings.items()]
            lines += ["ports:", *(f"  - {port}" for port in self.ports(node))]
            lines += [extra_yaml(node) if callable(extra_yaml) else extra_yaml]
            self.config(node).write_text("\n".join(lines) + "\n")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        statuses = self._end()
        bad = {node: status for node, status in statuses.items() if status != 0}
        if kind is not None or bad:
            self.print_logs()
        if kind is None and bad:
            raise AssertionError(f"daemons ended badly: {bad} (status by node)")

    def ports(self, node):
        if self.kind == "veth":
            return veth_ports(self.mtu)
        if self.kind == "memif":
            return memif_ports(node, self.nodes, self.folder)
        return vhost_ports(node, self.nodes, self.folder, self.lanes)

    # ---- Daemons

    def start(self):
        for node in range(self.nodes):
            self.start_node(node)
        return self

    def start_node(self, i):
        """The first time, or again."""
        assert self.processes[i] is None or self.processes[i].poll() is not None, f"node {i} runs"
        command = [self.gradlaned, "--config", str(self.config(i))]
        if self.network:
            command = self.network.command(i, *command)
        with open(self._log_file(i), "ab") as log:
            self._begin[i] = log.tell()
            self.processes[i] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, i):
        """SIGKILL."""
        self._killed.add(self.pid(i))
        self.processes[i].kill()
        self.processes[i].wait()

    def terminate(self, i):
        """SIGTERM; the exit status."""
        if self.processes[i].poll() is None:
            self.processes[i].terminate()
        return self.processes[i].wait(PATIENCE)

    def stop(self, i):
        self.processes[i].send_signal(signal.SIGSTOP)

    def cont(self, i):
        self.processes[i].send_signal(signal.SIGCONT)

    def running(self, i):
        return self.processes[i] is not None and self.processes[i].poll() is None

    def wait_whole(self, timeout=PATIENCE):
        """Until every lane of every daemon that runs has said that its ring is whole, and nothing else since."""

        def whole():
            for node in filter(lambda node: self.processes[node] is not None, range(self.nodes)):
                if not self.running(node):
                    raise AssertionError(f"daemon {node} ended with {self.processes[node].returncode}")
            return all(self.whole(node) for node in range(self.nodes) if self.running(node))

        wait_for(whole, "the ring is whole", timeout)
        return self

    def whole(self, i):
        """Whether it says so, by its admin socket, or else in its log since its last start."""
        stats = self.stats(i)
        if stats is not None:
            return bool(stats["ranks"]) and all(rank["ring"] == "whole" for rank in stats["ranks"])
        last = {}
        for line in self.log_of_this_life(i).splitlines():
            found = re.search(r"(node \d+|rank \d+ lane \d+): .*\bring is\b", line)
            if found:
                last[found[1]] = line
        lines = 1 if any(who.startswith("node") for who in last) else self.lanes * self.ranks_per_node()
        return len(last) == lines and all("the ring is whole" in line for line in last.values())

    def ranks_per_node(self):
        return 1 if "local_reduce: true" in self.config(0).read_text() else self.trainers

    # ---- What there is of a node

    def config(self, i):
        return self.folder / f"n{i}.yaml"

    def socket(self, i):
        return str(self.folder / f"n{i}.sock")

    def pid(self, i):
        return self.processes[i].pid

    def log(self, i, begin=0):
        """Of all its lives; begin: from which byte on."""
        file = self._log_file(i)
        return file.read_bytes()[begin:].decode(errors="replace") if file.exists() else ""

    def log_of_this_life(self, i):
        return self.log(i, self._begin[i])

    def lines(self, i, text):
        return [line for line in self.log(i).splitlines() if text in line]

    def print_logs(self):
        for node in range(self.nodes):
            lines = self.log(node).splitlines()
            print(f"---- node {node}: the last of {len(lines)} lines", *lines[-LOG_LINES:], sep="\n", file=sys.stderr)

    def stats(self, i):
        """What its admin socket says of counters and buffers, or None without one or without an answer."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(5)
                connection.connect(self.socket(i)[: -len(".sock")] + ".admin")
                connection.sendall(b"stats\n")
                return json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))
        except (FileNotFoundError, ConnectionError, TimeoutError):
            return None

    def rss_kb(self, i):
        found = re.search(r"^VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{self.pid(i)}/status").read_text(), re.MULTILINE)
        return int(found[1])

    # ---- Trainers

    def open(self, rank, timeout=PATIENCE):
        """A context of this process."""
        return gradlane_package().open(self.socket(rank // self.trainers), rank=rank, timeout=timeout)

    def trainer(self, rank, *argv, **options):
        """A process of its own: `argv` with the environment of that rank."""
        environment = {**os.environ, "GRADLANE_SOCKET": self.socket(rank // self.trainers), "RANK": str(rank),
                       "PYTHONPATH": package_folder(), "PYTHONDONTWRITEBYTECODE": "1"}
        options = {"stdin": subprocess.DEVNULL, "env": environment, "text": True, **options}
        return subprocess.Popen([str(word) for word in argv], **options)

    # ---- Private

    def _log_file(self, i):
        return self.folder / f"log{i}"

    def _end(self):
        """Of every daemon that was not killed, its status by node."""
        alive = [process for process in self.processes if process is not None and process.poll() is None]
        for process in alive:
            process.terminate()
            process.send_signal(signal.SIGCONT)
        end = time.monotonic() + PATIENCE
        for process in alive:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return {node: process.returncode for node, process in enumerate(self.processes)
                if process is not None and process.pid not in self._killed}
