"""Copies of CUDA tensors to and from pinned memory that is shared with the daemon.

Each device has two streams for copies, one for each direction. A copy runs after the work that the caller's stream has
at the time of the call, and the caller does not wait. So a bucket of gradients is copied to the host while the previous
bucket is exchanged, and backward goes on. If nothing is on a GPU, only pin() and Pool run, and do nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import Any, Callable, Iterator, NamedTuple

import torch
from torch.futures import Future

from .. import _buffers, errors

PART = 16 << 20  # bytes per copy; other parts are exchanged meanwhile
_FREE = 1 << 30  # largest number of bytes in unused blocks of a pool
_LEAST = 4096
_EIGHTHS = 3  # significant bits of a block's size after the highest, so a block is at most an eighth too long
_POLL_NS = 50_000  # time to poll before sleeping, because a thread that sleeps wakes up tens of microseconds late
_SUCCESS, _REGISTERED = 0, 712  # codes of cudaHostRegister(); 712 is cudaErrorHostMemoryAlreadyRegistered
_lock = threading.Lock()
_streams: dict[torch.device, Streams] = {}


class Streams(NamedTuple):
    """Copy streams of a device. `off` copies to the host, `onto` to the device."""

    off: Any
    onto: Any


def streams_of(device: torch.device) -> Streams:
    """Returns the streams of a device, which all copies share."""
    with _lock:
        if device not in _streams:
            _streams[device] = Streams(torch.cuda.Stream(device), torch.cuda.Stream(device))
        return _streams[device]


def record_event(device: torch.device) -> Any:
    """Returns an event of the work that the device's current stream has now."""
    event = torch.cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(device))
    return event


def wait(event: Any) -> None:
    """Waits for an event: polls at first, then sleeps."""
    end = time.perf_counter_ns() + _POLL_NS
    while not event.query():
        if time.perf_counter_ns() > end:
            event.synchronize()
            return


def use_stream(stream: Any) -> contextlib.AbstractContextManager[Any]:
    """Returns a context manager, in which GPU work is added to this stream."""
    return torch.cuda.stream(stream)  # type: ignore[no-any-return]


def keep_until_done(tensor: torch.Tensor, stream: Any) -> None:
    """Delays the reuse of a freed tensor's memory until the work that the stream has at that time is done."""
    tensor.record_stream(stream)


