"""What an operation of the engine is made of: pieces, each an operation of the daemon.

An Operation belongs to one thread at a time: the one that starts it, then the engine's. Addresses are plain numbers;
copies are memmove through ctypes, which lets go of the interpreter lock.
"""

import collections
import ctypes
import math
import time
import zlib

from .. import errors
from . import staging
from .staging import PIECE

_LONGEST_MS = 10**9  # of time limits: 11 days
_CHECK_BITS, _NUMBER_BITS, _PIECE_BITS = 20, 24, 20  # of tags


def _mask(bits):
    return (1 << bits) - 1


class Failure:
    """A future's value that outcome() turns into an exception. torch's set_exception() is not seen from C++."""

    def __init__(self, error):
        self.error = error


def outcome(future):
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

    def __init__(self, piece, address):
        self.piece, self.address, self.staged = piece, address, address is None
        self.request = ctypes.c_uint64()
        self.codes = []

    @property
    def ended(self):
        return bool(self.codes) and self.codes[-1] != errors.PENDING


class Operation:
    """Base, and barrier: one piece without data.

    codec, average: as in gradlane_how; whole too, which is of all pieces together. timeout: seconds from its turn on,
    or None. The driver has flights, next_piece, number, begun, future and error: the first thing that went wrong.
    warning: a LossWarning that whoever waits shall have. inference: its tensors were made in inference mode.
    """

    name = "barrier"
    type = staging.BYTES
    nbytes = 0
    piece_count = 1
    codec = None
    average = False
    whole = 0

    def __init__(self):
        self.flights = collections.deque()
        self.next_piece = 0
        self.number = None
        self.error = self.warning = None
        self.inference = False
        self.timeout = self.begun = None
        self.tensor = self.result = self.on_result = self.on_error = None

    @property
    def timeout_ms(self):
        """0: the daemon's."""
        return 0 if self.timeout is None else min(max(math.ceil(self.timeout * 1000), 1), _LONGEST_MS)

    def is_late(self):
        """Whether it has had its time."""
        return self.timeout is not None and time.monotonic() >= self.begun + self.timeout

    def fail(self, error):
        self.error = self.error or error

    def tag(self, piece, past):
        """The same on two ranks only if they mean the same piece of the same call: its number, a hash of what it is.

        past: what has failed, as a number.
        """
        what = f"{self.name} {self.nbytes} {self.type} {self.average} {past}"
        check = zlib.crc32(what.encode()) & _mask(_CHECK_BITS)
        return (check << _NUMBER_BITS | self.number & _mask(_NUMBER_BITS)) << _PIECE_BITS | piece & _mask(_PIECE_BITS)

    def function(self, lib):
        return getattr(lib, "gradlane_" + self.name)

    def place(self, piece):
        """The address where the piece's data lies in shared memory, or None: it wants a staging block."""
        return 0

    def residual_of(self, piece):
        """The address of its residual, or None."""
        return None

    def load(self, piece, address):
        """Copies the piece's data into a staging block."""

    def unload(self, piece, address):
        """Copies the piece's result out of it."""

    def arguments(self, piece, address):
        """Of the library's function, between context and how."""
        return ()

    def finish(self):
        """All pieces have ended well."""


class InPlace(Operation):
    """All-reduce, or broadcast from `root`."""

    def __init__(self, operand, address, codec=None, average=False, residual=None, root=None):
        super().__init__()
        self.name = "all_reduce" if root is None else "broadcast"
        self.type, self.codec, self.average = operand.type, codec, average
        self._residual = residual
        self._operand = operand
        self._shared = address
        self._base = operand.work.data_ptr()
        self._item = 1 if self.type == staging.BYTES else operand.work.element_size()
        self._root = root
        self.nbytes = operand.nbytes
        self.whole = self.nbytes // self._item
        self.piece_count = -(-self.nbytes // PIECE)
        self.finish = operand.finish

    def _bytes(self, piece):
        return min(PIECE, self.nbytes - piece * PIECE)

    def residual_of(self, piece):
        return None if self._residual is None else self._residual + piece * PIECE

    def place(self, piece):
        return None if self._shared is None else self._shared + piece * PIECE

    def load(self, piece, address):
        ctypes.memmove(address, self._base + piece * PIECE, self._bytes(piece))

    def unload(self, piece, address):
        ctypes.memmove(self._base + piece * PIECE, address, self._bytes(piece))

    def arguments(self, piece, address):
        count = self._bytes(piece) // self._item
        return (address, count, self.type) if self._root is None else (address, count, self.type, self._root)


class Blocks(Operation):
    """All-gather and reduce-scatter: a staging block holds a part of each rank's block, one behind the other.

    many: the addresses of the ranks' blocks. one: the address of this rank's own block: the input of all-gather, the
    output of reduce-scatter. nbytes: of a block. keep: operands, which must live as long as this. summed: by an
    all-reduce over all blocks, for daemons with local_reduce, which have neither operation.
    """

    def __init__(self, gather, rank, many, one, nbytes, type_, item, keep, codec=None, average=False, summed=False):
        super().__init__()
        self.name = "all_gather" if gather else "reduce_scatter"
        self._summed = summed
        self.type, self.codec, self.average = type_, codec, average
        self._gather, self._rank, self._many, self._one = gather, rank, many, one
        self._item = item
        self._block = nbytes
        self._part = max(PIECE // len(many) // 128 * 128, 128)
        self._keep = keep
        self.nbytes = nbytes * len(many)
        self.whole = nbytes // item
        self.piece_count = -(-nbytes // self._part)

    def place(self, piece):
        return None

    def _bytes(self, piece):
        return min(self._part, self._block - piece * self._part)

    def _own(self, piece, address):
        return self._one + piece * self._part, address + self._rank * self._bytes(piece), self._bytes(piece)

    def _all(self, piece, address):
        size = self._bytes(piece)
        for rank, base in enumerate(self._many):
            yield base + piece * self._part, address + rank * size, size

    def function(self, lib):
        return lib.gradlane_all_reduce if self._summed else super().function(lib)

    def load(self, piece, address):
        if self._summed and self._gather:
            ctypes.memset(address, 0, len(self._many) * self._bytes(piece))
        for theirs, staged, size in [self._own(piece, address)] if self._gather else self._all(piece, address):
            ctypes.memmove(staged, theirs, size)

    def unload(self, piece, address):
        for theirs, staged, size in self._all(piece, address) if self._gather else [self._own(piece, address)]:
            ctypes.memmove(theirs, staged, size)

    def arguments(self, piece, address):
        count = self._bytes(piece) // self._item
        return (address, count * len(self._many) if self._summed else count, self.type)

    def finish(self):
        for operand in self._keep:
            operand.finish()
