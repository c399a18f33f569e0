"""What an operation of the engine is made of: pieces, each an operation of the daemon.

An Operation belongs to one thread at a time: the one that starts it, then the engine's. Addresses are plain numbers;
copies are memmove through ctypes, which lets go of the interpreter lock.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import math
import time
import zlib
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

import torch

from .. import errors
from .._library import Reduction, Type
from .._losses import Caller
from . import gpu
from .staging import PIECE, Operand

if TYPE_CHECKING:
    from torch.futures import Future

_LONGEST_MS = 10**9  # of time limits: 11 days
_CHECK_BITS, _NUMBER_BITS, _PIECE_BITS = 20, 24, 20  # of tags


def _mask(bits: int) -> int:
    return (1 << bits) - 1


class Failure:
    """A future's value that outcome() turns into an exception. torch's set_exception() is not seen from C++."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        """Futures of GPUs look for tensors in it, by pickling: there are none, and errors need not be picklable."""
        return Failure, ()


def outcome(future: Future[Any]) -> Any:
    """For then() of a future that a Failure may be the value of."""
    value = future.value()
    if isinstance(value, Failure):
        raise value.error
    return value


class Flight:
    """A piece under way.

    request: 0 until the daemon has it. codes: [what the latest wait said]. staged: the address is of a staging block.
    """

    __slots__ = ("piece", "address", "staged", "request", "codes")

    def __init__(self, piece: int, address: int | None) -> None:
        self.piece, self.address, self.staged = piece, address, address is None
        self.request = ctypes.c_uint64()
        self.codes: list[int] = []

    @property
    def ended(self) -> bool:
        return bool(self.codes) and self.codes[-1] != errors.PENDING


class Operation:
    """Base, and barrier: one piece without data.

    codec, average, reduction, strategy, part_bytes: as in gradlane_how; whole and state_pitch too, the former of all
    pieces together. origin: as of an Operand. timeout: seconds from its turn on, or None. The driver has flights,
    next_piece, number, begun, future and error: the first thing that went wrong. warning: a LossWarning that whoever
    waits shall have. caller: the line that such a warning names. inference: its tensors were made in inference mode.
    keep: what must live as long as this. operands: its tensors. on_data: called with the first one's data, where that
    has come from a GPU, in the engine's thread, before the daemon has it. devices: GPUs that have results.
    """

    name = "barrier"
    type = Type.BYTES
    nbytes = 0
    piece_count = 1
    codec: str | Callable[[], str] | None = None
    average = False
    reduction = Reduction.SUM
    strategy: str | None = None
    whole = 0
    state_pitch = 0
    part_bytes = 0
    origin = ""
    operands: Sequence[Operand] = ()
    on_data: Callable[[torch.Tensor], None] | None = None
    devices: list[torch.device] = []

    future: Future[Any]

    def __init__(self) -> None:
        self.flights: collections.deque[Flight] = collections.deque()
        self.next_piece = 0
        self.number: int | None = None
        self.begun = 0.0
        self.error: Exception | None = None
        self.warning: errors.LossWarning | None = None
        self.caller: Caller | None = None
        self.inference = False
        self.timeout: float | None = None
        self.tensor: Any = None
        self.result: Any = None
        self.on_result: Callable[[Any], None] | None = None
        self.on_error: Callable[[Exception], None] | None = None
        self.keep: Any = None

    @property
    def timeout_ms(self) -> int:
        """What is left; 0: the daemon's."""
        if self.timeout is None:
            return 0
        return min(max(math.ceil((self.begun + self.timeout - time.monotonic()) * 1000), 1), _LONGEST_MS)

    def is_late(self) -> bool:
        """Returns whether an operation that took too long ran into its own limit, not into that of a rank that started
        it earlier. The daemon reads its clock once a round, so it may end an operation a little early."""
        return self.timeout is not None and time.monotonic() >= self.begun + self.timeout / 2

    def mode(self) -> Any:
        """In which its tensors may be written to: a context manager."""
        return torch.inference_mode() if self.inference else contextlib.nullcontext()

    @property
    def is_remote(self) -> bool:
        """Whether its data lies on a GPU."""
        return bool(self.hosts())

    def hosts(self) -> list[gpu.Host]:
        """Of those of its tensors that are."""
        return [operand.host for operand in self.operands if operand.host is not None]

    def depart(self) -> None:
        """Has its data on the way to the daemon's memory, behind what the caller's streams have to do."""
        for host in self.hosts():
            host.load()

    def arrive(self, piece: int) -> None:
        """Waits for what this piece needs of it; for all with the first one, where somebody wants to see that."""
        if piece > 0:
            return
        for operand in self.operands:
            operand.arrive()
        if self.on_data is not None and self.is_remote:
            self.on_data(self.operands[0].work)

    def let_go(self, pool: gpu.Pool) -> list[Any]:
        """Of the memory that it was in meanwhile. Returns what is too much of that."""
        excess: list[Any] = []
        for operand in self.operands:
            host, operand.host = operand.host, None
            if host is not None:
                excess += pool.give_back(host.block, host.last)
        return excess

    def fail(self, error: Exception) -> None:
        """The first error is the one that counts."""
        self.error = self.error or error

    def tag(self, piece: int, past: int) -> int:
        """The same on two ranks only if they mean the same piece of the same call: its number, a hash of what it is.

        past: what has failed, as a number.
        """
        what = f"{self.name} {self.nbytes} {self.type:d} {self.average} {self.reduction:d} {past}{self.origin}"
        check = zlib.crc32(what.encode()) & _mask(_CHECK_BITS)
        number = (self.number or 0) & _mask(_NUMBER_BITS)
        return (check << _NUMBER_BITS | number) << _PIECE_BITS | piece & _mask(_PIECE_BITS)

    def function(self, lib: ctypes.CDLL) -> Callable[..., int]:
        """Of the library, that starts a piece."""
        function: Callable[..., int] = getattr(lib, "gradlane_" + self.name)
        return function

    def place(self, piece: int) -> int | None:
        """The address where the piece's data lies in shared memory, or None: it wants a staging block."""
        return 0

    def residual_of(self, piece: int) -> int | None:
        """The address of its residual, or None."""
        return None

    def load(self, piece: int, address: int) -> None:
        """Copies the piece's data into a staging block."""

    def unload(self, piece: int, address: int) -> None:
        """Copies the piece's result out of it."""

    def landed(self, piece: int) -> None:
        """A piece that wants no staging block has its result."""

    def arguments(self, piece: int, address: int | None) -> tuple[int | None, ...]:
        """Of the library's function, between context and how."""
        return ()

    def finish(self) -> None:
        """All pieces have ended well."""


