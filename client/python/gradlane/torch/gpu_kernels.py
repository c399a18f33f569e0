"""Compiles the kernels of kernels/ for an NVIDIA GPU, loads them and starts them, with ctypes.

NVRTC compiles them at run time, so that neither a build nor a machine needs nvcc. PyTorch's wheels
bring NVRTC, and the driver brings libcuda. Compiled kernels are kept where PyTorch keeps its own builds, as
extension.py says.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import hashlib
import importlib.util
import os
import pathlib
import tempfile
from typing import Any, Iterator

import torch

_SOURCES = pathlib.Path(__file__).resolve().parent / "kernels"
# Arithmetic is that of IEEE 754: no fused operations; NVRTC rounds, and keeps denormals, by default.
_OPTIONS = ("--std=c++17", "--fmad=false")
THREADS = 256  # kThreads of the kernels
_LEAST_ARCHITECTURE = 70  # has __nanosleep()
_SUCCESS = 0  # CUDA_SUCCESS, NVRTC_SUCCESS


class NoKernels(RuntimeError):
    """The kernels cannot be compiled, loaded or started; the text says why."""


class Kernels:
    """Kernels of one source, loaded for one device."""

    def __init__(self, source: str, device: torch.device) -> None:
        self._driver, self._device = _driver(), device
        major, minor = torch.cuda.get_device_capability(device)
        image = compiled(source, 10 * major + minor)
        # PyTorch uses the primary context, too.
        ordinal, self._context, self._module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(ordinal), ctypes.c_int(device.index))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), ordinal)
        try:
            self._in_context("cuModuleLoadData", ctypes.byref(self._module), image)
        except NoKernels:
            self._driver.cuDevicePrimaryCtxRelease_v2(ordinal)
            raise
        self._functions: dict[str, ctypes.c_void_p] = {}

    def launch(self, name: str, blocks: int, *arguments: Any) -> None:
        """Starts a kernel with `blocks` thread blocks on the current stream of the device. arguments: ctypes values."""
        function = self._functions.get(name)
        if function is None:
            function = ctypes.c_void_p()
            self._in_context("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
            self._functions[name] = function
        places = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        stream = ctypes.c_void_p(torch.cuda.current_stream(self._device).cuda_stream)
        one = ctypes.c_uint(1)
        self._in_context("cuLaunchKernel", function, ctypes.c_uint(blocks), one, one, ctypes.c_uint(THREADS), one, one,
                         ctypes.c_uint(0), stream, places, None)

    def _in_context(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver while the device's context is current in this thread."""
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            self._call(name, *arguments)
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status != _SUCCESS:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(text))
            raise NoKernels(f"{self._device}: {name}() failed with status {status}: {(text.value or b'?').decode()}")


@functools.lru_cache(None)
def kernels_of(source: str, device: torch.device) -> Kernels:
    """Returns the kernels of a source for a device, which must have an index. Raises NoKernels."""
    return Kernels(source, device)


def compiled(source: str, architecture: int) -> bytes:
    """Returns the compiled kernels of a file of kernels/, for compute capability `architecture` / 10. An earlier
    process may have compiled them. Raises NoKernels."""
    if architecture < _LEAST_ARCHITECTURE:
        raise NoKernels(f"the GPU has compute capability {architecture / 10}, and the kernels need "
                        f"{_LEAST_ARCHITECTURE / 10} or later")
    library = _nvrtc()
    known = _architectures(library)
    if architecture in known:
        target = f"sm_{architecture}"
    else:  # the driver compiles PTX for GPUs that are newer than this NVRTC
        older = [each for each in known if each < architecture]
        if not older:
            raise NoKernels(f"NVRTC compiles for compute capabilities {known[0] / 10} to {known[-1] / 10}, and the GPU "
                            f"has {architecture / 10}: install a PyTorch for this GPU")
        target = f"compute_{older[-1]}"
    place = _folder() / f"{source}-{target}-{_hash(library)}"
    with contextlib.suppress(OSError):
        return place.read_bytes()
    image = _compile(library, source, target)
    with contextlib.suppress(OSError):  # without a folder for them, each process compiles
        _write(place, image)
    return image


