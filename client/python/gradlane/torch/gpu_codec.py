"""Encodes float32 tensors on NVIDIA GPUs, and decodes them there, so that only encoded bytes cross PCIe.

The bytes are those of gradlane_encode() on the CPU (docs/codec-format.md, "Encoded tensors"). This module has not run
on a GPU yet: lab/bench_gpu_codec.py checks and measures it on one. Tests run its kernels on the CPU
(tests/client/gpu/).
"""

from __future__ import annotations

import ctypes
from typing import Any, Sequence

import torch

from . import gpu
from .gpu_kernels import Kernels, kernels_of

BLOCK = 4096  # floats of a block
_GROUP = 32
_SOURCE = "fixed.cu"
_LEAST, _MOST = 1, 30


class EncodeBuffer:
    """Memory for one encoded tensor of at most `numel` floats. The next encode() into it overwrites the Encoded before.
    device: a CUDA device with an index."""

    def __init__(self, numel: int, device: torch.device) -> None:
        self.data = torch.empty(max_bytes(numel), dtype=torch.uint8, device=device)
        self.states = torch.empty(1 + -(-numel // BLOCK), dtype=torch.int64, device=device)
        self.length = gpu.make_pinned(1, torch.int64)


class Encoded:
    """A tensor that is encoded on its GPU, in the first nbytes() bytes of `data`."""

    def __init__(self, buffer: EncodeBuffer, table_nbytes: int) -> None:
        self.data = buffer.data
        # The table's last number is the length. Its copy to the host starts here; nbytes() waits for it.
        self._length = buffer.length
        self._length.copy_(self.data[table_nbytes - 8:table_nbytes].view(torch.int64), non_blocking=True)
        self._known = gpu.record_event(self.data.device)

    def nbytes(self) -> int:
        """Waits until the tensor is encoded, and returns its bytes."""
        gpu.wait(self._known)
        return int(self._length)

    def copy_to(self, host: torch.Tensor) -> int:
        """Waits until the tensor is encoded, then starts to copy its bytes to pinned memory, on the current stream.
        Returns their number. host: uint8, at least nbytes() of them."""
        nbytes = self.nbytes()
        host[:nbytes].copy_(self.data[:nbytes], non_blocking=True)
        return nbytes


class GpuCodec:
    """Codec fixed:bits on one GPU. Calls run on the device's current stream, and do not wait for it.

    bits: 1 to 30. device: a CUDA device with an index. Raises ValueError, and NoKernels if the kernels cannot be
    compiled or loaded.
    """

    def __init__(self, bits: int, device: torch.device) -> None:
        if not _LEAST <= bits <= _MOST:
            raise ValueError(f"fixed:{bits}: the number must be {_LEAST} to {_MOST}")
        self.bits, self.device = bits, device
        self._kernels: Kernels = kernels_of(_SOURCE, device)
        self.fault = torch.zeros(1, dtype=torch.int32, device=device)  # 1 after malformed bytes; see check()

    def encode(self, tensor: torch.Tensor, residual: torch.Tensor | None = None,
               buffer: EncodeBuffer | None = None) -> Encoded:
        """Encodes a contribution. tensor, residual: float32, contiguous, on this device, at least one element. buffer:
        where to; None: new memory.

        With a residual, encodes tensor + residual, and leaves there what rounding has lost.
        """
        self._check(tensor, "tensor")
        if residual is not None:
            self._check(residual, "residual")
            if residual.numel() != tensor.numel():
                raise ValueError(f"residual has {residual.numel()} elements, and tensor {tensor.numel()}")
        numel = tensor.numel()
        blocks = -(-numel // BLOCK)
        buffer = buffer or EncodeBuffer(numel, self.device)
        if buffer.data.numel() < max_bytes(numel) or buffer.data.device != self.device:
            raise ValueError(f"buffer has {buffer.data.numel()} bytes on {buffer.data.device}: {numel} floats need "
                             f"{max_bytes(numel)} on {self.device}")
        buffer.states.zero_()
        self._launch("gradlane_fixed_encode", blocks, tensor, residual, ctypes.c_uint64(numel),
                     ctypes.c_uint32(self.bits), buffer.data, buffer.states)
        return Encoded(buffer, table_bytes(numel))

    def decode(self, encoded: torch.Tensor, out: torch.Tensor) -> None:
        """Decodes an encoded tensor. encoded: uint8 on this device, whose address is a multiple of 8, in memory that
        ends at a multiple of 4, as PyTorch's does. out: float32, contiguous, as many elements as were encoded. check()
        says whether the bytes were well-formed."""
        self._check(out, "out")
        self._check(encoded, "encoded", torch.uint8, 8)
        self._launch("gradlane_fixed_decode", -(-out.numel() // BLOCK), encoded, ctypes.c_uint64(encoded.numel()),
                     ctypes.c_uint64(out.numel()), ctypes.c_uint32(self.bits), out, self.fault)

    def decode_runs(self, runs: torch.Tensor, arena: torch.Tensor, out: torch.Tensor, divisor: int = 1) -> None:
        """Decodes runs of an arena to `out`, and divides the floats by `divisor`. runs: runs_of() of them, on this
        device. arena: uint8 on this device, whose address is a multiple of 4. check() says whether all runs were
        well-formed."""
        self._check(out, "out")
        self._check(runs, "runs", torch.int64, 8)
        self._check(arena, "arena", torch.uint8, 4)
        self._launch("gradlane_fixed_decode_runs", runs.numel() // 3, runs, arena, ctypes.c_uint64(arena.numel()),
                     ctypes.c_uint64(out.numel()), ctypes.c_uint32(self.bits), ctypes.c_uint32(divisor), out,
                     self.fault)

    def check(self) -> None:
        """Waits for all calls of decode() and decode_runs() since the last check. Raises ValueError if bytes of one of
        them were malformed; the content of its `out` is then unspecified."""
        if int(self.fault) != 0:
            self.fault.zero_()
            raise ValueError(f"fixed:{self.bits} on {self.device}: encoded bytes are malformed")

    def _check(self, tensor: torch.Tensor, name: str, dtype: torch.dtype = torch.float32, alignment: int = 4) -> None:
        if tensor.dtype != dtype or tensor.device != self.device or not tensor.is_contiguous() or tensor.numel() == 0:
            raise ValueError(f"{name} has {tensor.numel()} elements of {tensor.dtype} on {tensor.device}: it must have "
                             f"at least one of {dtype} on {self.device}, contiguous")
        if tensor.data_ptr() % alignment != 0:
            raise ValueError(f"{name} is at address {tensor.data_ptr():#x}: it must be a multiple of {alignment}")

    def _launch(self, name: str, blocks: int, *arguments: Any) -> None:
        self._kernels.launch(name, blocks, *(
            ctypes.c_void_p(None if each is None else each.data_ptr())
            if each is None or isinstance(each, torch.Tensor) else each for each in arguments))


def table_bytes(numel: int) -> int:
    """Returns the bytes of the table of an encoded tensor."""
    return 8 * (-(-numel // BLOCK) + 1)


def max_bytes(numel: int) -> int:
    """Returns the most bytes of an encoded tensor."""
    def of_block(floats: int) -> int:
        groups = -(-floats // _GROUP)
        return -(-groups // 2) + 5 * groups + 4 * floats
    return table_bytes(numel) + numel // BLOCK * of_block(BLOCK) + of_block(numel % BLOCK)


def runs_of(runs: Sequence[tuple[int, int, int, int]]) -> torch.Tensor:
    """Returns runs as decode_runs() takes them, on the CPU. A run is (first float of the tensor, byte of the arena
    where it begins, floats, bytes)."""
    return torch.tensor([(first, at, floats | nbytes << 32) for first, at, floats, nbytes in runs], dtype=torch.int64)
