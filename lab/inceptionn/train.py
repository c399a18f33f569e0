"""train.py - one rank of the trainings of experiment `systems`, which `gradlane run` starts on all nodes

Rank 0 takes a trace of its ring while all ranks train, and prints the result.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch
from lab.inceptionn.trace import codec_times
from lab.study import models
from tools.demo import digits

BATCH, RATE, MOMENTUM = 32, 0.05, 0.9  # as in the trainings whose accuracy is measured
WARM_UP = 5  # steps; DDP rebuilds its buckets after the first one
COMPUTING, STEPS = 20, 40  # steps without and with exchange
TRACED_S = 4.0
SLACK_S = 1.0  # of the start of `gradlane trace`
SEED = 1


class Training:
    """A model under DDP, and the images of this rank. The paper's classifier, or the convolutional net."""

    def __init__(self, spec):
        self.model = models.MAKE[spec["model"]]()
        models.initialize(self.model, SEED)
        self.ddp = DistributedDataParallel(self.model)
        state = gradlane.torch.State(codec=spec["codec"], error_feedback=False, strategy=spec["strategy"])
        self.ddp.register_comm_hook(state, gradlane.torch.hook)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, momentum=MOMENTUM)
        images, labels = map(torch.from_numpy, digits.read_digits())
        mine = slice(dist.get_rank(), None, dist.get_world_size())
        self.batches = list(zip(images[mine].split(BATCH), labels[mine].split(BATCH)))[:-1]  # the last one is short
        self.done = 0

    def steps(self, count, exchange=True):
        """Returns the milliseconds of each step, on the slowest rank."""
        dist.barrier()
        times = []
        with contextlib.nullcontext() if exchange else self.ddp.no_sync():
            for _ in range(count):
                inputs, wanted = self.batches[self.done % len(self.batches)]
                self.done += 1
                start = time.perf_counter()
                self.optimizer.zero_grad(set_to_none=True)
                models.loss_of(self.ddp(inputs), wanted).backward()
                self.optimizer.step()
                times.append(1e3 * (time.perf_counter() - start))
        slowest = torch.tensor(times)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return [round(ms, 3) for ms in slowest.tolist()]


def traced(training, spec, step_ms):
    """Trains while `gradlane trace` runs. Returns the trace on rank 0."""
    file = pathlib.Path(spec["folder"], "trace.json")
    tracing = None
    if dist.get_rank() == 0:
        tracing = subprocess.Popen([spec["gradlane"], "trace", "-s", str(TRACED_S), "-o", str(file), "--json"],
                                   stdout=subprocess.DEVNULL)
    training.steps(int(1e3 * (TRACED_S + SLACK_S) / step_ms) + 1)
    if tracing is None:
        return None
    if tracing.wait(30) != 0:
        raise RuntimeError(f"gradlane trace ended with status {tracing.returncode}")
    return json.loads(file.read_text())


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    training = Training(spec)
    training.steps(WARM_UP)
    found = {"computing_ms": training.steps(COMPUTING, exchange=False)}
    found["step_ms"] = training.steps(STEPS)
    trace = traced(training, spec, sum(found["step_ms"]) / STEPS)
    if trace is not None:
        step_bytes = sum(4 * parameter.numel() for parameter in training.model.parameters())
        print("result: " + json.dumps(found | codec_times(trace, step_bytes)), flush=True)
    dist.barrier()
    gradlane.torch.Engine.shared().release()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
