"""A loop of accelerate's: the batches are shared out, and the loss is gathered over all processes."""

import os

import torch
from accelerate import Accelerator

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=4)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
for (batch,) in data:
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    accelerator.backward(loss)
    optimizer.step()
assert len(accelerator.gather(loss.reshape(1))) == accelerator.num_processes
node = os.environ["SLURMD_NODENAME"]
os.write(
    1, f"process {accelerator.process_index} of {accelerator.num_processes} on {node}\n".encode()
)  # one write: lines stay whole
accelerator.end_training()
