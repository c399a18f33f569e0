"""train.py - one rank of the trainings of the experiment `accuracy`, which `gradlane run` starts

Rank 0 prints the result of each training.
"""

import gc
import hashlib
import json
import os
import pathlib
import sys

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch
from lab.study import hooks, methods, models, plan


def gathered(*values):
    """Gathers the values of all ranks. Returns a float64 tensor with a row for each rank."""
    mine = torch.tensor(values, dtype=torch.float64)
    rows = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, mine)
    return torch.stack(rows)


def digests(model):
    """Returns the SHA-256 of each rank's weights."""
    own = hashlib.sha256()
    for parameter in model.parameters():
        own.update(parameter.detach().numpy().tobytes())
    mine = torch.from_numpy(numpy.frombuffer(own.digest(), numpy.uint8).copy())
    rows = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, mine)
    return [bytes(row.numpy()).hex() for row in rows]


class Training:
    """A training of a model under DDP, from its first weights on, with one method."""

    def __init__(self, share, model, seed, method, epochs):
        self.share, self.seed, self.method, self.epochs = share, seed, method, epochs
        torch.manual_seed(seed)
        self.model = models.MAKE[model]()
        models.initialize(self.model, seed)
        self.ddp = DistributedDataParallel(self.model)
        state, hook, self.close = hooks.hook_of(method, self.model, share.steps)
        if hook:  # Gloo is DDP without a hook
            self.ddp.register_comm_hook(state, hook)
        self.weights = hooks.Weights(method, self.model) if method.what == methods.WEIGHTS else None
        self.rate = models.first_rate(model) * method.rate
        self.optimizer = models.optimizer_of(model, self.model.parameters(), self.rate, method.momentum,
                                             method.small_momentum)

    def _epoch(self, epoch):
        for group in self.optimizer.param_groups:
            group["lr"] = models.rate_of(self.rate, epoch, self.epochs)
        for inputs, wanted in self.share.epoch(self.seed, epoch):
            self.optimizer.zero_grad(set_to_none=True)
            models.loss_of(self.ddp(inputs), wanted).backward()
            self.optimizer.step()
            if self.weights:
                self.weights.send()

    def run(self):
        """Runs the training. Returns accuracy (%) and loss after each epoch, and the hash of the weights."""
        accuracy, losses = [], []
        for epoch in range(self.epochs):
            self._epoch(epoch)
            correct, loss = gathered(*self.share.test(self.model)).sum(0) / self.share.tests
            accuracy.append(round(100 * float(correct), 3))
            losses.append(round(float(loss), 5))
        hashes = digests(self.model)
        self.close()
        return {"accuracy": accuracy, "loss": losses, "hash": hashes[0][:16], "identical": len(set(hashes)) == 1}


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    model = spec["model"]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=plan.PATIENCE)
    engine = gradlane.torch.Engine.shared()  # stays connected from one training to the next
    share = models.share_of(model, dist.get_rank(), dist.get_world_size())
    for method in spec["methods"]:
        result = Training(share, model, spec["seed"], methods.BY_NAME[method], spec["epochs"]).run()
        if dist.get_rank() == 0:
            print("result: " + json.dumps({"method": method} | result), flush=True)
        gc.collect()
    dist.barrier()
    engine.release()
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"train.py: rank {os.environ.get('RANK', '?')}: {type(error).__name__}: {error}")
