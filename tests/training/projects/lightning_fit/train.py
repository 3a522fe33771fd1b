"""Lightning writes logs and checkpoints into lightning_logs/."""

import lightning
import torch


class Line(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


x = torch.linspace(-1, 1, 64)[:, None]
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 3 * x), batch_size=8)
logger = lightning.pytorch.loggers.TensorBoardLogger(".", name="lightning_logs")
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", devices=1, logger=logger, log_every_n_steps=4,
                            enable_progress_bar=False)  # fmt: skip
trainer.fit(Line(), loader)
