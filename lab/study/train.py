#!/usr/bin/python3
"""train.py - one rank of the study's trainings; lab/study/job.py starts it on all nodes by `gradlane run`

train.py SPEC: a JSON file that says what to train. For each training, rank 0 prints a line "result: {...}".
"""

import contextlib
import gc
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab.study import hooks
from lab.study import models
from lab.study import plan

PROBES = 3  # epochs without exchange


def sent_bytes():
    """Returns the bytes that this node has sent on its link so far, with the headers of all packets; None without a
    shaper.

    The shaper counts each TCP packet. The interface counts only the larger pieces that the kernel hands over.
    """
    text = subprocess.run(["tc", "-s", "-j", "qdisc", "show"], check=True, capture_output=True, text=True).stdout
    shapers = [queue for queue in json.loads(text) if queue["kind"] == "tbf" and queue["dev"] in ("gl0", "eth0")]
    return sum(shaper["bytes"] for shaper in shapers) if shapers else None


def gathered(*values):
    """Gathers the values of all ranks. Returns a float64 tensor with a row for each rank."""
    mine = torch.tensor(values, dtype=torch.float64)
    rows = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, mine)
    return torch.stack(rows)


def alive():
    """Tells the study that the job is alive. The study ends a job that prints nothing for too long."""
    if dist.get_rank() == 0:
        print("epoch", flush=True)


def digests(model):
    """Returns the SHA-256 of each rank's weights. Under FSDP2, where each rank has a part, these are the weights that
    it gathers to compute."""
    own = hashlib.sha256()
    units = [module for module in model.modules() if hasattr(module, "unshard")]
    for module in units:
        module.reshard()
        module.unshard()
    for parameter in model.parameters():
        # This is a copy, because FSDP2 cannot free storage that NumPy has seen.
        own.update(parameter.detach().clone().reshape(-1).view(torch.uint8).numpy().tobytes())
    for module in units:
        module.reshard()
    mine = torch.from_numpy(numpy.frombuffer(own.digest(), numpy.uint8).copy())
    rows = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, mine)
    return [bytes(row.numpy()).hex() for row in rows]