class InPlace(Operation):
    """All-reduce, or broadcast from `root`: one piece to Python, which the library divides into parts of PIECE bytes.

    address: of memory that the daemon shares; None: the library copies parts of it. pieces: it may travel in several
    parts; else it is in shared memory. Of a tensor on a GPU a piece is what is copied from there at a time.
    """

    def __init__(self, operand: Operand, address: int | None, codec: str | Callable[[], str] | None = None,
                 average: bool = False, residual: int | None = None, root: int | None = None,
                 pieces: bool = True) -> None:
        super().__init__()
        self.name = "all_reduce" if root is None else "broadcast"
        self.type, self.origin, self.codec, self.average = operand.type, operand.origin, codec, average
        self._residual = residual
        self._address: int = operand.work.data_ptr() if address is None else address
        self._item = 1 if self.type == Type.BYTES else operand.work.element_size()
        self._root = root
        self._kept = root is not None and operand.filled  # this rank has the result already
        self.nbytes = operand.nbytes
        self.whole = self.nbytes // self._item
        self.part_bytes = PIECE if pieces else 0
        self.operands = [operand]
        self._each = gpu.PART if self.is_remote and pieces else max(self.nbytes, 1)
        self.piece_count = -(-self.nbytes // self._each)

    def residual_of(self, piece: int) -> int | None:
        return None if self._residual is None else self._residual + piece * self._each

    def arrive(self, piece: int) -> None:
        if self.on_data is None and self._each == gpu.PART:
            self.operands[0].arrive(piece)
        else:
            super().arrive(piece)

    def place(self, piece: int) -> int | None:
        return self._address + piece * self._each

    def _bytes(self, piece: int) -> int:
        return min(self._each, self.nbytes - piece * self._each)

    def unload(self, piece: int, address: int) -> None:
        ctypes.memmove(self._address, address, self.nbytes)  # of one that native/express.h has begun

    def landed(self, piece: int) -> None:
        if self.is_remote and not self._kept:
            item = self.operands[0].work.element_size()
            first = piece * self._each
            self.operands[0].store(first // item, (first + self._bytes(piece)) // item)

    def arguments(self, piece: int, address: int | None) -> tuple[int | None, ...]:
        count = self._bytes(piece) // self._item
        return (address, count, self.type) if self._root is None else (address, count, self.type, self._root)

    def finish(self) -> None:
        if not self._kept:
            self.operands[0].finish()


class Blocks(Operation):
    """All-gather and reduce-scatter: a staging block holds a part of each rank's block, one behind the other.

    many: the ranks' blocks. own: this rank's: the input of all-gather, the output of reduce-scatter.
    """

    def __init__(self, gather: bool, rank: int, many: Sequence[Operand], own: Operand, codec: str | None = None,
                 average: bool = False) -> None:
        super().__init__()
        self.name = "all_gather" if gather else "reduce_scatter"
        self.type, self.codec, self.average = own.type, codec, average
        self.origin = own.origin
        self.operands = [own, *many]
        self._gather, self._rank = gather, rank
        self._many, self._one = [operand.work.data_ptr() for operand in many], own.work.data_ptr()
        self._item = 1 if gather else own.work.element_size()
        self._block = own.nbytes
        self._part = max(PIECE // len(many) // 128 * 128, 128)
        self._targets = many if gather else [own]
        self.nbytes = own.nbytes * len(many)
        self.whole = own.nbytes // self._item
        self.piece_count = -(-own.nbytes // self._part)

    def place(self, piece: int) -> int | None:
        return None

    def _bytes(self, piece: int) -> int:
        return min(self._part, self._block - piece * self._part)

    def _own(self, piece: int, address: int) -> tuple[int, int, int]:
        return self._one + piece * self._part, address + self._rank * self._bytes(piece), self._bytes(piece)

    def _all(self, piece: int, address: int) -> Iterator[tuple[int, int, int]]:
        size = self._bytes(piece)
        for rank, base in enumerate(self._many):
            yield base + piece * self._part, address + rank * size, size

    def load(self, piece: int, address: int) -> None:
        for theirs, staged, size in [self._own(piece, address)] if self._gather else self._all(piece, address):
            ctypes.memmove(staged, theirs, size)

    def unload(self, piece: int, address: int) -> None:
        for theirs, staged, size in self._all(piece, address) if self._gather else [self._own(piece, address)]:
            ctypes.memmove(theirs, staged, size)

    def arguments(self, piece: int, address: int | None) -> tuple[int | None, ...]:
        return (address, self._bytes(piece) // self._item, self.type)

    def finish(self) -> None:
        for operand in self._targets:
            operand.finish()


class Scatter(Operation):
    """Reduce-scatter of a tensor in shared memory, whose blocks lie one behind the other: one piece.

    summed: by an all-reduce, where that is too long for daemons with local_reduce.
    """

    def __init__(self, operand: Operand, address: int, rank: int, world: int, output: torch.Tensor, codec: str | None,
                 average: bool, residual: int | None, summed: bool) -> None:
        super().__init__()
        self.name = "reduce_scatter"
        self.type, self.origin, self.codec, self.average = operand.type, operand.origin, codec, average
        self.nbytes = operand.nbytes
        self._address, self._residual, self._summed = address, residual, summed
        self._count = operand.work.numel() // world
        self.whole = operand.work.numel() if summed else self._count
        self._world = world
        self.operands = [operand]
        self._own = operand.work[rank * self._count:(rank + 1) * self._count]
        self._output = output

    def function(self, lib: ctypes.CDLL) -> Callable[..., int]:
        function: Callable[..., int] = lib.gradlane_all_reduce if self._summed else lib.gradlane_reduce_scatter
        return function

    def place(self, piece: int) -> int | None:
        return self._address

    def residual_of(self, piece: int) -> int | None:
        return self._residual

    def arguments(self, piece: int, address: int | None) -> tuple[int | None, ...]:
        return (address, self._count * self._world if self._summed else self._count, self.type)

    def finish(self) -> None:
        self._output.copy_(self._own.view(self._output.shape))
