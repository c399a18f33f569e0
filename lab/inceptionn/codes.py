"""codes.py - INCEPTIONN's code to the letter and gradlane's in NumPy, and what they make of values"""

import numpy

BOUNDS = (6, 8, 10)
LEAST = -40  # exponent of the first bin of a histogram, which also has all smaller magnitudes but 0
PER_OCTAVE = 1000  # magnitudes of log_uniform()

# ---- Codes: float32 in, float32 out. tests/scripts/lab/inceptionn_test.py compares them with the golden vectors


def tags(values, bits):
    """Returns the paper's tag of each value, 0 to 3: 00 below 2^-bits, 01 below 2^-(bits // 2), 10 below 1, else 11."""
    return numpy.searchsorted([2.0**-bits, 2.0 ** -(bits // 2), 1.0], numpy.abs(values), side="right")


def literal(values, bits):
    """Returns what `inceptionn:B,literal` decodes to."""
    classes = tags(values, bits)
    bytes_, words = (numpy.trunc(values * 2.0**width) / 2.0**width for width in (7, 15))
    return numpy.select([classes == 0, classes == 1, classes == 2], [0, bytes_, words], values).astype(numpy.float32)


def bounded(values, bits):
    """Returns what `inceptionn:B` decodes to: rounded to 2^-15, and in the class of 8 bits to 2^-(7 + B // 2)."""
    half = bits // 2
    steps = numpy.rint(numpy.abs(values).astype(numpy.float64) * 2**15)
    byte = numpy.floor(steps / 2 ** (8 - half) + 0.5)
    sizes = numpy.select([steps < 2 ** (15 - bits), byte < 128], [0, byte * 2.0 ** -(7 + half)], steps * 2.0**-15)
    return numpy.where(steps < 2**15, numpy.copysign(sizes, values), values).astype(numpy.float32)


CODES = {"inceptionn:B": bounded, "inceptionn:B,literal": literal}


# ---- Figures


def log_uniform():
    """Returns magnitudes from 2^-14 to 1 whose logarithms are spread evenly."""
    return numpy.exp2(numpy.arange(-14 * PER_OCTAVE, 0) / PER_OCTAVE).astype(numpy.float32)


def loss(values, bits):
    """Returns, by code, the largest error in units of the bound 2^-bits, and the shares of non-zero values that become 0:
    of all, and of the 8-bit class (None if it is empty)."""
    found = {}
    in_class, given = tags(values, bits) == 1, values != 0
    for name, code in CODES.items():
        decoded = code(values, bits)
        lost = given & (decoded == 0)
        error = numpy.abs(decoded.astype(numpy.float64) - values).max() * 2.0**bits
        found[name] = {"error": float(error), "zeroed": float(lost.sum() / max(1, given.sum())),
                       "zeroed_of_class": float(lost[in_class].mean()) if in_class.any() else None}
    return found


def losses(values):
    return {str(bits): loss(values, bits) for bits in BOUNDS}


def histogram(magnitudes):
    """Returns the share of values in each octave from 2^LEAST to 1, and of those from 1 on. Zeros are in none."""
    exponents = numpy.frexp(magnitudes[magnitudes > 0])[1] - 1  # 2^exponent <= magnitude
    bins = numpy.clip(exponents, LEAST, 0) - LEAST
    return (numpy.bincount(bins, minlength=-LEAST + 1) / magnitudes.size).tolist()


def figures_of(values):
    """Returns the figures of a recording."""
    magnitudes = numpy.abs(values)
    median, high = numpy.quantile(magnitudes, (0.5, 0.999))
    return {
        "values": int(values.size), "zeros": float((values == 0).mean()), "median": float(median), "p999": float(high),
        "largest": float(magnitudes.max()), "histogram": histogram(magnitudes),
        "tags": {str(bits): (numpy.bincount(tags(values, bits), minlength=4) / values.size).tolist() for bits in BOUNDS},
        "loss": losses(values),
    }
