"""Rule 3: who may use the nodes of a reservation, and when. Reservations of whole nodes only.

Those of the configuration are known from the beginning; those of users from the answer to their request on. Changes
and deletions of a reservation end what is known of it.

Source: scontrol(1) RESERVATIONS.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz_testing.daemons.checks.starts import started_before
from spritz_testing.daemons.checks.values import possible
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Outcome
from spritz_testing.daemons.wanted import Reserved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.checks.story import Life, Run, Story


def reservations(story: Story) -> Iterator[Violation]:
    """Every beginning, against every reservation."""
    known = _known(story)
    for life in story.lives.values():
        if story.wanted(life.job_id) is None:
            continue
        for run in life.runs:
            for since, reserved in known:
                if run.began.at < _deleted_at(story, reserved.name):
                    yield from _check(story, life, run, reserved, since)


def _deleted_at(story: Story, name: str) -> float:
    """When somebody may have deleted it first; inf: nobody has."""
    deletions = (
        operation.called_at
        for operation in story.operations
        if operation.kind == "unreserve" and operation.wanted == name and operation.outcome is not Outcome.REFUSED
    )
    return min(deletions, default=inf)


def _known(story: Story) -> list[tuple[float, Reserved]]:
    """Reservations, and since when they are known for certain."""
    known = [(0.0, reserved) for reserved in story.final.rules.reservations]
    for operation in story.operations:
        reserved = operation.wanted
        if operation.kind == "reserve" and operation.outcome is Outcome.DONE and isinstance(reserved, Reserved):
            known.append((operation.answered_at or operation.called_at, reserved))
    names = [reserved.name for _since, reserved in known]
    return [(since, reserved) for since, reserved in known if names.count(reserved.name) == 1]


def _check(story: Story, life: Life, run: Run, reserved: Reserved, since: float) -> Iterator[Violation]:
    began, error = run.began, story.final.clock_error_seconds
    names = possible(story, life.subject, "reservation", 0.0, began.at)
    inside = reserved.start_at + error <= began.at < reserved.end_at - error
    if names == [reserved.name]:
        if not _admits(story, life, reserved):
            yield _violation(run, reserved, "but its user or account may not use it")
        early_or_late = not reserved.start_at - error <= began.at <= reserved.end_at + error
        if not reserved.flexible and (early_or_late or began.node not in reserved.nodes):
            yield _violation(run, reserved, f"which it names, but {_extent(reserved)}")
        return
    if reserved.name in names or began.node not in reserved.nodes or began.at < since:
        return
    if inside and not _was_there(story, life, run, reserved, since):
        yield _violation(run, reserved, f"which it does not name: {_extent(reserved)}")
    # A clock that was ahead may have shown its end already.
    is_ahead = began.at < min(reserved.start_at, story.earliest(reserved.end_at))
    if not inside and is_ahead and not _was_there(story, life, run, reserved, since):
        yield from _into(story, life, run, reserved)


def _was_there(story: Story, life: Life, run: Run, reserved: Reserved, since: float) -> bool:
    """Whether its job may have started there before the reservation was known: it began late, or is one more step."""
    latest = since + story.final.rules.order_seconds
    first = min(other.began.at for other in life.runs if other.began.node == run.began.node)
    on_its_way = since > 0.0 and run.began.at <= latest and started_before(story, life, since)
    return (first < since or on_its_way) or (reserved.ignore_jobs and first < reserved.start_at)


def _into(story: Story, life: Life, run: Run, reserved: Reserved) -> Iterator[Violation]:
    """A job that starts before a reservation must end before it, by its time limit."""
    limits = possible(story, life.subject, "time_limit_minutes", 0.0, run.began.at)
    minutes = min((value for value in limits if value is not None), default=None)
    if minutes is None or len(limits) != 1:
        return
    wanted = story.wanted(life.job_id)
    if wanted is not None and wanted.time_min_minutes:
        # Its limit may have been shortened to end before the reservation; that one is not in the history.
        minutes = min(minutes, wanted.time_min_minutes)
    slack = story.final.clock_error_seconds + story.final.rules.order_seconds
    # A launch may have been held up for long: its time runs from the controller's decision on.
    reported = life.reported.started_at if life.reported is not None else 0.0
    started_at = min(run.began.at, reported) if reported else run.began.at
    if run.began.at - life.began_at <= slack and started_at - slack + minutes * 60 > reserved.start_at:
        limit = f"its limit of {minutes} minutes reaches into it: {_extent(reserved)}"
        yield _violation(run, reserved, f"which it does not name, and {limit}")


def _admits(story: Story, life: Life, reserved: Reserved) -> bool:
    uid = story.submissions[life.subject[0]].uid
    accounts = possible(story, life.subject, "account", 0.0, life.began_at)
    return (not reserved.uids or uid in reserved.uids) and (
        not reserved.accounts or any(account in reserved.accounts for account in accounts)
    )


def _extent(reserved: Reserved) -> str:
    nodes = ",".join(sorted(reserved.nodes))
    return f"{nodes} from {clock(reserved.start_at)} to {clock(reserved.end_at)}"


def _violation(run: Run, reserved: Reserved, text: str) -> Violation:
    began = run.began
    return Violation(
        rule="3.reservation",
        at=began.at,
        text=f"job {began.job_id} began on {began.node} at {clock(began.at)} in reservation {reserved.name}, {text}",
        entries=(began,),
    )
