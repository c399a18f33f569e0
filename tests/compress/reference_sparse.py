#!/usr/bin/python3
# reference_sparse.py - a second implementation of the sparse codecs of docs/codec-format.md, in exact arithmetic
"""Implements topk, mstopk, dgc and graddrop on fp32 bit patterns: their selection, their states, and sparse records."""
from fractions import Fraction

from reference_codec import BAD_ESCAPE, BAD_TAIL, LONG, MAX_PACKET, OK, SHORT, Codec
from reference_floats import CANONICAL_NAN, FP32, add

RECORD, BITMAP, WHOLE, MOST_WIDTH = 256, 255, 32, 25
BIN_SHIFT, BINS, MILLION = 19, 4096, 10**6
NONZERO = 1  # the least magnitude, as bits
WIRE = {"topk": 12, "mstopk": 13, "dgc": 14, "graddrop": 15}
MASK64 = 2**64 - 1


def mixed(seed):
    """Returns the SplitMix64 hash of a seed."""
    seed = (seed + 0x9E3779B97F4A7C15) & MASK64
    seed = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & MASK64
    seed = ((seed ^ seed >> 27) * 0x94D049BB133111EB) & MASK64
    return seed ^ seed >> 31


def times(a, b):
    return FP32.round(FP32.value(a) * FP32.value(b), FP32.negative(a) != FP32.negative(b))


def magnitude(bits):
    return bits & 0x7FFFFFFF


class Choice:
    """Selects the elements to send: all from magnitude `upper` on, and those from `threshold` on at positions `first`
    to `until`."""

    def __init__(self, threshold, upper=None, first=0, until=0):
        self.threshold, self.upper = threshold, threshold if upper is None else upper
        self.first, self.until = first, until

    def takes(self, x, position):
        size = magnitude(x)
        return size >= self.upper or (size >= self.threshold and self.first <= position < self.until)


