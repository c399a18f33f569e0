"""Rows of cards that a daemon cannot use: it ends with exit status 2, and its last line says why and what to do."""

import re

from tests.vm import node_files
from tests.vm.guest import Card
from tests.vm.ring import Ring, expect
from tests.vm.row import Row

DRIVERS = "/usr/lib/x86_64-linux-gnu"
SETUP = r"as root: gradlane nic setup 0000:01:00\.0"


class Machine:
    """A guest with two cards, and daemons that are refused."""

    def __init__(self, stage, **options):
        self.guest = Ring("e1000e", "net_e1000_em").prepare(stage, **options)
        self.card = self.guest.address(0)
        self.lines = []  # last lines of the daemons that were refused
        stage.boot(self.guest)

    def file(self, name, **settings):
        """Writes another configuration file for node 0."""
        port = settings.pop("port", f"{{name: e0, pci: '{self.card}'}}")
        text = node_files.node(0, [port], **settings).replace("/tmp/n0.sock", f"/tmp/{name}.sock")
        self.guest.run(f"cat >/tmp/{name}.yaml <<'END'\n{text}END\nchmod 644 /tmp/{name}.yaml")

    def refused(self, name, pattern, check=None, before="", after="", user=""):
        """Starts a daemon as `user`, which must be refused with a message of this pattern.

        `check` is a pattern for `gradlane check`, if that reports the fault too. The script `before` causes the fault,
        and `after` fixes it.
        """
        start = f"timeout 60 gradlaned --config /tmp/{name}.yaml"
        asks = f"gradlane check --config /tmp/{name}.yaml"
        if user:
            start, asks = (f"su -s /bin/sh {user} -c '{command}'" for command in (start, asks))
        if before:
            self.guest.run(before)
        result = self.guest.run(start, check=False)
        lines = [line for line in result.output.splitlines() if line.startswith("gradlaned: ")]
        assert result.status == 2 and lines, f"exit status {result.status}: {result.output}"
        expect(pattern, lines[-1])
        if check:
            expect("FAIL.*" + check, self.guest.run(asks, check=False).output)
        if after:
            self.guest.run(after)
        self.lines.append(re.sub(r"^gradlaned: ", "", lines[-1]))

    def hidden(self, library):
        """Returns scripts that remove a driver of DPDK and restore it."""
        names = f"{DRIVERS}/librte_{library}.so* {DRIVERS}/dpdk/pmds-*/librte_{library}.so*"
        return {"before": f"mkdir /tmp/gone; for f in {names}; do [ ! -e $f ] || echo $f; done >/tmp/gone/list; "
                          "while read f; do cp -a $f /tmp/gone/${f##*/}; rm $f; done </tmp/gone/list",
                "after": "while read f; do cp -a /tmp/gone/${f##*/} $f; done </tmp/gone/list; rm -r /tmp/gone"}


def refused(stage):
    """Runs all refusals that need no other machine."""
    machine = Machine(stage)
    guest, card = machine.guest, machine.card
    machine.file("absent", port="{name: e0, pci: '0000:fe:1e.6'}")
    machine.file("huge", hugepages=True)
    machine.file("second", address="10.78.0.{}")
    machine.refused("absent", r"port e0: PCI device 0000:fe:1e\.6: there is no such PCI device", "no such PCI device")
    machine.refused("n0", rf"PCI device {card}: it has no driver; {SETUP}", SETUP)
    guest.run("modprobe e1000e")
    machine.refused("n0", rf"PCI device {card}: the kernel uses it with driver e1000e, as interface \w+; {SETUP}", SETUP)
    for rank in range(2):
        guest.run(f"bind {guest.address(rank)}")
    machine.refused("huge", r"too few hugepages: 0 MiB free, \d+ MiB needed; as root: gradlane nic setup --hugepages \d+ PCI, or echo \d+ > /sys/")
    machine.refused("n0", r"DPDK's driver librte_mempool_ring\.so is not in /\S+: on Debian, apt install "
                          r"librte-mempool-ring23$", **machine.hidden("mempool_ring"))
    machine.refused("n0", rf"PCI device {card} \(8086:10d3\): DPDK's driver librte_net_e1000\.so is not in /\S+: on Debian, "
                          r"apt install librte-net-e1000-23$", **machine.hidden("net_e1000"))
    machine.refused("n0", r"DPDK did not start: EAL: Error, directory path / is world-writable and insecure",
                    before="chmod 777 /", after="chmod 755 /")
    guest.run("printf 'root:x:0:0::/:/bin/sh\\nnobody:x:65534:65534::/:/bin/sh\\n' >/etc/passwd; chmod 1777 /tmp; "
              "chmod 711 /dev /dev/vfio; chmod 644 /tmp/*.yaml")
    machine.refused("n0", r"/dev/vfio/\d+ cannot be opened by user nobody; as root: chown nobody /dev/vfio/\d+",
                    "cannot be opened by user nobody", user="nobody")
    guest.run("daemon 0; daemon 1; whole 0 && whole 1")
    machine.refused("second", r"/dev/vfio/\d+ is in use by gradlaned, pid \d+; only one process can use a card",
                    "is in use by gradlaned, pid")
    guest.run("stop 0 && stop 1")
    return f"{len(machine.lines)} daemons refused, each with what to do; then a ring on the same cards"


def shared_buffers(stage):
    """Runs a node with two cards, where one card needs larger buffers than the driver of the other card can handle."""
    guest = stage.prepare([Card("e1000e", stage.cable().ends[0]), Card("vmxnet3", stage.cable().ends[0])])
    stage.boot(guest)
    ports = [f"{{name: e{card}, pci: '{guest.address(card)}', nodes: [{card + 1}]}}" for card in range(2)]
    for card in range(2):
        guest.run(f"bind {guest.address(card)}")

    def write(mtu):
        guest.run(f"cat >/tmp/n0.yaml <<'END'\n{node_files.node(0, ports, nodes=3, mtu=mtu)}END")

    write(9000)
    result = guest.run("timeout 60 gradlaned --config /tmp/n0.yaml", check=False)
    assert result.status == 2, result
    said = expect(r"(?m)^gradlaned: .*port e1: the device takes buffers of at most 16383 bytes, but other ports need 16384, "
                  r".* e1000e set mtu to (\d+) at most.*$", result.output)
    write(said[1])
    guest.run("daemon 0; await 60 grep -q 'node 0 of 3: ' /tmp/log0 || { tail -n 20 /tmp/log0; exit 1; }; stop 0")
    return f"{said[0].removeprefix('gradlaned: ')}\nwith {said[1]} it starts"


def no_iommu(stage):
    machine = Machine(stage, arguments="intel_iommu=off")
    machine.refused("n0", r"it has no driver, and it is in no IOMMU group, which vfio-pci needs; switch the IOMMU on",
                    "switch the IOMMU on")
    result = machine.guest.run(f"bind {machine.card}", check=False)
    assert result.status != 0, "vfio-pci took a card without an IOMMU"
    return machine.lines[0]


ROWS = [
    Row("cards-refused", refused),
    Row("buffers-refused", shared_buffers),
    Row("no-iommu", no_iommu),
]
