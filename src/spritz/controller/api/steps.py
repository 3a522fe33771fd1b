"""Listing running steps. Source: squeue(1) --steps, scontrol(1) show step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from spritz.controller.api.filters import matching_jobs
from spritz.controller.api.jobs import visible_jobs
from spritz.model.commands.job import JobFilter
from spritz.model.errors import Rejection, SpritzError
from spritz.model.queries import ListSteps, Steps, StepView

if TYPE_CHECKING:
    from spritz.client.handling import Call
    from spritz.controller.context import Context
    from spritz.core.state import State
    from spritz.model.job import Job
    from spritz.model.step import Step


class StepQueries:
    """Answers ListSteps."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def list_steps(self, request: ListSteps, call: Call) -> Steps:
        """Running steps of the jobs that match; targets may name single steps."""
        context = self._context
        caller = context.identity.caller(call)
        state = context.machine.state
        if request.filter == JobFilter():
            jobs: list[Job] | Rejection = [state.jobs[number] for number in sorted(state.steps) if number in state.jobs]
        else:
            jobs = matching_jobs(state, request.filter)
        if isinstance(jobs, Rejection):
            raise SpritzError(jobs.text, code=jobs.code)
        if not caller.admin:
            jobs = visible_jobs(state, jobs, caller)
        wanted = _wanted_steps(request)
        views = [
            _view(job, step)
            for job in jobs
            for step in _steps_of(state, job)
            if wanted is None or (job.id, step.step_id) in wanted or (0, step.step_id) in wanted
        ]
        now = context.clock.now()
        await context.writer.durable()
        return Steps(now=now, steps=views)


def _steps_of(state: State, job: Job) -> list[Step]:
    steps = state.steps.get(job.id, {})
    return [steps[number] for number in sorted(steps)]


def _wanted_steps(request: ListSteps) -> set[tuple[int, int]] | None:
    """(job, step) pairs that were named; job 0 stands for any; None for all steps."""
    named = {
        (target.job_id + (target.component or 0), target.step_id)
        for target in request.filter.targets
        if target.step_id is not None
    }
    if request.step_id is not None:
        named.add((0, request.step_id))
    return named or None


def _view(job: Job, step: Step) -> StepView:
    """What anybody may see. Environments and keys of connections are secrets, and no listing shows them."""
    return StepView(
        step=structs.replace(step, spec=structs.replace(step.spec, environment=(), io_key="")),
        job_name=job.spec.name,
        user=job.spec.user,
        partition=job.partition,
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
        het_job_id=job.het_job_id,
    )
