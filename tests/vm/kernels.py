"""Kernels for guests: packages of the distribution, downloaded and unpacked into a cache, never installed."""

import lzma
import pathlib
import re
import shutil
import subprocess
import tempfile

from tests.scripts.fixtures.paths import ROOT

CACHE = ROOT / "build-vm"  # not in git, as all build folders


class Missing(Exception):
    """Something that the laboratory needs cannot be had here: its rows are skipped."""


class Kernel:
    """An unpacked package."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.image = next((self.folder / "boot").glob("vmlinuz-*"))
        self.version = self.image.name.removeprefix("vmlinuz-")
        self.modules = next(self.folder.glob(f"**/lib/modules/{self.version}"))
        self._paths = None

    def with_needed(self, names):
        """Of these modules and all that they need: {name: path below `modules`}, and {name: names that it needs}."""
        if self._paths is None:
            self._paths = {_plain(path.name.split(".")[0]): path for path in self.modules.glob("kernel/**/*.ko*")}
        builtin = {_plain(pathlib.Path(line).stem) for line in (self.modules / "modules.builtin").read_text().split()}
        needs, left = {}, [_plain(name) for name in names]
        while left:
            name = left.pop()
            if name in needs or name in builtin:
                continue
            if name not in self._paths:
                raise Missing(f"Linux {self.version} has no module {name}")
            found = re.search(rb"(?:^|\0)depends=([^\0]*)", self.module(self._paths[name]))
            needs[name] = [_plain(need) for need in found[1].decode().split(",") if need] if found else []
            left += needs[name]
        return {name: self._paths[name].relative_to(self.modules) for name in needs}, needs

    def module(self, path):
        """Its bytes; newer packages have them compressed."""
        data = (self.modules / path).read_bytes()
        return lzma.decompress(data) if path.suffix == ".xz" else data


def debian(package="linux-image-amd64", folder=CACHE):
    """The kernel that this package of the configured distribution stands for; or one that was unpacked before, if that
    cannot be had now."""
    try:
        found = re.search(r"Depends: (linux-image-\S+)", command("apt-cache", "depends", package))
        if not found:
            raise Missing(f"no package {package} here (apt-get update?)")
        wanted = folder / found[1]
        if not (wanted / "complete").exists():
            _download(found[1], wanted)
        return Kernel(wanted)
    except Missing:
        cached = sorted(path for path in folder.glob("linux-image-*") if (path / "complete").exists())
        if not cached:
            raise
        return Kernel(cached[-1])


def _download(package, folder):
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        command("apt-get", "download", package, cwd=scratch)
        command("dpkg-deb", "-x", str(next(pathlib.Path(scratch).glob("*.deb"))), f"{scratch}/unpacked")
        shutil.rmtree(folder, ignore_errors=True)
        pathlib.Path(scratch, "unpacked", "complete").touch()
        shutil.move(f"{scratch}/unpacked", folder)


def command(*words, **options):
    """What it wrote; Missing if it fails."""
    try:
        result = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{' '.join(words)}: {error}") from None
    if result.returncode != 0:
        raise Missing(f"{' '.join(words)}: {(result.stderr.strip() or result.stdout.strip())[-300:]}")
    return result.stdout


def _plain(name):
    return name.replace("-", "_")
