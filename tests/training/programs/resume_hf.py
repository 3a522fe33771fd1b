"""HF's Trainer over pauses, with dropout and shuffled data. GATE is the step to go to."""

import os
import time
from pathlib import Path

import torch
from spritz_checkpointing import Checkpointer, huggingface_callback, resume_from
from transformers import Trainer, TrainingArguments

checkpoints = Checkpointer()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))

    def forward(self, values, **_):
        step = trainer.state.global_step
        while step >= int(Path(os.environ["GATE"]).read_text() or 0) and not checkpoints.should_stop():
            time.sleep(0.05)
        loss = ((self.layers(values) - 1) ** 2).mean()
        print("loss", step, repr(loss.item()), flush=True)
        return {"loss": loss}


torch.set_num_threads(1)
torch.manual_seed(7)
rows = [{"values": torch.randn(4, generator=torch.Generator().manual_seed(row))} for row in range(480)]
arguments = TrainingArguments(
    output_dir=os.environ["SPRITZ_CHECKPOINT_DIR"], per_device_train_batch_size=8, num_train_epochs=1, use_cpu=True,
    save_strategy="steps", save_steps=7, save_total_limit=2, report_to=[], disable_tqdm=True, logging_strategy="no",
    remove_unused_columns=False, seed=7, dataloader_pin_memory=False,
)  # fmt: skip
trainer = Trainer(model=Model(), args=arguments, train_dataset=rows, callbacks=[huggingface_callback(checkpoints)])
trainer.train(resume_from_checkpoint=resume_from())
