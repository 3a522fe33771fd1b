"""Guarantees when a plan is applied: whether one job may reclaim what another has borrowed.

Source: docs/decisions/0036.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.guarantees import GuaranteedJob, GuaranteeUse, lender
from spritz.model.rules.job_tres import allocated_pairs

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.plan import PlannedPreemption


class Reclaim:
    """Which running jobs stand within which guarantee: computed once per plan, and only if the plan reclaims something.

    Jobs that the plan itself starts are not included: the plan preempts none of them.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._guarantee_use: GuaranteeUse | None = None

    def lender(self, preemptor: Job, planned: PlannedPreemption, victim: Job) -> Guarantee | None:
        """The guarantee under which the preemptor may take the victim's resources; None if there is none."""
        state, allocation = self._state, planned.allocation
        guarantees = guarantees_of(state, preemptor, allocation.partition)
        if not guarantees:
            return None
        requested = dict(allocated_pairs(allocation))
        open_guarantees = [
            guarantee
            for guarantee in guarantees
            if guarantee.has_room(state.ledger.use(("a", guarantee.id)).tres, requested)
        ]
        if not open_guarantees:
            return None
        if self._guarantee_use is None:
            self._guarantee_use = guarantee_use(state)
        return lender(
            open_guarantees,
            guarantees,
            guarantees_of(state, victim, victim.partition),
            self._guarantee_use.within(victim.id),
        )


def guarantee_use(state: State) -> GuaranteeUse:
    """Which running jobs stand within guarantees. Jobs that are being preempted stand within none."""
    return GuaranteeUse(
        GuaranteedJob(
            job.id, guarantees_of(state, job, job.partition), tuple(allocated_pairs(job.allocation)), job.started_at
        )
        for job in (state.jobs[job_id] for job_id in state.running)
        if job.allocation is not None and not job.preempt_action
    )


def guarantees_of(state: State, job: Job, partition: str) -> tuple[Guarantee, ...]:
    """Guarantees of the job's account and those above it, nearest first."""
    if not state.rules.guarantees:
        return ()
    spec = job.spec
    return state.rules.job_limits(spec.account, spec.user, partition, spec.qos).guarantees
