import os
import pickle
from pathlib import Path

import numpy as np
import torch
from model import Bigram

out_dir = "out"
dataset = "openwebtext"
init_from = "scratch"
max_iters = 100
exec(Path("configurator.py").read_text())

torch.manual_seed(1)
data_dir = os.path.join("data", dataset)
data = np.memmap(os.path.join(data_dir, "train.bin"), dtype=np.uint16, mode="r")
with open(os.path.join(data_dir, "meta.pkl"), "rb") as file:
    size = pickle.load(file)["vocab_size"]
model = Bigram(size)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
begin = 0
if init_from == "resume":
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"))
    model.load_state_dict(checkpoint["model"])
    begin = checkpoint["iter"]
for step in range(begin, begin + max_iters):
    at = step * 32 % (len(data) - 33)
    ids = torch.from_numpy(data[at : at + 33].astype(np.int64))
    loss = model(ids[:-1], ids[1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"iter {begin + max_iters}: loss {loss.item():.3f}")
os.makedirs(out_dir, exist_ok=True)
torch.save({"model": model.state_dict(), "iter": begin + max_iters}, os.path.join(out_dir, "ckpt.pt"))
