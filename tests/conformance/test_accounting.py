"""What must hold of the accounting database, whichever kind it is: SQLite, PostgreSQL, MariaDB.

`make databases` runs this with all three and fails where one is missing; otherwise a missing one is skipped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack
from msgspec.structs import replace
from sqlalchemy import Connection, MetaData, inspect, select, text
from sqlalchemy import event as connection_event

from spritz.accounting import migrations, schema
from spritz.accounting.engine import DatabaseError, open_engine, parse_url
from spritz.accounting.ledger.ledger import Ledger
from spritz.accounting.purge import PurgeRules, purge
from spritz.accounting.select import PIECE, histories, read_jobs
from spritz.accounting.store import Store
from spritz.model import stored
from spritz.model.accounting.records import EventGroup, JobPick, JobWithSteps, RegisterCluster, SelectJobs, StoreState
from spritz.model.events import Event
from spritz.model.events import job as jobs
from spritz_testing.builders import World
from spritz_testing.history import History, in_groups
from tests.databases import open_store

JOURNAL = 77

pytestmark = pytest.mark.xdist_group("databases")


def register(store: Store, cluster: str = "c1", journal: int = JOURNAL, last: int = 10**9) -> int:
    request = RegisterCluster(cluster=cluster, journal=journal, last_sequence=last, store=("job_comment", "job_script"))
    return store.register(request, 1000.0)[0]


def tables(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that events have led to, in order."""
    found = {}
    with store.engine.connect() as connection:
        for table in schema.metadata.sorted_tables:
            if table.name not in ("clusters", "documents"):
                rows = connection.execute(select(table).order_by(*table.primary_key))
                found[table.name] = [tuple(row) for row in rows]
    return found


def asked(store: Store, **conditions: Any) -> list[JobWithSteps]:
    return [one for piece in read_jobs(store.engine, SelectJobs(**conditions)) for one in piece]


def ids(store: Store, **conditions: Any) -> list[int]:
    return [one.job.job_id for one in asked(store, **conditions)]


# -- storing


def test_batches_of_any_size_repeated_and_overlapping_lead_to_the_same_tables(make_store: Callable[[], Store]) -> None:
    groups = in_groups(History(1).events(120), 1)
    at_once, piecewise = make_store(), make_store()
    register(at_once)
    assert at_once.ingest("c1", JOURNAL, groups) == groups[-1].last
    register(piecewise)
    draw = random.Random(5)
    position = 0
    while position < len(groups):
        size = draw.randint(1, 40)
        again = max(0, position - draw.randint(0, 10))
        piecewise.ingest("c1", JOURNAL, groups[again : position + size])
        position += size
        if draw.random() < 0.3:
            piecewise.forget()
    assert tables(piecewise) == tables(at_once)
    assert len(tables(at_once)["jobs"]) >= 120
    assert all(tables(at_once)[name] for name in ("steps", "pending_reasons", "suspensions", "node_events"))


def test_events_that_are_missing_are_refused_and_nothing_of_the_batch_is_kept(store: Store) -> None:
    groups = in_groups(History(2).events(30), 2)
    register(store)
    store.ingest("c1", JOURNAL, groups[:3])
    before = tables(store)
    with pytest.raises(DatabaseError, match="are missing"):
        store.ingest("c1", JOURNAL, groups[4:])
    assert tables(store) == before
    assert register(store) == groups[2].last


def test_a_batch_that_fails_half_way_leaves_nothing_behind(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = in_groups(History(3).events(30), 3)
    register(store)
    store.ingest("c1", JOURNAL, groups[:5])
    before = tables(store)

    def fail(*_: object) -> None:
        raise DatabaseError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "_advance", fail)
        with pytest.raises(DatabaseError, match="full"):
            store.ingest("c1", JOURNAL, groups[5:])
    assert tables(store) == before
    store.ingest("c1", JOURNAL, groups[5:])
    assert register(store) == groups[-1].last


def with_priority(events: Iterable[Event], wanted: set[int], priority: int) -> Iterator[Event]:
    """The same events, but that jobs of these numbers were queued with this priority."""
    for event in events:
        if isinstance(event, jobs.JobQueued) and event.job.id in wanted:
            event = replace(event, job=replace(event.job, priority=priority))
        yield event


