"""`show step`. Source: scontrol(1) show step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.control.jobs import target_of
from spritz.client.errors import RemoteError
from spritz.model.ids import STEP_MAX
from spritz.model.job.job_filter import JobFilter
from spritz.model.queries.steps import ListSteps, Steps
from spritz.presentation.job.step_record import record_text

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session


def run(session: Session, words: list[str]) -> int:
    """`show step [JOB[.STEP]]`: print running steps: one, those of a job, or all. Returns the exit status."""
    job_filter = JobFilter()
    if words:
        target = target_of(words[0])
        if target is None:
            session.out("Job step 0.Invalid not found\n")
            return 1
        job_filter = JobFilter(targets=(target,))
    try:
        answer = session.call(ListSteps(filter=job_filter), Steps)
    except RemoteError as error:
        session.say(f"slurm_get_job_steps error: {error.message}")
        return 1
    if not answer.steps and (words or session.json is None):
        session.out(f"Job step {words[0]} not found\n" if words else "No job steps in the system\n")
        return 1 if words else 0
    # The batch script begins before any other step.
    views = sorted(answer.steps, key=lambda view: (view.step.job_id, view.step.step_id <= STEP_MAX, view.step.step_id))
    if session.json is not None:
        from spritz.presentation.json.steps import show_records

        show_records(session.context, session.json, answer.now, views)
        return 0
    session.out("".join([record_text(view, session.oneliner) for view in views]))
    return 0
