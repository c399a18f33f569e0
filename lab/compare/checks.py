# checks.py - checks of results against what their method promises (rank 0 of a job)

import hashlib

import numpy as np

from lab.compare import data

EPSILON = 2.0**-24  # fp32: half of the distance from 1 to the next value


def digest(values):
    return hashlib.blake2b(memoryview(np.ascontiguousarray(values)).cast("B"), digest_size=8).hexdigest()


class Reference:
    """The true sum over the ranks in float64, and the sum of magnitudes, to which relative errors refer."""

    def __init__(self, folder, name, ranks, numel):
        self.ranks = ranks
        self.total = np.zeros(numel, np.float64)
        self.magnitude = np.zeros(numel, np.float32)
        for rank in range(ranks):
            values = data.source(folder, name, rank, numel)
            self.total += values
            self.magnitude += np.abs(values)

    def tolerance(self, codec):
        """Returns the absolute tolerance for each value of the sum: the error in docs/codecs.md plus the rounding of
        fp32 additions. Raises ValueError for other codecs."""
        name, _, bits = codec.partition(":")
        hops = self.ranks + 1
        rounding = 2 * hops * EPSILON * self.magnitude
        if name == "raw":
            return rounding
        if name == "bf16":
            return rounding + hops * 2.0**-8 * self.magnitude
        # ranks encode terms of the mean; below 2^-14 a term has an error of 2^-25 at most, and the sum `ranks` times
        # that
        if name == "fp16":
            return rounding + hops * (2.0**-11 * self.magnitude + self.ranks * 2.0**-25)
        if name in ("fixed", "inceptionn"):
            return rounding + self.ranks * 2.0 ** -int(bits)
        raise ValueError(f"codec {codec}")

    def check(self, result, codec, average):
        """Returns the number of wrong values, and the largest error of the sum."""
        total = np.asarray(result, np.float64) * (self.ranks if average else 1)
        error = np.abs(total - self.total)
        wrong = ~(error <= self.tolerance(codec))
        return int(np.count_nonzero(wrong)), float(error.max())
