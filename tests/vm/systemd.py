"""The first file system of a guest that boots with systemd and udev of this machine, as a server does. Scripts run in a
service of it."""

import pathlib
import re
import subprocess
import tempfile

from tests.scripts.fixtures.paths import ROOT
from tests.vm.archive import Archive
from tests.vm.image import INSIDE
from tests.vm.kernels import CACHE, Missing, command

ARGUMENTS = "rdinit=/usr/lib/systemd/systemd systemd.unit=multi-user.target"
PROGRAMS = ("/usr/lib/systemd/systemd", "/usr/lib/systemd/systemd-journald", "/usr/lib/systemd/systemd-sysctl",
            "/usr/lib/systemd/systemd-modules-load", "/usr/bin/systemctl", "/usr/bin/journalctl", "/usr/bin/udevadm",
            "/usr/bin/systemd-tmpfiles")
FOLDERS = ("/lib/systemd/system/", "/lib/udev/rules.d/", "/usr/lib/systemd/system/", "/usr/lib/udev/rules.d/", "/usr/lib/tmpfiles.d/")
LINE = "lab-line.sh"  # the part of init.sh that runs scripts
SERVICE = f"""[Unit]
Description=Scripts of the laboratory
[Service]
ExecStart=/bin/sh /etc/{LINE}
KillMode=process
"""


def image(base, folder, kernel, modules, files):
    """Returns an archive in `folder` with the content of the archive `base`, systemd, udev, and `files`: {path: text, or
    the target of a link as a pathlib.Path}. udev loads `modules` by itself."""
    archive = Archive()
    for path in map(pathlib.Path, PROGRAMS):
        if not path.exists():
            raise Missing(f"no {path}: packages systemd and udev have it")
        archive.file(path)
        for library in re.findall(r"(/\S+) \(0x", command("ldd", str(path))):
            archive.file(library)
    archive.link("usr/lib/systemd/systemd-udevd", "/usr/bin/udevadm")
    for path in map(pathlib.Path, command("dpkg-query", "-L", "systemd", "udev").splitlines()):
        place = path if path.is_relative_to("/usr") else f"/usr{path}"
        if not str(path).startswith(FOLDERS) or not path.exists() and not path.is_symlink():
            continue
        if path.is_symlink():
            archive.link(place, path.readlink())
        elif path.is_file():
            archive.file(path, place)
    unit = (ROOT / "packaging/service/gradlaned@.service.in").read_text()
    archive.text("usr/lib/systemd/system/gradlaned@.service", unit.replace("@bindir@", "/usr/bin"))
    archive.text("usr/lib/tmpfiles.d/gradlane.conf", (ROOT / "packaging/service/tmpfiles.conf").read_text())
    archive.text("etc/systemd/system/lab.service", SERVICE)
    for name in ("systemd-logind", "getty@tty1", "dbus"):  # these need more programs
        archive.link(f"etc/systemd/system/{name}.service", "/dev/null")
    archive.link("etc/systemd/system/multi-user.target.wants/lab.service", "/etc/systemd/system/lab.service")
    loop = (INSIDE / "init.sh").read_text().partition("exec 3<>")
    archive.text(f"etc/{LINE}", "export PATH=/usr/bin:/usr/sbin HOME=/tmp\nchmod 755 /\nmkdir -p /tmp\nchmod 1777 /tmp\n" + loop[1] + loop[2])
    _add_module_index(archive, kernel, modules)
    for path, content in files.items():
        archive.link(path, content) if isinstance(content, pathlib.Path) else archive.text(path, content)
    made = pathlib.Path(folder) / "systemd.cpio"
    made.write_bytes(pathlib.Path(base).read_bytes() + archive.data())
    return made


def _add_module_index(archive, kernel, modules):
    """Adds the binary lists by which udev finds the module of a device. depmod makes them, of Debian's package kmod."""
    tools = CACHE / "kmod"
    if not (tools / "usr").exists():
        tools.mkdir(parents=True, exist_ok=True)
        command("apt-get", "download", "kmod", cwd=tools)
        command("dpkg-deb", "-x", str(next(tools.glob("*.deb"))), str(tools))
    with tempfile.TemporaryDirectory() as scratch:
        there = pathlib.Path(scratch, "lib/modules", kernel.version)
        for path in kernel.with_needed(modules)[0].values():
            place = there / str(path).removesuffix(".xz")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(kernel.module(path))
        for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
            (there / name).write_bytes((kernel.modules / name).read_bytes())
        # kmod is depmod by that name.
        subprocess.run(["depmod", "-b", scratch, kernel.version], executable=tools / "bin/kmod", check=True, timeout=60)
        for path in there.glob("modules.*.bin"):
            archive.text(f"usr/lib/modules/{kernel.version}/{path.name}", path.read_bytes())
