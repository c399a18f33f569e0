#!/usr/bin/python3
"""Tests `gradlane nic` on a machine made of files, with a thread that does what the kernel does to them.

nic_test.py GRADLANE
"""

import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import threading
import unittest

from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.waiting import PATIENCE

GRADLANE = None
NIC, OTHER, DISK = "0000:03:00.0", "0000:04:00.0", "0000:05:00.0"
PCI_IDS = """# a comment
1af4  Red Hat, Inc.
8086  Intel Corporation
\t10d3  82574L Gigabit Network Connection
\t\t1af4 1100  a subsystem
15b3  Mellanox Technologies
"""
DEFAULT = "{}\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
LOCAL = "{}\t0000000A\t00000000\t0001\t0\t0\t100\t000000FF\t0\t0\t0\n"  # 10.0.0.0/8
SSH = "   0: 0100000A:0016 0200000A:C350 01 00000000:00000000 02:000A 00000000 0 0 1\n"  # 10.0.0.1:22 with 10.0.0.2
IPV6 = "{0} 00 {0} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     {1}\n"


class Machine:
    """Files of a machine below a folder. A thread binds drivers to devices."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="gl-nic-")
        self.root = pathlib.Path(self._folder.name)
        self._native, self._stop = {}, threading.Event()
        self._pipes = {}  # path: descriptor
        self.write("proc/sys/kernel/random/boot_id", "boot-1\n")
        self.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\n")
        self.write("proc/cmdline", "quiet\n")
        self.write("proc/net/route", "Iface\tDestination\n")
        self.write("etc/passwd", f"root:x:0:0::/:/bin/sh\ngradlane:x:{os.getuid()}:{os.getgid()}::/:/bin/sh\n")
        self.write("usr/share/misc/pci.ids", PCI_IDS)
        self.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "7\n")
        self.pipe("sys/bus/pci/drivers_probe")
        for folder in ("dev/vfio", "run/systemd/system", "sys/class/net"):
            (self.root / folder).mkdir(parents=True)
        self.program("modprobe", 'name=$(echo "$1" | tr - _); mkdir -p $root/sys/module/$name $root/sys/bus/pci/drivers/$1; '
                                 '[ -e $root/sys/bus/pci/drivers/$1/unbind ] || mkfifo $root/sys/bus/pci/drivers/$1/unbind')
        self.program("systemctl", "")
        self.device(NIC, group="7")
        self.device(OTHER, group="8", interface="eth1")
        self.device(DISK, "0x010802", "8086:0a54", "nvme", "", "9")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self):
        self._stop.set()
        self._thread.join()
        for pipe in self._pipes.values():
            os.close(pipe)
        self._folder.cleanup()

    # ---- Files

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(text if isinstance(text, bytes) else text.encode())

    def link(self, path, target):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).unlink(missing_ok=True)
        (self.root / path).symlink_to(target)

    def pipe(self, path):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(self.root / path)

    def program(self, name, script):
        self.write(f"usr/sbin/{name}", f'#!/bin/sh\nroot={self.root}\necho "{name} $*" >>$root/ran\n{script}\n')
        (self.root / "usr/sbin" / name).chmod(0o755)

    def read(self, path):
        return (self.root / path).read_text()

    def has(self, path):
        return os.path.lexists(self.root / path)

    def hugepages(self):
        return int(self.read("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"))

    def device(self, address, kind="0x020000", ids="8086:10d3", driver="e1000e", interface="eth0", group="", node="-1"):
        folder = f"sys/bus/pci/devices/{address}"
        vendor, device = ids.split(":")
        for name, text in (("class", kind), ("vendor", f"0x{vendor}"), ("device", f"0x{device}"), ("numa_node", node),
                           ("driver_override", "(null)")):
            self.write(f"{folder}/{name}", text + "\n")
        self._native[address] = (driver, interface)
        self.set_group(address, group)
        if driver:
            if not self.has(f"sys/bus/pci/drivers/{driver}/unbind"):
                self.pipe(f"sys/bus/pci/drivers/{driver}/unbind")
            self._bind(address, driver)

    def set_group(self, address, group):
        if group:
            self.link(f"sys/bus/pci/devices/{address}/iommu_group", f"../../../../kernel/iommu_groups/{group}")
            self.link(f"sys/kernel/iommu_groups/{group}/devices/{address}", f"../../../../bus/pci/devices/{address}")
        else:
            with contextlib.suppress(FileNotFoundError):
                (self.root / f"sys/bus/pci/devices/{address}/iommu_group").unlink()

    def driver(self, address):
        link = self.root / f"sys/bus/pci/devices/{address}/driver"
        return os.path.basename(os.readlink(link)) if link.is_symlink() else ""

    def snapshot(self):
        """Returns {path: content} of all but the log of programs, modules, and what the kernel leaves in attributes."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if name in ("ran", "run/gradlane-nic.lock") or name.startswith(("sys/module", "sys/bus/pci/drivers", "var", "etc/systemd", "etc/udev",
                                                 "dev/vfio")) and path.is_dir():
                continue
            if path.is_symlink():
                found[name] = os.readlink(path)
            elif path.is_file():
                found[name] = path.read_text(errors="replace").splitlines()[:1]
        for name, lines in found.items():
            if name.endswith("driver_override"):
                found[name] = [line.replace("(null)", "") for line in lines]
        return {name: content for name, content in found.items() if not name.startswith("sys/bus/pci/drivers/vfio-pci")}

    # ---- Commands

    def nic(self, *words, status=0):
        ended = subprocess.run([GRADLANE, "nic", *words, "--root", str(self.root)], capture_output=True, text=True,
                               timeout=PATIENCE, check=False)
        assert ended.returncode == status, (ended.returncode, ended.stdout, ended.stderr)
        assert all(line.isprintable() for line in (ended.stdout + ended.stderr).splitlines()), (ended.stdout, ended.stderr)
        return ended.stdout if status == 0 else ended.stdout + ended.stderr

    # ---- The kernel

    def _run(self):
        while not self._stop.is_set():
            for path in self.root.glob("sys/bus/pci/drivers/*/unbind"):
                if path not in self._pipes:
                    self._pipes[path] = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            probe = self.root / "sys/bus/pci/drivers_probe"
            if probe not in self._pipes:
                self._pipes[probe] = os.open(probe, os.O_RDWR | os.O_NONBLOCK)
            select.select(self._pipes.values(), [], [], 0.01)
            # Commands write an unbind before the probe. So once the probe has been read, the unbind is in its pipe.
            probed = self._written(probe)
            for path in self._pipes.keys() - {probe}:
                for address in self._written(path):
                    self._unbind(address, path.parent.name)
            for address in probed:
                self._probe(address)

    def _written(self, path):
        """Returns the words that were written to a pipe."""
        try:
            return os.read(self._pipes[path], 4096).decode().split()
        except BlockingIOError:
            return []

    def _group(self, address):
        link = self.root / f"sys/bus/pci/devices/{address}/iommu_group"
        return os.path.basename(os.readlink(link)) if link.is_symlink() else "noiommu-0"

    def _unbind(self, address, driver):
        if self.driver(address) != driver:
            return
        folder = self.root / f"sys/bus/pci/devices/{address}"
        (folder / "driver").unlink()
        for interface in list((folder / "net").glob("*")):
            interface.rmdir()
        (self.root / "dev/vfio" / self._group(address)).unlink(missing_ok=True)

    def _probe(self, address):
        override = self.read(f"sys/bus/pci/devices/{address}/driver_override").splitlines()[0].replace("(null)", "")
        self._bind(address, override or self._native[address][0])

    def _bind(self, address, driver):
        folder = self.root / f"sys/bus/pci/devices/{address}"
        if (folder / "driver").is_symlink() or not self.has(f"sys/bus/pci/drivers/{driver}") or self.has("refuse") or \
                driver == "vfio-pci" and self.has(f"refuse-{address}"):
            return
        native, interface = self._native[address]
        if driver == native and interface:
            (folder / "net" / interface).mkdir(parents=True, exist_ok=True)
        if driver == "vfio-pci":
            self.write(f"dev/vfio/{self._group(address)}", "")
        (folder / "driver").symlink_to(f"../../drivers/{driver}")


