"""Lists running steps. Source: squeue(1) --steps, scontrol(1) show step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from spritz.controller.api.filters import matching_jobs
from spritz.controller.api.jobs import shown_jobs
from spritz.core.rights import operates
from spritz.model.errors import SpritzError
from spritz.model.job_filter import JobFilter
from spritz.model.launch import MeasureStep, StepMeasured
from spritz.model.queries.steps import ListSteps, MeasureSteps, NodeUsage, Steps, StepUsage, StepView
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from spritz.client.handling import Call
    from spritz.controller.context import Context
    from spritz.core.state import State
    from spritz.model.job import Job
    from spritz.model.step import Step


#: Seconds to wait for nodes to answer.
MEASURE_SECONDS = 10.0
#: Steps in one turn of the loop.
STEPS_PER_SLICE = 200


class StepQueries:
    """Answers ListSteps from the records, and MeasureSteps (sstat) by asking the nodes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list_steps(self, request: ListSteps, call: Call) -> AsyncIterator[Steps] | Awaitable[Steps]:
        """Running steps of the matching jobs; targets may name single steps."""
        pieces = self._pieces(request, call)
        return pieces if request.pieces else _joined(pieces)

    async def _pieces(self, request: ListSteps, call: Call) -> AsyncIterator[Steps]:
        context = self._context
        caller = context.identity.caller(call)
        state = context.machine.state
        if request.filter == JobFilter():
            jobs: list[Job] | Rejection = [state.jobs[number] for number in sorted(state.steps) if number in state.jobs]
        else:
            jobs = matching_jobs(state, request.filter)
        if isinstance(jobs, Rejection):
            raise SpritzError(jobs.text, code=jobs.code)
        if not operates(state, caller):
            jobs = shown_jobs(state, request.filter, jobs, caller)
        matches = _wanted_steps(request)
        views = [
            (job, step)
            for job in jobs
            for step in _steps_of(state, job)
            if matches is None or (job.id, step.step_id) in matches or (0, step.step_id) in matches
        ]
        now = context.clock.now()
        await context.writer.durable()
        for start in range(0, len(views) or 1, STEPS_PER_SLICE):
            yield Steps(now=now, steps=[_view(job, step) for job, step in views[start : start + STEPS_PER_SLICE]])
            await context.clock.sleep(0)

    async def measure(self, request: MeasureSteps, call: Call) -> StepUsage:
        """Ask every node of the step at the same time."""
        context = self._context
        caller = context.identity.caller(call)
        steps = _running(context.machine.state, request)
        if steps is None:
            raise SpritzError(Rejection(code="ESLURM_INVALID_JOB_ID").text, code="ESLURM_INVALID_JOB_ID")
        job, step = steps
        if not operates(context.machine.state, caller) and caller.uid != job.spec.uid:
            raise SpritzError(Rejection(code="ESLURM_USER_ID_MISSING").text, code="ESLURM_USER_ID_MISSING")
        answers = await asyncio.gather(
            *(self._measure_on(name, request) for name in (node.allocation.node for node in step.nodes))
        )
        return StepUsage(
            nodes=[answer for answer in answers if isinstance(answer, NodeUsage)],
            silent=[answer for answer in answers if isinstance(answer, str)],
        )

    async def _measure_on(self, node: str, request: MeasureSteps) -> NodeUsage | str:
        """The node's figures, or its name if it did not answer."""
        message = MeasureStep(node=node, job_id=request.job_id, step_id=request.step_id)
        try:
            measured = await self._context.nodes.ask(node, message, StepMeasured, MEASURE_SECONDS)
        except SpritzError as error:
            self._context.log.verbose("step.not_measured", node=node, job_id=request.job_id, error=error.message)
            return node
        return NodeUsage(node=measured.node, usage=measured.usage, pids=measured.pids)


async def _joined(pieces: AsyncIterator[Steps]) -> Steps:
    rows = [piece async for piece in pieces]
    return Steps(now=rows[0].now, steps=[view for piece in rows for view in piece.steps])


def _running(state: State, request: MeasureSteps) -> tuple[Job, Step] | None:
    job = state.jobs.get(request.job_id)
    step = state.steps.get(request.job_id, {}).get(request.step_id)
    return None if job is None or step is None else (job, step)


def _steps_of(state: State, job: Job) -> list[Step]:
    steps = state.steps.get(job.id, {})
    return [steps[number] for number in sorted(steps)]


def _wanted_steps(request: ListSteps) -> set[tuple[int, int]] | None:
    """The named (job, step) pairs, with job 0 for any job; None for all steps."""
    named = {
        (target.job_id + (target.component or 0), target.step_id)
        for target in request.filter.targets
        if target.step_id is not None
    }
    if request.step_id is not None:
        named.add((0, request.step_id))
    return named or None


def _view(job: Job, step: Step) -> StepView:
    """The public fields. Environments and connection keys are secret and never listed."""
    return StepView(
        step=structs.replace(step, spec=structs.replace(step.spec, environment=(), io_key="")),
        job_name=job.spec.name,
        user=job.spec.user,
        partition=job.partition,
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
        het_job_id=job.het_job_id,
    )