def test_an_event_that_the_database_cannot_hold_is_set_aside_and_the_rest_stored(store: Store) -> None:
    groups = in_groups(with_priority(History(6).events(60), {7, 8, 31}, 2**64 - 1), 6)
    sound = in_groups(History(6).events(60), 6)
    register(store)
    assert store.ingest("c1", JOURNAL, groups) == groups[-1].last == register(store)
    aside = store.take_set_aside()
    assert [(event.cluster, event.kind) for event in aside] == [("c1", "JobQueued")] * 3
    assert store.count_set_aside("c1") == 3
    assert store.take_set_aside() == []
    lives = set(ids(store))
    assert not lives & {7, 8, 31}
    with store.engine.connect() as connection:
        rows = connection.execute(select(schema.events_set_aside)).all()
    kept = [stored.decode(row.body, msgpack.Decoder(jobs.JobQueued)).job.id for row in rows]
    assert sorted(kept) == [7, 8, 31]
    assert all(row.error and row.at > 0 for row in rows)
    # A cluster of the same story without these three values has the same records, and theirs.
    register(store, "c2", JOURNAL + 1)
    store.ingest("c2", JOURNAL + 1, sound)
    assert {job for job in ids(store, clusters=("c2",)) if job not in (7, 8, 31)} == lives


def test_events_set_aside_once_are_not_set_aside_again(store: Store) -> None:
    groups = in_groups(with_priority(History(6).events(30), {5}, 2**64 - 1), 6)
    register(store)
    for _ in range(2):
        store.ingest("c1", JOURNAL, groups)
        store.forget()
    assert store.count_set_aside("c1") == 1


def test_a_fault_of_ours_in_one_event_does_not_keep_back_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = in_groups(History(7).events(30), 7)
    queued = [event.job.id for event in History(7).events(30) if isinstance(event, jobs.JobQueued)]
    register(store)
    apply = Ledger.apply

    def stumble(self: Ledger, place: int, event: Event) -> None:
        if isinstance(event, jobs.JobQueued) and event.job.id == queued[5]:
            raise KeyError("not thought of")
        apply(self, place, event)

    monkeypatch.setattr(Ledger, "apply", stumble)
    assert store.ingest("c1", JOURNAL, groups) == groups[-1].last
    assert [event.error for event in store.take_set_aside()] == ["KeyError: 'not thought of'"]
    assert queued[5] not in ids(store)
    assert set(queued[:5] + queued[6:]) <= set(ids(store))


def test_a_saved_state_with_a_job_that_the_database_cannot_hold_keeps_the_others(store: Store) -> None:
    world = World()
    good, bad = world.submit(), world.submit()
    state = world.machine.state
    held = [state.jobs[good], replace(state.jobs[bad], priority=2**64 - 1)]
    register(store)
    request = StoreState(cluster="c1", journal=JOURNAL, sequence=50, at=1.0, jobs=held, steps=[], last=True)
    assert store.adopt(request) == 50
    assert ids(store) == [good]
    assert [event.kind for event in store.take_set_aside()] == ["Job"]


def test_killed_at_any_point_it_loses_nothing_and_doubles_nothing(make_store: Callable[[], Store]) -> None:
    """A daemon is a Store; killing it forgets its memory before, inside or after the transaction of a batch."""
    groups = in_groups(History(4).events(150), 4)
    reference, store = make_store(), make_store()
    register(reference)
    reference.ingest("c1", JOURNAL, groups)
    draw = random.Random(4)

    class Killed(BaseException):
        pass

    deaths = 0
    while (at := register(store)) < groups[-1].last:
        left = [group for group in groups if group.last > at][: draw.randint(1, 8)]
        where = draw.choice(("before", "inside", "after", "not"))
        doomed = Store(store.engine)
        if where == "inside":
            advance = doomed._advance

            def die(*arguments: Any, advance: Callable[..., None] = advance) -> None:
                advance(*arguments)
                raise Killed

            doomed._advance = die  # type: ignore[assignment,method-assign]
            with pytest.raises(Killed):
                doomed.ingest("c1", JOURNAL, left)
        elif where != "before":
            doomed.ingest("c1", JOURNAL, left)
        deaths += where != "not"
        store = doomed if where == "not" else Store(store.engine)
    assert deaths > 10
    assert tables(store) == tables(reference)


