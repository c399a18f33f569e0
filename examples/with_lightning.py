"""Trains with Lightning over gradlane, with compressed gradients. Needs: pip install lightning

One machine:    torchrun --nproc_per_node 4 with_lightning.py
Four machines:  torchrun --nnodes 4 --nproc_per_node 1 --rdzv_backend c10d --rdzv_endpoint HOST:29400 with_lightning.py
                (the same command on each; HOST is the name of one of the four)
"""

import os

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy

import gradlane.torch


class Model(lightning.LightningModule):
    """A regression on synthetic data."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))

    def training_step(self, batch, _):
        loss = (self.net(batch) - batch[:, :8]).square().mean()
        self.log("loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main():
    torch.distributed.init_process_group("gradlane")  # before State, which needs the connection
    lightning.seed_everything(1, verbose=False)
    data = torch.utils.data.DataLoader(torch.randn(1024, 32), batch_size=16)
    strategy = DDPStrategy(ddp_comm_state=gradlane.torch.State("fixed:adaptive"), ddp_comm_hook=gradlane.torch.hook)
    trainer = lightning.Trainer(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
                                num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), strategy=strategy, max_epochs=3,
                                logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Model(), data)
    if trainer.global_rank == 0:
        print(f"loss {trainer.callback_metrics['loss'].item():.4f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
