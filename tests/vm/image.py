"""Builds the first file system of all guests: busybox, gradlane's programs, DPDK's drivers, the kernel's modules."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

from tests.vm.archive import Archive
from tests.vm.kernels import CACHE, Missing

INSIDE = pathlib.Path(__file__).parent / "inside"
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
PROGRAMS = ("tools/gradlaned", "tools/gradlane")
# Drivers of cards, of links in memory and of the kernel's interfaces, and the drivers that these need.
DRIVERS = ("bus_pci", "bus_vdev", "mempool_ring", "net_e1000", "net_virtio", "net_vmxnet3", "net_ring", "net_memif",
           "net_vhost", "net_af_packet", "net_af_xdp", "net_null", "net_tap")
MODULES = ("vfio-pci", "vfio_iommu_type1", "uio_pci_generic", "virtio_pci", "virtio_net", "e1000", "e1000e", "vmxnet3",
           "veth", "bridge", "sch_netem", "sch_tbf", "tun")


def build(kernel, folder, programs=PROGRAMS, drivers=DRIVERS, modules=MODULES):
    """Returns the path of the archive. Makes it from the build folder `folder` if there is none of the same content."""
    sources = _sources(folder, programs, drivers)
    digest = hashlib.sha256(repr((kernel.version, modules)).encode())
    for path, place in sources:
        status = path.stat()
        digest.update(repr((str(path), str(place), status.st_size, status.st_mtime_ns)).encode())
    for path in (*sorted(INSIDE.iterdir()), pathlib.Path(__file__)):
        digest.update(path.read_bytes())
    image = CACHE / f"image-{digest.hexdigest()[:16]}.cpio"
    if not image.exists():
        for old in sorted(CACHE.glob("image-*.cpio"), key=lambda path: path.stat().st_mtime)[:-5]:
            old.unlink(missing_ok=True)
        scratch = image.with_suffix(f".{os.getpid()}")  # another process may make the same one
        scratch.write_bytes(_archive(kernel, sources, modules).data())
        scratch.rename(image)
    return image


def _sources(folder, programs, drivers):
    """Returns files of this machine with their places in the guest. The place None stands for the same path."""
    folder = pathlib.Path(folder).resolve()
    for program in programs:
        if not (folder / program).exists():
            raise Missing(f"no {folder / program}: build it first")
    found = [(folder / program, pathlib.Path("/usr/bin", pathlib.Path(program).name)) for program in programs]
    plugins = []
    for name in drivers:
        plugins += sorted((LIBRARIES / "dpdk").glob(f"pmds-*/librte_{name}.so.*.*"))
        if not plugins or f"librte_{name}.so" not in plugins[-1].name:
            raise Missing(f"no librte_{name}.so; tools/setup.sh installs what is needed")
    needed = set()
    for path in [source for source, _ in found] + plugins:
        needed |= _libraries(path)
    # The guest has libraries from the build folder in the same folder as Debian's.
    return found + [(path, LIBRARIES / path.name if folder in path.parents else None)
                    for path in [*plugins, *sorted(needed)]]


def _libraries(program):
    output = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60, check=True).stdout
    return {pathlib.Path(path) for path in re.findall(r"(/\S+) \(0x", output)}


def _archive(kernel, sources, modules):
    archive = Archive()
    for name in ("bin", "sbin", "lib", "lib64"):  # as Debian has them
        archive.folder(f"usr/{name}")
        archive.link(name, f"usr/{name}")
    for name in ("proc", "sys", "dev", "run", "tmp", "etc", "var"):
        archive.folder(name)
    archive.link("var/run", "/run")
    archive.device("dev/console", 5, 1)
    archive.device("dev/null", 1, 3)
    _add_busybox(archive)
    for path in sorted(INSIDE.iterdir()):
        archive.text("init" if path.name == "init.sh" else f"etc/{path.name}", path.read_text(), 0o755)
    _add_modules(archive, kernel, modules)
    for path, place in sources:
        archive.file(path, place)
    return archive


def _add_busybox(archive):
    busybox = shutil.which("busybox")
    if not busybox:
        raise Missing("no busybox; apt-get install busybox-static")
    archive.file(busybox, "/usr/bin/busybox")
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, timeout=60, check=True).stdout.split()
    for name in names:
        archive.link(f"usr/bin/{name}", "busybox")


def _add_modules(archive, kernel, modules):
    """Adds modules and the list that modprobe reads: each module with all that it needs, the nearest first."""
    paths, needs = kernel.with_needed(modules)
    lines = []
    places = {name: str(path).removesuffix(".xz") for name, path in paths.items()}
    for name, path in paths.items():
        archive.text(f"usr/lib/modules/{kernel.version}/{places[name]}", kernel.module(path))
        order = []

        def collect(module):
            for need in needs[module]:
                if need in paths:
                    if need in order:
                        order.remove(need)
                    order.append(need)
                    collect(need)

        collect(name)
        lines.append(f"{places[name]}: {' '.join(places[need] for need in order)}".rstrip())
    archive.text(f"usr/lib/modules/{kernel.version}/modules.dep", "\n".join(lines) + "\n")
