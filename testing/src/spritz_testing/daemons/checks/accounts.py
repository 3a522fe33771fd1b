"""Rule 6, second part: accounting's records are the truth, to the second.

A start is recorded when the controller decides it, so processes begin at most `order_seconds` later; the end of a batch
job when its script's end is reported, at most `order_seconds` after it. Both are extended by faults on the way
(`faults.due_by`), and by what the daemons' clocks may be wrong.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from spritz.model.states import JobState
from spritz_testing.daemons.checks.faults import due_by, due_on
from spritz_testing.daemons.checks.violation import Violation, clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.accounting.records import JobRecord
    from spritz.model.job.record import Job
    from spritz_testing.daemons.checks.story import Life, Story

#: Records have whole seconds.
_SECOND = 1.0

#: Of sums of many small numbers that decay.
_USAGE_PRECISION = 1e-6

#: States of jobs that were ended from outside; and of those that wait, maybe after an earlier life.
_NO_EXIT_STATUS = frozenset(
    {JobState.CANCELLED, JobState.TIMEOUT, JobState.NODE_FAIL, JobState.PREEMPTED, JobState.PENDING}
)


def accounts(story: Story) -> Iterator[Violation]:
    """Every life, if the cluster has a slurmdbd and all was given time to reach it."""
    if story.final.rows is None or not story.final.drained:
        return
    yield from _usage(story)
    rows = {(row.job_id, row.restart_count): row for row in story.final.rows if not row.array_tasks}
    for key, life in story.lives.items():
        row = rows.get(key)
        job = story.jobs.get(life.job_id)
        waits = job is not None and job.array is not None  # an array's tasks that wait have a record together
        if row is None:
            if life.runs or not waits:
                yield _violation(story, "6.accounting", life, "has no record in accounting")
            continue
        yield from _open(story, life, row)
        yield from _times(story, life, row)
        if job is not None and job.array is None and job.restart_count == life.life:
            yield from _same(story, life, row, job)
            yield from _exit_status(story, life, row, job, rows.get((life.job_id, life.life - 1)))


def _usage(story: Story) -> Iterator[Violation]:
    """What fair-share counts is what the records say, unless the clock was set back: then the controller counts time
    that no record can show.
    """
    ahead = [ahead for _, _, ahead in story.final.clocks]
    if any(later < earlier for earlier, later in pairwise(ahead)):
        return
    for name, kept, recorded in story.final.usage:
        if abs(kept - recorded) > _SECOND + _USAGE_PRECISION * recorded:
            text = f"{name}: the controller counts a usage of {kept:.3f}, by accounting's records it is {recorded:.3f}"
            yield Violation(rule="6.usage", at=story.final.read_at, text=text, entries=())


def _open(story: Story, life: Life, row: JobRecord) -> Iterator[Violation]:
    later = story.lives_of(life.subject)[-1].life > life.life
    if later and not row.ended_at:
        yield _violation(story, "6.accounting", life, f"has no end in accounting ({row.state}), but was queued again")


def _same(story: Story, life: Life, row: JobRecord, job: Job) -> Iterator[Violation]:
    """The controller's record and accounting's."""
    ended_at = job.ended_at if job.state.ended else 0.0
    # If the clock was set back, accounting's run time is zero and not negative.
    started_at = min(job.started_at, ended_at) if ended_at else job.started_at
    if job.state.value != row.state:
        text = f"has state {row.state} in accounting, the controller {job.state.value}"
        yield _violation(story, "6.accounting", life, text)
    suspended = job.suspended_seconds if job.state.ended or job.state is JobState.PENDING else row.suspended_seconds
    if abs(suspended - row.suspended_seconds) > _SECOND:
        times = f"{row.suspended_seconds:.3f} s in accounting, {suspended:.3f} s by the controller"
        yield _violation(story, "6.accounting", life, f"was suspended for {times}")
    for name, at, recorded_at in (("start", started_at, row.started_at), ("end", ended_at, row.ended_at)):
        if abs(at - recorded_at) > _SECOND:
            times = f"{clock(story.virtual_time(recorded_at))}, the controller {clock(story.virtual_time(at))}"
            yield _violation(story, "6.accounting", life, f"has {name} {times} (accounting first)")


def _exit_status(story: Story, life: Life, row: JobRecord, job: Job, former: JobRecord | None) -> Iterator[Violation]:
    """The exit status in the controller's record and accounting's. `former`: accounting's of the life before.

    Of a job that is ended from outside, Slurm records no exit status, and its processes end later: scontrol has 0:15,
    sacct 0:0. A job whose deadline cannot be met any more has 1:0 in both, one that was ended at it no status.
    Source: recordings of 22.05, tests/conformance/golden/accounts/sacct.txt and golden/site/jobs.txt.
    """
    missed = job.state is JobState.DEADLINE and bool(life.runs or job.scheduler)  # maybe before its launch arrived
    right = {0} if job.state in _NO_EXIT_STATUS or missed else {job.exit_status}
    if job.state is JobState.CANCELLED and life.life and life.reported is not None and not life.reported.started_at:
        # It did not start again, so it has the exit status of its former life. If that is not in the record of that
        # life, it came later: before this life was cancelled, or after.
        right = {job.exit_status} if former is not None and former.exit_status else {job.exit_status, 0}
    if row.exit_status not in right:
        text = f"has exit status {row.exit_status} in accounting, the controller {max(right)}"
        yield _violation(story, "6.accounting", life, text)


def _times(story: Story, life: Life, row: JobRecord) -> Iterator[Violation]:
    seconds = story.final.rules.order_seconds
    started_at, ended_at = story.virtual_time(row.started_at), story.virtual_time(row.ended_at)
    if not life.runs:
        return
    began = life.began_at
    # Faults are looked up at the latest moment that the record's time may stand for: the clock may have been behind.
    # The first step of an allocation begins when its user wants it. Any node may have passed the launch on.
    latest = inf
    if life.batch is not None:
        latest = due_on(story, story.latest(started_at), seconds, story.node_names) + _SECOND
    earliest = story.earliest(started_at) - _SECOND
    if started_at == ended_at:  # the clock was set back meanwhile: the record has no start of its own
        earliest, latest = earliest - story.final.clock_error_seconds, latest + story.final.clock_error_seconds
    if not started_at or not earliest <= began <= latest:
        start = f"started at {clock(started_at)}" if started_at else "never started"
        yield _violation(story, "6.accounting", life, f"{start} by accounting, and began at {clock(began)}")
    if not ended_at:
        return
    batch = life.batch
    if row.state in ("COMPLETED", "FAILED") and batch is not None and batch.ended is not None:
        saw = batch.until
        in_time = story.earliest(ended_at) <= due_by(story, saw, seconds, life) + _SECOND
        if not in_time or story.latest(ended_at) < saw - _SECOND:
            text = f"ended at {clock(ended_at)} by accounting, and its script at {clock(saw)}"
            yield _violation(story, "6.accounting", life, text)
    kill_seconds = story.final.rules.kill_wait_seconds + seconds
    latest = due_by(story, story.latest(ended_at), kill_seconds, life) + _SECOND
    if latest < life.ended_at < inf:
        text = f"ended at {clock(ended_at)} by accounting ({row.state}), and its processes at {clock(life.ended_at)}"
        yield _violation(story, "6.accounting", life, text)


def _violation(story: Story, rule: str, life: Life, text: str) -> Violation:
    entries = tuple(entry for run in life.runs for entry in run.entries)
    return Violation(rule=rule, at=story.final.read_at, text=f"{life.label} {text}", entries=entries)
