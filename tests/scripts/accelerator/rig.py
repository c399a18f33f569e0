"""Hosts that are each behind a bump: an accelerator, testpmd, or nothing. Needs root.

    h0: gl0 ---- gla0 :bump: glw0 ---- p0: sw: p1 ---- glw0 :bump: gla0 ---- gl0 :h1

A bump (in the wire) is a program that forwards frames between a host and its link. The kernel has gl0, with the
addresses 10.77.0.1 and up. Frames that arrive at gla0 and glw0 are for the bump alone; otherwise the kernel would
answer them, too. The switch sw is the bridge of networks.Network, which can drop frames.

    with Hosts() as hosts, Bumps(hosts, folder, gradlaned) as bumps:
        bumps.start().wait_up()
        client, server = traffic.connect(hosts, 0, 1)
"""
import os
import pathlib
import socket
import struct
import subprocess
import threading
import time

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.waiting import PATIENCE
from lab.net.spaces import inside

ANY_PROTOCOL = socket.htons(3)
TESTPMD = ("dpdk-testpmd --no-huge --no-shconf --no-pci --no-telemetry -m 128 --lcores 0@(0-%d),1@(0-%d) --vdev "
           "net_af_packet0,iface=gla0,qdisc_bypass=0 --vdev net_af_packet1,iface=glw0,qdisc_bypass=0 -- "
           "--forward-mode=io --nb-cores=1 --total-num-mbufs=8192")
COPIES = """table netdev copies {
 chain of_p0 {
  type filter hook ingress device "p0" priority 0; policy accept;
  numgen random mod 10000 < %d counter dup to "p1"
 }
 chain of_p1 {
  type filter hook ingress device "p1" priority 0; policy accept;
  numgen random mod 10000 < %d counter dup to "p0"
 }
}
"""
DEAF = """table netdev deaf {
 chain host_port {
  type filter hook ingress device "gla0" priority 0; policy drop;
 }
 chain wire_port {
  type filter hook ingress device "glw0" priority 0; policy drop;
 }
}
"""


def address(i):
    return f"10.77.0.{i + 1}"


class Hosts(networks.Network):
    """A networks.Network whose hosts may be behind bumps. `bumps` has a bool for each host: whether it has a bump. The
    gl0 of a host without a bump is connected to the bridge directly."""

    def __init__(self, bumps=(True, True), **options):
        super().__init__(len(bumps), **options)
        self.bumps = bumps

    def socket(self, i, kind=socket.SOCK_STREAM, *, namespace=None, family=socket.AF_INET, protocol=0):
        """Returns a socket in the namespace of host i (or in `namespace`), with a timeout of PATIENCE."""
        with inside(namespace or self.names[i]):
            made = socket.socket(family, kind, protocol)
        made.settimeout(PATIENCE)
        return made

    def raw_socket(self, namespace, interface):
        """Returns a socket that sends and receives whole frames at the interface."""
        made = self.socket(0, socket.SOCK_RAW, namespace=namespace, family=socket.AF_PACKET, protocol=ANY_PROTOCOL)
        made.bind((interface, 0))
        return made

    def process(self, i, *argv, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True,
                   **options}
        return subprocess.Popen(self.command(i, *argv), **options)

    def sysctl(self, **values):
        """Sets net.ipv4.tcp_* values in all hosts."""
        for i in range(self.nodes):
            self.node(i).run("sysctl", "-q", "-w", *(f"net.ipv4.tcp_{name}={value}" for name, value in values.items()))

    def copy(self, per_10000):
        """Duplicates `per_10000` of 10000 frames in the switch at random from now on; 0 stops that."""
        self.spaces["sw"].rules("table netdev copies\ndelete table netdev copies\n" +
                                (COPIES % (per_10000, per_10000) if per_10000 else ""))

    def congest(self, on):
        """Makes the switch mark congestion (ECN) in packets with ECT(0), or stops that. Replaces the rules of drop(),
        so the two cannot be used together."""
        self._rules("loss", ["ip ecn ect0 ip ecn set ce"] if on else [])

    # ---- Private

    def _connect(self, space, port):
        node = self.names.index(space.name) if space.name in self.names else None
        bump = node is not None and self.bumps[node]
        super()._connect(space, port, "glw0" if bump else "gl0")
        if bump:
            space.veth("gl0", space, "gla0", mtu=self.mtu)
        if node is not None:
            space.ip("addr", "add", f"{address(node)}/24", "dev", "gl0")
            space.ip("link", "set", "lo", "up")


