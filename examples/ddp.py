"""Trains with DistributedDataParallel over gradlane. Gradients are summed exactly. A script for Gloo becomes one
for gradlane by two lines: the import, and the name of the backend.

One machine:    torchrun --nproc_per_node 4 ddp.py
Four machines:  torchrun --nnodes 4 --nproc_per_node 1 --rdzv_backend c10d --rdzv_endpoint HOST:29400 ddp.py
                (the same command on each; HOST is the name of one of the four)
"""

import hashlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch  # noqa: F401 - registers the backend


def main():
    dist.init_process_group("gradlane")
    rank = dist.get_rank()
    torch.manual_seed(rank)  # each rank has its own data
    inputs = torch.randn(512, 64)
    targets = inputs[:, :8].tanh().sum(dim=1, keepdim=True)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(100):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in layers.parameters())
    print(f"rank {rank}: weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
