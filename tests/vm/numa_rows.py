"""Rows of machines with two NUMA nodes: cards are on the second node, workers and packet buffers on either."""

from tests.vm import node_files
from tests.vm.guest import Card
from tests.vm.ring import check_perf, expect
from tests.vm.row import Row

SIZE = 512  # MiB, of each node
PAGES = "/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/{}_hugepages"
EXTRA = [word for node in range(2) for word in (
    "-object", f"memory-backend-ram,id=memory{node},size={SIZE}M",
    "-numa", f"node,nodeid={node},cpus={node},memdev=memory{node}")]
# The warning names the card's node, and the other node, where the worker is.
WARNING = r"port e0 is on NUMA node 1, and worker 0 on CPU 0 of NUMA node 0: choose workers.cores on node 1"


def pages(guest, what, node):
    return int(guest.read(PAGES.format(node, what)))


def prepare(stage, near=1):
    """Boots a guest with two cards at a NUMA node. The worker of rank 0 is on CPU 0 (node 0), that of rank 1 on CPU 1.
    """
    cable = stage.cable()
    guest = stage.prepare([Card("e1000e", end, near=near) for end in cable.ends], memory=2 * SIZE, extra=EXTRA)
    texts = {rank: node_files.node(rank, [f"{{name: e0, pci: '{guest.address(rank)}'}}"], hugepages=True,
                                   workers=f"{{lanes: 1, threads: 1, cores: [{rank}], idle: adaptive}}") for rank in range(2)}
    guest.files |= node_files.files(texts)
    stage.boot(guest)
    for rank in range(2):
        guest.run(f"bind {guest.address(rank)}; [ $(cat /sys/bus/pci/devices/{guest.address(rank)}/numa_node) = {near} ]")
    return guest


def start(guest):
    guest.run("daemon 0; daemon 1; whole 0 && whole 1")
    rows = check_perf(guest.run("perf 2 -b 16K -e 16K -n 2 -w 1 --codec raw,fixed:10", timeout=200).output)
    expect(WARNING, guest.read("/tmp/log0"))
    assert "NUMA node 0: choose workers" not in guest.read("/tmp/log1"), guest.read("/tmp/log1")
    return rows


def here(stage, first=64):
    """Runs a ring with hugepages on the cards' node. The other node has `first` hugepages."""
    guest = prepare(stage)
    guest.run(f"echo {first} >{PAGES.format(0, 'nr')}; echo 64 >{PAGES.format(1, 'nr')}")
    before = [pages(guest, "free", node) for node in range(2)]
    rows = start(guest)
    used = [before[node] - pages(guest, "free", node) for node in range(2)]
    assert used[1] >= 16 and used[0] <= 4, f"hugepages used of nodes 0, 1: {used}"
    checked = guest.run("gradlane check --config /tmp/n0.yaml", check=False).output
    note = expect(r"(?m)^note .*NUMA.*$", checked)[0]
    guest.run("stop 0; first=$?; stop 1 && [ $first = 0 ]")
    return f"cards on node 1: {rows} codecs, wrong 0; hugepages used of nodes 0, 1: {used}\n{note}"


def only_here(stage):
    """Runs a ring with hugepages only on the cards' node, as docs/nic.md recommends."""
    return here(stage, 0)


def elsewhere(stage):
    """Runs a ring without hugepages on the cards' node."""
    guest = prepare(stage)
    # Both nodes together have enough hugepages, but all buffers must be on one node, so the hugepages do not suffice.
    guest.run(f"echo 8 >{PAGES.format(0, 'nr')}; echo 8 >{PAGES.format(1, 'nr')}")
    asked = guest.run("gradlane check --config /tmp/n0.yaml --time 500ms", check=False).output
    for node in range(2):
        guest.run(f"echo {(96, 0)[node]} >{PAGES.format(node, 'nr')}")
    advice = expect(r"(?m)^FAIL hugepages: 16 MiB free on NUMA node 1, \d+ MiB needed; as root: gradlane nic setup "
                    r"--hugepages \d+ PCI, or echo \d+ > "
                    "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", asked)[0]
    asked = guest.run("gradlane check --config /tmp/n0.yaml --time 500ms", check=False).output
    expect(r"(?m)^note hugepages: 192 MiB free on NUMA node 0, .*the cards are at NUMA node 1, which has too few", asked)
    start(guest)
    said = expect(r"no memory for packet buffers on NUMA node 1", guest.read("/tmp/log0"))[0]
    guest.run("stop 0; first=$?; stop 1 && [ $first = 0 ]")
    return f"{said}: from node 0, then\n{advice}"


ROWS = [Row("numa", here), Row("numa-hugepages-there-only", only_here), Row("numa-no-hugepages", elsewhere)]
