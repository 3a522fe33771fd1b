"""`scontrol explain`: why does this job wait? Answered from a forked copy of the state by a full cycle of its own.

The result is that of the controller's next full pass. The copy is then discarded: trying other requests changes it.

Source: squeue(1) --start, JOB REASON CODES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import structs
from msgspec.msgpack import Decoder, Encoder

from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.controller.api.children import Children
from spritz.controller.api.private import hides_jobs
from spritz.controller.api.queue.filters import matching_jobs
from spritz.controller.api.queue.jobs import visible_jobs
from spritz.controller.needs import Clocked, Identifying, Logged, Reading
from spritz.controller.scheduler.forecasts import history_of
from spritz.controller.writer.durable import Writing
from spritz.core.rights import operates
from spritz.model.commands.job import SubmitJob
from spritz.model.job.job_filter import JobFilter
from spritz.model.queries.explanations import ExplainJob, Explanations
from spritz.model.rejection import Rejection
from spritz.model.states import JobState
from spritz.runtime.directory import person_of
from spritz.scheduling.explain.alternatives import once_free, try_others
from spritz.scheduling.explain.context import PlanView
from spritz.scheduling.explain.explanation import explain, past
from spritz.scheduling.forecast import full_cycle

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.channel.handling import Call
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.model.cluster.settings import Caller
    from spritz.model.job.record import Job, JobSpec
    from spritz.model.queries.explain import Explanation
    from spritz.runtime.directory import Question
    from spritz.scheduling.view.projection import Projection

_encode = Encoder().encode
_decode = Decoder(Explanations).decode

#: Records of an array that are explained.
RECORDS_MAX = 20


class Explaining(Clocked, Identifying, Logged, Reading, Writing, Protocol):
    """What an explanation is made of."""

    @property
    def forecasts(self) -> Forecasts: ...


class ExplainQueries:
    """Answers ExplainJob from a child process."""

    def __init__(self, context: Explaining) -> None:
        self._context = context
        self._children = Children("explain", "explanations", context.log)

    def lookups(self, request: ExplainJob, caller: Caller) -> list[Question]:
        """The job's user, on whose behalf other requests are tried."""
        jobs = matching_jobs(self._context.machine.state, JobFilter(targets=(request.target,)))
        return [] if isinstance(jobs, Rejection) or not jobs else [(person_of, jobs[0].spec.uid)]

    def explain(self, request: ExplainJob, call: Call) -> Struct | Deferred:
        """Answer at once for jobs that do not wait; else from a child."""
        context = self._context
        caller = context.identity.caller(call)
        matching = matching_jobs(context.machine.state, JobFilter(targets=(request.target,)))
        if not isinstance(matching, Rejection) and not operates(context.machine.state, caller):
            matching = visible_jobs(context.machine.state, matching, caller) or Rejection(code="ESLURM_INVALID_JOB_ID")
        if isinstance(matching, Rejection):
            return matching
        jobs = matching[:RECORDS_MAX]
        now = context.clock.now()
        if not any(job.state is JobState.PENDING for job in jobs):
            self._reply(call, Explanations(now=now, explanations=[past(job) for job in jobs]))
            return DEFERRED
        refusal = self._children.refusal(caller)
        if refusal is not None:
            return refusal
        # Looked up here, since the child cannot.
        owner = context.identity.caller_of(jobs[0].spec.uid)
        viewer = caller.user if hides_jobs(context.machine.state, caller) else None

        def work() -> bytes:
            return _encode(explanations(context, jobs, now, owner if request.others else None, viewer))

        def done(result: bytes | None) -> None:
            self._reply(
                call, _decode(result) if result else Rejection(code="ESLURM_INTERNAL", hint="see the log of slurmctld")
            )

        self._children.start(caller, work, done)
        return DEFERRED

    def _reply(self, call: Call, answer: Struct) -> None:
        self._context.writer.when_durable(lambda: call.reply(answer))


def explanations(
    context: Explaining, jobs: list[Job], now: float, owner: Caller | None, viewer: str | None = None
) -> Explanations:
    """Runs in the child.

    `owner`: on whose behalf other requests are tried (None: none are tried). `viewer`: the only user whose jobs may be
    named (None: all).
    """
    state, projection = context.machine.state, context.forecasts.projection
    snapshot = projection.snapshot(now, history_of(state))
    view = PlanView(snapshot, full_cycle.run(snapshot, held=True), state.jobs, state.nodes, viewer)
    explanations = [explain(view, job) if job.state is JobState.PENDING else past(job) for job in jobs]
    if owner is not None:
        # From here on the projection is changed.
        place = next(index for index, job in enumerate(jobs) if job.state is JobState.PENDING)
        explanations[place] = _with_others(context, projection, jobs[place], explanations[place], now, owner)
    return Explanations(now=now, explanations=explanations)


def _with_others(
    context: Explaining, projection: Projection, job: Job, explanation: Explanation, now: float, owner: Caller
) -> Explanation:
    if explanation.verdict not in ("waits", "never"):
        return explanation
    history = history_of(context.machine.state)
    if not projection.records[job.id].waiting:
        return structs.replace(explanation, once_free=once_free(projection, job, now, history))

    def acceptable(spec: JobSpec) -> bool:
        command = SubmitJob(spec=structs.replace(spec, dependencies=()), script=b"#!", test_only=True)
        return context.machine.check(command, now, owner).rejection is None

    alternatives, tried = try_others(projection, job, explanation, now, acceptable, history)
    return structs.replace(explanation, alternatives=alternatives, tried=tried)
