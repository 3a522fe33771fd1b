"""Outputs of a project persist between its runs, by links, and never belong to a snapshot."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from spritz.experiments.code import outputs, snapshot
from spritz.experiments.errors import ExperimentError

from .test_snapshot import git, project, store

__all__ = ["project", "store"]  # fixtures


class Runs:
    """Runs of a project with outputs, each in a checkout of its own."""

    def __init__(self, project: Path, store: Path, *words: str) -> None:
        self._project, self._store, self._words = project, store, words

    def __call__(self, name: str, command: str, *, before: str = "", is_killed: bool = False) -> Path:
        """Start the run `name`, or start it again; `before` is done in its checkout before the links are made."""
        code = snapshot.take(self._project, self._store, outputs=self._words)
        resolved = outputs.resolve(code.root, code.directory, self._words)
        checkout = self._store.parent / name / "code"
        script = 'finish() { exit "$1"; }\n' + outputs.functions(resolved, str(checkout))
        script += snapshot.checkout_lines(self._store, code.tree, str(checkout))
        script += f"{before}\n{outputs.lines(resolved, str(checkout))}cd {checkout}\n{command}\n"
        subprocess.run(["bash", "-uc", script + ("" if is_killed else "keep_outputs")], check=True)
        return checkout


def test_a_run_finds_what_the_last_one_wrote(project: Path, store: Path) -> None:
    runs = Runs(project, store, "out", "sub/study.db")
    runs("a", "echo 1 > out/ckpt.pt; echo s > sub/study.db")
    assert (project / "out" / "ckpt.pt").read_text() == "1\n"
    assert (project / "sub" / "study.db").read_text() == "s\n"
    checkout = runs("b", "cat out/ckpt.pt sub/study.db > seen")
    assert (checkout / "seen").read_text() == "1\ns\n"


def test_a_file_that_replaces_its_link_is_moved_to_the_project(project: Path, store: Path) -> None:
    runs = Runs(project, store, "best.ckpt")
    checkout = runs("a", "echo 1 > new; mv new best.ckpt")
    assert (project / "best.ckpt").read_text() == "1\n"
    assert os.readlink(checkout / "best.ckpt") == str(project / "best.ckpt")
    assert sorted(path.name for path in project.glob("best*")) == ["best.ckpt"]


def test_a_killed_run_moves_its_file_when_it_starts_again(project: Path, store: Path) -> None:
    runs = Runs(project, store, "best.ckpt")
    runs("a", "echo 1 > new; mv new best.ckpt", is_killed=True)
    assert not (project / "best.ckpt").exists()
    checkout = runs("a", "cat best.ckpt > seen")
    assert (checkout / "seen").read_text() == "1\n"
    assert (project / "best.ckpt").read_text() == "1\n"


def test_a_file_of_an_older_snapshot_does_not_replace_the_projects(project: Path, store: Path) -> None:
    (project / "study.db").write_text("new")
    runs = Runs(project, store, "study.db")
    # As in a run of a snapshot from before `outputs:` was set.
    stale = store.parent / "a" / "code" / "study.db"
    older = f"echo old > {stale}; touch -r {stale.parent}/train.py {stale}"
    checkout = runs("a", "cat study.db > seen", before=older)
    assert (checkout / "seen").read_text() == "new"
    assert (project / "study.db").read_text() == "new"


def test_a_database_that_does_not_exist_yet(project: Path, store: Path) -> None:
    runs = Runs(project, store, "study.db")
    add = """python3 -c 'import sqlite3; c = sqlite3.connect("study.db"); """
    add += """c.execute("create table if not exists t (x)"); c.execute("insert into t values (1)"); c.commit()'"""
    runs("a", add)
    runs("b", add)
    with sqlite3.connect(project / "study.db") as connection:
        assert connection.execute("select count(*) from t").fetchone() == (2,)


def test_snapshots_do_not_have_outputs(project: Path, store: Path) -> None:
    before = snapshot.take(project, store, outputs=["out"]).tree
    for name in ("out/x.csv", "lib/out/kept.py", "out put[1]/y"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("1")
    git(project, "add", "-f", "out/x.csv")
    taken = snapshot.take(project, store, outputs=["out", "out put[1]"])
    assert set(snapshot.names(store, taken.tree)) - set(snapshot.names(store, before)) == {"lib/out/kept.py"}
    inner = snapshot.take(project / "lib", store, outputs=["out"])
    assert "out/x.csv" in snapshot.names(store, inner.tree)
    assert "lib/out/kept.py" not in snapshot.names(store, inner.tree)


@pytest.mark.parametrize(
    ("word", "is_directory"),
    [("out", True), ("out.d/", True), ("study.db", False), (".cache", True), ("lib", True), ("train.py", False)],
)
def test_what_does_not_exist_is_a_directory_or_a_file_by_its_name(project: Path, word: str, is_directory: bool) -> None:
    (output,) = outputs.resolve(str(project), ".", [word])
    assert output.is_directory == is_directory


def test_an_output_inside_of_another_needs_no_link(project: Path) -> None:
    assert [output.path for output in outputs.resolve(str(project), ".", ["out/a", "out", "outer"])] == ["out", "outer"]


@pytest.mark.parametrize("word", [".", "..", "/etc", "../other", "lib"])
def test_what_cannot_be_an_output_is_refused(project: Path, word: str) -> None:
    with pytest.raises(ExperimentError, match="outputs: "):
        outputs.resolve(str(project), "lib" if word == "lib" else ".", ["../lib" if word == "lib" else word])
