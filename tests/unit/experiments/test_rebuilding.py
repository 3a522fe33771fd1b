"""A lost index comes back from the runs' directories as it was."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from spritz.experiments.access import rebuilding
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Query, Store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "sweeps" / "s-1").mkdir(parents=True)
    record.write_json(
        tmp_path / "sweeps" / "s-1" / "shared.json",
        {"code": {"tree": "T", "branch": "main", "root": "/", "directory": "."}, "tags": ["grid"]},
    )
    return tmp_path


def written(home: Path, name: str, *events: tuple[str, dict[str, object]], user: str = "me", **values: object) -> Run:
    """A run's directory, as submission and its job leave it."""
    directory = home / "runs" / name
    directory.mkdir(parents=True)
    run = Run(name=name, user=user, created_at=7.0, command=["python", "a b"], **values)  # type: ignore[arg-type]
    record.write(directory, run)
    for at, (event, more) in enumerate(events):
        record.append(directory, event, 10.0 + at, restart=0, **more)
    return run


def trial(home: Path, index: int, *events: tuple[str, dict[str, object]], claim: str = "33") -> Path:
    shared = str(home / "sweeps" / "s-1" / "shared.json")
    written(home, f"s-1.{index}", *events, group="s-1", parameters={"x": index}, shared=shared)
    directory = home / "runs" / f"s-1.{index}"
    if claim:
        (directory / "claim").symlink_to(claim)
    return directory


def rebuilt(home: Path) -> Store:
    store = Store(home)
    rebuilding.rebuild(store, "me", lambda done, whole: None)
    return store


def test_a_run_has_its_row_again(home: Path) -> None:
    written(home, "train-1", ("started", {}), ("ended", {"status": 3}), job_id="12", tags=["paper"])
    (entry,) = rebuilt(home).find(Query(owner="me"))
    assert asdict(entry) == {
        "name": "train-1", "owner": "me", "created_at": 7.0, "job_id": "12", "state": "FAILED", "exit_code": 3,
        "started_at": 10.0, "ended_at": 11.0, "branch": "", "commit_id": "", "tree": "", "parent": "", "run_group": "",
        "command": "python 'a b'", "tags": ("paper",), "metrics": {}, "directory": str(home / "runs" / "train-1"),
        "changed": False, "note": "",
    }  # fmt: skip


def test_trials_keep_their_results(home: Path) -> None:
    done = trial(home, 1, ("started", {}), ("ended", {"status": 0}))
    (done / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n')
    trial(home, 2, ("started", {}), ("pruned", {}), ("ended", {"status": 0}))
    trial(home, 3, ("started", {}), ("ended", {"status": 1}))
    trial(home, 4, ("started", {}))
    trial(home, 5, claim="")
    entries = rebuilt(home).find(Query(owner="me", group="s-1"))
    assert sorted((entry.name, entry.state, entry.job_id, entry.metrics) for entry in entries) == [
        ("s-1.1", "COMPLETED", "33_1", {"loss": 0.25}),
        ("s-1.2", "PRUNED", "33_2", {}),
        ("s-1.3", "FAILED", "33_3", {}),
        ("s-1.4", "PENDING", "33_4", {}),
        ("s-1.5", "CREATED", "", {}),
    ]
    assert {(entry.tree, entry.branch, entry.tags) for entry in entries} == {("T", "main", ("grid",))}


def test_what_is_in_the_index_stays_and_others_runs_stay_out(home: Path) -> None:
    store = Store(home)
    name = store.reserve("train", "me", 1.0, home / "runs", "python a")
    written(home, "train-2", user="you")
    (home / "runs" / "cut-short-1").mkdir()
    (home / "runs" / "damaged-1").mkdir()
    (home / "runs" / "damaged-1" / "run.json").write_text("{")
    written(home, "train-3", job_id="9")
    assert [entry.name for entry in rebuilding.rebuild(store, "me", lambda done, whole: None)] == ["train-3"]
    assert rebuilding.rebuild(store, "me", lambda done, whole: None) == []
    assert {entry.name for entry in store.find(Query(owner="me"))} == {name, "train-3"}


def test_many_runs_come_in_batches(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "_BATCH", 3)
    for number in range(7):
        written(home, f"train-{number}", job_id=str(number))
    told: list[tuple[int, int]] = []
    store = Store(home)
    rebuilding.rebuild(store, "me", lambda done, whole: told.append((done, whole)))
    assert told == [(0, 7), (3, 7), (6, 7), (7, 7)]
    assert len(store.find(Query(owner="me"))) == 7


def test_shared_files_are_read_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(1, 20):
        trial(home, index)
    read: list[str] = []
    real = Path.read_text

    def counted(path: Path, *words: object, **named: object) -> str:
        read.append(path.name)
        return real(path, *words, **named)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(Path, "read_text", counted)
    rebuilt(home)
    assert read.count("shared.json") == 1


def test_two_who_rebuild_at_once_add_each_run_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        written(home, f"train-{number}", job_id=str(number))
    first, second = Store(home), Store(home)
    directories = rebuilding.missing(first, "me")
    rebuilding.rebuild(second, "me", lambda done, whole: None)
    monkeypatch.setattr(rebuilding, "missing", lambda store, owner: directories)
    rebuilding.rebuild(first, "me", lambda done, whole: None)
    assert sorted(entry.name for entry in first.find(Query(owner="me"))) == ["train-0", "train-1", "train-2"]
