"""Rule 6: some time after the last fault everything has moved on.

Everything that can run has run, no job is COMPLETING, no processes are left of jobs that are over, and every request
was answered or its client is gone. What can run is decided by the history, not by the reason that a job shows.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz.model.job.record import Hold
from spritz.model.reasons import Reason
from spritz.model.states import JobFlag, JobState, NodeFlag
from spritz_testing.daemons.checks.dependencies import satisfied
from spritz_testing.daemons.checks.starts import may_release
from spritz_testing.daemons.checks.values import possible
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Outcome
from spritz_testing.daemons.wanted import Change, Reserved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.job.record import Job
    from spritz_testing.daemons.checks.story import Story
    from spritz_testing.daemons.history import Entry, Operation
    from spritz_testing.daemons.wanted import Wanted


def liveness(story: Story) -> Iterator[Violation]:
    """The end of a run that was given the time for all this; else nothing is said."""
    if not story.final.drained:
        return
    yield from _answers(story)
    # A suspended job keeps memory, licences and its place in its array: what waits for these cannot run.
    stopped = any(job.state is JobState.SUSPENDED for job in story.final.jobs)
    for job in story.final.jobs:
        yield from _completing(story, job)
        if job.state is JobState.PENDING and not stopped:
            yield from _pending(story, job)
        if job.state.active:
            yield from _active(story, job)
    yield from _left_behind(story)
    if story.final.rules.forgets:
        yield from _kept(story)


def _kept(story: Story) -> Iterator[Violation]:
    """Records of jobs that ended MinJobAge ago; those of an array and of a heterogeneous job stay together."""
    final = story.final
    latest = final.read_at - final.rules.min_job_age_seconds - final.rules.recovery_seconds
    whole: dict[int, list[Job]] = {}
    for job in final.jobs:
        whole.setdefault(job.array_job_id or job.het_job_id or job.id, []).append(job)
    for leader, jobs in whole.items():
        over = all(job.state.ended and not job.completing and not job.flags & JobFlag.COMPLETING for job in jobs)
        ended_at = max(story.virtual_time(job.ended_at) for job in jobs)
        if over and max(ended_at + final.clock_error_seconds, final.last_fault_at) < latest:
            text = f"job {leader}, which ended at {clock(ended_at)}, is not forgotten"
            yield _violation(story, "5.forgotten", text)


def _answers(story: Story) -> Iterator[Violation]:
    by_id = {operation.id: operation for operation in story.operations}
    for number in story.final.waiting:
        operation = by_id[number]
        text = f"{operation.kind} by {operation.client}, called at {clock(operation.called_at)}, is not answered"
        yield _violation(story, "6.answer", text, operation)
    for kind, count in sorted(story.final.parked.items()):
        if count:
            yield _violation(story, "6.answer", f"{count} requests {kind} are still parked")


def _completing(story: Story, job: Job) -> Iterator[Violation]:
    if job.completing or job.flags & JobFlag.COMPLETING:
        nodes = ",".join(job.completing)
        yield _violation(story, "6.completing", f"job {job.id} is still COMPLETING on {nodes or 'no node'}")


def _active(story: Story, job: Job) -> Iterator[Violation]:
    """A job that runs has processes, or had some less than `recovery_seconds` ago."""
    life = story.lives[job.id, job.restart_count]
    submission = story.submissions.get(life.subject[0])
    wanted = story.wanted(job.id)
    if submission is None or wanted is None or submission.kind != "submit" or not wanted.batch:
        return  # an allocation may have no processes; its client ends it
    last = life.ended_at if life.runs else story.virtual_time(job.started_at)
    settled = max(last, story.final.last_fault_at) + story.final.rules.recovery_seconds
    if (life.subject[1] in (None, 0) or not wanted.het_size) and last != inf and settled < story.final.read_at:
        since = f"ended at {clock(last)}" if life.runs else "never began"
        text = f"job {job.id} is {job.state.value}, and its processes {since}"
        yield _violation(story, "6.running", text, *(entry for run in life.runs for entry in run.entries))


def _pending(story: Story, job: Job) -> Iterator[Violation]:
    subject = story.subject(job.id)
    wanted = story.wanted(job.id)
    if wanted is None or wanted.never_fits or _needs_more_nodes(story, wanted) or _may_be_narrow(story, job):
        return
    submission = story.submissions[subject[0]]
    if job.hold is not Hold.NONE:
        if not _may_be_held(story, job):
            yield _violation(story, "6.pending", f"job {job.id} is held, and no request held it", submission)
        return
    now = story.final.read_at - story.final.rules.recovery_seconds
    begins = [float(value or 0.0) for value in possible(story, subject, "begin_at", now, story.final.read_at)]
    if max(begins, default=0.0) > now or not satisfied(story, subject, now) or not _has_time(story, job):
        return
    if _waits_for_a_clock(story, job, now):
        return
    text = f"job {job.id} can run and waits, submitted at {clock(submission.called_at)} ({job.reason.value})"
    yield _violation(story, "6.pending", text, submission)


def _needs_more_nodes(story: Story, wanted: Wanted) -> bool:
    """Whether it needs nodes that are not for it at the end: drained ones, as the request that would have resumed them
    may be lost, or those of a reservation of others that is not over.
    """
    final = story.final
    gone = {node.name for node in final.nodes if node.flags & NodeFlag.DRAIN}
    settled = final.read_at - final.rules.recovery_seconds - final.clock_error_seconds
    for reserved in _reservations(story):
        if reserved.name != wanted.reservation and reserved.end_at > settled:
            gone |= reserved.nodes
    return wanted.nodes_min > len(story.node_names - gone)


def _may_be_narrow(story: Story, job: Job) -> bool:
    """Whether its user may have left it fewer nodes than its tasks need."""
    changes = story.changes(story.subject(job.id))
    return any(isinstance(change.wanted, Change) and "nodes_max" in change.wanted.fields for change in changes)


def _reservations(story: Story) -> list[Reserved]:
    """Those that may have been made, and that nobody has certainly deleted."""
    deleted = {
        operation.wanted
        for operation in story.operations
        if operation.kind == "unreserve" and operation.outcome is Outcome.DONE
    }
    asked = [operation for operation in story.operations if operation.outcome is not Outcome.REFUSED]
    made = [operation.wanted for operation in asked if isinstance(operation.wanted, Reserved)]
    return [reserved for reserved in (*story.final.rules.reservations, *made) if reserved.name not in deleted]


def _waits_for_a_clock(story: Story, job: Job, now: float) -> bool:
    """Whether it waits for a moment that was reckoned by a clock that was ahead: after its life before, or after the
    start of a job on which it depends (`after:JOB+MINUTES`). As in Slurm these are times, and a clock that is set back
    does not move them.
    """
    moments = [dependency.due_at for dependency in job.dependencies]
    if job.reason is Reason.BEGIN_TIME and job.restart_count:
        moments.append(job.eligible_at)
    latest = story.final.read_at + story.final.clock_error_seconds
    return any(now < story.virtual_time(moment) <= latest for moment in moments)


def _may_be_held(story: Story, job: Job) -> bool:
    wanted = story.wanted(job.id)
    changes = story.changes(story.subject(job.id))
    held = any(change.kind == "hold" or _holds(change) or may_release(change) for change in changes)
    by_site = job.restart_count > 0 or bool(wanted and wanted.reservation)
    return held or by_site or bool(wanted and (wanted.hold or wanted.priority == 0))


def _holds(change: Operation) -> bool:
    return change.kind == "requeue" and isinstance(change.wanted, Change) and change.wanted.hold


def _has_time(story: Story, job: Job) -> bool:
    """Whether the reservation that it names, if any, has room for it before its end."""
    names = possible(story, story.subject(job.id), "reservation", 0.0, story.final.read_at)
    if not any(names):
        return True
    made = [operation.wanted for operation in story.operations if isinstance(operation.wanted, Reserved)]
    known = [reserved for reserved in (*story.final.rules.reservations, *made) if reserved.name in names]
    return bool(known) and all(reserved.start_at < story.final.read_at < reserved.end_at for reserved in known)


def _left_behind(story: Story) -> Iterator[Violation]:
    """Processes whose job is over, or has been queued again."""
    settled = story.final.read_at - story.final.rules.recovery_seconds
    for life in story.lives.values():
        there = [run for run in life.runs if run.until == inf]
        last = story.lives_of(life.subject)[-1]
        job = story.jobs.get(life.job_id)
        over = job is None or job.state.ended or last.life > life.life
        reported = life.reported.ended_at if life.reported is not None else 0.0
        if there and over and max(reported, there[0].began.at) < settled:
            state = job.state.value if job is not None else "forgotten"
            where = ",".join(sorted({run.began.node for run in there}))
            text = f"{life.label} is {state}, and its processes on {where} are still there"
            yield _violation(story, "6.processes", text, *(run.began for run in there))


def _violation(story: Story, rule: str, text: str, *entries: Entry) -> Violation:
    return Violation(rule=rule, at=story.final.read_at, text=f"at the end {text}", entries=tuple(entries))
