"""What a field of a job may have been: its submission's value, and those of updates that may be in force.

An update that was acknowledged replaces all that were answered before its call. One whose outcome is unknown may take
effect at any time after its call, so it never replaces another and is never replaced.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz_testing.daemons.history import Outcome
from spritz_testing.daemons.wanted import Change

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz_testing.daemons.checks.story import Story, Subject
    from spritz_testing.daemons.history import Operation


class Write(Struct, kw_only=True):
    """A value set between `since` and `until` (inf: at any time after `since`, or never)."""

    value: Any
    since: float
    until: float


def writes(story: Story, subject: Subject, field: str) -> list[Write]:
    """The submission's value of the field, and those of updates, in the order of their calls."""
    wanted = story.wanted(subject[0])
    first = [] if wanted is None else [Write(value=getattr(wanted, field, None), since=-inf, until=-inf)]
    return first + [_write(change, field) for change in story.changes(subject) if _sets(change, field)]


def possible(story: Story, subject: Subject, field: str, since: float, until: float) -> list[Any]:
    """All values that may have been in force at some moment from `since` to `until`."""
    return in_force(writes(story, subject, field), since, until)


def in_force(candidates: Iterable[Write], since: float, until: float) -> list[Any]:
    """Values of those that may have been in force at some moment from `since` to `until`."""
    started = [write for write in candidates if write.since <= until]
    certain = [write for write in started if write.until <= since]
    return [
        write.value
        for write in started
        if not any(other.since > write.until for other in certain if other is not write)
    ]


def _sets(change: Operation, field: str) -> bool:
    return change.kind == "update" and isinstance(change.wanted, Change) and field in change.wanted.fields


def _write(change: Operation, field: str) -> Write:
    answered = change.answered_at if change.outcome is Outcome.DONE and change.answered_at is not None else inf
    return Write(value=change.wanted.fields[field], since=change.called_at, until=answered)
