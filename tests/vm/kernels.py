"""Kernels for guests: packages of the distribution, downloaded and unpacked into a cache, never installed."""

import lzma
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading

from tests.scripts.fixtures.paths import ROOT

CACHE = ROOT / "build-vm"  # not in git, like all build folders


class Missing(Exception):
    """Raised if something that the laboratory needs is not available here. The rows that need it are skipped."""


class Kernel:
    """An unpacked package of a kernel."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.image = next((self.folder / "boot").glob("vmlinuz-*"))
        self.version = self.image.name.removeprefix("vmlinuz-")
        self.modules = next(self.folder.glob(f"**/lib/modules/{self.version}"))
        self._paths = None

    def with_needed(self, names):
        """Returns these modules and all that they need as {name: path below `modules`}, and {name: names that it
        needs}.

        Raises Missing if the kernel lacks a module.
        """
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
        """Returns the bytes of a module, which is compressed in newer packages."""
        data = (self.modules / path).read_bytes()
        return lzma.decompress(data) if path.suffix == ".xz" else data


def debian(package="linux-image-amd64", folder=CACHE):
    """Returns the kernel that this package of the configured distribution stands for.

    If the package cannot be had now, returns a kernel that was unpacked before, or raises Missing if there is none.
    """
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


_running, _lock = set(), threading.Lock()  # commands that run; `_running` is None once end_commands() was called


def command(*words, timeout=300, **options):
    """Runs a command, and returns its output. Raises Missing if it fails."""
    said = " ".join(words)
    with _lock:
        if _running is None:
            raise Missing(f"{said}: interrupted")
        try:  # a session of its own: Ctrl-C must reach this process only, which ends the command
            process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *words], stdout=subprocess.PIPE, text=True,
                                       stderr=subprocess.PIPE, start_new_session=True, **options)
        except OSError as error:
            raise Missing(f"{said}: {error}") from None
        _running.add(process)
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException as error:
        _end(process)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Missing(f"{said}: not done after {timeout} s") from None
        raise
    finally:
        with _lock:
            (_running or set()).discard(process)
    if process.returncode != 0:
        raise Missing(f"{said}: {(errors.strip() or output.strip())[-300:]}")
    return output


def end_commands():
    """Ends the commands of all threads, with the processes that they have started. Prevents further commands."""
    global _running
    with _lock:
        for process in _running or ():
            _end(process)
        _running = None


def _end(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _plain(name):
    return name.replace("-", "_")
