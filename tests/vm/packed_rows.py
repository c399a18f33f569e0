"""Rows of virtio's packed rings, with Debian 13's QEMU. In Debian 12's QEMU (7.2), a queue stops after some packets.

The cards have no indirect descriptors. DPDK marks the header in them as one that the card writes to, and QEMU refuses
the packet.
"""

import dataclasses

from tests.vm.driver_rows import CARDS, VIRTIO
from tests.vm.igb_rows import newer_qemu
from tests.vm.ring import Ring
from tests.vm.row import Row


class Packed(Ring):
    def prepare(self, stage, **options):
        return super().prepare(stage, qemu=newer_qemu(), **options)


CARD = Packed("virtio-net-pci", CARDS["virtio"].driver, f"{VIRTIO},packed=on,indirect_desc=off,romfile=")

ROWS = [
    Row("virtio-packed", CARD.play, fetch=newer_qemu),
    Row("virtio-packed-9000-lanes2-hugepages-auth",
        dataclasses.replace(CARD, mtu=9000, lanes=2, hugepages=True, auth=True).play, fetch=newer_qemu),
]
