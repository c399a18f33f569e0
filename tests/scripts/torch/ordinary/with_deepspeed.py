"""Training with DeepSpeed, ZeRO stage 1 or 2, on the CPU. Backend: argv[1]; stage: argv[2]."""

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch


def main():
    torch.distributed.init_process_group(sys.argv[1])
    deepspeed.init_distributed(dist_backend=sys.argv[1])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    stage = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    config = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
              "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False}
    engine, _, _, _ = deepspeed.initialize(model=model, config=config,
                                           optimizer=torch.optim.Adam(model.parameters(), lr=1e-2))
    torch.manual_seed(1 + torch.distributed.get_rank())
    for _ in range(24):
        batch = torch.randn(8, 32)
        loss = (engine(batch) - batch[:, :8]).square().mean()
        engine.backward(loss)
        engine.step()
    mean = loss.detach()
    torch.distributed.all_reduce(mean)
    if torch.distributed.get_rank() == 0:
        print(f"loss {mean.item() / torch.distributed.get_world_size():.6f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
