"""`sbatch --test-only`: when would this job start? Answered from a forked copy of the state, which then vanishes.

As in Slurm only running jobs stand in the way, not those that wait: a hold, a dependency and the queue are left out.

Source: sbatch(1), srun(1) --test-only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs
from msgspec.msgpack import Decoder, Encoder

from spritz.controller.forked import Child
from spritz.model.commands.job import SubmitJob, WillRun
from spritz.model.errors import Rejection
from spritz.model.events.job import JobQueued
from spritz.model.job import Hold
from spritz.model.reasons import Reason
from spritz.notation import hostlist
from spritz.scheduling import cycle
from spritz.scheduling.projection import Projection

if TYPE_CHECKING:
    from spritz.client.handling import Call
    from spritz.controller.context import Context
    from spritz.model.cluster import Caller
    from spritz.model.job import Job
    from spritz.model.plan import Plan

_encode = Encoder().encode
_decode = Decoder(WillRun).decode

#: Estimates under way at once; more are told to come again.
CHILDREN_MAX = 4


class Estimates:
    """Answers SubmitJob(test_only)."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._running: set[Child] = set()

    def answer(self, command: SubmitJob, caller: Caller, call: Call) -> None:
        """Refuse what the core would refuse; else work out in a child when and where it would start."""
        context = self._context
        reply = context.writer.handle(command, caller)
        if isinstance(reply, Rejection):
            context.writer.when_durable(lambda: call.reply(reply))
            return
        if len(self._running) >= CHILDREN_MAX:
            call.fail(Rejection(code="ESLURM_MAX_JOB_COUNT", hint="too many --test-only requests at once"))
            return
        now = context.clock.now()

        def work() -> bytes:
            found = estimate(context, command, caller, now)
            return b"" if found is None else _encode(found)

        def done(result: bytes | None) -> None:
            self._running.discard(child)
            if result:
                answer: Struct = _decode(result)
            else:
                answer = Rejection(code="ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE")
            context.writer.when_durable(lambda: call.reply(answer))

        child = Child("will-run", work, done, context.log, nice=0)
        self._running.add(child)


def estimate(context: Context, command: SubmitJob, caller: Caller, now: float) -> WillRun | None:
    """In the child: queue the job for good (here), and plan for it alone. None if no time can be told."""
    state = context.machine.state
    real = structs.replace(command, test_only=False, script=b"#!", immediate_seconds=None)
    outcome = context.machine.handle(real, now, caller)
    queued = [event.job for event in outcome.events if isinstance(event, JobQueued)]
    if not queued:
        return None
    wanted = queued[0]
    alone = structs.replace(
        wanted, hold=Hold.NONE, dependencies=(), reason=Reason.NONE, eligible_at=now, priority=max(wanted.priority, 1)
    )
    projection = Projection()
    jobs = [*(state.jobs[number] for number in (*state.running, *state.completing)), alone]
    projection.reset(jobs, state.nodes.values(), state.partitions.values(), state.settings)
    projection.put_policy(state.rules.policy)
    return _read(cycle.run(projection.snapshot(now)), alone, now)


def _read(plan: Plan, job: Job, now: float) -> WillRun | None:
    earliest = max(now, job.spec.begin_at)
    for start in plan.starts:
        if start.job_id == job.id:
            return WillRun(
                job_id=job.id,
                start_at=earliest,
                nodes=hostlist.compress(start.allocation.names),
                cpus=start.allocation.cpu_count,
                partition=start.allocation.partition,
            )
    for note in plan.notes:
        if note.job_id == job.id and note.expected_start_at:
            return WillRun(
                job_id=job.id,
                start_at=max(earliest, note.expected_start_at),
                nodes=hostlist.compress(note.expected_nodes),
                cpus=_cpus(job, note.expected_nodes),
                partition=job.partition,
            )
    return None


def _cpus(job: Job, nodes: tuple[str, ...]) -> int:
    """CPUs of a start that has no allocation yet: what the tasks need, one a node at least."""
    return max(len(nodes), job.spec.tasks * (job.spec.cpus_per_task or 1))
