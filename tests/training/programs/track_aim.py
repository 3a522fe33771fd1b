import os
import time

from spritz_checkpointing import Checkpointer, aim_run

checkpoints = Checkpointer()
state = checkpoints.load()
step = state["step"] if state else 0
run = aim_run(repo=os.environ["AIM_REPO"])
run.track(1 / (step + 1), name="loss", step=step)
print("run", run.hash, run.name, flush=True)
while state is None and not checkpoints.should_stop():
    time.sleep(0.05)
if state is None:
    checkpoints.save(step + 1)
run.close()
if state is None:
    checkpoints.leave()
