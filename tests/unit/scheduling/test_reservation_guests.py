"""Jobs that run in reservations of others until these come.

Source: scontrol(1) MaxStartDelay; sbatch(1) --signal=R:.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.core.effects import SignalOn
from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.commands.cluster import ApplyPlan, Tick
from spritz.model.job.record import EndSignal, JobSpec
from spritz.model.states import JobState, NodeFlag, NodeState
from tests.unit.scheduling.site import SETTINGS, Site, node, spec
from tests.unit.scheduling.test_reservations_tres import reserve

USR1 = 10


def guest(seconds: int = 60, **fields: Any) -> JobSpec:
    """An hour on one whole node, which the job leaves within a number of seconds."""
    signal = EndSignal(signal=USR1, seconds=seconds, reservation=True)
    return spec(4, 1, time_limit_minutes=60, end_signal=signal, user="bob", **fields)


def mine(nodes: int = 1) -> JobSpec:
    """One of the reservation's own."""
    return spec(4 * nodes, nodes, user="alice", reservation="r")


def site_of(delay: int = 60, **settings: Any) -> Site:
    """Three nodes, two of them reserved from ten minutes on."""
    site = Site([node(f"n{i}", 4) for i in range(1, 4)], settings=replace(SETTINGS, **settings))
    reserve(site, 600, nodes=("n1", "n2"), max_start_delay_seconds=delay)
    return site


@pytest.mark.parametrize(("delay", "seconds", "begun"), [(60, 60, 3), (60, 61, 1), (0, 0, 1), (600, 0, 3)])
def test_a_job_that_leaves_soon_enough_may_run_into_a_reservation(delay: int, seconds: int, begun: int) -> None:
    site = site_of(delay)
    for _ in range(3):
        site.submit(guest(seconds))
    assert len(site.cycle()) == begun
    site.submit(spec(1, time_limit_minutes=60, user="bob"))
    assert not site.cycle()


def test_guests_leave_when_jobs_of_the_reservation_come() -> None:
    site = site_of()
    first, second, outside = (site.submit(guest()) for _ in range(3))
    assert {allocation.names for allocation in site.cycle().values()} == {("n1",), ("n2",), ("n3",)}
    site.now += 600
    site.cycle()
    assert all(site.jobs[job].state is JobState.RUNNING for job in (first, second, outside))
    own = site.submit(mine())
    plan = site.plan()
    (wanted,) = plan.preemptions
    # One is enough, and it is not the one outside.
    assert {victim.job_id for victim in wanted.victims} == {second}
    outcome = site.machine.handle(ApplyPlan(plan=plan), site.now)
    site.projection.follow(outcome.changes)
    site.projection.adopt(plan)
    signals = [effect for effect in outcome.effects if isinstance(effect, SignalOn)]
    assert {(effect.job_id, effect.signal) for effect in signals} == {(second, USR1)}
    assert site.jobs[second].ends_at == site.now + 60
    site.now += 30
    assert not site.plan().preemptions, "it is leaving already"
    site.now += 30
    site.projection.follow(site.machine.handle(Tick(), site.now).changes)
    assert site.jobs[second].state is JobState.PREEMPTED
    for name in site.jobs[second].completing:
        site.gone(second, name)
    assert set(site.cycle()) == {own}
    assert site.jobs[first].state is JobState.RUNNING


def test_jobs_leave_only_if_the_reservation_can_begin() -> None:
    site = site_of()
    site.submit(guest(node_list=("n1",)))
    site.cycle()
    site.now += 600
    # One of its nodes is down: two are not to be had.
    site.set_node("n2", NodeState.IDLE, NodeFlag.DRAIN)
    site.submit(mine(2))
    assert not site.plan().preemptions


def test_they_are_requeued_where_preempted_jobs_are() -> None:
    site = site_of(preemption=PreemptionPolicy(mode=("REQUEUE",)))
    waits = site.submit(guest(0, requeue=True, batch=True, node_list=("n1",)))
    site.submit(guest(0, node_list=("n2",)))
    site.cycle()
    site.now += 600
    site.submit(mine(2))
    site.cycle()
    assert site.jobs[waits].state is JobState.PENDING
