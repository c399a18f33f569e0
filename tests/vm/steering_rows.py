"""Rows of packets that a card distributes over queues: each must be in the queue of its lane. Also rows of `gradlane
loopback` on cards."""

import dataclasses
import json
import time

from tests.vm import driver_rows
from tests.vm.ring import check_perf, expect
from tests.vm.row import Row

# Counters of a lane, which together count each packet that the lane is given.
GIVEN = ("delivered", "duplicate", "too_far", "ack_received", "hello_received", "hello_stale", "hello_refused",
         "stale_session", "unknown_peer", "too_short", "bad_magic", "bad_version", "bad_crc", "bad_kind")

SETTLED = 20  # seconds until the counts of queues and lanes must agree


def by_lane(stage, ring):
    """Checks that each packet that arrived at a queue was given to a lane of that queue."""
    guest = ring.prepare(stage)
    stage.boot(guest)
    ring.start(guest)
    rows = check_perf(guest.run(f"perf 2 {ring.perf}", timeout=200).output)
    found = []
    for rank in range(2):
        steering = ring.check_stats(guest, rank)
        came, lanes = _packets(guest, rank, ring)
        found.append(f"node {rank}: by queue {came}, by lane {lanes}")
    guest.run("stop 0; first=$?; stop 1 && [ $first = 0 ]")
    return f"{rows} sizes and codecs, wrong 0; wrong_lane 0; packets of {'; '.join(found)}; {steering}"


def _packets(guest, rank, ring):
    """Returns the number of packets by queue, and by lane."""
    end = time.monotonic() + SETTLED
    while True:  # figures of queues and of lanes may be a packet apart
        stats = json.loads(guest.run(f"gradlane stats --config /tmp/n{rank}.yaml --json").output)
        queues = [entry["counters"] for entry in stats["ports"][0]["queues"]]
        lanes = [sum(entry["counters"].get(name, 0) for name in GIVEN)
                 for entry in sorted(stats["ranks"], key=lambda entry: entry["lane"])]
        assert len(lanes) == ring.lanes and min(lanes) > 0 and not any(queue["wrong_lane"] for queue in queues), stats
        came = [queue["gradlane"] for queue in queues]
        if came == [sum(lanes[queue::ring.queues]) for queue in range(ring.queues)]:
            return came, lanes
        assert time.monotonic() < end, f"node {rank}: packets by queue {came}, given to lanes {lanes}"


def loopback(stage, card):
    """Runs `gradlane loopback` with two connected cards of one machine, with frames and with all-reduces."""
    guest = card.prepare(stage)
    stage.boot(guest)
    devices = " ".join(f"--device {guest.address(rank)}" for rank in range(2))
    refused = guest.run(f"gradlane loopback {devices} --seconds 1", check=False)
    assert refused.status == 2, refused
    expect(rf"PCI device {guest.address(0)}: it has no driver; as root: gradlane nic setup ", refused.output)
    for rank in range(2):
        guest.run(f"bind {guest.address(rank)}")
    said = []
    for mode, size in (("io", 64), ("classify", 9014), ("codec", 1514), ("ring", 1514)):
        options = "" if mode == "ring" else "--packets 32"
        output = guest.run(f"gradlane loopback {devices} --mode {mode} --size {size} {options} --seconds 3 --json 2>/tmp/err",
                           timeout=60).output
        figures = json.loads(output)
        lost = {name: count for name, count in figures["drops"].items() if count}
        assert figures["received"] > 1000 and not lost, output
        said.append(f"{mode} of {size} bytes {figures['received']}")
    return f"{card.driver}: packets of {', '.join(said)}; none dropped"


def rows():
    rss = dataclasses.replace(driver_rows.RSS, perf="-b 16K -e 256K -f 4 -n 3 -w 1 --codec raw,fixed:10")
    yield Row("steering-2-lanes", lambda stage: by_lane(stage, rss), limit=480, root=True)
    four = dataclasses.replace(rss, lanes=4, steering="RSS: 4 flows in 128 entries",
                               settings={"workers": "{lanes: 4, threads: 2, idle: yield}"})
    yield Row("steering-4-lanes", lambda stage: by_lane(stage, four), limit=480, root=True)
    for name in ("e1000e", "virtio"):
        yield Row(f"loopback-{name}", lambda stage, card=driver_rows.CARDS[name]: loopback(stage, card))


ROWS = list(rows())
