"""Trains with DistributedDataParallel and compresses the gradients by gradlane's communication hook.

`fixed:adaptive` rounds to a step that follows the size of the gradients; what rounding drops is added to the next
step's gradient (error feedback). The first step is exact, because the step size follows the step before.

One machine:    torchrun --nproc_per_node 4 ddp_hook.py
Four machines:  torchrun --nnodes 4 --nproc_per_node 1 --rdzv_backend c10d --rdzv_endpoint HOST:29400 ddp_hook.py
                (the same command on each; HOST is the name of one of the four)
"""

import hashlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch


def main():
    dist.init_process_group("gradlane")
    rank = dist.get_rank()
    torch.manual_seed(rank)  # each rank has its own data
    inputs = torch.randn(512, 64)
    targets = inputs[:, :8].tanh().sum(dim=1, keepdim=True)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
    model = DistributedDataParallel(layers)
    model.register_comm_hook(gradlane.torch.State("fixed:adaptive"), gradlane.torch.hook)
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
