"""Gradient accumulation with no_sync(), autocast to bfloat16, clipping, unused parameters. Backend: argv[1]."""

import contextlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.GELU(), torch.nn.Linear(128, 8))
        self.seldom = torch.nn.Linear(8, 8)

    def forward(self, x, often):
        y = self.body(x)
        return self.seldom(y) if often else y


def main():
    dist.init_process_group(sys.argv[1])
    torch.manual_seed(0)
    model = DistributedDataParallel(Model(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu")
    torch.manual_seed(1 + dist.get_rank())
    for step in range(12):
        for micro in range(3):
            x = torch.randn(16, 32)
            with model.no_sync() if micro < 2 else contextlib.nullcontext():
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = (model(x, step % 3 == 0).float() - x[:, :8]).square().mean()
                scaler.scale(loss / 3).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
    mean = loss.detach()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"loss {mean.item() / dist.get_world_size():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
