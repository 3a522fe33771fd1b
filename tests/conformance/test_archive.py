"""Purging with archives, and putting them back, on every kind of database. Source: slurmdbd.conf(5); sacctmgr(1)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import encode

from spritz.accounting import archive
from spritz.accounting.archive import ArchiveError, Archivist
from spritz.accounting.associations.store import ensure
from spritz.accounting.purge import PERIODS, PurgeRules, purge
from spritz.accounting.rollup.roll import roll
from spritz.accounting.store import Store
from spritz.model.accounting.records import EventGroup
from spritz.model.events import Event
from spritz.model.events import reservation as reservations
from spritz.model.node.reservation import Reservation
from spritz_testing.history import History, in_groups
from tests.conformance.test_accounting import JOURNAL, register, tables
from tests.conformance.test_usage import rolled

pytestmark = pytest.mark.xdist_group("databases")

START = 1_700_000_000.0
#: Everything that has ended is old by then.
LATER = START + 400 * 86_400

KEYS = tuple(key for key, (archive, _) in PERIODS.items() if archive)


def filled(store: Store, jobs: int = 60) -> Store:
    register(store)
    groups = in_groups(History(21, start_at=START).events(jobs), 21)
    store.ingest("c1", JOURNAL, groups, {"a" * 40: b"#!/bin/sh\n\x00\xff"})
    ensure(store.engine, "c1", START)
    last = groups[-1].last
    store.ingest("c1", JOURNAL, [EventGroup(last + 1, last + 2, encode(_reserved()))])
    while roll(store.engine, START + 3 * 86_400):
        pass
    return store


def _reserved() -> list[Event]:
    kept = Reservation(name="r", id=1, start_at=START + 10, end_at=START + 500, nodes=("n1",), accounts=("physics",))
    return [
        reservations.ReservationCreated(at=START + 5, reservation=kept),
        reservations.ReservationDeleted(at=START + 400, name="r"),
    ]


def purge_rules(directory: Path, *keys: str, **more: Any) -> PurgeRules:
    return PurgeRules(
        periods=dict.fromkeys(keys or KEYS, "1month"),
        archived=frozenset(keys or KEYS),
        directory=str(directory),
        **more,
    )


def without_ids(found: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    return {name: [row[1:] for row in rows] if name == "transactions" else rows for name, rows in found.items()}


def test_what_was_archived_and_purged_comes_back_into_an_empty_database_once(
    make_store: Callable[[], Store], tmp_path: Path
) -> None:
    store, empty = filled(make_store()), make_store()
    before, used = tables(store), rolled(store)["usage"]
    files: list[str] = []
    list(purge(store.engine, purge_rules(tmp_path, rows=7), LATER, files))
    left = tables(store)
    kinds = sorted(Path(path).name.split("_")[1] for path in files)
    assert kinds == ["event", "job", "resv", "step", "suspend", "txn", "usage"]
    assert {os.stat(path).st_mode & 0o777 for path in files} == {0o600}
    gone = [name for name in before if len(left[name]) < len(before[name])]
    assert {"jobs", "steps", "node_events", "transactions", "reservations"} <= set(gone)
    assert {"holder_usage", "cluster_usage", "job_sizes"} <= set(gone)
    for path in files:
        added = archive.load(empty.engine, path, LATER)
        assert sum(added.values()) > 0
    # Numbers of holders are the database's own.
    same = [name for name in gone if name not in ("transactions", "holder_usage")]
    assert {name: sorted([*left[name], *tables(empty)[name]]) for name in same} == {name: before[name] for name in same}
    assert rolled(empty)["usage"] == used
    once = tables(empty)
    for path in files:
        assert sum(archive.load(empty.engine, path, LATER).values()) == 0
    assert tables(empty) == once
    # Back where they came from, everything is as it was.
    for path in files:
        archive.load(store.engine, path, LATER)
    assert {name: sorted(rows) for name, rows in without_ids(tables(store)).items()} == {
        name: sorted(rows) for name, rows in without_ids(before).items()
    }


def test_a_cluster_that_returns_after_its_archive_goes_on_behind_it(
    make_store: Callable[[], Store], tmp_path: Path
) -> None:
    store, empty = filled(make_store()), make_store()
    files: list[str] = []
    list(purge(store.engine, purge_rules(tmp_path, "PurgeJobAfter"), LATER, files))
    archive.load(empty.engine, files[0], LATER)
    archived = {row[1] for row in tables(empty)["jobs"]}
    assert register(empty) == 0
    empty.ingest("c1", JOURNAL, in_groups(History(22).events(10), 22))
    fresh = {row[1] for row in tables(empty)["jobs"]} - archived
    assert len(fresh) >= 10
    assert min(fresh) > max(archived)


def test_a_daemon_that_is_killed_between_archive_and_purge_loses_nothing(
    store: Store, make_store: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    before = tables(store)
    write = Archivist.write

    class Killed(Exception):
        pass

    def die(*arguments: Any) -> None:
        write(*arguments)
        raise Killed

    files: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(Archivist, "write", die)
        with pytest.raises(Killed):
            list(purge(store.engine, purge_rules(tmp_path, "PurgeJobAfter"), LATER, files))
    assert tables(store) == before
    # The last line was cut off; its row is in the database still.
    torn = Path(files[0])
    torn.write_bytes(torn.read_bytes()[:-5])
    with pytest.raises(ArchiveError, match="its end is missing"):
        archive.load(store.engine, files[0], LATER)
    assert tables(store) == before
    list(purge(store.engine, purge_rules(tmp_path, "PurgeJobAfter"), LATER, files))
    assert files[1] == files[0] + ".2"
    whole = make_store()
    with pytest.raises(ArchiveError, match="its end is missing"):
        archive.load(whole.engine, files[0], LATER)
    archive.load(whole.engine, files[1], LATER)
    restored = {row[1] for row in tables(whole)["jobs"]}
    assert restored == {row[1] for row in before["jobs"]} - {row[1] for row in tables(store)["jobs"]}


@pytest.mark.parametrize("part", [0.3, 0.7, 1.0])
def test_half_of_a_file_is_loaded_and_said_to_be_one(
    store: Store, make_store: Callable[[], Store], tmp_path: Path, part: float
) -> None:
    """Even where it was cut between two lines."""
    filled(store)
    files: list[str] = []
    list(purge(store.engine, purge_rules(tmp_path, "PurgeJobAfter"), LATER, files))
    whole = Path(files[0]).read_bytes().splitlines(keepends=True)
    half = tmp_path / "half"
    half.write_bytes(b"".join(whole[: int(part * (len(whole) - 1))]))
    restored = make_store()
    records = int(part * (len(whole) - 1)) - 1
    with pytest.raises(ArchiveError, match=f"its end is missing; the {records} records before that are loaded"):
        archive.load(restored.engine, str(half), LATER)
    assert tables(restored)["jobs"]
    archive.load(restored.engine, files[0], LATER)
    half.write_bytes(b"".join([whole[0].replace(b',"ended":true', b""), *whole[1:-1]]))
    assert sum(archive.load(restored.engine, str(half), LATER).values()) == 0, "an older release wrote no ends"


def test_what_cannot_be_archived_is_not_purged(store: Store, tmp_path: Path) -> None:
    filled(store, 20)
    before = tables(store)
    with pytest.raises(ArchiveError, match="No such file"):
        list(purge(store.engine, purge_rules(tmp_path / "missing", "PurgeJobAfter"), LATER))
    failing = tmp_path / "script"
    failing.write_text("#!/bin/sh\nexit 3\n")
    failing.chmod(0o755)
    with pytest.raises(ArchiveError, match="ArchiveScript"):
        list(purge(store.engine, purge_rules(tmp_path, script=str(failing)), LATER))
    assert tables(store) == before
    failing.write_text(f'#!/bin/sh\necho "$SLURM_ARCHIVE_JOBS $SLURM_ARCHIVE_STEPS" > {tmp_path}/said\n')
    files: list[str] = []
    list(purge(store.engine, purge_rules(tmp_path, "PurgeJobAfter", script=str(failing)), LATER, files))
    assert (tmp_path / "said").read_text() == "1 0\n"
    assert files == []
    assert len(tables(store)["jobs"]) < len(before["jobs"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not an archive"),
        ("hello\n", "not an archive"),
        ('["spritz-archive",{"format":9,"cluster":"c1"}]\n', "an archive of a later release .format 9"),
        ('["spritz-archive",{"format":1,"cluster":"c1","revision":"9999"}]\n', "of a later release .*revision 9999"),
        (
            '["spritz-archive",{"format":1,"cluster":"c1"}]\n["jobs",{"number":1,"colour":"red"}]\n',
            "jobs have no column 'colour'",
        ),
        ('["spritz-archive",{"format":1,"cluster":"c1"}]\n["users",{}]\n', "line 2: unknown kind of record 'users'"),
        ('["spritz-archive",{"format":1,"cluster":"c1"}]\n{"jobs":\n', "line 2 is damaged"),
    ],
)
def test_a_file_that_is_no_archive_is_refused_and_changes_nothing(
    store: Store, tmp_path: Path, text: str, problem: str
) -> None:
    filled(store, 5)
    before = tables(store)
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(ArchiveError, match=problem):
        archive.load(store.engine, str(path), LATER)
    assert tables(store) == before


def test_records_beyond_the_limit_of_a_file_go_to_another(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    monkeypatch.setattr(archive, "RECORDS_MAX", 20)
    files: list[str] = []
    list(purge(store.engine, purge_rules(tmp_path, "PurgeJobAfter", rows=5), LATER, files))
    assert len(files) > 2
    assert files[1].endswith(".2")


def test_groups_that_come_again_after_a_purge_bring_nothing_back(store: Store, tmp_path: Path) -> None:
    register(store)
    groups: list[EventGroup] = in_groups(History(23, start_at=START).events(20), 23)
    store.ingest("c1", JOURNAL, groups)
    list(purge(store.engine, purge_rules(tmp_path, "PurgeJobAfter"), LATER))
    left = tables(store)
    store.forget()
    store.ingest("c1", JOURNAL, groups)
    assert tables(store) == left
