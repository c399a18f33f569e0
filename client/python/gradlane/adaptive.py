"""The bound of codec fixed that follows a tensor's magnitude from step to step: what "fixed:auto" stands for."""

import collections
import math

import numpy

from . import errors, library

NAME = "fixed:auto"
MIN_BITS, DEFAULT_BITS, MAX_BITS = 1, 4, 12
MAX_B = 30  # of fixed:B
CHANGE = 8.0  # a result that has grown or shrunk by more than this is no measure of the next one
MAX_EXPONENT = 12  # with fixed:1 and a larger RMS most values travel as fp32 anyway

_library = None


def sum_of_squares(array):
    """Of a float32 array, C-contiguous: the same bits on every rank that has the same array."""
    global _library
    if not isinstance(array, numpy.ndarray) or array.dtype != numpy.float32 or not array.flags.c_contiguous:
        what = f"an array of {array.dtype}" if isinstance(array, numpy.ndarray) else type(array).__name__
        raise errors.bad_argument(f"the result is {what}, not a C-contiguous NumPy array of float32")
    if _library is None:
        _library = library.load()
    return _library.gradlane_sum_of_squares(array.ctypes.data, array.size)


class AdaptiveBound:
    """Chooses B of fixed:B for each operation on one tensor, by the results of the operations before.

        bound = gradlane.AdaptiveBound()
        while training:
            gl.all_reduce(gradients, average=True, codec=bound.codec())
            bound.update(gradients)

    All ranks have the same bytes as a result, so all choose the same codec, with no message about it. They must update
    at the same points: before the next codec(), and one bound per tensor.

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

    def __init__(self, bits=DEFAULT_BITS, window=1):
        if isinstance(bits, bool) or not isinstance(bits, int) or not MIN_BITS <= bits <= MAX_BITS:
            raise errors.bad_argument(f"bits is {bits!r}; {MIN_BITS} to {MAX_BITS}")
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise errors.bad_argument(f"window is {window!r}; 1 or more results")
        self.bits = bits
        self.window = window
        self._squares = collections.deque(maxlen=window)  # means of squares, finite and above 0
        self._steady = False

    @staticmethod
    def parse(codec, window=1):
        """Of "fixed:auto" (4 bits) or "fixed:auto:6"; None for all other codecs. Raises BadArgument."""
        if not isinstance(codec, str) or not codec.startswith(NAME):
            return None
        rest = codec[len(NAME):]
        if rest == "":
            return AdaptiveBound(window=window)
        digits = rest[1:]
        if rest[0] != ":" or not (digits.isascii() and digits.isdigit()) or not MIN_BITS <= int(digits) <= MAX_BITS:
            raise errors.bad_argument(f"codec {codec!r}: it is {NAME} or {NAME}:BITS, BITS {MIN_BITS} to {MAX_BITS}")
        return AdaptiveBound(int(digits), window)

    def codec(self):
        """Of the next operation: "raw", or "fixed:B"."""
        if not self._steady:
            return "raw"
        # RMS is at least 2^exponent and less than twice that. In whole numbers, so no rounding of a logarithm matters.
        exponent = (math.frexp(min(self._squares))[1] - 1) // 2
        bound = self.bits - exponent
        if bound > MAX_B or exponent > MAX_EXPONENT:
            return "raw"
        return f"fixed:{max(bound, 1)}"

    def update(self, result, scale=1.0):
        """Takes in a result, the same on all ranks: float32, C-contiguous. scale: 1 / world if it is a sum."""
        if result.size == 0:
            return
        mean = sum_of_squares(result) / result.size * scale * scale
        if not 0.0 < mean < math.inf:  # NaN neither
            self.reset()
            return
        if self._squares:
            low, high = min(self._squares), max(self._squares)
            self._steady = mean >= low / CHANGE**2 and mean <= high * CHANGE**2
            if not self._steady:
                self._squares.clear()
        else:
            self._steady = True
        self._squares.append(mean)

    def reset(self):
        """Forgets all results, so that the next operation is raw; on all ranks, after one that failed say."""
        self._squares.clear()
        self._steady = False

    def state_dict(self):
        """What it knows, in plain numbers, for a checkpoint."""
        return {"bits": self.bits, "squares": list(self._squares), "steady": self._steady}

    def load_state_dict(self, state):
        """Goes on from state_dict() of a bound with as many bits."""
        squares = [float(square) for square in state["squares"]]
        if state["bits"] != self.bits:
            raise errors.bad_argument(f"the state is of a bound of {state['bits']} bits, this one has {self.bits}")
        if not all(0.0 < square < math.inf for square in squares) or len(squares) > self.window:
            raise errors.bad_argument(f"the state holds {squares}, not up to {self.window} mean squares")
        self._squares = collections.deque(squares, self.window)
        self._steady = bool(state["steady"]) and bool(squares)

    def join(self, others):
        """Goes on for a tensor made up of those of `others`: as fine as the finest, raw if one of them would be."""
        self.reset()
        if others and all(other._steady for other in others):
            self._squares.append(min(min(other._squares) for other in others))
            self._steady = True
