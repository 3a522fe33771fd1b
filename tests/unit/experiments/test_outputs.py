"""Outputs of a project persist between its runs, by links, and never belong to a snapshot."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from spritz.experiments.code import linked, outputs, snapshot
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError

from .test_snapshot import git, project, store

__all__ = ["project", "store"]  # fixtures


class Runs:
    """Runs of a project with outputs, each in a checkout of its own."""

    def __init__(self, project: Path, store: Path, *words: str) -> None:
        self._project, self._store, self._words = project, store, words

    def __call__(
        self, name: str, command: str, *, code: Snapshot | None = None, data: str = "", is_killed: bool = False
    ) -> Path:
        """Start the run `name`, or start it again, with links to the data; `code` is an earlier snapshot."""
        code = code or snapshot.take(self._project, self._store, outputs=self._words)
        resolved = outputs.resolve(code.root, code.directory, self._words)
        checkout = self._store.parent / name / "code"
        script = 'finish() { exit "$1"; }\n' + outputs.functions(resolved, str(checkout))
        script += snapshot.checkout_lines(self._store, code.tree, str(checkout), [output.path for output in resolved])
        script += linked.lines(code, linked.ignored_parts(code, [data] if data else []), str(checkout))
        script += f"{outputs.lines(resolved, str(checkout))}cd {checkout}\n{command}\n"
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


def test_a_file_that_is_older_than_the_run_is_moved_too(project: Path, store: Path) -> None:
    Runs(project, store, "best.ckpt")("a", "echo 1 > new; touch -d 2001-01-01 new; mv new best.ckpt")
    assert (project / "best.ckpt").read_text() == "1\n"


def test_a_file_whose_name_has_no_suffix_is_moved(project: Path, store: Path) -> None:
    runs = Runs(project, store, "checkpoint")
    runs("a", "echo 1 > new; mv -T new checkpoint")
    assert (project / "checkpoint").read_text() == "1\n"
    runs("a", "echo 2 > new; mv -T new checkpoint")
    assert (project / "checkpoint").read_text() == "2\n"


def test_a_file_that_cannot_be_moved_stays_with_the_run(project: Path, store: Path) -> None:
    (project / "model").mkdir()
    (project / "model" / "old").write_text("1")
    checkout = Runs(project, store, "model")("a", "echo new > new; mv -T new model")
    assert (checkout / "model").read_text() == "new\n"
    assert [path.name for path in project.glob("model*")] == ["model"]


def test_a_directory_that_replaces_its_link_stays_with_the_run(project: Path, store: Path) -> None:
    runs = Runs(project, store, "out")
    runs("a", "rm -rf out; mkdir out; echo 1 > out/ckpt.pt")
    checkout = runs("a", "cat out/ckpt.pt > seen")
    assert (checkout / "seen").read_text() == "1\n"


def test_an_earlier_snapshots_file_is_not_the_output(project: Path, store: Path) -> None:
    for name in ("out/.gitkeep", "study.db"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("old")
    before = snapshot.take(project, store)
    (project / "study.db").write_text("new")
    runs = Runs(project, store, "study.db", "out")
    checkout = runs("a", "cat study.db > seen; echo 1 > out/x", code=before)
    assert (checkout / "seen").read_text() == "new"
    assert (project / "study.db").read_text() == "new"
    assert (project / "out" / "x").exists()


@pytest.mark.parametrize("is_absolute", [True, False])
def test_what_lies_behind_a_link_out_of_the_project_is_the_output_itself(
    project: Path, store: Path, is_absolute: bool
) -> None:
    scratch = project.parent / "scratch"
    (scratch / "ckpt").mkdir(parents=True)
    (scratch / "ckpt" / "best.pt").write_text("precious")
    (project / "out").symlink_to(scratch if is_absolute else "../scratch")
    runs = Runs(project, store, "out/ckpt", "out/study.db", "out/new/deep")
    code = snapshot.take(project, store)
    link = f"ln -sfn {scratch} out"  # as `outward` does
    for name in ("a", "b", "a"):
        (store.parent / name).mkdir(exist_ok=True)
        if not is_absolute:
            checkout = store.parent / name / "code"
            script = f"{snapshot.checkout_lines(store, code.tree, str(checkout))}cd {checkout}; {link}"
            subprocess.run(["bash", "-ec", script], check=True)
        runs(name, "echo 1 >> out/study.db; echo 1 > out/ckpt/new; echo 1 > out/new/deep/x", code=code)
    assert (scratch / "ckpt" / "best.pt").read_text() == "precious"
    assert (scratch / "study.db").read_text() == "1\n1\n1\n"
    assert (scratch / "ckpt" / "new").exists()
    assert (scratch / "new" / "deep" / "x").exists()
    assert not any(path.is_symlink() for path in scratch.rglob("*"))


def test_what_lies_behind_a_link_inside_of_the_project_is_an_output(project: Path, store: Path) -> None:
    (project / "runs" / "today").mkdir(parents=True)
    (project / "runs" / "today" / "kept.py").write_text("1")
    (project / "latest").symlink_to("runs/today")
    runs = Runs(project, store, "latest/ckpt")
    runs("a", "echo 1 > latest/ckpt/x; ls latest/kept.py")
    assert (project / "runs" / "today" / "ckpt" / "x").exists()
    assert "runs/today/ckpt/x" not in snapshot.names(store, snapshot.take(project, store, outputs=["latest/ckpt"]).tree)


def test_an_output_among_linked_data_is_there_with_the_data(project: Path, store: Path) -> None:
    (project / ".gitignore").write_text("data\n")
    (project / "data" / "cache").mkdir(parents=True)
    (project / "data" / "train.bin").write_text("1")
    runs = Runs(project, store, "data/cache", "data/study.db")
    for name in ("a", "b"):
        runs(name, "cat data/train.bin; echo 1 >> data/cache/x; echo 1 >> data/study.db", data="data")
    assert (project / "data" / "cache" / "x").read_text() == "1\n1\n"
    assert (project / "data" / "study.db").read_text() == "1\n1\n"


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
