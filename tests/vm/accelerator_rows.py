"""Rows of accelerators between hosts. Guests without gradlane talk TCP through a guest that has two accelerators and no
interface of its own.

    host 0 --- e1000e | accelerator 0 | virtio --- virtio | accelerator 1 | e1000e --- host 1
"""

import concurrent.futures
import json
import subprocess

from tests.scripts.fixtures.paths import ROOT
from tests.vm.guest import Card
from tests.vm.kernels import Missing
from tests.vm.ring import expect
from tests.vm.row import Row

BOUND = 2.0**-10  # largest error of fixed:10
HOST_SIDE = "e1000e", ""
WIRE_SIDE = "virtio-net-pci", "disable-legacy=on,iommu_platform=on"


def floats(stage):
    """Compiles the program that hosts run, and returns its bytes. Raises Missing without a compiler."""
    program = stage.folder / "floats"
    made = subprocess.run(["cc", "-O1", "-o", program, ROOT / "tests/vm/floats.c", "-lm"], capture_output=True, text=True,
                          timeout=60, check=False)
    if made.returncode != 0:
        raise Missing(f"no compiler for tests/vm/floats.c: {made.stderr[-300:]}")
    return program.read_bytes()


class Path:
    """Two hosts with two accelerators between them. `more` has further settings of the accelerators, in YAML."""

    def __init__(self, stage, more="", mtu=1500):
        left, middle, right = stage.cable(), stage.cable(), stage.cable()
        program = {"/tmp/floats": floats(stage)}
        self.hosts = [stage.prepare([Card("virtio-net-pci", cable.ends[0], "disable-legacy=on")], files=program, cpus=1,
                                    memory=512, iommu=False) for cable in (left, right)]
        self.between = stage.prepare([Card(HOST_SIDE[0], left.ends[1]), Card(WIRE_SIDE[0], middle.ends[0], WIRE_SIDE[1]),
                                      Card(WIRE_SIDE[0], middle.ends[1], WIRE_SIDE[1]), Card(HOST_SIDE[0], right.ends[1])])
        for number, (host, wire) in enumerate(((0, 1), (3, 2))):
            self.between.files[f"/tmp/n{number}.yaml"] = (
                f"mode: accelerator\nhost: {{pci: '{self.between.address(host)}'}}\n"
                f"wire: {{pci: '{self.between.address(wire)}'}}\ncodec: fixed:10\nmtu: {mtu}\n"
                f"admin: /tmp/n{number}.admin\n{more}")
        self.mtu = mtu

    def boot(self, stage):
        stage.boot(*self.hosts, self.between)
        for card in range(4):
            self.between.run(f"bind {self.between.address(card)}")
        self.between.run("daemon 0; daemon 1; await 60 grep -q 'accelerator: ' /tmp/log0 && await 60 grep -q 'accelerator: ' "
                         "/tmp/log1 || { tail -n 20 /tmp/log0 /tmp/log1; exit 1; }")
        for number, host in enumerate(self.hosts):
            host.run(f"modprobe virtio_pci; modprobe virtio_net; chmod 755 /tmp/floats; ip link set eth0 mtu {self.mtu} up; "
                     f"ip addr add 10.77.0.{number + 1}/24 dev eth0")
        self.hosts[0].run("ping -c 1 -w 30 10.77.0.2")
        return self

    def send(self, tos, mib):
        """Sends floats from host 0 to host 1, all of which must arrive. Returns the largest error."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            received = pool.submit(self.hosts[1].run, "timeout 100 /tmp/floats receive 5000")
            self.hosts[0].run(f"await 20 /tmp/floats send 10.77.0.2 5000 {tos} {mib}")
            found = expect(r"(\d+) floats, worst (\S+)", received.result().output)
        assert int(found[1]) == mib << 18, found[0]
        return float(found[2])

    def stats(self, number):
        return json.loads(self.between.run(f"gradlane stats --config /tmp/n{number}.yaml --json").output)


def between(stage, **options):
    path = Path(stage, **options).boot(stage)
    # No program listens at this port, but the accelerators learn of each other.
    path.hosts[0].run("await 20 /tmp/floats send 10.77.0.2 5001 0x28 1", check=False)
    plain, marked = path.send("0", 2), path.send("0x28", 2)
    assert plain == 0, f"bytes that were not marked have changed: {plain}"
    assert 0 < marked <= BOUND, f"marked floats: {marked}"
    path.between.run("stop 0; first=$?; stop 1 && [ $first = 0 ]")
    return f"2 MiB over TCP: not marked, untouched; marked, worst error {marked:.3g} of {BOUND:.3g}"


def jumbo(stage):
    return between(stage, mtu=4000)


def lossy(stage):
    return between(stage, more="faults: {drop: 1%, duplicate: 1%, reorder: 1%, seed: 7}\n")


ROWS = [
    Row("accelerator", between),
    Row("accelerator-4000", jumbo),
    Row("accelerator-lossy", lossy),
]
