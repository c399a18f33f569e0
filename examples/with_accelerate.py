"""Trains with Hugging Face's accelerate over gradlane, with compressed gradients. Needs: pip install accelerate

accelerate has a fixed list of backends, so the script makes the process group before Accelerator().

One machine:    torchrun --nproc_per_node 4 with_accelerate.py
Four machines:  torchrun --nnodes 4 --nproc_per_node 1 --rdzv_backend c10d --rdzv_endpoint HOST:29400 with_accelerate.py
                (the same command on each; HOST is the name of one of the four)
"""

import torch
from accelerate import Accelerator

import gradlane.torch


def main():
    torch.distributed.init_process_group("gradlane")
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = torch.utils.data.DataLoader(torch.randn(1024, 32), batch_size=16)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    model.register_comm_hook(gradlane.torch.State("fixed:adaptive"), gradlane.torch.hook)
    for epoch in range(3):
        for batch in data:
            loss = (model(batch) - batch[:, :8]).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        mean = accelerator.gather(loss.detach()).mean()
        accelerator.print(f"epoch {epoch}: loss {mean.item():.4f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