class Bumps(rings.Ring):
    """The bumps of the hosts: accelerators or testpmd, by `kind`.

    Processes are started, killed and watched like daemons of a ring. `settings` has further keys of the configuration
    file, in YAML; a value may be a function of the host's number. With `superpackets`, kernels and accelerators
    exchange superpackets.
    """

    def __init__(self, hosts, folder, gradlaned, kind="accelerator", superpackets=False, **settings):
        self.superpackets = superpackets
        # The parent's __init__() is not called, because there is no ring to describe.
        self.kind, self.nodes, self.network, self.lanes = kind, hosts.nodes, hosts, 1
        self.folder, self.gradlaned = pathlib.Path(folder), str(gradlaned)
        self.processes = [None] * self.nodes
        self._begin = [0] * self.nodes
        self._killed = set()
        for i in filter(lambda i: hosts.bumps[i], range(self.nodes)):
            self.configure(i, **settings)

    def configure(self, i, **settings):
        """Writes the configuration file for the next start of host i's accelerator."""
        if self.superpackets:
            for interface in ("gl0", "gla0"):
                self.network.node(i).leave_superpackets(interface, True)
        lines = ["mode: accelerator", "host: {device: 'net_af_packet0,iface=gla0,qdisc_bypass=0', superpackets: "
                                      f"{str(self.superpackets).lower()}}}",
                 "wire: {device: 'net_af_packet1,iface=glw0,qdisc_bypass=0'}",
                 f"admin: '{self.folder}/n{i}.admin'", f"mtu: {self.network.mtu}"]
        lines += [f"{key}: {value(i) if callable(value) else value}" for key, value in settings.items()]
        self.config(i).write_text("\n".join(lines) + "\n")

    def start(self):
        for i in filter(lambda i: self.network.bumps[i], range(self.nodes)):
            self.start_node(i)
        return self

    def start_node(self, i):
        if self.kind == "accelerator":
            super().start_node(i)
            return
        # For testpmd, this table keeps the kernel away from the interfaces. An accelerator has such a table of its own.
        self.network.node(i).rules("add table netdev deaf\n" + DEAF)
        most = os.cpu_count() - 1
        with open(self._log_file(i), "ab") as log:
            self.processes[i] = subprocess.Popen(self.network.command(i, *(TESTPMD % (most, most)).split()),
                                                 stdin=subprocess.PIPE, stdout=log, stderr=log)

    def wait_up(self):
        """Waits until frames pass between the first two hosts. Returns self."""
        if self.kind == "accelerator":
            for i in filter(lambda i: self.processes[i] is not None, range(self.nodes)):
                rings.wait_for(lambda i=i: self._answers(i), f"the accelerator of host {i} answers")
        ping = self.network.command(0, "ping", "-c", "1", "-W", "1", address(1))
        rings.wait_for(lambda: subprocess.run(ping, capture_output=True, timeout=PATIENCE).returncode == 0,
                            "a ping passes")
        return self

    def counter(self, i, name):
        return self.stats(i)["counters"][name]

    def counted(self, i, name, least, patience=PATIENCE):
        """Waits until the counter is at least `least`. The daemon publishes its counters only periodically, so they may
        lag."""
        rings.wait_for(lambda: self.counter(i, name) >= least, f"host {i} counts {least} {name}", patience)

    def peer(self, i, other):
        """Returns the entry of host `other` in the peer table of host i's accelerator, or None."""
        return next((peer for peer in self.stats(i)["peers"] if peer["ip"] == address(other)), None)

    def answers(self, i, other):
        peer = self.peer(i, other)
        return peer is not None and peer["state"] == "answers"

    def warm(self, i=0, other=1, tos=0x28, patience=PATIENCE):
        """Sends marked datagrams from host i to the other host until the other's accelerator has answered."""
        with self.network.socket(i, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)

            def asked():
                sender.sendto(bytes(400), (address(other), 9))
                time.sleep(0.02)
                return self.answers(i, other)

            rings.wait_for(asked, f"the accelerator of host {other} answers host {i}", patience)

    def unblock(self):
        """Restarts the first two accelerators if they do not compress any more. After losses, a machine that gets no
        CPU time looks like a firewall that drops compressed segments, for 300 s (Peers::kBlockedFor)."""
        blocked = [i for i in range(2) if (self.peer(i, 1 - i) or {}).get("state") == "blocked"]
        for i in blocked:
            self.terminate(i)
            self.start_node(i)
        if blocked:
            self.wait_up()
            self.warm(0, 1)
            self.warm(1, 0)

    # ---- Private

    def _answers(self, i):
        assert self.running(i), f"accelerator {i} ended with {self.processes[i].returncode}: {self.log(i)}"
        return self.stats(i) is not None

    def _end(self):
        if self.kind == "testpmd":
            for process in self.processes:
                if process is not None:
                    process.stdin.close()
        return super()._end()


class Sniffer:
    """Records frames (as bytes) that arrive at an interface or leave it, if keep(frame, outgoing) is true for them. It
    has a thread of its own, and keeps at most `most` frames."""

    def __init__(self, hosts, namespace, interface, keep, most=100000):
        self.frames, self.keep, self.most = [], keep, most
        self._socket = hosts.raw_socket(namespace, interface)
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        self._socket.settimeout(0.05)
        self._stopped = False
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self._socket.close()

    def stop(self):
        """Reads the frames that have arrived, and ends the thread. Returns all recorded frames."""
        self._stopped = True
        if self._thread.is_alive():
            self._thread.join()
        return self.frames

    def lost(self):
        """Returns the number of frames that were lost since the last call because they came too fast."""
        return struct.unpack("II", self._socket.getsockopt(263, 6, 8))[1]  # SOL_PACKET, PACKET_STATISTICS

    def _listen(self):
        while True:
            try:
                frame, where = self._socket.recvfrom(65536)
            except TimeoutError:
                if self._stopped:
                    return
                continue
            if len(self.frames) < self.most and self.keep(frame, where[2] == socket.PACKET_OUTGOING):
                self.frames.append(frame)
