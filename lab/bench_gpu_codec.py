#!/usr/bin/python3
"""Checks and measures codec fixed on this machine's GPU, in a checkout and with PyTorch's CUDA build:

    python3 lab/bench_gpu_codec.py [--bits 6,10,14] [--megabytes 1,25,256] [--device 0]

It first compares bytes, residuals and decoded floats with tests/compress/reference_codec.py, which is exact and slow,
and with PyTorch's arithmetic on longer tensors. It ends with status 1 at the first difference. Then it prints GB/s of
float32, as the median of 30 times of 10 calls, measured with CUDA events:

  encode, feedback, decode   calls of GpuCodec; `feedback` encodes with a residual. Both copy the length to the host
  copy                       a copy of the floats on the GPU, which reads and writes each once
  to host                    encoded bytes to pinned memory, as GB/s of the floats that they stand for
  floats to host             the floats themselves to pinned memory
"""

import argparse
import pathlib
import random
import statistics
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "client/python"), str(ROOT / "tests/compress")]  # nothing must be installed

import golden_inputs  # noqa: E402
import reference_codec  # noqa: E402
import torch  # noqa: E402
from gradlane.torch.gpu_codec import BLOCK, EncodeBuffer, GpuCodec, runs_of  # noqa: E402

TIMES, CALLS = 30, 10
SIZES = (1, 31, 32, 33, 4095, 4096, 4097, 9_001)


def tensor_of(bits, device):
    """Returns float32 with these bits. They are copied as integers, so that NaNs keep theirs."""
    return torch.tensor([value - (value >> 31 << 32) for value in bits], dtype=torch.int32).to(device).view(torch.float32)


def bits_of(tensor):
    return [value & 0xffffffff for value in tensor.view(torch.int32).tolist()]


def expect(same, what):
    if not same:
        sys.exit(f"bench_gpu_codec.py: the GPU differs from the CPU: {what}")


