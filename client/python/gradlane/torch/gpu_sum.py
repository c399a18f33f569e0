"""All-reduces of CUDA tensors that the GPU encodes and decodes, by codec fixed:B.

Only encoded bytes cross PCIe. The daemon's lanes decode blocks in the cache, where they add them, and do not read the
tensor's floats from memory. Contributions and results have the same bits as without this module, so ranks need not
agree about it. It is off unless GRADLANE_GPU_CODEC is 1, because it has not run on a GPU yet. Tests run it on the CPU
(tests/scripts/torch/far.py).
"""

from __future__ import annotations

import ctypes
import os
import re
import warnings
from typing import Any, Callable

import torch

from .. import _library, errors
from .._library import Collective, Type
from . import gpu
from .gpu_codec import BLOCK, EncodeBuffer, Encoded, GpuCodec, max_bytes, runs_of
from .operations import Operation

LEAST = 1 << 18  # least floats of a tensor that the GPU encodes
_FIXED = re.compile(r"fixed:([1-9][0-9]*)")
_LANES, _ENTRY = 16, 4  # most lanes of a daemon, and numbers of a gradlane_lane_runs
_codecs: dict[tuple[torch.device, int], GpuCodec | None] = {}


def is_wanted() -> bool:
    """Returns whether GRADLANE_GPU_CODEC asks for this module. Raises BadArgument for another value than 0 and 1."""
    word = os.environ.get("GRADLANE_GPU_CODEC") or "0"
    if word not in ("0", "1"):
        raise errors.bad_argument(f"gradlane: GRADLANE_GPU_CODEC is {word!r}; allowed: 0 and 1")
    return word == "1"


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
            with torch.inference_mode(False):
                codec = GpuCodec(key[1], device)
                _examine(codec)
            _codecs[key] = codec
        except (ValueError, OSError, RuntimeError) as reason:
            warn(device, reason)
    return _codecs[key]


def warn(device: torch.device, reason: Exception) -> None:
    """Warns that the daemon encodes and decodes sums of this device."""
    warnings.warn(f"gradlane: {device} cannot encode, so the daemon does: {reason}", stacklevel=3)


