"""Rows of DPDK's drivers: rings of two on cards of one guest."""

from tests.vm.ring import Ring
from tests.vm.row import Row

VIRTIO = "disable-legacy=on,iommu_platform=on"
ONE_QUEUE = "one queue, one worker for all lanes"
CARDS = [
    ("e1000e", "net_e1000_em", ""),
    ("e1000", "net_e1000_em", ""),
    ("virtio-net-pci", "net_virtio", VIRTIO),
    # DPDK 22.11 says of its header in an indirect descriptor of a packed ring that the card may write it, and QEMU then
    # takes no packet at all.
    ("virtio-net-pci", "net_virtio", f"{VIRTIO},packed=on,indirect_desc=off"),
    ("vmxnet3", "net_vmxnet3", ""),
]


def _name(card, options):
    return {"virtio-net-pci": "virtio"}.get(card, card) + ("-packed" if "packed=on" in options else "")


ROWS = []
for number, (card, driver, options) in enumerate(CARDS):
    plain = Ring(card, driver, options)
    ROWS.append(Row(_name(card, options), plain.play, short=number == 0))
    full = Ring(card, driver, options, mtu=9000, lanes=2, hugepages=True, auth=True, steering="one worker for all lanes")
    ROWS.append(Row(f"{_name(card, options)}-9000-lanes2-hugepages-auth", full.play))
ROWS += [
    Row("virtio-rss", Ring("virtio-net-pci", "net_virtio", f"{VIRTIO},mq=on,vectors=6,rss=on,hash=on", lanes=2, queues=2,
                           steering="packets are steered to lanes by RSS: 2 flows in 128 entries").play, root=True),
]
