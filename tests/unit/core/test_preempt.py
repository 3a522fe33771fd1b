"""What the core does with planned preemptions: it looks at every victim again, warns, ends, stops and resumes.

Source: slurm.conf(5) GraceTime, PreemptMode, PreemptParameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spritz.core.effects import Effect, SignalOn, SuspendOn, TerminateJobOn
from spritz.core.machine import Machine, Outcome
from spritz.model.cluster.preemption import PreemptionPolicy, PreemptMode
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.job.record import EndSignal, suspension
from spritz.model.node.partition import Partition
from spritz.model.plan import Plan, PlannedPreemption, PlannedVictim
from spritz.model.resources import Allocation
from spritz.model.states import JobState
from spritz_testing.builders import World, node_share, only

MakeWorld = Callable[..., World]
NAMES = ("n1", "n2")


def made(make_world: MakeWorld, mode: str = "REQUEUE", grace: int = 0, **policy: Any) -> World:
    """Two nodes of eight CPUs; jobs of high may preempt those of low."""
    rules = PreemptionPolicy(type="partition_prio", mode=tuple(mode.split(",")), **policy)
    homes = tuple(
        Partition(
            name=name,
            nodes=NAMES,
            default=name == "low",
            priority_tier=tier,
            oversubscribe="FORCE:1",
            grace_seconds=grace,
        )
        for name, tier in (("low", 1), ("high", 5))
    )
    settings = ClusterSettings(preemption=rules, max_job_count=100, scheduler_parameters=(("hetjob_share_nodes", ""),))
    world: World = make_world(nodes=2, settings=settings, partitions=homes)
    return world


def preempt(world: World, victim: int, mode: str = "REQUEUE", by: int = 0, **changes: Any) -> Outcome:
    """A plan in which a job of high (a new one, unless given) takes all of n1 from `victim`."""
    by = by or world.submit(partitions=("high",))
    planned: dict[str, Any] = {
        "job_id": by,
        "allocation": Allocation(partition="high", nodes=(node_share("n1", 8),)),
        "victims": (PlannedVictim(victim, PreemptMode(mode)),),
    }
    return world.do(ApplyPlan(plan=Plan(preemptions=(PlannedPreemption(**(planned | changes)),))))


def messages(outcome: Outcome) -> tuple[str, ...]:
    return tuple(getattr(outcome.reply, "messages", ()))


def signals(effects: tuple[Effect, ...]) -> list[tuple[str, int, bool]]:
    return [(one.node, one.signal, one.batch) for one in only(effects, SignalOn)]


def test_without_a_grace_time_the_job_ends_at_once_and_is_told_why(make_world: MakeWorld) -> None:
    world = made(make_world)
    job = world.submit()
    world.start(job, "n1", cpus=8)
    outcome = preempt(world, job)
    assert [one.cause for one in only(outcome.effects, TerminateJobOn)] == ["PREEMPTED"]
    assert world.job(job).state is JobState.PENDING
    world.gone(job)
    world.advance(10)
    world.start(job, "n2")
    assert world.job(job).preempted_at == 0.0, "a new life has not been preempted"


def test_the_warning_goes_to_the_steps(make_world: MakeWorld) -> None:
    world = made(make_world, grace=30)
    job = world.submit()
    world.start(job, "n1", "n2", cpus=8)
    outcome = preempt(world, job)
    assert sorted(signals(outcome.effects)) == [(name, number, False) for name in NAMES for number in (15, 18)]
    effects = world.advance(30)
    assert sorted(one.node for one in only(effects, TerminateJobOn)) == ["n1", "n2"]


@pytest.mark.parametrize("own", [True, False])
def test_the_warning_is_the_jobs_own_signal_if_the_administrator_says_so(make_world: MakeWorld, own: bool) -> None:
    world = made(make_world, grace=30, send_user_signal=own)
    job = world.submit(end_signal=EndSignal(signal=10, batch=True), time_limit_minutes=60)
    world.start(job, "n1", cpus=8)
    outcome = preempt(world, job)
    expected = [("n1", 10, True)] if own else [("n1", 18, False), ("n1", 15, False)]
    assert signals(outcome.effects) == expected


@pytest.mark.parametrize(("status", "state"), [(0, JobState.COMPLETED), (3 << 8, JobState.PENDING)])
def test_a_script_that_ends_in_the_grace_time(make_world: MakeWorld, status: int, state: JobState) -> None:
    world = made(make_world, grace=30)
    job = world.submit()
    world.start(job, "n1", cpus=8)
    preempt(world, job)
    world.finished(job, status)
    assert world.job(job).state is state


@pytest.mark.parametrize("whole", [False, True], ids=["for a job", "for a heterogeneous job"])
@pytest.mark.parametrize(
    ("mode", "state", "lives"), [("REQUEUE", JobState.PENDING, 1), ("CANCEL", JobState.PREEMPTED, 0)]
)
def test_components_go_once_when_several_are_in_the_way(
    make_world: MakeWorld, mode: str, state: JobState, lives: int, whole: bool
) -> None:
    world = made(make_world, mode)
    world.submit_het({}, {})
    world.start_het(1, "n1", "n1", cpus=4)
    victims = [PlannedVictim(number, PreemptMode(mode)) for number in (1, 2)]
    if whole:
        world.submit_het({"partitions": ("high",)}, {"partitions": ("high",)})
        allocation = Allocation(partition="high", nodes=(node_share("n1", "f0"),))
        other = PlannedPreemption(job_id=4, allocation=allocation, victims=(victims[1],))
        allocation = Allocation(partition="high", nodes=(node_share("n1", "f"),))
        outcome = preempt(world, 1, mode, by=3, allocation=allocation, victims=(victims[0],), others=(other,))
    else:
        outcome = preempt(world, 1, mode, victims=tuple(victims))
    assert not messages(outcome)
    assert [(world.job(number).state, world.job(number).restart_count) for number in (1, 2)] == [(state, lives)] * 2
    world.check()


@pytest.mark.parametrize(
    ("changes", "mode", "why"),
    [
        ({"victims": (PlannedVictim(99, PreemptMode.REQUEUE),)}, "REQUEUE", "not running"),
        ({}, "CANCEL", "not preemptable"),
        ({"allocation": Allocation(partition="low", nodes=(node_share("n1", 8),))}, "REQUEUE", "not preemptable"),
        ({"allocation": Allocation(partition="high", nodes=(node_share("n2", 8),))}, "REQUEUE", "CPUs in use"),
        ({"job_id": 99}, "REQUEUE", "not running"),
    ],
)
def test_a_stale_plan_preempts_no_job(make_world: MakeWorld, changes: dict[str, Any], mode: str, why: str) -> None:
    world = made(make_world)
    job, other = world.submit(), world.submit()
    world.start(job, "n1", cpus=8)
    world.start(other, "n2", cpus=8)
    outcome = preempt(world, job, mode, **changes)
    assert outcome.events == ()
    assert why in messages(outcome)[0]


def test_exempt_jobs_are_left_alone(make_world: MakeWorld) -> None:
    world = made(make_world, exempt_seconds=60)
    job, by = world.submit(), world.submit(partitions=("high",))
    world.start(job, "n1", cpus=8)
    assert "exempt" in messages(preempt(world, job, by=by))[0]
    world.advance(60)
    assert messages(preempt(world, job, by=by)) == ()


def test_a_suspended_job_is_stopped_on_all_nodes_and_goes_on_after_a_restart_too(make_world: MakeWorld) -> None:
    world = made(make_world, "SUSPEND,GANG")
    job, by = world.submit(), world.submit(partitions=("high",))
    world.start(job, "n1", "n2", cpus=8)
    outcome = preempt(world, job, "SUSPEND", by=by)
    assert [(one.node, one.resume) for one in only(outcome.effects, SuspendOn)] == [("n1", False), ("n2", False)]
    assert (world.job(job).suspended_by, world.job(by).state) == ("preempt", JobState.RUNNING)
    world.machine = Machine.from_image(world.machine.image())
    world.advance(5)
    world.finished(by)
    assert world.job(job).state is JobState.RUNNING
    assert world.job(job).suspended_seconds == 5
    assert suspension(world.job(job)) == (world.now, 0), "as scontrol shows it: SuspendTime and SecsPreSuspend"


def test_a_suspended_job_goes_on_when_a_lost_node_takes_the_preemptor_with_it(make_world: MakeWorld) -> None:
    world = made(make_world, "SUSPEND,GANG")
    job, by = world.submit(), world.submit(partitions=("high",), no_kill=True)
    world.start(job, "n1", cpus=8)
    preempt(world, job, "SUSPEND", by=by)
    world.cancel(by)
    world.gone(by)
    assert world.job(job).state is JobState.RUNNING


def test_a_suspended_job_can_be_cancelled(make_world: MakeWorld) -> None:
    world = made(make_world, "SUSPEND,GANG")
    job = world.submit()
    world.start(job, "n1", cpus=8)
    preempt(world, job, "SUSPEND")
    world.cancel(job)
    world.gone(job)
    assert (world.job(job).state, world.job(job).suspended_by) == (JobState.CANCELLED, "")


@pytest.mark.parametrize(
    ("oversubscribe", "shown"), [("FORCE:2", "oversubscribe"), ("EXCLUSIVE", "exclusive"), ("NO", "")]
)
def test_a_job_records_what_its_partition_makes_of_it(make_world: MakeWorld, oversubscribe: str, shown: str) -> None:
    home = Partition(name="p", nodes=NAMES, default=True, oversubscribe=oversubscribe)
    world = make_world(nodes=2, partitions=(home,))
    assert world.job(world.submit()).spec.sharing.value == shown
