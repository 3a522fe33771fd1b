"""Lightning over pauses: dropout, Adam, and a data loader that says where it is. GATE is the step to go to."""

import os
import time
from pathlib import Path

import lightning
import torch
from spritz_checkpointing import Checkpointer, lightning_callback, resume_from

checkpoints = Checkpointer()


def wait(step):
    while step >= int(Path(os.environ["GATE"]).read_text() or 0) and not checkpoints.should_stop():
        time.sleep(0.05)


class Batches:
    """Sixty batches in an order of its own, from the one after the last that was trained on."""

    def __init__(self):
        self.place = 0

    def __len__(self):
        return 60

    def __iter__(self):
        start, self.place = self.place, 0
        for place in range(start, 60):
            yield place, torch.randn(16, 4, generator=torch.Generator().manual_seed(place))

    def state_dict(self):
        return {"place": model.done}

    def load_state_dict(self, state):
        self.place = state["place"]


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
        self.done = 0

    def training_step(self, batch, _):
        place, values = batch
        wait(place)
        loss = ((self.layers(values) - 1) ** 2).mean()
        print("loss", int(place), repr(loss.item()), flush=True)
        self.done = int(place) + 1
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


torch.set_num_threads(1)
torch.manual_seed(7)
model = Model()
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, use_distributed_sampler=False,
    callbacks=[lightning_callback(checkpoints, every_n_steps=7)],
)  # fmt: skip
trainer.fit(model, Batches(), ckpt_path=resume_from())
