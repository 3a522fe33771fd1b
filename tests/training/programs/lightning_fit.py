"""Lightning's Trainer on the tasks of Slurm, whose variables it reads itself."""

import os

import lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.set_num_threads(1)
trainer = lightning.Trainer(
    accelerator="cpu", strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
    devices=int(os.environ["SLURM_NTASKS_PER_NODE"]), num_nodes=int(os.environ["SLURM_NNODES"]),
)  # fmt: skip
trainer.fit(Model(), torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=4))
node = os.environ["SLURMD_NODENAME"]
os.write(
    1, f"process {trainer.global_rank} of {trainer.world_size} on {node}\n".encode()
)  # one write: lines stay whole
