"""Rule 3: array throttles, licences, and limits of accounts and QOS.

What counts at a moment is every life whose processes began before and which neither nodes nor daemons regard as ended:
the controller started each of them earlier, so it counted at least these. A life that is being killed counts for the
controller no more, though its processes are there, so its reported end is used where that is earlier. Stopped processes
are not counted. Limits are checked at each beginning, so lowering one below what runs is no violation.

Source: sbatch(1) --array, --licenses; sacctmgr(1) MaxJobs, MaxSubmitJobs, GrpTRES.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING

from spritz.notation import licenses as notation
from spritz_testing.daemons.checks.faults import due_by
from spritz_testing.daemons.checks.story import parts_of
from spritz_testing.daemons.checks.values import possible
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Outcome
from spritz_testing.daemons.wanted import SUBMISSIONS, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spritz_testing.daemons.checks.final import Limit
    from spritz_testing.daemons.checks.story import Life, Story, Subject
    from spritz_testing.daemons.history import Operation


def limits(story: Story) -> Iterator[Violation]:
    """At the beginning of each life, and at each submission."""
    for life, present in _beginnings(story):
        yield from _throttle(story, life, present)
        yield from _licenses(story, life, present)
        for limit in story.final.rules.limits:
            yield from _running(story, limit, life, present)
    for limit in story.final.rules.limits:
        if limit.submitted is not None:
            yield from _submitted(story, limit, limit.submitted)


def reached(story: Story) -> Counter[str]:
    """How often the history shows a limit in full use, by limit and what it bounds: one job more would be reported."""
    counts: Counter[str] = Counter()
    for life, present in _beginnings(story):
        for limit in story.final.rules.limits:
            for used, most, what, _ in _used(story, limit, life, present):
                counts[f"{limit.name} {what}"] += used == most
    for limit in story.final.rules.limits:
        if limit.submitted is not None:
            for count, _ in _accepted(story, limit):
                counts[f"{limit.name} submitted"] += count == limit.submitted
    return counts


def _beginnings(story: Story) -> Iterator[tuple[Life, list[Life]]]:
    """Each life that began, and those that are there then, itself among them, in the order of time."""
    lives = sorted((life for life in story.lives.values() if life.runs), key=lambda life: life.began_at)
    active: list[Life] = []
    for life in lives:
        at = life.began_at
        if counted_until(story, life) < at:
            continue  # it was ended before its launch arrived: it had started earlier, and counts no more
        active = [other for other in active if counted_until(story, other) > at]
        active.append(life)
        yield life, [other for other in active if other is life or not _stopped(other, at)]


def counted_until(story: Story, life: Life) -> float:
    """The earliest moment by which the controller may have ended this life."""
    reported = life.reported.ended_at if life.reported is not None else 0.0
    if life.reported is None and (life.job_id, life.life + 1) in story.lives:
        # Queued again, nobody tells when: its processes may have been there for long after that, or have begun after
        # that, from a launch that a fault held up.
        order_seconds = story.final.rules.order_seconds
        is_late = due_by(story, life.began_at - order_seconds, order_seconds, life) > life.began_at
        return -inf if is_late else life.began_at
    if life.reported is not None and life.reported.state == "PENDING":
        return life.ended_at
    return min(life.ended_at, story.earliest(reported) if reported else inf)


def _stopped(life: Life, at: float) -> bool:
    present = [run for run in life.runs if run.began.at <= at < run.until]
    return bool(present) and all(run.stopped_at(at) for run in present)


def _throttle(story: Story, life: Life, active: list[Life]) -> Iterator[Violation]:
    leader, task = life.subject
    wanted = story.wanted(leader)
    if task is None or wanted is None or not wanted.array_tasks:
        return
    tasks = [other for other in active if other.subject[0] == leader]
    since = min(other.began_at for other in tasks) - story.final.rules.order_seconds
    values = possible(story, (leader, None), "array_limit", since, life.began_at)
    most = max(value or inf for value in values)
    if len(tasks) > most:
        what = f"task {task} of array {leader} began at {clock(life.began_at)} as the {len(tasks)}th that runs"
        yield _violation("3.throttle", life, tasks, f"{what}; at most {int(most)} may")


def _licenses(story: Story, life: Life, active: list[Life]) -> Iterator[Violation]:
    for name in _needs(story, life):
        most = story.final.rules.licenses.get(name)
        users = [other for other in active if name in _needs(story, other)]
        used = sum(_needs(story, other)[name] for other in users)
        if most is not None and used > most:
            text = f"{life.label} began at {clock(life.began_at)}: {used} licences {name} are in use of {most}"
            yield _violation("3.licences", life, users, f"{text}, by {_listed(users)}")


def _needs(story: Story, life: Life) -> dict[str, int]:
    """Licences that it has for certain: none if it asks for alternatives, or has changed its request."""
    if life.subject[1] and not life.runs[0].began.array_job_id:
        return {}  # of a heterogeneous job the first component is counted
    texts = possible(story, life.subject, "licenses", 0.0, life.began_at)
    choices = notation.parse(texts[0]) if len(texts) == 1 and texts[0] else ()
    return choices[0] if len(choices) == 1 else {}


def _running(story: Story, limit: Limit, life: Life, active: list[Life]) -> Iterator[Violation]:
    for used, most, what, counted in _used(story, limit, life, active):
        if used > most:
            text = f"{life.label} began at {clock(life.began_at)}: {used} {what} run under {limit.name}, {most} may"
            yield _violation("3.limit", life, counted, f"{text}: {_listed(counted)}")


def _used(story: Story, limit: Limit, life: Life, active: list[Life]) -> Iterator[tuple[int, int, str, list[Life]]]:
    """(used, permitted, of what, by which lives) when the life begins, for what the limit bounds."""
    if not _in_limit(story, limit, life):
        return
    user = _uid(story, life)
    counted = [
        other
        for other in active
        if _in_limit(story, limit, other) and (not limit.per_user or _uid(story, other) == user)
    ]
    recent = life.began_at - story.final.rules.order_seconds
    for most, what in ((limit.jobs, "jobs"), (limit.cpus, "CPUs"), (limit.gpus, "GPUs"), (limit.nodes, "nodes")):
        if most is None or _precedes(story, limit, what, life):
            continue
        # One that is not bound may have started just after this one, though its processes began before.
        lives = [other for other in counted if other.began_at < recent or not _precedes(story, limit, what, other)]
        yield _amount(what, life, lives), most, what, lives


def _amount(what: str, life: Life, lives: list[Life]) -> int:
    """How much of it these lives have when the life begins."""
    began = [run.began for other in lives for run in other.runs if run.began.at <= life.began_at]
    if what == "CPUs":
        return len({(entry.node, entry.job_id, cpu) for entry in began for cpu in entry.job_cpus})
    if what == "GPUs":
        return len({(entry.node, entry.job_id, gres) for entry in began for gres in entry.gres if gres[0] == "gpu"})
    return len({entry.node for entry in began}) if what == "nodes" else len(lives)


def _precedes(story: Story, limit: Limit, what: str, life: Life) -> bool:
    """Whether the life may have a QOS whose own limit precedes this one."""
    preceding = limit.preceded.get(what, frozenset())
    return bool(preceding) and not preceding.isdisjoint(possible(story, life.subject, "qos", 0.0, life.began_at))


def _in_limit(story: Story, limit: Limit, life: Life) -> bool:
    """Whether the life counts for certain: the fields that select it were never changed to others."""
    accounts = possible(story, life.subject, "account", 0.0, life.began_at)
    qos = possible(story, life.subject, "qos", 0.0, life.began_at)
    return (
        bool(accounts)
        and (not limit.accounts or all(account in limit.accounts for account in accounts))
        and (not limit.qos or all(name == limit.qos for name in qos))
        and limit.uid in (None, _uid(story, life))
    )


def _uid(story: Story, life: Life) -> int:
    return story.submissions[life.subject[0]].uid


def _listed(lives: list[Life]) -> str:
    return ", ".join(other.label for other in lives)


def _violation(rule: str, life: Life, lives: Iterable[Life], text: str) -> Violation:
    return Violation(rule=rule, at=life.began_at, text=text, entries=tuple(other.runs[0].began for other in lives))


# -- limits on submission


def _submitted(story: Story, limit: Limit, most: int) -> Iterator[Violation]:
    for count, operation in _accepted(story, limit):
        if count > most:
            did = "moved" if operation.kind == "update" else "accepted"
            text = (
                f"job {operation.job_id} was {did} at {clock(operation.answered_at or 0.0)}: "
                f"{count} jobs wait or run under {limit.name}, {most} may"
            )
            at = operation.answered_at or operation.called_at
            yield Violation(rule="3.limit", at=at, text=text, entries=(operation,))


def _accepted(story: Story, limit: Limit) -> Iterator[tuple[int, Operation]]:
    """Submissions under the limit, each with the jobs that there are then: itself, and those that were acknowledged
    before the call and had certainly not ended at the answer.
    """
    accepted = [
        operation
        for operation in story.operations
        if operation.kind in SUBMISSIONS
        and operation.outcome is Outcome.DONE
        and isinstance(operation.wanted, Wanted)
        and _selects(limit, operation)
    ]
    bound = [one for one in accepted if one.wanted.qos not in limit.preceded.get("submitted", frozenset())]
    for operation in bound:
        others = [other for other in accepted if _before(other, operation)]
        if limit.per_user:
            others = [other for other in others if other.uid == operation.uid]
        live = sum(_live_parts(story, other, operation.answered_at or inf) for other in others)
        yield live + _size(operation.wanted), operation
    for operation, moved in _moved(story, limit):
        submission = story.submissions[operation.job_id]
        others = [other for other in accepted if _before(other, operation)]
        if limit.per_user:
            others = [other for other in others if other.uid == submission.uid]
        live = sum(_live_parts(story, other, operation.answered_at or inf) for other in others)
        yield live + moved, operation


def _moved(story: Story, limit: Limit) -> Iterator[tuple[Operation, int]]:
    """Updates by which a job's user brings it into the limit's QOS, with how many of its parts certainly live then."""
    for operation in story.operations:
        if operation.kind != "update" or operation.outcome is not Outcome.DONE or operation.answered_at is None:
            continue
        fields = operation.wanted.fields
        submission = story.submissions.get(operation.job_id)
        if not limit.qos or fields.get("qos") != limit.qos or operation.wanted.tasks or submission is None:
            continue
        wanted: Wanted = submission.wanted
        others = [change for change in story.changes((operation.job_id, None)) if change is not operation]
        if wanted.qos == limit.qos or operation.uid != submission.uid or any(_touches(other) for other in others):
            continue
        at = operation.answered_at
        parts = parts_of(operation.job_id, wanted)
        yield operation, sum(_live(story, part, at, besides=operation) for part in parts)


def _touches(change: Operation) -> bool:
    return change.kind == "requeue" or (change.kind == "update" and "qos" in change.wanted.fields)


def _selects(limit: Limit, operation: Operation) -> bool:
    wanted: Wanted = operation.wanted
    return (
        (not limit.accounts or wanted.account in limit.accounts)
        and (not limit.qos or wanted.qos == limit.qos)
        and limit.uid in (None, operation.uid)
    )


def _before(other: Operation, operation: Operation) -> bool:
    return other.answered_at is not None and other is not operation and other.answered_at < operation.called_at


def _size(wanted: Wanted) -> int:
    return len(wanted.array_tasks) or wanted.het_size or 1


def _live_parts(story: Story, submission: Operation, at: float) -> int:
    """Tasks or components that were submitted and not ended at `at`: cancelled ones may have ended."""
    return sum(_live(story, subject, at) for subject in parts_of(submission.job_id, submission.wanted))


def _live(story: Story, subject: Subject, at: float, besides: Operation | None = None) -> bool:
    changes = [change for change in story.changes(subject) if change is not besides]
    if any(change.called_at <= at and change.kind in ("cancel", "update") for change in changes):
        return False
    lives = story.lives_of(subject)
    if not lives or lives[-1].reported is None:
        return False
    was_over = any(life.reported is None or story.earliest(life.reported.ended_at) <= at for life in lives[:-1])
    if was_over and any(change.kind == "requeue" and (change.answered_at or inf) > at for change in changes):
        return False  # it may be queued again only later
    reported = lives[-1].reported.ended_at
    return not reported or story.earliest(reported) > at
