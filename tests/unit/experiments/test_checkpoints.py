"""Checkpoints are found by name, and a policy never removes the newest, a link's target, or the user's files."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

from spritz.experiments.commands import checkpoints as command
from spritz.experiments.job import states
from spritz.experiments.results import checkpoints
from spritz.experiments.results.checkpoints import Checkpoint
from spritz.experiments.results.metrics import Point
from tests.unit.experiments.test_space import Terminal, add, home

__all__ = ["home"]


def put(path: Path, at: float, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))
    return path


def names(found: list[Checkpoint]) -> list[list[str]]:
    return [[path.name for path in item.paths] for item in found]


def test_shards_of_a_step_are_one_checkpoint_and_so_is_a_directory(tmp_path: Path) -> None:
    put(tmp_path / "out" / "step=100-rank0.pt", 1)
    put(tmp_path / "out" / "step=100-rank1.pt", 2, 20)
    put(tmp_path / "out" / "step=200-rank0.pt", 3)
    put(tmp_path / "hf" / "checkpoint-300" / "model.safetensors", 5)
    put(tmp_path / "hf" / "checkpoint-300" / "trainer_state.json", 5)
    os.utime(tmp_path / "hf" / "checkpoint-300", (5, 5))
    put(tmp_path / "notes.txt", 9)
    put(tmp_path / ".git" / "x.pt", 9)
    found = checkpoints.find([tmp_path])
    assert names(found) == [["checkpoint-300"], ["step=200-rank0.pt"], ["step=100-rank0.pt", "step=100-rank1.pt"]]
    assert [(item.step, item.size, item.written_at) for item in found] == [(300, 20, 5), (200, 10, 3), (100, 30, 2)]


def test_the_snapshots_files_and_older_ones_are_none(tmp_path: Path) -> None:
    base = put(tmp_path / "pretrained.pt", 50)
    put(tmp_path / "old-1.pt", 5)
    put(tmp_path / "new-2.pt", 50)
    assert names(checkpoints.find([tmp_path], tracked={base}, since=10.0)) == [["new-2.pt"]]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("epoch=3-step=1200.ckpt", 1200),
        ("epoch=3-val_loss=0.25.ckpt", 3),
        ("checkpoint-500", 500),
        ("model_1000.pt", 1000),
        ("last.ckpt", None),
        ("resnet50.pt", None),
    ],
)
def test_steps_in_names(name: str, step: int | None) -> None:
    assert checkpoints.step_of(name) == step


def series(tmp_path: Path, count: int = 5) -> list[Checkpoint]:
    for step in range(count):
        put(tmp_path / f"step={step}.pt", 100 + step)
    return checkpoints.find([tmp_path])


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    found = series(tmp_path)
    points = [Point("loss", value, float(step)) for step, value in enumerate([5.0, 1.0, 4.0, 3.0, 2.0])]
    values = {item: value for item in found if (value := checkpoints.value_of(item, "loss", points)) is not None}
    assert [values[item] for item in found] == [2.0, 3.0, 4.0, 1.0, 5.0]
    surplus = checkpoints.to_prune(found, keep_last=2, values=values, least=checkpoints.less_is_better("val_loss"))
    assert names(surplus) == [["step=2.pt"], ["step=0.pt"]]
    # Without --keep-last, and even when it is the worst, the newest stays.
    surplus = checkpoints.to_prune(found, keep_last=None, values=values, least=False)
    assert names(surplus) == [["step=3.pt"], ["step=2.pt"], ["step=1.pt"]]
    for item in surplus:
        checkpoints.remove(item)
    assert names(checkpoints.find([tmp_path])) == [["step=4.pt"], ["step=0.pt"]]


def test_links_targets_and_files_of_no_series_stay(tmp_path: Path) -> None:
    series(tmp_path, 3)
    (tmp_path / "best.pt").symlink_to("step=0.pt")
    put(tmp_path / "last.pt", 1)
    surplus = checkpoints.to_prune(checkpoints.find([tmp_path]), keep_last=1, values={}, least=False)
    assert names(surplus) == [["step=1.pt"]]


def test_a_value_comes_from_the_name_or_from_the_time(tmp_path: Path) -> None:
    put(tmp_path / "epoch=3-val_loss=0.25.ckpt", 100)
    (item,) = checkpoints.find([tmp_path])
    assert checkpoints.value_of(item, "val_loss", []) == 0.25
    points = [Point("acc", 0.1, None, 90.0), Point("acc", 0.2, None, 99.0), Point("acc", 0.3, None, 110.0)]
    assert checkpoints.value_of(item, "acc", points) == 0.2
    assert checkpoints.value_of(item, "loss", points) is None


def test_pruning_takes_none_of_another_run_in_a_directory_that_runs_share(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--checkpoint-dir DIR` is DIR/RUN."""
    monkeypatch.setattr(states, "refresh", lambda *_: None)
    options = {"checkpoint_dir": str(tmp_path / "kept")}
    for name in ("a-1", "b-1"):
        add(home, name, options=options)
        for step in (1, 2):
            put(tmp_path / "kept" / name / f"step-{step}.ckpt", 10 + step)
    terminal = Terminal()
    arguments = Namespace(run="a-1", keep_last=1, keep_best=None, prune=True, dir=[], json=False)
    assert command.run(arguments, terminal) == 0, terminal.errors
    left = sorted(str(path.relative_to(tmp_path / "kept")) for path in tmp_path.glob("kept/*/*"))
    assert left == ["a-1/step-2.ckpt", "b-1/step-1.ckpt", "b-1/step-2.ckpt"]
    assert "b-1" not in terminal.text