def make_pinned(numel: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns an uninitialized tensor in pinned memory."""
    return torch.empty(numel, dtype=dtype, device="cpu", pin_memory=True)


def is_on_gpu(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor must be copied before it can be read here."""
    return bool(tensor.is_cuda)


def tensors_of(*values: Any) -> Iterator[torch.Tensor]:
    """Yields the CUDA tensors among these values, in lists at any depth."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_cuda:
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_of(*value)


def devices_of(*values: Any) -> list[torch.device]:
    """Returns the devices of the CUDA tensors among these values, each once."""
    if not torch.cuda.is_initialized():
        return []
    return list(dict.fromkeys(tensor.device for tensor in tensors_of(*values)))


def future_of(devices: list[torch.device]) -> Future[Any]:
    """Returns a future whose value is on these devices. When a thread waits for the future, its streams wait for the
    work that was started in behind()."""
    return Future(devices=devices) if devices else Future()


def settle(devices: list[torch.device]) -> None:
    """Selects the first device for the engine's thread, before all else. Otherwise the thread would use GPU 0 as well,
    as soon as it leaves a stream context."""
    if devices:
        torch.cuda.set_device(devices[0])


def behind(devices: list[torch.device]) -> contextlib.AbstractContextManager[Any]:
    """Returns a context manager. GPU work that is started in it runs after the copies to these devices, on their
    streams. See future_of()."""
    if not devices:
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    for device in devices:
        stack.enter_context(torch.cuda.stream(streams_of(device).onto))
    return stack


def claim(*values: Any) -> None:
    """Keeps the memory of CUDA results from being used again while they are copied to, even if nobody waits for them.
    """
    for tensor in tensors_of(*values):
        tensor.record_stream(streams_of(tensor.device).onto)


def pin(block: _buffers.Block) -> None:
    """Pins a block, so that devices copy from and to it asynchronously. Does nothing without CUDA."""
    if not torch.cuda.is_available() or block.size == 0:
        return
    runtime = torch.cuda.cudart()
    answer = int(runtime.cudaHostRegister(block.address, block.size, 0))
    if answer == _REGISTERED:  # an earlier block's _unpin() was interrupted
        runtime.cudaHostUnregister(block.address)
        answer = int(runtime.cudaHostRegister(block.address, block.size, 0))
    if answer == _SUCCESS:
        weakref.finalize(block, _unpin, block.address, os.getpid()).atexit = False


def _unpin(address: int, process: int) -> None:
    if os.getpid() == process:
        torch.cuda.cudart().cudaHostUnregister(address)


class Pool:
    """Pinned blocks for one operation after another, because pinning takes longer than copying.

    `allocate` makes a new block, or raises OutOfMemory. Only one thread may use the pool at a time. A block that a copy
    still uses is kept, even if the operation has failed.
    """

    def __init__(self, allocate: Callable[[int], _buffers.Block]) -> None:
        self._allocate = allocate
        # Unused blocks, and the event after which each may be used (None: now). The block that was returned last is at
        # the end.
        self._free: list[tuple[_buffers.Block, Any]] = []
        self._lent: list[tuple[_buffers.Block, Any]] = []  # blocks that are copied to until the event

    def lend(self, nbytes: int) -> _buffers.Block:
        """Returns a block of at least `nbytes` bytes. Raises OutOfMemory."""
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
        """Keeps a block until this event, because it is copied to until then."""
        self._lent.append((block, event))

    def give_back(self, block: _buffers.Block, event: Any) -> list[Any]:
        """Takes a block back. Returns unused blocks above _FREE bytes, for the caller to free.

        event: event of the last copy from or to the block; None if that is finished.
        """
        self._free.append((block, event))
        total, excess = sum(block.size for block, _ in self._free), []
        while total > _FREE and (self._free[0][1] is None or self._free[0][1].query()):
            excess.append(self._free.pop(0))
            total -= excess[-1][0].size
        return excess

    def clear(self) -> bool:
        """Frees all unused blocks, after the copies from them. Returns whether there were any."""
        free, self._free = self._free, []
        for _, event in free:
            if event is not None:
                event.synchronize()
        return bool(free)


def size_of(nbytes: int) -> int:
    """Returns the size of a block for `nbytes` bytes. There are few sizes, so that tensors of similar size share
    blocks."""
    unit = max(_LEAST, 1 << max(nbytes.bit_length() - 1 - _EIGHTHS, 0))
    return max(-(-nbytes // unit), 1) * unit


class Host:
    """Copy of a CUDA tensor in pinned memory. `tensor` is that copy, flat, on the CPU.

    `block` is from a Pool. `source` is the CUDA tensor, contiguous. `filled` says whether its data is needed on the
    host.
    """

    def __init__(self, block: _buffers.Block, source: torch.Tensor, filled: bool) -> None:
        self.block = block
        self.last: Any = None  # event of the last copy
        self._device, self._source, self._filled = source.device, source.reshape(-1), filled
        item = source.element_size()
        self._each = PART // item
        self.tensor = torch.from_numpy(_buffers.array_over(block, (source.numel() * item,), "uint8")).view(source.dtype)
        self._there: list[Any] = []  # events of the copies to the host, one per part

    def load(self) -> None:
        """Starts to copy the tensor to the host, after the work that the caller's stream has now."""
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
                self._there.append(record_event(self._device))
        self.last = self._there[-1]

    def arrive(self, part: int | None = None) -> None:
        """Waits until a part is on the host. None: until all parts are."""
        if self._filled:
            wait(self._there[-1 if part is None else part])

    def store(self, target: torch.Tensor, values: torch.Tensor) -> None:
        """Starts to copy these values of the host to `target` on the device. Work in behind() runs after the copy."""
        onto = streams_of(self._device).onto
        onto.wait_event(self._there[-1])  # earlier work may use the tensor until then
        with torch.cuda.stream(onto):
            # Types are converted on the device. A converted copy on the host would be freed before its copy begins.
            target.copy_(values.to(target.device, non_blocking=True) if values.dtype != target.dtype else values,
                         non_blocking=True)
            self.last = onto.record_event()
