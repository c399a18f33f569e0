#!/usr/bin/python3
"""A trainer that runs jobs and reports their results. teams.py starts one process per rank.

Jobs come from its input, one JSON object per line.

    {"seed": 1, "operations": 1000, "sizes": "mixed", "codecs": ["raw", "bf16"], "in_flight": 16}

A job is a number of all-reduces. Their sizes and codecs follow from the seed alone, and their data from seed and rank.
The first failure ends a job. Then the trainer writes one JSON object. It has the number of operations, `digest` of the
bytes of all results in their order, failures (texts), seconds, and bytes of all tensors. It also has what the daemon
sent (data_bytes, data_packets, retransmitted).
"""

import collections
import hashlib
import json
import sys
import time

import numpy

import gradlane

MIB = 1 << 20
PATIENCE = 60  # seconds, for one operation
# Share of operations, and range of their sizes in bytes. Sizes are distributed evenly on a logarithmic scale.
SIZES = {
    "tiny": [(1.0, 4, 4096)],
    "mixed": [(0.993, 4, 65536), (0.007, MIB, MIB)],
    "large": [(0.8, 65536, MIB), (0.2, MIB, 4 * MIB)],
}
LARGEST = 4 * MIB
POOL = 3 * MIB // 2  # number of values; each operation takes a part of them


def sizes_of(job, random):
    """Returns the number of elements of each operation. Most numbers are odd."""
    shares = SIZES[job["sizes"]]
    which = random.choice(len(shares), job["operations"], p=[share for share, _, _ in shares])
    low, high = (numpy.log([share[i] for share in shares])[which] for i in (1, 2))
    counts = numpy.exp(low + random.random(job["operations"]) * (high - low)).astype(numpy.int64) // 4
    odd = numpy.where(random.random(job["operations"]) < 0.75, counts | 1, counts)
    return numpy.minimum(odd, LARGEST // 4)


class Trainer:
    def __init__(self, gl):
        self.gl = gl
        self.free = []  # arrays of LARGEST bytes

    def pool(self, seed):
        """Returns values like gradients: most are small, some are not."""
        random = numpy.random.default_rng([seed, 1 + self.gl.rank])
        values = random.standard_normal(POOL, numpy.float32) * numpy.float32(0.01)
        values[::97] *= 50
        return values

    def run(self, job):
        random = numpy.random.default_rng([job["seed"], 0])
        counts = sizes_of(job, random)
        codecs = random.integers(len(job["codecs"]), size=job["operations"])
        begins = random.integers(POOL - counts + 1)
        pool = self.pool(job["seed"])
        before, start = self.gl.figures(), time.monotonic()
        digest, failures = hashlib.blake2b(digest_size=16), []
        running = collections.deque()

        def finish():
            request, array, count = running.popleft()
            try:
                request.wait(PATIENCE)
                digest.update(array[:count])
            except (gradlane.OperationFailed, gradlane.DaemonGone, TimeoutError) as error:
                failures.append(str(error))
            self.free.append(array)

        def begin(count, codec, begin):
            array = self.free.pop() if self.free else self.gl.empty(LARGEST // 4)
            array[:count] = pool[begin:begin + count]
            request = self.gl.all_reduce(array[:count], codec=job["codecs"][codec], async_=True)
            running.append((request, array, count))

        for operation in zip(counts, codecs, begins):
            if len(running) == job["in_flight"]:
                finish()
            if failures:  # the first one has the cause; later ones may wait for a ring that does not come back
                break
            begin(*operation)
        while running:
            finish()
        seconds, after = time.monotonic() - start, self.gl.figures()
        sent = {name: getattr(after, name) - getattr(before, name)
                for name in ("data_bytes", "data_packets", "retransmitted")}
        return {"operations": len(counts), "digest": digest.hexdigest(), "failures": failures, "seconds": seconds,
                "bytes": int(counts.sum()) * 4, **sent}


def main():
    with gradlane.open() as gl:
        trainer = Trainer(gl)
        for line in sys.stdin:
            print(json.dumps(trainer.run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
