"""Training with FSDP2. With argv[2] = hsdp it uses a mesh of two dimensions, of four ranks. Backend: argv[1]."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group(sys.argv[1])
    world = dist.get_world_size()
    hybrid = sys.argv[2:] == ["hsdp"]
    mesh = init_device_mesh("cpu", (2, world // 2) if hybrid else (world,),
                            mesh_dim_names=("replicate", "shard") if hybrid else ("shard",))
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(3)])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(10):
        x = torch.randn(16, 64)
        loss = (model(x) - x.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    mean = loss.detach()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"loss {mean.item() / world:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
