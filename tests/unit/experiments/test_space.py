"""What runs take is counted whole and once, the largest is first, and trimming takes only what may go."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from spritz.experiments.code import snapshot, trimming
from spritz.experiments.commands.upkeep import space as command
from spritz.experiments.job import states
from spritz.experiments.records import record, space
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Store


class Terminal:
    def __init__(self) -> None:
        self.text = self.errors = ""

    def out(self, text: str) -> None:
        self.text += text

    def err(self, text: str) -> None:
        self.errors += text

    error = err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPRITZ_RUN_STORE", raising=False)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def add(home: Path, name: str, state: str = "COMPLETED", *, group: str = "", **values: Any) -> Path:
    """A run of that state; its directory."""
    directory = home / "runs" / name
    directory.mkdir(parents=True)
    run = Run(name=name, user=getpass.getuser(), created_at=1.0, command=["x"], group=group, **values)
    record.write(directory, run)
    Store(home).restore([(run, directory, {"state": state})])
    return directory


def fill(path: Path, kibibytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(kibibytes << 10))


def shown(*words: str, status: int = 0) -> Terminal:
    arguments = Namespace(limit=20, trim="--trim" in words, json="--json" in words)
    terminal = Terminal()
    assert command.run(arguments, terminal) == status, terminal.errors
    return terminal


def test_all_files_are_counted_once_and_links_are_not_followed(tmp_path: Path) -> None:
    fill(tmp_path / "a" / "b" / "c", 64)
    fill(tmp_path / "elsewhere", 512)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    taken = space.below(tmp_path / "a")
    assert taken.files == 5
    assert 64 << 10 <= taken.bytes < 128 << 10
    parts = space.parts(tmp_path / "a")
    assert sorted(parts) == ["", "b"]
    assert (sum(part.files for part in parts.values()), sum(part.bytes for part in parts.values())) == (5, taken.bytes)
    assert space.below(tmp_path / "none") == space.Space()
    assert space.parts(tmp_path / "none") == {}


def test_the_largest_is_first_with_the_command_that_frees_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "refresh_or_tell", lambda *words: None)  # there is no Slurm
    fill(add(home, "small-1") / "log" / "job.log", 16)
    fill(add(home, "large-1") / "checkpoints" / "1.pt", 256)
    fill(add(home, "open-1", "CREATED") / "code" / "out", 128)
    add(home, "far-1", options={"checkpoint_dir": str(tmp_path / "scratch")})
    fill(tmp_path / "scratch" / "far-1" / "1.pt", 1024)
    fill(home / "snapshots.git" / "pack", 512)
    fill(home / "runs" / "lost-1" / "run.json", 32)
    (home / "sweeps" / "s-1").mkdir(parents=True)
    fill(home / "sweeps" / "s-1" / "sweep.json", 16)
    for index in range(3):
        fill(add(home, f"s-1.{index}", group="s-1") / "code" / "model.pt", 200)
    lines = shown().text.splitlines()
    assert [line.split()[0] for line in lines[1:6]] == ["far-1", "s-1", "large-1", "open-1", "small-1"]
    assert "checkpoints elsewhere 1.01M" in lines[1] or "checkpoints elsewhere 1M" in lines[1]
    assert lines[2].split()[1] == "3"
    assert lines[2].endswith("spritz remove s-1")
    assert lines[3].endswith("spritz remove large-1")
    assert lines[4].endswith("spritz cancel open-1")
    values = json.loads(shown("--json").text)
    assert values["lines"][2]["parts"]["checkpoints"]["bytes"] >= 256 << 10
    assert {"runs of others, or not in the index", "runs.db", "snapshots.git"} <= set(values["shared"])
    every = [*values["lines"], *values["shared"].values()]
    assert values["bytes"] == sum(line["bytes"] for line in every)
    folders = 1 + 2  # the home itself, and those of runs and sweeps, are no run's
    assert values["files"] == sum(line["files"] for line in every)
    assert values["files"] == space.below(home).files - folders + space.below(tmp_path / "scratch" / "far-1").files


def test_trimming_leaves_runs_that_may_be_running_and_what_runs_wrote(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "refresh_or_tell", lambda *words: None)  # there is no Slurm
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("train")
    store = home / "snapshots.git"
    tree = snapshot.take(tmp_path / "project", store).tree
    places = {}
    for name, state in (("ended-1", "FAILED"), ("lost-1", "LOST"), ("going-1", "RUNNING"), ("held-1", "PAUSED")):
        directory = add(home, name, state, code={"tree": tree, "root": "/", "directory": "."})
        lines = snapshot.checkout_lines(store, tree, str(directory / "code"))
        subprocess.run(["bash", "-c", lines], check=True)
        (directory / "code" / "out").write_text("result")
        places[name] = directory / "code"
    told = shown()
    assert "of runs that have ended, 1 hold all of their code" in told.errors
    store.rename(home / "away")
    assert "the code of 1 is left as it is" in shown("--trim").errors
    (home / "away").rename(store)
    told = shown("--trim")
    assert "of 1 that held all of their code" in told.errors
    assert "left as it is" not in told.errors
    assert [trimming.is_whole(place) for place in places.values()] == [False, True, True, True]
    assert sorted(path.name for path in places["ended-1"].iterdir()) == [".git-snapshot-done", "out"]
    assert "hold all" not in shown().errors
