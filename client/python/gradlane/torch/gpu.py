"""Tensors on CUDA devices, on their way to and from pinned memory that is shared with the daemon.

Copies run on two streams of each device, one for each direction: behind what the caller's stream has to do before the
call, and nobody but the engine's thread waits for them. So a bucket of gradients is on its way to the host while the
one before is exchanged, and the caller's thread goes on. Without CUDA tensors nothing here runs.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, Callable, Iterator, NamedTuple

import torch

from .. import _buffers, errors

PART = 16 << 20  # bytes that are copied at a time: while others are exchanged
_FREE = 32  # blocks that nobody uses, kept for the next operation of the size
_LEAST = 4096
_EIGHTHS = 3  # bits: a block is at most an eighth longer than asked for
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


def devices_of(*values: Any) -> list[torch.device]:
    """Those of CUDA tensors among these, in lists at any depth; each once."""
    if not torch.cuda.is_initialized():
        return []
    found: list[torch.device] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found += [value.device] if value.is_cuda else []
        elif isinstance(value, (list, tuple)):
            found += devices_of(*value)
    return list(dict.fromkeys(found))


@contextlib.contextmanager
def behind(devices: list[torch.device]) -> Iterator[None]:
    """What runs in this has results behind it: a future with these devices lets those who wait for it wait for them."""
    with contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.cuda.stream(streams_of(device).onto))
        yield


def pin(block: _buffers.Block) -> None:
    """So that a device copies from and to it by itself; without CUDA nothing."""
    if not torch.cuda.is_available():
        return
    runtime = torch.cuda.cudart()
    if int(runtime.cudaHostRegister(block.address, max(block.size, 1), 0)) == 0:
        weakref.finalize(block, _unpin, block.address).atexit = False


def _unpin(address: int) -> None:
    """A device may still copy: whoever was to wait for that has failed before."""
    for device in list(_streams):
        torch.cuda.synchronize(device)
    torch.cuda.cudart().cudaHostUnregister(address)


class Pool:
    """Pinned blocks, which go from operation to operation: to pin one takes longer than to copy it.

    allocate: makes another one, or raises OutOfMemory. Not for several threads at a time.
    """

    def __init__(self, allocate: Callable[[int], _buffers.Block]) -> None:
        self._allocate = allocate
        self._free: list[tuple[_buffers.Block, Any]] = []  # and an event behind which it may be used; the latest last

    def lend(self, nbytes: int) -> _buffers.Block:
        """One of at least so many bytes. Raises OutOfMemory."""
        size = size_of(nbytes)
        for number, (block, event) in enumerate(self._free):
            if block.size == size and (event is None or event.query()):
                del self._free[number]
                return block
        try:
            return self._allocate(size)
        except errors.OutOfMemory:
            if not self._free:
                raise
        self._free.clear()
        return self._allocate(size)

    def give_back(self, block: _buffers.Block, event: Any) -> None:
        """event: of the last copy from or to it; None: that is over."""
        self._free.append((block, event))
        del self._free[:-_FREE]


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
            target.copy_(values, non_blocking=True)
            target.record_stream(onto)
            self.last = onto.record_event()
