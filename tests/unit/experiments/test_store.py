"""The index gives out names once, finds what is asked for, and says what is wrong with it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.experiments.access import others
from spritz.experiments.cluster import slurm
from spritz.experiments.commands import remove
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import submission
from spritz.experiments.records import record
from spritz.experiments.records.database import Unwritable
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Entry, Group, Query, Store
from tests.conformance import databases


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes values of SPRITZ_RUN_STORE, each of an empty database; "" is that of a user."""
    kind = str(request.param)
    if kind == "sqlite":
        yield lambda: ""
        return
    if os.environ.get("SPRITZ_TEST_DATABASES") != "all":
        pytest.skip("servers are started by `make databases`")
    if missing := databases.reason(kind):
        pytest.fail(missing)
    with databases.server(kind) as server:
        yield lambda: server.url().replace("postgresql+psycopg:", "postgresql:")


@pytest.fixture
def any_store(tmp_path: Path, address: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Of a user, and with `make databases` of a site."""
    monkeypatch.setenv("SPRITZ_RUN_STORE", address())
    made = Store(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.delenv("SPRITZ_RUN_STORE", raising=False)
    return Store(tmp_path)


def add(store: Store, base: str, at: float = 1.0, **values: object) -> str:
    name = store.reserve(base, "me", at, store.home / "runs", "python train.py")
    if values:
        store.change(name, "me", **values)
    return name


def test_names_are_numbered_and_cleaned(any_store: Store, tmp_path: Path) -> None:
    store = any_store
    assert [add(store, base) for base in ("train", "train", "a b/ü", "")] == ["train-1", "train-2", "a-b-ü-1", "run-1"]
    assert store.reserve("train", "you", 1.0, tmp_path / "yours", "x") == "train-1"
    assert store.reserve_array("train", "me", 1.0, tmp_path / "runs", ["x", "y"]) == "train-3"
    assert add(store, "train") == "train-4"


def test_two_people_with_one_home_and_a_lost_index_get_names_of_their_own(store: Store, tmp_path: Path) -> None:
    """A directory that another has, or that an index which was lost had given out, is left alone."""
    kept = tmp_path / "runs" / add(store, "train") / "checkpoint"
    kept.write_text("mine")
    assert store.reserve("train", "you", 1.0, tmp_path / "runs", "x") == "train-2"
    assert store.reserve_array("train", "you", 1.0, tmp_path / "runs", ["x"] * 2) == "train-3"
    store.close()
    (tmp_path / "runs.db").unlink()
    assert [add(store, "train") for _ in range(2)] == ["train-4", "train-5"]
    assert kept.read_text() == "mine"


def test_names_taken_at_once_differ(tmp_path: Path, any_store: Store) -> None:
    """Also where the tables are made at that moment."""
    names: list[str] = []

    def take() -> None:
        mine = Store(tmp_path)
        try:
            names.append(add(mine, "x"))
        finally:
            mine.close()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == sorted(f"x-{number}" for number in range(1, 9))


def test_two_processes_restore_the_same_runs(any_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Run(name=f"t-{number}", user="me", created_at=1.0, command=["x"]) for number in range(3)]
    rows = [(run, tmp_path / run.name, {"state": "COMPLETED"}) for run in runs]
    has = any_store._has
    other = Store(tmp_path)

    def look_first(connection: Any, run: Run) -> bool:
        """The other process adds its rows after this one has looked for the first."""
        there = has(connection, run)
        monkeypatch.setattr(any_store, "_has", has)
        other.restore(rows)
        return there

    monkeypatch.setattr(any_store, "_has", look_first)
    any_store.restore(rows)
    assert sorted((entry.name, entry.state) for entry in any_store.find(Query())) == [
        (f"t-{number}", "COMPLETED") for number in range(3)
    ]
    other.close()


def test_runs_are_found_by_what_is_known_of_them(any_store: Store) -> None:
    store = any_store
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
    assert found(metrics=(("acc", "<", 0.9), ("acc", ">", 0.1))) == [one]
    assert found(metrics=(("nothing", ">", 0.0),)) == []
    assert found(limit=1) == [two]
    assert store.get("beta", "me").name == two
    assert store.get("77", "me").name == two
    with pytest.raises(ExperimentError, match="gamma: no such run"):
        store.get("gamma", "me")


@pytest.mark.parametrize("name", ["", "me/"])
def test_no_name_is_that_of_a_run_without_a_job(any_store: Store, name: str) -> None:
    any_store.reserve("imported", "me", 1.0, any_store.home / "runs", "x")
    with pytest.raises(ExperimentError, match="no name of a run is given"):
        any_store.get(name, "me")


@pytest.mark.parametrize("name", ["/x", "/", "/x/y"])
def test_a_name_without_an_owner_before_the_slash_is_that_of_no_run(any_store: Store, name: str) -> None:
    add(any_store, "x")
    for get in (any_store.get, lambda name, user: others.find(any_store, name, user)):
        with pytest.raises(ExperimentError, match=f"{name}: no such run") as refused:
            get(name, "me")
        assert refused.value.hint == "`spritz runs` lists them"


def test_characters_of_patterns_stand_for_themselves(any_store: Store) -> None:
    """And letters beyond ASCII are letters. (With a backslash as in the JSON of a tag, on any database.)"""
    store = any_store
    plain, score = add(store, "axb"), add(store, "a_b", tags=json.dumps(["größe"]))
    umlaut = add(store, "Über")
    assert store.get("a_b", "me").name == score
    assert [entry.name for entry in store.find(Query(text="a_b"))] == [score]
    assert [entry.name for entry in store.find(Query(text="xb"))] == [plain]
    assert [entry.name for entry in store.find(Query(tag="größe"))] == [score]
    assert [entry.name for entry in store.find(Query(text="Über"))] == [umlaut]


@pytest.mark.parametrize(
    ("word", "meant"),
    [("trian", "train-12"), ("trian-3", "train-3"), ("trian-99", "train-12"), ("train-99", "train-12"),
     ("evla-s.2", "eval-s.2"), ("something-else", "")],
)  # fmt: skip
def test_an_unknown_name_is_answered_with_the_one_that_was_meant(store: Store, word: str, meant: str) -> None:
    for number in range(12):
        add(store, "train", at=float(number))
    store.hold("eval-s.2", "me", 0.0, store.home / "runs", "x")
    with pytest.raises(ExperimentError) as caught:
        store.get(word, "me")
    assert caught.value.message == f"{word}: no such run" + (f" (did you mean {meant}?)" if meant else "")


def test_a_run_of_another_is_refused_by_what_changes_runs(store: Store) -> None:
    name = add(store, "train")
    assert store.get(f"me/{name}", "me").name == name
    with pytest.raises(ExperimentError, match="only you can do that"):
        store.get("you/train-1", "me")


def test_runs_of_a_group_are_one_item_at_the_place_of_their_newest(any_store: Store) -> None:
    add(any_store, "old", at=1.0)
    for number in range(3):
        add(any_store, "trial", at=2.0 + number, run_group="sweep", state="COMPLETED", started_at=5.0, ended_at=9.0)
    add(any_store, "between", at=3.5)
    for number in range(4):
        state = "RUNNING" if number else "COMPLETED"
        ended_at = None if number else 12.0
        add(any_store, "step", at=6.0, run_group="pipeline", state=state, started_at=7.0 + number, ended_at=ended_at)
    add(any_store, "alone", at=8.0, run_group="of one")

    def folded(limit: int) -> list[str]:
        return [item.name for item in any_store.find_folded(Query(owner="me", limit=limit))]

    everything = ["alone-1", "pipeline", "sweep", "between-1", "old-1"]
    assert folded(0) == everything
    assert [folded(limit) for limit in range(1, 6)] == [everything[:limit] for limit in range(1, 6)]
    alone, pipeline, sweep, *_ = any_store.find_folded(Query(owner="me"))
    assert isinstance(alone, Entry)
    assert isinstance(pipeline, Group)
    assert isinstance(sweep, Group)
    assert (dict(pipeline.states), pipeline.started_at, pipeline.ended_at) == (
        {"RUNNING": 3, "COMPLETED": 1}, 7.0, None
    )  # fmt: skip
    assert (dict(sweep.states), sweep.newest.name, sweep.ended_at) == ({"COMPLETED": 3}, "trial-3", 9.0)


def test_a_pipeline_is_not_taken_for_its_newest_step_and_its_steps_have_later_attempts(store: Store) -> None:
    for name in ("nightly-1-train", "nightly-1-train.2", "nightly-1-training.3"):
        store.hold(name, "me", 1.0, store.home / "runs", "train of nightly.py")
        store.change(name, "me", run_group="nightly-1")
    assert store.later_attempt(store.get("nightly-1-train", "me")) == "nightly-1-train.2"
    assert store.later_attempt(store.get("nightly-1-train.2", "me")) == ""
    (store.home / "pipelines" / "nightly-1").mkdir(parents=True)
    (store.home / "pipelines" / "nightly-1" / "pipeline.json").touch()
    with pytest.raises(ExperimentError, match="nightly-1 is a pipeline"):
        store.get("nightly-1", "me")


def test_the_best_of_a_group_counts_complete_runs(any_store: Store) -> None:
    for value, state in ((0.2, "COMPLETED"), (0.1, "FAILED"), (0.4, "COMPLETED")):
        add(any_store, "trial", run_group="sweep", state=state, metrics=json.dumps({"loss": value}))
    assert any_store.best("me", "sweep", "loss", maximize=False) == 0.2
    assert any_store.best("me", "sweep", "loss", maximize=True) == 0.4
    assert any_store.best("me", "sweep", "accuracy", maximize=True) is None


def test_a_later_layout_is_refused(tmp_path: Path, store: Store) -> None:
    add(store, "x")
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("UPDATE layout SET number = 99")
    with pytest.raises(ExperimentError, match="later release"):
        add(store, "x")


def test_an_index_of_the_first_layout_is_upgraded_and_keeps_its_runs(tmp_path: Path, store: Store) -> None:
    add(store, "old")
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("ALTER TABLE runs DROP COLUMN changed")
        database.execute("ALTER TABLE runs DROP COLUMN note")
        database.execute("UPDATE layout SET number = 1")
    later = Store(tmp_path)
    add(later, "new", changed=1)
    assert {run.name.partition("-")[0]: run.changed for run in later.find(Query())} == {"old": False, "new": True}
    later.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("UPDATE layout SET number = 1")  # a process was killed in the middle
    assert Store(tmp_path).find(Query(text="old"))


def test_a_damaged_index_is_named(tmp_path: Path, store: Store) -> None:
    (tmp_path / "runs.db").write_bytes(b"no database at all, and longer than a header" * 10)
    with pytest.raises(ExperimentError, match="runs.db") as caught:
        add(store, "x")
    assert caught.value.hint.startswith(
        f"`mv {tmp_path}/runs.db {tmp_path}/runs.db.damaged` and then `spritz runs --re"
    )


def test_a_locked_index_says_so(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spritz.experiments.records.database.LOCK_SECONDS", 0.05)
    add(store, "x")
    holder = sqlite3.connect(tmp_path / "runs.db")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(ExperimentError, match="locked for 0.05 s by another process"):
            add(Store(tmp_path), "x")

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        # SQLite says the same of a file system without locks.
        monkeypatch.setattr("fcntl.lockf", refuse)
        with pytest.raises(ExperimentError, match="its file system refuses locks"):
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


def test_a_server_that_does_not_answer_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("SPRITZ_RUN_STORE", "postgresql://me:geheim@127.0.0.1:9/runs")
    with pytest.raises(ExperimentError) as caught:
        add(Store(tmp_path), "x")
    assert "127.0.0.1" in caught.value.message
    assert "geheim" not in caught.value.message + caught.value.hint


def test_a_full_file_system_loses_nothing_and_says_so(tmp_path: Path, store: Store) -> None:
    """A limit on the size of files fails like a quota: writes end half-way."""
    for _ in range(3):
        add(store, "x")
    store.close()
    program = f"""
import resource, signal, sys
from pathlib import Path
from spritz.experiments.errors import ExperimentError
from spritz.experiments.records.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = Path({str(tmp_path)!r}, "runs.db").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
store = Store(Path({str(tmp_path)!r}))
try:
    for _ in range(1000):
        store.reserve("x", "me", 1.0, Path({str(tmp_path)!r}) / "runs", "python " + "long " * 200)
except ExperimentError as error:
    print(error.message, error.hint)
    sys.exit(3)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert "full" in done.stdout
    rows = [entry.name for entry in Store(tmp_path).find(Query(owner="me"))]
    assert len(set(rows)) == len(rows) >= 3
    assert {path.name for path in (tmp_path / "runs").iterdir()} >= set(rows)


def full(store: Store, path: Path) -> None:
    """From now on no page of the index is written while `path` takes the room."""
    begin = store._database.begin

    @contextlib.contextmanager
    def failing() -> Iterator[Any]:
        with begin() as transaction:

            class Statements:
                def execute(self, statement: str, values: Any) -> Any:
                    if path.exists() and not statement.startswith("SELECT"):
                        raise sqlite3.OperationalError("database or disk is full")
                    return transaction.execute(statement, values)

            yield Statements()

    store._database.begin = failing  # type: ignore[method-assign]  # the real one is called by it


def test_reading_needs_no_room(store: Store, tmp_path: Path) -> None:
    """What was found out by looking is shown although the full file system has no place for it."""
    name, other = add(store, "train"), add(store, "train")
    full(store, tmp_path / "runs")
    store.note({(name, "me"): {"state": "COMPLETED", "metrics": '{"loss": 0.5}'}})
    assert {(entry.name, entry.state) for entry in store.find(Query())} == {(name, "COMPLETED"), (other, "CREATED")}
    assert store.get(name, "me").metrics == {"loss": 0.5}
    with pytest.raises(Unwritable, match="is full"):
        store.change(name, "me", state="COMPLETED")
    assert Store(tmp_path).get(name, "me").state == "CREATED"


def test_a_full_file_system_is_no_obstacle_to_removing_runs(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path))
    monkeypatch.setattr(submission, "user", lambda: "me")
    name = add(store, "train", job_id="7", state="RUNNING")
    record.append(tmp_path / "runs" / name, "started", 1.0, restart=0)
    record.append(tmp_path / "runs" / name, "ended", 2.0, restart=0, status=0)
    full(store, tmp_path / "runs" / name)
    monkeypatch.setattr(slurm, "queued", lambda ids: {})
    monkeypatch.setattr(slurm, "accounted", lambda ids: {})
    monkeypatch.setattr(remove, "Store", lambda home: store)
    told: list[str] = []
    terminal = SimpleNamespace(out=told.append, err=told.append, error=told.append)
    assert remove.run(Namespace(names=[name], before=None, yes=True), terminal) == 0, told
    assert store.find(Query()) == []


def test_files_that_cannot_be_removed_are_said(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path))
    monkeypatch.setattr(submission, "user", lambda: "me")
    name = add(store, "train", job_id="7", state="COMPLETED")
    (tmp_path / "runs" / name / "file").write_bytes(bytes(100_000))
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as of another user's files
    told: list[str] = []
    terminal = SimpleNamespace(out=told.append, err=told.append, error=told.append)
    assert remove.run(Namespace(names=[name], before=None, yes=True), terminal) == 0, told
    assert told == [
        f"spritz: files of 1 could not be removed: {tmp_path / 'runs' / name}\n",
        f"Removed 1 run, freed 0B: {name}\n",
    ]
