"""Training with Lightning. Its strategy's process_group_backend names the backend. Backend: argv[1]."""

import logging
import sys
import warnings

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))

    def training_step(self, batch, _):
        loss = (self.net(batch) - batch[:, :8]).square().mean()
        self.log("loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main():
    lightning.seed_everything(1, verbose=False)
    data = torch.utils.data.DataLoader(torch.randn(256, 32), batch_size=16)
    trainer = lightning.Trainer(accelerator="cpu", devices=2, max_epochs=3, logger=False, enable_checkpointing=False,
                                strategy=DDPStrategy(process_group_backend=sys.argv[1]), enable_progress_bar=False,
                                enable_model_summary=False, gradient_clip_val=1.0, accumulate_grad_batches=2)
    trainer.fit(Model(), data)
    if trainer.global_rank == 0:
        print(f"loss {trainer.callback_metrics['loss'].item():.6f}")


if __name__ == "__main__":
    main()
