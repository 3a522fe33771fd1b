"""Rule 1: what was acknowledged is there, exactly once; what was refused is not there.

A job is looked for by the tag of its submission, in the controller's jobs and in accounting's records. The controller
forgets a job MinJobAge after its end, so then accounting alone must have it (slurm.conf(5) MinJobAge).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from spritz.model.ids import STEP_BATCH
from spritz_testing.daemons.checks.story import tagged
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Began, Outcome
from spritz_testing.daemons.wanted import SUBMISSIONS, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.checks.story import Story
    from spritz_testing.daemons.history import Operation


def durability(story: Story) -> Iterator[Violation]:
    """Submissions, scripts and environments."""
    yield from _submissions(story)
    yield from _one_answer_each(story)
    yield from _records_without_submission(story)
    yield from _records_once(story)
    yield from _scripts(story)


def _submissions(story: Story) -> Iterator[Violation]:
    known: dict[str, set[int]] = {}
    for tags, leader in tagged(story.final):
        for tag in tags:
            known.setdefault(tag, set()).add(leader)
    for leader, submission in story.submissions.items():
        if submission.outcome is Outcome.UNKNOWN:
            known.setdefault(_tag(submission), set()).add(leader)
    for operation in story.operations:
        if operation.kind not in SUBMISSIONS or not isinstance(operation.wanted, Wanted):
            continue
        numbers = sorted(known.get(operation.wanted.tag, ()))
        text = _wrong(story, operation, numbers)
        if text:
            yield Violation(rule="1.exists", at=story.final.read_at, text=text, entries=(operation,))


def _wrong(story: Story, operation: Operation, numbers: list[int]) -> str:
    tag = operation.wanted.tag
    listed = ", ".join(map(str, numbers))
    if operation.outcome is Outcome.REFUSED:
        return f"submission {tag} was refused ({operation.answer}), but job {listed} exists" if numbers else ""
    if len(numbers) > 1:
        return f"submission {tag} exists {len(numbers)} times: jobs {listed}"
    if operation.outcome is Outcome.UNKNOWN:
        return ""
    answered = f"submission {tag} was acknowledged at {clock(operation.answered_at or 0.0)} as job {operation.job_id}"
    if numbers and numbers != [operation.job_id]:
        return f"{answered}, but exists as job {listed}"
    if not numbers:
        return f"{answered}, but neither the controller nor accounting knows it" if _must_be_known(story) else ""
    if operation.job_id not in _leaders(story) and not _may_be_forgotten(story, operation.job_id):
        return f"{answered}, but the controller does not know it (any more)"
    return ""


def _must_be_known(story: Story) -> bool:
    """Without accounting, a job that is not there may have ended and been forgotten."""
    return story.final.rows is not None or story.final.read_at < story.final.rules.min_job_age_seconds


def _leaders(story: Story) -> set[int]:
    return {job.array_job_id or job.het_job_id or job.id for job in story.final.jobs}


def _may_be_forgotten(story: Story, leader: int) -> bool:
    """Whether accounting has all its lives as ended MinJobAge ago."""
    final = story.final
    rows = [row for row in final.rows or () if (row.array_job_id or row.het_job_id or row.job_id) == leader]
    latest = final.read_at - final.rules.min_job_age_seconds + final.clock_error_seconds
    return bool(rows) and all(row.ended_at and story.virtual_time(row.ended_at) <= latest for row in rows)


def _one_answer_each(story: Story) -> Iterator[Violation]:
    """No two submissions are answered with the same number."""
    answered: dict[int, Operation] = {}
    for operation in story.operations:
        if operation.kind not in SUBMISSIONS or operation.outcome is not Outcome.DONE:
            continue
        other = answered.setdefault(operation.job_id, operation)
        if other is not operation:
            text = f"job {operation.job_id} is the answer to two submissions, {_tag(other)} and {_tag(operation)}"
            at = operation.answered_at or operation.called_at
            yield Violation(rule="1.exists", at=at, text=text, entries=(other, operation))


def _tag(operation: Operation) -> str:
    return operation.wanted.tag if isinstance(operation.wanted, Wanted) else f"operation {operation.id}"


def _records_without_submission(story: Story) -> Iterator[Violation]:
    """Records that bear no submission's tag; those that bear one are judged with it."""
    asked = {_tag(operation) for operation in story.operations if operation.kind in SUBMISSIONS}
    strange = {leader for tags, leader in tagged(story.final) if asked.isdisjoint(tags)}
    for leader in sorted(strange - story.submissions.keys()):
        text = f"job {leader} exists, but no submission asked for it"
        yield Violation(rule="1.exists", at=story.final.read_at, text=text)


def _records_once(story: Story) -> Iterator[Violation]:
    """No record is listed twice: by number, by array and task, and in accounting by number and life."""
    controller = [("job", job.id) for job in story.final.jobs] + [
        (f"task {job.array_task_id} of array", job.array_job_id)
        for job in story.final.jobs
        if job.array_task_id is not None
    ]
    rows = [
        (f"restart {row.restart_count} of job", row.job_id) for row in story.final.rows or () if not row.array_tasks
    ]
    for owner, names in (("controller", controller), ("accounting", rows)):
        for name, count in sorted(Counter(names).items()):
            if count == 1:
                continue
            text = f"the {owner} lists {name[0]} {name[1]} {count} times"
            yield Violation(rule="1.exists", at=story.final.read_at, text=text)


def _scripts(story: Story) -> Iterator[Violation]:
    """Scripts as the controller returns them, and scripts and environments as they were launched."""
    for job_id, script in story.final.scripts.items():
        wanted = story.wanted(job_id)
        if wanted is not None and script != wanted.script:
            text = f"the script of job {job_id} is {script[:40]!r}, and was submitted as {wanted.script[:40]!r}"
            yield Violation(rule="1.script", at=story.final.read_at, text=text)
    known = story.final.scripts.keys() | story.final.damaged
    for job in story.final.jobs:
        if job.has_script and job.array is None and job.id not in known and story.final.scripts:
            text = f"the controller knows job {job.id} but does not have its script"
            yield Violation(rule="1.script", at=story.final.read_at, text=text)
    for entry in story.entries:
        if isinstance(entry, Began) and entry.step_id == STEP_BATCH:
            yield from _launched(story, entry)


def _launched(story: Story, began: Began) -> Iterator[Violation]:
    wanted = story.wanted(began.job_id)
    if wanted is None:
        return
    where = f"job {began.job_id} began on {began.node} at {clock(began.at)}"
    if began.script != wanted.script:
        text = f"{where} with the script {began.script[:40]!r}; submitted was {wanted.script[:40]!r}"
        yield Violation(rule="1.script", at=began.at, text=text, entries=(began,))
    for name, value in wanted.environment.items():
        if began.environment.get(name) != value:
            text = f"{where} with {name}={began.environment.get(name)!r}; submitted was {value!r}"
            yield Violation(rule="1.script", at=began.at, text=text, entries=(began,))
