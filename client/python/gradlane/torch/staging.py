"""Tensors in the form that the daemon takes: types, shared memory, copies.

The daemon reads and writes shared memory only. A tensor of Engine.empty() lies in it, and is not copied. The library
copies a contiguous CPU tensor, of a type that the daemon can add, part by part. All other tensors are copied as a whole
first (Operand): non-contiguous ones, types that travel as another type, and CUDA tensors (gpu.py).
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from .. import _buffers, errors
from .._library import Type
from . import gpu

_TYPES = {
    torch.float32: Type.FLOAT32,
    torch.float64: Type.FLOAT64,
    torch.float16: Type.FLOAT16,
    torch.bfloat16: Type.BFLOAT16,
    torch.int32: Type.INT32,
    torch.int64: Type.INT64,
}
_WIDENED = (torch.uint8, torch.int8, torch.int16, torch.bool)  # summed as int32
_COMPLEX = (torch.complex64, torch.complex128)  # summed as pairs of real numbers


class Memory:
    """Shared memory of a connection, as tensors. Callers hold the engine's lock, except for address()."""

    def __init__(self, connection: _buffers.Connection) -> None:
        self._connection = connection
        # Blocks that tensors lie in, by address.
        self._blocks: weakref.WeakValueDictionary[int, _buffers.Block] = weakref.WeakValueDictionary()
        self.pinned = gpu.Pool(self._pinned)

    def tensor(self, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor of `numel` zeros. Its memory stays valid after the engine is closed. Raises OutOfMemory."""
        # NumPy has no bfloat16, so PyTorch sets the type of an array of bytes.
        block = self._allocate(numel * torch.empty(0, dtype=dtype).element_size())
        tensor = torch.from_numpy(_buffers.array_over(block, (block.size,), "uint8")).view(dtype)
        if numel > 0:
            gpu.pin(block)
            self._blocks[block.address] = block
        return tensor

    def _allocate(self, size: int) -> _buffers.Block:
        try:
            return self._connection.allocate(size)
        except errors.OutOfMemory:
            if not self.pinned.clear():
                raise
        return self._connection.allocate(size)

    def _pinned(self, size: int) -> _buffers.Block:
        block = self._connection.allocate(size)
        gpu.pin(block)
        self._blocks[block.address] = block
        return block

    def address(self, tensor: torch.Tensor) -> int | None:
        """Returns the address of the tensor's data, or None if that is not in this memory."""
        storage = tensor.untyped_storage()
        block = self._blocks.get(storage.data_ptr())
        return tensor.data_ptr() if block is not None else None


def check(tensor: object, name: str) -> None:
    """Raises BadArgument for a tensor that no operation takes."""
    if not isinstance(tensor, torch.Tensor):
        raise errors.bad_argument(f"gradlane: {name} of {type(tensor).__name__}: it must be a tensor")
    if tensor.layout != torch.strided:
        raise errors.bad_argument(f"gradlane: {name} of a tensor of layout {tensor.layout}; make it dense, to_dense()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise errors.bad_argument(f"gradlane: {name} of a tensor on {tensor.device}; allowed: CPU and CUDA")
    if tensor.is_quantized:
        raise errors.bad_argument(f"gradlane: {name} of a quantized tensor, {tensor.dtype}; dequantize it")


def summable(tensor: torch.Tensor, name: str, average: bool, pick: bool) -> tuple[torch.Tensor, Type]:
    """Returns the tensor in a form that the daemon can sum or average (`pick`: take the minimum or maximum of), and the
    daemon's type of that form. Raises BadArgument if there is no such form."""
    work, dtype = tensor, tensor.dtype
    if dtype in _COMPLEX and not pick:
        work = torch.view_as_real(work.resolve_conj())
    elif dtype in _WIDENED and not average:
        work = work.to(torch.int32)
    if work.dtype not in _TYPES or average and not work.dtype.is_floating_point:
        result = "average" if average else "minimum or maximum" if pick else "sum"
        raise errors.bad_argument(
            f"gradlane: {name} of {dtype} has no {result}; convert the tensor to "
            f"{'a floating type' if average and not dtype.is_floating_point else 'float32, for example'}"
        )
    return work, _TYPES[work.dtype]


def premultiplied(op: Any, tensors: Sequence[torch.Tensor], in_place: bool) -> tuple[Any, Sequence[torch.Tensor]]:
    """For PREMUL_SUM, returns SUM and the tensors times its factor. Returns `op` and `tensors` for all other
    operations, and for PREMUL_SUM in PyTorch 2.6, which hides the factor."""
    factor = getattr(op, "factor", None) if op == dist.ReduceOp.PREMUL_SUM else None
    if factor is None:
        return op, tensors
    scaled = [tensor.detach().mul_(factor) if in_place else tensor * factor for tensor in tensors]
    return dist.ReduceOp.SUM, tensors if in_place else scaled


class Operand:
    """A tensor of an operation. `work` is its contiguous form on the CPU, which is exchanged, and `type` the type of
    that.

    `lend` returns a pinned block for a tensor on a GPU. `filled` says whether its data is needed on the host. `reduce`:
    the tensor is summed, so its type matters; otherwise only its bytes do. `pick`: the minimum or maximum is taken
    instead. Call host.load() before `work` is used, and arrive() to wait for it. finish() puts the result into the
    tensor.
    """

    def __init__(self, lend: Callable[[int], _buffers.Block], tensor: torch.Tensor, name: str, reduce: bool,
                 average: bool = False, pick: bool = False, filled: bool = True) -> None:
        check(tensor, name)
        self.tensor = tensor.detach()
        self.host: gpu.Host | None = None
        self.filled = filled
        self._stored = 0
        self.origin = ""  # type of a sum that travels as another type, so that ranks can compare it; else ""
        work = self.tensor
        self.type = Type.BYTES
        if reduce:
            work, self.type = summable(work, name, average, pick)
            if work.dtype != self.tensor.dtype:
                self.origin = f" of {self.tensor.dtype}"
        work = work.resolve_conj().resolve_neg().contiguous()
        if gpu.is_on_gpu(work):
            self.host = gpu.Host(lend(work.numel() * work.element_size()), work, filled)
            work = self.host.tensor
        self.work = work

    @property
    def nbytes(self) -> int:
        return int(self.work.numel() * self.work.element_size())

    def arrive(self, part: int | None = None) -> None:
        """Waits until `work`, or a part of gpu.PART bytes, is on the host."""
        if self.host is not None:
            self.host.arrive(part)

    def store(self, first: int, last: int) -> None:
        """Starts to copy the result of these elements of `work` to the GPU, before finish(). It need not be called."""
        if self.host is None or self.work.dtype != self.tensor.dtype or not self.tensor.is_contiguous():
            return
        self.host.store(self.tensor.view(-1)[first:last], self.work[first:last])
        self._stored += last - first

    def finish(self) -> None:
        """Copies the result into the tensor, if it is not there already. For a tensor on a GPU, call it in
        gpu.behind()."""
        if self.work.data_ptr() == self.tensor.data_ptr() or self._stored == self.work.numel() > 0:
            return
        work = self.work
        if self.tensor.is_complex() and not work.is_complex():
            work = torch.view_as_complex(work.reshape(*self.tensor.shape, 2))
        work = work.reshape(self.tensor.shape)
        if self.host is None:
            self.tensor.copy_(work)
        else:
            self.host.store(self.tensor, work)


def is_inference(tensors: Any) -> bool:
    """Returns whether a tensor, in lists at any depth, was made in inference mode. It can be written to in that mode
    only."""
    if isinstance(tensors, torch.Tensor):
        return bool(tensors.is_inference())
    return isinstance(tensors, (list, tuple)) and any(map(is_inference, tensors))
