"""Operations of the engine. An operation consists of pieces, and each piece is a task of the library.

An Operation belongs to one thread at a time: the one that starts it, then the engine's. Addresses are integers.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import math
from typing import TYPE_CHECKING, Any, Callable, Sequence

import torch

from .. import _library, errors
from .._library import Collective, Reduction, Type
from .._losses import Caller
from . import gpu
from .staging import Operand

if TYPE_CHECKING:
    from torch.futures import Future

_LONGEST_MS = 10**9  # longest time limit: 11 days
# Size in bytes of the parts in which the library copies ordinary memory. It is the same on all ranks, and so small that
# a part stays in the cache.
_PART = 512 << 10


class Failure:
    """Value of a future that has failed; outcome() raises its error. C++ does not see what torch's set_exception()
    sets.

    The error's traceback is forgotten: its frames would refer to the future. A future is an object of C++, so Python's
    garbage collector could not free the cycle, nor the process group.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error.with_traceback(None)

    def __reduce__(self) -> Any:
        """Pickles nothing of the error, which may not be picklable. Futures of GPUs pickle their value to find tensors
        in it."""
        return Failure, ()


def to_raise(error: Exception) -> Exception:
    """Returns a copy of an error that a Work or a future keeps, to be raised. The raised one gets a traceback, which
    the kept one must not have, as Failure says. An error that cannot be copied is returned itself."""
    try:
        copied = copy.copy(error)
    except Exception:
        return error
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied


def outcome(future: Future[Any]) -> Any:
    """Returns a future's value, or raises the error if it is a Failure. It is a callback for then()."""
    value = future.value()
    if isinstance(value, Failure):
        raise to_raise(value.error)
    return value


class Operation:
    """Base class of operations. By itself it is a barrier: one piece without data.

    `codec`, `average`, `reduction`, `strategy`, `residual`, `part_bytes`, `state_pitch`, `encoded` and `encoded_bytes`
    are as in gradlane_how. `count` is the number of elements of all pieces together (`whole` of gradlane_how). `data`
    is the address of the data. `blocks` are the addresses of the ranks' blocks, if any.

    `operands` are its tensors, and `origin` is as in Operand. `inference` says whether the tensors were made in
    inference mode. `devices` are the GPUs that have results. `keep` is an object that must live as long as the
    operation. `timeout` is in seconds from its turn on, or None. If the first operand's data has come from a GPU, the
    engine's thread calls `on_data` with it, before the daemon has it.

    Tasks sets `left` (number of pieces that have not ended), `future` and `error` (the first one). `warning` is a
    LossWarning that the waiting thread must get. `caller` is the line of the program that it names.
    """

    collective = Collective.BARRIER
    type = Type.BYTES
    data: int | None = None
    count = 0
    root = 0
    blocks: Sequence[int] = ()
    piece_count = 1
    codec: str | Callable[[], str] | None = None
    average = False
    reduction = Reduction.SUM
    strategy: str | None = None
    residual: int | None = None
    state_pitch = 0
    part_bytes = 0
    encoded: int | None = None
    encoded_bytes = 0
    origin = ""
    operands: Sequence[Operand] = ()
    on_data: Callable[[torch.Tensor], None] | None = None
    devices: list[torch.device] = []

    future: Future[Any]

    def __init__(self) -> None:
        self.left = 0
        self.completed = False  # whether its callbacks have begun
        self.error: Exception | None = None
        self.warning: errors.LossWarning | None = None
        self.caller: Caller | None = None
        self.inference = False
        self.timeout: float | None = None
        self.tensor: Any = None
        self.result: Any = None
        self.on_result: Callable[[Any], None] | None = None
        self.on_host_result: Callable[[torch.Tensor], None] | None = None
        self.on_error: Callable[[Exception], None] | None = None
        self.keep: Any = None

    @property
    def asks(self) -> bool:
        """Whether prepare() must be called when its turn comes."""
        return callable(self.codec) or self.is_remote

    def prepare(self, piece: int) -> str | None:
        """Waits for the data of the piece. If the codec is a function, calls it and returns the codec's name."""
        self.arrive(piece)
        if not callable(self.codec):
            return None
        self.codec = self.codec()
        return self.codec

    def task(self, piece: int, user: int, flags: int) -> _library.Task:
        """Returns the library's task for a piece."""
        data, count, residual = self.extent(piece)
        how = _library.How(ctypes.sizeof(_library.How))
        how.codec = None if self.codec is None or callable(self.codec) else self.codec.encode()
        how.average, how.reduction = self.average, self.reduction
        how.strategy = None if self.strategy is None else self.strategy.encode()
        how.residual, how.state_pitch = residual, self.state_pitch
        how.whole, how.part_bytes = self.count, self.part_bytes
        how.encoded, how.encoded_bytes = self.encoded, self.encoded_bytes
        if self.timeout is not None:
            how.timeout_ms = min(max(math.ceil(self.timeout * 1000), 1), _LONGEST_MS)
        if self.blocks:
            how.blocks = (ctypes.c_void_p * len(self.blocks))(*self.blocks)
        what = self.origin.encode() or None
        return _library.Task(ctypes.sizeof(_library.Task), self.collective, self.type, self.root, flags, data, count,
                             ctypes.pointer(how), what, user)

    def extent(self, piece: int) -> tuple[int | None, int, int | None]:
        """Returns the address of the piece's data, how many elements it has, and the address of their residual."""
        return self.data, self.count, self.residual

    def mode(self) -> Any:
        """Returns a context manager, in which its tensors may be written to."""
        return torch.inference_mode() if self.inference else contextlib.nullcontext()

    @property
    def is_remote(self) -> bool:
        """Whether its data lies on a GPU."""
        return bool(self.hosts())

    def hosts(self) -> list[gpu.Host]:
        """Returns the host copies of its tensors that are on a GPU."""
        return [operand.host for operand in self.operands if operand.host is not None]

    def depart(self) -> None:
        """Starts to copy GPU data to the daemon's memory, after the work that the caller's streams have now."""
        for host in self.hosts():
            host.load()

    def arrive(self, piece: int) -> None:
        """Waits for the GPU data of this piece. The first piece waits for all data and calls on_data."""
        if piece > 0:
            return
        for operand in self.operands:
            operand.arrive()
        if self.on_data is not None and self.is_remote:
            self.on_data(self.operands[0].work)

    def let_go(self, pool: gpu.Pool) -> list[Any]:
        """Gives its pinned blocks back to the pool. Returns the blocks that Pool.give_back() returns, for the caller to
        free."""
        excess: list[Any] = []
        for operand in self.operands:
            host, operand.host = operand.host, None
            if host is not None:
                excess += pool.give_back(host.block, host.last)
        return excess

    def fail(self, error: Exception) -> None:
        """Records an error. Only the first one counts."""
        self.error = self.error or error

    def landed(self, piece: int) -> None:
        """Handles the result of a piece; does nothing here."""

    def finish(self) -> None:
        """Puts the result into the tensors when all pieces have succeeded; does nothing here."""

    def host_result(self) -> torch.Tensor:
        """Returns the result in host memory, in the shape of the tensor. Valid between finish() and let_go()."""
        operand = self.operands[0] if self.operands else None
        if operand is None or operand.host is None or operand.work.dtype != self.tensor.dtype:
            return self.tensor.detach().cpu()  # type: ignore[no-any-return]
        return operand.work.view(self.tensor.shape)


