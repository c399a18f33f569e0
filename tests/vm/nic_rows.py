"""Rows of `gradlane nic`: setup gives NICs of the kernel to daemons of another user, and undo gives them back."""

import copy
import json
import pathlib
import re

from tests.vm import image, node_files, systemd
from tests.vm.driver_rows import CARDS
from tests.vm.guest import Card, mac_of
from tests.vm.ring import check_perf, expect
from tests.vm.row import Row

USER = "root:x:0:0::/:/bin/sh\ngradlane:x:900:900::/:/bin/sh\n"
PERF = "-b 4K -e 32K -f 8 -n 1 -w 1 --codec raw,fixed:10"
# The daemons run as in gradlaned@.service: not as root, and with the right to lock memory.
AS_USER = """ulimit -l unlimited
gradlaned() { exec su -s /bin/sh gradlane -c "exec /usr/bin/gradlaned $*"; }
daemon 0; daemon 1; whole 0 && whole 1
"""
# This script loses what a reboot loses: the binding and the hugepages.
REBOOT = """echo >/sys/bus/pci/devices/{0}/driver_override
echo {0} >/sys/bus/pci/drivers/vfio-pci/unbind; echo {0} >/sys/bus/pci/drivers_probe
echo 0 >/proc/sys/vm/nr_hugepages; sed -i 's/"boot": "[^"]*"/"boot": "before"/' /var/lib/gradlane/nic/*.json
"""


class Machine:
    """A guest with two NICs that are connected to each other, and that the kernel uses."""

    def __init__(self, stage, ring, module, **options):
        self.guest = stage.prepare([Card(ring.card, end, ring.options) for end in stage.cable().ends], **options)
        self.nics = [self.guest.address(number) for number in range(2)]
        texts = {rank: node_files.node(rank, [f"{{name: e0, pci: '{nic}'}}"], hugepages=True)
                 for rank, nic in enumerate(self.nics)}
        files = node_files.files(texts)
        self.guest.files |= {"/etc/passwd": USER, **files,
                             **{path.replace("/tmp/", "/etc/gradlane/"): text for path, text in files.items()}}
        stage.boot(self.guest)
        self.guest.run(f"modprobe {module}; chmod 1777 /tmp; chmod 755 /etc /etc/gradlane /dev/vfio; chmod 644 /etc/passwd "
                       "/tmp/*.yaml; await 20 test -e /sys/class/net/eth1")
        self.before = self.list()

    def list(self):
        """Returns {address: what `gradlane nic list` says of the NIC}."""
        return {nic["pci"]: nic for nic in json.loads(self.guest.run("gradlane nic list --json").output)}

    def hugepages(self):
        return int(self.guest.read("/proc/sys/vm/nr_hugepages"))

    def refused(self, command, pattern):
        result = self.guest.run(command, check=False)
        assert result.status == 2, result
        return expect(pattern, result.output)[0]

    def setup(self, rank):
        return self.guest.run(f"gradlane nic setup {self.nics[rank]} --instance n{rank}").output

    def check_bound(self):
        """Checks that both NICs are those of DPDK and of the user, and that there are hugepages."""
        for rank, nic in enumerate(self.nics):
            now = self.list()[nic]
            assert (now["driver"], now["interfaces"], now["instance"]) == ("vfio-pci", [], f"n{rank}"), now
            owner = self.guest.run(f"stat -c '%U %a' /dev/vfio/{now['iommu_group']}").output.split()
            assert owner == ["gradlane", "600"], owner
        assert self.hugepages() > 0, "no hugepages"

    def check_given_back(self, files):
        """Checks that all is as before: the kernel's interfaces send and receive, and no file is left."""
        after = self.list()
        for nic in self.nics:
            assert after[nic] == self.before[nic], (after[nic], self.before[nic])
        assert self.hugepages() == 0, self.hugepages()
        left = self.guest.run("find /etc /var/lib/gradlane -type f -o -type l").output.split()
        assert set(left) == set(files), set(left) ^ set(files)
        ends = [self.before[nic]["interfaces"][0] for nic in self.nics]
        self.guest.run(f"ip addr add 10.9.9.1/24 dev {ends[0]}; ip link set {ends[0]} up; ip link set {ends[1]} up; "
                       f"got() {{ ping -c 1 -W 1 10.9.9.2 >/dev/null; [ $(cat /sys/class/net/{ends[1]}/statistics/rx_packets) -gt 0 ]; }}; "
                       "await 60 got")


def play(stage, name, module):
    """Sets NICs up, sums on them, repeats the set-up as after a reboot, sums again, and gives the NICs back."""
    machine = Machine(stage, CARDS[name], module)
    guest, nic = machine.guest, machine.nics[0]
    files = guest.run("find /etc -type f -o -type l").output.split()
    interface = machine.before[nic]["interfaces"][0]
    guest.run(f"ip addr add 10.8.8.1/24 dev {interface}; ip link set {interface} up; ip route add default via 10.8.8.2")
    said = machine.refused(f"gradlane nic setup {nic}", rf"needed by this machine: {interface} carries the default route")
    guest.run(f"ip route del default; ip addr flush dev {interface}")
    machine.refused(f"gradlane nic setup {nic} --hugepages 100000",
                    r"(?s)only \d+ of 100000 hugepages.*All steps before it are undone$")
    assert machine.list()[nic] == machine.before[nic], machine.list()
    for rank in range(2):
        expect(r"(?s)bound.*gave /dev/vfio/\d+ to user gradlane.*lines for /etc/gradlane", machine.setup(rank))
    machine.check_bound()
    before = machine.hugepages()
    machine.refused(f"gradlane nic setup {nic} --hugepages 100000", r"only \d+ of 100000 hugepages")  # the old ones stay
    again = machine.setup(0)  # a second call changes nothing
    assert machine.hugepages() == before and not re.search("loaded|added|wrote|bound", again), again
    guest.run(AS_USER)
    rows = check_perf(guest.run(f"perf 2 {PERF}", timeout=200).output)
    machine.refused(f"gradlane nic undo {nic}", r"is in use by gradlaned, pid \d+")
    guest.run("stop 0; first=$?; stop 1 && [ $first = 0 ]")
    for each in machine.nics:
        guest.run(REBOOT.format(each))
    assert machine.list()[nic]["interfaces"], "a reboot gives the NIC to the kernel"
    for each in machine.nics:
        guest.run(f"eval \"$(sed -n s/^ExecStart=//p /etc/systemd/system/gradlane-nic@{each}.service)\"")
    machine.check_bound()
    guest.run(AS_USER + "stop 0; first=$?; stop 1 && [ $first = 0 ]")
    for each in machine.nics:
        guest.run(f"gradlane nic undo {each}")
    machine.check_given_back(files)
    return f"{rows} sizes and codecs as user gradlane, wrong 0; set up again as after a reboot; given back; refused: {said}"


