"""Networks for tests of whole nodes: namespaces on a bridge, and what can go wrong between them. Needs root.

    n0: gl0 ---- p0: sw: p1 ---- gl0 :n1        sw is a bridge in a namespace of its own; n0, n1, ... hang on it.

The nodes' interfaces have no addresses of the kernel's; those are gradlane's, 10.77.0.1 and up. Used by links_ring.py,
and by the tests that need a network without a ring.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

SKIPPED = 77
PREFIX = "gradlane-test-"
OFFLOADS = "rx off tx off sg off tso off gso off gro off rxvlan off txvlan off".split()


def run(*command, stdin=None, timeout=60):
    """Its output; fails with what it wrote if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, input=stdin)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {result.returncode}: {result.stdout}{result.stderr}")
    return result.stdout


def can_run(*programs):
    """None, or why networks cannot be made here; `programs` are what the test needs besides."""
    if os.getuid() != 0:
        return "needs root"
    missing = [program for program in ("ip", "tc", "nft", "ethtool", *programs) if shutil.which(program) is None]
    if missing:
        return f"needs {', '.join(missing)}; tools/setup.sh installs what tests need"
    probe = subprocess.run(["unshare", "-n", "true"], capture_output=True, timeout=60)
    return "cannot make network namespaces here" if probe.returncode != 0 else None


def require(*programs):
    """Ends this test as skipped if can_run() says why. In CI, where nothing may be left out, as failed."""
    reason = can_run(*programs)
    if reason is None:
        return
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        print(f"{reason}; CI is set, where this test must not be skipped")
        sys.exit(1)
    print(reason)
    sys.exit(SKIPPED)


def remove_leftovers():
    """What tests that were killed have left: the process in the name is gone."""
    for line in run("ip", "netns", "list").splitlines():
        found = re.match(PREFIX + r"(\d+)-\w+", line)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            subprocess.run(["ip", "netns", "del", found[0]], capture_output=True, timeout=60)


def end_orderly_on_sigterm():
    """So that whatever stops a test leaves no namespaces behind."""
    ours = threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


class Network:
    """`nodes` namespaces on a bridge; one such network at a time in a process. rate: "1gbit", both ways on each cable.

    queue: how long a packet may wait in front of a link with a rate. Everything is removed at the end of the `with`.
    """

    def __init__(self, nodes, mtu=1500, rate=None, queue="20ms"):
        base = f"{PREFIX}{os.getpid()}"
        self.nodes, self.mtu, self.rate, self.queue = nodes, mtu, rate, queue
        self.names = [f"{base}-n{i}" for i in range(nodes)]
        self.switch = f"{base}-sw"
        self._stranger = f"{base}-x"

    def __enter__(self):
        end_orderly_on_sigterm()
        remove_leftovers()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_):
        self._remove()

    def command(self, i, *argv):
        """`argv` as node i would run it. It is the same process: a signal to it reaches the program."""
        return self._in(self.names[i], *argv)

    def in_switch(self, *argv):
        return self._in(self.switch, *argv)

    def cable(self, i, up, end="node"):
        """Takes an end of node i's cable down, or up again: its own ("node"), or the one at the "switch"."""
        name, interface = (self.names[i], "gl0") if end == "node" else (self.switch, f"p{i}")
        run("ip", "-n", name, "link", "set", interface, "up" if up else "down")

    def partition(self, groups):
        """Nodes hear only those of their own group: [[0, 1], [2, 3]]. A node of no group hears nobody."""
        ports = [f"p{i}" for i in range(self.nodes)]
        rules = []
        for i, port in enumerate(ports):
            mates = {f"p{mate}" for group in groups if i in group for mate in group}
            others = [other for other in ports if other != port and other not in mates]
            if others:
                rules.append(f"iifname {port} oifname {{ {', '.join(others)} }} counter drop")
        self._rules("partition", rules)

    def heal(self):
        self._rules("partition", [])

    def drop(self, per_10000):
        """Of the frames that the switch forwards, so many get lost at random from now on. 0: none. Counts anew."""
        self._rules("loss", [f"numgen random mod 10000 < {per_10000} counter drop"] if per_10000 else [])

    def dropped(self):
        """Frames that drop() and partition() have dropped, since each was last called."""
        listing = json.loads(run(*self.in_switch("nft", "-j", "list", "table", "bridge", "faults")))
        rules = [item["rule"]["expr"] for item in listing["nftables"] if "rule" in item]
        return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)

    def stranger(self):
        """The namespace of a host on the same bridge that is no node: the kernel's, 10.77.0.200 on gl0. Made once."""
        if self._stranger not in run("ip", "netns", "list").split():
            run("ip", "netns", "add", self._stranger)
            self._connect(self._stranger, "px")
            run("ip", "-n", self._stranger, "addr", "add", "10.77.0.200/24", "dev", "gl0")
        return self._stranger

    # ---- Private

    @staticmethod
    def _in(namespace, *argv):
        return ["ip", "netns", "exec", namespace, *(str(word) for word in argv)]

    def _make(self):
        for name in [self.switch, *self.names]:
            run("ip", "netns", "add", name)
        self._quiet(self.switch)
        run("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
        run("ip", "-n", self.switch, "link", "set", "br0", "mtu", str(self.mtu), "up")
        for i, name in enumerate(self.names):
            self._connect(name, f"p{i}")
        chain = "{ type filter hook forward priority %d; policy accept; }"
        run(*self.in_switch("nft", "-f", "-"), stdin="table bridge faults {\n"
            f"chain partition {chain % 0}\n chain loss {chain % 1}\n}}\n")

    def _connect(self, name, port):
        """An interface gl0 in the namespace, on the bridge."""
        self._quiet(name)
        run("ip", "-n", self.switch, "link", "add", port, "mtu", str(self.mtu), "type", "veth", "peer", "name", "gl0",
            "mtu", str(self.mtu), "netns", name)
        for namespace, interface in ((self.switch, port), (name, "gl0")):
            # Else the kernel's own packets come with half a checksum, and longer than the MTU.
            run(*self._in(namespace, "ethtool", "-K", interface, *OFFLOADS))
            if self.rate:
                run("tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", "rate", self.rate, "burst",
                    str(max(32768, 4 * self.mtu)), "latency", self.queue)
        run("ip", "-n", self.switch, "link", "set", port, "master", "br0", "up")
        run("ip", "-n", name, "link", "set", "gl0", "up")

    def _quiet(self, name):
        """No IPv6, whose neighbour discovery would be traffic that no test asked for."""
        names = [f"net.ipv6.conf.{which}.disable_ipv6=1" for which in ("all", "default")]
        subprocess.run(self._in(name, "sysctl", "-q", "-w", *names), capture_output=True, timeout=60)

    def _rules(self, chain, rules):
        lines = [f"flush chain bridge faults {chain}", *(f"add rule bridge faults {chain} {rule}" for rule in rules)]
        run(*self.in_switch("nft", "-f", "-"), stdin="\n".join(lines) + "\n")

    def _remove(self):
        for name in [*self.names, self._stranger, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)
