"""Accelerate's save_state into a directory per step."""

import argparse

import torch
from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
steps = parser.parse_args().steps
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(2, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for step in range(1, steps + 1):
    loss = model(torch.ones(4, 2)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 0:
        accelerator.save_state(f"checkpoints/step_{step}")
accelerator.print("steps", steps)
