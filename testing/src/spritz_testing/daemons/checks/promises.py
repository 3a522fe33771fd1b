"""Rule 7: planned starts are kept.

A reading of kind `expected_starts` lists blocked jobs with their planned starts, each of which is a promise. "Planned
starts are kept from cycle to cycle, and move only earlier, with four exceptions: a job that outranks it is submitted, a
node fails, a running job's limit is raised, or the controller restarts."

Read more widely here, so that nothing correct is reported:

- a job outranks it too if it is released, queued again, moved up, or becomes eligible only after the promise;
- a node that is drained, deleted or reserved has failed for this purpose;
- a job that is suspended runs that much longer, which raises its limit;
- a start that was promised while a full pass was under way may be as late as that took: the jobs before it start when
  its plan is carried out;
- a job that outranks it, and itself begins (or is promised to) earlier than it was, may have taken its place: resources
  were freed early, and no job waits for those behind it;
- it may be late by what jobs were that ran into their time limits, or nearly so, and left late;
- a new configuration may change everything that a restart may.

Source: docs/explanation/scheduling.md, Backfill and planned starts.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz_testing.daemons.checks.values import possible
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Acted, Outcome, Reading
from spritz_testing.daemons.wanted import SUBMISSIONS, Change, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.checks.story import Life, Story, Subject
    from spritz_testing.daemons.history import Operation

#: Requests after which planned starts may move: what they do is in the list above.
_EXCUSES = frozenset(
    {"release", "requeue", "top", "drain", "node_delete", "reserve", "suspend", "resume", "take_over", "reconfigure"}
)
_RAISES = frozenset({"end_at", "qos", "account", "hold"})

#: Priorities that administrators set are below all that the controller gives (priority/basic), or far above.
_HIGH_PRIORITY = 1_000_000

#: Minutes of a job that names none, in the simulated partitions.
_DEFAULT_MINUTES = 60


class Promise(Struct, kw_only=True):
    """A planned start that a user was shown."""

    reading: Reading
    subject: Subject
    job_id: int
    start_at: float


def promises(story: Story) -> Iterator[Violation]:
    """What was put off, and the first promise of each job that was not kept, without an exception."""
    yield from _put_off(story)
    broken: set[Subject] = set()
    for promise in _promises(story):
        if promise.subject in broken:
            continue
        started_at = _started_at(story, promise)
        latest = promise.start_at + _slack(story, promise)
        if started_at <= latest or _excused(story, promise, latest):
            continue
        broken.add(promise.subject)
        began = f"began at {clock(started_at)}" if started_at < story.final.read_at else "did not begin"
        text = (
            f"job {promise.job_id} was promised at {clock(promise.reading.answered_at)} to start by "
            f"{clock(promise.start_at)}, and {began}; no job outranks it since, no node failed, no limit was raised, "
            "and no controller restarted"
        )
        yield Violation(rule="7.promise", at=promise.start_at, text=text, entries=(promise.reading,))


def _slack(story: Story, promise: Promise) -> float:
    """How much later it may be: as long as it takes to clear the nodes and to notice that; once more for each job that
    did not leave in time.
    """
    rules = story.final.rules
    late = rules.kill_wait_seconds + rules.order_seconds + rules.pass_seconds
    overruns = _overruns(story, promise.reading.called_at, promise.start_at + late)
    return late * (1 + overruns) + story.final.clock_error_seconds


def _overruns(story: Story, since: float, until: float) -> int:
    """How many jobs may have held their nodes beyond their time limits: they ran into these and had to be killed, or
    ended just before, and their nodes were cleared after. Each makes those behind it as much later.
    """
    return sum(
        since <= life.ended_at <= until
        and life.ended_at + story.final.rules.order_seconds > life.began_at + 60 * _minutes(story, life)
        for life in story.lives.values()
    )


def _minutes(story: Story, life: Life) -> float:
    """The longest time limit that it can have had."""
    values = possible(story, life.subject, "time_limit_minutes", 0.0, life.ended_at)
    return max((_DEFAULT_MINUTES if value is None else value for value in values), default=inf)


def _put_off(story: Story) -> Iterator[Violation]:
    """Planned starts that a later reading shows to have moved."""
    before: dict[Subject, Promise] = {}
    for promise in _promises(story):
        first = before.setdefault(promise.subject, promise)
        latest = first.start_at + _slack(story, first)
        if promise.start_at <= latest:
            if promise.start_at <= first.start_at:
                before[promise.subject] = promise
            continue
        if _started_at(story, first) <= promise.reading.answered_at:
            before[promise.subject] = promise  # a task of the array has used it up
            continue
        before[promise.subject] = promise
        if not _excused(story, first, promise.reading.answered_at):
            text = (
                f"job {promise.job_id} was promised at {clock(first.reading.answered_at)} to start by "
                f"{clock(first.start_at)}, and at {clock(promise.reading.answered_at)} by {clock(promise.start_at)}; "
                "no job outranks it since, no node failed, no limit was raised, and no controller restarted"
            )
            entries = first.reading, promise.reading
            yield Violation(rule="7.promise", at=promise.reading.answered_at, text=text, entries=entries)


def _promises(story: Story) -> Iterator[Promise]:
    for reading in story.entries:
        if not isinstance(reading, Reading) or reading.kind != "expected_starts" or not reading.rows:
            continue
        for job_id, start_at, *_ in reading.rows:
            # One that is late already is shown with the present time.
            if start_at > reading.answered_at and story.wanted(job_id) is not None:
                subject = story.subject(job_id)
                yield Promise(reading=reading, subject=subject, job_id=job_id, start_at=start_at)


def _started_at(story: Story, promise: Promise) -> float:
    """Its first beginning after the promise, else the end of the run. An array keeps it with any of its tasks, and the
    components of a heterogeneous job start together: the script runs in the first of them only.
    """
    leader, index = promise.subject
    wanted = story.wanted(promise.job_id)
    # The number of an array is in the end that of its last task.
    is_whole = index is None or promise.job_id == leader or bool(wanted is not None and wanted.het_size)
    lives = story.lives_of_whole(leader) if is_whole else story.lives_of(promise.subject)
    # An array shows the start that a task has just used up, until the next full pass.
    stale = story.final.rules.plan_seconds if wanted is not None and wanted.array_tasks else 0.0
    began = [life.began_at for life in lives if promise.reading.called_at - stale <= life.began_at < inf]
    return min(began, default=story.final.read_at)


def _excused(story: Story, promise: Promise, until: float) -> bool:
    since = promise.reading.called_at - story.final.rules.plan_seconds
    between = [operation for operation in story.operations if _in_force(operation, since, until)]
    return (
        any(_moves(story, promise, operation) for operation in between)
        or _becomes_eligible(story, promise, since, until)
        or _moves_up(story, promise, until)
        or _fails(story, since, until)
        or (story.final.rules.suspends and _suspends(story, since, until))
        or _controllers(story, since) != _controllers(story, until)
    )


def _in_force(operation: Operation, since: float, until: float) -> bool:
    """Whether it may have taken effect between these moments."""
    if operation.outcome is Outcome.REFUSED or operation.called_at > until:
        return False
    return operation.outcome is Outcome.UNKNOWN or operation.answered_at is None or operation.answered_at >= since


def _moves(story: Story, promise: Promise, operation: Operation) -> bool:
    if operation.kind in SUBMISSIONS:
        new = (
            isinstance(operation.wanted, Wanted)
            and operation.called_at >= promise.reading.called_at - story.final.rules.plan_seconds
        )
        return new and outranks(story, operation, promise.subject)
    if operation.job_id and story.subject(operation.job_id)[0] == promise.subject[0]:
        return operation.kind != "signal"
    if operation.kind == "update" and isinstance(operation.wanted, Change):
        return _raises(story, promise, operation, operation.wanted.fields)
    return operation.kind in _EXCUSES


def _raises(story: Story, promise: Promise, update: Operation, fields: dict[str, Any]) -> bool:
    """Whether a job may come before others by the update, or run for longer."""
    if not _RAISES.isdisjoint(fields) or (fields.get("priority") or 0) > _HIGH_PRIORITY:
        return True
    subject = story.subject(update.job_id)
    its, ours = story.wanted(subject[0]), story.wanted(promise.job_id)
    if "partitions" in fields and (its is None or ours is None or its.tier < ours.tier):
        return True
    nice = [value or 0 for value in possible(story, subject, "nice", 0.0, update.called_at)]
    minutes = [
        _DEFAULT_MINUTES if value is None else value
        for value in possible(story, subject, "time_limit_minutes", 0.0, update.called_at)
    ]
    return (fields.get("nice") is not None and fields["nice"] < max(nice, default=inf)) or (
        fields.get("time_limit_minutes") is not None and fields["time_limit_minutes"] > min(minutes, default=0)
    )


def outranks(story: Story, other: Operation, subject: Subject) -> bool:
    """Whether the other submission may be before the subject in the queue."""
    promised = story.submissions[subject[0]]
    ours, its = promised.wanted, other.wanted
    if its.tier != ours.tier:
        return bool(its.tier > ours.tier)
    if its.priority is not None and ours.priority is not None:
        return bool(its.priority > ours.priority)
    if its.priority is not None or ours.priority is not None or not story.final.rules.later_is_lower:
        return True
    if other.called_at < (promised.answered_at or inf) or _may_be_moved(story, {0, promised.uid, other.uid}):
        return True
    lowest = min(_nice(story, story.subject(other.job_id))) if other.job_id else its.nice
    return lowest < max(_nice(story, subject))


def _may_be_moved(story: Story, users: set[int]) -> bool:
    """Whether `scontrol top`, asked by one of these, may have changed nice values (scontrol(1) top)."""
    return any(
        operation.kind == "top" and operation.outcome is not Outcome.REFUSED and operation.uid in users
        for operation in story.operations
    )


def _nice(story: Story, subject: Subject) -> list[int]:
    """All values that it has had."""
    return [value or 0 for value in possible(story, subject, "nice", 0.0, inf)]


def _becomes_eligible(story: Story, promise: Promise, since: float, until: float) -> bool:
    """Whether a job began that outranks it, and may have become eligible only after the promise; or before, but after
    the pass that made it, whose plan stays as it is until its time has passed.
    """
    for life in story.lives.values():
        submission = story.submissions.get(life.subject[0])
        again = bool(life.life) and life.began_at <= since and life.ended_at > promise.start_at
        if submission is None or not (again or since < life.began_at <= until):
            continue
        if life.subject[0] == promise.subject[0]:
            continue
        wanted: Wanted = submission.wanted
        late = wanted.begin_at > since or wanted.dependencies or wanted.array_limit or wanted.licenses or life.life
        if (late or wanted.reservation) and outranks(story, submission, promise.subject):
            return True
    return False


def _moves_up(story: Story, promise: Promise, until: float) -> bool:
    """Whether a job that outranks it begins earlier than it was to."""
    called_at = promise.reading.called_at
    outranking = {
        leader
        for leader, submission in story.submissions.items()
        if leader != promise.subject[0] and outranks(story, submission, promise.subject)
    }
    earliest: dict[int, float] = {}
    for life in story.lives.values():
        if life.subject[0] in outranking and called_at < life.began_at <= until:
            earliest[life.job_id] = min(earliest.get(life.job_id, inf), life.began_at)
    for reading in story.entries:
        if (
            isinstance(reading, Reading)
            and reading.kind == "expected_starts"
            and called_at < reading.called_at <= until
        ):
            for job_id, start_at, *_ in reading.rows or ():
                earliest[job_id] = min(earliest.get(job_id, inf), start_at)
    return any(
        earliest.get(job_id, inf) < start_at - 1.0 and story.subject(job_id)[0] in outranking
        for job_id, start_at, *_ in promise.reading.rows
    )


def _suspends(story: Story, since: float, until: float) -> bool:
    """Whether a job did not run for a while, which takes as much longer."""
    stops = (stop for life in story.lives.values() for run in life.runs for stop in run.stops)
    return any(stopped <= until and continued >= since for stopped, continued in stops)


def _fails(story: Story, since: float, until: float) -> bool:
    """Whether a fault concerned a node or a controller, or all clocks: then jobs are at their time limits at once."""
    names = {shape.name for shape in story.final.rules.nodes} | story.final.rules.controllers
    return any(
        fault.since <= until and fault.until >= since and (fault.named & names or fault.kind == "daylight saving")
        for fault in story.faults
    )


def _controllers(story: Story, at: float) -> tuple[str, int, int] | None:
    """The controller process that acted last by then."""
    last = None
    for entry in story.entries:
        if isinstance(entry, Acted) and entry.at <= at:
            last = entry.host, entry.pid, entry.term
    return last
