"""Rows of DPDK's drivers: rings of two nodes on cards of one guest."""

import dataclasses

from tests.vm.ring import Ring
from tests.vm.row import Row

VIRTIO = "disable-legacy=on,iommu_platform=on"
CARDS = {
    "e1000e": Ring("e1000e", "net_e1000_em", speed=1000),
    "e1000": Ring("e1000", "net_e1000_em", speed=1000),
    "virtio": Ring("virtio-net-pci", "net_virtio", VIRTIO),
    "vmxnet3": Ring("vmxnet3", "net_vmxnet3", speed=10000),
}
RSS = dataclasses.replace(CARDS["virtio"], options=f"{VIRTIO},mq=on,vectors=6,rss=on,hash=on", lanes=2, queues=2,
                          steering="packets are steered to lanes by RSS: 2 flows in 128 entries")
# Suffixes of row names, and the settings of these rows. Any two of the settings are together in some row of each card.
VARIANTS = {
    "": {},
    "-lanes2-auth": {"lanes": 2, "auth": True},
    "-9000-hugepages": {"mtu": 9000, "hugepages": True},
    "-9000-lanes2-hugepages-auth": {"mtu": 9000, "lanes": 2, "hugepages": True, "auth": True},
}


def rows():
    for name, card in CARDS.items():
        for suffix, changes in VARIANTS.items():
            yield Row(name + suffix, dataclasses.replace(card, **changes).play, short=name == "e1000e" and not suffix)
    # Sizes of packet buffers must be powers of two for these cards, and the 5 KiB that this MTU needs are none.
    yield Row("e1000e-5000", dataclasses.replace(CARDS["e1000e"], mtu=5000).play)
    yield Row("virtio-rss-9000-hugepages-auth",
              dataclasses.replace(RSS, mtu=9000, hugepages=True, auth=True).play, root=True)


ROWS = list(rows())
