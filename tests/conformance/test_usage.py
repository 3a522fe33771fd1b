"""Rolled-up usage, whichever kind the database is: the same however and whenever events came."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.msgpack import encode
from msgspec.structs import astuple, replace
from sqlalchemy import select, update

from spritz.accounting import schema, spans
from spritz.accounting.purge import PurgeRules, cutoff, purge
from spritz.accounting.rollup.amounts import add_text, text_of
from spritz.accounting.rollup.report import reservations as reserved
from spritz.accounting.rollup.report import usage_of
from spritz.accounting.rollup.roll import roll
from spritz.accounting.rollup.size_queries import job_sizes
from spritz.accounting.store import Store
from spritz.model.accounting.records import EventGroup, RegisterCluster
from spritz.model.accounting.usage import AskJobSizes, AskReservations, AskUsage
from spritz.model.events import Event
from spritz.model.events import job as jobs
from spritz.model.events import reservation as reservations
from spritz.model.events import step as steps
from spritz.model.job.record import Job, JobSpec
from spritz.model.node.reservation import Reservation
from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobState
from spritz_testing.history import History, in_groups

JOURNAL = 77
START = 1_700_000_000.0
HOUR = 3600

pytestmark = pytest.mark.xdist_group("databases")


def register(store: Store, cluster: str = "c1") -> int:
    return store.register(RegisterCluster(cluster=cluster, journal=JOURNAL, last_sequence=10**9), START)[0]


def roll_all(store: Store, now: float) -> int:
    """Until nothing is due; the hours that were done."""
    hours = 0
    while done := roll(store.engine, now):
        hours += done[1]
    return hours


def rolled(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """All usage, in order, with holders' names."""
    who, used, whole = schema.usage_holders, schema.holder_usage, schema.cluster_usage
    names = (who.c.account, who.c.user, who.c.wckey, who.c.qos)
    with store.engine.connect() as connection:
        rows = connection.execute(
            select(used.c.period, used.c.started_at, *names, used.c.tres).join(who, who.c.id == used.c.holder_id)
        )
        return {
            "usage": sorted((*row[:-1], *pair) for row in rows for pair in pairs_of(row[-1])),
            "cluster": sorted(tuple(row) for row in connection.execute(select(whole))),
            "sizes": sorted((*row[:-1], *pairs_of(row[-1])) for row in connection.execute(select(schema.job_sizes))),
        }


def pairs_of(text: str) -> list[tuple[str, int]]:
    found: dict[str, int] = {}
    add_text(found, text)
    return sorted(found.items())


def story(seed: int, start: float = START) -> list[Event]:
    """Two days of it."""
    history = History(seed, start_at=start, nodes=4)
    events: list[Event] = []
    for _ in range(24):
        events += history.events(8)
        history.now += 2 * HOUR
    return events


