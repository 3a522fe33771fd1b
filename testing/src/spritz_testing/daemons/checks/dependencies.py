"""Rule 3: a job begins only when its dependencies are satisfied, by what nodes saw.

A job that the controller has given up (its node was lost) is over for its dependents although its processes may still
be there: then the end that is reported counts. A condition on a job that ended MinJobAge before the submission is
satisfied (slurmctld has forgotten it). Whether a script ended well is taken from `Ended`; a job that was cancelled, or
that ran into its time limit, has not ended well whatever its script returned, which only the reported state can say.

Source: sbatch(1) --dependency.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz.model.resources import mask_of
from spritz_testing.daemons.checks.faults import over_at, reported_end
from spritz_testing.daemons.checks.starts import started_before
from spritz_testing.daemons.checks.story import parts_of
from spritz_testing.daemons.checks.values import possible
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.checks.story import Life, Story, Subject
    from spritz_testing.daemons.history import Entry
    from spritz_testing.daemons.wanted import Condition


def dependencies(story: Story) -> Iterator[Violation]:
    """The first processes of each life."""
    for life in story.lives.values():
        wanted = story.wanted(life.job_id)
        if wanted is None or not life.runs or life.life:
            continue  # a job that has started once has its dependencies behind it
        first = life.began_at
        if len(possible(story, life.subject, "dependencies", 0.0, first)) > 1:
            continue  # changed by an update: which of them were in force is not known well enough
        wrong = [(item, open_because(story, life.subject, item, first)) for item in wanted.dependencies]
        unsatisfied = [(item, text) for item, text in wrong if text]
        if not unsatisfied or (wanted.dependency_mode == "any" and len(unsatisfied) < len(wrong)):
            continue
        item, text = unsatisfied[0]
        yield _violation(story, life, item, text)


def _violation(story: Story, life: Life, item: Condition, text: str) -> Violation:
    began = min((run.began for run in life.runs), key=lambda entry: entry.at)
    words = item.kind if item.kind == "singleton" else f"{item.kind}:{item.job_id}"
    entries: list[Entry] = [run.began for other in story.lives_of_whole(item.job_id) for run in other.runs]
    return Violation(
        rule="3.dependency",
        at=began.at,
        text=f"{life.label} began on {began.node} at {clock(began.at)} with the dependency {words}, but {text}",
        entries=(began, *entries),
    )


def open_because(story: Story, subject: Subject, item: Condition, at: float) -> str:
    """Why the subject's condition was not satisfied at that moment; "": it may have been."""
    if item.kind == "singleton":
        return _other_of_name(story, subject, at)
    parts = _parts(story, subject, item)
    if not parts or _forgotten(story, subject, parts):
        return ""
    if item.kind == "after":
        due = at - item.minutes * 60 + story.final.clock_error_seconds
        late = [part for part in parts if not _had_started(story, part, due)]
        when = f" {item.minutes} minutes before" if item.minutes else ""
        return f"{_name(late[0])} had not started{when}" if late else ""
    outcomes = {part: _outcomes(story, part, at) for part in parts}
    still = [part for part in parts if not outcomes[part]]
    if still:
        return f"{_name(still[0])} had not ended"
    if item.kind in ("afterok", "aftercorr"):
        failed = [part for part in parts if all(well is False for well in outcomes[part])]
        return f"{_name(failed[0])} had not ended well" if failed else ""
    if item.kind == "afternotok" and all(well is True for part in parts for well in outcomes[part]):
        return f"{_name(parts[0])} had ended well"
    return ""


def satisfied(story: Story, subject: Subject, at: float) -> bool:
    """Whether all that the subject waits for is certainly satisfied at that moment."""
    wanted = story.wanted(subject[0])
    if wanted is None or len(possible(story, subject, "dependencies", 0.0, at)) > 1:
        return False
    certain = [_certain(story, subject, item, at) for item in wanted.dependencies]
    return any(certain) if wanted.dependency_mode == "any" and certain else all(certain)


