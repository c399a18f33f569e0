"""Trains a small model to test a cluster. Each rank prints one line at the end. Starts by torchrun, mpirun, srun or
hand."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch

gradlane.torch.init()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1000, 1000))
model.register_comm_hook(gradlane.torch.State(codec="fixed:adaptive", error_feedback=True), gradlane.torch.hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(32, 1000, generator=torch.Generator().manual_seed(dist.get_rank()))
for _ in range(20):
    optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
total = sum(parameter.double().sum().item() for parameter in model.parameters())
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: backend {dist.get_backend()}, loss {loss:.4f}, "
      f"parameters add up to {total!r}", flush=True)
dist.destroy_process_group()
