"""A training loop as everybody writes it: a small ResNet, DistributedDataParallel, a sampler. Backend: argv[1]."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Conv2d(width, width, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(width)
        self.second = torch.nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.second(F.relu(self.norm(self.first(x)))))


def main():
    dist.init_process_group(sys.argv[1])
    torch.manual_seed(0)
    images = torch.randn(256, 1, 8, 8)
    labels = images.flatten(1)[:, :10].argmax(1)
    data = TensorDataset(images, labels)
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=1)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 3, padding=1), Block(16), Block(16), torch.nn.Flatten(),
                                torch.nn.Linear(1024, 10))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch, targets in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch), targets)
            loss.backward()
            optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    if dist.get_rank() == 0:
        print(f"loss {mean.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
