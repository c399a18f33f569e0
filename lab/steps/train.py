"""train.py - one rank of the trainings whose steps are timed; `gradlane run` starts it on all nodes

Rank 0 prints the profile of the model, waits for the file `go` in the job's folder, so that the prediction is stored
before anything is trained, and then prints the times of each method's steps.
"""

import json
import os
import pathlib
import statistics
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from lab.steps import setups
from lab.study import gpt
from tools.demo import digits

WARM_UPS = 4  # DDP rebuilds its buckets after the first step, and fixed:adaptive follows the step before
LEAST_STEPS, MOST_STEPS = 5, 400
PATIENCE = 60


def mlp():
    sizes = (64, 1600, 1600, 1600, 10)
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def conv():
    layers = [torch.nn.Unflatten(1, (1, 8, 8)), torch.nn.Upsample(scale_factor=4)]
    for inputs, outputs in ((1, 32), (32, 64), (64, 128), (128, 256)):
        layers += [torch.nn.Conv2d(inputs, outputs, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(1024, 256), torch.nn.ReLU(),
                               torch.nn.Linear(256, 10))


MAKE = {"mlp": mlp, "conv": conv, "gpt": gpt.Gpt}


class Batches:
    """Batches of this rank, one after the other."""

    def __init__(self, model, batch):
        self.batch, self.random = batch, numpy.random.default_rng(dist.get_rank())
        self.text = gpt.text() if model == "gpt" else None
        if self.text is None:
            images, labels = digits.read_digits()
            self.images, self.labels = torch.from_numpy(images), torch.from_numpy(labels)

    def next(self):
        """Returns inputs and wanted outputs of a step."""
        if self.text is None:
            chosen = torch.from_numpy(self.random.integers(len(self.labels), size=self.batch))
            return self.images[chosen], self.labels[chosen]
        starts = self.random.integers(len(self.text) - gpt.CONTEXT, size=self.batch)
        windows = torch.stack([self.text[start : start + gpt.CONTEXT + 1] for start in starts])
        return windows[:, :-1], windows[:, 1:]


def loss_of(outputs, wanted):
    return torch.nn.functional.cross_entropy(outputs.flatten(0, -2), wanted.flatten())


def bf16_hook(state, bucket):
    """Is PyTorch's bf16_compress_hook, which DDP refuses by its identity on CPUs, although Gloo adds bfloat16."""
    return default_hooks.bf16_compress_hook(state, bucket)


class Training:
    """A model with the hook of a method."""

    def __init__(self, cell, method):
        torch.manual_seed(1)
        model = MAKE[cell.model]()
        self.ddp = DistributedDataParallel(model)
        self.close = lambda: None
        if method.hook in ("powersgd", "gradlane"):
            import gradlane.torch
        if method.hook == "bf16":
            self.ddp.register_comm_hook(None, bf16_hook)
        elif method.hook == "powersgd":
            # A group of backend gradlane, because over Gloo ranks mix up the operations of several buckets.
            group = dist.new_group(backend="gradlane")
            state = powerSGD_hook.PowerSGDState(group, 4, start_powerSGD_iter=2)
            self.close = lambda: dist.destroy_process_group(group)
            self.ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        elif method.hook == "gradlane":
            adaptive = method.codec == "fixed:adaptive"
            state = gradlane.torch.State() if adaptive else gradlane.torch.State(
                method.codec, error_feedback=method.codec.startswith("topk"))
            self.ddp.register_comm_hook(state, gradlane.torch.hook)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        self.batches = Batches(cell.model, cell.batch)

    def step(self):
        """Trains one step. Returns its seconds."""
        inputs, wanted = self.batches.next()
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss_of(self.ddp(inputs), wanted).backward()
        self.optimizer.step()
        return time.perf_counter() - start


def profile(cell):
    """Returns the profile of a step, measured while all ranks compute, as gradlane.torch.profile() returns it. The
    time of the optimizer is counted as forward."""
    import gradlane.torch

    training = Training(cell, setups.BY_NAME[setups.GLOO])
    inputs, wanted = training.batches.next()
    dist.barrier()
    result = gradlane.torch.profile(training.ddp.module, inputs, loss=lambda outputs: loss_of(outputs, wanted), steps=15,
                                    name=cell.model, batch=cell.batch)
    dist.barrier()
    loss_of(training.ddp.module(inputs), wanted).backward()
    seconds = []
    for _ in range(15):
        start = time.perf_counter()
        training.optimizer.step()
        seconds.append(time.perf_counter() - start)
    result["forward_ms"] += 1e3 * statistics.median(seconds)
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, (result["forward_ms"], result["backward_ms"]))
    # The slowest rank determines the step; layers keep their shares.
    forward, backward = (max(row[i] for row in rows) for i in (0, 1))
    share = backward / result["backward_ms"]
    for layer in result["layers"]:
        layer["backward_ms"] *= share
    return result | {"forward_ms": forward, "backward_ms": backward}


def say(what):
    if dist.get_rank() == 0:
        print("result: " + json.dumps(what), flush=True)


def wait_for(file):
    """Waits until rank 0 sees the file. All ranks return then."""
    if dist.get_rank() == 0:
        end = time.monotonic() + PATIENCE
        while not file.exists():
            if time.monotonic() > end:
                raise RuntimeError(f"{file} did not come within {PATIENCE} s")
            time.sleep(0.05)
    dist.barrier()


def agreed(value):
    """Returns rank 0's value."""
    box = [value]
    dist.broadcast_object_list(box, 0)
    return box[0]


def timed(cell, method, seconds):
    """Returns the ms of each step of about that many seconds, as the slowest rank of each step sees them."""
    training = Training(cell, method)
    for _ in range(WARM_UPS - 1):
        training.step()
    guess = training.step()
    steps = agreed(max(LEAST_STEPS, min(MOST_STEPS, round(seconds / guess))))
    dist.barrier()
    mine = torch.tensor([training.step() for _ in range(steps)], dtype=torch.float64)
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    training.close()
    return [round(1e3 * each, 3) for each in mine.tolist()]


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    cell = setups.BY_KEY[spec["cell"]]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    engine = None
    if any(setups.BY_NAME[name].codec for name in spec["methods"]):
        import gradlane.torch.engine

        engine = gradlane.torch.engine.Engine.shared()  # stays connected from one training to the next
    say({"profile": profile(cell), "folder": spec["folder"]})
    wait_for(pathlib.Path(spec["folder"], "go"))
    for name in spec["methods"]:
        say({"method": name, "ms": timed(cell, setups.BY_NAME[name], spec["seconds"])})
    dist.barrier()
    if engine:
        engine.release()
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except (ImportError, RuntimeError) as error:
        sys.exit(f"lab.steps.train: rank {os.environ.get('RANK', '?')}: {type(error).__name__}: {error}")
