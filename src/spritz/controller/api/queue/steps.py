"""Lists running steps. Source: squeue(1) --steps, scontrol(1) show step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from spritz.controller.api.queue.filters import matching_jobs
from spritz.controller.api.queue.jobs import shown_jobs
from spritz.controller.needs import Clocked, Identifying, Logged, Reading
from spritz.controller.writer.durable import Writing, durable
from spritz.controller.writer.listeners import Loss
from spritz.core.rights import operates
from spritz.model.errors import SpritzError
from spritz.model.events.step import StepEnded, StepNodeEnded, StepOpened
from spritz.model.job.job_filter import JobFilter
from spritz.model.node_daemon.launch import MeasureStep, StepMeasured
from spritz.model.queries.steps import LaunchError, ListSteps, MeasureSteps, NodeUsage, Steps, StepUsage, StepView
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

    from spritz.client.channel.handling import Call
    from spritz.controller.nodes.links import NodeLinks
    from spritz.core.state import State
    from spritz.model.events import Event
    from spritz.model.job.record import Job
    from spritz.model.job.step import Step


#: Seconds to wait for nodes to answer.
MEASURE_SECONDS = 10.0
#: Steps in one turn of the loop.
STEPS_PER_SLICE = 200
#: Steps whose launch errors are remembered, for clients that ask why no supervisor connects.
_FAILED_STEPS_MAX = 1000


class Asking(Clocked, Identifying, Logged, Reading, Writing, Protocol):
    """Steps and who asks for them."""

    @property
    def nodes(self) -> NodeLinks: ...


class StepQueries:
    """Answers ListSteps from the records, and MeasureSteps (sstat) by asking the nodes."""

    def __init__(self, context: Asking) -> None:
        self._context = context
        #: (job id, step id) -> launch errors, oldest step first; not kept over a restart
        self._launch_errors: dict[tuple[int, int], list[LaunchError]] = {}

    def follow(self) -> None:
        """Remember launch errors from now on."""
        self._context.writer.listeners.add("launch_errors", self._listen, Loss.IGNORE)

    def _listen(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, StepOpened):
                self._launch_errors.pop((event.step.job_id, event.step.step_id), None)  # of the job's last life
            elif isinstance(event, StepNodeEnded | StepEnded) and event.error:
                error = LaunchError(job_id=event.job_id, step_id=event.step_id, node=event.node, error=event.error)
                self._launch_errors.setdefault((event.job_id, event.step_id), []).append(error)
                if len(self._launch_errors) > _FAILED_STEPS_MAX:
                    del self._launch_errors[next(iter(self._launch_errors))]

    def list_steps(self, request: ListSteps, call: Call) -> AsyncIterator[Steps] | Awaitable[Steps]:
        """Running steps of the matching jobs; targets may name single steps."""
        pieces = self._pieces(request, call)
        return pieces if request.pieces else _joined(pieces, call)

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
        named = {job.id for job in jobs} if matches is not None else set()
        errors = [error for key in matches or () if key[0] in named for error in self._launch_errors.get(key, ())]
        now = context.clock.now()
        await durable(context, call)
        for start in range(0, len(views) or 1, STEPS_PER_SLICE):
            steps = [_view(job, step) for job, step in views[start : start + STEPS_PER_SLICE]]
            yield Steps(now=now, steps=steps, launch_errors=() if start else tuple(errors))

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


async def _joined(pieces: AsyncIterator[Steps], call: Call) -> Steps:
    rows = []
    await call.channel.turn()
    async for piece in pieces:
        rows.append(piece)
        await call.channel.turn()
    steps = [view for piece in rows for view in piece.steps]
    return Steps(now=rows[0].now, steps=steps, launch_errors=rows[0].launch_errors)


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
        suspended_at=job.suspended_at,
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
        het_job_id=job.het_job_id,
    )
