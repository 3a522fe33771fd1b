"""Jobs of crontabs: they come again under their number. Source: scrontab(1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.crontab import CrontabUpdated, UpdateCrontab
from spritz.model.commands.job import CancelJobs, CancelResult, RequeueJob, SubmitJob, UpdateJob
from spritz.model.events.job import JobEnded
from spritz.model.job.cron import following
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import CronEntry
from spritz.model.reasons import Reason
from spritz.model.states import JobState
from spritz_testing.builders import ALICE, BOB, World, job_spec

MakeWorld = Callable[..., World]


@pytest.fixture
def crontabs(make_world: MakeWorld) -> World:
    """A cluster with ScronParameters=enable, at 00:16:40 UTC."""
    return make_world(settings=ClusterSettings(crontabs=True, max_job_count=100, max_batch_requeue=1))


def entry(schedule: str = "*/5 * * * *", line: int = 1, **fields: object) -> SubmitJob:
    """The job of a line."""
    cron = CronEntry(schedule=schedule, line_first=line, line_last=line)
    return SubmitJob(spec=job_spec(cron=cron, **fields), script=b"#!/bin/sh\n")


def write(world: World, *jobs: SubmitJob, text: str = "the crontab\n") -> tuple[int, ...]:
    """Alice's crontab; the numbers of its jobs."""
    reply = world.ok(UpdateCrontab(text=text, jobs=jobs), ALICE).reply
    assert isinstance(reply, CrontabUpdated)
    assert not reply.code, reply
    return reply.job_ids


def cancelled(world: World, *job_ids: int, cron: bool = False) -> list[str]:
    """Codes of Alice's scancel."""
    targets = tuple(JobTarget(number) for number in job_ids)
    reply = world.ok(CancelJobs(filter=JobFilter(targets=targets), cron=cron), ALICE).reply
    assert isinstance(reply, CancelResult)
    return [outcome.code for outcome in reply.outcomes]


def test_a_job_begins_at_its_time_and_waits_for_the_next_one_when_it_has_ended(crontabs: World) -> None:
    world = crontabs
    (number,) = write(world, entry())
    job = world.job(number)
    assert (job.reason, job.eligible_at, job.spec.begin_at) == (Reason.BEGIN_TIME, 1200.0, 1200.0)
    for life, status in enumerate((0, 1 << 8, 0, 1 << 8)):
        world.advance(world.job(number).eligible_at - world.now)
        world.start(number)
        world.advance(1)
        world.finished(number, status)
        job = world.job(number)
        assert (job.state, job.reason, job.restart_count) == (JobState.PENDING, Reason.BEGIN_TIME, life + 1)
        assert job.eligible_at == 1200.0 + 300.0 * (life + 1)
    ends = [event.state for event in world.events if isinstance(event, JobEnded)]
    assert ends == [JobState.COMPLETED, JobState.FAILED, JobState.COMPLETED, JobState.FAILED]


def test_a_life_longer_than_the_period_skips_what_it_missed(crontabs: World) -> None:
    world = crontabs
    (number,) = write(world, entry("* * * * *"))
    world.advance(100)
    world.start(number)
    world.advance(150)
    world.finished(number)
    assert world.job(number).eligible_at == 1260.0


def test_a_requeue_waits_for_the_next_time_too(crontabs: World) -> None:
    world = crontabs
    (number,) = write(world, entry())
    world.advance(200)
    world.start(number)
    world.ok(RequeueJob(target=JobTarget(number)), ALICE)
    world.gone(number)
    assert world.job(number).eligible_at == 1500.0


def test_local_time_counts_with_its_changes(crontabs: World) -> None:
    """At 1,000,800 s clocks go from UTC+1 to UTC+2: from 15:00 to 16:00. Or back, from 16:00 to 15:00."""

    def clock(before: int, after: int, schedule: str) -> Callable[[float], float]:
        changes = ((1_000_800, after),)
        entry = CronEntry(schedule=schedule, utc_offset_seconds=before, utc_offset_changes=changes)
        return lambda now: following(entry, now)

    daily = clock(3600, 7200, "0 5 * * *")
    assert (daily(0.0), daily(1_000_800.0) % 86_400) == (4 * 3600.0, 3 * 3600.0)
    left_out = clock(3600, 7200, "30 15 12 * *")
    assert left_out(900_000.0) == 1_000_800.0 + 1800
    always = clock(7200, 3600, "* * * * *")
    assert [always(at) for at in (1_000_790.0, 1_000_800.0)] == [1_000_800.0, 1_000_860.0]
    twice = clock(7200, 3600, "30 15 * * *")
    first = 1_000_800.0 - 1800
    assert twice(900_000.0 + 86_400) == first
    assert twice(first) == twice(1_000_800.0) == first + 90_000  # a day of 25 hours


