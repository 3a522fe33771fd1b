"""Train a small network on scikit-learn's handwritten digits with DistributedDataParallel, one process a Slurm task."""

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 15


def data() -> tuple[TensorDataset, TensorDataset]:
    """1,797 digits of 8 x 8 pixels; every fifth is kept for the test."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


def main() -> None:
    """Rank and world size come from Slurm, as in any script written for it."""
    rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, test = data()
    sampler = DistributedSampler(train, shuffle=True, seed=0)
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    node = os.environ["SLURMD_NODENAME"]
    print(f"rank {rank} of {world_size} on {node}, GPUs {os.environ.get('CUDA_VISIBLE_DEVICES', 'none')}", flush=True)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch + 1:2d} of {EPOCHS}  loss {total.item() / (len(loader) * world_size):.4f}", flush=True)
    with torch.no_grad():
        images, labels = test.tensors
        accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
    if rank == 0:
        print(f"test accuracy {accuracy:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
