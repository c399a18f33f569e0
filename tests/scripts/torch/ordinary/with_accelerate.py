"""Training with accelerate. Accelerator() does not know gradlane, so the process group is made first. Backend: argv[1].
"""

import sys

import torch
from accelerate import Accelerator


def main():
    torch.distributed.init_process_group(sys.argv[1])
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = torch.utils.data.DataLoader(torch.randn(256, 32), batch_size=8)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for _ in range(3):
        for batch in data:
            with accelerator.accumulate(model):
                loss = (model(batch) - batch[:, :8]).square().mean()
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    mean = accelerator.gather(loss.detach()).mean()
    accelerator.print(f"loss {mean.item():.6f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
