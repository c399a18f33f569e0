"""Trains with FSDP2 (fully_shard) and compresses its reduce-scatters. Needs PyTorch 2.7 or later.

One machine:    torchrun --nproc_per_node 4 fsdp2.py
Four machines:  torchrun --nnodes 4 --nproc_per_node 1 --rdzv_backend c10d --rdzv_endpoint HOST:29400 fsdp2.py
                (the same command on each; HOST is the name of one of the four)
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradlane.torch


def main():
    dist.init_process_group("gradlane")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)  # all ranks begin with the same weights
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh()) for _ in range(4)])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    gradlane.torch.fsdp(model)  # gradients by fixed:adaptive with error feedback; parameters stay exact
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + dist.get_rank())  # each rank has its own data
    inputs = torch.randn(256, 256)
    for step in range(60):
        loss = (model(inputs) - inputs.flip(1).tanh()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == 59:
            mean = loss.detach()
            dist.all_reduce(mean)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {mean.item() / dist.get_world_size():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
