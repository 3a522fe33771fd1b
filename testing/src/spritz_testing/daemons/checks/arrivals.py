"""Rules 3 and 6: what was decided reaches the nodes in time, whatever was lost on the way.

A controller decides, and its orders may be lost with a connection, a controller or a node. Then they must be derived
again: a job that started has processes, one that was suspended stands still, one that was cancelled is gone, and so is
one whose clients are. Without a fault that takes `Rules.order_seconds`; with one, until its end and some time more.

Source: docs/architecture.md, effects are derived from the state when a node or a controller comes back; scancel(1),
scontrol(1) suspend; srun(1) Ctrl-C; salloc(1); slurm.conf(5) KillWait, SlurmdTimeout, InactiveLimit.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz.model.ids import STEP_BATCH, STEP_MAX
from spritz_testing.daemons.checks.faults import USERS_HOST, concerns_nodes, due_on, nodes_of
from spritz_testing.daemons.checks.links import owed_on
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Injected, Left, Outcome, Reading
from spritz_testing.daemons.wanted import SUBMISSIONS, Change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.job.record import Job
    from spritz_testing.daemons.checks.story import Life, Run, Story
    from spritz_testing.daemons.history import Operation

#: Seconds in which the clients of an interactive job may come back: twice those of production, which looks again once.
_GRACE_SECONDS = 30.0

#: Seconds for which a machine may be silent until its node is shown as lost: the longest SlurmdTimeout that
#: administrators set, and a look for silent nodes.
_LOST_SECONDS = 240.0

#: Requests after which a job is no longer suspended, or its processes may be those of a later start.
_MOVES = frozenset({"resume", "suspend", "requeue", "cancel", "update", "release", "signal"})


def arrivals(story: Story) -> Iterator[Violation]:
    """All lives, and all requests that nodes must hear of."""
    steps = _steps(story)
    for job in story.final.jobs:
        yield from _begun(story, job)
    for life in story.lives.values():
        yield from _superseded(story, life)
        yield from _over(story, life)
        for change in story.changes(life.subject):
            if change.outcome is Outcome.DONE and change.answered_at is not None:
                yield from _killed(story, life, change)
                yield from _suspended(story, life, change)
    for operation in story.operations:
        if operation.kind == "end_step" and operation.outcome is Outcome.DONE:
            yield from _step_ended(story, operation)
        if operation.kind == "await_end" and operation.outcome is Outcome.DONE:
            yield from _told_of_end(story, operation)
    for (job_id, _), operation in steps.items():
        later = {number for (owner, number), asked in steps.items() if owner == job_id and _follows(asked, operation)}
        yield from _step_began(story, job_id, operation, later)
    yield from _abandoned(story)
    yield from _lost(story)


def _steps(story: Story) -> dict[tuple[int, int], Operation]:
    """Steps that srun was told of, by job and number."""
    return {
        (operation.job_id, operation.answer[0]): operation
        for operation in story.operations
        if operation.kind == "step" and operation.outcome is Outcome.DONE and isinstance(operation.answer, tuple)
    }


# Beginnings


def _begun(story: Story, job: Job) -> Iterator[Violation]:
    """The script of a job that has started begins: nothing else would end it before its time limit."""
    life = story.lives[job.id, job.restart_count]
    submission, reported = story.submissions.get(life.subject[0]), life.reported
    if submission is None or submission.kind != "submit" or reported is None or not reported.started_at:
        return
    if job.allocation is None or life.batch is not None or job.het_offset:
        return  # the script of a heterogeneous job is its first component's
    nodes = frozenset(share.node for share in job.allocation.nodes)
    at, seconds = story.latest(job.started_at), story.final.rules.order_seconds
    latest = min(due_on(story, at, seconds, nodes), owed_on(story, at, seconds, job.allocation.nodes[0].node))
    until = story.earliest(job.ended_at) if job.ended_at else story.final.read_at
    if until > latest and not job.suspended_seconds and job.state.value != "SUSPENDED":
        text = f"{life.label} started at {clock(reported.started_at)}, and its script had not begun at {clock(latest)}"
        yield Violation(rule="6.begun", at=latest, text=text, entries=(submission,))


def _follows(asked: Operation, operation: Operation) -> bool:
    return operation.answered_at is not None and asked.called_at > operation.answered_at


def _step_began(story: Story, job_id: int, operation: Operation, later: set[int]) -> Iterator[Violation]:
    """A step that srun was told of begins on each of its nodes, unless its job, or it, ends before.

    `later`: steps of the job that were asked for when this one was granted.
    """
    step_id, nodes = operation.answer
    at = operation.answered_at or operation.called_at
    lives = [life for life in story.lives.values() if life.job_id == job_id]
    began = {run.began.node for life in lives for run in life.runs if run.began.step_id == step_id}
    missing = sorted(set(nodes) - began)
    if not missing or len(lives) != 1:
        return
    life = lives[0]
    seconds = story.final.rules.order_seconds
    latest = min(owed_on(story, at, seconds, node, _began_on(life, node, later)) for node in missing)
    if due_on(story, at, seconds, frozenset(nodes)) > at + seconds:
        # One of its nodes was to pass the launch on, and is waited for as long as each level below it may take.
        latest = max(latest, at + seconds * (1 + len(nodes)))
    latest = _reached(story, life, at, latest)
    if latest > story.final.read_at:
        return
    changes = (change for change in story.changes(life.subject) if change.called_at <= latest)
    if any(change.kind in _ENDS and _step_of(change) in (None, step_id) for change in changes):
        return
    # A part that exits by itself ends none of the others.
    ended = min((run.until for run in life.runs if run.began.step_id == step_id and not _exited(run)), default=inf)
    limit = at + 60.0 * (getattr(operation.wanted, "time_limit_minutes", 0) or inf)
    reported = life.reported
    job_ended = reported.ended_at - story.final.clock_error_seconds if reported and reported.ended_at else inf
    gone = min((left.at for left in _left(story, operation.id)), default=inf)
    if min(ended, limit, job_ended, gone) > latest:
        text = f"step {job_id}.{step_id} was granted at {clock(at)}, and had not begun on {','.join(missing)}"
        yield Violation(rule="6.begun", at=latest, text=f"{text} at {clock(latest)}", entries=(operation,))


def _began_on(life: Life, node: str, steps: set[int]) -> list[float]:
    return [run.began.at for run in life.runs if run.began.node == node and run.began.step_id in steps]


def _step_of(change: Operation) -> int | None:
    """The step that alone is ended; None: it is about the job."""
    is_of_step = change.kind == "end_step" and isinstance(change.wanted, Change)
    return change.wanted.fields.get("step") if is_of_step else None


def _exited(run: Run) -> bool:
    return run.ended is not None and not run.ended.status & 0x7F


def _reached(story: Story, life: Life, at: float, latest: float) -> float:
    """When what must have happened by `latest` has, if it needs the host of the job's srun: a step begins when its
    supervisors have reached that, or srun hears that they gave up.
    """
    rules, host = story.final.rules, life.batch.began.node if life.batch is not None else USERS_HOST
    for fault in story.faults:
        if fault.delays and host in fault.named and fault.since <= latest and fault.until >= at:
            latest = max(latest, fault.until + rules.recovery_seconds + rules.order_seconds)
    return latest


_ENDS = frozenset({"cancel", "requeue", "suspend", "signal", "end_step", "finish"})


# Ends


def _killed(story: Story, life: Life, change: Operation) -> Iterator[Violation]:
    """Processes that were there when their job was cancelled, or queued again, are gone KillWait later."""
    if change.kind not in ("cancel", "requeue") or change.answered_at is None:
        return
    if change.kind == "requeue" and (life.subject[1] is not None or story.wanted(life.job_id) is None):
        return
    seconds = story.final.rules.kill_wait_seconds + story.final.rules.order_seconds
    for run in life.runs:
        latest = owed_on(story, change.answered_at, seconds, run.began.node)
        if run.began.at < change.called_at and run.until > latest and story.final.read_at > latest:
            there = f"{_where(life, run)} were there until {_end(run)}"
            text = f"{there}, though its {change.kind} was acknowledged at {clock(change.answered_at)}"
            yield Violation(rule="6.killed", at=latest, text=text, entries=(change, *run.entries))


def _superseded(story: Story, life: Life) -> Iterator[Violation]:
    """Processes of a life are gone soon after those of a later one begin, where the node can be told."""
    later = [other.began_at for other in story.lives_of(life.subject) if other.life > life.life]
    at = min(later, default=inf)
    if at == inf:
        return
    seconds = story.final.rules.kill_wait_seconds + story.final.rules.order_seconds
    for run in life.runs:
        latest = owed_on(story, at, seconds, run.began.node)
        if run.until > latest and story.final.read_at > latest:
            text = f"{_where(life, run)} were there until {_end(run)}, and a later life began at {clock(at)}"
            yield Violation(rule="6.killed", at=latest, text=text, entries=run.entries)


def _over(story: Story, life: Life) -> Iterator[Violation]:
    """Processes of a job that is over are gone, also on a node that had been given up and has come back."""
    reported = life.reported
    if reported is None or not reported.ended_at:
        return
    seconds = story.final.rules.kill_wait_seconds + story.final.rules.order_seconds
    for run in life.runs:
        latest = owed_on(story, story.latest(reported.ended_at), seconds, run.began.node)
        if run.until > latest and story.final.read_at > latest:
            there = f"{_where(life, run)} were there until {_end(run)}"
            text = f"{there}, and it was {reported.state} at {clock(reported.ended_at)}"
            yield Violation(rule="6.killed", at=latest, text=text, entries=run.entries)


def _step_ended(story: Story, operation: Operation) -> Iterator[Violation]:
    """A step that srun has ended is gone."""
    number = operation.wanted.fields.get("step") if isinstance(operation.wanted, Change) else None
    if number is None or operation.answered_at is None:
        return
    seconds = story.final.rules.kill_wait_seconds + story.final.rules.order_seconds
    for life in story.lives.values():
        if life.job_id != operation.job_id:
            continue
        for run in life.runs:
            if run.began.step_id != number or run.began.at > operation.called_at:
                continue
            latest = owed_on(story, operation.answered_at, seconds, run.began.node)
            if run.until > latest and story.final.read_at > latest:
                there = f"{_where(life, run)} were there until {_end(run)}"
                text = f"{there}, though srun has ended step {number} at {clock(operation.answered_at)}"
                yield Violation(rule="6.killed", at=latest, text=text, entries=(operation, *run.entries))


def _told_of_end(story: Story, operation: Operation) -> Iterator[Violation]:
    """Who waits for the end of a job, or of all tasks of an array, hears of it."""
    whole = [job for job in story.final.jobs if operation.job_id in (job.id, job.array_job_id)]
    if not whole or any(not job.state.ended or job.restart_count for job in whole):
        return
    ended_at = max(story.latest(job.ended_at) for job in whole)
    seconds = story.final.rules.order_seconds
    latest = due_on(story, max(ended_at, operation.called_at), seconds, frozenset({USERS_HOST}))
    if operation.answered_at is not None and operation.answered_at > latest:
        text = f"job {operation.job_id} had ended at {clock(ended_at)}, and who waited for that"
        text = f"{text} heard of it at {clock(operation.answered_at)}"
        yield Violation(rule="6.answer", at=latest, text=text, entries=(operation,))


# Suspension


def _suspended(story: Story, life: Life, change: Operation) -> Iterator[Violation]:
    """Processes of a suspended job stand still, until a request or the end of the job."""
    if change.kind != "suspend" or change.answered_at is None or story.final.rules.suspends:
        return
    for run in life.runs:
        latest = owed_on(story, change.answered_at, story.final.rules.order_seconds, run.began.node)
        if run.began.step_id == STEP_BATCH and not _may_go_on(story, life, change, latest):
            there = run.began.at < change.called_at and run.until > latest
            if there and not run.stopped_at(latest):
                text = f"{_where(life, run)} go on at {clock(latest)}, though it was suspended at"
                text = f"{text} {clock(change.answered_at)}"
                yield Violation(rule="6.suspended", at=latest, text=text, entries=(change, *run.entries))


def _may_go_on(story: Story, life: Life, change: Operation, latest: float) -> bool:
    """Whether the job may have been resumed or ended by then, or is not known to have lasted until then."""
    others = [other for other in story.changes(life.subject) if other is not change and other.kind in _MOVES]
    if any(other.called_at <= latest and _may_be_after(other, change) for other in others):
        return True
    if any(other.life > life.life for other in story.lives_of(life.subject)):
        return True
    reported = life.reported
    ended_at = story.earliest(reported.ended_at) if reported is not None and reported.ended_at else inf
    return min(ended_at, story.final.read_at) <= latest


def _may_be_after(other: Operation, change: Operation) -> bool:
    return other.answered_at is None or other.answered_at >= change.called_at


# Clients and machines


def _left(story: Story, number: int) -> Iterator[Left]:
    return (entry for entry in story.entries if isinstance(entry, Left) and number in entry.operations)


def _abandoned(story: Story) -> Iterator[Violation]:
    """An allocation ends when all its clients are gone."""
    number_of = {operation.id: operation for operation in story.operations}
    clients: dict[int, list[Operation]] = {}
    for operation in story.operations:
        if operation.kind in ("allocate", "step", "await"):
            clients.setdefault(operation.job_id, []).append(operation)
    gone: dict[int, float] = {}
    for entry in story.entries:
        if isinstance(entry, Left):
            gone |= dict.fromkeys(entry.operations, entry.at)
    seconds = _GRACE_SECONDS + story.final.rules.kill_wait_seconds + story.final.rules.order_seconds
    for job in story.final.jobs:
        submission = story.submissions.get(job.id)
        if submission is None or submission.kind not in SUBMISSIONS or submission.kind == "submit":
            continue
        mine = clients.get(job.id, [])
        if submission.id not in gone or any(operation.id not in gone for operation in mine):
            continue
        life = story.lives[job.id, job.restart_count]
        left = max(gone[operation.id] for operation in (submission, *mine))
        last = max((run.until for run in life.runs if run.began.step_id <= STEP_MAX), default=0.0)
        # Also where a step was to begin, and did not: the controller waits for that node's word, or for its end.
        nodes = nodes_of(life) | frozenset(job.allocation.names if job.allocation is not None else ())
        latest = due_on(story, max(left, last), seconds, nodes | {USERS_HOST})
        ended_at = story.earliest(job.ended_at) if job.state.ended else inf
        if min(ended_at, story.final.read_at) > latest:
            text = f"job {job.id} is there at {clock(latest)}, and its last client was gone at {clock(left)}"
            yield Violation(rule="6.abandoned", at=latest, text=text, entries=(number_of[submission.id],))


def _lost(story: Story) -> Iterator[Violation]:
    """A machine without power for long is shown as DOWN, or not responding."""
    outages = [entry for entry in story.entries if isinstance(entry, Injected) and entry.kind in _OUTAGES]
    for reading in story.entries:
        if not outages or not isinstance(reading, Reading) or reading.kind != "sinfo":
            continue
        states = {row[0]: row[1] for row in reading.rows}
        for outage in outages:
            names = states.get(outage.target)
            late = reading.called_at > _due_lost(story, outage) and reading.answered_at < outage.until
            if names is not None and late and "DOWN" not in names:
                since = f"without power since {clock(outage.at)}"
                text = f"{outage.target} is shown as {'+'.join(names)} at {clock(reading.called_at)}, {since}"
                yield Violation(rule="6.lost", at=reading.called_at, text=text, entries=(outage,))


#: Faults that take a machine's power for all the time that they last.
_OUTAGES = frozenset({"power loss", "long outage"})


def _due_lost(story: Story, outage: Injected) -> float:
    """When it must be shown: later if something happens to controllers. A resumed machine has all of its time again."""
    # (since, until, whether it is a resumption)
    moments = [
        (operation.called_at, operation.answered_at or operation.called_at, True)
        for operation in story.operations
        if operation.kind == "undrain"
        and outage.target in operation.wanted["nodes"]
        and operation.outcome is not Outcome.REFUSED
    ]
    for fault in story.faults:
        is_own = fault.since == outage.at and outage.target in fault.named
        is_elsewhere = concerns_nodes(story, fault) and outage.target not in fault.named
        if not is_own and not is_elsewhere:
            moments.append((fault.since, fault.until, False))
    due = outage.at + _LOST_SECONDS
    for since, until, is_resumed in sorted(moments):
        if until > outage.at and (is_resumed or since <= due):
            due = max(due, until + _LOST_SECONDS)
    return due


def _where(life: Life, run: Run) -> str:
    return f"processes of {life.label} (step {run.began.step_id}) on {run.began.node}"


def _end(run: Run) -> str:
    return "the end" if run.until == inf else clock(run.until)
