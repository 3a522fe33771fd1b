"""The code of a run without a snapshot is recorded: as a snapshot if one can be taken, else as commit and patch."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.experiments.code import in_place, snapshot
from spritz.experiments.errors import ExperimentError

from .test_snapshot import git, project, store

__all__ = ["project", "store"]  # fixtures


def refused() -> snapshot.Snapshot:
    raise ExperimentError("too large")


def test_the_snapshot_is_the_record(project: Path, store: Path) -> None:
    described = in_place.describe(project, lambda: snapshot.take(project, store))
    assert described.code.in_place
    assert described.code.tree == snapshot.take(project, store).tree
    assert described.patch == b""


def test_without_a_snapshot_commit_and_changes_are_the_record(project: Path) -> None:
    (project / "train.py").write_text("print(2)\n")
    (project / "lib" / "new.py").write_text("")
    described = in_place.describe(project / "lib", refused)
    code = described.code
    assert (code.root, code.directory, code.tree, code.branch) == (str(project), "lib", "", "main")
    assert code.commit == git(project, "rev-parse", "HEAD").strip()
    assert (code.in_place, code.dirty, code.unfrozen) == (True, True, ("the code: too large",))
    git(project, "checkout", "train.py")
    (project / "change").write_bytes(described.patch)
    git(project, "apply", "change")
    assert (project / "train.py").read_text() == "print(2)\n"


def test_a_patch_is_bounded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "_PATCH_BYTES_MAX", 100)
    (project / "train.py").write_text("x\n" * 1000)
    assert len(in_place.describe(project, refused).patch) == 100


def test_a_directory_without_git_or_commits(tmp_path: Path) -> None:
    assert in_place.describe(tmp_path, refused).code.commit == ""
    git(tmp_path, "init", "-q")
    code = in_place.describe(tmp_path, refused).code
    assert (code.root, code.commit, code.unfrozen) == (str(tmp_path), "", ("the code: too large",))