def test_the_sum_of_hours_is_what_the_jobs_say(make_store: Callable[[], Store]) -> None:
    """A month's usage, against the jobs' own records."""
    store = make_store()
    register(store)
    store.ingest("c1", JOURNAL, in_groups(iter(story(1)), 1))
    end = START + 40 * 86400
    roll_all(store, end)
    found: dict[tuple[str, str], int] = {}
    for piece in usage_of(store.engine, AskUsage(starts_at=int(START - START % HOUR), ends_at=int(end - end % HOUR))):
        for holder in piece.holders:
            if holder.tres == "cpu":
                found[holder.account, holder.user] = found.get((holder.account, holder.user), 0) + holder.seconds
    wanted: dict[tuple[str, str], int] = {}
    with store.engine.connect() as connection:
        for row in connection.execute(select(schema.jobs).where(schema.jobs.c.cpus > 0)):
            seconds = int(row.ended_at) - int(row.started_at) - int(row.suspended_seconds)
            wanted[row.account, row.user] = wanted.get((row.account, row.user), 0) + row.cpus * seconds
    assert set(found) == set(wanted)
    # A suspension's ends are cut to whole seconds apart from the job's.
    assert all(abs(found[key] - wanted[key]) <= 4 * 200 for key in wanted)
    assert sum(found.values()) > 0


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone that the test names."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "start"),
    # Lord Howe Island changes its clocks by half an hour: on 5 April 2026 back, on 4 October forward.
    [("UTC", START), ("Australia/Lord_Howe", 1_775_250_000.0), ("Australia/Lord_Howe", 1_790_980_000.0)],
    indirect=["zone"],
)
def test_rolled_up_early_late_and_again_it_is_the_same(
    make_store: Callable[[], Store], zone: None, start: float
) -> None:
    """At once; or piece by piece, each rolled up before the next one comes, hours too early, some pieces twice."""
    groups = in_groups(iter(story(2, start)), 2)
    end = start + 60 * HOUR
    at_once, piecewise = make_store(), make_store()
    register(at_once)
    at_once.ingest("c1", JOURNAL, groups)
    assert roll_all(at_once, end) >= 48
    register(piecewise)
    draw, position = random.Random(2), 0
    while position < len(groups):
        size = draw.randint(1, 12)
        again = max(0, position - draw.randint(0, 5))
        piecewise.ingest("c1", JOURNAL, groups[again : position + size])
        position += size
        if draw.random() < 0.5:
            roll_all(piecewise, start + draw.randint(1, 60) * HOUR)
        if draw.random() < 0.2:
            piecewise.forget()
    roll_all(piecewise, end)
    found = rolled(at_once)
    assert rolled(piecewise) == found
    assert {row[1] for row in found["cluster"]} == {0, 1}, "hours and days"


def test_use_before_the_first_submission_is_rolled_up(make_store: Callable[[], Store]) -> None:
    """The clock was set back by hours between the first job's submission and its start."""
    store = make_store()
    register(store)
    begin = START - START % HOUR
    spec = JobSpec(user="u", account="a", batch=False)
    job = Job(id=1, spec=spec, partition="p", submitted_at=begin, eligible_at=begin, priority=1)
    back = begin - 5 * HOUR
    allocation = Allocation(partition="p", nodes=(NodeAllocation(node="n1", cpus="1", memory_mib=1),))
    events: list[Event] = [
        jobs.JobQueued(at=begin, job=job),
        jobs.JobStarted(at=back, job_id=1, allocation=allocation, time_limit_minutes=60),
        jobs.JobEnded(at=back + 2 * HOUR, job_id=1, state=JobState.COMPLETED, exit_status=0),
    ]
    store.ingest("c1", JOURNAL, in_groups(iter(events), 1))
    roll_all(store, begin + HOUR)
    hours = [row for row in rolled(store)["usage"] if row[0] == spans.HOUR and row[6] == "cpu"]
    assert [(row[1], row[7]) for row in hours] == [(back, HOUR), (back + HOUR, HOUR)]


def test_a_reservations_jobs_are_reported_without_their_suspensions(make_store: Callable[[], Store]) -> None:
    """Only those within the reservation's time count, and only CPUs are given up, as in the roll-up."""
    store = make_store()
    register(store)
    begin = START - START % HOUR
    kept = Reservation(name="r", id=1, start_at=begin, end_at=begin + 2 * HOUR, nodes=("n1",), accounts=("a",))
    spec = JobSpec(user="u", account="a", reservation="r", batch=False)
    job = Job(id=1, spec=spec, partition="p", submitted_at=begin, eligible_at=begin, priority=1)
    allocation = Allocation(partition="p", nodes=(NodeAllocation(node="n1", cpus="1", memory_mib=10),))
    events: list[Event] = [
        reservations.ReservationCreated(at=begin, reservation=kept),
        jobs.JobQueued(at=begin, job=job),
        jobs.JobStarted(at=begin, job_id=1, allocation=allocation, time_limit_minutes=600),
        jobs.JobSuspended(at=begin + HOUR, job_id=1),
        jobs.JobResumed(at=begin + HOUR + 600, job_id=1, ends_at=0.0, suspended_seconds=600.0),
        # A reservation that is gone holds no job up: this suspension is none of its.
        jobs.JobSuspended(at=begin + 3 * HOUR, job_id=1),
        jobs.JobResumed(at=begin + 5 * HOUR, job_id=1, ends_at=0.0, suspended_seconds=600.0 + 2 * HOUR),
        jobs.JobEnded(at=begin + 6 * HOUR, job_id=1, state=JobState.COMPLETED, exit_status=0),
    ]
    store.ingest("c1", JOURNAL, in_groups(iter(events), 1))
    query = AskReservations(starts_at=int(begin), ends_at=int(begin + 24 * HOUR))
    (report,) = reserved(store.engine, query, begin + 24 * HOUR)
    used = dict(report.used)
    assert (used["cpu"], used["mem"]) == (2 * HOUR - 600, 10 * 2 * HOUR)


