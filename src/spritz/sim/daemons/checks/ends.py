"""Rule 3: exit codes are those that nodes saw, and jobs end at their time limits.

Exit codes are compared for batch jobs that COMPLETED or FAILED: the end of the script is their end. Of jobs that were
ended from outside (CANCELLED, TIMEOUT, PREEMPTED, NODE_FAIL) the controller may never learn what the script returned.

Source: sacct(1) ExitCode; slurm.conf(5) KillWait, OverTimeLimit.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.job import Job
from spritz.sim.daemons.checks.faults import due_by
from spritz.sim.daemons.checks.values import possible
from spritz.sim.daemons.checks.violation import Violation, clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.accounting import JobRecord
    from spritz.sim.daemons.checks.story import Life, Run, Story


def ends(story: Story) -> Iterator[Violation]:
    """All records of controller and accounting, and all lives."""
    for job in story.final.jobs:
        life = story.lives.get((job.id, job.restart_count))
        if life is not None and job.array is None:
            yield from _exit_code(story, life, job, job.state.value)
    for row in story.final.rows or ():
        life = story.lives.get((row.job_id, row.restart_count))
        if life is not None and not row.array_tasks:
            yield from _exit_code(story, life, row, row.state)
    for life in story.lives.values():
        yield from _time_limit(story, life)


def _exit_code(story: Story, life: Life, record: Job | JobRecord, state: str) -> Iterator[Violation]:
    wanted = story.wanted(life.job_id)
    submission = story.submissions.get(life.subject[0])
    if wanted is None or submission is None or not wanted.batch or submission.kind != "submit":
        return
    if wanted.het_size and life.subject[1]:
        return  # it ends with the script of the first component
    owner = "the controller" if isinstance(record, Job) else "accounting"
    batch = life.batch
    if state == "COMPLETED" and (batch is None or batch.ended is None):
        text = f"{owner} reports that {life.label} COMPLETED, but no node saw its script end"
        yield _violation(story, "3.exit", life, batch, text)
    elif state in ("COMPLETED", "FAILED") and batch is not None and batch.ended is not None:
        ended = batch.ended
        status = ended.exit_code << 8 | ended.signal
        if record.exit_status != status or (state == "COMPLETED") != (status == 0):
            saw = f"{ended.node} saw {ended.exit_code}:{ended.signal} at {clock(ended.at)}"
            text = f"{owner} reports that {life.label} {state} with {_shown(record.exit_status)}; {saw}"
            yield _violation(story, "3.exit", life, batch, text)


def _shown(status: int) -> str:
    return f"{status >> 8}:{status & 0xFF}"


def _time_limit(story: Story, life: Life) -> Iterator[Violation]:
    rules = story.final.rules
    values = possible(story, life.subject, "time_limit_minutes", 0.0, life.ended_at)
    if not values or any(value is None or value in (0, INFINITE) for value in values):
        return  # it had no limit, or one that the site sets
    if any("end_at" in getattr(change.wanted, "fields", ()) for change in story.changes(life.subject)):
        return
    allowed = max(values) * 60 + rules.over_time_limit_seconds + story.final.clock_error_seconds
    for run in life.runs:
        end = min(run.until, story.final.read_at)
        over = run.seconds_by(end) - allowed
        if over <= 0 or _stopped_at_end(run):
            continue
        latest = due_by(story, end - over, rules.kill_wait_seconds + rules.order_seconds, life)
        if end > latest:
            where = f"{life.label} ran on {run.began.node} from {clock(run.began.at)} to {clock(end)}"
            text = f"{where}, and should have been gone at {clock(latest)} (limit of {max(values)} minutes)"
            yield _violation(story, "3.time", life, run, text)


def _stopped_at_end(run: Run) -> bool:
    return run.until == inf and bool(run.stops) and run.stops[-1][1] == inf


def _violation(story: Story, rule: str, life: Life, run: Run | None, text: str) -> Violation:
    at = story.final.read_at if run is None or run.until == inf else run.until
    entries = run.entries if run is not None else tuple(run.began for run in life.runs)
    return Violation(rule=rule, at=at, text=text, entries=entries)
