"""`sbatch --test-only`: when would this job start? Answered from a forked copy of the state, which is then discarded.

As in Slurm, only running jobs are considered; pending jobs and a hold are ignored. A job that depends on others is
planned among all jobs, if the ends of the others can be predicted. The answer is read from a plan, as in `scontrol
explain`.

Source: sbatch(1), srun(1) --test-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs
from msgspec.msgpack import Decoder, Encoder

from spritz.controller.api.children import Children
from spritz.controller.needs import Clocked, Logged, Reading
from spritz.controller.scheduler.forecasts import history_of
from spritz.controller.writer.durable import Writing
from spritz.model.commands.job import SubmitHetJob, SubmitJob, WillRun
from spritz.model.events import Changes
from spritz.model.events.job import JobQueued
from spritz.model.rejection import Rejection
from spritz.notation import hostlist
from spritz.scheduling.explain.alternatives import freed
from spritz.scheduling.explain.context import PlanView
from spritz.scheduling.explain.expected_start import start_of
from spritz.scheduling.explain.explanation import explain
from spritz.scheduling.forecast import full_cycle
from spritz.scheduling.view.changes.limits_policy import put_policy
from spritz.scheduling.view.projection import Projection

if TYPE_CHECKING:
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
    from spritz.model.job.record import Job, JobSpec
    from spritz.model.node.reservation import Reservation


class Trying(Clocked, Logged, Reading, Writing, Protocol):
    """What a trial of a submission needs."""

    @property
    def forecasts(self) -> Forecasts: ...


class Estimate(Struct, frozen=True):
    """The expected start; else a text why it is unknown ("": the core refused the job)."""

    start: WillRun | None = None
    why: str = ""


_encode = Encoder().encode
_decode = Decoder(Estimate).decode


class Estimates:
    """Answers SubmitJob with `test_only` from a child process."""

    def __init__(self, context: Trying) -> None:
        self._context = context
        self._children = Children("will-run", "--test-only requests", context.log)

    def answer(self, command: SubmitJob | SubmitHetJob, caller: Caller, send: Callable[[Struct | None], None]) -> None:
        """Refuse what the core would refuse; else compute in a child when and where the job would start."""
        context = self._context
        reply = context.machine.check(command, context.clock.now(), caller).reply
        if isinstance(reply, Rejection):
            context.writer.when_durable(lambda: send(reply))
            return
        refusal = self._children.refusal(caller)
        if refusal is not None:
            send(refusal)
            return
        now = context.clock.now()

        def work() -> bytes:
            return _encode(estimate(context, command, caller, now))

        def done(result: bytes | None) -> None:
            estimate = _decode(result) if result else Estimate()
            nothing = Rejection(code="ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE", hint=estimate.why)
            answer: Struct = estimate.start or nothing
            context.writer.when_durable(lambda: send(answer))

        self._children.start(caller, work, done)


def _for_good(command: SubmitJob) -> SubmitJob:
    return structs.replace(command, test_only=False, script=b"#!", immediate_seconds=None)


def estimate(context: Trying, command: SubmitJob | SubmitHetJob, caller: Caller, now: float) -> Estimate:
    """Runs in the child: queue the job with all its components for a trial, and plan for it alone."""
    state = context.machine.state
    real: Struct
    if isinstance(command, SubmitHetJob):
        real = SubmitHetJob(components=tuple(map(_for_good, command.components)))
    else:
        real = _for_good(command)
    with context.machine.trial(real, now, caller) as outcome:
        queued = [event.job for event in outcome.events if isinstance(event, JobQueued)]
        if not queued:
            return Estimate()
        if any(job.dependencies for job in queued):
            after_others = _after_others(state, context.forecasts.projection, outcome.changes, queued, now)
            if after_others.start is not None:
                return after_others
        return _alone(state, queued, now)


def _alone(state: State, queued: Sequence[Job], now: float) -> Estimate:
    """For a job that waits for no others: planned among those that run, as if it were the next."""
    whole = [freed(job, now) for job in queued]
    now = max(now, *(_reservation_begins(state.reservations, job.spec, now) for job in whole))
    projection = Projection()
    present = [state.jobs[number] for number in (*state.running, *state.completing)]
    jobs = [*(job for job in present if not job.ends_at or job.ends_at > now), *whole]
    projection.reset(jobs, state.nodes.values(), state.partitions.values(), state.settings, state.reservations.values())
    put_policy(projection, state.rules.policy)
    snapshot = projection.snapshot(now, history_of(state))
    view = PlanView(
        snapshot, full_cycle.run(snapshot, held=True), {**state.jobs, **{job.id: job for job in whole}}, state.nodes
    )
    return _read(view, whole, now)


def _after_others(
    state: State, projection: Projection, changes: Changes, queued: Sequence[Job], now: float
) -> Estimate:
    """For a job that depends on others, which may wait too: planned among all jobs."""
    projection.follow(changes)
    try:
        snapshot = projection.snapshot(now, history_of(state))
        return _read(PlanView(snapshot, full_cycle.run(snapshot, held=True), state.jobs, state.nodes), queued, now)
    finally:
        projection.follow(Changes(jobs=tuple((after, before) for before, after in changes.jobs)))


def _read(view: PlanView, whole: Sequence[Job], now: float) -> Estimate:
    """The plan's result for the job and all its components."""
    alone = whole[0]
    starts = [start_of(view, view.snapshot.records[job.id]) for job in whole]
    known = [start for start in starts if start is not None]
    if len(known) < len(whole):
        return Estimate(None, explain(view, alone).summary)
    names = dict.fromkeys(name for start in known for name in start.names)
    return Estimate(
        WillRun(
            job_id=alone.id,
            start_at=max(now, alone.spec.begin_at, *(start.at for start in known)),
            nodes=hostlist.compress(tuple(names)),
            cpus=sum(start.cpus or _cpus(job, start.names) for job, start in zip(whole, known, strict=True)),
            partition=",".join(
                dict.fromkeys(start.partition or job.partition for job, start in zip(whole, known, strict=True))
            ),
        )
    )


def _reservation_begins(reservations: Mapping[str, Reservation], spec: JobSpec, now: float) -> float:
    """The earliest start of its reservations; 0 if none is in the future.

    Differs: slurmctld 22.05 gives no time for a future reservation ("Invalid time specified").
    """
    named = [reservations[name] for name in spec.reservation.split(",") if name in reservations]
    return min((0.0 if item.flexible or item.floating else item.start_at for item in named), default=0.0)


def _cpus(job: Job, nodes: tuple[str, ...]) -> int:
    """CPUs of a start that has no allocation yet: the tasks' CPUs, at least one a node."""
    return max(len(nodes), job.spec.tasks * (job.spec.cpus_per_task or 1))
