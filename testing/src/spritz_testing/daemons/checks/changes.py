"""Rule 1, second part: acknowledged changes of jobs are in force at the end.

Looks only at changes that no later or overlapping request, and no request of unknown outcome, can have undone. Orders
of requests that overlap are judged by rule 2 (`linearizable`).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from spritz.model.job.record import Hold
from spritz.model.states import JobState
from spritz_testing.daemons.checks.story import Story
from spritz_testing.daemons.checks.values import in_force, writes
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Outcome
from spritz_testing.daemons.wanted import Change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.job.record import Job
    from spritz_testing.daemons.history import Operation

#: Times are compared to the second.
_SECOND = 1.0

#: Fields that are read back in units of their own: times of the daemons' clock, lists that are met one by one.
_NOT_COMPARED = frozenset(
    {"array_limit", "begin_at", "deadline_at", "dependencies", "dependency_mode", "hold", "priority", "end_at"}
)

#: Requests that hold a job or let it go, or may do so by a field.
_HOLDING = frozenset({"hold", "release", "requeue", "update"})


def changes_in_force(story: Story) -> Iterator[Violation]:
    """Cancel, hold, release and update of every job that the controller still knows."""
    for job in story.final.jobs:
        if job.array is not None:
            continue  # the record of tasks that wait: requests may name some of them only
        yield from _cancelled(story, job)
        yield from _held(story, job)
        yield from _updated(story, job)


def _cancelled(story: Story, job: Job) -> Iterator[Violation]:
    changes = story.changes(story.subject(job.id))
    for cancel in changes:
        if cancel.kind != "cancel" or cancel.outcome is not Outcome.DONE or job.state.ended:
            continue
        if not any(change.kind == "requeue" and may_follow(change, cancel) for change in changes):
            yield _violation(story, job, cancel, f"it is {job.state.value}")


def _held(story: Story, job: Job) -> Iterator[Violation]:
    changes = [change for change in story.changes(story.subject(job.id)) if change.kind in _HOLDING]
    last = max(changes, key=lambda change: change.called_at, default=None)
    if last is None or last.outcome is not Outcome.DONE or job.state is not JobState.PENDING:
        return
    if any(may_follow(change, last) for change in changes if change is not last):
        return
    if last.kind == "hold" and job.hold is Hold.NONE:
        yield _violation(story, job, last, "it waits without a hold")
    wanted = story.wanted(job.id)
    # The controller itself holds a job whose reservation is over (reason ReservationDeleted).
    by_itself = job.hold is Hold.ADMIN and wanted is not None and bool(wanted.reservation)
    if last.kind == "release" and job.hold is not Hold.NONE and not job.restart_count and not by_itself:
        yield _violation(story, job, last, f"it is held by {job.hold.value}")


def _updated(story: Story, job: Job) -> Iterator[Violation]:
    subject, final = story.subject(job.id), story.final
    updates = [change for change in story.changes(subject) if change.kind == "update"]
    fields = {name for update in updates for name in _fields(update)}
    for name in sorted(fields - _NOT_COMPARED):
        shown = _shown(job, name)
        expected = in_force(writes(story, subject, name), final.read_at, final.read_at)
        last = next(update for update in reversed(updates) if name in _fields(update))
        if shown in expected or not _comparable(expected) or last.outcome is not Outcome.DONE:
            continue
        if name == "nice" and may_be_moved(story, last):
            continue
        if job.state.ended and story.earliest(story.virtual_time(job.ended_at)) <= (last.answered_at or inf) + _SECOND:
            continue  # an update of an array changes the tasks that have not ended
        yield _violation(story, job, last, f"{name} is {shown!r}, not {' or '.join(map(repr, expected))}")


def may_be_moved(story: Story, update: Operation) -> bool:
    """Whether `scontrol top` of another job may have changed its nice value since (scontrol(1) top)."""
    tops = (operation for operation in story.operations if operation.kind == "top")
    return any(top.outcome is not Outcome.REFUSED and may_follow(top, update) for top in tops)


def _shown(job: Job, name: str) -> Any:
    if name == "array_limit":
        return job.array_of.limit if job.array_of is not None else 0
    return getattr(job.spec, name, None)


def _fields(update: Operation) -> dict[str, Any]:
    return update.wanted.fields if isinstance(update.wanted, Change) else {}


def _comparable(values: list[Any]) -> bool:
    """None is what the site gives by itself, which the history does not know."""
    return bool(values) and all(isinstance(value, (str, int, float)) for value in values)


def may_follow(later: Operation, earlier: Operation) -> bool:
    """Whether a request that was not refused can have taken effect after an acknowledged one."""
    if later.outcome is Outcome.UNKNOWN or later.answered_at is None or earlier.answered_at is None:
        return True
    return later.answered_at >= earlier.called_at


def _violation(story: Story, job: Job, change: Operation, instead: str) -> Violation:
    asked = f"{change.kind} of job {job.id} was acknowledged at {clock(change.answered_at or 0.0)}"
    text = f"{asked}, but at the end {instead}"
    return Violation(rule="1.change", at=story.final.read_at, text=text, entries=(change,))
