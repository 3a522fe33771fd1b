"""Train a small convolutional network on scikit-learn's digits.

Tracked by MLflow, resumable (`spritz pause`), and swept: trials report in metrics.jsonl.
"""

import argparse
import json
import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from spritz_checkpointing import Checkpointer
from torch import nn

if tracked := "MLFLOW_RUN_ID" in os.environ:  # `spritz run --track` sets it
    import mlflow


def main() -> None:
    """Every fifth of the 1,797 images is kept for the test."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    test = torch.arange(len(labels)) % 5 == 0
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(512, 10)),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    reports = Path(os.environ["SPRITZ_RUN_DIR"], "metrics.jsonl")
    checkpoints = Checkpointer()
    state = checkpoints.load()  # also sets the random state, so that the numbers go on as if nothing had happened
    if state:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        print(f"life {os.environ['SPRITZ_RESTART']} goes on at epoch {state['step'] + 1}", flush=True)
    elif tracked:
        mlflow.log_params(vars(options))
    for epoch in range(state["step"] if state else 0, options.epochs):
        model.train()
        total = 0.0
        order = torch.randperm(int((~test).sum()))
        for batch in order.split(32):
            loss = nn.functional.cross_entropy(model(images[~test][batch]), labels[~test][batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        model.eval()
        with torch.no_grad():
            accuracy = (model(images[test]).argmax(dim=1) == labels[test]).float().mean().item()
        print(f"epoch {epoch + 1:2d}  loss {total / len(order):.4f}  accuracy {accuracy:.4f}", flush=True)
        values = {"loss": total / len(order), "accuracy": accuracy}
        if tracked:
            mlflow.log_metrics(values, step=epoch + 1)
        with reports.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": epoch + 1, **values}) + "\n")
        stop = checkpoints.should_stop()
        if stop or epoch % 5 == 4:
            checkpoints.save(epoch + 1, model=model, optimizer=optimizer)
        if stop:
            checkpoints.leave()


if __name__ == "__main__":
    main()
