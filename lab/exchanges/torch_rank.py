"""torch_rank.py - one rank of the all-reduces through PyTorch; `gradlane run` starts it on each node

Each method does what it does for a bucket of DDP, as gradlane.torch.exchange_times describes. Rank 0 prints the time of
each repetition: from the call until the future is completed, on the slowest rank.
"""

import functools
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import gradlane.torch
from gradlane.torch import exchange_times
from lab.exchanges import setups


def exchange_of(method):
    """Returns a function that starts the exchange of a bucket, and returns its future."""
    if method == setups.GLOO:
        return lambda bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    if method == setups.GLOO_BF16:
        return functools.partial(default_hooks.bf16_compress_hook, dist.group.WORLD)
    # Sparse codecs have error feedback, as in trainings; fixed:adaptive has it anyway.
    feedback = {"error_feedback": True} if method.startswith(("topk", "dgc")) else {}
    return functools.partial(gradlane.torch.hook, gradlane.torch.State(method, **feedback))


class Trial:
    """Exchanges of one size by one method."""

    def __init__(self, ring, method, gradients):
        self.method, self._ring, self._gradients = method, ring, gradients
        self._buckets = [exchange_times.Bucket(gradients.numel(), gradients.device)
                         for _ in range(setups.in_a_row(gradients.nbytes))]
        self._exchanges = [exchange_of(method) for _ in self._buckets]
        self.seconds = []

    def repetition(self):
        """Returns this rank's seconds per exchange."""
        for bucket in self._buckets:
            bucket.buffer().copy_(self._gradients)
        dist.barrier()
        began = time.perf_counter()
        for exchange, bucket in zip(self._exchanges, self._buckets):
            exchange(bucket).wait()
        return (time.perf_counter() - began) / len(self._buckets)

    def warm_up(self):
        """Returns the seconds of a repetition, with its barrier. Step 1 of `fixed:adaptive` is not compressed."""
        self.repetition()
        began = time.monotonic()
        self.repetition()
        return self._ring.slowest([time.monotonic() - began])[0]

    def check(self, mean):
        """Raises RuntimeError if the exact methods did not find the mean, or another one is far from it."""
        found = self._buckets[-1].buffer()
        if self.method == setups.GLOO:
            found = found / self._ring.world
        error = float((found - mean).norm() / mean.norm())
        if not error <= {setups.GLOO: 1e-6, "raw": 1e-6, setups.GLOO_BF16: 0.01, "bf16": 0.01, "fixed:10": 0.2}.get(
                self.method, float("inf")):
            raise RuntimeError(f"{self.method}: the result is off by {error:.3g} of the norm of the mean")


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    ring = exchange_times.Ring()
    generator = torch.Generator().manual_seed(ring.rank)
    gradients = torch.empty(spec["bytes"] // 4).normal_(0, setups.STANDARD_DEVIATION, generator=generator)
    mean = gradients.clone()
    dist.all_reduce(mean)
    mean /= ring.world
    trials = [Trial(ring, method, gradients) for method in spec["methods"]]
    counts = []
    for trial in trials:
        counts.append(setups.repetitions(spec["seconds"], trial.warm_up()))
        trial.check(mean)
    for _ in range(setups.ROUNDS):
        for trial, count in zip(trials, counts):
            trial.seconds += [trial.repetition() for _ in range(count)]
    for trial in trials:
        slowest = ring.slowest(trial.seconds)
        if ring.rank == 0:
            us = [round(1e6 * each, 1) for each in slowest]
            print("result: " + json.dumps({"method": trial.method, "us": us}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except (ImportError, RuntimeError) as error:
        sys.exit(f"lab.exchanges.torch_rank: rank {os.environ.get('RANK', '?')}: {type(error).__name__}: {error}")