class Sparse(Codec):
    granule = RECORD
    feedback = True

    def __init__(self, name, word, rate, momentum=None, value_bits=0):
        super().__init__(name, WIRE[word], 0)
        self.word, self.rate, self.momentum, self.value_bits = word, rate, momentum, value_bits
        self.step = Fraction(2) ** (1 - value_bits) if value_bits else None
        # The least magnitude that is sent: it is not 0, and does not become 0 on the lattice.
        self.least = FP32.round(self.step / 2) + 1 if value_bits else NONZERO

    # ---- Selection

    def x(self, bits, residual, second):
        """Returns (values from which it selects, second state)."""
        residual = [0] * len(bits) if residual is None else residual
        if self.momentum is None:
            return [add(g, r) for g, r in zip(bits, residual)], second
        second = [add(times(u, self.momentum), g) for u, g in zip(second or [0] * len(bits), bits)]
        return [add(r, u) for r, u in zip(residual, second)], second

    def scan(self, bits, residual=None, second=None):
        x, _ = self.x(bits, residual, second)
        finite = [magnitude(f) for f in x if FP32.is_finite(f)]
        counts = [0] * BINS
        for size in finite:
            counts[size >> BIN_SHIFT] += 1
        wanted = max(1, (len(finite) * self.rate + MILLION // 2) // MILLION)
        cut, above = BINS - 1, 0
        while cut and above + counts[cut] < wanted:
            above += counts[cut]
            cut -= 1
        inside, low = counts[cut], cut << BIN_SHIFT
        if self.word == "mstopk":
            return self.exact_choice(x, wanted - min(wanted, above), inside, low)
        if cut and inside:
            width = min(max(finite) - low, 1 << BIN_SHIFT)
            low += (inside - min(wanted - above, inside)) * width // inside
        return Choice(max(low, self.least))

    def exact_choice(self, x, some, inside, low):
        if low < self.least or some >= inside:
            return Choice(max(low, self.least))
        start = mixed(0) % (inside - some + 1)
        upper = low + (1 << BIN_SHIFT)
        places = [i for i, f in enumerate(x) if low <= magnitude(f) < upper]
        return Choice(low, upper, places[start], places[start + some - 1] + 1)

    def sent(self, x):
        if not FP32.is_finite(x):
            return CANONICAL_NAN if FP32.is_nan(x) else x
        value = FP32.value(x)
        if not self.value_bits or abs(value) >= 2**23 * self.step:
            return x
        return FP32.round(round(value / self.step) * self.step)

    def contribute(self, bits, residual, second, choice):
        """Returns (values to send, which are 0 for elements that are not sent; first state afterwards; second state
        afterwards)."""
        choice = choice or Choice(self.least)
        x, second_after = self.x(bits, residual, second)
        chosen = [choice.takes(f, i) for i, f in enumerate(x)]
        sent = [self.sent(f) if take else 0 for f, take in zip(x, chosen)]
        after = [f if not take else 0 if not FP32.is_finite(f) else FP32.round(FP32.value(f) - FP32.value(s))
                 for f, take, s in zip(x, chosen, sent)]
        second_after = [0 if take else u for take, u in zip(chosen, second_after or x)]
        return sent, after, second_after

    def encode(self, bits, room=None, residual=None, second=None, choice=None):
        """Returns (floats consumed, block, residual after). Afterwards, `second_after` is the other state."""
        sent, after, second_after = self.contribute(bits, residual, second, choice)
        taken, block = self.write(sent, self.max_bytes(len(bits)) if room is None else room)
        self.second_after = None if second is None else second_after[:taken] + second[taken:]
        return taken, block, None if residual is None else after[:taken] + residual[taken:]

    def hop(self, block, local, room=None, residual=None, first=0, choice=None):
        status, values = self.decode(block, len(local))
        if status != OK:
            return status, 0, b"", residual
        sent, after, _ = self.contribute(local, residual, None, choice)
        sums = [add(v, s) for v, s in zip(values, sent)]
        taken, result = self.write(sums[first:], self.max_bytes(len(local) - first) if room is None else room)
        if residual is not None:
            residual = residual[:first] + after[first : first + taken] + residual[first + taken :]
        return OK, taken, result, residual

    # ---- Records

    def longest(self, floats):
        return 1 + (floats + 7) // 8 + (1 if self.value_bits else 0) + 4 * floats

    def max_bytes(self, floats):
        return floats // RECORD * self.longest(RECORD) + (self.longest(floats % RECORD) if floats % RECORD else 0)

    def write(self, bits, room):
        if room < self.max_bytes(len(bits)):
            room = min(room, MAX_PACKET)
        block, taken = b"", 0
        for start in range(0, len(bits), RECORD):
            record = self.record(bits[start : start + RECORD])
            if len(block + record) > room:
                break
            block, taken = block + record, min(start + RECORD, len(bits))
        return taken, block

    def record(self, bits):
        places = [i for i, f in enumerate(bits) if magnitude(f)]
        if len(places) <= (len(bits) + 7) // 8:
            head = bytes([len(places), *places])
        else:
            head = bytes([BITMAP]) + sum(1 << i for i in places).to_bytes((len(bits) + 7) // 8, "little")
        if not places or not self.value_bits:
            return head + b"".join(bits[i].to_bytes(4, "little") for i in places)
        width, values = self.values([bits[i] for i in places])
        word = sum((v & ((1 << width) - 1)) << (width * i) for i, v in enumerate(values))
        return head + bytes([width]) + word.to_bytes((width * len(values) + 7) // 8, "little")

    def values(self, bits):
        """Returns (width, integers): steps in two's complement if all values are multiples of the step below 2^24
        steps, else the floats."""
        if not all(FP32.is_finite(f) for f in bits):
            return WHOLE, bits
        steps = [FP32.value(f) / self.step for f in bits]
        if any(q.denominator != 1 or abs(q) >= 2**24 for q in steps):
            return WHOLE, bits
        return max((int(q) if q > 0 else -int(q) - 1).bit_length() + 1 for q in steps), [int(q) for q in steps]

    def records(self, block, floats):
        """Returns (status, floats)."""
        values, at = [], 0
        for start in range(0, floats, RECORD):
            status, at = self.read_record(block, at, min(RECORD, floats - start), values)
            if status != OK:
                return status, None
        return (OK if at == len(block) else LONG), values

    def read_record(self, block, at, floats, values):
        if at >= len(block):
            return SHORT, at
        count, bitmap = block[at], (floats + 7) // 8
        if bitmap < count < BITMAP:
            return BAD_ESCAPE, at
        head = block[at + 1 : at + 1 + (bitmap if count == BITMAP else count)]
        if len(head) < (bitmap if count == BITMAP else count):
            return SHORT, at
        at += 1 + len(head)
        places = list(head)
        if count == BITMAP:
            word = int.from_bytes(head, "little")
            places = [i for i in range(8 * bitmap) if word >> i & 1]
        if places != sorted(set(places)) or (places and places[-1] >= floats):
            return BAD_TAIL, at
        width = WHOLE
        if self.value_bits and places:
            if at >= len(block):
                return SHORT, at
            width, at = block[at], at + 1
            if width == 0 or MOST_WIDTH < width != WHOLE:
                return BAD_ESCAPE, at
        size = (width * len(places) + 7) // 8
        if len(block) - at < size:
            return SHORT, at
        word = int.from_bytes(block[at : at + size], "little")
        found = [0] * floats
        for i, place in enumerate(places):
            code = word >> (width * i) & ((1 << width) - 1)
            if width != WHOLE:
                code -= (code >> (width - 1)) << width
                code = FP32.round(code * self.step)
            found[place] = code
        values += found
        return OK, at + size

    def validate(self, block, floats):
        return self.records(block, floats)[0]

    def read(self, block, floats):
        return self.records(block, floats)[1]

    def decode_add(self, block, accumulator):
        """Adds a block's values. Sums that have no value in the block do not change, not even a NaN."""
        status, values = self.decode(block, len(accumulator))
        return status, [add(a, v) if magnitude(v) else a for a, v in zip(accumulator, values)] if status == OK else None


def find_codec(name):
    """Returns the sparse codec of a name in golden vectors, WORD:PERCENT%[,m=M][+fixed:B]; None if it is no such name.
    """
    head, _, lattice = name.partition("+fixed:")
    word, _, rest = head.partition(":")
    if word not in WIRE:
        return None
    percent, *options = rest.split(",")
    momentum = None
    if word == "dgc":
        momentum = FP32.round(Fraction(options[0][2:] if options else "0.9"))
    return Sparse(name, word, int(Fraction(percent[:-1]) * MILLION / 100), momentum, int(lattice or 0))
