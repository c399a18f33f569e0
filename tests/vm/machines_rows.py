"""Rows of machines that share nothing but a switch: each has a kernel of its own."""

import time

from tests.vm import image
from tests.vm.fleet import Fleet
from tests.vm.ring import expect
from tests.vm.row import Row
from tests.vm.suite import Suite

STRATEGIES = {"strategies": "[ring, direct, 'aggregator:0', 'rings:2']"}
EACH = "-b 64K -e 64K -n 2 -w 1 --strategy ring,direct,aggregator:0,rings:2 --codec raw,fixed:10"
# Key of fleet.CARDS for each link. All other links use the card "kernel".
CARD = {"pci": "pci", "af_xdp": "plain"}
SILENT = "has been silent for too long: it has died, hangs, or cannot be reached"
OPERATION = 60  # seconds, as in fleet.COMMON
SOME = "-b 4K -e 64K -f 16 -n 2 -w 1 --codec raw,fixed:10"


def strategies(stage):
    fleet = Fleet("pci", settings=STRATEGIES).boot(stage).start()
    rows = fleet.right(EACH)
    fleet.stop()
    return f"net_virtio: {rows} strategies and codecs, wrong 0"


def link(name):
    def play(stage):
        fleet = Fleet(CARD.get(name, "kernel")).boot(stage).use(name).start()
        rows = fleet.right(SOME)
        expect("ok   the ring is ready", fleet.guests[0].run("gradlane check --config /tmp/n0.yaml", check=False).output)
        fleet.stop()
        return f"{rows} sizes and codecs, wrong 0"
    return play


def lossy(name):
    """Makes the switch drop one packet in fifty and limit the rate to 20 Mb/s."""
    def play(stage):
        fleet = Fleet(CARD.get(name, "kernel")).boot(stage).use(name)
        ports = ", ".join(f"port{rank}" for rank in range(fleet.count))
        fleet.switch.space.rules(f"table netdev lossy {{ chain come {{ type filter hook ingress devices = {{ {ports} }} "
                                 "priority 0; numgen random mod 50 == 0 counter drop; }; }")
        for rank in range(fleet.count):
            fleet.switch.space.shape(f"port{rank}", "20mbit", burst=65536, limit=131072)
        rows = fleet.start().right(SOME)
        lost = expect(r"counter packets (\d+)", fleet.switch.space.run("nft", "list", "ruleset"))[1]
        fleet.stop()
        assert int(lost) > 0, "nothing was lost"
        return f"{name}: {rows} sizes and codecs, wrong 0; {lost} packets lost"
    return play


def gone(name, end, cause):
    """Calls end() for one of four machines in the middle of operations. All others must name the cause. Then the
    machine is started again."""
    def play(stage):
        fleet = Fleet(CARD.get(name, "kernel")).boot(stage).use(name).start()
        fleet.begin("-b 64K -e 64K -n 100000 --codec fixed:10")
        end(fleet.guests[2])
        begun = time.monotonic()
        errors = [expect(rf"(?m)^.*rank 2 {cause}.*$", text)[0] for text in fleet.failed((0, 1, 3))]
        seconds = time.monotonic() - begun
        # The error must come after timeouts.peer, for a rank that is silent. For a rank that is only late, operations
        # would fail after OPERATION.
        assert seconds < OPERATION, f"{seconds:.0f} s"
        fleet.guests[2].end()
        fleet.guests[2].start()
        fleet.guests[2].wait_until_up()
        fleet.prepare(2)
        fleet.use(name, (2,)).start((2,))
        rows = fleet.right(SOME)
        return (f"{name}: after {seconds:.0f} s '{errors[0].removeprefix('gradlane perf: ')}'; {rows} sizes and codecs once "
                "it is back, wrong 0")
    return play


def switched_off(name):
    return gone(name, lambda guest: guest.end(), SILENT)


def shut_down(name):
    """Shuts a machine down as an operating system does: all programs are told to end, and the power goes off."""
    def end(guest):
        guest.run("power_off")
        guest.wait_for_end(60)
    return gone(name, end, "has left, or was shut down")


def kernel(card, links, version, newer=None):
    """Runs a ring on each of these links, with one version of the kernel. Reports what `gradlane check` says of the
    kernel."""
    def play(stage):
        fleet, options = Fleet(card, count=2), {}
        if newer:
            found = newer()
            options = {"kernel": found, "image": image.build(found, stage.build)}
        fleet.boot(stage, **options)
        expect(rf"^{version}", fleet.guests[0].run("uname -r").output)
        said = [fleet.guests[0].run("uname -r").output.strip()]
        for name in links:
            fleet.use(name).start()
            rows = fleet.right(SOME)
            checked = fleet.guests[0].run("gradlane check --config /tmp/n0.yaml", check=False).output
            expect("ok   the ring is ready", checked)
            fleet.stop()
            said.append(f"{name}: {rows} sizes and codecs, wrong 0")
            said += [f"  {line}" for line in checked.splitlines() if "UDP_" in line or "superpackets" in line]
            said += [f"  {line}" for line in checked.splitlines() if line.startswith("FAIL")]
        return "\n".join(said)
    return play


def rows():
    yield Row("machines-pci", strategies, root=True, limit=300)
    for name in ("udp", "af_packet", "af_xdp"):
        yield Row(f"machines-{name.replace('_', '-')}", link(name), root=True, limit=300)
    for name in ("pci", "af_packet"):
        yield Row(f"machines-lossy-{name.replace('_', '-')}", lossy(name), root=True, limit=400)
    for name in ("pci", "udp", "af_packet"):
        yield Row(f"machines-off-{name.replace('_', '-')}", switched_off(name), root=True, limit=400)
    for name in ("pci", "udp"):
        yield Row(f"machines-shut-down-{name}", shut_down(name), root=True, limit=400)
    newer = Suite("trixie").kernel
    yield Row("kernel-6.1", kernel("kernel", ("udp", "af_packet"), "6.1"), root=True, limit=300)
    yield Row("kernel-6.12", kernel("kernel", ("udp", "af_packet"), "6.12", newer), root=True, limit=600, fetch=newer)
    yield Row("kernel-6.12-af-xdp", kernel("plain", ("af_xdp",), "6.12", newer), root=True, limit=600, fetch=newer)


ROWS = list(rows())