def test_a_database_restored_from_a_backup_catches_up(make_store: Callable[[], Store]) -> None:
    groups = in_groups(History(6).events(60), 6)
    whole, old = make_store(), make_store()
    register(whole)
    whole.ingest("c1", JOURNAL, groups)
    register(old)
    old.ingest("c1", JOURNAL, groups[: len(groups) // 2])
    restored = Store(old.engine)
    at = register(restored)
    assert at < groups[-1].last
    restored.ingest("c1", JOURNAL, [group for group in groups if group.last > at])
    assert tables(restored) == tables(whole)


def test_another_journal_of_the_same_cluster_goes_on_behind_the_first(store: Store) -> None:
    """slurmctld -c: sequence numbers and job numbers begin at 1 again."""
    first, second = in_groups(History(7).events(10), 7), in_groups(History(8).events(10), 8)
    register(store)
    store.ingest("c1", JOURNAL, first)
    count = len(tables(store)["jobs"])
    assert register(store, journal=78) == 0
    store.ingest("c1", 78, second)
    assert len(tables(store)["jobs"]) > count
    assert len(ids(store, picks=(JobPick(1),), duplicates=True)) == 2
    assert len(ids(store, picks=(JobPick(1),))) == 1
    with pytest.raises(DatabaseError, match="another journal"):
        store.ingest("c1", JOURNAL, first)


def test_clusters_do_not_meet(store: Store) -> None:
    for cluster, seed in (("c1", 9), ("c2", 10)):
        register(store, cluster)
        store.ingest(cluster, JOURNAL, in_groups(History(seed).events(20), seed))
    both, one = ids(store), ids(store, clusters=("c2",))
    assert sorted(both) == sorted(ids(store, clusters=("c1",)) + one)
    assert {item.job.cluster for item in asked(store)} == {"c1", "c2"}


def test_two_daemons_on_one_database_do_not_both_store(store: Store) -> None:
    groups = in_groups(History(11).events(10), 11)
    register(store)
    other = Store(store.engine)
    other.cluster("c1")
    store.ingest("c1", JOURNAL, groups[:2])
    with pytest.raises(DatabaseError, match="another slurmdbd"):
        other.ingest("c1", JOURNAL, groups[:3])
    assert other.ingest("c1", JOURNAL, groups[:3]) == groups[2].last


def test_text_of_any_kind_comes_back_as_it_was(store: Store) -> None:
    history = History(12)
    odd = '\'; DROP TABLE jobs; -- \N{SNOWMAN} \N{GRINNING FACE} \\ %s %(x)s "q" \x07\n'
    events: list[Event] = []
    for event in history.events(1):
        if isinstance(event, jobs.JobQueued):
            from msgspec.structs import replace

            spec = replace(event.job.spec, name=odd, comment=odd * 1000, submit_line="x" * 200_000 + "\0y")
            event = replace(event, job=replace(event.job, spec=spec))
        events.append(event)
    register(store)
    store.ingest("c1", JOURNAL, in_groups(iter(events), 12), {"k" * 40: bytes(range(256)) * 1000})
    (one,) = asked(store, names=(odd,))
    assert (one.job.name, one.job.comment) == (odd, odd * 1000)
    assert one.job.submit_line == "x" * 200_000 + "\N{REPLACEMENT CHARACTER}y"
    assert asked(store, names=(odd.upper(),)) == []


# -- asking


def test_conditions_choose_what_a_look_at_every_record_would(store: Store) -> None:
    """Each condition, compared with a filter in Python over all lives."""
    register(store)
    store.ingest("c1", JOURNAL, in_groups(History(13).events(300), 13))
    every = [one.job for one in asked(store, duplicates=True)]
    middle = sorted(job.submitted_at for job in every)[len(every) // 2]

    def expect(check: Callable[[Any], bool], **conditions: Any) -> None:
        wanted = sorted(job.number for job in every if check(job))
        assert wanted, "the condition chooses something"
        assert sorted(one.job.number for one in asked(store, duplicates=True, **conditions)) == wanted

    expect(lambda job: job.uid == 1003, users=(1003,))
    expect(lambda job: job.account == "project4", accounts=("project4",))
    expect(lambda job: job.partition in ("gpu", "long"), partitions=("gpu", "long"))
    expect(lambda job: job.name == every[0].name, names=(every[0].name,))
    expect(lambda job: job.node_count >= 2, nodes_min=2)
    expect(lambda job: job.scheduler in ("Main", "Submit"), schedulers=("Main", "Submit"))
    expect(lambda job: job.association_id in (2, 3), associations=(2, 3))
    expect(lambda job: job.ended_at == 0.0 or job.ended_at >= middle, starts_at=middle)
    # The whole second that ends the window is part of it.
    expect(lambda job: job.eligible_at > 0.0 and int(job.eligible_at) <= int(middle), ends_at=int(middle))
    expect(lambda job: job.state == "FAILED" and job.ended_at >= middle, states=("FAILED",), starts_at=middle)
    expect(
        lambda job: 0.0 < job.started_at <= middle <= job.ended_at and job.ended_at > job.started_at,
        states=("RUNNING",),
        starts_at=middle,
    )
    expect(lambda job: 5 in (job.job_id, job.array_job_id), picks=(JobPick(5),))
    arrays = sorted({job.array_job_id for job in every if job.array_job_id})
    tasks = JobPick(arrays[0], "3")
    expect(
        lambda job: (
            job.array_job_id == arrays[0]
            and (job.array_task_id in (0, 1) or bool(job.array_tasks and int(job.array_tasks, 16) & 3))
        ),
        picks=(tasks,),
    )
    from spritz.notation.hostlist import expand

    expect(lambda job: bool(job.nodes) and "n3" in expand(job.nodes), nodes=("n3",))


def test_without_duplicates_the_last_life_of_each_job_is_shown_in_order(store: Store) -> None:
    register(store)
    store.ingest("c1", JOURNAL, in_groups(History(14).events(700), 14))
    lives = asked(store, duplicates=True)
    newest: dict[int, int] = {}
    for live in lives:
        if not live.job.aside:
            newest[live.job.job_id] = live.job.number
    shown = asked(store)
    assert sorted(one.job.number for one in shown if not one.job.aside) == sorted(newest.values())
    plain = [one.job.job_id for one in shown if not one.job.array_job_id]
    assert plain == sorted(plain)
    # Tasks come by index among those that are read together, whatever numbers they have.
    tasks = [(one.job.array_job_id, one.job.array_task_id) for one in shown if one.job.array_task_id is not None]
    assert sum(first > second for first, second in pairwise(tasks)) <= len(lives) // PIECE
    assert len(lives) > len(shown), "some job was requeued"
    assert any(one.steps for one in shown)


def test_an_answer_that_is_not_read_to_its_end_returns_its_connection(store: Store) -> None:
    register(store)
    store.ingest("c1", JOURNAL, in_groups(History(15).events(600), 15))
    for _ in range(30):
        pieces = read_jobs(store.engine, SelectJobs())
        assert len(next(pieces)) > 0
        pieces.close()  # type: ignore[attr-defined]  # a generator
    assert store.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # a QueuePool


def test_a_great_many_jobs_are_asked_for_by_their_numbers(store: Store) -> None:
    """Databases take some ten thousand parameters."""
    register(store)
    store.ingest("c1", JOURNAL, in_groups(History(18).events(40), 18))
    every = ids(store)
    few = tuple(JobPick(number) for number in every)
    found = ids(store, picks=few)
    assert len(found) >= 40
    many = tuple(JobPick(number) for number in range(1, 300_001))
    assert ids(store, picks=many) == found
    assert ids(store, picks=many[len(many) // 2 :]) == []


# -- tables


def test_the_migrations_lead_to_the_tables_of_this_release(store: Store) -> None:
    found = MetaData()
    found.reflect(store.engine)
    assert set(found.tables) - {"alembic_version"} == set(schema.metadata.tables)
    for name, table in schema.metadata.tables.items():
        reflected = found.tables[name]
        assert {column.name for column in reflected.columns} == {column.name for column in table.columns}, name
        assert [c.name for c in reflected.primary_key] == [c.name for c in table.primary_key], name
        for column in table.columns:
            assert reflected.columns[column.name].nullable == column.nullable, f"{name}.{column.name}"
        indexes = {index["name"]: index["column_names"] for index in inspect(store.engine).get_indexes(name)}
        for index in table.indexes:
            assert indexes[index.name] == [column.name for column in index.columns], index.name


def test_a_database_of_each_released_revision_is_brought_up_with_what_it_holds(new_url: Callable[[], str]) -> None:
    for revision in migrations.revisions():
        store = Store(open_engine(parse_url(new_url())))
        with store.engine.begin() as connection:
            migrations.upgrade(connection, revision)
            connection.execute(
                text(
                    "INSERT INTO clusters (name, base, journal, sequence, term, host, port, version, store, "
                    "created_at, registered_at, lost) VALUES ('old', 0, 5, 0, 1, 'h', 1, 'v', '', 0, 0, 0)"
                )
            )
        assert store.migrate()[1] == migrations.revisions()[-1] == schema.REVISION
        assert register(store, "old", 5) == 0
        assert store.ingest("old", 5, in_groups(History(16).events(5), 16)) > 0
        store.engine.dispose()


def test_usage_of_an_earlier_release_is_kept_when_its_records_are_gone(new_url: Callable[[], str]) -> None:
    """Revision 0009 puts what a holder used of all TRES into one row."""
    store = Store(open_engine(parse_url(new_url())))
    quote = store.engine.dialect.identifier_preparer.quote
    with store.engine.begin() as connection:
        migrations.upgrade(connection, "0008")
        for holder, period, tres, seconds in ((1, 0, "cpu", 3600), (1, 0, "gres/gpu:a100", 7), (2, 2, "mem", 1 << 50)):
            row = f"(1, {period}, 1699999200, {holder}, '{tres}', {seconds})"
            columns = "cluster_id, period, started_at, holder_id, tres, seconds"
            connection.execute(text(f"INSERT INTO {quote('usage')} ({columns}) VALUES {row}".replace(":a", r"\:a")))
    store.migrate()
    with store.engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(select(schema.holder_usage))]
    assert sorted((row[1], row[3], set(row[4].split(","))) for row in rows) == [
        (0, 1, {"cpu=3600", "gres/gpu:a100=7"}),
        (2, 2, {f"mem={1 << 50}"}),
    ]
    store.engine.dispose()


def test_a_database_of_a_later_release_is_refused_and_left_alone(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseError, match="later release") as caught:
        store.migrate()
    assert not caught.value.temporary
    assert set(inspect(store.engine).get_table_names()) >= {"jobs", "steps"}


def test_a_database_that_cannot_be_written_is_told_and_tried_again_later(tmp_path: Path) -> None:
    store = open_store(tmp_path / "acct.db")
    register(store)
    store.engine.dispose()
    path = tmp_path / "acct.db"
    read_only = Store(open_engine(parse_url(f"sqlite:///file:{path}?mode=ro&uri=true")))
    with pytest.raises(DatabaseError, match="readonly") as caught:
        read_only.ingest("c1", JOURNAL, in_groups(History(17).events(3), 17))
    assert caught.value.temporary
    read_only.engine.dispose()


def test_a_database_that_vanishes_at_the_commit_has_all_of_a_batch_or_nothing(
    make_store: Callable[[], Store],
) -> None:
    """Its connection is cut when everything is written and the commit is about to be sent."""
    store, whole = make_store(), make_store()
    if store.engine.dialect.name == "sqlite":
        pytest.skip("SQLite's database is a file: there is no connection to cut")
    groups = in_groups(History(19).events(60), 19)
    for one in (store, whole):
        register(one)
    whole.ingest("c1", JOURNAL, groups)
    at, cut = 0, [True, False, True, True, False]

    def vanish(connection: Connection) -> None:
        if cut.pop():
            mine = "pg_backend_pid" if connection.dialect.name == "postgresql" else "CONNECTION_ID"
            number = int(connection.execute(text(f"SELECT {mine}()")).scalar() or 0)
            end = f"SELECT pg_terminate_backend({number})" if mine == "pg_backend_pid" else f"KILL CONNECTION {number}"
            with whole.engine.connect() as other:
                other.execute(text(end))

    connection_event.listen(store.engine, "commit", vanish)
    failed = list[DatabaseError]()
    while cut:
        batch = [group for group in groups if group.last > at][: len(groups) // 4]
        try:
            at = store.ingest("c1", JOURNAL, batch)
        except DatabaseError as error:
            failed.append(error)
    connection_event.remove(store.engine, "commit", vanish)
    assert [error.temporary for error in failed] == [True] * 3
    store.ingest("c1", JOURNAL, groups)
    assert tables(store) == tables(whole)


# -- events that are gone


def test_the_controllers_state_stands_in_for_events_that_it_no_longer_keeps(store: Store) -> None:
    """What is known is brought up to date, what is new gets a record, and events go on behind the state."""
    register(store)
    world = World()
    first = world.submit(name="first")
    store.ingest("c1", JOURNAL, in_groups(iter(list(world.events)), 1))
    assert register(store) == world.state.version
    second = world.submit(name="second")
    world.cancel(first)
    state = world.state
    request = StoreState(
        cluster="c1",
        journal=JOURNAL,
        sequence=state.version,
        at=5000.0,
        jobs=[state.jobs[first], state.jobs[second]],
        steps=[],
        last=True,
    )
    assert store.adopt(request) == state.version
    found = {one.job.name: one.job.state for one in asked(store, not_eligible=True)}
    assert found == {"first": "CANCELLED", "second": "PENDING"}
    assert store.adopt(request) == state.version
    assert len(asked(store, duplicates=True, not_eligible=True)) == 2
    third = world.submit(name="third")
    left = in_groups(iter(world.events[request.sequence :]), 1)
    store.ingest(
        "c1",
        JOURNAL,
        [EventGroup(one.first + request.sequence, one.last + request.sequence, one.payload) for one in left],
    )
    assert sorted(ids(store, not_eligible=True)) == [first, second, third]


# -- forgetting


def test_what_is_older_than_it_shall_be_goes_and_nothing_else(store: Store) -> None:
    register(store)
    start = 1_700_000_000.0
    history = History(18, start_at=start)
    old = in_groups(history.events(40), 18)
    store.ingest("c1", JOURNAL, old)
    history.now = start + 40 * 86_400
    recent = [
        EventGroup(group.first + old[-1].last, group.last + old[-1].last, group.payload)
        for group in in_groups(history.events(40), 19)
    ]
    store.ingest("c1", JOURNAL, recent, {"a" * 40: b"script"})
    now = history.now + 86_400
    lives = asked(store, duplicates=True)
    kept = {live.job.number for live in lives if not 0.0 < live.job.ended_at < start + 20 * 86_400}
    assert 0 < len(kept) < len(lives)
    done = dict.fromkeys(key for key, _ in purge(store.engine, PurgeRules(periods={"PurgeJobAfter": "20day"}), now))
    assert list(done) == ["PurgeJobAfter", "documents"]
    assert {one.job.number for one in asked(store, duplicates=True)} == kept
    for name in ("steps", "suspensions", "pending_reasons"):
        assert {row[1] for row in tables(store)[name]} <= kept, name
    assert tables(store)["node_events"], "only jobs were to go"
    list(
        purge(
            store.engine,
            PurgeRules(periods={"PurgeStepAfter": "1hour", "PurgeEventAfter": "1month"}),
            now + 90 * 86_400,
        )
    )
    assert tables(store)["steps"] == []
    assert [row for row in tables(store)["node_events"] if row[5]] == []
    assert {one.job.number for one in asked(store, duplicates=True)} == kept


def test_all_that_happened_to_a_job_can_be_asked_for(store: Store) -> None:
    """Each reason to wait and each suspension, of each of its lives."""
    register(store)
    store.ingest("c1", JOURNAL, in_groups(History(21).events(300), 21))
    numbers = tuple(JobPick(job) for job in sorted({one.job.job_id for one in asked(store)}))
    found = histories(store.engine, SelectJobs(clusters=("c1",), picks=numbers, duplicates=True, not_eligible=True))
    assert len({one.job.number for one in found}) == len(found) > 200
    every = tables(store)
    assert sum(len(one.reasons) for one in found) == len(every["pending_reasons"]) > 0
    assert sum(len(one.suspensions) for one in found) == len(every["suspensions"]) > 0
    assert all(reason.number == one.job.number for one in found for reason in one.reasons)
    assert all(sorted(one.reasons, key=lambda each: each.place) == one.reasons for one in found)
