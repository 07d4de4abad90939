"""Fits a line on all tasks of the job, as long as it takes, over requeues. Needs pytorch-lightning."""
import os
import time

import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(os.environ.get("STEPS", "600"))


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        if self.global_rank == 0:
            print(f"step {self.global_step}", flush=True)
        time.sleep(0.1)
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


x = torch.linspace(-1, 1, 64).reshape(-1, 1)
trainer = lightning.Trainer(
    accelerator="cpu", strategy="ddp", devices=int(os.environ["SLURM_NTASKS_PER_NODE"]),
    num_nodes=int(os.environ["SLURM_NNODES"]), max_steps=STEPS, logger=False, enable_progress_bar=False,
    enable_checkpointing=False, enable_model_summary=False)
print(f"run {os.environ.get('SLURM_RESTART_COUNT', 0)}: rank {trainer.global_rank} of {trainer.world_size}", flush=True)
model = Line()
trainer.fit(model, DataLoader(TensorDataset(x, 2 * x + 1), batch_size=16))
print(f"rank {trainer.global_rank}: done after {trainer.global_step} steps", flush=True)
