#!/usr/bin/python3
# reference_codec.py - a second implementation of the codecs of docs/codec-format.md, in exact arithmetic, to check the
# C++ code
"""Implements the codecs of docs/codec-format.md on fp32 bit patterns, in integers and fractions. It is slow, and has no
float operation.

Floats are ints (the 32 bits of an fp32), blocks are bytes.
"""
import argparse
import struct
import sys
from fractions import Fraction

from reference_floats import BF16, FP16, FP32, add, bits_of, floats_of

OK, SHORT, LONG, BAD_TAIL, BAD_ESCAPE = "ok", "short", "long", "bad-tail", "bad-escape"
GROUP = 32
TAG_BYTES = 8
MAX_PACKET = 16384
PAYLOAD_WIDTH = (0, 1, 2, 4)


class Codec:
    """The base of all codecs. A subclass defines granule, feedback, validate, max_bytes, read and write."""

    feedback = False
    form = FP32  # the format of the floats
    add = staticmethod(add)

    def __init__(self, name, wire_id, param):
        self.name, self.wire_id, self.param = name, wire_id, param

    def contribution(self, bits):
        return bits

    def owe(self, bits, residual):
        """Returns the floats to encode: `bits` plus the residual."""
        if residual is None:
            return bits
        assert self.feedback
        return [add(f, r) for f, r in zip(bits, residual)]

    def left_over(self, residual, owed, taken):
        """Returns the residual after the first `taken` floats were encoded."""
        if residual is None:
            return None
        result = list(residual)
        for i in range(taken):
            result[i] = 0
            if FP32.is_finite(owed[i]):
                rest = FP32.value(owed[i]) - FP32.value(self.contribution(owed[i]))
                result[i] = FP32.round(rest)
                assert FP32.value(result[i]) == rest, "residual is not exact"
        return result

    def encode(self, bits, room=None, residual=None):
        """Returns (floats consumed, block, residual after)."""
        room = self.max_bytes(len(bits)) if room is None else room
        owed = self.owe(bits, residual)
        taken, block = self.write(owed, room)
        return taken, block, self.left_over(residual, owed, taken)

    def decode(self, block, floats):
        """Returns (status, floats)."""
        status = self.validate(block, floats)
        return status, self.read(block, floats) if status == OK else None

    def decode_add(self, block, accumulator):
        """Returns (status, sums)."""
        status, values = self.decode(block, len(accumulator))
        return status, [self.add(a, v) for a, v in zip(accumulator, values)] if status == OK else None

    def hop(self, block, local, room=None, residual=None, first=0):
        """Returns (status, floats consumed from first on, block, residual after)."""
        assert first % self.granule == 0
        status, values = self.decode(block, len(local))
        if status != OK:
            return status, 0, b"", residual
        room = self.max_bytes(len(local) - first) if room is None else room
        owed = self.owe(local, residual)
        sums = [self.add(v, self.contribution(x)) for v, x in zip(values, owed)]
        taken, result = self.write(sums[first:], room)
        if residual is not None:
            residual = residual[:first] + self.left_over(residual[first:], owed[first:], taken)
        return OK, taken, result, residual


def compare_length(have, want):
    return OK if have == want else SHORT if have < want else LONG


