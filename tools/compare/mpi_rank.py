# mpi_rank.py - a process of Open MPI, which measures when it is told to (started by mpi.py through mpirun)
#
# It is told through a Unix socket, on which it sleeps in between: an MPI process that waits in MPI spins.

import json
import socket
import sys
import time

import numpy as np
from mpi4py import MPI

from tools.compare import checks
from tools.compare import data


class Rank:
    def __init__(self):
        self.comm = MPI.COMM_WORLD
        self.buffers = self.source = None

    def point(self, folder, name, numel, operations):
        self.source = data.source(folder, name, self.comm.rank, numel)
        self.buffers = np.zeros((operations, numel), np.float32)
        return {}

    def fill(self):
        self.buffers[:] = self.source
        return {}

    def run(self):
        self.comm.Barrier()
        start = time.perf_counter()
        for buffer in self.buffers:
            self.comm.Allreduce(MPI.IN_PLACE, buffer)
        return {"seconds": time.perf_counter() - start}

    def result(self, path):
        if self.comm.rank == 0:
            self.buffers[-1].tofile(path)
        return {"digest": checks.digest(self.buffers[-1])}


def main():
    rank = Rank()
    control = socket.socket(socket.AF_UNIX)
    control.connect(sys.argv[1])
    with control.makefile("rw") as stream:
        print(json.dumps({"rank": rank.comm.rank, "version": MPI.Get_library_version()}), file=stream, flush=True)
        for line in stream:
            command = json.loads(line)
            if command["do"] == "end":
                break
            answer = getattr(rank, command.pop("do"))(**command)
            print(json.dumps(answer), file=stream, flush=True)


main()
