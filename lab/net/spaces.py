"""Network namespaces and their connections: veth pairs, bridges and shapers. Needs root. For tests and measurements.

    with Spaces() as spaces:
        one, switch = spaces.add("one"), spaces.add("sw")
        switch.bridge("br0")
        switch.veth("p0", one, "gl0", master="br0")
        one.shape("gl0", "1gbit")
        one.run("ping", "-c", "1", "10.77.0.2")

The end of the `with` removes everything, after SIGTERM, too. Names of namespaces contain the process id, so those of
processes that run at the same time do not clash. If a process is killed, its namespaces stay until the next process
makes some.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading

PREFIX = "gradlane-net-"
# Without these settings the kernel's own packets have partial checksums and are longer than the MTU.
OFFLOADS = "rx off tx off sg off tso off gso off gro off rxvlan off txvlan off".split()
# IPv6 is off, because its neighbour discovery is unwanted traffic. Bridges do not call netfilter's tables for IP and
# ARP. Settings that the kernel does not have are skipped.
SILENT = ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"]
CAP_NET_ADMIN = 12  # capability number of linux/capability.h
BRIDGE_CALLS = [f"net.bridge.bridge-nf-call-{table}" for table in ("iptables", "ip6tables", "arptables")]


class Failed(AssertionError):
    """A command that sets up a network has failed."""


def run(*command, stdin=None, timeout=120):
    """Runs a command and returns its output. Raises Failed, with the output, if the command fails."""
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, timeout=timeout, input=stdin, check=False)
    if result.returncode != 0:
        raise Failed(f"{' '.join(words)}: {result.returncode}: {result.stdout}{result.stderr}")
    return result.stdout


def can_run(*programs):
    """Returns why networks cannot be made here, or None. `programs` must be installed, too."""
    if os.getuid() != 0:
        return "needs root"
    missing = [program for program in ("ip", "tc", "nft", "ethtool", *programs) if shutil.which(program) is None]
    if missing:
        return f"needs {', '.join(missing)}; tools/setup.sh installs what tests need"
    if not _has_capability(CAP_NET_ADMIN):
        return "needs CAP_NET_ADMIN"
    probe = subprocess.run(["unshare", "-n", "true"], capture_output=True, timeout=60, check=False)
    return "cannot make network namespaces: 'unshare -n true' failed" if probe.returncode != 0 else None


def _has_capability(number):
    """Returns whether programs that this process starts as root have this capability."""
    masks = re.findall(r"^Cap(?:Eff|Bnd):\s*(\w+)$", pathlib.Path("/proc/self/status").read_text(), re.MULTILINE)
    return all(int(mask, 16) >> number & 1 for mask in masks)


def remove_leftovers():
    """Removes the namespaces of processes that were killed: those whose names have the id of a process that does not
    exist."""
    for line in run("ip", "netns", "list").splitlines():
        found = re.match(PREFIX + r"(\d+)-\S+", line)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            _remove(found[0])


def end_orderly_on_sigterm():
    """Makes SIGTERM end the process by SystemExit, so that its namespaces are removed."""
    ours = threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@contextlib.contextmanager
def inside(name):
    """Moves this thread into the namespace of that name for the `with` block."""
    with open("/proc/thread-self/ns/net", "rb") as home, open(f"/var/run/netns/{name}", "rb") as away:
        _enter(away.fileno())
        try:
            yield
        finally:
            _enter(home.fileno())


class Space:
    """A namespace, which Spaces makes."""

    def __init__(self, name):
        self.name = name

    def __str__(self):
        return self.name

    def command(self, *argv):
        """Returns the command that runs `argv` in this namespace. Its process becomes the program, so a signal to it
        reaches the program."""
        return ["ip", "netns", "exec", self.name, *(str(word) for word in argv)]

    def run(self, *argv, **options):
        return run(*self.command(*argv), **options)

    def ip(self, *words):
        return run("ip", "-n", self.name, *words)

    def rules(self, text):
        """Passes rules to nft."""
        return self.run("nft", "-f", "-", stdin=text)

    def inside(self):
        return inside(self.name)

    def bridge(self, name, mtu=1500):
        """Makes a bridge that forwards from the first frame on."""
        self._ip(f"link add {name} type bridge stp_state 0 mcast_snooping 0", f"link set {name} mtu {mtu} up")

    def veth(self, name, other, peer, mtu=1500, master=None, offloads=False, up=True):
        """Makes a pair: `name` in this namespace (on the bridge `master`), `peer` in the namespace `other`."""
        self._ip(f"link add {name} mtu {mtu} type veth peer name {peer} mtu {mtu} netns {other.name}")
        if not offloads:
            for space, interface in ((self, name), (other, peer)):
                space.run("ethtool", "-K", interface, *OFFLOADS)
        if up:
            self._ip(f"link set {name} {f'master {master} ' if master else ''}up")
            other.ip("link", "set", peer, "up")

    def leave_superpackets(self, interface, on):
        """Makes the interface leave TCP checksums and segmentation to its device, and nothing else; nothing at all if
        not `on`."""
        self.run("ethtool", "-K", interface, *("tx on sg on tso on gso on" if on else "tx off").split())
        active = re.findall(r"^\s*(tx-\S+): on$", self.run("ethtool", "-k", interface), re.MULTILINE)
        others = [name for name in active if re.fullmatch("tx-checksum-sctp|tx-gso-.*|tx-.*-segmentation", name)
                  and not re.match("tx-tcp|tx-generic", name)]
        if on and others:
            self.run("ethtool", "-K", interface, *(word for name in others for word in (name, "off")))

    def shape(self, interface, rate, **tbf):
        """Limits what the interface sends from now on, by a tbf with these parameters (burst, and latency or limit)."""
        words = [word for name, value in tbf.items() for word in (name, value)]
        run("tc", "-n", self.name, "qdisc", "add", "dev", interface, "root", "tbf", "rate", rate, *words)

    def _ip(self, *lines):
        """Runs several commands in one process of ip."""
        run("ip", "-n", self.name, "-batch", "-", stdin="".join(f"{line}\n" for line in lines))


class Spaces:
    """Namespaces of this process, by label."""

    def __init__(self):
        self._made = {}

    def __enter__(self):
        end_orderly_on_sigterm()
        remove_leftovers()
        return self

    def __exit__(self, *_):
        for space in self._made.values():
            _remove(space.name)
        self._made.clear()

    def __getitem__(self, label):
        return self._made[label]

    def __contains__(self, label):
        return label in self._made

    @staticmethod
    def name(label):
        return f"{PREFIX}{os.getpid()}-{label}"

    def add(self, label, ipv6=False):
        """Makes a namespace. A caller that uses no `with` must call __exit__ if a later step of its setup fails."""
        space = self._made[label] = Space(self.name(label))
        run("ip", "netns", "add", space.name)
        settings = [f"{name}=0" for name in BRIDGE_CALLS] + ([] if ipv6 else [f"{name}=1" for name in SILENT])
        subprocess.run(space.command("sysctl", "-q", "-e", "-w", *settings), capture_output=True, timeout=60, check=False)
        return space


def as_gradlane_run(rate, mtu):
    """Returns the parameters of shape() for links as `gradlane run --rate` makes them (tools/run/net.cc)."""
    burst = max(65536, int(bits_per_second(rate) / 8 / 500))
    return {"burst": burst, "limit": burst + 256 * (mtu + 14)}


def bits_per_second(rate):
    for unit, factor in (("gbit", 1e9), ("mbit", 1e6)):
        if rate.endswith(unit):
            return float(rate.removesuffix(unit)) * factor
    raise Failed(f"rate {rate}: must be such as 1gbit or 200mbit")


def _remove(name):
    subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60, check=False)


def _enter(fd):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, 0x40000000) != 0:  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), "setns")
