"""A run's code as a branch: the user's working tree, index and branch stay as they are."""

from __future__ import annotations

import shlex
import subprocess
from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from spritz.experiments.code import branches, snapshot
from spritz.experiments.commands import branch as branch_command
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import submission
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Store
from tests.unit.experiments.test_snapshot import git, project, store

__all__ = ["project", "store"]  # fixtures


def test_changed_code_is_a_commit_after_the_one_it_was_based_on(project: Path, store: Path) -> None:
    (project / "train.py").write_text("print(2)\n")
    (project / "new.py").write_text("x = 3\n")
    code = snapshot.take(project, store)
    git(project, "checkout", "-q", "--", "train.py")
    (project / "new.py").unlink()
    before = git(project, "status", "--porcelain", "--branch")

    assert branches.repository_for(code, project) == project
    commit = branches.make(store, code, project, "train-1", "Code of train-1")
    assert git(project, "status", "--porcelain", "--branch") == before
    assert git(project, "rev-parse", "train-1", "train-1^").split() == [commit, code.commit]
    assert git(project, "show", "train-1:train.py") + git(project, "show", "train-1:new.py") == "print(2)\nx = 3\n"
    with pytest.raises(ExperimentError, match="already exists"):
        branches.make(store, code, project, "train-1", "again")


def test_files_are_in_the_branch_as_filters_of_the_repository_store_them(project: Path, store: Path) -> None:
    """As in its other commits: pointers of Git LFS, and nothing that is encrypted as plain text."""
    (project / "sub").mkdir()
    (project / "sub" / ".gitattributes").write_text("*.key filter=crypt\n*.txt -filter\n")
    git(project, "config", "filter.crypt.clean", "tr a-z A-Z")
    git(project, "config", "filter.crypt.smudge", "tr A-Z a-z | tr b c")
    git(project, "config", "filter.crypt.required", "true")
    for name in ("a b.key", "b.txt"):
        (project / "sub" / name).write_text("secret")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "two")
    (project / "sub" / "new.key").write_text("abc")
    code = snapshot.take(project, store)
    branches.make(store, code, project, "train-1", "Code")
    shown = [git(project, "show", f"train-1:sub/{name}") for name in ("a b.key", "b.txt", "new.key")]
    assert shown == ["SECRET", "secret", "ABC"]
    assert git(project, "diff", "--name-only", code.commit, "train-1") == "sub/new.key\n"


def test_unchanged_code_is_its_own_commit(project: Path, store: Path) -> None:
    code = snapshot.take(project, store)
    (project / "train.py").write_text("later\n")
    git(project, "commit", "-q", "-a", "-m", "two")
    assert branches.make(store, code, project, "train-1", "") == code.commit


@pytest.mark.parametrize("place", ["project/lib", "other", "."])
def test_advice_names_the_repository_that_got_the_branch(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPRITZ_RUN_STORE", raising=False)
    (tmp_path / "other").mkdir()
    git(tmp_path / "other", "init", "-q")
    index = Store(tmp_path / "home")
    code = snapshot.take(project, tmp_path / "home" / "snapshots.git")
    name = index.reserve("train", submission.user(), 1.0, index.home / "runs", "x")
    run = Run(name=name, user="me", created_at=1.0, command=["x"], code=submission.code_mapping(code))
    record.write(record.make(index.home, name), run)
    monkeypatch.chdir(tmp_path / place)
    parser, printed = ArgumentParser(), list[str]()
    branch_command.add_arguments(parser)
    terminal = SimpleNamespace(out=printed.append, err=printed.append, error=printed.append)
    assert branch_command.run(parser.parse_args([name]), terminal) == 0
    advice = shlex.split(printed[1].split("`")[1])
    assert ("-C" in advice) == (place != "project/lib")
    subprocess.run(advice, check=True, capture_output=True)
    assert git(project, "branch", "--show-current") == f"{name}\n"


def test_a_worktree_has_the_code_and_one_that_cannot_be_made_leaves_no_branch(
    project: Path, store: Path, tmp_path: Path
) -> None:
    (project / "train.py").write_text("print(2)\n")
    code = snapshot.take(project, store)
    branches.make(store, code, project, "train-1", "Code")
    branches.worktree(project, "train-1", tmp_path / "there")
    assert (tmp_path / "there" / "train.py").read_text() == "print(2)\n"

    branches.make(store, code, project, "other", "Code")
    with pytest.raises(ExperimentError, match="exists"):
        branches.worktree(project, "other", tmp_path / "there")
    assert git(project, "branch", "--list", "other") == ""


def test_a_clone_without_the_commit_is_refused_by_name(project: Path, store: Path, tmp_path: Path) -> None:
    code = snapshot.take(project, store)
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    project.rename(tmp_path / "gone")
    with pytest.raises(ExperimentError, match="does not have commit"):
        branches.repository_for(code, other)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ExperimentError, match="is in a git repository"):
        branches.repository_for(code, tmp_path / "nothing")
    assert branches.repository_for(code, tmp_path / "gone" / "lib") == tmp_path / "gone"


def test_a_project_without_git_becomes_a_branch_without_a_parent(store: Path, tmp_path: Path) -> None:
    plain, clone = tmp_path / "plain", tmp_path / "clone"
    plain.mkdir()
    (plain / "a.py").write_text("1\n")
    code = snapshot.take(plain, store)
    clone.mkdir()
    git(clone, "init", "-q")
    commit = branches.make(store, code, branches.repository_for(code, clone), "a-1", "Code")
    assert git(clone, "rev-list", "--parents", "-1", "a-1").split() == [commit]
