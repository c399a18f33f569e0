#!/usr/bin/python3
"""A trainer of auto_test.py, one per rank: sums of several sizes that are left to the library. Prints, on rank 0, what
the daemon says of them, as JSON.

auto_trainer.py GRADLANE CODEC OPERATIONS SCALE BYTES...    SCALE: of the values, which are gaussian
"""

import hashlib
import json
import subprocess
import sys

import numpy

import gradlane


def main():
    tool, codec, operations, scale = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    sizes = [int(size) for size in sys.argv[5:]]
    digest = hashlib.sha256()
    with gradlane.open() as gl:
        arrays = [gl.zeros(size // 4) for size in sizes]
        draw = numpy.random.default_rng(gl.rank)
        inputs = [(scale * draw.standard_normal(array.size)).astype(numpy.float32) for array in arrays]
        exact = [sum_of_ranks(gl, each) for each in inputs]
        bound = error_bound(gl, codec, inputs)
        for _ in range(operations):
            requests = []
            for array, values in zip(arrays, inputs):
                array[:] = values
                requests.append(gl.all_reduce(array, codec=codec, async_=True))
            for request, array, want in zip(requests, arrays, exact):
                request.wait()
                digest.update(array.tobytes())
                off = numpy.abs(array.astype(numpy.float64) - want).max()
                assert off <= bound + 1e-5 * scale * gl.world, off
        own = numpy.frombuffer(digest.digest()[:8], numpy.int64)
        least, most = own.copy(), own.copy()
        gl.all_reduce(least, reduction="min")
        gl.all_reduce(most, reduction="max")
        assert least[0] == most[0] == own[0], "ranks have different results"
        if gl.rank == 0:
            text = subprocess.run([tool, "stats", "--json", "--plan"], capture_output=True, text=True).stdout
            print(json.dumps(json.loads(text)))
        gl.barrier()


def error_bound(gl, codec, inputs):
    """Of sums. Those within a relative bound may be rounded in each hop, and each time by a share of a larger sum."""
    if codec.startswith("auto:2^-"):
        return gl.world * 2.0 ** -int(codec[8:])
    if not codec.startswith("auto:rel="):
        return 0
    largest = numpy.array([max(numpy.abs(each).max() for each in inputs)])
    gl.all_reduce(largest, reduction="max")
    return gl.world * (gl.world + 1) / 2 * 2.0 ** -int(codec[9:]) * largest[0]


def sum_of_ranks(gl, values):
    wide = values.astype(numpy.float64)
    return gl.all_reduce(wide)


if __name__ == "__main__":
    main()