class InPlace(Operation):
    """All-reduce, or broadcast from `root`, of one tensor.

    `address` is that of shared memory; None: the library copies the tensor, part by part. `pieces` says whether the
    tensor may travel in several parts. If not, it is in shared memory. If the tensor is on a GPU, a piece has gpu.PART
    bytes, which are copied at a time.
    """

    def __init__(self, operand: Operand, address: int | None, codec: str | Callable[[], str] | None = None,
                 average: bool = False, residual: int | None = None, root: int | None = None,
                 pieces: bool = True) -> None:
        super().__init__()
        self.collective = Collective.ALL_REDUCE if root is None else Collective.BROADCAST
        self.root = root or 0
        self.type, self.origin, self.codec, self.average = operand.type, operand.origin, codec, average
        self.residual = residual
        self.data = operand.work.data_ptr() if address is None else address
        self._item = 1 if self.type == Type.BYTES else operand.work.element_size()
        self._kept = root is not None and operand.filled  # this rank has the result already
        self.count = operand.nbytes // self._item
        self.operands = [operand]
        self.part_bytes = _PART if pieces else 0
        self._each = gpu.PART // self._item if self.is_remote and pieces else max(self.count, 1)
        self.piece_count = -(-self.count // self._each)

    def extent(self, piece: int) -> tuple[int | None, int, int | None]:
        offset = piece * self._each * self._item
        residual = None if self.residual is None else self.residual + offset
        return (self.data or 0) + offset, min(self._each, self.count - piece * self._each), residual

    def arrive(self, piece: int) -> None:
        if self.on_data is None and self.piece_count > 1:
            self.operands[0].arrive(piece)
        else:
            super().arrive(piece)

    def landed(self, piece: int) -> None:
        if self.is_remote and not self._kept:
            item = self.operands[0].work.element_size()
            first = piece * self._each * self._item
            _, count, _ = self.extent(piece)
            self.operands[0].store(first // item, (first + count * self._item) // item)

    def finish(self) -> None:
        if not self._kept:
            self.operands[0].finish()


class Blocks(Operation):
    """All-gather and reduce-scatter of tensors in any memory.

    `many` are the ranks' blocks. `own` is this rank's tensor: the input of all-gather, the output of reduce-scatter.
    """

    def __init__(self, gather: bool, many: Sequence[Operand], own: Operand, codec: str | None = None,
                 average: bool = False) -> None:
        super().__init__()
        self.collective = Collective.ALL_GATHER if gather else Collective.REDUCE_SCATTER
        self.type, self.origin, self.codec, self.average = own.type, own.origin, codec, average
        self.operands = [own, *many]
        self.data, self.blocks = own.work.data_ptr(), [operand.work.data_ptr() for operand in many]
        self.part_bytes = _PART
        self.count = own.nbytes if gather else own.work.numel()
        self.piece_count = 1 if self.count > 0 else 0
        self._targets = many if gather else [own]

    def finish(self) -> None:
        for operand in self._targets:
            operand.finish()


class SharedReduceScatter(Operation):
    """Reduce-scatter of a tensor in shared memory, whose blocks lie one after the other.

    If `summed`, it runs as an all-reduce, because it is too long for daemons with local_reduce.
    """

    def __init__(self, operand: Operand, address: int, rank: int, world: int, output: torch.Tensor, codec: str | None,
                 average: bool, residual: int | None, summed: bool) -> None:
        super().__init__()
        self.collective = Collective.ALL_REDUCE if summed else Collective.REDUCE_SCATTER
        self.type, self.origin, self.codec, self.average = operand.type, operand.origin, codec, average
        self.data, self.residual = address, residual
        block = operand.work.numel() // world
        self.count = block * world if summed else block
        self.piece_count = 1 if self.count > 0 else 0
        self.operands = [operand]
        self._own = operand.work[rank * block:(rank + 1) * block]
        self._output = output

    def finish(self) -> None:
        self._output.copy_(self._own.view(self._output.shape))
