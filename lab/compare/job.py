# job.py - a rank of one job of lab/compare.sh (started by `gradlane run`; rank 0 prints what it measures as JSON)

import datetime
import json
import math
import os
import pathlib
import random
import statistics
import sys
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

import torch
import torch.distributed as dist

from lab.compare import checks
from lab.compare import data
from lab.compare import methods
from lab.compare import others
from lab.compare import plan
from lab.compare.busy import idle_seconds
from gradlane.torch.engine import Engine

PATIENCE = datetime.timedelta(seconds=120)  # time limit of collectives; a sample takes some seconds


class Job:
    def __init__(self, orders):
        self.orders = orders
        self.effort = plan.Effort(**orders["effort"])
        names = [name for name in plan.METHODS if any(name in point["methods"] for point in orders["points"])]
        backend = any(name.startswith("backend") for name in names)
        dist.init_process_group("gradlane" if backend else "gloo", timeout=PATIENCE)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.gloo = dist.new_group(backend="gloo", timeout=PATIENCE) if backend else dist.group.WORLD
        self.engine = Engine.shared()
        self.cores = os.cpu_count()
        self.programs = []
        most = max(max(point["size"] * self.most_operations(point["size"]) for point in orders["points"]), 1)
        groups = {"gloo": self.gloo, "gradlane": dist.group.WORLD}
        self.methods = methods.make(names, self.engine, groups, orders["folder"], most // 4, self.start)

    def say(self, kind, **fields):
        if self.rank == 0:
            print(json.dumps({"say": kind, **fields}), flush=True)

    def start(self, name):
        """Starts the processes of another program and returns it. Returns None on all ranks but 0."""
        if self.rank != 0:
            return None
        kind = name.split()[1]
        if name == "gloo 2":
            program = others.OtherTorch(self.orders["torch"], self.world, self.orders["folder"])
            about = {"other torch": program.version}
        else:
            program = others.Mpi(kind, self.world, self.orders["folder"])
            about = {f"Open MPI, {kind}": program.version}
        self.programs.append(program)
        self.say("about", about=about)
        return program

    def close(self):
        for program in self.programs:
            program.close()
        self.barrier()
        del self.methods
        self.engine.release()
        dist.destroy_process_group()

    # ---- Agreement of ranks, always by Gloo, which sleeps while it waits

    def barrier(self):
        dist.barrier(group=self.gloo)

    def slowest(self, seconds):
        value = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.gloo)
        return float(value)

    def digests_of(self, method, result):
        if isinstance(method, methods.Others):
            return method.digests
        found = [None] * self.world
        dist.all_gather_object(found, checks.digest(result), group=self.gloo)
        return found

    # ---- Measuring

    @staticmethod
    def most_operations(size):
        return max(1, min(plan.MOST_OPERATIONS, plan.FOOTPRINT // size))

    def sample(self, method):
        """Returns the seconds of an operation on the slowest rank, and its CPU seconds on the complete machine.

        CPU seconds are counted in clock ticks. They are right in the mean only, and may be negative. They include the
        barrier and the exchange of times.
        """
        method.fill()
        self.barrier()
        if self.rank == 0:
            idle, begin = idle_seconds(), time.perf_counter()
        self.barrier()
        seconds = self.slowest(method.run())
        busy = 0.0
        if self.rank == 0:
            busy = (time.perf_counter() - begin) * self.cores - (idle_seconds() - idle)
        return seconds / self.operations, busy / self.operations

    def set_up(self, point, operations):
        self.operations = operations
        numel = point["size"] // 4
        source = torch.from_numpy(data.source(self.orders["folder"], point["data"], self.rank, numel))
        for name in point["methods"]:
            method = self.methods[name]
            if isinstance(method, methods.Others):
                method.begin(point["data"], numel, operations)
            else:
                method.point(source, operations)

    def plan_point(self, point):
        """Returns the number of operations of a sample, and the number of samples. It times one sample of each method.
        All ranks get the same numbers."""
        self.set_up(point, 1)
        times = []
        for name in point["methods"]:
            self.sample(self.methods[name])
            times.append(self.sample(self.methods[name])[0])
        most = self.most_operations(point["size"])
        wanted = math.ceil(self.effort.sample / min(times))
        seconds = self.effort.seconds * (1 if point["data"] == "gauss" else plan.REAL_MORE)
        operations = max(1, min(most, wanted, round(seconds / self.effort.least / sum(times))))
        rounds = int(seconds / (sum(times) * operations))
        return operations, min(self.effort.most, max(self.effort.least, rounds))

    def check(self, point, names):
        """Checks results and returns verdicts by name. The methods share tensors, so each method runs again before its
        check."""
        reference = None
        if self.rank == 0:
            reference = checks.Reference(self.orders["folder"], point["data"], self.world, point["size"] // 4)
        verdicts = {}
        for name in names:
            method = self.methods[name]
            for _ in range(2 if isinstance(method, methods.Adaptive) else 1):  # its first operation is raw
                self.sample(method)
            result = method.result()
            digests = self.digests_of(method, result)
            if self.rank == 0:
                wrong, error = reference.check(result, method.codec, method.average)
                verdicts[name] = {"codec": method.codec, "wrong": wrong, "largest_error": error,
                                  "same_on_all_ranks": len(digests) == self.world and len(set(digests)) == 1}
        return verdicts

    def measure(self, point):
        operations, rounds = self.plan_point(point)
        self.set_up(point, operations)
        names = list(point["methods"])
        verdicts = self.check(point, names)
        samples = {name: [] for name in names}
        order = random.Random(point["size"])  # this order is the same on all ranks
        for _ in range(rounds):
            order.shuffle(names)
            for name in names:
                samples[name].append(self.sample(self.methods[name]))
        for name in point["methods"]:
            times = [seconds for seconds, _ in samples[name]]
            busy = max(0.0, sum(each for _, each in samples[name]) / rounds)
            self.say("row", row={
                **{key: self.orders[key] for key in ("nodes", "rate", "mtu")}, "bytes": point["size"],
                "data": point["data"], "method": name, "operations": operations, "samples": times,
                "median": statistics.median(times), "min": min(times), "max": max(times),
                "cpu_per_gb": busy / (point["size"] / 1e9), **verdicts.get(name, {})})

    def measure_idle(self):
        """Reports how many cores are busy while all ranks wait: with sleeping daemons and the machine's own work."""
        self.barrier()
        if self.rank == 0:
            idle, begin = idle_seconds(), time.perf_counter()
            time.sleep(0.5)
            seconds = time.perf_counter() - begin
            self.say("idle", busy_cores=max(0.0, self.cores - (idle_seconds() - idle) / seconds))
        self.barrier()


def main():
    orders = json.loads(pathlib.Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    job = Job(orders)
    job.measure_idle()
    for number, point in enumerate(orders["points"]):
        late = job.slowest(time.monotonic()) > orders["deadline"]
        job.say("late" if late else "point", number=number)
        if not late:
            job.measure(point)
    job.close()


main()
