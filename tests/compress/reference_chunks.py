# reference_chunks.py - chunks and baselines of docs/codec-format.md in exact arithmetic; reference_codec.py has the rest
"""Implements onebit, qsgd, int8, fp8, trunc and deflate on fp32 bit patterns. It only reads blocks of deflate."""
import struct
import zlib
from fractions import Fraction

from reference_codec import BAD_ESCAPE, BAD_TAIL, LONG, MAX_PACKET, OK, SHORT, Codec, compare_length
from reference_floats import CANONICAL_NAN, FP32, add

SIGN = 0x80000000
LARGEST = 0x7F7FFFFF
NAN_HEAD = 0x7FC00000
LANES = 16
ONE_LESS = Fraction(1) - Fraction(1, 2**20)


# ---- Single fp32 operations: operands must be finite, except those of add()

def fp32(value):
    return FP32.round(Fraction(value))


def mul(a, b):
    return FP32.round(FP32.value(a) * FP32.value(b), FP32.negative(a) != FP32.negative(b))


def div(a, b):
    return FP32.round(FP32.value(a) / FP32.value(b), FP32.negative(a) != FP32.negative(b))


def sub(a, b):
    return add(a, b ^ SIGN)


def magnitude(bits):
    return bits & ~SIGN


def step_of(largest, steps):
    """Returns the step of which `steps` reach `largest`; 0 if it would be denormal. Near the end of the range of floats
    it is slightly smaller."""
    step = mul(largest, div(fp32(1), fp32(steps)))
    if FP32.value(largest) >= 2**124:
        step = mul(step, fp32(ONE_LESS))
    return 0 if FP32.value(step) < Fraction(1, 2**126) else step


def per_step(step):
    return div(fp32(1), step) if step else 0


