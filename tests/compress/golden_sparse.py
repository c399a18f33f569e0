# golden_sparse.py - cases of the golden vectors of sparse codecs, for make_golden.py
"""Writes the cases of codecs that send some elements and keep the others."""
from fractions import Fraction

import reference_codec as ref
from golden_inputs import INF, NAN, NEG_INF, SIGN, SNAN, SPECIALS, fp32, laplace
from reference_sparse import Sparse

CODECS = ("topk:1%", "mstopk:10%+fixed:14", "dgc:5%,m=0.5+fixed:12")
LATER = 0x3A83126F  # 0.001


def encode(out, title, bits, residual=None, second=None, looked=True, rooms=()):
    codec = out.codec
    choice = codec.scan(bits, residual, second) if looked else None
    _, block, left = codec.encode(bits, residual=residual, second=second, choice=choice)
    second_left = codec.second_after
    out.line("case encode", title)
    out.floats("in", bits)
    out.floats("residual", residual)
    out.floats("second", second)
    if looked:
        out.line("looked", 1)
    out.bytes("block", block)
    out.floats("residual_out", left)
    out.floats("second_out", second_left)
    out.floats("out", codec.decode(block, len(bits))[1])
    for room in rooms:
        out.cut(0, room, *codec.encode(bits, room, residual, second, choice)[:2])
    return block


def hop(out, title, block, local, residual=None, looked=True, rooms=()):
    codec = out.codec
    choice = codec.scan(local, residual) if looked else None
    status, _, result, left = codec.hop(block, local, residual=residual, choice=choice)
    assert status == ref.OK, title
    out.line("case hop", title)
    out.bytes("block", block)
    out.floats("local", local)
    out.floats("residual", residual)
    if looked:
        out.line("looked", 1)
    out.bytes("result", result)
    out.floats("residual_out", left)
    for room in rooms:
        out.cut(0, room, *codec.hop(block, local, room, residual, 0, choice)[1:3])


def cases(out):
    codec, rng = out.codec, out.rng
    assert isinstance(codec, Sparse)
    scale = codec.step * 20 if codec.value_bits else Fraction(1, 1000)
    encode(out, "special values", SPECIALS, looked=False)
    encode(out, "no floats", [], looked=False)
    for count in (1, 255, 257):
        encode(out, "nothing known of %d floats" % count, laplace(rng, count, scale), looked=False)
    for count in (31, 400):
        bits, owed = laplace(rng, count, scale), laplace(rng, count, scale / 3)
        encode(out, "%d floats" % count, bits)
        momentum = laplace(rng, count, scale / 2) if codec.momentum is not None else None
        encode(out, "%d floats and what is owed" % count, bits, owed, momentum,
               rooms=(0, 1, 2, 20, 60, 100, codec.max_bytes(count) - 1))
    odd = laplace(rng, 270, scale)
    for at, value in zip((3, 9, 40, 256, 269), (NAN, INF, NEG_INF, SNAN, 0x7F7FFFFF)):
        odd[at] = value
    encode(out, "not all are numbers", odd, [NEG_INF if i == 9 else LATER for i in range(270)])
    encode(out, "all alike", [fp32(scale), fp32(scale) | SIGN] * 100)
    encode(out, "zeros", [0, SIGN] * 150)
    blocks(out, scale)


def thinned(rng, bits, one_in):
    return [f if rng.randrange(one_in) == 0 else 0 for f in bits]


def blocks(out, scale):
    codec, rng = out.codec, out.rng
    for one_in in (2, 30):
        sums = [codec.sent(f) for f in thinned(rng, laplace(rng, 290, scale), one_in)]
        block = codec.write(sums, codec.max_bytes(290))[1]
        out.decode("one in %d" % one_in, block, 290)
        local = laplace(rng, 290, scale)
        hop(out, "one in %d" % one_in, block, local, rooms=(0, 10, 90))
        hop(out, "one in %d, nothing known" % one_in, block, local, looked=False)
        hop(out, "one in %d, and what is owed" % one_in, block, local, laplace(rng, 290, scale / 4), rooms=(0, 10, 300))
        hop(out, "one in %d, cancelled" % one_in, block, [f ^ SIGN if f else 0 for f in sums], looked=False)
    out.decode("no floats", b"", 0)
    good = codec.write([codec.sent(f) for f in laplace(rng, 40, scale)], 1000)[1]
    out.invalid("empty", b"", 40, ref.SHORT)
    out.invalid("one byte too few", good[:-1], 40, ref.SHORT)
    out.invalid("one byte too many", good + b"\0", 40, ref.LONG)
    out.invalid("places not in order", bytes([2, 9, 8]) + bytes(9), 40, ref.BAD_TAIL)
    out.invalid("a place twice", bytes([2, 9, 9]) + bytes(9), 40, ref.BAD_TAIL)
    out.invalid("a place of none", bytes([1, 40]) + bytes(5), 40, ref.BAD_TAIL)
    out.invalid("a bit of none", bytes([255, 0, 0, 0, 0, 2]) + bytes(5), 33, ref.BAD_TAIL)
    out.invalid("more places than a bitmap has bytes", bytes([6, 0, 1, 2, 3, 4, 5]) + bytes(30), 40, ref.BAD_ESCAPE)
    if codec.value_bits:
        for width in (0, 26, 31, 33, 255):
            out.invalid("%d bits" % width, bytes([1, 7, width]) + bytes(40), 40, ref.BAD_ESCAPE)
