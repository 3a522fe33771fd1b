"""Rule 2: requests and readings of each job have an order that explains all answers.

Histories are cut by subject: a job, a task of an array, a component of a heterogeneous job. A request that names an
array is checked with each of its tasks. That is necessary for the whole to be linearizable, and not sufficient: an
order between two tasks is not seen. Rows of the tasks of an array that have no number of their own are not used.
"""

from __future__ import annotations

from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.job.record import Hold
from spritz_testing.daemons.checks.changes import may_be_moved
from spritz_testing.daemons.checks.consistency import job_model
from spritz_testing.daemons.checks.consistency.job_model import (
    ACTIVE,
    AGAIN,
    CANCELLED,
    COMPLETED,
    OTHER,
    START,
    Permits,
    Phase,
    Request,
    Seen,
    State,
)
from spritz_testing.daemons.checks.consistency.observed import Observed, end_of, observed_by_row, observed_record
from spritz_testing.daemons.checks.consistency.search import Action, Search, Verdict
from spritz_testing.daemons.checks.story import parts_of
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Operation, Outcome, Reading
from spritz_testing.daemons.wanted import Change, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.model.job.record import Job
    from spritz_testing.daemons.checks.story import Life, Story, Subject

Shown = tuple[Reading, Observed]

#: What a listing of all jobs says of a job that is not in it.
_ABSENT = Observed(phases=frozenset({Phase.ABSENT, Phase.ENDED}))

#: Most applications of a request to a state for one subject. About a second.
BUDGET = 100_000


class Linearizability(Struct, kw_only=True):
    """What came of it: subjects checked, those that the budget did not suffice for, and applications of requests."""

    violations: list[Violation] = []
    checked: int = 0
    undecided: list[Subject] = []
    work: int = 0


def linearizability(story: Story, budget: int = BUDGET) -> Linearizability:
    """Check all subjects. A subject that the budget does not suffice for is a violation of its own kind."""
    result = Linearizability(violations=[], undecided=[])
    readings = _readings(story)
    for subject in _all_subjects(story):
        result.checked += 1
        verdict = _search(story, subject, readings.get(subject, []), budget)
        result.work += verdict.work
        if verdict.undecided:
            result.undecided.append(subject)
            text = f"{name_of(subject)}: {budget} trials do not suffice to decide whether its requests have an order"
            result.violations.append(Violation(rule="2.undecided", at=story.final.read_at, text=text))
        elif verdict.failed is not None:
            result.violations.append(_violation(story, subject, verdict))
    return result


def name_of(subject: Subject) -> str:
    """The subject in texts: `job 12`, `job 12, task 3`."""
    leader, index = subject
    return f"job {leader}" if index is None else f"job {leader}, part {index}"


def _all_subjects(story: Story) -> list[Subject]:
    subjects: dict[Subject, None] = {}
    for leader, submission in story.submissions.items():
        subjects |= dict.fromkeys(parts_of(leader, submission.wanted))
    return list(subjects)


def _search(story: Story, subject: Subject, readings: list[Shown], budget: int) -> Verdict[State]:
    lives = story.lives_of(subject)
    permits = _permits(story, subject, lives)
    events = sorted(_events(story, subject, lives))

    @cache
    def reachable(state: State, count: int) -> tuple[State, ...]:
        seen: Seen = frozenset((life, what) for _at, life, what in events[:count])
        return job_model.reachable(state, seen, permits)

    def closure(state: State, at: float) -> tuple[State, ...]:
        return reachable(state, sum(when <= at for when, _life, _what in events))

    actions = _requests(story, subject) + _beginnings(lives) + _last(story, subject, lives)
    actions += [_read(reading, observed) for reading, observed in readings]
    return Search(State(), closure, budget).run(actions)


def _permits(story: Story, subject: Subject, lives: list[Life]) -> Permits:
    submission = story.submissions[subject[0]]
    wanted: Wanted = submission.wanted
    fields = {name for change in story.changes(subject) for name in _fields(change)}
    return Permits(
        lives=max((life.life for life in lives), default=0) if _is_batch(submission) else 0,
        suspends=story.final.rules.suspends,
        ends_waiting=_ends_unasked(submission) or bool(fields & {"dependencies", "deadline_at"}),
        holds=bool(wanted.reservation or "reservation" in fields),
    )


def _is_batch(submission: Operation) -> bool:
    return bool(submission.kind == "submit" and submission.wanted.batch)