def pack(codes, width):
    number = sum(code << (i * width) for i, code in enumerate(codes))
    return number.to_bytes((len(codes) * width + 7) // 8, "little")


def unpack(data, width, count):
    number = int.from_bytes(data, "little")
    return [number >> (i * width) & ((1 << width) - 1) for i in range(count)]


# ---- Chunks

class Chunked(Codec):
    """The base of codecs in chunks. A subclass defines heads, width, measure(), code() and value()."""

    feedback = True

    def __init__(self, name, wire_id, param, chunk):
        super().__init__(name, wire_id, param)
        self.granule = chunk

    def size(self, floats, escaped):
        return 4 * self.heads + (floats * (max(self.width, 2) if escaped else self.width) + 7) // 8

    def chunks(self, floats):
        return [min(self.granule, floats - at) for at in range(0, floats, self.granule)]

    def max_bytes(self, floats):
        return sum(self.size(count, True) for count in self.chunks(floats))

    def write_chunk(self, x):
        """Returns (bytes, residuals)."""
        if all(map(FP32.is_finite, x)):
            heads = self.measure(x)
            codes = [self.code(heads, f) for f in x]
            width, owed = self.width, [sub(f, self.value(heads, code)) for f, code in zip(x, codes)]
        else:
            heads = [NAN_HEAD] + [0] * (self.heads - 1)
            codes = [0 if FP32.is_finite(f) else 3 if FP32.is_nan(f) else 2 if f & SIGN else 1 for f in x]
            width, owed = max(self.width, 2), [f if FP32.is_finite(f) else 0 for f in x]
        return struct.pack("<%dI" % self.heads, *heads) + pack(codes, width), owed

    def write_all(self, x, room, residual):
        room = room if room >= self.max_bytes(len(x)) else min(room, MAX_PACKET)
        block, left = b"", []
        for count in self.chunks(len(x)):
            part, owed = self.write_chunk(x[len(left) : len(left) + count])
            if len(block) + len(part) > room:
                break
            block, left = block + part, left + owed
        return len(left), block, None if residual is None else left + residual[len(left) :]

    def encode(self, bits, room=None, residual=None):
        return self.write_all(self.owe(bits, residual), self.max_bytes(len(bits)) if room is None else room, residual)

    def hop(self, block, local, room=None, residual=None, first=0):
        status, values = self.decode(block, len(local))
        if status != OK:
            return status, 0, b"", residual
        sums = [add(v, x) for v, x in zip(values, self.owe(local, residual))][first:]
        room = self.max_bytes(len(sums)) if room is None else room
        taken, result, left = self.write_all(sums, room, residual if residual is None else residual[first:])
        return OK, taken, result, left if left is None else residual[:first] + left

    def split(self, block, floats):
        """Returns (status, [(heads, codes)]) of all chunks."""
        parts = []
        for count in self.chunks(floats):
            if len(block) < 4 * self.heads:
                return SHORT, None
            heads = list(struct.unpack_from("<%dI" % self.heads, block))
            escaped = FP32.is_nan(heads[0])
            size = self.size(count, escaped)
            if len(block) < size:
                return SHORT, None
            codes = unpack(block[4 * self.heads : size], max(self.width, 2) if escaped else self.width, count)
            parts.append((heads, codes))
            block = block[size:]
        return (LONG if block else OK), parts

    def validate(self, block, floats):
        return self.split(block, floats)[0]

    def read(self, block, floats):
        special = [0, FP32.inf, FP32.inf | SIGN, CANONICAL_NAN]
        return [special[code & 3] if FP32.is_nan(heads[0]) else self.value(heads, code)
                for heads, codes in self.split(block, floats)[1] for code in codes]


class OneBit(Chunked):
    heads, width = 2, 1

    def __init__(self, name, chunk):
        super().__init__(name, 16, 0, chunk)

    @staticmethod
    def total(x):
        """Returns the sum of x / 1024 in fp32. There are 16 partial sums. They are added in pairs: i and i + 8, i and i
        + 4, ..."""
        lanes = [0] * LANES
        for i, f in enumerate(x):
            lanes[i % LANES] = add(lanes[i % LANES], mul(f, fp32(Fraction(1, 1024))))
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [add(a, b) for a, b in zip(lanes[:half], lanes[half:])]
        return lanes[0]

    def mean(self, x, count):
        if count == 0:
            return 0
        mean = mul(div(self.total(x), fp32(count)), fp32(1024))
        return mean if FP32.is_finite(mean) else LARGEST | (mean & SIGN)

    def measure(self, x):
        negative = [self.code(None, f) == 0 for f in x]
        low = self.mean([f if n else 0 for f, n in zip(x, negative)], sum(negative))
        return [low, self.mean([0 if n else f for f, n in zip(x, negative)], len(x) - sum(negative))]

    def code(self, _, f):
        return 0 if FP32.value(f) < 0 else 1

    def value(self, heads, code):
        return heads[code]


class Qsgd(Chunked):
    heads = 2

    def __init__(self, name, bits, bucket):
        super().__init__(name, 17, bits, bucket)
        self.width = bits

    def measure(self, x):
        half = fp32(Fraction(1, 2))
        least = add(mul(min(x, key=FP32.value), half), 0)
        return [least, step_of(sub(mul(max(x, key=FP32.value), half), least), 2**self.width - 1)]

    def code(self, heads, f):
        y = mul(sub(mul(f, fp32(Fraction(1, 2))), heads[0]), per_step(heads[1]))
        return round(FP32.value(y)) & 0xFF

    def value(self, heads, code):
        half = add(mul(fp32(code), heads[1]), heads[0])
        return add(half, half)


class Int8(Chunked):
    heads, width = 1, 8

    def __init__(self, name, chunk):
        super().__init__(name, 18, 0, chunk)

    def measure(self, x):
        return [step_of(max(map(magnitude, x)), 127)]

    def code(self, heads, f):
        return round(FP32.value(mul(f, per_step(heads[0])))) & 0xFF

    def value(self, heads, code):
        return mul(fp32(code - 256 if code >= 128 else code), heads[0])


class Fp8(Chunked):
    heads, width = 1, 8

    def __init__(self, name, chunk):
        super().__init__(name, 19, 0, chunk)

    def measure(self, x):
        return [step_of(max(map(magnitude, x)), 448)]

    def code(self, heads, f):
        y = mul(f, per_step(heads[0]))
        size = FP32.value(magnitude(y))
        exponent = -6
        while size >= Fraction(2) ** (exponent + 1):
            exponent += 1
        units = round(size / Fraction(2) ** (exponent - 3))
        return ((exponent + 6) << 3) + units | (0x80 if y & SIGN else 0)

    def value(self, heads, code):
        exponent, fraction = code >> 3 & 15, code & 7
        size = Fraction(fraction + (8 if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - 10)
        return mul(fp32(size), heads[0]) | (SIGN if code & 0x80 else 0)


# ---- Baselines

class Trunc(Codec):
    granule = 32

    def __init__(self, name, bits):
        super().__init__(name, 20, bits)

    def max_bytes(self, floats):
        return (floats * self.param + 7) // 8

    def validate(self, block, floats):
        return compare_length(len(block), self.max_bytes(floats))

    def write(self, bits, room):
        taken = len(bits)
        if room < self.max_bytes(taken):
            taken = min(taken, min(room, MAX_PACKET) * 8 // self.param // 32 * 32)
        quiet = [f | 0x400000 if FP32.is_nan(f) else f for f in bits[:taken]]
        return taken, pack([f >> (32 - self.param) for f in quiet], self.param)

    def read(self, block, floats):
        return [f << (32 - self.param) for f in unpack(block, self.param, floats)]


class Deflate(Codec):
    """Reads blocks of deflate. record() makes the kinds of records that an encoder may write."""

    granule = 32
    most = 2048

    def __init__(self, name):
        super().__init__(name, 21, 0)

    def max_bytes(self, floats):
        return 4 * floats + 2 * -(-floats // self.most)

    @staticmethod
    def record(bits, deflated):
        data = struct.pack("<%dI" % len(bits), *bits)
        if not deflated:
            return struct.pack("<H", len(bits)) + data
        coder = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = coder.compress(data) + coder.flush()
        return struct.pack("<HH", len(bits) | 0x8000, len(packed)) + packed

    def split(self, block, floats):
        out = []
        while len(out) < floats:
            if len(block) < 2:
                return SHORT, None
            head = struct.unpack_from("<H", block)[0]
            count, at = head & 0x7FFF, 2
            if count == 0 or count > self.most:
                return BAD_ESCAPE, None
            if count > floats - len(out):
                return BAD_TAIL, None
            length = 4 * count
            if head & 0x8000:
                if len(block) < 4:
                    return SHORT, None
                length, at = struct.unpack_from("<H", block, 2)[0], 4
            if len(block) < at + length:
                return SHORT, None
            data = block[at : at + length]
            if head & 0x8000:
                inflater = zlib.decompressobj(-15)
                try:
                    data = inflater.decompress(data)
                except zlib.error:
                    return BAD_ESCAPE, None
                if not inflater.eof or inflater.unused_data or len(data) != 4 * count:
                    return BAD_ESCAPE, None
            out += struct.unpack("<%dI" % count, data)
            block = block[at + length :]
        return (LONG if block else OK), out

    def validate(self, block, floats):
        return self.split(block, floats)[0]

    def read(self, block, floats):
        return self.split(block, floats)[1]


def find_codec(name):
    """Returns the codec of a text name; None if it is not one of these."""
    word, _, rest = name.partition(":")
    number, _, bucket = rest.partition("/")
    if word == "qsgd":
        return Qsgd(name, int(number), int(bucket or 512))
    if word in ("onebit", "int8", "fp8"):
        return {"onebit": OneBit, "int8": Int8, "fp8": Fp8}[word](name, int(number or 256))
    if word == "trunc":
        return Trunc(name, int(number))
    return Deflate(name) if name == "deflate" else None
