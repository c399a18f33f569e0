"""Bound of codec fixed that follows a tensor's magnitude from step to step. It implements "fixed:adaptive"."""

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
CHANGE = 8.0  # factor; a result whose RMS has changed by more does not predict the next one
MAX_EXPONENT = 12  # largest binary exponent of the RMS; above it, most values are sent as fp32 even with fixed:1

_loaded: ctypes.CDLL | None = None


def sum_of_squares(array: NDArray[numpy.float32]) -> float:
    """Returns the sum of squares of a float32 array of any shape, C-contiguous.

    The bits are the same on all ranks that have the same array. The result is NaN or infinity if the array has one of
    these. Raises BadArgument for any other array.
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
    """Chooses B of fixed:B for each operation on one tensor, from the results of earlier operations.

        bound = gradlane.AdaptiveBound(error_feedback=True)      # one per tensor, kept from step to step
        while training:
            gl.all_reduce(gradients, average=True, codec=bound)

    The bound uses the result when the operation ends. This is when all_reduce() returns, or, for an asynchronous one,
    when wait() returns or done() returns True. So only one operation in flight can have the bound. All ranks have the
    same bytes as a result, so all choose the same codec without a message. They must use their bounds for the same
    operations, and wait for each before the next. An operation that has failed resets the bound. It may fail on some
    ranks only, so call reset() on all ranks before going on.

    `bits`: see below. `window`: number of latest results that the bound uses. `error_feedback`: whether rounding errors
    are kept as a residual and added in the next step. A step that is raw adds the whole residual.

    Without all_reduce(), call codec() for the codec of the next operation, and update() with its result.

    The guarantee: the average over the ranks is off by at most 2^-bits times the RMS of the previous result, in every
    element. If window is n, the smallest RMS of the previous n results counts. This holds for sums within the range of
    fixed:B, which is at least 2^(25 - bits) times that RMS. Larger sums are rounded as fp32 sums are. If the tensor's
    RMS has shrunk to 1/k of that RMS, the error is up to k 2^-bits of its own RMS. If k is more than 2^bits, all of the
    tensor may be lost in this one step, or delayed with error feedback. Elements far below the RMS of their tensor
    become zero, for as long as they stay so small.

    The next operation is raw in the cases below. Raw sums are exact but for the rounding of fp32.
    - There is no result yet, or none since reset().
    - The latest result is all zeros or has a NaN or Inf in it.
    - The RMS of the latest result is more than 8 times each RMS in the window, or less than 1/8 of each.
    - The codec fixed has no bound that is fine enough (2^-bits RMS below 2^-30), or would not send fewer bytes (RMS of
      8192 or more).
    """

    _codecs = _codecs.ASSUMED  # until a context, which knows the daemon's codecs, uses it

    def __init__(self, bits: int = DEFAULT_BITS, window: int = 1, *, error_feedback: bool = False) -> None:
        self.bits = _arguments.whole("bits", bits, MIN_BITS, MAX_BITS)
        self.window = _arguments.whole("window", window, 1, 1 << 31)
        self.error_feedback = _arguments.flag("error_feedback", error_feedback)
        # `_state` has the mean squares of the results in the window (finite and above 0), whether they predict the next
        # result, and the operation in flight that will have this result. It is one tuple, so that no exception in
        # between can change only a part of it.
        self._state: tuple[tuple[float, ...], bool, Scaled | None] = (), False, None
        self._residual: NDArray[numpy.float32] | None = None

    def __repr__(self) -> str:
        options = f"bits={self.bits}, window={self.window}, error_feedback={self.error_feedback}"
        return f"<gradlane.AdaptiveBound({options}): next codec {self.codec()!r}>"

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for copies, without the operation in flight: it reports its result to the original only."""
        return {**self.__dict__, "_state": (*self._state[:2], None)}

    @staticmethod
    def parse(codec: object, window: int = 1) -> AdaptiveBound | None:
        """Returns the bound for "fixed:adaptive" (4 bits) or "fixed:adaptive:6"; None for all other codecs.

        Release 0.1 called it "fixed:auto". Raises BadArgument for a wrong number of bits.
        """
        if not isinstance(codec, str) or not _codecs.is_adaptive(codec):
            return None
        word, adaptive, *rest = _codecs.renewed(codec).split(":")
        digits = rest[0] if rest else str(DEFAULT_BITS)
        fits = adaptive == _codecs.ADAPTIVE and len(rest) <= 1 and digits.isascii() and digits.isdigit()
        if not fits or not MIN_BITS <= int(digits) <= MAX_BITS:
            name = f"{word}:{_codecs.ADAPTIVE}"
            raise errors.bad_argument(f"codec {codec!r}; allowed: {name} or {name}:BITS, BITS {MIN_BITS} to {MAX_BITS}")
        bound = AdaptiveBound(int(digits), window)
        bound._codecs = bound._codecs._replace(word=word)
        return bound

    def codec(self) -> str:
        """Returns the codec of the next operation: "raw", or "fixed:B"."""
        squares, steady, _ = self._state
        codecs = self._codecs
        if not steady:
            return codecs.exact
        # The RMS is at least 2^exponent and less than twice that. Integers are used, so no rounding of a logarithm
        # matters.
        exponent = (math.frexp(min(squares))[1] - 1) // 2
        bound = self.bits - exponent
        if bound > codecs.most or exponent > MAX_EXPONENT:
            return codecs.exact
        return f"{codecs.word}:{max(bound, codecs.least)}"

    def update(self, result: NDArray[numpy.float32], scale: float = 1.0) -> None:
        """Updates the bound with a result, the same on all ranks: float32 of any shape, C-contiguous.

        scale: 1 / world if the result is a sum, 1 if it is an average. Raises BadArgument for any other array.
        """
        self._state = *self._after(result, scale), self._user

    def update_mean(self, mean_square: float) -> None:
        """Does the same as update() if each rank knows only a part of the result.

        `mean_square`: mean of the squares of all elements, as an average over the ranks. It must be the same on all
        ranks.
        """
        self._state = *self._after_mean(mean_square), self._user

    def reset(self) -> None:
        """Forgets all results and the residual, so that the next operation is raw. Call it on all ranks, after a
        failure."""
        if self._residual is not None:
            self._residual[...] = 0
        self._state = (), False, self._user

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for a checkpoint, in plain numbers.

        With error feedback it also has this rank's residual: a flat float32 array, or None before the first operation.
        """
        squares, steady, _ = self._state
        state = {"bits": self.bits, "squares": list(squares), "steady": steady}
        if self.error_feedback:
            state["residual"] = None if self._residual is None else numpy.array(self._residual)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from state_dict() of a bound with the same bits, window and error_feedback. Raises BadArgument."""
        squares = tuple(float(square) for square in state["squares"])
        if state["bits"] != self.bits:
            raise errors.bad_argument(f"the state is from a bound with {state['bits']} bits, this one has {self.bits}")
        if not all(0.0 < square < math.inf for square in squares) or len(squares) > self.window:
            raise errors.bad_argument(
                f"the state holds {squares}; allowed: up to {self.window} mean squares, positive and finite"
            )
        if ("residual" in state) != self.error_feedback:
            raise errors.bad_argument(
                f"the state is from a bound with error_feedback={'residual' in state}, this one has "
                f"{self.error_feedback}"
            )
        residual = state.get("residual")
        if residual is not None:
            residual = numpy.array(residual, numpy.float32).ravel()
        self._residual = residual
        self._state = squares, bool(state["steady"]) and bool(squares), self._user

    def join(self, others: Sequence[AdaptiveBound]) -> None:
        """Makes this the bound of a tensor that joins the tensors of `others`. It becomes as fine as the finest of
        their bounds.

        The next operation is raw if the results of one of them do not predict its next one, or if the finest bound
        would be too fine.
        """
        squares: tuple[float, ...] = ()
        if others and all(other._state[1] for other in others):
            squares = (min(min(other._state[0]) for other in others),)
        self._state = squares, bool(squares), self._user

    # ---- Private

    def _after(self, result: NDArray[numpy.float32], scale: float) -> tuple[tuple[float, ...], bool]:
        """Returns the mean squares after a result, and whether they predict the next one."""
        if result.size == 0:
            return self._state[:2]
        return self._after_mean(sum_of_squares(result) / result.size * scale * scale)

    def _after_mean(self, mean: float) -> tuple[tuple[float, ...], bool]:
        squares, steady, _ = self._state
        if not 0.0 < mean < math.inf:  # false for NaN, too
            return (), False
        if squares:
            steady = mean >= min(squares) / CHANGE**2 and mean <= max(squares) * CHANGE**2
        else:
            steady = True
        return ((*squares, mean) if steady else (mean,))[-self.window:], steady

    # ---- For contexts

    @property
    def _user(self) -> Any:
        """The operation in flight for which the bound has chosen a codec, or None."""
        return self._state[2]

    def _lend(self, operation: Scaled | None) -> None:
        self._state = *self._state[:2], operation

    def _take(self, operation: Scaled, result: NDArray[numpy.float32] | None) -> None:
        """Updates the bound with the operation's result, unless that was done before. None: the operation has failed.
        """
        if self._user is not operation:
            return
        if result is None:
            self.reset()
        squares, steady = ((), False) if result is None else self._after(result, operation.scale)
        self._state = squares, steady, None

    def _residual_in(self, context: Memory, size: int) -> NDArray[numpy.float32]:
        """Returns the residual, in the memory of this context. Raises BadArgument if it has another size."""
        old = self._residual
        if old is not None and old.size != size:
            raise errors.bad_argument(
                f"the AdaptiveBound belongs to a tensor of {old.size} elements, this one has {size}: use one per tensor"
            )
        block = None if old is None else _buffers.block_of(old)
        if old is not None and block is not None and block.connection is context._connection:
            return old
        new = _buffers.array_over(context._allocate(4 * size), (size,), numpy.float32)
        if old is not None:
            new[...] = old
        self._residual = new
        return new
