"""Rows of rings: a daemon on each card of a guest, with `gradlane perf` on all. Its results and the counters must be
right."""

import dataclasses
import json
import re
import typing

from tests.vm import node_files
from tests.vm.guest import Card, mac_of

PERF = "-b 4K -e 256K -f 8 -n 3 -w 1 --codec raw,fixed:10"
RIGHT = "all results are as the codec promises, and the same on all ranks"
NEEDED = r"FAIL hugepages: 0 MiB free, (\d+) MiB needed"
# These counters must stay 0. They count packets that arrived damaged, or at the wrong lane.
NEVER = ("wrong_lane", "bad_checksum", "bad_ip_header", "bad_udp", "forged", "bad_crc", "bad_magic", "bad_run")


@dataclasses.dataclass
class Ring:
    """A ring of two nodes on cards of one guest. `card` is QEMU's name of the card, `driver` DPDK's name of its driver.

    `steering` is a pattern for the text on packets and lanes in `gradlane stats`. `queues` is the number of queues of a
    card that has several. `settings` has further keys of the configuration.
    """

    card: str
    driver: str
    options: str = ""
    speed: typing.Optional[int] = None
    mtu: int = 1500
    lanes: int = 1
    hugepages: bool = False
    auth: bool = False
    queues: int = 1
    steering: str = "one worker for all lanes"
    perf: str = PERF
    settings: dict = dataclasses.field(default_factory=dict)

    def prepare(self, stage, **options):
        """Returns a guest with two cards and the files of two nodes. It is not started."""
        if self.queues > 1:
            switch = stage.switch()
            ends, options["space"] = [switch.port(self.queues) for _ in range(2)], switch.space
        else:
            ends = stage.cable().ends
        guest = stage.prepare([Card(self.card, end, self.options) for end in ends], **options)
        texts = {rank: node_files.node(rank, [f"{{name: e0, pci: '{guest.address(rank)}'}}"], mtu=self.mtu,
                                       lanes=self.lanes, hugepages=self.hugepages, auth=self.auth, **self.settings)
                 for rank in range(2)}
        guest.files |= node_files.files(texts, self.auth)
        return guest

    def start(self, guest):
        """Starts both daemons, and waits until the ring is ready."""
        for rank in range(2):
            guest.run(f"bind {guest.address(rank)}")
        if self.hugepages:  # as many as two daemons need by `gradlane check`
            checked = guest.run("gradlane check --config /tmp/n0.yaml", check=False).output
            guest.run(f"hugepages {2 * int(expect(NEEDED, checked)[1])}")
        guest.run("daemon 0; daemon 1; whole 0 && whole 1")

    def play(self, stage):
        """Runs the row. Returns the text for its line."""
        guest = self.prepare(stage)
        stage.boot(guest)
        before = guest.run("gradlane check --config /tmp/n0.yaml", check=False)
        expect(r"FAIL PCI device \S+ of port e0: .*as root: gradlane nic setup ", before.output)
        self.start(guest)
        measured = guest.run(f"perf 2 {self.perf}", timeout=200).output
        rows = check_perf(measured)
        after = guest.run("gradlane check --config /tmp/n0.yaml").output
        expect(r"ok   the ring is ready", after)
        steering = [self.check_stats(guest, rank) for rank in range(2)][0]
        if self.hugepages:
            total, free = re.findall(r"HugePages_(?:Total|Free): +(\d+)", guest.read("/proc/meminfo"))
            assert int(free) < int(total), (free, total)
        guest.run("stop 0; first=$?; stop 1 && [ $first = 0 ]")
        return f"{self.driver}, {rows} sizes and codecs, wrong 0; {steering}"

    def check_stats(self, guest, rank):
        stats = json.loads(guest.run(f"gradlane stats --config /tmp/n{rank}.yaml --json").output)
        port = stats["ports"][0]
        assert port["driver"] == self.driver and port["speed_mbps"] == self.speed, port
        assert port["mac"] == mac_of(guest.name, rank) and port["link"] == "up", port
        counted = [entry["counters"] for entry in [*port["queues"], *stats["ranks"]]]
        damaged = {name: counters[name] for counters in counted for name in NEVER if counters.get(name)}
        assert not damaged, f"node {rank}: {damaged}"
        assert stats["auth"] == self.auth, stats["auth"]
        expect(self.steering, port["steering"])
        if self.queues > 1:
            came = [queue["counters"]["raw"] + queue["counters"]["compressed"] for queue in port["queues"]]
            assert len(came) == self.queues and min(came) > 0, f"packets by queue: {came}"
            return f"{port['steering']}, packets by queue {came}"
        return port["steering"]


def check_perf(text):
    """Returns the number of sizes and codecs in a table of `gradlane perf`. All results must be right."""
    assert RIGHT in text, text
    wrong = [int(line.split()[-1]) for line in text.splitlines() if re.match(r" +\d+ +\d+ +\w", line)]
    assert wrong and not any(wrong), text
    return len(wrong)


def expect(pattern, text):
    """Returns the match of the pattern. Raises AssertionError if there is none."""
    found = re.search(pattern, text)
    assert found, f"no '{pattern}' in: {text[-3000:]}"
    return found
