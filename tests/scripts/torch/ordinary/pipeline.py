"""A pipeline by send and recv, DDP's join() with uneven data, ZeroRedundancyOptimizer, DTensor. Backend: argv[1]."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel


def pipeline():
    """Each rank has a layer. Activations go to the next rank, and gradients come back."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    torch.manual_seed(rank)
    layer = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    for step in range(8):
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(step))
        if rank > 0:
            dist.recv(x, rank - 1)
        x.requires_grad_(rank > 0)
        y = torch.tanh(layer(x))
        if rank < last:
            dist.send(y.detach(), rank + 1)
            gradient = torch.empty_like(y)
            dist.recv(gradient, rank + 1)
            y.backward(gradient)
        else:
            loss = y.square().mean()
            loss.backward()
        if rank > 0:
            dist.send(x.grad, rank - 1)
        optimizer.step()
        optimizer.zero_grad()
    result = loss.detach() if rank == last else torch.zeros(())
    dist.broadcast(result, last)
    return result.item()


def uneven():
    """Ranks have different numbers of batches."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.05)
    with Join([model, optimizer]):
        for step in range(4 + dist.get_rank()):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * dist.get_rank() + step))
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return sum(parameter.detach().square().sum().item() for parameter in model.parameters())


def sharded():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(64.0).view(8, 8)
    other = distribute_tensor(whole, mesh, [Shard(1)])
    return (distribute_tensor(whole, mesh, [Shard(0)]) @ other).full_tensor().sum().item() / 1e6


def main():
    dist.init_process_group(sys.argv[1])
    results = pipeline(), uneven(), sharded()
    if dist.get_rank() == 0:
        print("loss " + " ".join(f"{result:.6f}" for result in results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
