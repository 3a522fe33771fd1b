"""A run in a file is the same run elsewhere, and a file that is not what it says is refused."""

from __future__ import annotations

import io
import json
import os
import tarfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.experiments import bundles
from spritz.experiments.code import snapshot, sources, trimming
from spritz.experiments.commands import export, importing, rerun
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import states, submission
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Entry, Store
from spritz.experiments.results import metrics, written
from spritz.experiments.results.metrics import Point
from tests.unit.experiments.test_snapshot import git, laid_down, project

__all__ = ["project"]  # a fixture


@pytest.fixture(autouse=True)
def _index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPRITZ_RUN_STORE", raising=False)


@pytest.fixture
def ran(project: Path, tmp_path: Path) -> tuple[Store, Entry]:
    """A completed run of a project with a program, a link and a changed file."""
    (project / "tool.sh").write_text("#!/bin/sh\n")
    (project / "tool.sh").chmod(0o755)
    (project / "link").symlink_to("lib/net.py")
    (project / ".gitattributes").write_text("*.txt text eol=crlf\n")
    (project / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    home = tmp_path / "home"
    code = snapshot.take(project, home / "snapshots.git")
    directory = home / "runs" / "train-3"
    (directory / "log").mkdir(parents=True)
    (directory / "log" / "0-0.log").write_text("step 1\n")
    run = Run(
        name="train-3", user="bob", created_at=5.0, command=["python", "train.py", "--lr", "0|1"], group="g",
        code=submission.code_mapping(code), job_id="77",
        surroundings={"python": {"python": "3.12.1", "packages": ["numpy==2.1", "torch==2.9"]}},
    )  # fmt: skip
    record.write(directory, run)
    record.append(directory, "started", 10.0, restart=0, nodes="n1", job="77")
    record.append(directory, "ended", 20.0, restart=0, status=0)
    (directory / "metrics.jsonl").write_text('{"loss": 0.5}\n')
    store = Store(home)
    store.add([(run, str(directory))])
    store.change("train-3", "bob", state="COMPLETED", metrics='{"loss": 0.5}', started_at=10.0, ended_at=20.0)
    return store, store.get("train-3", "bob")


def test_an_exported_run_is_the_same_elsewhere(ran: tuple[Store, Entry], tmp_path: Path) -> None:
    store, entry = ran
    archive = tmp_path / "train-3.tar.gz"
    assert bundles.pack(store, entry, archive, with_files=False) == archive.stat().st_size
    there = Store(tmp_path / "there")
    there.home.mkdir()
    first, second = (bundles.unpack(there, archive, "ann") for _ in range(2))
    assert [first.name, second.name] == ["train-1", "train-2"]
    found = there.get("train-1", "ann")
    assert (found.state, found.started_at, found.ended_at, found.job_id) == ("COMPLETED", 10.0, 20.0, "")
    assert (found.command, found.tree, found.metrics) == (entry.command, entry.tree, {"loss": 0.5})
    read = record.read(Path(found.directory))
    assert (read.code, read.surroundings["python"]["packages"]) == (
        record.read(Path(entry.directory)).code,
        ["numpy==2.1", "torch==2.9"],
    )
    assert (Path(found.directory) / "log" / "0-0.log").read_text() == "step 1\n"
    assert not (Path(found.directory) / "code").exists()
    files = [
        laid_down(a.home / "snapshots.git", entry.tree, tmp_path / name) for a, name in ((store, "x"), (there, "y"))
    ]
    assert files[0] == files[1]
    assert os.access(tmp_path / "y" / "tool.sh", os.X_OK)
    assert list(there.home.glob(".import-*")) == []


def test_files_that_a_run_wrote_are_those_of_the_imported_run(ran: tuple[Store, Entry], tmp_path: Path) -> None:
    store, entry = ran
    code = Path(entry.directory) / "code"
    snapshot.check_out(store.home / "snapshots.git", entry.tree, code)
    for path in (path for path in code.rglob("*") if not path.is_symlink()):
        os.utime(path, (1, 1))
    (code / snapshot.MARK).touch()
    os.utime(code / snapshot.MARK, (1, 1))
    names = ["model.pt", "out/last\udcff.ckpt", "train.py"]
    (code / "out").mkdir()
    for name in names:
        (code / name).write_text("changed")
        os.utime(code / name, (30, 30))
    bundles.pack(store, entry, tmp_path / "b", with_files=True)
    there = Store(tmp_path / "there")
    there.home.mkdir()
    directory = Path(there.get(bundles.unpack(there, tmp_path / "b", "ann").name, "ann").directory)
    files = written.files(there.home, directory, record.read(directory))
    assert [(file.path, file.size, file.changed_at) for file in files] == [(name, 7, 30.0) for name in names]
    assert not trimming.is_whole(directory / "code")


def test_metrics_of_mlflow_are_those_of_the_imported_run(
    ran: tuple[Store, Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked = [Point("loss", 9.0), Point("accuracy", 0.5, 1.0, 7.0), Point("accuracy", 0.75, 2.0, 8.0)]
    with monkeypatch.context() as patch:
        patch.setattr(metrics, "tracked", lambda *_: tracked)
        bundles.pack(*ran, tmp_path / "b", with_files=False)
    there = Store(tmp_path / "there")
    there.home.mkdir()
    found = there.get(bundles.unpack(there, tmp_path / "b", "ann").name, "ann")
    assert found.metrics == {"loss": 0.5, "accuracy": 0.75}
    assert metrics.history(there.home, Path(found.directory)) == [Point("loss", 0.5), *tracked[1:]]


@pytest.mark.parametrize("is_source", [False, True])
def test_a_submodule_that_is_not_checked_out_is_no_other_code(project: Path, tmp_path: Path, is_source: bool) -> None:
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(project), "vendor/own")
    git(project, "commit", "-qm", "vendor")
    git(tmp_path, "clone", "-q", str(project), str(tmp_path / "clone"))
    store = Store(tmp_path / "home")

    def take(directory: Path, modules: Sequence[str]) -> snapshot.Snapshot:
        return snapshot.take(directory, store.home / "snapshots.git", modules=modules)

    (tmp_path / "other").mkdir()
    places = [str(tmp_path / "clone")] if is_source else []
    code = sources.freeze(tmp_path / ("other" if is_source else "clone"), store.home / "snapshots.git", places, take)
    assert not code.dirty
    assert not any(source.dirty for source in code.sources)
    run = Run(name="t-1", user="bob", created_at=5.0, command=["x"], code=submission.code_mapping(code))
    (store.home / "runs" / "t-1").mkdir(parents=True)
    record.write(store.home / "runs" / "t-1", run)
    store.add([(run, str(store.home / "runs" / "t-1"))])
    bundles.pack(store, store.get("t-1", "bob"), tmp_path / "b", with_files=False)
    there = Store(tmp_path / "there")
    there.home.mkdir()
    assert bundles.unpack(there, tmp_path / "b", "ann").code["tree"] == code.tree


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_is_no_file_to_export_to(
    ran: tuple[Store, Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    monkeypatch.setenv("SPRITZ_HOME", str(ran[0].home))
    monkeypatch.setattr(submission, "user", lambda: "bob")
    monkeypatch.setattr(states, "refresh_or_tell", lambda *_: None)
    told: list[str] = []
    terminal = SimpleNamespace(out=told.append, err=told.append, error=told.append)
    words = Namespace(run="train-3", file=str(tmp_path), files=False, force=force)
    assert export.run(words, terminal) == 1
    assert told == [f"{tmp_path} is a directory", f"name the file: {tmp_path}/train-3.tar.gz\n"]


def test_a_bundle_says_what_ran(ran: tuple[Store, Entry], tmp_path: Path) -> None:
    bundles.pack(*ran, tmp_path / "b", with_files=False)
    with tarfile.open(tmp_path / "b") as archive:
        content = {name: archive.extractfile(f"train-3/{name}") for name in ("README.md", "requirements.txt")}
        text = {name: file.read().decode() for name, file in content.items() if file is not None}
    assert text["requirements.txt"] == "numpy==2.1\ntorch==2.9\n"
    assert "| Metric | Last |\n| --- | --- |\n| loss | 0.5 |" in text["README.md"]
    assert "| Python | 3.12.1, torch 2.9, numpy 2.1 (2 packages) |" in text["README.md"]
    assert "spritz import b" in text["README.md"]


def _changed(archive: Path, name: str, content: bytes | None, **values: object) -> Path:
    """The archive with another member of that name."""
    target = archive.with_name("changed")
    with tarfile.open(archive) as old, tarfile.open(target, "w") as new:
        for member in old:
            if member.name != name:
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
        member = tarfile.TarInfo(name)
        member.size = len(content or b"")
        for key, value in values.items():
            setattr(member, key, value)
        new.addfile(member, io.BytesIO(content or b""))
    return target


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("train-3/code/train.py", {}, "is not the code of the run"),
        ("train-3/../../evil", {}, "does not belong"),
        ("/evil", {}, "does not belong"),
        ("train-3/code/device", {"type": tarfile.CHRTYPE}, "does not belong"),
        ("train-3/code/hard", {"type": tarfile.LNKTYPE, "linkname": "train-3/run.json"}, "does not belong"),
        ("train-3/log", {"type": tarfile.SYMTYPE, "linkname": "/etc"}, "only code has symbolic links"),
        ("train-3/sources", {"type": tarfile.SYMTYPE, "linkname": "/etc"}, "only code has symbolic links"),
        ("train-3/code", {"type": tarfile.SYMTYPE, "linkname": "/etc"}, "exists|only code has symbolic links"),
        ("train-3/sources/x", {"type": tarfile.SYMTYPE, "linkname": "/etc"}, "only code has symbolic links"),
        ("train-3/code/lib", {"type": tarfile.SYMTYPE, "linkname": "/etc"}, "File exists"),
        ("train-3/job.sh", {}, "does not belong"),
        ("other/run.json", {}, "is not a bundle"),
    ],
)
def test_a_changed_archive_is_refused_and_leaves_nothing(
    ran: tuple[Store, Entry], tmp_path: Path, name: str, values: dict[str, object], message: str
) -> None:
    bundles.pack(*ran, tmp_path / "b", with_files=False)
    there = Store(tmp_path / "there")
    there.home.mkdir()
    with pytest.raises(ExperimentError, match=message):
        bundles.unpack(there, _changed(tmp_path / "b", name, b"x", **values), "ann")
    assert not (tmp_path / "evil").exists()
    assert list((there.home / "runs").glob("*")) == []
    assert list(there.home.glob(".import-*")) == []


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    with pytest.raises(ExperimentError, match=r"x: "):
        bundles.unpack(Store(tmp_path), tmp_path / "x", "ann")


def test_a_cut_archive_is_refused(ran: tuple[Store, Entry], tmp_path: Path) -> None:
    bundles.pack(*ran, tmp_path / "b", with_files=False)
    (tmp_path / "b").write_bytes((tmp_path / "b").read_bytes()[:-300])
    with pytest.raises(ExperimentError):
        bundles.unpack(Store(tmp_path / "home"), tmp_path / "b", "ann")


def test_an_archive_that_cannot_be_written_is_not_there(ran: tuple[Store, Entry], tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="No such file"):
        bundles.pack(*ran, tmp_path / "no" / "b", with_files=False)


def test_a_call_of_a_function_is_not_said_to_be_repeatable(
    ran: tuple[Store, Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, entry = ran
    directory = Path(entry.directory)
    record.write(directory, replace(record.read(directory), shown="square of square.py"))
    bundles.pack(store, entry, tmp_path / "b", with_files=False)
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path / "there"))
    told: list[str] = []
    terminal = SimpleNamespace(out=told.append, err=told.append, error=told.append)
    assert importing.run(Namespace(file=str(tmp_path / "b")), terminal) == 0, told
    assert told == ["train-1\n", "`spritz show train-1` shows it\n"]
    directory = tmp_path / "there" / "runs" / "train-1"
    assert "spritz rerun" not in (directory / "README.md").read_text()
    with pytest.raises(ExperimentError, match="whose values are not here"):
        rerun._files(record.read(directory), directory, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda data: data["code"].update(sources=[{"root": "/r", "name": "../../gone", "tree": "t"}]),
            "cannot be named",
        ),
        (lambda data: data["code"].update(sources=[{"root": "/r", "name": "..", "tree": "t"}]), "cannot be named"),
        (lambda data: data["code"].update(sources=[{"name": "1"}]), "is damaged"),
        (lambda data: data["code"].update(submodules=["x"]), "is damaged"),
        (lambda data: data.update(code={}), "is damaged"),
        (lambda data: data.pop("name"), "is damaged"),
    ],
)
def test_a_record_that_leads_elsewhere_or_lacks_something_is_refused(
    ran: tuple[Store, Entry], tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    """What its sources' names lead to would be read, and removed as the copy of the code that it is taken for."""
    bundles.pack(*ran, tmp_path / "b", with_files=False)
    there = Store(tmp_path / "there")
    (there.home / "gone").mkdir(parents=True)
    data = json.loads((Path(ran[1].directory) / "run.json").read_text())
    change(data)
    with pytest.raises(ExperimentError, match=message):
        bundles.unpack(there, _changed(tmp_path / "b", "train-3/run.json", json.dumps(data).encode()), "ann")
    assert (there.home / "gone").is_dir()
    assert list((there.home / "runs").glob("*")) == []
