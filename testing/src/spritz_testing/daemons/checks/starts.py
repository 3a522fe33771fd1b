"""Rule 3, first part: what begins on nodes begins once, and only after it may begin.

A controller decides a start before its processes begin, so processes may begin just after a cancel or a hold was
acknowledged. That is accepted only where controller or accounting report a start before the acknowledgement, and only
for `order_seconds` after a cancel (longer if a fault delayed the order).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz.model.ids import STEP_BATCH
from spritz_testing.daemons.checks.changes import may_follow
from spritz_testing.daemons.checks.faults import due_by
from spritz_testing.daemons.checks.values import possible
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Began, Ended, Outcome
from spritz_testing.daemons.wanted import Change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.checks.story import Life, Run, Story
    from spritz_testing.daemons.history import Operation

#: Requests after which a node that was drained may serve again.
_RESUMES = frozenset({"undrain", "set_node", "node_add", "node_delete"})


def starts(story: Story) -> Iterator[Violation]:
    """Every beginning on a node."""
    yield from _once(story)
    yield from _calls(story)
    yield from _ends_without_beginning(story)
    for life in story.lives.values():
        if not life.runs:
            continue
        if story.wanted(life.job_id) is None:
            yield _violation("3.unknown", life, "but no submission was answered with that job")
            continue
        yield from _after_next_life(story, life)
        yield from _after_cancel(story, life)
        yield from _while_held(story, life)
        yield from _before_begin_time(story, life)
        yield from _on_drained_node(story, life)


def _once(story: Story) -> Iterator[Violation]:
    """A step begins once on a node, and a script on one node alone."""
    seen: dict[tuple[object, ...], Began] = {}
    for began in story.entries:
        if not isinstance(began, Began):
            continue
        where = began.node if began.step_id != STEP_BATCH else ""
        key = (where, began.job_id, began.restart_count, began.step_id)
        first = seen.setdefault(key, began)
        if first is not began:
            text = (
                f"{_step(began)} began on {first.node} at {clock(first.at)}, and on {began.node} at {clock(began.at)}"
            )
            yield Violation(rule="3.once", at=began.at, text=text, entries=(first, began))


def _calls(story: Story) -> Iterator[Violation]:
    """A call of srun makes one step, however often it asks for it, and is told of that."""
    seen: dict[str, Began] = {}
    for began in story.entries:
        if isinstance(began, Began) and began.call:
            first = seen.setdefault(began.call, began)
            if (first.job_id, first.restart_count, first.step_id) != (began.job_id, began.restart_count, began.step_id):
                text = (
                    f"{_step(began)} began on {began.node} at {clock(began.at)}; the same srun has had {_step(first)}"
                )
                yield Violation(rule="3.once", at=began.at, text=text.rstrip(","), entries=(first, began))
    for operation in story.operations:
        if operation.kind != "step" or operation.outcome is not Outcome.DONE or operation.answered_at is None:
            continue
        its = seen.get(getattr(operation.wanted, "call", ""))
        if its is not None and its.step_id != operation.answer[0]:
            text = f"an srun was told of step {operation.answer[0]} at {clock(operation.answered_at)}; it has had"
            text = f"{text} {_step(its)}".rstrip(",")
            yield Violation(rule="3.once", at=operation.answered_at, text=text, entries=(its, operation))


def _step(began: Began) -> str:
    step = "the script" if began.step_id == STEP_BATCH else f"step {began.step_id}"
    return f"{step} of job {began.job_id}, restart {began.restart_count},"


def _ends_without_beginning(story: Story) -> Iterator[Violation]:
    began: set[tuple[str, int, int, int]] = set()
    for entry in story.entries:
        if isinstance(entry, Began):
            began.add((entry.node, entry.job_id, entry.restart_count, entry.step_id))
            continue
        if isinstance(entry, Ended) and (entry.node, entry.job_id, entry.restart_count, entry.step_id) not in began:
            text = f"job {entry.job_id} ended on {entry.node} at {clock(entry.at)}, where it had not begun"
            yield Violation(rule="3.once", at=entry.at, text=text, entries=(entry,))


def _after_next_life(story: Story, life: Life) -> Iterator[Violation]:
    """An order for an earlier life reaches a node only as long as messages may be on their way."""
    later = [other.began_at for other in story.lives_of(life.subject) if other.life > life.life]
    limit = due_by(story, min(later), story.final.rules.order_seconds, life) if later else inf
    for run in life.runs:
        if run.began.at > limit:
            text = f"but a later life of it had begun at {clock(min(later))}"
            yield _violation("3.life", life, text, run)


def _after_cancel(story: Story, life: Life) -> Iterator[Violation]:
    changes = story.changes(life.subject)
    requeues = [change for change in changes if change.kind == "requeue"]
    for cancel in changes:
        answered = _acknowledged(cancel, "cancel")
        if answered is None:
            continue
        again = [change for change in requeues if may_follow(change, cancel)]
        on_its_way = started_before(story, life, answered)
        latest = due_by(story, answered, story.final.rules.order_seconds, life) if on_its_way else answered
        for run in life.runs:
            if run.began.at > latest and not any(change.called_at <= run.began.at for change in again):
                text = f"but its cancel was acknowledged at {clock(answered)}"
                yield _violation("3.cancelled", life, text, run, cancel)
                break


def _while_held(story: Story, life: Life) -> Iterator[Violation]:
    changes = story.changes(life.subject)
    wanted = story.wanted(life.job_id)
    submission = story.submissions[life.subject[0]]
    first = life.began_at
    holds = [change for change in changes if _acknowledged(change, "hold") is not None]
    if wanted is not None and wanted.hold:
        holds.insert(0, submission)
    for hold in holds:
        answered = hold.answered_at if hold.answered_at is not None else hold.called_at
        if first <= answered or started_before(story, life, answered) or _was_over(story, life, hold):
            continue
        lifted = (change for change in changes if may_release(change) and may_follow(change, hold))
        if not any(change.called_at <= first for change in lifted):
            text = f"but its hold was acknowledged at {clock(answered)}, and no release was called since"
            yield _violation("3.held", life, text, None, hold)
            return


def _was_over(story: Story, life: Life, hold: Operation) -> bool:
    """Whether the life is that of an array task which may have been over when the array was held, and was queued again
    by a user after that.
    """
    if life.subject[1] is None or not any(
        change.kind == "requeue" and change.called_at <= life.began_at and may_follow(change, hold)
        for change in story.changes(life.subject)
    ):
        return False
    earlier = [other for other in story.lives_of(life.subject) if other.life < life.life and other.runs]
    return life.life > 0 and all(other.ended_at <= (hold.answered_at or inf) for other in earlier)


def may_release(change: Operation) -> bool:
    """Whether the request lifts a hold: release, or an update that does so."""
    fields = change.wanted.fields if isinstance(change.wanted, Change) else {}
    return change.kind == "release" or (change.kind == "update" and ("hold" in fields or "priority" in fields))


def _acknowledged(change: Operation, kind: str) -> float | None:
    return change.answered_at if change.kind == kind and change.outcome is Outcome.DONE else None


def started_before(story: Story, life: Life, at: float) -> bool:
    """Whether the life had started by then: by processes, or by what controller or accounting report."""
    if life.began_at <= at:
        return True
    if life.reported is None:
        # It was queued again or forgotten, and without accounting nothing tells when it had started.
        submission = story.submissions.get(life.subject[0])
        earliest = submission.called_at if submission is not None else -inf
        return earliest <= at and life.began_at <= due_by(story, at, story.final.rules.order_seconds, life)
    reported = life.reported.started_at
    return bool(reported) and reported <= at + story.final.clock_error_seconds


def _before_begin_time(story: Story, life: Life) -> Iterator[Violation]:
    first = life.began_at
    since = first - story.final.rules.order_seconds
    if life.reported is not None and life.reported.started_at:
        since = max(since, life.reported.started_at - story.final.clock_error_seconds)
    times = [float(value or 0.0) for value in possible(story, life.subject, "begin_at", since, first)]
    earliest = min(times, default=0.0)
    if first < earliest - story.final.clock_error_seconds:
        yield _violation("3.begin", life, f"but it may not start before {clock(earliest)}")


def _on_drained_node(story: Story, life: Life) -> Iterator[Violation]:
    """A node takes no new job from the acknowledgement of its drain on, until it is resumed."""
    for drain in story.operations:
        answered = _acknowledged(drain, "drain")
        if answered is None or life.began_at <= answered or started_before(story, life, answered):
            continue
        for run in life.runs:
            if run.began.node in drain.wanted["nodes"] and not _may_serve(story, run, drain):
                yield _violation("3.drained", life, f"whose drain was acknowledged at {clock(answered)}", run, drain)
                return


def _may_serve(story: Story, run: Run, drain: Operation) -> bool:
    """Whether the node may have been resumed, or made anew, between its drain and the beginning."""
    return any(
        operation.called_at <= run.began.at and may_follow(operation, drain)
        for operation in story.operations
        if operation.kind in _RESUMES and operation.outcome is not Outcome.REFUSED
        if run.began.node in _nodes_of(operation)
    )


def _nodes_of(operation: Operation) -> tuple[str, ...]:
    return tuple(operation.wanted["nodes"]) if isinstance(operation.wanted, dict) else (operation.wanted,)


def _violation(
    rule: str, life: Life, text: str, run: Run | None = None, operation: Operation | None = None
) -> Violation:
    began = run.began if run is not None else min((run.began for run in life.runs), key=lambda entry: entry.at)
    return Violation(
        rule=rule,
        at=began.at,
        text=f"{life.label} began on {began.node} at {clock(began.at)}, {text}",
        entries=(began,) if operation is None else (operation, began),
    )
