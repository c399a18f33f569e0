"""Tensors on CUDA devices, on their way to and from pinned memory that is shared with the daemon.

Copies run on two streams of each device, one for each direction: behind what the caller's stream has to do before the
call, and who calls does not wait for that. So a bucket of gradients is on its way to the host while the one before is
exchanged, and backward goes on. Where nothing is on a GPU, only pin() and Pool run, and do nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Any, Callable, Iterator, NamedTuple

import torch
from torch.futures import Future

from .. import _buffers, errors

PART = 16 << 20  # bytes that are copied at a time: while others are exchanged
_FREE = 1 << 30  # bytes of blocks that nobody uses, kept for the next operation of the size
_LEAST = 4096
_EIGHTHS = 3  # bits: a block is at most an eighth longer than asked for
_SUCCESS, _REGISTERED = 0, 712  # cudaErrorHostMemoryAlreadyRegistered
_lock = threading.Lock()
_streams: dict[torch.device, Streams] = {}


class Streams(NamedTuple):
    """Of a device: off it, to the host, and onto it."""

    off: Any
    onto: Any


def streams_of(device: torch.device) -> Streams:
    """The same ones for all that is copied."""
    with _lock:
        if device not in _streams:
            _streams[device] = Streams(torch.cuda.Stream(device), torch.cuda.Stream(device))
        return _streams[device]


def is_far(tensor: torch.Tensor) -> bool:
    """Whether it has to be copied to be read here."""
    return bool(tensor.is_cuda)


def tensors_of(*values: Any) -> Iterator[torch.Tensor]:
    """CUDA tensors among these, in lists at any depth."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_cuda:
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_of(*value)


def devices_of(*values: Any) -> list[torch.device]:
    """Those of CUDA tensors among these; each once."""
    if not torch.cuda.is_initialized():
        return []
    return list(dict.fromkeys(tensor.device for tensor in tensors_of(*values)))


def future_of(devices: list[torch.device]) -> Future[Any]:
    """One whose value is on these devices: whoever waits for it is behind what behind() has begun."""
    return Future(devices=devices) if devices else Future()


def settle(devices: list[torch.device]) -> None:
    """In the engine's thread, first of all: else it would use the first GPU, too, as soon as it leaves a stream."""
    if devices:
        torch.cuda.set_device(devices[0])


def behind(devices: list[torch.device]) -> contextlib.AbstractContextManager[Any]:
    """What runs in this has results behind it: see future_of()."""
    if not devices:
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    for device in devices:
        stack.enter_context(torch.cuda.stream(streams_of(device).onto))
    return stack


def claim(*values: Any) -> None:
    """Results that nobody waits for are not given to others while they are still copied to."""
    for tensor in tensors_of(*values):
        tensor.record_stream(streams_of(tensor.device).onto)


def pin(block: _buffers.Block) -> None:
    """So that a device copies from and to it by itself; without CUDA nothing."""
    if not torch.cuda.is_available() or block.size == 0:
        return
    runtime = torch.cuda.cudart()
    answer = int(runtime.cudaHostRegister(block.address, block.size, 0))
    if answer == _REGISTERED:  # what was there before, and was interrupted in _unpin()
        runtime.cudaHostUnregister(block.address)
        answer = int(runtime.cudaHostRegister(block.address, block.size, 0))
    if answer == _SUCCESS:
        weakref.finalize(block, _unpin, block.address, os.getpid()).atexit = False


def _unpin(address: int, process: int) -> None:
    if os.getpid() == process:
        torch.cuda.cudart().cudaHostUnregister(address)


class Pool:
    """Pinned blocks, which go from operation to operation: to pin one takes longer than to copy it.

    allocate: makes another one, or raises OutOfMemory. Not for several threads at a time. A block that something is
    copied from or to stays, whatever becomes of the operation.
    """

    def __init__(self, allocate: Callable[[int], _buffers.Block]) -> None:
        self._allocate = allocate
        # Blocks, and events behind which they may be used, None: now. The latest last.
        self._free: list[tuple[_buffers.Block, Any]] = []
        self._lent: list[tuple[_buffers.Block, Any]] = []  # what is copied to

    def lend(self, nbytes: int) -> _buffers.Block:
        """One of at least so many bytes. Raises OutOfMemory."""
        self._lent = [it for it in self._lent if not it[1].query()]
        size = size_of(nbytes)
        for number, (block, event) in enumerate(self._free):
            if block.size == size and (event is None or event.query()):
                del self._free[number]
                return block
        try:
            return self._allocate(size)
        except errors.OutOfMemory:
            if not self.clear():
                raise
        return self._allocate(size)

    def follow(self, block: _buffers.Block, event: Any) -> None:
        """It is copied to until this event."""
        self._lent.append((block, event))

    def give_back(self, block: _buffers.Block, event: Any) -> list[Any]:
        """event: of the last copy from or to it; None: that is over. Returns what is too much, to be let go of."""
        self._free.append((block, event))
        total, excess = sum(block.size for block, _ in self._free), []
        while total > _FREE and (self._free[0][1] is None or self._free[0][1].query()):
            excess.append(self._free.pop(0))
            total -= excess[-1][0].size
        return excess

    def clear(self) -> bool:
        """Whether there was anything that nobody uses. Waits for copies from it."""
        free, self._free = self._free, []
        for _, event in free:
            if event is not None:
                event.synchronize()
        return bool(free)


def size_of(nbytes: int) -> int:
    """Of a block for so many: few sizes, so that tensors of about the same size take the same blocks."""
    unit = max(_LEAST, 1 << max(nbytes.bit_length() - 1 - _EIGHTHS, 0))
    return max(-(-nbytes // unit), 1) * unit


class Host:
    """The elements of a CUDA tensor in pinned memory. `tensor` is flat, and on the CPU.

    block: from a Pool. source: contiguous; filled: what it has is wanted there.
    """

    def __init__(self, block: _buffers.Block, source: torch.Tensor, filled: bool) -> None:
        self.block = block
        self.last: Any = None  # event of the last copy
        self._device, self._source, self._filled = source.device, source.reshape(-1), filled
        item = source.element_size()
        self._each = PART // item
        self.tensor = torch.from_numpy(_buffers.array_over(block, (source.numel() * item,), "uint8")).view(source.dtype)
        self._there: list[Any] = []  # events, of each part

    def load(self) -> None:
        """Starts to copy what is there behind what the caller's stream has to do now."""
        current = torch.cuda.current_stream(self._device)
        if not self._filled:
            self._there = [current.record_event()]
            return
        off = streams_of(self._device).off
        off.wait_stream(current)
        self._source.record_stream(off)
        with torch.cuda.stream(off):
            for to, part in zip(self.tensor.split(self._each), self._source.split(self._each)):
                to.copy_(part, non_blocking=True)
                self._there.append(torch.cuda.Event(blocking=True))
                self._there[-1].record(off)
        self.last = self._there[-1]

    def arrive(self, part: int | None = None) -> None:
        """Waits until a part is there, None: until all is."""
        if self._filled:
            self._there[-1 if part is None else part].synchronize()

    def store(self, target: torch.Tensor, values: torch.Tensor) -> None:
        """Starts to copy these values, which lie here, to `target` on the device; behind() waits for it."""
        onto = streams_of(self._device).onto
        onto.wait_event(self._there[-1])  # others may have used it until then
        with torch.cuda.stream(onto):
            # To other types there, not in memory that is gone when the copy of it begins.
            target.copy_(values.to(target.device, non_blocking=True) if values.dtype != target.dtype else values,
                         non_blocking=True)
            self.last = onto.record_event()
