"""All-reduces of CUDA tensors that the GPU encodes and decodes, by codec fixed:B.

Only encoded bytes cross PCIe, and the daemon's lanes neither encode nor decode. Contributions and results have the same
bits as without this module, so ranks need not agree about it. It is used if GRADLANE_GPU_CODEC is 1, because it has not
run on a GPU yet. Tests run it on the CPU (tests/scripts/torch/far.py).
"""

from __future__ import annotations

import ctypes
import os
import re
import warnings
from typing import Any, Callable

import torch

from .. import _library
from .._library import Collective, Type
from . import gpu
from .gpu_codec import Encoded, GpuCodec, max_bytes
from .gpu_kernels import NoKernels
from .operations import Operation

LEAST = 1 << 18  # floats of the smallest tensor that is worth it
_FIXED = re.compile(r"fixed:([1-9][0-9]*)")
_LANES, _ENTRY = 16, 4  # most lanes of a daemon, and numbers of a gradlane_runs
_codecs: dict[tuple[torch.device, int], GpuCodec | None] = {}


def wanted() -> bool:
    """Returns whether GRADLANE_GPU_CODEC asks for this module."""
    return os.environ.get("GRADLANE_GPU_CODEC", "0") == "1"


def codec_for(name: str, device: torch.device) -> GpuCodec | None:
    """Returns the GPU's codec of this name, after it has passed a test. Returns None, after a warning, if it cannot be
    used, and None for names that are not fixed:B."""
    found = _FIXED.fullmatch(name)
    if found is None:
        return None
    key = device, int(found[1])
    if key not in _codecs:
        _codecs[key] = None
        try:
            codec = GpuCodec(key[1], device)
            _examine(codec)
            _codecs[key] = codec
        except (NoKernels, ValueError) as reason:
            warnings.warn(f"gradlane: {device} cannot encode, so the CPU does: {reason}", stacklevel=2)
    return _codecs[key]


class Workspace:
    """Memory for sums on one device, which run one after the other. `zeros` makes pinned tensors that are shared with
    the daemon, and raises OutOfMemory. `runs_space` is gradlane_runs_space()."""

    def __init__(self, device: torch.device, zeros: Callable[[int, torch.dtype], torch.Tensor],
                 runs_space: Callable[[int], int]) -> None:
        self.each = gpu.PART // 4  # floats of a piece
        self.scratch = zeros(self.each, torch.float32)  # the daemon's, for partial sums
        # A piece is encoded, or its result copied, while the daemon works on another one. So there are two of each.
        self.encoded = [zeros(max_bytes(self.each), torch.uint8) for _ in range(2)]
        self.runs = [zeros(runs_space(self.each), torch.uint8) for _ in range(2)]
        self.copied: list[Any] = [None, None]  # event after which `runs` may be overwritten
        self.faults = gpu.pinned(2, torch.int32).zero_()  # copies of GpuCodec.fault at these events
        self.arrived = torch.empty(self.runs[0].numel(), dtype=torch.uint8, device=device)
        self.streams = gpu.streams_of(device)


