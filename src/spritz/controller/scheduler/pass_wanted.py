"""After which changes a pass may start jobs that could not start before. Pure.

A change too many costs a pass; one too few leaves a job waiting until the next. New jobs have a rule of their own
(`pacing.Submission`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.job.record import Hold
from spritz.model.reasons import CORE_REASONS
from spritz.model.states import JobState
from spritz.scheduling.view.nodes import looks_alike

if TYPE_CHECKING:
    from spritz.model.events import Changes
    from spritz.model.job.record import Job
    from spritz.model.node.record import Node
    from spritz.model.node.reservation import Reservation


def wants_pass(changes: Changes) -> bool:
    """Whether other jobs may start now: resources or limits allow more, or a waiting job asks for something else."""
    return (
        changes.layout is not None
        or bool(changes.policy)
        or changes.usage
        or any(_job_lets_start(*changed) for changed in changes.jobs)
        or any(_node_differs(*changed) for changed in changes.nodes)
        or any(_reservation_differs(*changed) for changed in changes.reservations)
    )


def _job_lets_start(before: Job | None, after: Job | None) -> bool:
    if before is None or after is None:
        return False
    if before.state is JobState.PENDING:
        if after.state is not JobState.PENDING:
            return after.state.ended  # jobs behind it move up, and dependencies are met
        return len(after.completing) < len(before.completing) or (after.hold is Hold.NONE and _asks_anew(before, after))
    if before.state is not after.state:
        return after.state is not JobState.RUNNING
    return (
        len(after.completing) < len(before.completing)
        or before.spec is not after.spec
        or before.time_limit_minutes != after.time_limit_minutes
    )


def _asks_anew(before: Job, after: Job) -> bool:
    """Whether a waiting job asks for something else, or stands elsewhere in the queue."""
    return (
        before.spec is not after.spec
        or before.hold is not after.hold
        or before.priority != after.priority
        or before.eligible_at != after.eligible_at
        or before.accrued_at != after.accrued_at
        or before.dependencies != after.dependencies
        or _throttle(before) != _throttle(after)
        # The core keeps it waiting no longer: another cluster of its federation has let it go, say.
        or (before.reason in CORE_REASONS and after.reason not in CORE_REASONS)
    )


def _throttle(job: Job) -> int:
    """How many tasks of its array may run at once; 0: any number."""
    array = job.array or job.array_of
    return array.limit if array is not None else 0


def _node_differs(before: Node | None, after: Node | None) -> bool:
    return before is None or after is None or not looks_alike(before, after)


def _reservation_differs(before: Reservation | None, after: Reservation | None) -> bool:
    return before is None or after is None or after != replace(before, used_at=after.used_at)
