"""The index gives out names once, finds what is asked for, and says what is wrong with it."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from spritz.experiments.errors import ExperimentError
from spritz.experiments.store import Query, Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.delenv("SPRITZ_RUN_STORE", raising=False)
    return Store(tmp_path)


def add(store: Store, base: str, at: float = 1.0, **values: object) -> str:
    name = store.reserve(base, "me", at, Path("/runs"), "python train.py")
    if values:
        store.change(name, "me", **values)
    return name


def test_names_are_numbered_and_cleaned(store: Store) -> None:
    assert [add(store, base) for base in ("train", "train", "a b/ü", "")] == ["train-1", "train-2", "a-b-1", "run-1"]
    assert store.reserve("train", "you", 1.0, Path("/runs"), "x") == "train-1"


def test_names_taken_at_once_differ(tmp_path: Path, store: Store) -> None:
    add(store, "x")
    names: list[str] = []
    threads = [threading.Thread(target=lambda: names.append(add(Store(tmp_path), "x"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == sorted(f"x-{number}" for number in range(2, 10))


def test_runs_are_found_by_what_is_known_of_them(store: Store) -> None:
    one = add(store, "alpha", 1.0, branch="main", state="FAILED", tags=json.dumps(["paper"]), metrics='{"acc": 0.5}')
    two = add(store, "beta", 2.0, branch="dev", state="COMPLETED", metrics='{"acc": 0.9}', job_id="77")

    def found(**query: object) -> list[str]:
        return [entry.name for entry in store.find(Query(owner="me", **query))]  # type: ignore[arg-type]  # by name

    assert found() == [two, one]
    assert found(text="ALPHA") == [one]
    assert found(text="77") == [two]
    assert found(branch="dev") == [two]
    assert found(tag="paper") == [one]
    assert found(states=("FAILED",)) == [one]
    assert found(since=1.5) == [two]
    assert found(metrics=(("acc", ">=", 0.9),)) == [two]
    assert found(limit=1) == [two]
    assert store.get("beta", "me").name == two
    assert store.get("77", "me").name == two
    with pytest.raises(ExperimentError, match="gamma: no such run"):
        store.get("gamma", "me")


def test_a_later_layout_is_refused(tmp_path: Path, store: Store) -> None:
    add(store, "x")
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("UPDATE layout SET number = 99")
    with pytest.raises(ExperimentError, match="later release"):
        add(store, "x")


def test_a_damaged_index_is_named(tmp_path: Path, store: Store) -> None:
    (tmp_path / "runs.db").write_bytes(b"no database at all, and longer than a header" * 10)
    with pytest.raises(ExperimentError, match="runs.db"):
        add(store, "x")


def test_a_locked_index_says_so(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spritz.experiments.database.LOCK_SECONDS", 0.05)
    add(store, "x")
    holder = sqlite3.connect(tmp_path / "runs.db")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(ExperimentError, match="locked for 0.05 s by another process"):
            add(Store(tmp_path), "x")
    finally:
        holder.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_index_that_cannot_be_written_says_so(tmp_path: Path, store: Store) -> None:
    add(store, "x")
    store.close()
    (tmp_path / "runs.db").chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ExperimentError, match="cannot be written"):
            add(store, "x")
    finally:
        tmp_path.chmod(0o700)


def test_another_database_is_used_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By SQLAlchemy, as a site's PostgreSQL is."""
    monkeypatch.setenv("SPRITZ_RUN_STORE", f"sqlite+pysqlite:///{tmp_path}/other.db")
    store = Store(tmp_path)
    name = add(store, "x", metrics='{"acc": 0.9}')
    assert [entry.name for entry in store.find(Query(owner="me", metrics=(("acc", ">", 0.5),)))] == [name]
    assert add(store, "x") == "x-2"
    assert (tmp_path / "other.db").exists()
    assert not (tmp_path / "runs.db").exists()