class FlatCodec(Codec):
    """raw, bf16, fp16: one word per float."""

    granule = 1
    ids = {"raw": (0, FP32), "bf16": (1, BF16), "fp16": (2, FP16)}

    def __init__(self, name):
        wire_id, self.format = self.ids[name]
        super().__init__(name, wire_id, 0)
        self.width = self.format.width // 8
        # Number of fraction bits of an fp32 that this format does not have.
        self.dropped = FP32.fraction_bits - self.format.fraction_bits

    def max_bytes(self, floats):
        return floats * self.width

    def validate(self, block, floats):
        return compare_length(len(block), self.max_bytes(floats))

    def narrow(self, bits):
        to, negative = self.format, FP32.negative(bits)
        if to is FP32:
            return bits
        if FP32.is_nan(bits):
            fraction = bits % (1 << FP32.fraction_bits) >> self.dropped
            return to.with_sign(to.inf | to.quiet | fraction, negative)
        if FP32.is_inf(bits):
            return to.with_sign(to.inf, negative)
        return to.round(FP32.value(bits), negative)

    def widen(self, word):
        source, negative = self.format, self.format.negative(word)
        if source is FP32:
            return word
        if source.is_nan(word):
            fraction = word % (1 << source.fraction_bits) << self.dropped
            return FP32.with_sign(FP32.inf | (FP32.quiet if source is FP16 else 0) | fraction, negative)
        if source.is_inf(word):
            return FP32.with_sign(FP32.inf, negative)
        return FP32.round(source.value(word), negative)

    def write(self, bits, room):
        taken = min(len(bits), room // self.width)
        return taken, b"".join(self.narrow(f).to_bytes(self.width, "little") for f in bits[:taken])

    def read(self, block, floats):
        words = [block[i * self.width : (i + 1) * self.width] for i in range(floats)]
        return [self.widen(int.from_bytes(word, "little")) for word in words]


class TaggedCodec(Codec):
    """Groups of 32 floats, tags first. A subclass defines encode_one(), which returns the payload, and decode_one()."""

    granule = GROUP

    def max_bytes(self, floats):
        return -(-floats // GROUP) * TAG_BYTES + 4 * floats

    @staticmethod
    def tags(block, floats):
        """Returns (tags of the floats, tags of the places after the last float)."""
        words = struct.unpack_from("<%dQ" % -(-floats // GROUP), block)
        tags = [word >> (2 * i) & 3 for word in words for i in range(GROUP)]
        return tags[:floats], tags[floats:]

    def validate(self, block, floats):
        tag_bytes = -(-floats // GROUP) * TAG_BYTES
        if len(block) < tag_bytes:
            return SHORT
        tags, tail = self.tags(block, floats)
        if any(tail):
            return BAD_TAIL
        return compare_length(len(block), tag_bytes + sum(PAYLOAD_WIDTH[tag] for tag in tags))

    def write(self, bits, room):
        if room < self.max_bytes(len(bits)):
            room = min(room, MAX_PACKET)
        words, payload, taken = b"", b"", 0
        for start in range(0, len(bits), GROUP):
            codes = [self.encode_one(f) for f in bits[start : start + GROUP]]
            word = sum(PAYLOAD_WIDTH.index(len(code)) << (2 * i) for i, code in enumerate(codes))
            more = b"".join(codes)
            if len(words) + TAG_BYTES + len(payload) + len(more) > room:
                break
            words += struct.pack("<Q", word)
            payload += more
            taken += len(codes)
        return taken, words + payload

    def read(self, block, floats):
        at = -(-floats // GROUP) * TAG_BYTES
        values = []
        for tag in self.tags(block, floats)[0]:
            width = PAYLOAD_WIDTH[tag]
            values.append(self.decode_one(tag, block[at : at + width]))
            at += width
        return values


class Lattice:
    """The base of codecs whose values are multiples of a step, except raw floats."""

    step = None

    def steps(self, bits):
        """Returns the nearest number of steps, ties to even. Returns None for Inf and NaN, and where all floats are
        multiples of the step."""
        if not FP32.is_finite(bits) or abs(FP32.value(bits)) >= 2**23 * self.step:
            return None
        return round(FP32.value(bits) / self.step)

    def contribution(self, bits):
        q = self.steps(bits)
        return bits if q is None else FP32.round(q * self.step)


class Fixed(Lattice, Codec):
    """Bit planes of groups of 32 floats: tags first, then planes and raw floats, then escapes, in reverse order."""

    granule = GROUP
    feedback = True
    escape, escape_bytes = 15, 5

    def __init__(self, b):
        assert 1 <= b <= 30
        super().__init__("fixed:%d" % b, 4, b)
        self.step = Fraction(2) ** (1 - b)

    def max_bytes(self, floats):
        groups = -(-floats // GROUP)
        return -(-groups // 2) + 5 * groups + 4 * floats

    def encode_group(self, bits):
        """Returns (tag, payload, escape) of up to 32 floats."""
        steps = [self.steps(f) for f in bits]
        raw = [q is None or not -(2**15) <= q < 2**15 for q in steps]
        width = max((self.width(q) for q, is_raw in zip(steps, raw) if not is_raw), default=0)
        if width + sum(raw) > len(bits):
            raw, width = [True] * len(bits), 0
        # Plane j has bit j of each q in two's complement, which is how Python's integers behave.
        planes = [sum((q >> j & 1) << i for i, q in enumerate(steps) if not raw[i]) for j in range(width)]
        kept = [self.contribution(f) for f, is_raw in zip(bits, raw) if is_raw]
        payload = struct.pack("<%dI" % (width + len(kept)), *planes, *kept)
        if width < self.escape and not any(raw):
            return width, payload, b""
        return self.escape, payload, struct.pack("<BI", width, sum(1 << i for i, is_raw in enumerate(raw) if is_raw))

    @staticmethod
    def width(q):
        """Returns the number of bits of q in two's complement; 0 for q = 0."""
        return 0 if q == 0 else (q if q > 0 else -q - 1).bit_length() + 1

    def write(self, bits, room):
        if room < self.max_bytes(len(bits)):
            room = min(room, MAX_PACKET)
        tags, payload, escapes, taken = [], b"", b"", 0
        for start in range(0, len(bits), GROUP):
            tag, more, escape = self.encode_group(bits[start : start + GROUP])
            if (len(tags) + 2) // 2 + len(payload + more) + len(escapes + escape) > room:
                break
            tags.append(tag)
            payload, escapes = payload + more, escape + escapes
            taken += len(bits[start : start + GROUP])
        tags += [0] * (len(tags) % 2)
        return taken, bytes(low | high << 4 for low, high in zip(tags[::2], tags[1::2])) + payload + escapes

    def groups(self, block, floats):
        """Returns (status, [(width, mask of raw floats)], number of bytes of the tags)."""
        groups = -(-floats // GROUP)
        tag_bytes = -(-groups // 2)
        if len(block) < tag_bytes:
            return SHORT, [], tag_bytes
        tags = [nibble for byte in block[:tag_bytes] for nibble in (byte & 15, byte >> 4)]
        if any(tags[groups:]):
            return BAD_TAIL, [], tag_bytes
        tags = tags[:groups]
        escapes = self.escape_bytes * tags.count(self.escape)
        length = tag_bytes + escapes + 4 * sum(tag for tag in tags if tag != self.escape)
        if len(block) < length:
            return SHORT, [], tag_bytes
        found, end = [], len(block)
        for tag in tags:
            width, mask = tag, 0
            if tag == self.escape:
                width, mask = struct.unpack_from("<BI", block, end - self.escape_bytes)
                end -= self.escape_bytes
                if width > 16 or width + bin(mask).count("1") > GROUP:
                    return BAD_ESCAPE, [], tag_bytes
                length += 4 * (width + bin(mask).count("1"))
            found.append((width, mask))
        if floats % GROUP and found[-1][1] >> floats % GROUP:
            return BAD_TAIL, [], tag_bytes
        return compare_length(len(block), length), found, tag_bytes

    def validate(self, block, floats):
        return self.groups(block, floats)[0]

    def read(self, block, floats):
        _, groups, at = self.groups(block, floats)
        values = []
        for start, (width, mask) in zip(range(0, floats, GROUP), groups):
            words = struct.unpack_from("<%dI" % (width + bin(mask).count("1")), block, at)
            at += 4 * len(words)
            raw = iter(words[width:])
            for i in range(min(GROUP, floats - start)):
                if mask >> i & 1:
                    values.append(next(raw))
                    continue
                q = sum((word >> i & 1) << j for j, word in enumerate(words[:width]))
                if q >> (width - 1) if width else 0:
                    q -= 1 << width
                values.append(FP32.round(q * self.step))
        return values


class Inceptionn(Lattice, TaggedCodec):
    step = Fraction(1, 2**15)

    def __init__(self, b, truncate):
        assert 2 <= b <= 14
        name = "inceptionn:%d%s" % (b, ",truncate" if truncate else "")
        super().__init__(name, 3, b | (0x80 if truncate else 0))
        self.truncate = truncate
        self.zero_below = Fraction(1, 2**b)
        self.byte_below = Fraction(1, 2 ** (b // 2))
        self.byte_unit = self.byte_below / 128

    def contribution(self, bits):
        return bits if self.truncate else super().contribution(bits)

    def encode_one(self, bits):
        if not FP32.is_finite(bits) or abs(FP32.value(bits)) >= 1:
            return bits.to_bytes(4, "little")
        magnitude = abs(FP32.value(bits))
        q = magnitude // self.step if self.truncate else round(magnitude / self.step)
        value, sign = q * self.step, FP32.negative(bits)
        if value == 1:
            return bits.to_bytes(4, "little")
        if value < self.zero_below:
            return b""
        m = (value / self.byte_unit + (0 if self.truncate else Fraction(1, 2))) // 1
        if m < 128:
            return (sign << 7 | m).to_bytes(1, "little")
        return (sign << 15 | q).to_bytes(2, "little")

    def decode_one(self, tag, payload):
        code = int.from_bytes(payload, "little")
        if tag == 3:
            return code
        if tag == 0:
            return 0
        sign = 1 << (8 * len(payload) - 1)
        magnitude = code % sign * (self.byte_unit if tag == 1 else self.step)
        return FP32.round(-magnitude if code >= sign else magnitude)


class InceptionnLiteral(Inceptionn):
    """The code of the paper to the letter: payloads have the first 7 or 15 bits behind the binary point."""

    def __init__(self, b):
        super().__init__(b, truncate=True)
        self.name, self.wire_id, self.param = "inceptionn:%d,literal" % b, 22, b
        self.byte_unit = Fraction(1, 2**7)

    def encode_one(self, bits):
        if not FP32.is_finite(bits) or abs(FP32.value(bits)) >= 1:
            return bits.to_bytes(4, "little")
        magnitude, sign = abs(FP32.value(bits)), FP32.negative(bits)
        if magnitude < self.zero_below:
            return b""
        if magnitude < self.byte_below:
            return (sign << 7 | magnitude // self.byte_unit).to_bytes(1, "little")
        return (sign << 15 | magnitude // self.step).to_bytes(2, "little")


class Pack(Codec):
    """Groups of 32 floats, one after the other: exponents in bit planes, then signs and mantissas."""

    types = {"": FP32, "bf16": BF16, "fp16": FP16}
    zeros, plain, masked, low = 0x40, 0x20, 8, 16  # heads of groups without a base, and flags M and D of the others

    def __init__(self, type=""):
        super().__init__("pack:" + type if type else "pack", 23, 0)
        self.type, self.form = type, self.types[type]
        self.width = self.form.width // 8
        self.granule = 128 // self.width
        # The sign and the mantissa of a float are the number of which `split` bits have planes, and the rest has bytes.
        self.split = (1 + self.form.fraction_bits) % 8
        self.rest = (1 + self.form.fraction_bits) // 8

    def max_bytes(self, floats):
        return -(-floats // GROUP) + self.width * floats

    def add(self, a, b):
        if self.form is FP32:
            return add(a, b)
        halves = FlatCodec(self.type)
        return halves.narrow(add(halves.widen(a), halves.widen(b)))

    def planes(self, codes, count):
        """Returns `count` planes of these numbers."""
        return b"".join(sum((code >> j & 1) << i for i, code in enumerate(codes)).to_bytes(-(-len(codes) // 8), "little")
                        for j in range(count))

    def encode_group(self, bits):
        if not any(bits):
            return bytes([self.zeros])
        form, plain = self.form, bytes([self.plain]) + b"".join(f.to_bytes(self.width, "little") for f in bits)
        masked = bits.count(0) >= 2
        sent = [f for f in bits if f] if masked else bits
        exponents = [form.magnitude_bits(f) >> form.fraction_bits for f in sent]
        base = max(exponents)
        low = min(exponents) == 0 < base
        # With D the highest code is that of E = 0, so it is one above all others.
        k = (base - min(e for e in exponents if e or not low) + low).bit_length()
        if k > 7:
            return plain
        codes = [(1 << k) - 1 if low and e == 0 else base - e for e in exponents]
        group = bytes([k | self.masked * masked | self.low * low, base])
        if masked:
            group += struct.pack("<I", sum(1 << i for i, f in enumerate(bits) if f))
        rests = [f % (1 << form.fraction_bits) | form.negative(f) << form.fraction_bits for f in sent]
        group += self.planes(codes, k) + self.planes(rests, self.split)
        group += b"".join((rest >> self.split).to_bytes(self.rest, "little") for rest in rests)
        return group if len(group) <= self.width * len(bits) else plain

    def write(self, bits, room):
        if room < self.max_bytes(len(bits)):
            room = min(room, MAX_PACKET)
        block, taken, cut = b"", 0, (0, b"")
        for start in range(0, len(bits), GROUP):
            if start % self.granule == 0:
                cut = taken, block
            group = self.encode_group(bits[start : start + GROUP])
            if len(block) + len(group) > room:
                return cut
            block += group
            taken += len(bits[start : start + GROUP])
        return taken, block

    def open_group(self, block, floats):
        """Returns (status, bytes of the group that `block` starts with, mask of the floats that travel)."""
        if not block:
            return SHORT, 0, 0
        head, at, mask = block[0], 1, (1 << floats) - 1
        if head == self.zeros:
            return OK, 1, 0
        if head == self.plain:
            size = 1 + self.width * floats
        else:
            k = head & 7
            if head & ~(7 | self.masked | self.low) or head & self.low and k == 0:
                return BAD_ESCAPE, 0, 0
            at = 2
            if head & self.masked:
                mask, at = int.from_bytes(block[2:6], "little"), 6
            count = bin(mask).count("1")
            size = at + (k + self.split) * -(-count // 8) + self.rest * count
        if len(block) < max(at, size):
            return SHORT, 0, 0
        return BAD_TAIL if mask >> floats else OK, size, mask

    def validate(self, block, floats):
        at = 0
        for start in range(0, floats, GROUP):
            status, size, _ = self.open_group(block[at:], min(GROUP, floats - start))
            if status != OK:
                return status
            at += size
        return OK if at == len(block) else LONG

    def read_group(self, group, floats, mask):
        head, count = group[0], bin(mask).count("1")
        if head == self.zeros:
            return [0] * floats
        if head == self.plain:
            return [int.from_bytes(group[at : at + self.width], "little") for at in range(1, len(group), self.width)]
        k, base, form = head & 7, group[1], self.form
        at, stride = 6 if head & self.masked else 2, -(-count // 8)
        planes = [int.from_bytes(group[at + j * stride : at + (j + 1) * stride], "little")
                  for j in range(k + self.split)]
        at += (k + self.split) * stride
        sent = []
        for i in range(count):
            number = [(plane >> i & 1) << j for j, plane in enumerate(planes)]
            code, low = sum(number[:k]), sum(number[k:]) >> k
            exponent = 0 if head & self.low and code == (1 << k) - 1 else base - code
            rest = int.from_bytes(group[at + self.rest * i : at + self.rest * (i + 1)], "little") << self.split | low
            magnitude = (exponent << form.fraction_bits | rest % (1 << form.fraction_bits)) % (1 << (form.width - 1))
            sent.append(form.with_sign(magnitude, rest >> form.fraction_bits))
        travel = iter(sent)
        return [next(travel) if mask >> i & 1 else 0 for i in range(floats)]

    def read(self, block, floats):
        values, at = [], 0
        for start in range(0, floats, GROUP):
            here = min(GROUP, floats - start)
            _, size, mask = self.open_group(block[at:], here)
            values += self.read_group(block[at : at + size], here, mask)
            at += size
        return values


def find_codec(name):
    """Returns the codec of a text name. Raises ValueError if there is none."""
    word, _, rest = name.partition(":")
    number, comma, option = rest.partition(",")
    if name in FlatCodec.ids:
        return FlatCodec(name)
    if word == "pack":
        return Pack(rest)
    if number.isdecimal():
        b = int(number)
        if word == "fixed" and not comma and 1 <= b <= 30:
            return Fixed(b)
        if word == "inceptionn" and 2 <= b <= 14 and (not comma or option == "truncate"):
            return Inceptionn(b, option == "truncate")
        if word == "inceptionn" and 2 <= b <= 14 and option == "literal":
            return InceptionnLiteral(b)
    raise ValueError("no such codec: " + name)


def main():
    parser = argparse.ArgumentParser(description="Shows the block that a codec makes of a few floats.")
    parser.add_argument("codec", help="raw, bf16, fp16, pack, inceptionn:B[,truncate or ,literal], fixed:B")
    parser.add_argument("floats", nargs="+", help="decimal numbers, inf, nan, or 0x and the bits of an fp32")
    args = parser.parse_args()
    try:
        codec = find_codec(args.codec)
        bits = [int(f, 16) if f.startswith("0x") else bits_of([float(f)])[0] for f in args.floats]
    except (ValueError, OverflowError) as error:
        sys.exit("%s: %s" % (parser.prog, error))
    _, block, _ = codec.encode(bits)
    _, values = codec.decode(block, len(bits))
    print("block", block.hex(" "))
    for f, v in zip(bits, values):
        print("%08x %-24r -> %08x %r" % (f, *floats_of([f]), v, *floats_of([v])))


if __name__ == "__main__":
    main()
