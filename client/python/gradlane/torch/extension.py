"""Builds and loads gradlane's C++ extension (native/), with the c10d::Backend that PyTorch calls.

An extension fits one version of PyTorch and of Python, as PyTorch's stable ABI lacks the classes of torch.distributed.
A wheel has it for those that it was built with (packaging/wheel.sh --torch), in native/built/. For all other versions,
the installed compiler builds it once, on the machine that uses it. It is kept where PyTorch keeps its own builds: in
TORCH_EXTENSIONS_DIR, or in torch_extensions in XDG_CACHE_HOME or ~/.cache. Unlike torch.utils.cpp_extension, this
module needs neither ninja nor setuptools.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from typing import Any, Iterator

import torch

_LINES = 20  # lines of the compiler's output in the error text
_NAME = "gradlane_native"
_SOURCES = pathlib.Path(__file__).resolve().parent / "native"


class CannotBuild(RuntimeError):
    """The extension cannot be built or loaded; the text says why."""


def load() -> Any:
    """Returns the module. Raises CannotBuild, whose text ends with what to install. Later calls repeat the first
    outcome."""
    outcome = _outcome()
    if isinstance(outcome, CannotBuild):
        raise outcome
    return outcome


def folder() -> pathlib.Path:
    """Returns the folder of the built extension. Each version of PyTorch, Python, C++ ABI and gradlane has its own."""
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(named or os.path.join(cache, "torch_extensions")) / _folder_name(torch.__version__)


def prebuilt_path() -> pathlib.Path:
    """Returns the path of a wheel's extension. One file fits all builds of a PyTorch release: 2.13.0+cpu, 2.13.0+cu130.
    """
    return _SOURCES / "built" / _folder_name(torch.__version__.split("+")[0]) / f"{_NAME}.so"


def build(place: pathlib.Path) -> pathlib.Path:
    """Builds the library if necessary and returns its path. If several processes call it at once, one builds and the
    others wait."""
    library = place / f"{_NAME}.so"
    if library.exists():
        return library
    began = time.time()
    place.mkdir(parents=True, exist_ok=True)
    failed = place / "failed"
    with _locked(place / "lock"):
        if library.exists():
            return library
        if failed.exists() and failed.stat().st_mtime >= began:  # another process has failed while this one waited
            raise CannotBuild(failed.read_text())
        try:
            _compile(library)
        except CannotBuild as reason:
            failed.write_text(str(reason))
            raise
    return library


# ---- Private


@functools.lru_cache(None)
def _outcome() -> Any:
    try:
        return _load()
    except (CannotBuild, OSError, ImportError, ValueError) as reason:
        gap = "\n" if "\n" in str(reason) else ". "
        return CannotBuild(
            f"gradlane: no backend for PyTorch {torch.__version__}: {reason}{gap}"
            'init_process_group("gradlane") needs a C++ extension, which is compiled once, in about 30 s, in '
            f"{folder()}. Without it, gradlane.open() works, and the hooks for DDP and FSDP2 over another backend. "
            "To compile it: apt install g++ python3-dev, and for Debian's own PyTorch libtorch-dev pybind11-dev")


def _load() -> Any:
    there = prebuilt_path()
    if there.exists():
        try:
            return _module(there)
        except ImportError as reason:  # the system's C++ library may be older, for example
            _say(f"cannot load the compiled extension of the package ({reason}); compiling it on this machine")
    return _module(build(folder()))


def _say(text: str) -> None:
    print(f"gradlane: {text}", file=sys.stderr, flush=True)


def _folder_name(version: str) -> str:
    abi = "new" if torch.compiled_with_cxx11_abi() else "old"
    version = re.sub("[^0-9A-Za-z.+]", "_", version)
    return f"gradlane-torch{version}-{sys.implementation.cache_tag}-{abi}-{_hash()}"


def _hash() -> str:
    """Returns a hash of the sources and of the compiler's flags."""
    digest = hashlib.sha256(" ".join(_flags()).encode())
    for source in sorted(_SOURCES.glob("*.[ch]*")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the kernel unlocks it if the process dies
        yield


def _flags() -> list[str]:
    return ["-shared", "-fPIC", "-std=c++20", "-O2", "-fvisibility=hidden", "-s"]


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        return named
    for name in ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found is not None:
            return [found]
    raise CannotBuild("there is no C++ compiler (c++, g++, clang++)")


def _compile(library: pathlib.Path) -> None:
    compiler = _compiler()
    there = pathlib.Path(torch.__file__).resolve().parent
    own = there / "include"
    if not (own / "torch" / "csrc").exists():
        raise CannotBuild(f"there are no headers of PyTorch in {own}")
    headers = [own, own / "torch" / "csrc" / "api" / "include", sysconfig.get_paths()["include"]]
    _say(f"compiling the backend's C++ extension for PyTorch {torch.__version__} (once, about 30 s): {library}")
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        made = os.path.join(scratch, library.name)
        command = [*compiler, *_flags(), f"-D_GLIBCXX_USE_CXX11_ABI={torch.compiled_with_cxx11_abi():d}",
                   f"-fmacro-prefix-map={there}/="]
        for header in headers:
            command += ["-isystem", str(header)]
        command += [str(_SOURCES / "extension.cc"), "-o", made, f"-L{there / 'lib'}", "-ltorch_python", "-ltorch",
                    "-ltorch_cpu", "-lc10"]
        try:
            ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", check=False)
        except OSError as reason:
            raise CannotBuild(f"{compiler[0]}: {reason.strerror}") from None
        if ended.returncode != 0:
            lines = ended.stdout.splitlines()[:_LINES] or [f"exit status {ended.returncode}"]
            raise CannotBuild(f"{compiler[0]}: " + "\n    ".join(lines))
        os.replace(made, library)


def _module(library: pathlib.Path) -> Any:
    spec = importlib.util.spec_from_file_location(_NAME, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