def _ends_unasked(submission: Operation) -> bool:
    """Whether a failed dependency, a deadline, or a client that goes away may end it."""
    wanted: Wanted = submission.wanted
    return bool(wanted.dependencies or wanted.deadline_at) or not _is_batch(submission)


def _events(story: Story, subject: Subject, lives: list[Life]) -> Iterable[tuple[float, int, str]]:
    """From when on the cluster may start a life, end it, and queue it again, by what is reported at the end."""
    submission = story.submissions[subject[0]]
    error = story.final.clock_error_seconds
    # A component that has no script ends with its leader's.
    scripted = _is_batch(submission) and not (submission.wanted.het_size and subject[1])
    for life in lives:
        reported = life.reported
        start = inf if reported is not None else -inf
        if reported is not None and reported.started_at:
            start = -inf if story.final.rules.starts_move else reported.started_at - error
        yield min(start, life.began_at), life.life, START
        ended_at = -inf if reported is None else reported.ended_at - error if reported.ended_at else inf
        yield ended_at, life.life, AGAIN
        for end in (COMPLETED, CANCELLED, OTHER) if reported is None else (end_of(reported.state),):
            if end == CANCELLED and scripted and not _ends_unasked(submission):
                continue
            done_at = _script_done_at(story, subject, life.life) if end == COMPLETED else -inf
            yield max(ended_at, done_at), life.life, end
    if _as_array(story, subject, lives) is not None:
        yield from ((-inf, 0, end) for end in (CANCELLED, OTHER))
        return
    last = max((life.life for life in lives), default=0)
    for number in sorted(set(range(last + 1)) - {life.life for life in lives}):
        for what in (START, AGAIN, CANCELLED, OTHER):  # a life that no record tells of, and whose processes none saw
            yield -inf, number, what
        yield _script_done_at(story, subject, number), number, COMPLETED


def _script_done_at(story: Story, subject: Subject, number: int) -> float:
    """From when on a life may be COMPLETED: its script, or that of its heterogeneous job, has exited with 0. -inf: it
    has none; inf: the script has not.
    """
    submission = story.submissions[subject[0]]
    if not _is_batch(submission):
        return -inf
    owner = (subject[0], 0) if submission.wanted.het_size else subject
    scripts = [life.batch for life in story.lives_of(owner) if life.life == number]
    ended = [script.ended for script in scripts if script is not None and script.ended is not None]
    return min((end.at for end in ended if not end.status), default=inf)


# -- what users and nodes did, as actions of the search


def _requests(story: Story, subject: Subject) -> list[Action[State]]:
    submission = story.submissions[subject[0]]
    held = Request(kind="submit", held=submission.wanted.hold or submission.wanted.priority == 0)
    actions = [_action(submission, _done(held))]
    for operation in story.requests(subject):
        if operation.kind not in job_model.REQUESTS:
            continue
        if operation.outcome is not Outcome.REFUSED:
            action = _action(operation, _done(_request(story, operation, subject)))
            if operation.kind == "requeue" and subject[1] is not None:
                # A part that has ended and still has processes is left out; what is done for other parts tells nothing.
                action = replace(action, returned_at=inf)
            actions.append(action)
            if _fields(operation).get("hold") is False:
                lifted = _action(operation, _done(Request(kind="release", alone=False)))
                actions.append(replace(lifted, returned_at=inf))  # without effect if an administrator holds the job
        elif subject[1] is None:
            cause = _cause(operation)
            if cause is not None:
                actions.append(_action(operation, cause))
    return actions


def _request(story: Story, operation: Operation, subject: Subject) -> Request:
    hold = isinstance(operation.wanted, Change) and operation.wanted.hold
    fields = _fields(operation)
    if "nice" in fields and may_be_moved(story, operation):
        del fields["nice"]
    return Request(operation.kind, subject[1] is None, hold, tuple(sorted(fields.items())))


def _fields(operation: Operation) -> dict[str, Any]:
    """Fields that an update sets, as far as they can be read back as they were set."""
    fields = operation.wanted.fields if isinstance(operation.wanted, Change) else {}
    return {name: value for name, value in fields.items() if value is None or isinstance(value, (str, int, float))}


def _done(request: Request) -> Callable[[State], State | None]:
    return lambda state: job_model.carried_out(request, state)


