"""Processes of torchrun; with --fail the last one raises while the others wait for it."""

import sys

import torch
import torch.distributed

torch.distributed.init_process_group("gloo")
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
loss = model(torch.full((4, 2), float(rank))).square().mean()
loss.backward()
if "--fail" in sys.argv and rank == size - 1:
    raise ValueError("the last one fails")
total = torch.ones(1)
torch.distributed.all_reduce(total)
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
    print("sum", int(total.item()))
torch.distributed.destroy_process_group()