def test_usage_of_two_clusters_in_one_database_is_that_of_each_in_its_own(make_store: Callable[[], Store]) -> None:
    def reported(store: Store, *clusters: str) -> list[tuple[Any, ...]]:
        asked = AskUsage(clusters=clusters, starts_at=int(START - START % HOUR), ends_at=int(end))
        return sorted(
            astuple(row) for piece in usage_of(store.engine, asked) for row in (*piece.clusters, *piece.holders)
        )

    end = START - START % HOUR + 60 * HOUR
    both, alone = make_store(), (make_store(), make_store())
    wanted = []
    for number, store in enumerate(alone, 1):
        name, groups = f"c{number}", in_groups(iter(story(30 + number)), number)
        for one in (both, store):
            register(one, name)
            one.ingest(name, JOURNAL, groups)
        roll_all(store, end)
        wanted.append(reported(store))
    roll_all(both, end)
    assert all(wanted)
    assert reported(both) == sorted(wanted[0] + wanted[1])
    assert reported(both, "c2") == wanted[1]


def test_a_restored_backup_catches_up_to_the_same_usage(make_store: Callable[[], Store]) -> None:
    groups = in_groups(iter(story(3)), 3)
    end = START + 60 * HOUR
    whole, old = make_store(), make_store()
    register(whole)
    whole.ingest("c1", JOURNAL, groups)
    roll_all(whole, end)
    register(old)
    old.ingest("c1", JOURNAL, groups[: len(groups) // 3])
    roll_all(old, end)
    restored = Store(old.engine)
    at = register(restored)
    restored.ingest("c1", JOURNAL, [group for group in groups if group.last > at])
    roll_all(restored, end)
    assert rolled(restored) == rolled(whole)


def test_what_is_done_is_not_done_again(make_store: Callable[[], Store]) -> None:
    """An hour later one hour is rolled up, whatever there was before; news of the past costs the hours since then."""
    store = make_store()
    register(store)
    groups = in_groups(iter(story(4)), 4)
    store.ingest("c1", JOURNAL, groups)
    end = START + 60 * HOUR
    assert roll_all(store, end) > 50
    assert roll_all(store, end) == 0
    assert roll_all(store, end + HOUR) == 1
    late = jobs.JobBecameEligible(at=end - 3 * HOUR, job_id=1)
    last = groups[-1].last
    store.ingest("c1", JOURNAL, [EventGroup(last + 1, last + 1, encode([late]))])
    assert roll_all(store, end + HOUR) == 4


def test_a_job_that_is_charged_to_another_user_takes_its_past_usage_along(make_store: Callable[[], Store]) -> None:
    store = make_store()
    register(store)
    events = list(History(5, start_at=START, plain=True).events(1))
    queued = next(event for event in events if isinstance(event, jobs.JobQueued))
    store.ingest("c1", JOURNAL, in_groups(iter(events), 5))
    roll_all(store, START + 5 * HOUR)
    spec: JobSpec = replace(queued.job.spec, account="another")
    changed = jobs.JobUpdated(at=START + 5 * HOUR, job=replace(queued.job, spec=spec))
    last = len(events)
    store.ingest("c1", JOURNAL, [EventGroup(last + 1, last + 1, encode([changed]))])
    roll_all(store, START + 6 * HOUR)
    assert {row[2] for row in rolled(store)["usage"]} <= {"another"}


def test_reservations_are_recorded_as_they_were_and_their_idle_time_is_charged(make_store: Callable[[], Store]) -> None:
    store = make_store()
    register(store)
    first, *_ = History(6, start_at=START, nodes=4).events(0)
    begin = START - START % HOUR + HOUR
    kept = Reservation(
        name="r", id=1, start_at=begin, end_at=begin + 4 * HOUR, nodes=("n1", "n2"), accounts=("physics",)
    )
    events: list[Event] = [
        first,
        reservations.ReservationCreated(at=START, reservation=kept),
        reservations.ReservationUpdated(at=START + 1, reservation=replace(kept, nodes=("n1",))),
        reservations.ReservationBegan(at=begin, name="r"),
        reservations.ReservationUpdated(at=begin + HOUR, reservation=replace(kept, nodes=("n1", "n3", "n4"))),
        reservations.ReservationDeleted(at=begin + 2 * HOUR, name="r"),
    ]
    store.ingest("c1", JOURNAL, in_groups(iter(events), 6))
    with store.engine.connect() as connection:
        table = schema.reservations.c
        rows = connection.execute(
            select(table.nodes, table.started_at, table.ended_at, table.closed).order_by(table.number)
        )
        assert [tuple(row) for row in rows] == [
            ("n1", begin, begin + HOUR, True),
            ("n[1,3-4]", begin + HOUR, begin + 2 * HOUR, True),
        ]
    roll_all(store, begin + 3 * HOUR)
    cpus = [row for row in rolled(store)["usage"] if row[0] == 0 and row[6] == "cpu"]
    assert [(row[2], row[3], row[7]) for row in cpus] == [
        ("physics", "", 64 * HOUR),
        ("physics", "", 3 * 64 * HOUR),
    ]


def test_usage_and_reservations_go_when_they_are_old_enough_and_nothing_younger(
    make_store: Callable[[], Store],
) -> None:
    store = make_store()
    register(store)
    events = story(7)
    begin = START + 2 * HOUR
    kept = Reservation(name="r", id=1, start_at=begin, end_at=begin + HOUR, nodes=("n1",), accounts=("physics",))
    events += [
        reservations.ReservationCreated(at=begin, reservation=kept),
        reservations.ReservationDeleted(at=begin + HOUR, name="r"),
    ]
    store.ingest("c1", JOURNAL, in_groups(iter(events), 7))
    roll_all(store, START + 60 * HOUR)
    before = rolled(store)
    now = START + 60 * HOUR
    rules = PurgeRules(periods={"PurgeUsageAfter": "36hour", "PurgeResvAfter": "1month"})
    assert {key for key, _ in purge(store.engine, rules, now)} == {"PurgeUsageAfter"}
    limit = cutoff("36hour", now)
    for name, rows in rolled(store).items():
        at = 1 if name == "usage" else 2  # the others have the cluster before it
        wanted = [row for row in before[name] if row[at] >= limit]
        assert rows == wanted
        assert 0 < len(rows) < len(before[name])
    list(purge(store.engine, rules, now + 60 * 86_400))
    with store.engine.connect() as connection:
        assert connection.execute(select(schema.reservations)).all() == []


def test_news_of_a_time_whose_records_were_purged_leaves_its_usage_as_it_is(make_store: Callable[[], Store]) -> None:
    """A job of long ago is charged to another account: hours whose jobs are gone would be made of nothing."""
    store = make_store()
    register(store)
    events = story(11)
    running = next(event for event in events if isinstance(event, jobs.JobQueued))
    groups = in_groups(iter(events), 11)
    store.ingest("c1", JOURNAL, groups)
    now = START + 60 * HOUR
    roll_all(store, now)
    before = rolled(store)
    assert dict(purge(store.engine, PurgeRules(periods={"PurgeJobAfter": "24hour"}), now))["PurgeJobAfter"] > 10
    late = jobs.JobUpdated(at=now, job=replace(running.job, spec=replace(running.job.spec, account="another")))
    last = groups[-1].last
    store.ingest("c1", JOURNAL, [EventGroup(last + 1, last + 2, encode([running, late]))])
    roll_all(store, now)
    limit = cutoff("24hour", now)
    after = rolled(store)
    for name, place in (("usage", 0), ("cluster", 1)):
        kept, known = (
            [row for row in found[name] if row[place] == spans.HOUR and row[place + 1] < limit]
            for found in (after, before)
        )
        assert kept == known
        assert len(known) > 24


def test_energy_is_charged_when_its_job_has_ended(make_store: Callable[[], Store]) -> None:
    """By what its script or its steps saw, whichever is more: each saw the whole node."""
    store = make_store()
    register(store)
    events: list[Event] = []
    for event in History(8, start_at=START, plain=True).events(1):
        if isinstance(event, steps.StepEnded):
            event = replace(event, usage=replace(event.usage, energy_joules=1234))
        events.append(event)
    store.ingest("c1", JOURNAL, in_groups(iter(events), 8))
    roll_all(store, START + 3 * HOUR)
    energy = [row for row in rolled(store)["usage"] if row[6] == "energy" and row[0] == 0]
    assert [row[7] for row in energy] == [1234]


def sizes_of(store: Store, start: float, end: float, **more: Any) -> dict[tuple[Any, ...], tuple[int, int, str]]:
    query = AskJobSizes(starts_at=int(start), ends_at=int(end), **more)
    found: dict[tuple[Any, ...], tuple[int, int, str]] = {}
    for size in job_sizes(store.engine, query, START + 60 * 86400):
        key = (size.account, size.wckey, size.cpus)
        jobs, seconds, used = found.get(key, (0, 0, ""))
        total: dict[str, int] = {}
        add_text(total, used)
        add_text(total, size.used)
        found[key] = (jobs + size.jobs, seconds + size.seconds, text_of(dict(sorted(total.items()))))
    return found


def test_jobs_by_size_are_the_same_from_days_that_are_rolled_up_as_from_the_jobs(
    make_store: Callable[[], Store],
) -> None:
    """Spans of whole days and months, and such as begin and end within one; with each condition that days can keep."""
    store = make_store()
    register(store)
    history = History(9, start_at=START, nodes=4)
    events: list[Event] = []
    for _ in range(70):
        events += history.events(2)
        history.now += 17 * HOUR
    store.ingest("c1", JOURNAL, in_groups(iter(events), 9))
    with store.engine.begin() as connection:
        # Some that run for days, and half seconds at both ends.
        connection.execute(
            update(schema.jobs)
            .where(schema.jobs.c.number % 3 == 0, schema.jobs.c.ended_at > 0)
            .values(ended_at=schema.jobs.c.ended_at + 200_000.5)
        )
        # Some that were over at once: they are not counted.
        connection.execute(
            update(schema.jobs).where(schema.jobs.c.number % 7 == 1).values(ended_at=schema.jobs.c.started_at + 1e-4)
        )
    midnight = [int(time.mktime((2023, 11, day, 0, 0, 0, 0, 0, -1))) for day in (15, 16, 20, 29, 70)]
    ends = [*midnight, int(START - START % HOUR) + 7 * HOUR, int(START - START % HOUR) + 40 * 24 * HOUR]
    asked: list[tuple[int, int, dict[str, Any]]] = [
        (low, high, more)
        for low in ends
        for high in ends
        if low < high
        for more in ({}, {"partitions": ("main",)}, {"partitions": ("other",)}, {"wckeys": ("", "a")})
    ]
    before = [sizes_of(store, low, high, **more) for low, high, more in asked]
    roll_all(store, START + 60 * 86400)
    assert [sizes_of(store, low, high, **more) for low, high, more in asked] == before
    assert max(len(one) for one in before) > 3
    assert sum(jobs for jobs, *_ in sizes_of(store, 0, START + 60 * 86400).values()) > 100


def test_a_years_jobs_by_size_are_told_without_a_look_at_the_jobs(make_store: Callable[[], Store]) -> None:
    """Days that were rolled up are known when their jobs are purged."""
    store = make_store()
    register(store)
    store.ingest("c1", JOURNAL, in_groups(iter(story(10)), 10))
    now = START + 60 * 86400
    roll_all(store, now)
    low, high = time.mktime((2023, 11, 1, 0, 0, 0, 0, 0, -1)), time.mktime((2023, 12, 1, 0, 0, 0, 0, 0, -1))
    before = sizes_of(store, low, high)
    list(purge(store.engine, PurgeRules(periods={"PurgeJobAfter": "1day"}), now))
    with store.engine.connect() as connection:
        assert connection.execute(select(schema.jobs)).all() == []
    assert before
    assert sizes_of(store, low, high) == before
