"""Two hosts in network namespaces, each behind an accelerator, which is a bump in the wire.

    gl0 --- gla0 [bump] glw0 --- p0: sw: p1 --- glw0 [bump] gla0 --- gl0        sw is a bridge in a namespace of its own
    10.77.0.1                                                  10.77.0.2

lab/accelerator.py uses it. Needs root. A rate is a tbf on both wire ports, as on the links of `gradlane run`.
"""

import json
import pathlib
import signal
import subprocess
import sys
import time

from lab.net.spaces import Failed, Spaces, as_gradlane_run, run

PATIENCE = 120
FLOAT_STREAM = pathlib.Path(__file__).resolve().parents[2] / "tools/demo/float_stream.py"
# A host's bursts wait in the packet ring while the bump has no CPU. With fewer frames, packets would get lost there.
HOST_DEVICE = "net_af_packet0,iface=gla0,qdisc_bypass=0,framecnt=4096"
WIRE_DEVICE = "net_af_packet1,iface=glw0,qdisc_bypass=0"


class Net:
    """The namespaces and their links, without bumps. rate: such as 200mbit, or None."""

    def __init__(self, rate=None, mtu=1500):
        self.rate, self.mtu = rate, mtu
        self.spaces = Spaces()

    def __enter__(self):
        self.spaces.__enter__()
        try:
            self.spaces.add("sw").bridge("br0", self.mtu)
            for i in range(2):
                self._connect(i, self.spaces.add(f"h{i}"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.spaces.__exit__()

    @staticmethod
    def address(i):
        return f"10.77.0.{i + 1}"

    def command(self, i, *argv):
        return self.spaces[f"h{i}"].command(*argv)

    def popen(self, i, *argv, **keywords):
        return subprocess.Popen(self.command(i, *argv), text=True, **keywords)

    def wire(self):
        """Returns the bytes and packets that have passed the switch from host 0 to host 1, and from 1 to 0."""
        ports = json.loads(self.spaces["sw"].ip("-j", "-s", "link"))
        rx = {port["ifname"]: port["stats64"]["rx"] for port in ports}
        return {way: {key: rx[port][key] for key in ("bytes", "packets")}
                for way, port in (("to", "p0"), ("from", "p1"))}

    # ---- Private

    def _connect(self, i, space):
        switch = self.spaces["sw"]
        space.veth("gl0", space, "gla0", mtu=self.mtu)
        switch.veth(f"p{i}", space, "glw0", mtu=self.mtu, master="br0")
        space.ip("link", "set", "lo", "up")
        space.ip("addr", "add", f"{self.address(i)}/24", "dev", "gl0")
        # Packets that arrive at gla0 or glw0 are for the bump, which gets them before this rule drops them. Without the
        # rule, the kernel's stack would answer them, too.
        space.rules("table netdev bump {\n" + "".join(
            f"chain {port} {{ type filter hook ingress device {port} priority 0; policy drop; }}\n"
            for port in ("gla0", "glw0")) + "}\n")
        if self.rate:
            for end, port in ((space, "glw0"), (switch, f"p{i}")):
                end.shape(port, self.rate, **as_gradlane_run(self.rate, self.mtu))


# ---- Bumps in the wire


class Accelerators:
    """Two gradlaned in accelerator mode, between gla0 and glw0. Packets pass between the hosts when __enter__ returns."""

    def __init__(self, net, gradlaned, folder, codec, repack=True, superpackets=False):
        self.net, self.gradlaned, self.folder = net, gradlaned, pathlib.Path(folder)
        self.codec, self.repack, self.superpackets = codec, repack, superpackets
        self.processes = []

    def __enter__(self):
        try:
            for i in range(2):
                self.processes.append(self.start(i))
            self.wait_until_it_passes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGINT)
        for process in self.processes:
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def wait_until_it_passes(self):
        command = self.net.command(0, "ping", "-c", "1", "-W", "1", self.net.address(1))
        for _ in range(20):
            if subprocess.run(command, capture_output=True, timeout=30).returncode == 0:
                return
            for process in self.processes:
                if process.poll() is not None:
                    raise Failed(f"{process.args[4]} ended too early: {process.communicate()[0]}")
            time.sleep(0.2)
        raise Failed("no packets pass between the hosts: ping got no answer")

    def start(self, i):
        config = self.folder / f"host{i}.yaml"
        for interface in ("gl0", "gla0"):
            self.net.spaces[f"h{i}"].leave_superpackets(interface, self.superpackets)
        superpackets = str(self.superpackets).lower()
        config.write_text("mode: accelerator\n"
                          f'host: {{device: "{HOST_DEVICE}", superpackets: {superpackets}}}\n'
                          f'wire: {{device: "{WIRE_DEVICE}"}}\n'
                          f"codec: {self.codec}\nmtu: {self.net.mtu}\n"
                          f"repack: {{enabled: {str(self.repack).lower()}}}\n"
                          f"worker: {{core: {i}}}\nadmin: {self.folder}/host{i}.admin\nlog: warn\n")
        return self.net.popen(i, self.gradlaned, "--config", config, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


# ---- Programs on the hosts


def float_stream(net, tos=0, bound=2.0**-10, data="laplace-1e-3", seconds=None, floats=None, port=5000):
    """Sends a float stream from host 0 to host 1. Returns what the sender prints, and packets on the wire. Raises Failed.
    """
    program = [sys.executable, "-B", FLOAT_STREAM]
    receiver = net.popen(1, *program, "receive", "--once", "--json", "--port", port, "--data", data, "--bound", bound,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        line = receiver.stderr.readline()
        if "listening" not in line:
            raise Failed(f"float_stream.py: {line}{receiver.stderr.read()}")
        amount = ["--floats", floats] if floats else ["--seconds", seconds]
        before = net.wire()
        result = json.loads(run(*net.command(0, *program, "send", net.address(1), "--port", port, "--tos", tos,
                                             "--data", data, "--json", *amount)))
        after = net.wire()
        receiver.communicate(timeout=PATIENCE)
    finally:
        if receiver.poll() is None:
            receiver.kill()
            receiver.communicate()
    wire = {way: {key: after[way][key] - before[way][key] for key in before[way]} for way in before}
    return {**result, "wire": wire}
