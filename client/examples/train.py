#!/usr/bin/python3
"""Trains a small model with PyTorch. gradlane sums the gradients, so all ranks have the same weights, to the bit.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be in the environment, where any launcher puts them.
"""

import hashlib

import torch

import gradlane.torch  # noqa: F401  # makes the backend known

torch.distributed.init_process_group("gradlane")
rank = torch.distributed.get_rank()
torch.manual_seed(rank)  # each rank has data of its own; DistributedDataParallel sends rank 0's weights to all
inputs = torch.randn(512, 64)
targets = torch.sin(inputs.sum(dim=1, keepdim=True))
layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
model = torch.nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(100):
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 33 == 0:
        print(f"rank {rank}, step {step}: loss {loss.item():.4f}", flush=True)
weights = b"".join(value.detach().numpy().tobytes() for value in layers.parameters())
print(f"rank {rank}: weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
torch.distributed.destroy_process_group()