def _certain(story: Story, subject: Subject, item: Condition, at: float) -> bool:
    """Whether the condition is satisfied whatever came of requests without an answer."""
    if item.kind == "singleton":
        return _is_alone(story, subject, at)
    parts = _parts(story, subject, item)
    if item.kind == "after":
        first = [min((life.began_at for life in story.lives_of(part)), default=inf) for part in parts]
        return all(began + item.minutes * 60 < at for began in first)
    last = [story.lives_of(part)[-1:] for part in parts]
    if not all(lives and _certainly_over(lives[0], at) for lives in last):
        return False
    # A condition that failed once stays failed, so all moments at which a job was over must agree.
    well = [outcome for part in parts for outcome in _outcomes(story, part, at)]
    if item.kind in ("afterok", "aftercorr"):
        return all(outcome is True for outcome in well)
    return item.kind != "afternotok" or all(outcome is False for outcome in well)


def _certainly_over(life: Life, at: float) -> bool:
    reported = life.reported.ended_at if life.reported is not None else 0.0
    return 0.0 < reported < at and (not life.runs or life.ended_at < at)


def _is_alone(story: Story, subject: Subject, at: float) -> bool:
    """Whether every other job of its user and name is over."""
    wanted, submission = story.wanted(subject[0]), story.submissions[subject[0]]
    for leader, other in story.submissions.items():
        its = story.wanted(leader)
        if leader == subject[0] or its is None or wanted is None or its.name != wanted.name:
            continue
        lives = [story.lives_of(part)[-1:] for part in parts_of(leader, its)]
        if other.uid == submission.uid and not all(last and _certainly_over(last[0], at) for last in lives):
            return False
    return True


def _name(subject: Subject) -> str:
    return f"job {subject[0]}" if subject[1] is None else f"job {subject[0]}, part {subject[1]},"


def _parts(story: Story, subject: Subject, item: Condition) -> list[Subject]:
    """The subjects that the condition is about, as far as the history knows them."""
    submission = story.submissions.get(item.job_id)
    if submission is None:
        return []
    wanted = submission.wanted
    tasks = wanted.array_tasks
    if item.kind == "aftercorr" and tasks and subject[1] is not None:
        return [(item.job_id, subject[1])] if subject[1] in tasks else []
    if item.task_id is not None:
        return [(item.job_id, item.task_id)] if item.task_id in tasks else []
    return parts_of(item.job_id, wanted)


def _forgotten(story: Story, subject: Subject, parts: list[Subject]) -> bool:
    submitted = story.submissions[subject[0]].called_at
    age = story.final.rules.min_job_age_seconds - 2 * story.final.clock_error_seconds
    return all(_outcomes(story, part, submitted - age) for part in parts)


def _had_started(story: Story, subject: Subject, at: float) -> bool:
    """Whether it may have started by then, or been cancelled."""
    lives = _lives(story, subject)
    if any(life.reported is None and started_before(story, life, at) for life in lives):
        return True
    moments = [_cancelled_at(story, subject), _ended_unstarted_at(story, subject)]
    # What could be queued again had started, perhaps before its processes began.
    moments += [change.called_at for change in story.changes(subject) if change.kind == "requeue"]
    submission = story.submissions.get(subject[0])
    if submission is not None and lives and len(lives) <= lives[-1].life:
        # A life of which nobody saw processes, on a node that hung, say, and that a requeue has left without a record.
        moments.append(submission.called_at)
    for life in lives:
        moments.append(life.began_at)
        if life.reported is not None:
            reported = life.reported.started_at or life.reported.ended_at
            moments.append(reported - story.final.clock_error_seconds if reported else inf)
    return min(moments) <= at


def _outcomes(story: Story, subject: Subject, at: float) -> list[bool | None]:
    """How it ended at each moment up to `at` by which it may have been over: well or not, None: not known.

    A condition that was satisfied once stays so, so a job that was over and then queued again counts. One that the
    cluster queued again by itself was never over.
    """
    lives = _lives(story, subject)
    outcomes: list[bool | None] = []
    for place, life in enumerate(lives):
        after = lives[place + 1] if place + 1 < len(lives) else None
        over, well = (over_at(story, life), _well(life)) if life.runs else _unseen(story, subject, life)
        if over <= at and (after is None or _asked_again(story, subject, over, after.began_at)):
            outcomes.append(well)
    if not lives and _ended_unstarted_at(story, subject) <= at:
        outcomes.append(False)
    # A life that ended before its start leaves no trace where the job was queued again.
    elif (not lives or lives[0].life or lives[-1].life >= len(lives)) and _cancelled_at(story, subject) <= at:
        outcomes.append(_never_ran(story, subject))
    elif lives and lives[0].life and (_may_end_unstarted(story, subject) or _may_die_unseen(story, subject, at)):
        outcomes.append(None)
    return outcomes


