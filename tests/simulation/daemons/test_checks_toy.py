"""Histories of a correct controller are accepted; a single change of one is found."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spritz.model.states import JobState
from spritz_testing.daemons.history import Began, Ended, Operation, Outcome, Reading
from tests.simulation.daemons.day import Day
from tests.simulation.daemons.toy import Toy

#: What every toy day must leave to be changed.
SECONDS = 150


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_correct_day_is_accepted(seed: int) -> None:
    toy = Toy(seed, SECONDS)
    assert [violation.text for violation in toy.day.check(toy.now + 1_000.0)] == []


class NothingToChange(Exception):
    """The day has nothing of the kind that a change needs."""


def lose_job(day: Day, random: Random) -> None:
    acknowledged = {entry.job_id for entry in operations(day, "submit") if entry.outcome is Outcome.DONE}
    job_id = random.choice(sorted(acknowledged))
    del day.jobs[job_id]
    day.scripts.pop(job_id, None)
    day.rows = [row for row in day.rows if row.job_id != job_id]


def copy_job(day: Day, random: Random) -> None:
    job = random.choice(list(day.jobs.values()))
    day.jobs[999] = replace(job, id=999)
    day.scripts[999] = day.scripts[job.id]


def change_script(day: Day, random: Random) -> None:
    began(day, random).script += "x"


def begin_twice(day: Day, random: Random) -> None:
    entry = began(day, random)
    day.history.add(replace(entry, at=entry.at + 300, node="n1" if entry.node != "n1" else "n2"))


def begin_cancelled(day: Day, random: Random) -> None:
    """A job that was cancelled before its start begins much later."""
    waiting = [job for job in day.jobs.values() if job.state is JobState.CANCELLED and job.started_at == job.ended_at]
    acknowledged = {entry.job_id for entry in operations(day, "cancel") if entry.outcome is Outcome.DONE}
    requeued = {entry.job_id for entry in operations(day, "requeue")}
    jobs = [job.id for job in waiting if job.id in acknowledged - requeued]
    if not jobs:
        raise NothingToChange("no job was cancelled before its start")
    day.run(random.choice(jobs), 900, 901)


def share_cpu(day: Day, random: Random) -> None:
    """A job begins with the CPU of one that is there."""
    entry = began(day, random)
    other = replace(entry, at=entry.at + 0.1, job_id=998)
    day.history.entries.insert(day.history.entries.index(entry) + 1, other)


def change_exit_code(day: Day, random: Random) -> None:
    ended = [job for job in day.jobs.values() if job.state is JobState.FAILED]
    if not ended:
        raise NothingToChange("no job failed")
    job = random.choice(ended)
    day.record(job.id, exit_status=job.exit_status + 256)


def deny_end(day: Day, random: Random) -> None:
    """A job that ended is reported to run."""
    job = random.choice([job for job in day.jobs.values() if job.state is JobState.COMPLETED])
    day.record(job.id, state=JobState.RUNNING, ended_at=0.0)


def forget_job_in_reading(day: Day, random: Random) -> None:
    readings = [entry for entry in day.history.entries if isinstance(entry, Reading) and entry.rows]
    reading = random.choice(readings)
    ended = {entry.job_id for entry in day.history.entries if isinstance(entry, Ended)}
    never = [row for row in reading.rows if row[0] not in ended and day.jobs[row[0]].state is not JobState.CANCELLED]
    rows = never or [row for row in reading.rows if shown_later(day, reading, row[0])]
    if not rows:
        raise NothingToChange("no job is certainly there")
    reading.rows.remove(random.choice(rows))


def shown_later(day: Day, reading: Reading, job_id: int) -> bool:
    """Whether a later reading shows the job, and no request can have queued it again."""
    later = [
        entry for entry in day.history.entries if isinstance(entry, Reading) and entry.called_at > reading.called_at
    ]
    requeued = any(entry.job_id == job_id for entry in operations(day, "requeue"))
    return not requeued and any(row[0] == job_id for entry in later for row in entry.rows)


def shift_accounting(day: Day, random: Random) -> None:
    job = random.choice([job for job in day.jobs.values() if job.state is JobState.COMPLETED])
    day.record(job.id, ended_at=job.ended_at + 200)


def lose_release(day: Day, random: Random) -> None:
    """The release of a job that was submitted held is taken back; it began all the same."""
    held = {entry.job_id for entry in operations(day, "submit") if entry.wanted.hold and entry.job_id}
    begun = {entry.job_id for entry in day.history.entries if isinstance(entry, Began)}
    if not held & begun:
        raise NothingToChange("no held job began")
    job_id = random.choice(sorted(held & begun))
    day.history.entries = [
        entry for entry in day.history.entries if entry not in operations(day, "release") or entry.job_id != job_id
    ]


def operations(day: Day, kind: str) -> list[Operation]:
    return [entry for entry in day.history.entries if isinstance(entry, Operation) and entry.kind == kind]


def began(day: Day, random: Random) -> Began:
    return random.choice([entry for entry in day.history.entries if isinstance(entry, Began)])


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (lose_job, {"1.exists"}),
        (copy_job, {"1.exists"}),
        (change_script, {"1.script"}),
        (begin_twice, {"3.once"}),
        (begin_cancelled, {"3.cancelled"}),
        (share_cpu, {"3.cpu"}),
        (change_exit_code, {"3.exit"}),
        (deny_end, {"6.running"}),
        (forget_job_in_reading, {"2.order"}),
        (shift_accounting, {"6.accounting"}),
        (lose_release, {"3.held", "2.order"}),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_a_change_is_found(change: Callable[[Day, Random], None], rules: set[str], seed: int) -> None:
    toy = changed(change, seed)
    assert rules <= toy.day.broken(toy.now + 1_000.0).keys()


def changed(change: Callable[[Day, Random], None], seed: int) -> Toy:
    """The first day from this seed on that has what the change needs, changed."""
    for later in range(seed, seed + 500, 5):
        toy = Toy(later, SECONDS)
        try:
            change(toy.day, Random(seed))
        except NothingToChange:
            continue
        return toy
    raise AssertionError("no day has what the change needs")