def at_boot(stage):
    """Boots a machine with systemd and udev that has the files of a set-up. Services of gradlaned sum on the NICs."""
    ring, modules = CARDS["e1000e"], (*image.MODULES, "e1000e")
    first = Machine(stage, ring, "e1000e")
    for rank in range(2):
        first.setup(rank)
    files = {path: first.guest.read(path) for path in first.guest.run(
        "find /etc/systemd /etc/udev /var/lib/gradlane /etc/passwd -type f").output.split()}
    links = first.guest.run("cd /etc/systemd/system; for f in */*.service; do echo $f $(readlink $f); done").output.split()
    files |= {f"etc/systemd/system/{path}": pathlib.Path(target) for path, target in zip(links[::2], links[1::2])}
    first.guest.end()
    files["etc/group"] = "root:x:0:\ngradlane:x:900:\n"
    for rank, nic in enumerate(first.nics):
        text = node_files.node(rank, [f"{{name: e0, pci: '{nic}'}}"], hugepages=True)
        files[f"etc/gradlane/n{rank}.yaml"] = text.replace("/tmp/", "/run/gradlane/")
    made = systemd.image(stage.image, stage.folder, stage.kernel, modules, files)
    # The same NICs: they make their serial numbers of their MAC addresses.
    cards = [Card(ring.card, end, ring.options, mac_of(first.guest.name, rank))
             for rank, end in enumerate(stage.cable().ends)]
    guest = stage.prepare(cards, image=made, arguments=systemd.ARGUMENTS)
    stage.boot(guest)
    for nic in first.nics:
        unit = f"gradlane-nic@{nic}"
        guest.run(f"await 120 systemctl -q is-active {unit} || {{ systemctl status --no-pager {unit}; false; }}", timeout=150)
    machine = copy.copy(first)
    machine.guest = guest
    machine.check_bound()
    guest.run("chown root /dev/vfio/[0-9]*; udevadm trigger --action=add --subsystem-match=vfio; udevadm settle")
    machine.check_bound()  # by the udev rules
    guest.run("cd /tmp; ln -s /etc/gradlane/*.yaml /run/gradlane/n0.sock /run/gradlane/n1.sock .; "
              "systemctl start gradlaned@n0 gradlaned@n1 || { timeout 20 journalctl --no-pager -b -o cat -u 'gradlaned@*' | tail "
              "-n 30; exit 1; }; whole 0 && whole 1")
    rows = check_perf(guest.run(f"perf 2 {PERF}", timeout=200).output)
    owner = guest.run("ps -o user,comm | grep gradlaned | sort -u").output.split()
    assert owner == ["gradlane", "gradlaned"], owner
    guest.run(f"systemctl stop gradlaned@n0 gradlaned@n1; gradlane nic undo {' '.join(first.nics)}")
    for nic, now in machine.list().items():
        assert now["driver"] == "e1000e" and now["interfaces"] and not now["instance"], (nic, now)
    left = guest.run("find /etc/udev /etc/systemd /var/lib/gradlane -name '*nic*.*'").output.split()
    assert machine.hugepages() == 0 and not left, left
    return f"systemd binds both NICs at the boot; {rows} sizes and codecs by gradlaned@.service, wrong 0; given back"


def no_iommu(stage):
    """Without an IOMMU, setup says what to add to the kernel's arguments, and undoes what it did."""
    machine = Machine(stage, CARDS["e1000e"], "e1000e", arguments="intel_iommu=off", cpu="Skylake-Client")
    nic = machine.nics[0]
    said = machine.refused(f"gradlane nic setup {nic}", r"is in no IOMMU group.*VT-d.*add 'intel_iommu=on iommu=pt'")
    result = machine.guest.run(f"gradlane nic setup {nic} --no-iommu", check=False)
    if result.status == 0:  # a kernel with CONFIG_VFIO_NOIOMMU
        assert machine.list()[nic]["driver"] == "vfio-pci"
        machine.guest.run(f"gradlane nic undo {nic}")
    else:
        expect("lacks CONFIG_VFIO_NOIOMMU.*All steps before it are undone", result.output)
    assert machine.list()[nic] == machine.before[nic], machine.list()
    return said


ROWS = [
    Row("nic-setup", lambda stage: play(stage, "e1000e", "e1000e"), limit=600),
    Row("nic-setup-virtio", lambda stage: play(stage, "virtio", "virtio_pci; modprobe virtio_net"), limit=600),
    Row("nic-setup-vmxnet3", lambda stage: play(stage, "vmxnet3", "vmxnet3"), limit=600),
    Row("nic-setup-boot", at_boot, limit=900),
    Row("nic-setup-no-iommu", no_iommu),
]