class Training:
    """A training of a model under DDP or FSDP2, from its first weights on, with one method."""

    def __init__(self, spec, share, model, seed, method):
        self.spec, self.share, self.seed = spec, share, seed
        self.method = plan.BY_NAME[method]
        self.about = {"model": model, "seed": seed, "method": method}
        self._make()
        self._begin()

    def _make(self):
        self.model = models.MAKE[self.about["model"]]()
        self.recorder = None
        self.close = lambda: None
        self.weights = None
        if self.method.kind == "fsdp":
            self._shard()
            return
        self.ddp = DistributedDataParallel(self.model)
        if self.method.kind != "gloo":  # Gloo is DDP without a hook
            self._register()

    def _shard(self):
        """Shards the model. The first weights are set before, because afterwards each rank has only a part of them."""
        from lab.study import sharded

        models.initialize(self.model, self.seed)
        self.ddp = self.model = sharded.shard(self.model, self.method)

    def _register(self):
        state, hook, self.close = hooks.hook_of(self.method, self.share.steps)
        if self.method.kind == "gradlane" and self.method.what != plan.GRADIENTS:
            self.weights = hooks.Weights(self.method, self.model)
        self.recorder = hooks.Recorder(hook)
        self.ddp.register_comm_hook(state, self.recorder.hook)

    def _begin(self):
        if self.method.kind != "fsdp":
            models.initialize(self.model, self.seed)
        momentum = self.spec["momentum"] if self.method.momentum else 0
        self.optimizer = models.optimizer_of(self.about["model"], self.model.parameters(), self._rate(), momentum)

    def _rate(self):
        return models.first_rate(self.about["model"], self.spec["rate"]) * self.method.rate

    def _steps(self, epoch, exchange=True):
        """Trains for an epoch. Returns the seconds from a barrier's end to the end of the last step, on this rank."""
        for group in self.optimizer.param_groups:
            group["lr"] = models.rate_of(self._rate(), epoch, self.spec["epochs"])
        batches = self.share.epoch(self.seed, epoch)
        dist.barrier()
        start = time.perf_counter()
        for inputs, wanted in batches:
            self.optimizer.zero_grad(set_to_none=True)
            models.loss_of(self.ddp(inputs), wanted).backward()
            self.optimizer.step()
            if self.weights and exchange:
                self.weights.send()
        return time.perf_counter() - start

    def _compute(self):
        """Returns the seconds of epochs without exchange, on the slowest rank, and resets the model afterwards. Returns
        [] for FSDP2, which cannot compute without exchanging parameters."""
        if self.method.kind == "fsdp":
            return []
        seconds = []
        for epoch in range(PROBES):
            with self.ddp.no_sync():
                seconds.append(float(gathered(self._steps(epoch, exchange=False)).max()))
        alive()
        self._begin()
        return seconds

    def _operations_of_plain_ddp(self):
        """Returns the seconds in operations of plain DDP. They cannot be measured without a hook, so it trains one more
        epoch with a hook that does what plain DDP does."""
        self.ddp = DistributedDataParallel(self.model)
        self._register()
        self._steps(0)  # DDP rebuilds its buckets after the first step
        self.recorder.take()
        alive()
        self._steps(1)
        return [float(gathered(self.recorder.take()).mean())]

    def run(self):
        """Runs the training. Returns its result, which rank 0 prints. It is the same on all ranks, except the total
        time."""
        begin = time.perf_counter()
        compute = self._compute()
        sent = sent_bytes()
        epochs, operations, accuracy, losses = [], [], [], []  # operations: seconds in those that a hook starts
        for epoch in range(self.spec["epochs"]):
            own = self._steps(epoch)
            alive()  # the line is sent during the tests below, which are not timed
            busy = self.recorder.take() if self.recorder else 0.0
            seconds, busy, correct, loss = gathered(own, busy, *self.share.test(self.model)).unbind(1)
            epochs.append(float(seconds.max()))
            if self.recorder:
                operations.append(float(busy.mean()))
            accuracy.append(100 * float(correct.sum()) / self.share.tests)
            losses.append(float(loss.sum()) / self.share.tests)
        if sent is not None:
            sent = float(gathered(sent_bytes() - sent).mean()) / (self.spec["epochs"] * self.share.steps)
        hashes = digests(self.model)
        if self.method.kind == "gloo":
            operations = self._operations_of_plain_ddp()
        dist.barrier()
        if self.weights:
            self.weights.close()
        self.close()
        return self.about | {
            "steps": self.share.steps,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "compute_seconds": compute,
            "epoch_seconds": epochs,
            "operation_seconds": operations,
            "accuracy": accuracy,
            "loss": losses,
            "step_bytes": sent,
            "identical": len(set(hashes)) == 1,
            "hashes": hashes,
            "wall_seconds": time.perf_counter() - begin,
        }


def warm_up(spec, shares):
    """Trains once with each kind of method, to make connections and load libraries. These trainings do not count."""
    kinds = {}
    for training in spec["trainings"]:
        kinds.setdefault(plan.BY_NAME[training["method"]].kind, training)
    for training in kinds.values():
        Training(spec | {"epochs": 1}, shares[training["model"]], **training).run()


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=plan.PATIENCE)
    with contextlib.ExitStack() as at_end:
        if any(plan.BY_NAME[training["method"]].codec for training in spec["trainings"]):
            import gradlane.torch.engine

            # The engine stays connected from one training to the next.
            at_end.callback(gradlane.torch.engine.Engine.shared().release)
        rank, world = dist.get_rank(), dist.get_world_size()
        shares = {name: models.share_of(name, spec["data"], rank, world, spec["batch"])
                  for name in {training["model"] for training in spec["trainings"]}}
        warm_up(spec, shares)
        for training in spec["trainings"]:
            result = Training(spec, shares[training["model"]], **training).run()
            if dist.get_rank() == 0:
                print("result: " + json.dumps(result), flush=True)
            gc.collect()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except (ImportError, RuntimeError) as error:
        sys.exit(f"train.py: rank {os.environ.get('RANK', '?')}: {type(error).__name__}: {error}")
