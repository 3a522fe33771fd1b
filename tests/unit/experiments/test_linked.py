"""What git ignores reaches a run by links, and what the run wrote is found."""

from __future__ import annotations

import os
import subprocess
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from spritz.experiments.code import linked, snapshot
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.commands import files
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import submission
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Store
from spritz.experiments.results import failures, written

from .test_snapshot import git


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with ignored data beside code, an ignored output directory and an environment."""
    path = tmp_path / "project"
    for name, text in {
        "train.py": "", "data/s/prepare.py": "", "data/s/train.bin": "1", "data/s/val.bin": "2", "out/a b/x.pt": "3",
        ".venv/bin/python": "", "sub/node_modules/x.js": "", "sub/run.py": "",
    }.items():  # fmt: skip
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    (path / ".gitignore").write_text("*.bin\nout/\n.venv\nnode_modules\n")
    git(path, "init", "-q", "-b", "main")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "one")
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def checked_out(home: Path, code: Snapshot, wanted: list[str]) -> Path:
    store, target = home / "snapshots.git", home / "runs" / "r-1" / "code"
    names = linked.paths(code, store, wanted)
    script = snapshot.checkout_lines(store, code.tree, str(target)) + linked.lines(code, names, f"'{target}'")
    for _ in range(2):  # a requeued job finds the checkout of its first life
        subprocess.run(["bash", "-euc", script], check=True)
    return target


def test_a_link_leads_to_the_ignored_parts_only(project: Path, home: Path) -> None:
    code = snapshot.take(project, home / "snapshots.git")
    target = checked_out(home, code, ["data", "out"])
    assert {str(path.relative_to(target)) for path in target.rglob("*") if path.is_symlink()} == {
        *("data/s/train.bin", "data/s/val.bin", "out", ".venv"),
    }
    (project / "data" / "s" / "prepare.py").write_text("edited")
    assert (target / "data" / "s" / "prepare.py").read_text() == ""
    assert (target / "data" / "s" / "train.bin").read_text() == "1"
    (target / "out" / "new.pt").write_text("4")
    assert (project / "out" / "new.pt").read_text() == "4"


def test_environments_of_the_directory_and_of_the_root_are_linked(project: Path, home: Path) -> None:
    code = snapshot.take(project / "sub", home / "snapshots.git")
    assert linked.paths(code, home / "snapshots.git", []) == ["sub/node_modules", ".venv"]


def test_uv_may_make_an_environment_where_the_project_has_none(project: Path, home: Path) -> None:
    code = snapshot.take(project, home / "snapshots.git")
    assert "UV_NO_SYNC" not in linked.lines(code, ["data/s/train.bin"], "code")
    assert "UV_NO_SYNC" in linked.lines(code, ["data/s/train.bin", "sub/.venv"], "code")


def test_an_environment_in_the_snapshot_is_not_linked(project: Path, home: Path) -> None:
    git(project, "add", "-f", ".venv")
    code = snapshot.take(project, home / "snapshots.git")
    assert linked.paths(code, home / "snapshots.git", []) == []


def test_a_project_without_git(tmp_path: Path, home: Path) -> None:
    project = tmp_path / "plain"
    (project / "data").mkdir(parents=True)
    (project / "data" / "x.bin").write_text("1")
    (project / ".spritzignore").write_text("data\n")
    code = snapshot.take(project, home / "snapshots.git")
    assert linked.paths(code, home / "snapshots.git", ["data"]) == ["data"]


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("nope", "no such file or directory"),
        ("train.py", "the snapshot has it"),
        ("..", "not below"),
        (".", "not below"),
        ("/etc", "not below"),
    ],
)
def test_what_cannot_be_linked_is_refused(project: Path, home: Path, word: str, error: str) -> None:
    code = snapshot.take(project, home / "snapshots.git")
    with pytest.raises(ExperimentError, match=error):
        linked.paths(code, home / "snapshots.git", [word])


def failed(home: Path, code: Snapshot, line: str) -> str:
    directory = home / "runs" / "r-1"
    (directory / "log").mkdir(parents=True, exist_ok=True)
    record.write(
        directory, Run(name="r-1", user="me", created_at=1.0, command=["x"], code=submission.code_mapping(code))
    )
    record.append(directory, "started", 1.0, restart=0)
    (directory / "log" / "0-0.log").write_text(line + "\n")
    return failures.explain(directory, "FAILED", 1)


def test_a_missing_file_that_the_working_tree_has_is_explained(project: Path, home: Path) -> None:
    code = snapshot.take(project, home / "snapshots.git")
    line = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
    assert "--link data/s/train.bin" in failed(home, code, line.format("data/s/train.bin"))
    assert "--link" not in failed(home, code, line.format("nowhere.bin"))
    assert "working tree" not in failed(home, code, line.format("train.py"))
    (project / "new.txt").touch()
    (project / "empty").mkdir()
    for name in ("new.txt", "empty"):
        explained = failed(home, code, line.format(name))
        assert f"{name} is in the working tree, but not in the snapshot" in explained
        assert "--link" not in explained
    assert "--link" not in failed(home, code, line.format("../other"))


def test_files_that_a_run_wrote(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = Store(home)
    monkeypatch.setattr(submission, "user", lambda: "me")
    home.mkdir(exist_ok=True)
    name = store.reserve("r", "me", 1.0, home / "runs", "x")
    code = snapshot.take(project, home / "snapshots.git")
    target = checked_out(home, code, ["out"])
    record.write(
        home / "runs" / name,
        Run(name=name, user="me", created_at=1.0, command=["x"], code=submission.code_mapping(code)),
    )
    (target / "model.pkl").write_text("m" * 2000)
    (target / "results").mkdir()
    (target / "results" / "a.csv").write_text("a")
    (target / "train.py").write_text("changed by the run")
    (target / "out" / "elsewhere.pt").write_text("")
    (target / "__pycache__").mkdir()
    (target / "__pycache__" / "x.pyc").write_text("")
    found = written.files(home, home / "runs" / name, record.read(home / "runs" / name))
    assert [file.path for file in found] == ["model.pkl", "results/a.csv", "train.py"]
    assert written.Totals.of(found).text == "3 files (1.97K): model.pkl, results/a.csv, train.py"

    told: list[str] = []
    terminal = SimpleNamespace(out=told.append, err=told.append, error=told.append)

    def call(pattern: str, *, force: bool = False, get: Path | None = tmp_path / "got") -> int:
        return files.run(
            Namespace(run=name, pattern=pattern, get=get, force=force, json=False, limit=None, artifacts=False),
            terminal,
        )

    assert call("*.csv") == 0
    assert (tmp_path / "got" / "results" / "a.csv").read_text() == "a"
    assert call("*") == 1
    assert told[-2:] == [f"{tmp_path}/got/results/a.csv is there already", "--force replaces them\n"]
    assert not (tmp_path / "got" / "model.pkl").exists()
    assert call("*", force=True) == 0
    assert (tmp_path / "got" / "model.pkl").exists()
    assert call("*.nothing", get=None) == 1
    assert "no file like *.nothing" in told[-1]


def test_what_a_run_wrote_is_counted_once_after_each_end(project: Path, home: Path) -> None:
    code = snapshot.take(project, home / "snapshots.git")
    target = checked_out(home, code, [])
    directory = home / "runs" / "r-1"
    run = Run(name="r-1", user="me", created_at=1.0, command=["x"], code=submission.code_mapping(code))
    record.append(directory, "ended", 2.0, restart=0, status=0)
    (target / os.fsdecode(b"caf\xe9.txt")).write_text("12")
    assert written.totals(home, directory, run).text == "1 file (2B): caf�.txt"
    (target / "later.txt").write_text("1")
    assert written.totals(home, directory, run).count == 1
    record.append(directory, "started", 3.0, restart=1)
    record.append(directory, "ended", 4.0, restart=1, status=0)
    assert written.totals(home, directory, run).count == 2
    (directory / "written.json").write_text("{")
    assert written.totals(home, directory, run).count == 2


def test_data_is_linked_where_git_ignores_it(project: Path, home: Path) -> None:
    store = home / "snapshots.git"
    code = snapshot.take(project, store)
    assert linked.paths(code, store, [], ["data/s", "train.py", "/etc"]) == [
        ".venv", "data/s/train.bin", "data/s/val.bin",
    ]  # fmt: skip


def test_the_second_run_of_a_command_hears_what_state_the_first_one_left(project: Path, home: Path) -> None:
    home.mkdir()
    store, code = Store(home), snapshot.take(project, home / "snapshots.git")

    def started(command: str, **options: object) -> Run:
        name = store.reserve("fit", "me", 1.0, home / "runs", command)
        run = Run(name=name, user="me", created_at=1.0, command=command.split(), options=options)
        run.code = submission.code_mapping(code)
        (home / "runs" / name).mkdir(parents=True, exist_ok=True)
        record.write(home / "runs" / name, run)
        return run

    def ended(run: Run, *paths: str) -> None:
        directory = home / "runs" / run.name
        subprocess.run(
            ["bash", "-euc", snapshot.checkout_lines(home / "snapshots.git", code.tree, f"{directory}/code")]
        )
        for path in paths:
            (directory / "code" / path).parent.mkdir(exist_ok=True)
            (directory / "code" / path).write_text("1")
        written.totals(home, directory, run)

    ended(started("python fit.py"), "a.log", "out/ckpt.pt")
    second = started("python fit.py")
    assert written.left_by_the_first(store, second).startswith(
        "fit-1 wrote out/ckpt.pt to its own directory, and fit-2 starts without it; `outputs: [out]`"
    )
    assert written.left_by_the_first(store, started("python fit.py", resumable=True)) == ""
    assert written.left_by_the_first(store, started("python fit.py")) == ""
    ended(started("python other.py"), "a.log")
    assert written.left_by_the_first(store, started("python other.py")) == ""
