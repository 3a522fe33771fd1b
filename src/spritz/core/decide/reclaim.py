"""Guarantees at the moment of a plan: may this job take back what that one has borrowed?

Source: docs/decisions/0036.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.job_tres import allocated_pairs
from spritz.model.limits.guarantees import Standing, Tenant, lender

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job import Job
    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.plan import PlannedPreemption


class Reclaim:
    """Who stands within which guarantee is found out once for a plan, and only if it takes something back.

    What the plan itself starts is not among it: the plan takes nothing from that.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._standing: Standing | None = None

    def lender(self, preemptor: Job, planned: PlannedPreemption, victim: Job) -> Guarantee | None:
        """The guarantee by which the job may take the other's resources; None if there is none."""
        state, allocation = self._state, planned.allocation
        own = guarantees_of(state, preemptor, allocation.partition)
        if not own:
            return None
        wanted = dict(allocated_pairs(allocation))
        roomy = [one for one in own if one.has_room(state.ledger.use(("a", one.id)).tres, wanted)]
        if not roomy:
            return None
        if self._standing is None:
            self._standing = standing(state)
        return lender(roomy, own, guarantees_of(state, victim, victim.partition), self._standing.within(victim.id))


def standing(state: State) -> Standing:
    """Which jobs that run stand within guarantees; those that are being preempted stand within none."""
    return Standing(
        Tenant(job.id, guarantees_of(state, job, job.partition), tuple(allocated_pairs(job.allocation)), job.started_at)
        for job in (state.jobs[job_id] for job_id in state.running)
        if job.allocation is not None and not job.preempt_action
    )


def guarantees_of(state: State, job: Job, partition: str) -> tuple[Guarantee, ...]:
    """What the job's account and those above it are guaranteed, nearest first."""
    if not state.rules.guarantees:
        return ()
    spec = job.spec
    return state.rules.party(spec.account, spec.user, partition, spec.qos).guarantees
