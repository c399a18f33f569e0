"""Packages of another Debian release, for guests and for QEMU. It has package lists of its own, unpacks packages into a
cache, and installs nothing."""

import fcntl
import pathlib
import re
import shutil
import tempfile

from tests.vm.kernels import CACHE, Kernel, Missing, command

SOURCES = """Types: deb
URIs: http://deb.debian.org/debian
Suites: {}
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


class Suite:
    """`name` is that of the release, such as trixie. A package is downloaded and unpacked only once. A row that needs a
    package waits while another row unpacks one."""

    def __init__(self, name, folder=CACHE):
        self._folder = pathlib.Path(folder) / name
        self._name = name

    def kernel(self):
        """Returns the release's newest Kernel."""
        found = sorted(self._folder.glob("linux-image-*/complete"))
        return Kernel(found[-1].parent if found else self._made(self._kernel_package))

    def program(self, package):
        """Returns the folder into which a package and all that it needs are unpacked, including its C library."""
        folder = self._folder / package
        return folder if (folder / "complete").exists() else self._made(lambda: (package, self._needed(package)))

    # ---- Private

    def _made(self, choose):
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._folder / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._update()
            name, packages = choose()
            folder = self._folder / name
            if (folder / "complete").exists():
                return folder
            with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
                self._apt("get", "download", *packages, cwd=scratch)
                for path in sorted(pathlib.Path(scratch).glob("*.deb")):
                    command("dpkg-deb", "-x", str(path), f"{scratch}/unpacked")
                pathlib.Path(scratch, "unpacked", "complete").touch()
                shutil.rmtree(folder, ignore_errors=True)
                shutil.move(f"{scratch}/unpacked", folder)
            return folder

    def _kernel_package(self):
        found = re.search(r"Depends: (linux-image-\S+)", self._apt("cache", "depends", "linux-image-amd64"))
        if not found:
            raise Missing(f"no kernel in {self._name}")
        return found[1], [found[1]]

    def _needed(self, package):
        text = self._apt("get", "-s", "--no-install-recommends", "install", package)
        return re.findall(r"^Inst (\S+)", text, re.M)

    def _update(self):
        for name in ("sources", "state/lists/partial", "cache/archives/partial"):
            (self._folder / "apt" / name).mkdir(parents=True, exist_ok=True)
        sources = self._folder / "apt/sources/suite.sources"
        if not sources.exists() or not list((self._folder / "apt/state/lists").glob("*Packages*")):
            sources.write_text(SOURCES.format(self._name))
            self._apt("get", "update")

    def _apt(self, tool, *words, **options):
        here = self._folder / "apt"
        places = {"Dir::Etc::SourceList": "/dev/null", "Dir::Etc::SourceParts": here / "sources",
                  "Dir::State": here / "state", "Dir::Cache": here / "cache", "Dir::State::status": "/dev/null",
                  "APT::Sandbox::User": "root"}
        return command(f"apt-{tool}", *(f"-o{name}={value}" for name, value in places.items()), *words, **options)
