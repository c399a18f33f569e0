"""Rows in which something breaks while trainers work: errors name it, nothing else ends, and the ring recovers by
itself."""

import time

from tests.vm.driver_rows import CARDS
from tests.vm.pair import FOREVER, OPERATION, PEER, Pair
from tests.vm.ring import expect
from tests.vm.row import Row

SHORT = 80  # all-reduces of each codec; together they take longer than a fault of 1 to 5 s


def link(stage, ring):
    """Takes the link of a card down for less than timeouts.peer, and then for longer."""
    pair = Pair(stage, ring)
    pids = [pair.pid(rank) for rank in range(2)]

    def plug(up):
        pair.guests[0].monitor("set_link", name="card0", up=up)

    pair.train(SHORT)
    plug(False)
    time.sleep(3)
    pair.in_work()
    plug(True)
    pair.succeed()
    pair.train(FOREVER)
    plug(False)
    said = [pair.fails(rank, f"rank {1 - rank}") for rank in range(2)]
    pair.run(0, "await 30 grep -q 'port e0: the link is down' /tmp/log0")
    plug(True)
    pair.right_again()
    assert [pair.pid(rank) for rank in range(2)] == pids, "a daemon has ended"
    expect("(?s)the link is down.*the link is up", pair.log(0))
    pair.stop()
    return f"{ring.driver}: 3 s without link cost time only; without it for good: '{said[0]}'; right again when it is back"


def removed(stage, ring):
    """Removes a card, and puts it in again."""
    pair = Pair(stage, ring)
    guest, pid = pair.guests[0], pair.pid(1)
    pair.train(FOREVER)
    guest.monitor("device_del", id="card0")
    said = [pair.fails(0, r"removed from the machine|daemon"), pair.fails(1, "rank 0")]
    status = pair.run(0, "ended 0", check=False).status
    assert status == 3, f"exit status {status}: {pair.log(0)}"
    expect(rf"port e0: PCI device {pair.address(0)} was removed from the machine", pair.log(0))
    pair.run(0, f"await 30 test ! -e /sys/bus/pci/devices/{pair.address(0)}")
    guest.put_in(0)
    pair.run(0, f"await 30 test -e /sys/bus/pci/devices/{pair.address(0)}")
    pair.bind(0)
    pair.start(0)
    pair.right_again()
    assert pair.pid(1) == pid, "the other daemon has ended"
    pair.stop()
    return (f"{ring.driver}: exit status 3, trainers '{said[0]}' and '{said[1]}'; right again with the card and a daemon "
            "put in again")


def killed(stage, ring):
    """Kills a daemon with kill -9, and starts another one on the same card."""
    pair = Pair(stage, ring)
    pid = pair.pid(1)
    pair.train(FOREVER)
    pair.run(0, "kill -9 $(cat /tmp/pid0)")
    said = [pair.fails(0, "daemon"), pair.fails(1, "rank 0")]
    pair.start(0)
    pair.right_again()
    assert pair.pid(1) == pid, "the other daemon has ended"
    pair.stop()
    return f"{ring.driver}: trainers '{said[0]}' and '{said[1]}'; right again with a daemon on the same card"


def paused(stage, ring):
    """Stops a machine for some seconds, as happens when a machine moves to another host."""
    pair = Pair(stage, ring, guests=2)
    pids = [pair.pid(rank) for rank in range(2)]
    for seconds in (1, 5):
        pair.train(SHORT)
        pair.guests[1].monitor("stop")
        time.sleep(seconds)
        pair.run(0, "[ ! -e /tmp/trained0 ]")
        pair.guests[1].monitor("cont")
        pair.succeed()
    pair.train(FOREVER)
    begun = time.monotonic()
    pair.guests[1].monitor("stop")
    said = pair.fails(0, "rank 1")
    time.sleep(max(0.0, begun + 2 * PEER - time.monotonic()))
    pair.guests[1].monitor("cont")
    pair.fails(1, "rank [01]")  # rank 1 learns that rank 0 has reported it, or finds rank 0 silent
    pair.right_again()
    assert [pair.pid(rank) for rank in range(2)] == pids, "a daemon has ended"
    pair.stop()
    return f"{ring.driver}: 1 and 5 s cost time only; {2 * PEER} s: '{said}'; right again when it goes on"


def powered_off(stage, ring):
    """Cuts the power of a machine, and then starts another machine as its replacement."""
    pair = Pair(stage, ring, guests=2)
    pid = pair.pid(0)
    pair.train(FOREVER)
    pair.guests[1].end()
    begun = time.monotonic()
    said = pair.fails(0, r"rank 1 has been silent for too long: it has died, hangs, or cannot be reached$")
    seconds = time.monotonic() - begun
    # The error must come after PEER, for a rank that is silent. For a rank that is only late, operations would fail
    # after OPERATION (120 s).
    assert seconds < OPERATION, f"{seconds:.0f} s"
    pair.replace(1)
    pair.right_again()
    assert pair.pid(0) == pid, "the other daemon has ended"
    pair.stop()
    return f"{ring.driver}: after {seconds:.0f} s '{said}'; right again with another machine in its place"


def shut_down(stage, ring):
    """Shuts a machine down in order. Its own trainer learns that its daemon ends.

    The other trainer learns at once that the rank has left, however long timeouts.peer is.
    """
    pair = Pair(stage, ring, guests=2)
    pid = pair.pid(0)
    pair.train(FOREVER)
    pair.run(1, "power_off")
    begun = time.monotonic()
    said = pair.fails(0, "rank 1 has left, or was shut down")
    seconds = time.monotonic() - begun
    pair.guests[1].wait_for_end(60)
    pair.replace(1)
    pair.right_again()
    assert pair.pid(0) == pid, "the other daemon has ended"
    pair.stop()
    return f"{ring.driver}: after {seconds:.0f} s '{said}'; right again with another machine in its place"


def rows():
    for name, play, cards in (("link-down", link, ("e1000e", "virtio", "vmxnet3")), ("card-removed", removed, ("e1000e", "virtio")),
                              ("daemon-killed", killed, ("e1000e", "virtio", "vmxnet3")),
                              ("machine-paused", paused, ("e1000e", "virtio", "vmxnet3")), ("machine-off", powered_off, ("e1000e", "virtio")), ("machine-shut-down", shut_down, ("e1000e",))):
        for card in cards:
            yield Row(f"{name}-{card}", lambda stage, play=play, card=CARDS[card]: play(stage, card), limit=480)


ROWS = list(rows())
