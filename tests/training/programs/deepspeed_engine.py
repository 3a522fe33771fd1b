"""DeepSpeed's engine with ZeRO 1 on the processor."""

import os

import deepspeed
import torch
import torch.distributed as dist

torch.set_num_threads(1)
deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    config={"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0}},
)  # fmt: skip
for _ in range(2):
    engine.backward(engine(torch.randn(4, 4)).square().mean())
    engine.step()
node = os.environ["SLURMD_NODENAME"]
os.write(1, f"process {dist.get_rank()} of {dist.get_world_size()} on {node}\n".encode())  # one write: lines stay whole
dist.destroy_process_group()
