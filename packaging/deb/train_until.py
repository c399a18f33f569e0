#!/usr/bin/python3
"""Trains until rank 0 finds a file, so that a test can do something during a training.

usage: train_until.py FILE, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment. At the end each rank
prints its number of steps and a hash of the weights. Rank 0 keeps FILE.steps up to date.
"""

import hashlib
import pathlib
import sys

import torch

import gradlane.torch  # noqa: F401  # makes the backend known

enough = pathlib.Path(sys.argv[1])
torch.distributed.init_process_group("gradlane")
rank = torch.distributed.get_rank()
torch.manual_seed(rank)
inputs = torch.randn(256, 64)
layers = torch.nn.Linear(64, 64)
model = torch.nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end = torch.zeros(1)
steps = 0
while end.item() == 0:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), torch.sin(inputs)).backward()
    optimizer.step()
    steps += 1
    if rank == 0:
        enough.with_suffix(".steps").write_text(str(steps))
        end.fill_(float(enough.exists()))
    torch.distributed.all_reduce(end)
weights = b"".join(value.detach().numpy().tobytes() for value in layers.parameters())
print(f"rank {rank}: {steps} steps, weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
torch.distributed.destroy_process_group()