def test_a_new_crontab_cancels_what_waits_and_lets_what_runs_end(crontabs: World) -> None:
    world = crontabs
    waits, runs = write(world, entry(), entry())
    world.advance(200)
    world.start(runs)
    (new,) = write(world, entry(line=3))
    assert world.job(waits).state is JobState.CANCELLED
    assert world.job(runs).state is JobState.RUNNING
    world.finished(runs)
    assert world.job(runs).state is JobState.COMPLETED
    assert world.job(new).state is JobState.PENDING
    world.ok(UpdateCrontab(), ALICE)
    assert world.job(new).state is JobState.CANCELLED
    assert ALICE.uid not in world.state.crontabs
    assert world.refused(UpdateCrontab(), ALICE) == "ESLURM_JOB_SCRIPT_MISSING"


def test_nothing_changes_where_an_entry_is_refused(crontabs: World) -> None:
    world = crontabs
    (kept,) = write(world, entry())
    before = world.machine.image()
    reply = world.ok(UpdateCrontab(text="x", jobs=(entry(), entry(line=7, partitions=("no",)))), ALICE).reply
    assert isinstance(reply, CrontabUpdated)
    assert (reply.failed_lines, reply.code) == ("7", "ESLURM_INVALID_PARTITION_NAME")
    assert world.machine.image() == before
    assert world.job(kept).state is JobState.PENDING


def test_a_cancelled_job_comes_no_more_and_its_lines_are_disabled(crontabs: World) -> None:
    world = crontabs
    first, second = write(world, entry(line=2), entry(line=4))
    assert cancelled(world, first) == [""]
    world.advance(200)
    world.start(second)
    assert cancelled(world, second) == [""]
    world.gone(second)
    assert [world.job(number).state for number in (first, second)] == [JobState.CANCELLED, JobState.CANCELLED]
    assert world.state.crontabs[ALICE.uid].disabled == ((2, 2), (4, 4))


def test_explicit_scancel_needs_the_flag(make_world: MakeWorld) -> None:
    world = make_world(settings=ClusterSettings(crontabs=True, explicit_scancel=True))
    (number,) = write(world, entry())
    assert cancelled(world, number) == ["ESLURM_CANNOT_CANCEL_CRON_JOB"]
    assert cancelled(world, number, cron=True) == [""]


def test_rights_and_impossible_requests(crontabs: World) -> None:
    world = crontabs
    (number,) = write(world, entry())
    assert world.refused(UpdateCrontab(uid=ALICE.uid), BOB) == "ESLURM_ACCESS_DENIED"
    assert world.refused(entry(), ALICE) == "ESLURM_NOT_SUPPORTED"
    update = UpdateJob(target=JobTarget(number), changes={"name": "x"})
    assert world.refused(update, ALICE) == "ESLURM_CANNOT_MODIFY_CRON_JOB"
    for job, code in (
        (entry(array="0-3"), "ESLURM_NOT_SUPPORTED"),
        (entry("0 0 31 2 *"), "ESLURM_INVALID_TIME_VALUE"),
        (entry("when I say"), "ESLURM_INVALID_TIME_VALUE"),
    ):
        reply = world.ok(UpdateCrontab(text="x", jobs=(job,)), ALICE).reply
        assert isinstance(reply, CrontabUpdated)
        assert reply.code == code


def test_crontabs_are_off_unless_they_are_enabled(world: World) -> None:
    assert world.refused(UpdateCrontab(text="x", jobs=(entry(),)), ALICE) == "ESLURM_DISABLED"


def test_offsets_that_no_time_zone_has_are_refused(crontabs: World) -> None:
    """The next time of such an entry may be in no year that a date can name: its job could not be queued again."""
    year = 366 * 86_400
    for zone in ({"utc_offset_seconds": 253_370_764_800}, {"utc_offset_changes": ((2 * year, 90_000),)}):
        cron = CronEntry(schedule="* * * * *", **zone)
        command = UpdateCrontab(text="x", jobs=(SubmitJob(spec=job_spec(cron=cron), script=b"#!"),))
        reply = crontabs.do(command, ALICE).reply
        assert getattr(reply, "code", "") == "ESLURM_INVALID_TIME_VALUE"
    assert not crontabs.state.jobs