class Nic(unittest.TestCase):
    def setUp(self):
        self.machine = Machine()
        self.addCleanup(self.machine.close)
        self.before = self.machine.snapshot()

    def refused(self, words, *parts):
        """Checks that a command fails with these parts in its message, and changes nothing."""
        before = self.machine.snapshot()
        text = self.machine.nic(*words, status=2)
        for part in parts:
            self.assertIn(part, text)
        self.assertEqual(self.machine.snapshot(), before)

    def test_list(self):
        self.machine.device("0000:06:00.0", ids="15b3:1017", driver="mlx5_core", interface="ens1", node="1", group="11")
        table = self.machine.nic("list").splitlines()
        self.assertEqual(table[1].split(), [NIC, "8086:10d3", "e1000e", "eth0", "-", "7", "-", "Intel", "Corporation",
                                            "82574L", "Gigabit", "Network", "Connection"])
        nics = json.loads(self.machine.nic("list", "--json"))
        self.assertEqual([nic["pci"] for nic in nics], [NIC, OTHER, "0000:06:00.0"])
        self.assertEqual(nics[2], {"pci": "0000:06:00.0", "ids": "15b3:1017", "name": "Mellanox Technologies",
                                   "driver": "mlx5_core", "interfaces": ["ens1"], "numa_node": 1, "iommu_group": "11",
                                   "instance": ""})

    def test_setup_and_undo(self):
        text = self.machine.nic("setup", "03:00.0", "--instance", "ring")
        for part in ("loaded the kernel's module vfio-pci", "loaded the kernel's module vfio_iommu_type1", "added 50 hugepages of 2 MiB: 7 -> 57",
                     f"bound {NIC} to vfio-pci; the kernel loses interface eth0", "gave /dev/vfio/7 to user gradlane",
                     "lines for /etc/gradlane/ring.yaml:", f"{{name: e0, pci: '{NIC}'}}", "memory: {hugepages: true}"):
            self.assertIn(part, text)
        self.assertEqual((self.machine.driver(NIC), self.machine.driver(OTHER)), ("vfio-pci", "e1000e"))
        self.assertEqual(self.machine.hugepages(), 57)
        self.assertEqual((self.machine.root / "dev/vfio/7").stat().st_mode & 0o777, 0o600)
        unit = self.machine.read(f"etc/systemd/system/gradlane-nic@{NIC}.service")
        self.assertIn(f'ExecStart="{GRADLANE}" nic setup {NIC}\n', unit)
        self.assertTrue(self.machine.has(f"etc/systemd/system/multi-user.target.wants/gradlane-nic@{NIC}.service"))
        rule = self.machine.read(f"etc/udev/rules.d/60-gradlane-nic-{NIC}.rules")
        self.assertIn(f'TEST=="/sys/kernel/iommu_groups/%k/devices/{NIC}", OWNER="gradlane", GROUP="root", MODE="0600"', rule)
        drop_in = self.machine.read(f"etc/systemd/system/gradlaned@ring.service.d/nic-{NIC}.conf").splitlines()
        example = [line for line in (ROOT / "packaging/service/card.conf").read_text().splitlines() if line[:1] not in "#"]
        self.assertEqual([line for line in example if line not in drop_in], [])
        self.assertIn("systemctl daemon-reload", self.machine.read("ran"))
        self.assertEqual(json.loads(self.machine.nic("list", "--json"))[0]["instance"], "ring")

        again, now = self.machine.nic("setup", NIC), self.machine.snapshot()
        for word in ("loaded", "added", "wrote", "bound"):
            self.assertNotIn(word, again)
        self.refused(["setup", NIC, "--instance", "other"], "is set up with --instance ring --user gradlane: gradlane nic undo")
        for pages in (52, 50):
            self.assertIn(f"added {pages} hugepages of 2 MiB: 7 -> {7 + pages}", self.machine.nic("setup", NIC, "--hugepages", str(pages)))
        self.assertEqual(self.machine.snapshot(), now)
        # A second NIC of the same daemon shares its hugepages, which stay until both are undone.
        self.machine.nic("setup", OTHER, "--instance", "ring")
        self.assertEqual(self.machine.hugepages(), 57)
        self.machine.nic("undo", OTHER)
        self.assertEqual(self.machine.snapshot(), now)
        self.machine.nic("setup", OTHER, "--instance", "ring")
        self.assertIn(f"50 hugepages of 2 MiB stay for {OTHER}", self.machine.nic("undo", NIC))
        self.assertEqual(self.machine.hugepages(), 57)
        self.machine.nic("setup", NIC, "--instance", "ring")
        self.machine.nic("undo", OTHER)
        self.assertEqual(self.machine.snapshot(), now)

        text = self.machine.nic("undo", NIC)
        self.assertIn(f"gave {NIC} to the kernel's driver e1000e: interface eth0", text)
        self.assertEqual(self.machine.snapshot(), self.before)
        self.assertFalse(self.machine.has("etc/systemd/system/gradlaned@ring.service.d"))
        self.assertIn("nothing to undo", self.machine.nic("undo", NIC))

    def test_reboot(self):
        self.machine.nic("setup", NIC, "--hugepages", "10")
        self.machine.write("proc/sys/kernel/random/boot_id", "boot-2\n")
        self.machine.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n")
        self.machine.device(NIC, group="12")  # the group has another number
        (self.machine.root / f"sys/bus/pci/devices/{NIC}/driver").unlink()
        text = self.machine.nic("setup", NIC)
        self.assertIn("added 10 hugepages of 2 MiB: 0 -> 10", text)
        self.assertIn("gave /dev/vfio/12 to user gradlane", text)
        self.assertNotIn("wrote", text)
        # After another reboot nothing has added the pages, so that undo takes none away.
        self.machine.write("proc/sys/kernel/random/boot_id", "boot-3\n")
        self.machine.nic("undo", NIC)
        self.assertEqual(self.machine.hugepages(), 10)

    def test_moved(self):
        # Two capabilities: one that links to the next, and the serial number.
        config = f"sys/bus/pci/devices/{NIC}/config"
        serial = bytes.fromhex("03000100" "00eeff00" "00171500")
        self.machine.write(config, bytes(0x100) + bytes.fromhex("01000114") + bytes(60) + serial)
        self.machine.nic("setup", NIC)
        self.machine.write(config, bytes(0x100) + serial[:8] + b"\1" + serial[9:])
        self.refused(["setup", NIC], "is 8086:10d3 (0015170100ffee00) now, but was 8086:10d3 (0015170000ffee00)")
        self.machine.write(config, bytes(64))  # what a user may read, or a NIC that has none
        self.machine.nic("setup", NIC)
        self.machine.write(f"sys/bus/pci/devices/{NIC}/device", "0x1572\n")
        self.refused(["setup", NIC], "is 8086:1572 now, but was 8086:10d3 (0015170000ffee00)")
        self.assertIn("is not in the machine any more", self.machine.nic("undo", NIC))
        self.assertEqual(self.machine.driver(NIC), "vfio-pci")
        self.assertEqual(self.machine.hugepages(), 7)

    def test_dry_run(self):
        text = self.machine.nic("setup", NIC, "--dry-run")
        for part in ("would load", "would add 50 hugepages", "would write", "would bind", "would give /dev/vfio/7"):
            self.assertIn(part, text)
        self.assertEqual(self.machine.snapshot(), self.before)
        self.machine.nic("setup", NIC)
        now = self.machine.snapshot()
        text = self.machine.nic("undo", NIC, "--dry-run")
        for part in (f"would give {NIC} to the kernel's driver e1000e", "would remove /etc/udev/rules.d", "would remove 50 hugepages"):
            self.assertIn(part, text)
        self.assertEqual(self.machine.snapshot(), now)

    def test_iommu(self):
        self.machine.set_group(NIC, "")
        self.refused(["setup", NIC], "in no IOMMU group", "VT-d", "add 'intel_iommu=on iommu=pt'", "--no-iommu")
        self.machine.write("proc/cmdline", "quiet intel_iommu=on\n")
        text = self.machine.nic("setup", NIC, status=2)
        self.assertNotIn("add 'intel", text)
        self.machine.write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\n")
        self.refused(["setup", NIC], "AMD-Vi", "add 'iommu=pt'")
        self.refused(["setup", NIC, "--no-iommu"], "CONFIG_VFIO_NOIOMMU", "All steps before it are undone")
        mode = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
        self.machine.write(mode, "N\n")
        text = self.machine.nic("setup", NIC, "--no-iommu")
        self.assertIn("they can write to all memory, and only root can open them", text)
        self.assertEqual((self.machine.driver(NIC), self.machine.read(mode)), ("vfio-pci", "Y\n"))
        self.assertFalse(self.machine.has(f"etc/udev/rules.d/60-gradlane-nic-{NIC}.rules"))
        self.assertFalse(self.machine.has("etc/systemd/system/gradlaned@node.service.d"))
        self.assertNotIn("bound", self.machine.nic("setup", NIC))
        self.machine.nic("undo", NIC)
        self.assertEqual((self.machine.driver(NIC), self.machine.read(mode)), ("e1000e", "N\n"))
        self.assertIn("--no-iommu has no effect", self.machine.nic("setup", OTHER, "--no-iommu"))

    def test_needed(self):
        for name, files, part in (
                ("route", {"proc/net/route": LOCAL.format("eth1") + DEFAULT.format("eth0")}, "eth0 carries the default route"),
                ("bond", {"proc/net/route": DEFAULT.format("vlan5")}, "eth0 carries the default route, as a part of vlan5"),
                ("ipv6", {"proc/net/ipv6_route": IPV6.format("0" * 32, "eth0")}, "eth0 carries the default route"),
                ("ssh", {"proc/net/route": DEFAULT.format("eth9") + LOCAL.format("eth0"), "proc/net/tcp": "head\n" + SSH},
                 "eth0 carries a TCP connection of port 22 (SSH) with 10.0.0.2"),
                ("switch", {"sys/class/net/eth0/upper_ovs-system": ""}, "eth0 is a part of ovs-system")):
            with self.subTest(name):
                if name == "bond":
                    self.machine.write("sys/class/net/vlan5/lower_bond0", "")
                    self.machine.write("sys/class/net/bond0/lower_eth0", "")
                    self.machine.write("sys/class/net/bond0/lower_vlan5", "")  # a circle
                for path, text in files.items():
                    self.machine.write(path, text)
                self.refused(["setup", NIC], "needed by this machine", part, "--force")
                self.assertIn("would bind", self.machine.nic("setup", OTHER, "--dry-run"))
                for path in files:
                    (self.machine.root / path).unlink()
        self.machine.write("proc/net/route", DEFAULT.format("eth0"))
        self.machine.nic("setup", NIC, "--force")
        self.machine.nic("setup", NIC)  # as at the next boot

    def test_groups(self):
        self.machine.set_group(OTHER, "7")
        self.refused(["setup", NIC], f"IOMMU group 7 also has {OTHER} (driver e1000e)", f"setup {NIC} {OTHER}")
        self.machine.nic("setup", NIC, OTHER)
        self.assertEqual((self.machine.driver(NIC), self.machine.driver(OTHER)), ("vfio-pci", "vfio-pci"))
        self.machine.nic("undo", NIC, OTHER)
        self.assertEqual(self.machine.hugepages(), 7)
        self.machine.set_group(DISK, "7")
        self.refused(["setup", NIC, OTHER], f"also has {DISK} (driver nvme)", "as a whole: put the NIC into another slot")
        self.machine.device("0000:02:00.0", "0x060400", "8086:1234", "pcieport", "", "8")
        self.machine.set_group(OTHER, "8")
        self.machine.nic("setup", OTHER)  # a bridge may stay

    def test_kinds(self):
        self.refused(["setup", DISK], "is no network device")
        self.refused(["setup", "0000:09:00.0"], "there is no PCI device")
        self.refused(["setup", "eth0"], "'eth0' is no PCI address")
        self.refused(["setup", NIC, "--instance", "../x"], "--instance: must be")
        self.refused(["setup", NIC, "--user", "nobody9"], "there is no user 'nobody9'")
        self.refused(["setup", NIC, "--hugepages", str(2**64 - 1)], "--hugepages: at most")
        self.machine.write(f"sys/bus/pci/devices/{NIC}/sriov_numvfs", "4\n")
        self.refused(["setup", NIC], "has 4 virtual functions", "sriov_numvfs")
        self.machine.device("0000:06:00.0", ids="15b3:1017", driver="mlx5_core", interface="ens1", group="11")
        before = self.machine.snapshot()
        text = self.machine.nic("setup", "0000:06:00.0")
        self.assertIn("mlx5_core beside the kernel", text)
        self.assertIn("pci: '0000:06:00.0'", text)
        self.assertEqual(self.machine.snapshot(), before)
        self.machine.device("0000:07:00.0", ids="1af4:1041", driver="virtio-pci", interface="", group="13")
        (self.machine.root / "sys/bus/pci/devices/0000:07:00.0/virtio2/net/eth5").mkdir(parents=True)
        text = self.machine.nic("setup", "0000:07:00.0", "--dry-run")
        self.assertIn("virtio NIC: the hypervisor must put it behind the IOMMU", text)
        self.assertIn("loses interface eth5", text)

    def test_user_and_hugepages(self):
        self.machine.write("etc/passwd", f"root:x:{os.getuid()}:0::/:/bin/sh\n")
        text = self.machine.nic("setup", NIC, "--hugepages", "0")
        self.assertIn("there is no user gradlane", text)
        self.assertIn("gave /dev/vfio/7 to user root", text)
        self.assertNotIn("hugepages: true", text)
        self.machine.nic("undo", NIC)
        node = "rank: 0\nnodes: [{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2}]\nports: [{name: e0, pci: '03:00.0'}]\n"
        self.machine.write("etc/gradlane/node.yaml", node)
        self.assertIn("has no `memory: {hugepages: true}`", self.machine.nic("setup", NIC, "--dry-run"))
        self.machine.write("etc/gradlane/node.yaml", node + "memory: {hugepages: true}\nexchange: {window: 4096}\n")
        self.assertRegex(self.machine.nic("setup", NIC, "--dry-run"), r"would add \d\d hugepages")
        self.machine.write("etc/gradlane/node.yaml", "rank: [\n")
        self.assertIn("hugepages are for MTU 9000 and 2 lanes", self.machine.nic("setup", NIC, "--dry-run"))

    def test_failures(self):
        (self.machine.root / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").unlink()
        self.refused(["setup", NIC], "no hugepages of 2 MiB", "--hugepages 0", "All steps before it are undone")
        # The first NIC goes back, too, if the second one of its group cannot be bound.
        self.machine.write(f"refuse-{OTHER}", "")
        text = self.machine.nic("setup", NIC, OTHER, "--hugepages", "0", status=2)
        self.assertRegex(text, f"{OTHER} cannot be bound to vfio-pci.*All steps before it are undone")
        self.assertEqual((self.machine.driver(NIC), self.machine.nic("list").count("node")), ("e1000e", 0))
        (self.machine.root / f"refuse-{OTHER}").unlink()
        self.machine.write("refuse", "")
        text = self.machine.nic("setup", NIC, "--hugepages", "0", status=2)
        self.assertRegex(text, "cannot be bound to vfio-pci.*but: no driver of the kernel has taken")
        (self.machine.root / "refuse").unlink()
        self.machine.device(NIC, group="7")
        (self.machine.root / "usr/sbin/modprobe").unlink()
        for name in ("vfio_pci", "vfio_iommu_type1"):
            (self.machine.root / "sys/module" / name).rmdir()
        self.refused(["setup", NIC], "vfio-pci cannot be loaded: there is no program modprobe", "undone")

    def test_no_systemd(self):
        (self.machine.root / "run/systemd/system").rmdir()
        self.assertIn("systemd does not run here", self.machine.nic("setup", NIC))

    def test_in_use(self):
        self.machine.nic("setup", NIC)
        self.machine.write("proc/4711/comm", "gradlaned\n")
        self.machine.link("proc/4711/fd/9", str(self.machine.root / "dev/vfio/7"))
        self.refused(["undo", NIC], "is in use by gradlaned, pid 4711")
        (self.machine.root / f"var/lib/gradlane/nic/{NIC}.json").unlink()
        self.refused(["setup", NIC], "is in use by gradlaned, pid 4711")  # another program has bound it

    def test_damaged_state(self):
        for text in ("", "{", "[1]", '{"pci": 7}', "[" * 5000, "x" * 200_000,
                     json.dumps({"pci": NIC, "ids": "", "driver": "../../x", "numa_node": 0, "hugepages": -1, "boot": "",
                                 "instance": "node", "user": "root", "no_iommu": False, "force": False})):
            self.machine.write(f"var/lib/gradlane/nic/{NIC}.json", text)
            self.refused(["undo", NIC], "is damaged")
            self.machine.nic("list")

    def test_hostile_files(self):
        """Attributes and links with anything in them neither crash nor reach the terminal."""
        folder = f"sys/bus/pci/devices/{NIC}"
        for config in (b"\1\0\1\x10", os.urandom(3840), b"\xff" * 3840):  # a circle, anything, a removed card
            self.machine.write(f"{folder}/config", bytes(0x100) + config + bytes(3840 - len(config)))
            self.machine.nic("list")
        for name in ("vendor", "device", "numa_node"):
            self.machine.write(f"{folder}/{name}", b"\x1b[31m\xff\x00" * 100_000)
        self.machine.link(f"{folder}/iommu_group", "../../\x1b[2J")
        self.machine.link(f"{folder}/driver", "../drivers/\x07\nx")
        (self.machine.root / folder / "net/\x1b[1m\xe9").mkdir(parents=True)
        (self.machine.root / "sys/bus/pci/devices/\x1b]0;x").mkdir()
        self.machine.pipe("sys/bus/pci/devices/0000:08:00.0/vendor")
        self.machine.write("sys/bus/pci/devices/0000:08:00.0/class", "0x020000\n")
        self.machine.link("sys/bus/pci/devices/0000:0a:00.0", "0000:0a:00.0")  # a circle
        self.machine.write("usr/share/misc/pci.ids", os.urandom(100_000) + b"\n8086  \x1b[1mIntel\n\t10d3  \xff\n")
        for path in ("route", "ipv6_route", "tcp", "tcp6"):
            self.machine.write(f"proc/net/{path}", b"a b c d e f g h i j k l m n\n: 01: 01 01\n0 : : 01\n" + os.urandom(10_000))
        nics = {nic["pci"]: nic for nic in json.loads(self.machine.nic("list", "--json"))}
        self.assertEqual((nics[NIC]["ids"], nics[NIC]["numa_node"], nics[NIC]["iommu_group"]), ("????:????", -1, ""))
        self.assertEqual(nics[NIC]["driver"], "??x")
        self.assertEqual(nics["0000:08:00.0"]["ids"], "????:????")
        self.machine.nic("list")
        self.machine.nic("setup", OTHER)
        self.machine.nic("setup", NIC, status=2)


if __name__ == "__main__":
    GRADLANE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
