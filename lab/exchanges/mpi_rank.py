"""mpi_rank.py - one rank of the all-reduces by Open MPI; `mpirun` starts it

Rank 0 prints the microseconds of each repetition, on the slowest rank, as JSON.
"""

import json
import sys
import time

import numpy
from mpi4py import MPI

from lab.exchanges import setups


def main():
    size, seconds = int(sys.argv[1]), float(sys.argv[2])
    world = MPI.COMM_WORLD
    random = numpy.random.default_rng(world.rank)
    gradients = random.normal(0, setups.STANDARD_DEVIATION, size // 4).astype(numpy.float32)
    buckets = numpy.empty((setups.in_a_row(size), len(gradients)), numpy.float32)

    def repetition():
        buckets[:] = gradients
        world.Barrier()
        began = time.perf_counter()
        for bucket in buckets:
            world.Allreduce(MPI.IN_PLACE, bucket)
        return (time.perf_counter() - began) / len(buckets)

    repetition()
    began = time.monotonic()
    repetition()
    estimate = world.allreduce(time.monotonic() - began, MPI.MAX)
    count = setups.ROUNDS * setups.repetitions(seconds, estimate)
    mine = numpy.array([repetition() for _ in range(count)])
    world.Allreduce(MPI.IN_PLACE, mine, MPI.MAX)
    if world.rank == 0:
        print(json.dumps([round(1e6 * each, 1) for each in mine]), flush=True)


if __name__ == "__main__":
    main()
