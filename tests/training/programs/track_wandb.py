import os
import time

import wandb
from spritz_checkpointing import Checkpointer

checkpoints = Checkpointer()
state = checkpoints.load()
step = state["step"] if state else 0
run = wandb.init(project="digits", dir=os.environ["SPRITZ_RUN_DIR"])
print("run", run.id, run.name, flush=True)
run.log({"loss": 1 / (step + 1)}, step=step)
while state is None and not checkpoints.should_stop():
    time.sleep(0.05)
if state is None:
    checkpoints.save(step + 1)
run.finish()
if state is None:
    checkpoints.leave()