class Workspace:
    """Memory for sums on one device, which run one after the other. `zeros` makes pinned tensors that are shared with
    the daemon. `runs_space` is gradlane_runs_space(). Raises errors.OutOfMemory, and what PyTorch raises if the GPU has
    no memory."""

    def __init__(self, device: torch.device, zeros: Callable[[int, torch.dtype], torch.Tensor],
                 runs_space: Callable[[int], int]) -> None:
        self.streams = gpu.streams_of(device)
        self.piece_floats = gpu.PART // 4
        self.scratch = zeros(self.piece_floats, torch.float32)  # in which the daemon keeps partial sums
        # One piece is encoded, and the result of another one copied, while the daemon works. So there are two of each.
        self.encoded = [zeros(max_bytes(self.piece_floats), torch.uint8) for _ in range(2)]
        self.runs = [zeros(runs_space(self.piece_floats), torch.uint8) for _ in range(2)]
        self.sent: Any = None  # event of the last copy to `encoded`
        self.copied: list[Any] = [None, None]  # events after which `runs` may be overwritten
        self.faults = gpu.make_pinned(2, torch.int32).zero_()  # copies of GpuCodec.fault at these events
        with gpu.use_stream(self.streams.off):
            self.buffers = [EncodeBuffer(self.piece_floats, device) for _ in range(2)]
        with gpu.use_stream(self.streams.onto):
            self.device_runs = torch.empty(self.runs[0].numel(), dtype=torch.uint8, device=device)

    def settle(self) -> None:
        """Waits until no copy uses the memory any more."""
        for event in (self.sent, *self.copied):
            if event is not None:
                gpu.wait(event)


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
        self.piece_count = -(-self.count // workspace.piece_floats)
        self._flat = tensor.detach().view(-1)
        self._work, self._gpu_codec = workspace, codec
        self._divisor = world if average else 1
        self._encoded: list[Encoded | None] = [None] * self.piece_count
        self._on_host: list[Any] = [None] * self.piece_count  # events after which encoded pieces are on the host
        self._ready: Any = None  # event after which the tensor has its data

    @property
    def is_remote(self) -> bool:
        return True

    def extent(self, piece: int) -> tuple[int | None, int, int | None]:
        """Returns the address of the daemon's memory, and the number of floats."""
        first = piece * self._work.piece_floats
        return self.data, min(self._work.piece_floats, self.count - first), None

    def task(self, piece: int, user: int, flags: int) -> _library.Task:
        """Returns the library's task, with buffers for the encoded contribution and for the result."""
        task = super().task(piece, user, flags)
        encoded, runs = self._work.encoded[piece % 2], self._work.runs[piece % 2]
        how = task.how.contents
        how.encoded, how.encoded_bytes = encoded.data_ptr(), encoded.numel()
        how.runs, how.runs_bytes = runs.data_ptr(), runs.numel()
        return task

    def depart(self) -> None:
        """Records the event after which the tensor has its data."""
        self._ready = gpu.record_event(self._flat.device)
        for stream in self._work.streams:
            gpu.keep_until_done(self._flat, stream)

    def prepare(self, piece: int) -> str | None:
        """Waits until the piece is on the host, the next one is encoded, and the buffer for the piece's result is free.
        Starts to copy the next piece."""
        self._encode(piece)
        self._copy(piece)
        following = piece + 1 < self.piece_count
        if following:
            self._encode(piece + 1)
        gpu.wait(self._on_host[piece])
        if following:  # piece - 1 has ended, so the daemon no longer reads the buffer that piece + 1 shares with it
            self._copy(piece + 1)
        if self._work.copied[piece % 2] is not None:
            gpu.wait(self._work.copied[piece % 2])
        return None

    def landed(self, piece: int) -> None:
        """Starts to copy and to decode the result of the piece."""
        work, slot = self._work, piece % 2
        runs, out = work.runs[slot], self._piece(piece)
        lanes = runs[:_LANES * _ENTRY * 8].view(torch.int64).view(_LANES, _ENTRY).tolist()
        with gpu.use_stream(work.streams.onto):
            try:
                for at, nbytes, table, entries in lanes:
                    if entries == 0:
                        continue
                    table_nbytes = entries * ctypes.sizeof(_library.Run)
                    if min(at, nbytes, table, entries) < 0 or max(at + nbytes, table + table_nbytes) > runs.numel():
                        raise RuntimeError("gradlane: the daemon's table of runs is malformed; please report this")
                    for first, last in (at, at + nbytes), (table, table + table_nbytes):
                        work.device_runs[first:last].copy_(runs[first:last], non_blocking=True)
                    entries_there = work.device_runs[table:table + table_nbytes].view(torch.int64)
                    self._gpu_codec.decode_runs(entries_there, work.device_runs, out, self._divisor)
                work.faults[slot:slot + 1].copy_(self._gpu_codec.fault, non_blocking=True)
            finally:
                work.copied[slot] = gpu.record_event(self._flat.device)

    def finish(self) -> None:
        """Raises RuntimeError if the GPU could not decode a result. Then later sums are
        encoded and decoded by the daemon."""
        self._work.settle()
        if self._work.faults.any():
            self._work.faults.zero_()
            self._gpu_codec.fault.zero_()
            _codecs[self._gpu_codec.device, self._gpu_codec.bits] = None
            raise RuntimeError(f"gradlane: {self._gpu_codec.device} could not decode a sum by {self.codec}: its values "
                               "are wrong; unset GRADLANE_GPU_CODEC, and report this")

    def _piece(self, piece: int) -> torch.Tensor:
        first = piece * self._work.piece_floats
        return self._flat[first:first + self._work.piece_floats]

    def _encode(self, piece: int) -> None:
        """Starts to encode a piece, unless it has been started."""
        if self._encoded[piece] is None:
            off = self._work.streams.off
            off.wait_event(self._ready)
            with gpu.use_stream(off):
                buffer = self._work.buffers[piece % 2]
                self._encoded[piece] = self._gpu_codec.encode(self._piece(piece), buffer=buffer)

    def _copy(self, piece: int) -> None:
        """Starts to copy an encoded piece to the host, unless that has been started."""
        encoded = self._encoded[piece]
        if self._on_host[piece] is None and encoded is not None:
            with gpu.use_stream(self._work.streams.off):
                encoded.copy_to(self._work.encoded[piece % 2])
                self._on_host[piece] = self._work.sent = gpu.record_event(self._flat.device)


def _examine(codec: GpuCodec) -> None:
    """Raises ValueError unless floats that the codec encodes, decodes and divides have the CPU's bits."""
    step = 2.0 ** (1 - codec.bits)
    how: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    given = torch.randn(8192, generator=torch.Generator("cpu").manual_seed(1), **how) * 100 * step
    given[:8] = torch.tensor([0.0, -0.0, step / 2, 1.5 * step, -step / 2, float("inf"), float("nan"), 2.0 ** 31], **how)
    given[4096:4160] *= 2.0 ** 24
    expected = torch.where(given.abs() < 2.0 ** (24 - codec.bits), torch.round(given / step) * step + 0.0, given)
    source = given.to(codec.device)
    encoded, decoded, thirds = codec.encode(source), torch.empty_like(source), torch.empty_like(source)
    data = encoded.data[:encoded.nbytes()]
    codec.decode(data, decoded)
    begins = data[:24].view(torch.int64).tolist()  # where the two blocks begin, and where the second one ends
    runs = runs_of([(0, begins[0], BLOCK, begins[1] - begins[0]), (BLOCK, begins[1], BLOCK, begins[2] - begins[1])])
    codec.decode_runs(runs.to(codec.device), data, thirds, 3)
    codec.check()
    for found, right in (decoded, expected), (thirds, expected / 3):
        if not torch.equal(found.cpu().view(torch.int32), right.view(torch.int32)):
            raise ValueError(f"fixed:{codec.bits} gives other numbers there than on the CPU; please report this")
