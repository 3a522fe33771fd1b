"""Rules 3 and 6 for triggers: the program of each runs at most once, not before its event, and it does run.

Only the end of a job is an event whose time the history knows. A pull is lost if the controller dies between the note
that the program begins and its beginning, so a fault around the event excuses a program that did not run.

Source: strigger(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Fired, Outcome
from spritz_testing.daemons.wanted import Triggered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.checks.story import Story
    from spritz_testing.daemons.history import Operation

#: Seconds from the event, or from the request if that came later, in which the program begins: events are looked at
#: every few seconds (`run._pace`), and a fault this long before may still have its effects.
_PROMPT_SECONDS = 60.0

#: Requests after which the end of the job is not the one event of its trigger.
_ANEW = frozenset({"requeue"})


def triggers(story: Story) -> Iterator[Violation]:
    """Each trigger by the name that its program is told."""
    fired: dict[str, list[Fired]] = {}
    for entry in story.entries:
        if isinstance(entry, Fired):
            fired.setdefault(entry.name, []).append(entry)
    for operation in story.operations:
        if isinstance(operation.wanted, Triggered):
            yield from _judged(story, operation, operation.wanted, fired.get(operation.wanted.name, []))


def _judged(story: Story, operation: Operation, wanted: Triggered, fired: list[Fired]) -> Iterator[Violation]:
    name = f"the program of trigger {wanted.name} ({wanted.event})"
    if fired and operation.outcome is Outcome.REFUSED:
        yield Violation(rule="3.trigger", at=fired[0].at, text=f"{name} ran, but the trigger was refused")
    if len(fired) > 1:
        times = ", ".join(clock(one.at) for one in fired)
        yield Violation(rule="3.trigger", at=fired[1].at, text=f"{name} ran {len(fired)} times: {times}")
    if wanted.event != "fini":
        return
    ended_at = _ended_at(story, operation.job_id)
    if ended_at is None:
        return
    # By the controller's clock, which may be set in the meantime.
    due = story.earliest(ended_at + wanted.offset_seconds)
    if fired and fired[0].at < due - 1.0:
        text = f"{name} ran {due - fired[0].at:.3f} seconds before it was due, at the end of job {operation.job_id}"
        yield Violation(rule="3.trigger", at=fired[0].at, text=text)
    until = story.latest(ended_at + wanted.offset_seconds) + _PROMPT_SECONDS
    since = story.earliest(ended_at) - _PROMPT_SECONDS
    if fired or operation.outcome is not Outcome.DONE or until > story.final.read_at:
        return
    recovery = story.final.rules.recovery_seconds
    if not any(fault.since < until and fault.until + recovery > since for fault in story.faults):
        yield Violation(rule="6.trigger", at=until, text=f"{name} never ran after the end of job {operation.job_id}")


def _ended_at(story: Story, job_id: int) -> float | None:
    """When the job ended, by the controller's clock, if it ended once and is one record."""
    subject = story.subject(job_id)
    wanted = story.wanted(job_id)
    lives = story.lives_of(subject)
    if wanted is None or wanted.array_tasks or wanted.het_size or not lives or lives[-1].reported is None:
        return None
    if any(change.kind in _ANEW for change in story.changes(subject)) or not lives[-1].reported.ended_at:
        return None
    return lives[-1].reported.ended_at