def _cause(operation: Operation) -> Callable[[State], State | None] | None:
    """Leaves only states in which the request can have been refused as it was; None: any."""
    code = operation.answer if isinstance(operation.answer, str) else ""
    table = job_model.REFUSED_BECAUSE
    holds = table.get((operation.kind, code)) or table.get(("", code))
    return None if holds is None else lambda state: state if holds(state) else None


def _action(operation: Operation, apply: Callable[[State], State | None]) -> Action[State]:
    unknown = operation.outcome is Outcome.UNKNOWN or operation.answered_at is None
    until = inf if unknown or operation.answered_at is None else operation.answered_at
    ending = "whose answer was lost" if until == inf else f"answered at {clock(until)}"
    name = f"{operation.kind} by {operation.client} called at {clock(operation.called_at)}, {ending}"
    if operation.outcome is Outcome.REFUSED:
        name += f" with {operation.answer}"
    return Action(name=name, called_at=operation.called_at, returned_at=until, apply=apply)


def _beginnings(lives: list[Life]) -> list[Action[State]]:
    """The first processes of each life: it had started by then."""
    actions = []
    for life in lives:
        first = min(life.runs, key=lambda run: run.began.at, default=None)
        if first is not None:
            at = first.began.at
            name = f"processes of restart {life.life} began on {first.began.node} at {clock(at)}"
            actions.append(Action(name=name, called_at=at, returned_at=at, apply=_started(life.life)))
    return actions


def _started(life: int) -> Callable[[State], State | None]:
    def apply(state: State) -> State | None:
        here = state.life == life and (state.phase in ACTIVE or state.ran)
        return state if here or state.life > life else None

    return apply


def _last(story: Story, subject: Subject, lives: list[Life]) -> list[Action[State]]:
    """The controller's record at the end, which is a reading like others."""
    job = story.jobs.get(lives[-1].job_id) if lives else None
    if job is None or job.array is not None or story.subject(job.id) != subject:
        job = _as_array(story, subject, lives)
        if job is None:
            return []
    observed = observed_record(job.state, job.restart_count, held=job.hold is not Hold.NONE)
    at = story.final.read_at
    name = f"the controller's record at the end, {observed}"
    return [Action(name=name, called_at=at, returned_at=at, apply=_seen(observed))]


def _as_array(story: Story, subject: Subject, lives: list[Life]) -> Job | None:
    """The record of an array whose tasks ended before they started, this one among them; None: it has another."""
    job = story.jobs.get(subject[0])
    return job if subject[1] is not None and not lives and job is not None and job.array and job.state.ended else None


def _readings(story: Story) -> dict[Subject, list[Shown]]:
    """What readings showed of each subject, in the order of their calls.

    Without those between two that showed the same: they hardly ever say more, and there may be thousands.
    """
    absent = dict.fromkeys((subject for subject in _all_subjects(story) if subject[1] is None), _ABSENT)
    shown: dict[Subject, list[Shown]] = {}
    for reading in story.entries:
        if not isinstance(reading, Reading) or reading.kind not in ("squeue", "job"):
            continue
        observed = {story.subject(row[0]): observed_by_row(row) for row in reading.rows}
        for subject, seen in (absent | observed if reading.kind == "squeue" else observed).items():
            earlier = shown.setdefault(subject, [])
            if len(earlier) > 1 and earlier[-1][1] == earlier[-2][1] == seen:
                earlier.pop()
            earlier.append((reading, seen))
    return shown


def _read(reading: Reading, observed: Observed) -> Action[State]:
    when = f"called at {clock(reading.called_at)}, answered at {clock(reading.answered_at)}"
    name = f"{reading.kind} by {reading.client} {when}, which showed it {observed}"
    return Action(name=name, called_at=reading.called_at, returned_at=reading.answered_at, apply=_seen(observed))


def _seen(observed: Observed) -> Callable[[State], State | None]:
    return lambda state: state if observed.agrees(state) else None


def _violation(story: Story, subject: Subject, verdict: Verdict[State]) -> Violation:
    failed = verdict.failed
    assert failed is not None
    before = " or ".join(sorted({str(state) for state in verdict.states})[:6])
    text = f"{name_of(subject)}: no order of requests explains {failed.name}; before it the job was {before}"
    others = [action.name for action in verdict.open_actions if action is not failed]
    if others:
        text += f"; open were: {'; '.join(others[:4])}"
    at = failed.returned_at
    submission = story.submissions[subject[0]]
    return Violation(rule="2.order", at=at, text=text, entries=(submission, *story.requests(subject)))