# ---- Private


def _write(path: pathlib.Path, data: bytes) -> None:
    """Writes a file at once, for all users. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


def _driver() -> Any:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as reason:
        raise NoKernels(f"cannot load NVIDIA's driver library: {reason}. Install the driver of the GPU") from None
    status = driver.cuInit(0)
    if status != _SUCCESS:
        raise NoKernels(f"libcuda.so.1: cuInit() failed with status {status}: no GPU is usable; nvidia-smi may say why")
    return driver


def _paths() -> Iterator[str]:
    """Yields paths of NVRTC, that of PyTorch's wheels first."""
    version = (torch.version.cuda or "").split(".")[0]
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations if wheels is not None else None) or ():
        yield from sorted(glob.glob(os.path.join(folder, "*", "lib", f"libnvrtc.so.{version or '[0-9]*'}")))
    yield f"libnvrtc.so.{version}" if version else "libnvrtc.so"


@functools.lru_cache(None)
def _nvrtc() -> Any:
    tried = []
    for path in _paths():
        try:
            # NVRTC opens this library by its name alone, and NVRTC 13.0 does not look into its own folder. The linker
            # finds it if it is loaded already.
            folder = os.path.dirname(path)
            for builtins in glob.glob(os.path.join(folder, "libnvrtc-builtins.so.*")) if folder else ():
                ctypes.CDLL(builtins)
            return ctypes.CDLL(path)
        except OSError as reason:
            tried.append(str(reason))
    raise NoKernels("cannot load NVRTC, which compiles kernels for the GPU: " + "; ".join(tried) +
                    ". Install PyTorch's CUDA build by pip, which brings it, or NVRTC of the same CUDA version")


def _check(library: Any, status: int, name: str) -> None:
    if status != _SUCCESS:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise NoKernels(f"NVRTC: {name}() failed: {library.nvrtcGetErrorString(status).decode()}")


def _architectures(library: Any) -> list[int]:
    count = ctypes.c_int()
    _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
    known = (ctypes.c_int * count.value)()
    _check(library, library.nvrtcGetSupportedArchs(known), "nvrtcGetSupportedArchs")
    return sorted(known)


def _text(library: Any, program: ctypes.c_void_p, what: str) -> bytes:
    """Returns the log, the PTX or the cubin of a program."""
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"nvrtcGet{what}Size")
    text = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, text), f"nvrtcGet{what}")
    return text.raw


def _compile(library: Any, source: str, target: str) -> bytes:
    program, options = ctypes.c_void_p(), [f"--gpu-architecture={target}", *_OPTIONS]
    headers = sorted(_SOURCES.glob("*.h"))
    texts = (ctypes.c_char_p * len(headers))(*(header.read_bytes() for header in headers))
    names = (ctypes.c_char_p * len(headers))(*(header.name.encode() for header in headers))
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), (_SOURCES / source).read_bytes(), source.encode(),
                                               len(headers), texts, names), "nvrtcCreateProgram")
    try:
        status = library.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*(option.encode() for option in options)))
        if status != _SUCCESS:
            log = _text(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise NoKernels(f"NVRTC cannot compile {_SOURCES / source} for {target}:\n{log}")
        return _text(library, program, "CUBIN" if target.startswith("sm_") else "PTX")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _hash(library: Any) -> str:
    """Returns a hash of the sources, of the options and of NVRTC's version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    digest = hashlib.sha256(repr((_OPTIONS, major.value, minor.value)).encode())
    for path in sorted(_SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _folder() -> pathlib.Path:
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(named or os.path.join(cache, "torch_extensions")) / "gradlane-kernels"