def _may_end_unstarted(story: Story, subject: Subject) -> bool:
    """Whether its life may have ended by itself before its start: in vain, or at its deadline."""
    wanted = story.wanted(subject[0])
    return wanted is not None and bool(wanted.dependencies or wanted.deadline_at)


def _may_die_unseen(story: Story, subject: Subject, at: float) -> bool:
    """Whether its first life, of which nothing is left, may have been over by then: a user had it queued again, and
    by a fault its supervisor may have died before it could begin.
    """
    again = min((life.began_at for life in story.lives_of(subject)), default=inf)
    return _asked_again(story, subject, -inf, again) and any(fault.since <= at for fault in story.faults)


def _lives(story: Story, subject: Subject) -> list[Life]:
    """The subject's lives. A component starts and ends with the first one, and only that has a script: where nothing is
    known of a life of the component, because it had no processes and was queued again, the first one's stands for it.
    """
    lives, wanted = story.lives_of(subject), story.wanted(subject[0])
    if wanted is None or not wanted.het_size or not subject[1]:
        return lives
    by_number = {life.life: life for life in (*story.lives_of((subject[0], 0)), *lives)}
    return [life for _number, life in sorted(by_number.items())]


def _ended_unstarted_at(story: Story, subject: Subject) -> float:
    """The earliest moment by which the task of an array may have ended without a start, together with all others that
    had none; inf: it has not.

    Such tasks have no record of their own, but that of their array; in accounting, when controllers have forgotten it.
    """
    leader, task = subject
    job = story.jobs.get(leader)
    ends = [] if job is None or job.array is None else [(job.array.pending, job.ended_at if job.state.ended else 0.0)]
    ends += [(row.array_tasks, row.ended_at) for row in story.final.rows or () if row.array_job_id == leader]
    moments = [
        story.virtual_time(ended_at) - story.final.clock_error_seconds
        for tasks, ended_at in ends
        if ended_at and tasks and task is not None and mask_of(tasks) >> task & 1
    ]
    return min(moments, default=inf)


def _asked_again(story: Story, subject: Subject, since: float, until: float) -> bool:
    """Whether a user may have had it queued again between these moments."""
    return any(
        change.kind == "requeue" and change.called_at <= until and (change.answered_at or inf) >= since
        for change in story.changes(subject)
    )


def _unseen(story: Story, subject: Subject, life: Life) -> tuple[float, bool | None]:
    """When a life without processes may have been over, and whether it ended well then."""
    if life.reported is not None and life.reported.state == "COMPLETED":
        return reported_end(story, life), True  # of a component; what was cancelled is an earlier life
    return min(reported_end(story, life), _cancelled_at(story, subject)), _never_ran(story, subject)


def _never_ran(story: Story, subject: Subject) -> bool | None:
    cancels = (change for change in story.changes(subject) if change.kind == "cancel")
    return False if any(change.outcome is Outcome.DONE for change in cancels) else None


def _cancelled_at(story: Story, subject: Subject) -> float:
    """When it may have been cancelled first."""
    return min((change.called_at for change in story.changes(subject) if change.kind == "cancel"), default=inf)


def _well(life: Life) -> bool | None:
    """Whether the life ended well; None: the history does not say."""
    batch = life.batch
    if batch is None or batch.ended is None:
        return None
    if batch.ended.status:
        return False
    return True if life.reported is not None and life.reported.state == "COMPLETED" else None


def _other_of_name(story: Story, subject: Subject, at: float) -> str:
    """singleton: another job of this name and user, submitted before, that is waiting or running.

    Jobs that came later, or were queued again, may run: the condition may have been satisfied before.
    """
    wanted, submission = story.wanted(subject[0]), story.submissions[subject[0]]
    for other in story.lives.values():
        its, before = story.wanted(other.job_id), story.submissions.get(other.subject[0])
        if its is None or wanted is None or before is None or other.subject[0] == subject[0] or other.life:
            continue
        earlier = before.answered_at is not None and before.answered_at < submission.called_at
        if not earlier or its.name != wanted.name or before.uid != submission.uid or not other.runs:
            continue
        if other.began_at < at < over_at(story, other):
            return f"job {other.job_id} of the same name ran since {clock(other.began_at)}"
        if other.began_at > at:
            return f"job {other.job_id} of the same name had been submitted before and began at {clock(other.began_at)}"
    return ""
