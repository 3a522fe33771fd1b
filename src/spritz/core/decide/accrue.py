"""Which waiting jobs grow older, where limits say how many may: after each turn, as far as it has changed anything.

An eligible job accrues age priority at once if its limits allow, else as soon as another job under them starts, ends or
is held: the longest waiting first. Array tasks get their own records in the number that the limits allow. A limit
that is lowered takes nothing from those who have begun.

Source: sacctmgr(1) GrpJobsAccrue, MaxJobsAccrue, MaxJobsAccruePerUser, MaxJobsAccruePerAccount; slurm.conf(5)
PriorityFlags=ACCRUE_ALWAYS.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from spritz.core.decide.arrays import lowest_tasks, single_out
from spritz.core.eligibility import grows_older
from spritz.model.events import job as events
from spritz.model.limits.check import accrual_room

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.core.turn import Turn
    from spritz.model.job import Job
    from spritz.model.limits.ledger import Key
    from spritz.model.limits.rules import Party


def settle_accrual(turn: Turn) -> None:
    """Let jobs that may wait since this turn grow older or not, then others in places that became free."""
    state = turn.state
    if limits_accrual(state):
        for job_id in _may_wait_since(turn):
            job = state.jobs.get(job_id)
            if job is not None and job.accrued_at is None and grows_older(job):
                _admit(turn, job)
    if state.accrual_freed:
        state.accrual_freed = False
        if state.accrual_waits:
            _fill(turn)


def limits_accrual(state: State) -> bool:
    """Are there such limits, and do they hold?"""
    settings = state.settings
    return state.rules.accrues and "limits" in settings.enforce and not settings.priority_policy.accrue_always


def _may_wait_since(turn: Turn) -> dict[int, None]:
    found: dict[int, None] = {}
    for event in turn.events:
        if isinstance(event, (events.JobQueued, events.JobUpdated)):
            found[event.job.id] = None
        elif isinstance(
            event, (events.JobReleased, events.JobBecameEligible, events.DependenciesChanged, events.JobRequeued)
        ):
            found[event.job_id] = None
    return found


def _admit(turn: Turn, job: Job) -> None:
    """The job counts already; if that is too many, it or some of its tasks do not grow older yet."""
    party = _party(turn, job)
    over = -accrual_room(party, turn.state.ledger)
    if not party.accrual or over <= 0:
        return
    count = turn.state.charges[job.id].accruing
    if over < count:
        single_out(turn, job.id, lowest_tasks(job, count - over))
    turn.record(events.JobAccrued(at=turn.now, job_id=job.id))


def _fill(turn: Turn) -> None:
    """The longest waiting first, of all whose limits have room."""
    state = turn.state
    limited = limits_accrual(state)
    heap: list[tuple[float, int, tuple[Key, ...]]] = []

    def push(keys: tuple[Key, ...]) -> None:
        waiting = state.accrual_waits.get(keys)
        if waiting:
            job = state.jobs[next(iter(waiting))]
            if not limited or accrual_room(_party(turn, job), state.ledger) > 0:
                heappush(heap, (job.eligible_at, job.id, keys))

    for keys in state.accrual_waits:
        push(keys)
    while heap:
        _, job_id, keys = heappop(heap)
        job = state.jobs[job_id]
        count = state.charges[job_id].submitted
        room = accrual_room(_party(turn, job), state.ledger) if limited else count
        if room <= 0:
            continue
        few = count > room
        for number in single_out(turn, job_id, lowest_tasks(job, room)) if few else [job_id]:
            turn.record(events.JobAccrued(at=turn.now, job_id=number, since=turn.now))
        push(keys)


def _party(turn: Turn, job: Job) -> Party:
    return turn.state.rules.party(job.spec.account, job.spec.user, job.partition, job.spec.qos)
