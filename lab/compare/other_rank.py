# other_rank.py - a process of another program, which measures when it gets a command (started by others.py)
#
# Between measurements it sleeps on a Unix socket, through which commands arrive. It does not wait in MPI, where a
# process that waits spins.

import json
import os
import socket
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from lab.compare import checks
from lab.compare import data


class Rank:
    def __init__(self, number):
        self.number = number
        self.buffers = self.source = None

    def point(self, folder, name, numel, operations):
        self.source = data.source(folder, name, self.number, numel)
        self.buffers = np.zeros((operations, numel), np.float32)
        return {}

    def fill(self):
        self.buffers[:] = self.source
        return {}

    def run(self):
        self.barrier()
        start = time.perf_counter()
        for buffer in self.buffers:
            self.reduce(buffer)
        return {"seconds": time.perf_counter() - start}

    def result(self, path):
        if self.number == 0:
            self.buffers[-1].tofile(path)
        return {"digest": checks.digest(self.buffers[-1])}


class MpiRank(Rank):
    def __init__(self):
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.version = MPI.Get_library_version()
        super().__init__(self.comm.rank)

    def barrier(self):
        self.comm.Barrier()

    def reduce(self, buffer):
        self.comm.Allreduce(self.mpi.IN_PLACE, buffer)


class GlooRank(Rank):
    def __init__(self, store, number, world):
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(number), world_size=int(world))
        self.torch, self.dist = torch, dist
        self.version = f"PyTorch {torch.__version__}"
        super().__init__(int(number))

    def barrier(self):
        self.dist.barrier()

    def reduce(self, buffer):
        self.dist.all_reduce(self.torch.from_numpy(buffer))


def main():
    path, kind, *arguments = sys.argv[1:]
    rank = MpiRank() if kind == "mpi" else GlooRank(*arguments)
    control = socket.socket(socket.AF_UNIX)
    control.connect(path)
    with control.makefile("rw") as stream:
        print(json.dumps({"rank": rank.number, "version": rank.version}), file=stream, flush=True)
        for line in stream:
            command = json.loads(line)
            if command["do"] == "end":
                break
            answer = getattr(rank, command.pop("do"))(**command)
            print(json.dumps(answer), file=stream, flush=True)


main()
