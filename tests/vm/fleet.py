"""Guests with one node of gradlane each, on one switch, which is all that they share."""

import concurrent.futures
import dataclasses
import json
import pathlib
import time
import typing

from tests.vm import node_files
from tests.vm.guest import Card
from tests.vm.ring import check_perf

CARDS = {
    "pci": ("virtio-net-pci", "disable-legacy=on,iommu_platform=on"),
    # The kernel has this card compute checksums, segment sent packets and merge received ones.
    "kernel": ("virtio-net-pci", "disable-legacy=on"),
    # XDP programs need a card that merges no packets.
    "plain": ("virtio-net-pci", "disable-legacy=on,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off"),
}
PORTS = {
    "af_packet": "{device: 'net_af_packet0,iface=eth0,qdisc_bypass=0,framesz=2048,blocksz=4096'}",
    "af_xdp": "{device: 'net_af_xdp0,iface=eth0,start_queue=0,queue_count=1'}",
}
BPF = pathlib.Path("/usr/lib/x86_64-linux-gnu/bpf")  # programs that libxdp loads
# Idle workers leave the CPU to other guests.
COMMON = {"workers": "{lanes: 1, threads: 1, idle: adaptive}",
          "timeouts": "{peer: 15s, start: 60s, operation: 60s, shutdown: 2s}"}
WORDS = ("workers.idle=adaptive", "timeouts.peer=15s", "timeouts.start=60s", "log=info")


@dataclasses.dataclass
class Fleet:
    """`count` guests. `card` is a key of CARDS. `settings` has further keys of the configuration files."""

    card: str
    count: int = 4
    settings: dict = dataclasses.field(default_factory=dict)
    memory: int = 512
    guests: list = dataclasses.field(default_factory=list)
    switch: typing.Any = None

    def boot(self, stage, **options):
        """Boots the guests and prepares their cards. Starts no daemons."""
        self.switch = stage.switch()
        model, properties = CARDS[self.card]
        for rank in range(self.count):
            guest = stage.prepare([Card(model, self.switch.port(), properties)], space=self.switch.space, cpus=1,
                                  memory=self.memory, iommu=self.card == "pci", **options)
            guest.files |= self._files(rank, guest)
            self.guests.append(guest)
        stage.boot(*self.guests)
        self.each(lambda rank, guest: self.prepare(rank))
        return self

    def prepare(self, rank):
        """Prepares the card of a guest that is up. With the card `pci`, also copies the node's configuration."""
        guest = self.guests[rank]
        if self.card == "pci":
            guest.run(f"bind {guest.address(0)}; cp /links/pci/* /tmp")
        else:
            guest.run("modprobe virtio_pci; modprobe virtio_net; ip link set eth0 up; mount -t bpf bpf /sys/fs/bpf")

    def use(self, link, ranks=None):
        """Makes daemons use this link from now on: `udp` (without a file, by `gradlaned --nodes`), `af_packet` or
        `af_xdp`. Guests with the card `pci` have their files already."""
        kernel = "" if link == "pci" else "; ip addr flush dev eth0"
        self.each(lambda rank, guest: guest.run(
            f"rm -f /tmp/words* /tmp/log*; cp /links/{link}/* /tmp{kernel}"
            + (f"; ip addr add {address(rank)}/24 dev eth0" if link == "udp" else "")), ranks)
        return self

    def start(self, ranks=None):
        """Starts daemons, and waits until the ring is ready."""
        self.each(lambda rank, guest: guest.run(f"daemon {rank}"), ranks)
        self.each(lambda rank, guest: guest.run(f"whole {rank}"))
        return self

    def stop(self):
        self.each(lambda rank, guest: guest.run(f"stop {rank}"))

    def begin(self, options):
        """Starts `gradlane perf` on all nodes. Returns in the middle of its operations."""
        self.each(lambda rank, guest: guest.run(
            f"rm -f /tmp/ended; (perf_of {rank} {options} >/tmp/perf 2>&1; echo $? >/tmp/ended) >/dev/null 2>&1 3>&- &"))
        end = time.monotonic() + 120
        while packets(self.guests[0]) < 300:
            assert time.monotonic() < end, f"no packets: {self.guests[0].read('/tmp/perf')}"

    def failed(self, ranks, seconds=60):
        """Waits until `gradlane perf` has failed on each of these ranks, as it must. Returns its output on each."""
        return [said.output for said in self.each(lambda rank, guest: guest.run(
            f"await {seconds} test -s /tmp/ended && cat /tmp/perf; [ $(cat /tmp/ended) = 1 ]"), ranks)]

    def right(self, options, timeout=150):
        """Runs `gradlane perf` on all nodes. Returns the number of sizes and codecs, all of which must be right."""
        said = self.each(lambda rank, guest: guest.run(f"perf_of {rank} {options}", timeout=timeout))
        return check_perf(said[0].output)

    def each(self, what, ranks=None):
        """Calls what(rank, guest) for each of these ranks at the same time. Returns the results."""
        ranks = range(self.count) if ranks is None else ranks
        with concurrent.futures.ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(lambda rank: what(rank, self.guests[rank]), ranks))

    def _files(self, rank, guest):
        ports = {"pci": f"{{name: e0, pci: '{guest.address(0)}'}}"} if self.card == "pci" else PORTS
        files = {f"/links/{link}/n{rank}.yaml": node_files.node(rank, [port], nodes=self.count,
                                                                **{**COMMON, **self.settings})
                 for link, port in ports.items()}
        if self.card == "pci":
            return files
        nodes = ",".join(address(other) for other in range(self.count))
        words = " ".join(f"--set {word}" for word in (f"socket=/tmp/n{rank}.sock", *WORDS))
        files[f"/links/udp/words{rank}"] = f"--nodes {nodes} {words}\n"
        for pattern in ("xdp-dispatcher*.o", "xsk_def_xdp_prog*.o"):
            files |= {str(path): path.read_bytes() for path in sorted(BPF.glob(pattern))}
        return files


def packets(guest):
    """Returns the number of data packets that node 0 has received. Its guest is `guest`."""
    stats = json.loads(guest.run("gradlane stats --config /tmp/n0.yaml --json").output)
    return sum(queue["counters"]["raw"] + queue["counters"]["compressed"] for queue in stats["ports"][0]["queues"])


def address(rank):
    return f"10.77.0.{rank + 1}"
