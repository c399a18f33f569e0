"""Rows of igb (82576), a card with queues and RSS. QEMU has it from version 8 on, Debian from 13 on."""

import dataclasses
import json

from tests.vm import image, node_files
from tests.vm.guest import Card
from tests.vm.ring import Ring, check_perf
from tests.vm.row import Row
from tests.vm.suite import Suite


class Igb(Ring):
    """A ring with the next Debian's QEMU, which runs from the folder where it is unpacked."""

    def prepare(self, stage, **options):
        return super().prepare(stage, qemu=newer_qemu(), **options)

    def check_stats(self, guest, rank):
        """Also checks that each queue has received packets. The card itself distributes packets, so its network has one
        queue."""
        said = super().check_stats(guest, rank)
        port = json.loads(guest.run(f"gradlane stats --config /tmp/n{rank}.yaml --json").output)["ports"][0]
        came = [queue["counters"]["raw"] + queue["counters"]["compressed"] for queue in port["queues"]]
        assert len(came) == self.lanes and min(came) > 0, f"packets by queue: {came}"
        return f"{said}, packets by queue {came}"


def newer_qemu():
    root = Suite("trixie").program("qemu-system-x86")
    libraries = root / "usr/lib/x86_64-linux-gnu"
    return [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", f"{libraries}:{libraries}/pulseaudio",
            str(root / "usr/bin/qemu-system-x86_64"), "-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios")]


# This card is slow to emulate: a packet takes tens of milliseconds there and back.
ONE = Igb("igb", "net_e1000_igb", "romfile=", speed=1000, perf="-b 4K -e 32K -f 8 -n 1 -w 1 --codec raw,fixed:10",
          settings={"workers": "{lanes: 1, threads: 1, idle: adaptive}"})
RSS = dataclasses.replace(ONE, lanes=2, steering="packets are steered to lanes by",
                          settings={"workers": "{lanes: 2, threads: 2, idle: adaptive}"})

# PCI addresses of virtual functions. QEMU's igb has one at every other address of its bus, from 10.0 on.
FUNCTIONS = ("0000:01:10.0", "0000:01:10.2")


def functions(stage):
    """Runs a ring on two virtual functions of one card, with the card's own switch between them. The kernel keeps the
    card."""
    guest = stage.prepare([Card("igb", stage.cable().ends[0], "romfile=")], qemu=newer_qemu(),
                          image=image.build(stage.kernel, stage.build, modules=(*image.MODULES, "igb")))
    guest.files |= node_files.files({rank: node_files.node(rank, [f"{{name: e0, pci: '{address}'}}"], **ONE.settings)
                                     for rank, address in enumerate(FUNCTIONS)})
    stage.boot(guest)
    guest.run(f"modprobe igb; ip link set eth0 up; echo 2 >/sys/bus/pci/devices/{guest.address(0)}/sriov_numvfs")
    for address in FUNCTIONS:
        guest.run(f"bind {address}")
    guest.run("daemon 0; daemon 1; whole 0 && whole 1")
    rows = check_perf(guest.run(f"perf 2 {ONE.perf}", timeout=300).output)
    ports = [json.loads(guest.run(f"gradlane stats --config /tmp/n{rank}.yaml --json").output)["ports"][0]
             for rank in range(2)]
    assert [port["driver"] for port in ports] == ["net_e1000_igb_vf"] * 2, ports
    guest.run("stop 0; first=$?; stop 1 && [ $first = 0 ]")
    return f"{ports[0]['driver']}, {rows} sizes and codecs, wrong 0; {ports[0]['steering']}"


ROWS = [
    Row("igb-functions", functions, limit=600, fetch=newer_qemu),
    Row("igb", ONE.play, limit=600, fetch=newer_qemu),
    Row("igb-9000-hugepages-auth", dataclasses.replace(ONE, mtu=9000, hugepages=True, auth=True).play, limit=600,
        fetch=newer_qemu),
    Row("igb-lanes2", RSS.play, limit=600, fetch=newer_qemu),
]
