"""The bound of codec fixed that follows a tensor's magnitude from step to step: what "fixed:adaptive" stands for."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, Sequence

import numpy
from numpy.typing import NDArray

from . import _arguments, _buffers, _codecs, _library, errors

if TYPE_CHECKING:
    from ._protocols import Memory, Scaled

MIN_BITS, DEFAULT_BITS, MAX_BITS = 1, 4, 12
CHANGE = 8.0  # a result that has grown or shrunk by more than this is no measure of the next one
MAX_EXPONENT = 12  # with fixed:1, say, and a larger RMS most values travel as fp32 anyway

_loaded: ctypes.CDLL | None = None


def sum_of_squares(array: NDArray[numpy.float32]) -> float:
    """Of a float32 array of any shape, C-contiguous: the same bits on every rank that has the same array.

    NaN or infinity where the array has one. Raises BadArgument for any other array.
    """
    global _loaded
    if not isinstance(array, numpy.ndarray) or array.dtype != numpy.float32 or not array.flags.c_contiguous:
        what = f"an array of {array.dtype}" if isinstance(array, numpy.ndarray) else type(array).__name__
        raise errors.bad_argument(f"the result is {what}, not a C-contiguous NumPy array of float32")
    if _loaded is None:
        _loaded = _library.load()
    squares: float = _loaded.gradlane_sum_of_squares(array.ctypes.data, array.size)
    return squares


class AdaptiveBound:
    """Chooses B of fixed:B for each operation on one tensor, by the results of the operations before.

        bound = gradlane.AdaptiveBound(error_feedback=True)      # one per tensor, kept from step to step
        while training:
            gl.all_reduce(gradients, average=True, codec=bound)

    It takes in the result when the operation ends: when all_reduce() returns, or of an asynchronous one when wait()
    returns or done() says True, so it can have one under way at a time. All ranks have the same bytes as a result, so
    all choose the same codec, with no message about it: they must use their bounds for the same operations, and wait
    for them before the next. An operation that failed resets it. As one may fail on some ranks only, call reset() on
    all ranks before going on.

    bits: see below. window: so many results count. error_feedback: what rounding takes away is kept, and added in the
    next step; all that is owed goes with a step that is raw.

    By hand, codec() says what the next operation is to use, and update() takes in the result.

    The promise: the average over the ranks is off by at most 2^-bits times the RMS of the previous result, in every
    element; with window=n times the smallest RMS of the previous n results. (As long as sums stay within the range of
    fixed:B, 2^(25 - bits) times that RMS and more; larger ones are rounded as fp32 sums are.) A tensor that has shrunk
    to 1/k since has an error of k 2^-bits of its own RMS: past k = 2^bits all of it may be lost in this one step, or be
    late where there is error feedback. Elements far below the RMS of their tensor vanish for as long as they are.

    The next operation is raw, which is exact but for the rounding of fp32 sums:
    - when there is no result yet, or none since reset();
    - after a result that is all zeros or has a NaN or Inf in it;
    - after one whose RMS is more than 8 times that of each of the window's, or less than 1/8 of each;
    - where fixed has no bound that is fine enough (2^-bits RMS below 2^-30), or nothing to gain (RMS of 8192 or more).
    """

    _codecs = _codecs.ASSUMED  # until somebody with a daemon uses it

    def __init__(self, bits: int = DEFAULT_BITS, window: int = 1, *, error_feedback: bool = False) -> None:
        self.bits = _arguments.whole("bits", bits, MIN_BITS, MAX_BITS)
        self.window = _arguments.whole("window", window, 1, 1 << 31)
        self.error_feedback = _arguments.flag("error_feedback", error_feedback)
        # Means of squares, finite and above 0; whether they are a measure; the operation that will give the next one.
        # They change together, at once, whatever exception may come in between.
        self._state: tuple[tuple[float, ...], bool, Scaled | None] = (), False, None
        self._residual: NDArray[numpy.float32] | None = None

    def __repr__(self) -> str:
        options = f"bits={self.bits}, window={self.window}, error_feedback={self.error_feedback}"
        return f"<gradlane.AdaptiveBound({options}): next codec {self.codec()!r}>"

    def __getstate__(self) -> dict[str, Any]:
        """Of copies: no operation will tell them its result."""
        return {**self.__dict__, "_state": (*self._state[:2], None)}

    @staticmethod
    def parse(codec: object, window: int = 1) -> AdaptiveBound | None:
        """Of "fixed:adaptive" (4 bits) or "fixed:adaptive:6"; None for all other codecs. Raises BadArgument.

        Release 0.1 called it "fixed:auto".
        """
        if not isinstance(codec, str) or not _codecs.is_adaptive(codec):
            return None
        word, adaptive, *rest = _codecs.renewed(codec).split(":")
        digits = rest[0] if rest else str(DEFAULT_BITS)
        fits = adaptive == _codecs.ADAPTIVE and len(rest) <= 1 and digits.isascii() and digits.isdigit()
        if not fits or not MIN_BITS <= int(digits) <= MAX_BITS:
            name = f"{word}:{_codecs.ADAPTIVE}"
            raise errors.bad_argument(f"codec {codec!r}: it is {name} or {name}:BITS, BITS {MIN_BITS} to {MAX_BITS}")
        bound = AdaptiveBound(int(digits), window)
        bound._codecs = bound._codecs._replace(word=word)
        return bound

    def codec(self) -> str:
        """Of the next operation: "raw", or "fixed:B"."""
        squares, steady, _ = self._state
        codecs = self._codecs
        if not steady:
            return codecs.exact
        # RMS is at least 2^exponent and less than twice that. In whole numbers, so no rounding of a logarithm matters.
        exponent = (math.frexp(min(squares))[1] - 1) // 2
        bound = self.bits - exponent
        if bound > codecs.most or exponent > MAX_EXPONENT:
            return codecs.exact
        return f"{codecs.word}:{max(bound, codecs.least)}"

    def update(self, result: NDArray[numpy.float32], scale: float = 1.0) -> None:
        """Takes in a result, the same on all ranks: float32 of any shape, C-contiguous.

        scale: 1 / world if it is a sum. Raises BadArgument for any other array.
        """
        self._state = *self._after(result, scale), self._user

    def update_mean(self, mean_square: float) -> None:
        """As update(), of a result of which ranks know parts only: the mean of the squares of all of its elements, as
        an average over the ranks, the same number on all of them."""
        self._state = *self._after_mean(mean_square), self._user

    def reset(self) -> None:
        """Forgets all results, so that the next operation is raw, and what it owes; on all ranks, after a failure."""
        if self._residual is not None:
            self._residual[...] = 0
        self._state = (), False, self._user

    def state_dict(self) -> dict[str, Any]:
        """What it knows, in plain numbers, for a checkpoint; with error feedback an array too, of this rank: float32,
        flat, or None before the first operation."""
        squares, steady, _ = self._state
        state = {"bits": self.bits, "squares": list(squares), "steady": steady}
        if self.error_feedback:
            state["residual"] = None if self._residual is None else numpy.array(self._residual)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from state_dict() of a bound with as many bits, window and error_feedback. Raises BadArgument."""
        squares = tuple(float(square) for square in state["squares"])
        if state["bits"] != self.bits:
            raise errors.bad_argument(f"the state is of a bound of {state['bits']} bits, this one has {self.bits}")
        if not all(0.0 < square < math.inf for square in squares) or len(squares) > self.window:
            raise errors.bad_argument(f"the state holds {squares}, not up to {self.window} mean squares")
        if ("residual" in state) != self.error_feedback:
            raise errors.bad_argument(
                f"the state is of a bound with error_feedback={'residual' in state}, this one has {self.error_feedback}"
            )
        residual = state.get("residual")
        if residual is not None:
            residual = numpy.array(residual, numpy.float32).ravel()
        self._residual = residual
        self._state = squares, bool(state["steady"]) and bool(squares), self._user

    def join(self, others: Sequence[AdaptiveBound]) -> None:
        """Goes on for a tensor made up of those of `others`: as fine as the finest, raw if one of them would be."""
        squares: tuple[float, ...] = ()
        if others and all(other._state[1] for other in others):
            squares = (min(min(other._state[0]) for other in others),)
        self._state = squares, bool(squares), self._user

    # ---- Private

    def _after(self, result: NDArray[numpy.float32], scale: float) -> tuple[tuple[float, ...], bool]:
        """What is known after a result."""
        if result.size == 0:
            return self._state[:2]
        return self._after_mean(sum_of_squares(result) / result.size * scale * scale)

    def _after_mean(self, mean: float) -> tuple[tuple[float, ...], bool]:
        squares, steady, _ = self._state
        if not 0.0 < mean < math.inf:  # NaN neither
            return (), False
        if squares:
            steady = mean >= min(squares) / CHANGE**2 and mean <= max(squares) * CHANGE**2
        else:
            steady = True
        return ((*squares, mean) if steady else (mean,))[-self.window:], steady

    # ---- For contexts

    @property
    def _user(self) -> Any:
        """The operation that it has chosen a codec for, if that has not ended."""
        return self._state[2]

    def _lend(self, operation: Scaled | None) -> None:
        self._state = *self._state[:2], operation

    def _take(self, operation: Scaled, result: NDArray[numpy.float32] | None) -> None:
        """The operation's result, or None if it failed; once."""
        if self._user is not operation:
            return
        if result is None:
            self.reset()
        squares, steady = ((), False) if result is None else self._after(result, operation.scale)
        self._state = squares, steady, None

    def _residual_in(self, context: Memory, size: int) -> NDArray[numpy.float32]:
        """The residual, in the memory of this context."""
        old = self._residual
        if old is not None and old.size != size:
            raise errors.bad_argument(
                f"the AdaptiveBound is of a tensor of {old.size} elements, this one has {size}: each needs its own"
            )
        block = None if old is None else _buffers.block_of(old)
        if old is not None and block is not None and block.connection is context._connection:
            return old
        new = _buffers.array_over(context._allocate(4 * size), (size,), numpy.float32)
        if old is not None:
            new[...] = old
        self._residual = new
        return new
