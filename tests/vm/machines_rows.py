"""Rows of machines that share nothing: a kernel each, and a switch between them."""

import json
import time

from tests.vm import image
from tests.vm.fleet import Fleet
from tests.vm.ring import expect
from tests.vm.row import Row
from tests.vm.suite import Suite

STRATEGIES = {"strategies": "[ring, direct, 'aggregator:0', 'rings:2']"}
EACH = "-b 64K -e 64K -n 2 -w 1 --strategy ring,direct,aggregator:0,rings:2 --codec raw,fixed:10"
SOME = "-b 4K -e 64K -f 16 -n 2 -w 1 --codec raw,fixed:10"


def strategies(stage):
    fleet = Fleet("pci", settings=STRATEGIES).boot(stage).start()
    rows = fleet.right(EACH)
    fleet.stop()
    return f"net_virtio: {rows} strategies and codecs, wrong 0"


def link(name):
    def play(stage):
        fleet = Fleet("plain" if name == "af_xdp" else "kernel").boot(stage).use(name).start()
        rows = fleet.right(SOME)
        expect("ok   the ring is whole", fleet.guests[0].run("gradlane check --config /tmp/n0.yaml", check=False).output)
        fleet.stop()
        return f"{rows} sizes and codecs, wrong 0"
    return play


def lossy(stage):
    """A switch that drops a packet of fifty and lets 20 Mb/s through."""
    fleet = Fleet("kernel").boot(stage).use("af_packet")
    ports = ", ".join(f"port{rank}" for rank in range(fleet.count))
    fleet.switch.space.rules(f"table netdev lossy {{ chain come {{ type filter hook ingress devices = {{ {ports} }} "
                             "priority 0; numgen random mod 50 == 0 counter drop; }; }")
    for rank in range(fleet.count):
        fleet.switch.space.shape(f"port{rank}", "20mbit", burst=65536, limit=131072)
    rows = fleet.start().right(SOME)
    lost = expect(r"counter packets (\d+)", fleet.switch.space.run("nft", "list", "ruleset"))[1]
    fleet.stop()
    assert int(lost) > 0, "nothing was lost"
    return f"{rows} sizes and codecs, wrong 0; {lost} packets lost"


def switched_off(name):
    """One of four, in the midst of operations; then it comes back."""
    def play(stage):
        fleet = Fleet("kernel").boot(stage).use(name).start()
        fleet.each(lambda rank, guest: guest.run(
            f"rm -f /tmp/ended; (perf_of {rank} -b 64K -e 64K -n 100000 --codec fixed:10 >/tmp/perf 2>&1 3>&-; "
            "echo $? >/tmp/ended) 3>&- &"))
        while packets(fleet.guests[0]) < 300:
            pass
        fleet.guests[2].end()
        begun = time.monotonic()
        said = fleet.each(lambda rank, guest: guest.run(
            "await 60 test -s /tmp/ended && cat /tmp/perf; [ $(cat /tmp/ended) != 0 ]").output, (0, 1, 3))
        seconds = time.monotonic() - begun
        errors = [expect(r"(?m)^.*(?:node 2|rank 2|10\.77\.0\.3).*$", text)[0] for text in said]
        fleet.guests[2].start()
        fleet.guests[2].wait_until_up()
        fleet.prepare(2)
        fleet.use(name, (2,)).start((2,))
        fleet.each(lambda rank, guest: guest.run(f"whole {rank}"))
        rows = fleet.right(SOME)
        return f"{name}: error after {seconds:.0f} s; {rows} sizes and codecs once it is back, wrong 0\n{errors[0]}"
    return play


def packets(guest):
    """That have come to node 0."""
    stats = json.loads(guest.run("gradlane stats --config /tmp/n0.yaml --json").output)
    return sum(queue["counters"]["raw"] + queue["counters"]["compressed"] for queue in stats["ports"][0]["queues"])


def kernel(card, links, version, suite=None):
    """Links of a kernel's, one after another, and what `gradlane check` says of it."""
    def play(stage):
        fleet, options = Fleet(card, count=2), {}
        if suite:
            found = Suite(suite).kernel()
            options = {"kernel": found, "image": image.build(found, stage.build)}
        fleet.boot(stage, **options)
        expect(rf"^{version}", fleet.guests[0].run("uname -r").output)
        said = [fleet.guests[0].run("uname -r").output.strip()]
        for name in links:
            fleet.use(name).start()
            rows = fleet.right(SOME)
            checked = fleet.guests[0].run("gradlane check --config /tmp/n0.yaml", check=False).output
            expect("ok   the ring is whole", checked)
            fleet.stop()
            said.append(f"{name}: {rows} sizes and codecs, wrong 0")
            said += [f"  {line}" for line in checked.splitlines() if "UDP_" in line or "superpackets" in line]
            said += [f"  {line}" for line in checked.splitlines() if line.startswith("FAIL")]
        return "\n".join(said)
    return play


ROWS = [
    Row("machines-pci", strategies, root=True, limit=300),
    *(Row(f"machines-{name.replace('_', '-')}", link(name), root=True, limit=300)
      for name in ("udp", "af_packet", "af_xdp")),
    Row("machines-lossy", lossy, root=True, limit=300),
    Row("machines-off-udp", switched_off("udp"), root=True, limit=400),
    Row("machines-off-af-packet", switched_off("af_packet"), root=True, limit=400),
    Row("kernel-6.1", kernel("kernel", ("udp", "af_packet"), "6.1"), root=True, limit=300),
    Row("kernel-6.12", kernel("kernel", ("udp", "af_packet"), "6.12", "trixie"), root=True, limit=600),
    Row("kernel-6.12-af-xdp", kernel("plain", ("af_xdp",), "6.12", "trixie"), root=True, limit=600),
]