class GpuSum(Operation):
    """All-reduce of a float32 tensor on a GPU, contiguous, in place. `name` is that of `codec`. `world`: number of
    ranks."""

    collective = Collective.ALL_REDUCE
    type = Type.FLOAT32

    def __init__(self, tensor: torch.Tensor, workspace: Workspace, codec: GpuCodec, name: str, average: bool,
                 world: int) -> None:
        super().__init__()
        self.codec, self.average = name, average
        self.data = workspace.scratch.data_ptr()
        self.count = tensor.numel()
        self.piece_count = -(-self.count // workspace.each)
        self._flat = tensor.detach().view(-1)
        self._work, self._gpu_codec = workspace, codec
        self._divisor = world if average else 1
        self._encoded: list[Encoded | None] = [None] * self.piece_count
        self._ready: Any = None  # event after which the tensor's data is there

    @property
    def is_remote(self) -> bool:
        return True

    def extent(self, piece: int) -> tuple[int | None, int, int | None]:
        return self.data, min(self._work.each, self.count - piece * self._work.each), None

    def task(self, piece: int, user: int, flags: int) -> _library.Task:
        task = super().task(piece, user, flags)
        encoded, runs = self._work.encoded[piece % 2], self._work.runs[piece % 2]
        how = task.how.contents
        how.encoded, how.encoded_bytes = encoded.data_ptr(), encoded.numel()
        how.runs, how.runs_bytes = runs.data_ptr(), runs.numel()
        return task

    def depart(self) -> None:
        self._ready = gpu.now(self._flat.device)
        for stream in self._work.streams:
            gpu.keep(self._flat, stream)

    def prepare(self, piece: int) -> str | None:
        """Waits until the piece is on the host, and the buffer for its result is free. Begins to encode the next."""
        off, slot = self._work.streams.off, piece % 2
        coming = self._encode(piece)
        with gpu.running(off):
            coming.copy_to(self._work.encoded[slot])
            there = gpu.now(self._flat.device)
        self._encoded[piece] = None  # its memory is free after the copy
        if piece + 1 < self.piece_count:
            self._encode(piece + 1)
        gpu.wait(there)
        if self._work.copied[slot] is not None:
            gpu.wait(self._work.copied[slot])
            if int(self._work.faults[slot]) != 0:
                raise RuntimeError("gradlane: the GPU has refused bytes of an earlier result: its values are wrong")
        return None

    def landed(self, piece: int) -> None:
        """Starts to copy and to decode the result of the piece."""
        work, runs = self._work, self._work.runs[piece % 2]
        _, count, _ = self.extent(piece)
        out = self._flat[piece * work.each:piece * work.each + count]
        work.streams.onto.wait_event(self._ready)
        lanes = runs[:_LANES * _ENTRY * 8].view(torch.int64).view(_LANES, _ENTRY).tolist()
        with gpu.running(work.streams.onto):
            for at, nbytes, table, entries in lanes:
                table_bytes = entries * ctypes.sizeof(_library.Run)
                if entries == 0:
                    continue
                for first, last in (at, at + nbytes), (table, table + table_bytes):
                    work.arrived[first:last].copy_(runs[first:last], non_blocking=True)
                entries_there = work.arrived[table:table + table_bytes].view(torch.int64)
                self._gpu_codec.decode_runs(entries_there, work.arrived, out, self._divisor)
            work.faults[piece % 2:piece % 2 + 1].copy_(self._gpu_codec.fault, non_blocking=True)
            work.copied[piece % 2] = gpu.now(self._flat.device)

    def _encode(self, piece: int) -> Encoded:
        """Starts to encode a piece, unless it has been started."""
        found = self._encoded[piece]
        if found is None:
            _, count, _ = self.extent(piece)
            first = piece * self._work.each
            off = self._work.streams.off
            off.wait_event(self._ready)
            with gpu.running(off):
                found = self._gpu_codec.encode(self._flat[first:first + count])
            self._encoded[piece] = found
        return found


def _examine(codec: GpuCodec) -> None:
    """Raises ValueError unless the codec rounds as the CPU does."""
    step = 2.0 ** (1 - codec.bits)
    given = torch.randn(8192, generator=torch.Generator().manual_seed(1)) * 100 * step
    given[:8] = torch.tensor([0.0, -0.0, step / 2, 1.5 * step, -step / 2, float("inf"), float("nan"), 2.0 ** 31])
    given[4096:4160] *= 2.0 ** 24
    expected = torch.where(given.abs() < 2.0 ** (24 - codec.bits), torch.round(given / step) * step + 0.0, given)
    source = given.to(codec.device)
    encoded, decoded = codec.encode(source), torch.empty_like(source)
    codec.decode(encoded.space[:encoded.nbytes()], decoded)
    codec.check()
    if not torch.equal(decoded.cpu().view(torch.int32), expected.view(torch.int32)):
        raise ValueError(f"fixed:{codec.bits} gives other numbers there than on the CPU; please report this")
