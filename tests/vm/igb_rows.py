"""Rows of igb (82576): a card with queues and RSS that QEMU has from version 8 on, Debian from 13 on."""

import dataclasses
import json

from tests.vm.ring import Ring
from tests.vm.row import Row
from tests.vm.suite import Suite


class Igb(Ring):
    """With the next Debian's QEMU, which runs from where it is unpacked."""

    def prepare(self, stage, **options):
        return super().prepare(stage, qemu=newer_qemu(), **options)

    def check_stats(self, guest, rank):
        """Its queues are the card's own matter, and no business of cables."""
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


# Slow to emulate: a packet takes tens of milliseconds there and back.
ONE = Igb("igb", "net_e1000_igb", "romfile=", speed=1000, perf="-b 4K -e 32K -f 8 -n 1 -w 1 --codec raw,fixed:10",
          settings={"workers": "{lanes: 1, threads: 1, idle: adaptive}"})
RSS = dataclasses.replace(ONE, lanes=2, steering="packets are steered to lanes by",
                          settings={"workers": "{lanes: 2, threads: 2, idle: adaptive}"})

ROWS = [
    Row("igb", ONE.play, limit=600),
    Row("igb-9000-hugepages-auth", dataclasses.replace(ONE, mtu=9000, hugepages=True, auth=True).play, limit=600),
    Row("igb-lanes2", RSS.play, limit=600),
]
