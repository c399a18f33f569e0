"""Two hosts in network namespaces, each behind a bump in the wire: an accelerator, or a program to compare it with.

    gl0 --- gla0 [bump] glw0 --- p0: sw: p1 --- glw0 [bump] gla0 --- gl0        sw is a bridge in a namespace of its own
    10.77.0.1                                                  10.77.0.2

bench_accelerator.py uses it. Needs root. A rate is a tbf on both wire ports, as on the links of `gradlane run`.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

from lab.net.spaces import Failed, Spaces, as_gradlane_run, run

PATIENCE = 120
FLOAT_STREAM = pathlib.Path(__file__).resolve().parents[2] / "tools/demo/float_stream.py"
# A host's bursts wait in the packet ring while the bump has no CPU. With fewer frames, packets would get lost there.
HOST_DEVICE = "net_af_packet0,iface=gla0,qdisc_bypass=0,framecnt=4096"
WIRE_DEVICE = "net_af_packet1,iface=glw0,qdisc_bypass=0"


class BenchError(Failed):
    """A measurement that cannot be made."""


def cpu_seconds(pid):
    """Returns the user and system time of a process, with all its threads."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_seconds():
    """Returns the seconds in which all cores were busy, including interrupts and the kernel's work for others."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq = (int(word) for word in file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


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


class Bump:
    """A process per host between gla0 and glw0. Packets pass between the hosts when __enter__ returns."""

    def __init__(self, net):
        self.net, self.processes = net, []

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
                    raise BenchError(f"{process.args[4]} ended too early: {process.communicate()[0]}")
            time.sleep(0.2)
        raise BenchError("no packets pass between the hosts: ping got no answer")

    def cpu_seconds(self):
        return [cpu_seconds(process.pid) for process in self.processes]

    def start(self, i):
        raise NotImplementedError


class Testpmd(Bump):
    """dpdk-testpmd on the same ports. It only forwards frames."""

    name = "testpmd io"

    def start(self, i):
        # The thread that forwards runs on core i. The main thread, which only waits, runs on the other one.
        eal = ["--no-huge", "--no-shconf", "-m", "128", "--no-pci", "--no-telemetry", "-l", "0,1", "--main-lcore",
               1 - i, "--vdev", HOST_DEVICE, "--vdev", WIRE_DEVICE]
        forward = ["--forward-mode=io", "--auto-start", "--total-num-mbufs=16384", "--nb-cores=1"]
        return self.net.popen(i, "dpdk-testpmd", *eal, "--", *forward, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)


class Accelerators(Bump):
    """Two gradlaned in accelerator mode."""

    name = "accelerator"

    def __init__(self, net, args, folder, codec="fixed:10", repack=True, idle="adaptive", hold=None,
                 superpackets=False):
        super().__init__(net)
        self.superpackets = superpackets
        self.args, self.folder = args, pathlib.Path(folder)
        self.codec, self.repack, self.idle, self.hold = codec, repack, idle, hold

    def admin(self, i):
        return self.folder / f"host{i}.admin"

    def start(self, i):
        config = self.folder / f"host{i}.yaml"
        hold = f", hold: {self.hold}" if self.hold else ""
        for interface in ("gl0", "gla0"):
            self.net.spaces[f"h{i}"].leave_superpackets(interface, self.superpackets)
        superpackets = str(self.superpackets).lower()
        config.write_text("mode: accelerator\n"
                          f'host: {{device: "{HOST_DEVICE}", superpackets: {superpackets}}}\n'
                          f'wire: {{device: "{WIRE_DEVICE}"}}\n'
                          f"codec: {self.codec}\nmtu: {self.net.mtu}\n"
                          f"repack: {{enabled: {str(self.repack).lower()}{hold}}}\n"
                          f"worker: {{core: {i}, idle: {self.idle}}}\nadmin: {self.admin(i)}\nlog: warn\n")
        return self.net.popen(i, self.args.gradlaned, "--config", config, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def stats(self, i):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(str(self.admin(i)))
            client.sendall(b"stats\n")
            with client.makefile() as answer:
                return json.loads(answer.read())


# ---- Programs on the hosts


def check_alive(*processes):
    for process in processes:
        if process.poll() is not None:
            raise BenchError(f"{process.args[4]} ended too early: {process.communicate()}")


def float_stream(net, tos=0, bound=2.0**-10, data="laplace-1e-3", seconds=None, floats=None, port=5000):
    """Sends a float stream from host 0 to host 1. Returns what the sender prints, with CPU time of the machine and
    packets on the wire. Raises BenchError."""
    program = [sys.executable, "-B", FLOAT_STREAM]
    receiver = net.popen(1, *program, "receive", "--once", "--json", "--port", port, "--data", data, "--bound", bound,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        line = receiver.stderr.readline()
        if "listening" not in line:
            raise BenchError(f"float_stream.py: {line}{receiver.stderr.read()}")
        amount = ["--floats", floats] if floats else ["--seconds", seconds]
        before, cpu = net.wire(), machine_cpu_seconds()
        result = json.loads(run(*net.command(0, *program, "send", net.address(1), "--port", port, "--tos", tos,
                                             "--data", data, "--json", *amount)))
        after, cpu = net.wire(), machine_cpu_seconds() - cpu
        receiver.communicate(timeout=PATIENCE)
    finally:
        if receiver.poll() is None:
            receiver.kill()
            receiver.communicate()
    wire = {way: {key: after[way][key] - before[way][key] for key in before[way]} for way in before}
    return {**result, "machine_cpu_seconds": cpu, "wire": wire}


def iperf(net, seconds, tos=0):
    """Runs iperf3. Returns the bits per second that arrived at host 1."""
    server = net.popen(1, "iperf3", "-s", "-1", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        time.sleep(0.3)
        check_alive(server)
        text = run(*net.command(0, "iperf3", "-J", "-c", net.address(1), "-t", seconds, "-O", "1", "-S", tos))
        server.communicate(timeout=30)
    finally:
        if server.poll() is None:
            server.kill()
            server.communicate()
    end = json.loads(text)["end"]
    return end["sum_received"]["bits_per_second"]


def ping(net, count, interval=0.005):
    """Returns round-trip times in us, in order. Raises BenchError if many are missing.

    ping has no core of its own. With a real-time priority it does not wait for the time slice of a spinning process. It
    runs on the core of the far bump, so that the near one can take the packet at once.
    """
    text = run(*net.command(0, "taskset", "-c", "1", "chrt", "-f", "1", "ping", "-n", "-c", count, "-i", interval,
                            net.address(1)))
    times = [float(value) * 1e3 for value in re.findall(r"time=([0-9.]+) ms", text)]
    if len(times) < count * 0.9:
        raise BenchError(f"ping: of {count} packets only {len(times)} were answered")
    return times
