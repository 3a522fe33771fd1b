"""Which waiting jobs accrue age priority, if limits say how many may. Runs after each decision, as far as that changed
anything.

An eligible job accrues age priority immediately if its limits permit; else as soon as another job under them starts,
ends or is held, the longest waiting first. Array tasks get their own records in the number that the limits permit. A
limit that is lowered takes nothing from jobs that accrue already.

Source: sacctmgr(1) GrpJobsAccrue, MaxJobsAccrue, MaxJobsAccruePerUser, MaxJobsAccruePerAccount; slurm.conf(5)
PriorityFlags=ACCRUE_ALWAYS.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from spritz.core.decide.arrays import lowest_tasks
from spritz.core.decide.dependency import single_out
from spritz.core.job.eligibility import accrues_age
from spritz.model.events import job as events
from spritz.model.limits.check import accrual_room

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.limits.job_limits import JobLimits
    from spritz.model.limits.ledger import LedgerKey


def settle_accrual(context: DecisionContext) -> None:
    """Settle jobs that became eligible in this decision, then fill places that it made free."""
    state = context.state
    if limits_accrual(state):
        for job_id in _may_wait_since(context):
            job = state.jobs.get(job_id)
            if job is not None and job.accrued_at is None and accrues_age(job):
                _admit(context, job)
    if state.memory.accrual_freed:
        state.memory.accrual_freed = False
        if state.accrual_waits:
            _fill(context)


def limits_accrual(state: State) -> bool:
    """Whether there are such limits, and they are enforced."""
    settings = state.settings
    return state.rules.accrues and "limits" in settings.enforce and not settings.priority_policy.accrue_always


def _may_wait_since(context: DecisionContext) -> dict[int, None]:
    job_ids: dict[int, None] = {}
    for event in context.events:
        if isinstance(event, (events.JobQueued, events.JobUpdated)):
            job_ids[event.job.id] = None
        elif isinstance(
            event, (events.JobReleased, events.JobBecameEligible, events.DependenciesChanged, events.JobRequeued)
        ):
            job_ids[event.job_id] = None
    return job_ids


def _admit(context: DecisionContext, job: Job) -> None:
    """The job is counted as accruing already; if that exceeds a limit, it or some of its tasks must wait."""
    job_limits = _job_limits(context, job)
    over = -accrual_room(job_limits, context.state.ledger)
    if not job_limits.accrual or over <= 0:
        return
    count = context.state.charges[job.id].accruing
    if over < count:
        single_out(context, job.id, lowest_tasks(job, count - over))
    context.record(events.JobAccrued(at=context.now, job_id=job.id))


def _fill(context: DecisionContext) -> None:
    """Let jobs accrue while their limits have room, the longest waiting first."""
    state = context.state
    limited = limits_accrual(state)
    heap: list[tuple[float, int, tuple[LedgerKey, ...]]] = []

    def push(keys: tuple[LedgerKey, ...]) -> None:
        waiting = state.accrual_waits.get(keys)
        if waiting:
            job = state.jobs[next(iter(waiting))]
            if not limited or accrual_room(_job_limits(context, job), state.ledger) > 0:
                heappush(heap, (job.eligible_at, job.id, keys))

    # Jobs with the same keys are under the same limits, and wait in order: the first of each group is a candidate, and
    # the heap merges the groups. The cost is that of the groups and of the jobs let in, not of all that wait.
    for keys in state.accrual_waits:
        push(keys)
    while heap:
        _, job_id, keys = heappop(heap)
        job = state.jobs[job_id]
        count = state.charges[job_id].submitted
        room = accrual_room(_job_limits(context, job), state.ledger) if limited else count
        if room <= 0:
            continue
        is_split = count > room
        for number in single_out(context, job_id, lowest_tasks(job, room)) if is_split else [job_id]:
            context.record(events.JobAccrued(at=context.now, job_id=number, since=context.now))
        push(keys)


def _job_limits(context: DecisionContext, job: Job) -> JobLimits:
    return context.state.rules.job_limits(job.spec.account, job.spec.user, job.partition, job.spec.qos)
