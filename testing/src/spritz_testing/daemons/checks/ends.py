"""Rule 3: exit codes are those that nodes saw, and jobs end at their time limits, with the signal before that.

Exit codes are compared for batch jobs that COMPLETED or FAILED: the end of the script is their end. Of jobs that were
ended from outside (CANCELLED, TIMEOUT, PREEMPTED, NODE_FAIL) the controller may never learn what the script returned.

Source: sacct(1) ExitCode; slurm.conf(5) KillWait, OverTimeLimit.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz.core.job.timers import LISTENING_SECONDS
from spritz.model.ids import INFINITE, STEP_MAX
from spritz.model.job.record import Job
from spritz_testing.daemons.checks.faults import (
    KILLS_SUPERVISORS,
    USERS_HOST,
    concerns,
    due_by,
    may_be_lost,
    nodes_of,
    quiet_seconds,
    reported_end,
)
from spritz_testing.daemons.checks.values import possible
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Outcome, Signalled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.accounting.records import JobRecord
    from spritz_testing.daemons.checks.story import Life, Run, Story

#: Times are compared to the second.
_SECOND = 1.0

#: Faults of machines on which processes do not die.
_UNDYING = frozenset({"undying processes", "hang"})

#: Seconds for which srun and salloc try to tell a controller how they ended, and for which it is away at least if they
#: fail.
_PATIENCE_SECONDS, _AWAY_SECONDS = 60.0, 50.0

#: Requests after which a job may end at another time.
_MOVES_END = frozenset({"update", "suspend", "requeue"})


def ends(story: Story) -> Iterator[Violation]:
    """All records of controller and accounting, and all lives."""
    for job in story.final.jobs:
        life = story.lives.get((job.id, job.restart_count))
        if life is not None and job.array is None:
            yield from _exit_code(story, life, job, job.state.value)
            yield from _derived(story, life, job)
            yield from _killed_unseen(story, life, job)
    for row in story.final.rows or ():
        life = story.lives.get((row.job_id, row.restart_count))
        if life is not None and not row.array_tasks:
            yield from _exit_code(story, life, row, row.state)
    for life in story.lives.values():
        yield from _time_limit(story, life)
        yield from _too_early(story, life)
        yield from _end_signal(story, life)
        yield from _outlives(story, life)
        yield from _outlived(story, life)
        yield from _again(story, life)
        yield from _given_back(story, life)


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
    elif (
        state == "FAILED"
        and story.final.rules.boots_show
        and batch is not None
        and batch.ended is None
        and batch.until < reported_end(story, life)
    ):
        text = f"{owner} reports that {life.label} FAILED with {_shown(record.exit_status)}; its machine died with it"
        yield _violation(story, "3.exit", life, batch, text)
    elif state in ("COMPLETED", "FAILED") and batch is not None and batch.ended is not None:
        ended, status = batch.ended, batch.ended.status
        if record.exit_status != status or (state == "COMPLETED") != (status == 0):
            saw = f"{ended.node} saw {_shown(status)} at {clock(ended.at)}"
            text = f"{owner} reports that {life.label} {state} with {_shown(record.exit_status)}; {saw}"
            yield _violation(story, "3.exit", life, batch, text)


def _killed_unseen(story: Story, life: Life, job: Job) -> Iterator[Violation]:
    """A job did not fail by a signal whose script no node saw begin, unless its supervisor may have been killed."""
    submission = story.submissions.get(life.subject[0])
    if job.state.value != "FAILED" or not job.exit_status & 0x7F or job.allocation is None or job.het_job_id:
        return
    if life.runs or submission is None or submission.kind != "submit":
        return
    node, since = job.allocation.nodes[0].node, story.earliest(job.started_at)
    if any(fault.kind in KILLS_SUPERVISORS and node in fault.named and fault.until >= since for fault in story.faults):
        return
    text = f"the controller reports that {life.label} FAILED with {_shown(job.exit_status)}, and no node saw it begin"
    yield _violation(story, "3.exit", life, None, text)


def _derived(story: Story, life: Life, job: Job) -> Iterator[Violation]:
    """DerivedExitCode is that of the worst of its steps, on whichever node a task failed."""
    steps: dict[int, list[Run]] = {}
    for run in life.runs:
        if run.began.step_id <= STEP_MAX:
            steps.setdefault(run.began.step_id, []).append(run)
    over_at = story.earliest(job.ended_at) if job.state.ended else story.final.read_at
    for number, runs in sorted(steps.items()):
        ends = [run.ended for run in runs if run.ended is not None]
        latest = max(due_by(story, run.until, story.final.rules.order_seconds, life) for run in runs)
        was_killed = any(end.status & 0x7F for end in ends) or job.derived_exit_status & 0x7F
        if len(ends) < len(runs) or was_killed or latest >= over_at:
            continue  # not all was seen, or a part was killed or could not begin, or its end was told after the job's
        worst = max(ends, key=lambda end: end.exit_code)
        if job.derived_exit_status < worst.exit_code << 8:
            text = f"{life.label} has DerivedExitCode {_shown(job.derived_exit_status)}; {worst.node} saw step {number}"
            yield _violation(story, "3.exit", life, runs[0], f"{text} end with {worst.exit_code}:0")


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
        over = run.seconds_by(end) - _unheard_seconds(story, life, run, end) - allowed
        if over <= 0 or _stopped_at_end(run):
            continue
        latest = due_by(story, end - over, rules.kill_wait_seconds + rules.order_seconds, life)
        if end > latest:
            where = f"{life.label} ran on {run.began.node} from {clock(run.began.at)} to {clock(end)}"
            text = f"{where}, and should have been gone at {clock(latest)} (limit of {max(values)} minutes)"
            yield _violation(story, "3.time", life, run, text)


def _unheard_seconds(story: Story, life: Life, run: Run, end: float) -> float:
    """For how long a run may have gone on by then although its job was suspended, since faults kept the orders from its
    node. The controller does not count that time for the limit.
    """
    cut_off, at = 0.0, run.began.at
    for fault in story.faults:
        until = min(fault.until + story.final.rules.recovery_seconds, end)
        since = max(fault.since, at)
        if since < until and fault.delays and concerns(story, fault, (run.began.node,)):
            cut_off += run.seconds_by(until) - run.seconds_by(since)
            at = until
    if life.reported is None:
        return cut_off
    stopped = end - run.began.at - run.seconds_by(end)
    return min(cut_off, max(0.0, life.reported.suspended_seconds - stopped))


def _too_early(story: Story, life: Life) -> Iterator[Violation]:
    """A job that is reported as TIMEOUT has had its time, without what it was suspended."""
    reported, wanted = life.reported, story.wanted(life.job_id)
    if reported is None or reported.state != "TIMEOUT" or not reported.started_at or not life.runs:
        return
    values = possible(story, life.subject, "time_limit_minutes", 0.0, reported.ended_at)
    if wanted is None or wanted.time_min_minutes or any(possible(story, life.subject, "reservation", 0.0, inf)):
        return  # its limit may have been lowered; it may have ended with its reservation
    if not values or any(value is None or value in (0, INFINITE) for value in values):
        return
    if any("end_at" in getattr(change.wanted, "fields", ()) for change in story.changes(life.subject)):
        return
    run = max(life.runs, key=lambda run: run.until)
    stopped = run.until - run.began.at - run.seconds_by(run.until) if run.until < inf else 0.0
    # Its processes may have gone on later than it, behind a cut.
    ran = reported.ended_at - reported.started_at - min(stopped, reported.suspended_seconds)
    if ran < min(values) * 60 - story.final.clock_error_seconds - _SECOND:
        text = f"{life.label} is TIMEOUT after {clock(ran)} s, and its limit was {min(values)} minutes"
        yield _violation(story, "3.time", life, life.batch, text)


def _end_signal(story: Story, life: Life) -> Iterator[Violation]:
    """A script gets the signal of --signal=B: in time, unless its end, or that of its job, comes first."""
    reported, wanted, batch = life.reported, story.wanted(life.job_id), life.batch
    if wanted is None or wanted.end_signal is None or not wanted.end_signal[2] or wanted.time_min_minutes:
        return
    if reported is None or not reported.started_at or batch is None or batch.stops or reported.suspended_seconds:
        return
    values = possible(story, life.subject, "time_limit_minutes", 0.0, inf)
    changes = story.changes(life.subject)
    if len(values) != 1 or values[0] in (None, 0, INFINITE) or any(change.kind in _MOVES_END for change in changes):
        return
    number, seconds, _ = wanted.end_signal
    at = reported.started_at + values[0] * 60 - seconds
    at = max(at, reported.started_at + LISTENING_SECONDS, batch.began.at)
    slack = story.final.rules.order_seconds + story.final.clock_error_seconds + _SECOND
    latest = due_by(story, at, slack, life)
    if min(batch.until, reported.ended_at or inf, story.final.read_at) <= latest:
        return
    key = batch.began.node, life.job_id, life.life
    if not any(
        isinstance(entry, Signalled)
        and (entry.node, entry.job_id, entry.restart_count) == key
        and entry.number == number
        and entry.at <= latest
        for entry in story.entries
    ):
        text = f"the script of {life.label} did not get signal {number} by {clock(latest)}, due at {clock(at)}"
        yield _violation(story, "5.signal", life, batch, text)


def _outlives(story: Story, life: Life) -> Iterator[Violation]:
    """A batch job is over when its script is, whatever is reported of its end."""
    reported, wanted, batch = life.reported, story.wanted(life.job_id), life.batch
    if reported is None or not reported.ended_at or wanted is None or wanted.het_size:
        return
    if batch is None or batch.ended is None:
        return
    latest = due_by(story, batch.until, story.final.rules.order_seconds, life) + _SECOND
    if story.earliest(reported.ended_at) > latest:
        ended = clock(reported.ended_at)
        text = f"{life.label} is {reported.state} at {ended}, and its script ended at {clock(batch.until)}"
        yield _violation(story, "6.ended", life, batch, text)


def _outlived(story: Story, life: Life) -> Iterator[Violation]:
    """A job that COMPLETED or FAILED did so when its script had ended, if its script ended by itself or by a signal of
    others.
    """
    reported, wanted, batch = life.reported, story.wanted(life.job_id), life.batch
    if reported is None or reported.state not in ("COMPLETED", "FAILED") or wanted is None or wanted.het_size:
        return
    if batch is None or batch.ended is None or not wanted.batch:
        return
    if story.latest(reported.ended_at) + _SECOND < batch.until and not _may_not_die(story, life, batch.until):
        ended = clock(reported.ended_at)
        text = f"{life.label} is {reported.state} at {ended}, and its script ended at {clock(batch.until)}"
        yield _violation(story, "3.exit", life, batch, text)


def _may_not_die(story: Story, life: Life, until: float) -> bool:
    """Whether its processes may have been given up as undying before this time."""
    near = (fault for fault in story.faults if fault.kind in _UNDYING and concerns(story, fault, nodes_of(life)))
    return any(life.began_at <= fault.until and fault.since <= until for fault in near)


def _again(story: Story, life: Life) -> Iterator[Violation]:
    """A job on one node whose script has exited by itself is not run again, nor lost with its node, unless a user or
    an administrator asked for that, or the node was away for long.
    """
    reported, wanted, batch = life.reported, story.wanted(life.job_id), life.batch
    nodes = nodes_of(life)
    if wanted is None or wanted.het_size or len(nodes) != 1 or batch is None or batch.ended is None:
        return
    if batch.ended.status & 0x7F or story.final.rows is not None or "low" in wanted.partition:
        return  # it was killed, perhaps since it was queued again; it may have been preempted
    later = [other.began_at for other in story.lives_of(life.subject) if other.life > life.life]
    if not later and (reported is None or reported.state != "NODE_FAIL"):
        return
    if any(change.kind == "requeue" for change in story.requests(life.subject)):
        return
    since = until = min(later, default=0.0)
    if not later and reported is not None:  # whenever a clock that was set showed that
        since, until = story.earliest(reported.ended_at), story.latest(reported.ended_at)
    # A node may be given up while the script runs on there, whose end then cannot be told either.
    if may_be_lost(story, life, min(batch.until, since), until):
        return
    how = f"began again at {clock(until)}" if later else "is NODE_FAIL"
    saw = f"{batch.ended.node} saw its script exit with {batch.ended.exit_code} at {clock(batch.until)}"
    yield _violation(story, "3.again", life, batch, f"{life.label} {how}; {saw}")


def _given_back(story: Story, life: Life) -> Iterator[Violation]:
    """An allocation ends as its srun or salloc says, which repeats it for a minute if the controller is away."""
    reported, submission = life.reported, story.submissions.get(life.subject[0])
    changes = story.requests(life.subject)
    finish = next((change for change in changes if change.kind == "finish"), None)
    if reported is None or finish is None or submission is None or submission.kind != "allocate":
        return
    if any(change.kind in ("cancel", "requeue") for change in changes) or life.life:
        return
    status, said = finish.wanted, f"its command ended with {_shown(finish.wanted)} at {clock(finish.called_at)}"
    if finish.outcome is Outcome.DONE:
        if reported.state in ("COMPLETED", "FAILED") and reported.exit_status != status:
            text = f"{life.label} is {reported.state} with {_shown(reported.exit_status)}; {said}"
            yield _violation(story, "3.exit", life, None, text)
    elif finish.outcome is Outcome.UNKNOWN and finish.answer is not None and reported.state == "CANCELLED":
        until = finish.called_at + _PATIENCE_SECONDS
        if quiet_seconds(story, (USERS_HOST,), finish.called_at, until) >= _AWAY_SECONDS:
            return  # it could reach no controller for as long as it tried
        text = f"{life.label} is CANCELLED, which nobody asked for; {said}, and gave up telling that"
        yield _violation(story, "3.exit", life, None, text)


def _stopped_at_end(run: Run) -> bool:
    return run.until == inf and bool(run.stops) and run.stops[-1][1] == inf


def _violation(story: Story, rule: str, life: Life, run: Run | None, text: str) -> Violation:
    at = story.final.read_at if run is None or run.until == inf else run.until
    entries = run.entries if run is not None else tuple(run.began for run in life.runs)
    return Violation(rule=rule, at=at, text=text, entries=entries)