def draw(rng, size, bits):
    """Returns bits of floats: groups of any bits, of special values, and of numbers around steps of fixed:bits."""
    def one(kind):
        if kind == 0:
            return rng.getrandbits(32)
        if kind == 1:
            return rng.choice(golden_inputs.SPECIALS)
        scale = 2.0 ** (1 - bits) * 2.0 ** rng.randrange(-2, 20 if kind == 2 else 6)
        return struct.unpack("<I", struct.pack("<f", rng.gauss(0, scale)))[0]
    kinds = [rng.choice((0, 1, 2, 3, 3, 3)) for _ in range(size // 32 + 1)]
    return [one(3 if rng.random() < 0.3 else kinds[i // 32]) for i in range(size)]


def reference(bits, floats, residual):
    """Returns an encoded tensor, its blocks and the residual after."""
    codec, blocks, left = reference_codec.find_codec(f"fixed:{bits}"), [], []
    for first in range(0, len(floats), BLOCK):
        part = slice(first, first + BLOCK)
        _, block, after = codec.encode(floats[part], residual=None if residual is None else residual[part])
        blocks.append(block)
        left += after or []
    ends = [8 * (len(blocks) + 1)]
    for block in blocks:
        ends.append(ends[-1] + len(block))
    return struct.pack(f"<{len(ends)}Q", *ends) + b"".join(blocks), blocks, left


def check_against_reference(codec, rng):
    for size in SIZES:
        floats = draw(rng, size, codec.bits)
        for residual in (None, [0] * size, draw(rng, size, codec.bits)):
            expected, blocks, left = reference(codec.bits, floats, residual)
            there = None if residual is None else tensor_of(residual, codec.device)
            encoded = codec.encode(tensor_of(floats, codec.device), there)
            got = bytes(encoded.data[:encoded.nbytes()].cpu().numpy())
            what = f"fixed:{codec.bits}, {size} floats, {'no ' if residual is None else ''}residual"
            expect(got == expected, f"bytes of {what}")
            expect(residual is None or bits_of(there) == left, f"residuals of {what}")
        decoded = [value for i, block in enumerate(blocks)
                   for value in reference_codec.find_codec(f"fixed:{codec.bits}").read(block, min(BLOCK, size - i * BLOCK))]
        out = torch.empty(size, device=codec.device)
        codec.decode(encoded.data[:encoded.nbytes()], out)
        codec.check()
        expect(bits_of(out) == decoded, f"decoded floats of fixed:{codec.bits}, {size} floats")
        # The same blocks as runs, the last one first, at any address.
        arena, runs = b"", []
        for i, block in reversed(list(enumerate(blocks))):
            arena += bytes(rng.randrange(4))
            runs.append((i * BLOCK, len(arena), min(BLOCK, size - i * BLOCK), len(block)))
            arena += block
        out.zero_()
        there = torch.frombuffer(bytearray(arena), dtype=torch.uint8).to(codec.device)
        codec.decode_runs(runs_of(runs).to(codec.device), there, out)
        codec.check()
        expect(bits_of(out) == decoded, f"runs of fixed:{codec.bits}, {size} floats")


def check_long(codec, floats):
    """Checks a long tensor: decoded floats are rounded ones, and two encodings have the same bytes."""
    encoded, again = codec.encode(floats), codec.encode(floats)
    nbytes = encoded.nbytes()
    expect(again.nbytes() == nbytes and torch.equal(encoded.data[:nbytes], again.data[:nbytes]), "a second encoding")
    out = torch.empty_like(floats)
    codec.decode(encoded.data[:nbytes], out)
    codec.check()
    step = 2.0 ** (1 - codec.bits)
    expect(torch.equal(out, torch.round(floats / step) * step), f"{floats.numel()} floats of fixed:{codec.bits}")
    return encoded


def seconds(call):
    for _ in range(3):
        call()
    times = []
    for _ in range(TIMES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000 / CALLS)
    return statistics.median(times)


def measure(codec, megabytes):
    numel = megabytes * 1_000_000 // 4
    floats = torch.randn(numel, device=codec.device) * 0.01
    encoded = check_long(codec, floats)
    nbytes = encoded.nbytes()
    residual, out = torch.zeros_like(floats), torch.empty_like(floats)
    host = torch.empty(4 * numel, dtype=torch.uint8, pin_memory=True)
    flat = floats.view(torch.uint8)
    buffer = EncodeBuffer(numel, codec.device)
    calls = (lambda: codec.encode(floats, buffer=buffer), lambda: codec.encode(floats, residual, buffer),
             lambda: codec.decode(encoded.data[:nbytes], out), lambda: out.copy_(floats),
             lambda: encoded.copy_to(host), lambda: host.copy_(flat, non_blocking=True))
    rates = [4e-9 * numel / seconds(call) for call in calls]
    codec.check()
    print(f"fixed:{codec.bits:<3}{megabytes:6} MB  {8 * nbytes / numel:5.2f} bits/float" +
          "".join(f"{rate:10.1f}" for rate in rates))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", default="6,10,14", help="numbers B of fixed:B")
    parser.add_argument("--megabytes", default="1,25,256", help="sizes of tensors")
    parser.add_argument("--device", type=int, default=0, help="number of the GPU")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit(f"bench_gpu_codec.py: PyTorch {torch.__version__} sees no GPU: run it on a machine with one, with "
                 "PyTorch's CUDA build")
    device = torch.device("cuda", args.device)
    torch.cuda.set_device(device)
    print(f"{torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}")
    rng = random.Random(1)
    bits = [int(each) for each in args.bits.split(",")]
    for each in sorted({1, 30, *bits}):
        check_against_reference(GpuCodec(each, device), rng)
    print("bytes, residuals and decoded floats are those of the reference\n")
    print("GB/s of float32                            encode  feedback    decode      copy   to host  floats to host")
    for each in bits:
        for megabytes in map(int, args.megabytes.split(",")):
            measure(GpuCodec(each, device), megabytes)


if __name__ == "__main__":
    main()
