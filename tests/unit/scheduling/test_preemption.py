"""Which jobs make room for which: the fewest and cheapest, by partition priority, and none in vain.

Source: slurm.conf(5) PreemptType, PreemptMode, GraceTime, PreemptExemptTime, PreemptParameters.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.cluster.priority import PriorityInputs, PriorityPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, Tick
from spritz.model.commands.job import UpdateJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import JobSpec, Sharing
from spritz.model.plan import Plan
from spritz.model.resources import GresCapacity
from spritz.model.states import JobState
from spritz.scheduling.placement.place import place
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec


def site(
    mode: str = "REQUEUE",
    *,
    nodes: int = 2,
    cpus: int = 4,
    gpus: int = 0,
    low: Any = None,
    settings: ClusterSettings = SETTINGS,
    **policy: Any,
) -> Site:
    """Partitions low and high on the same nodes; jobs of high may preempt those of low."""
    gres = (GresCapacity(name="gpu", count=gpus),) if gpus else ()
    configs = [node(f"n{number}", cpus, gres=gres) for number in range(1, nodes + 1)]
    options: dict[str, Any] = {"oversubscribe": "FORCE:1"} if "SUSPEND" in mode else {}
    rules = PreemptionPolicy(type="partition_prio", mode=tuple(mode.split(",")), **policy)
    return Site(
        configs,
        [
            partition("low", configs, default=True, priority_tier=1, **options | (low or {})),
            partition("high", configs, priority_tier=10, **options),
        ],
        structs.replace(settings, preemption=rules, requeue_delay_seconds=5.0),
    )


def run(here: Site) -> Plan:
    """A cycle, applied; the core must drop nothing."""
    plan = here.plan()
    outcome = here.machine.handle(ApplyPlan(plan=plan), here.now)
    assert getattr(outcome.reply, "messages", ()) == (), outcome.reply
    here.projection.follow(outcome.changes)
    return plan


def tick(here: Site) -> None:
    here.projection.follow(here.machine.handle(Tick(), here.now).changes)


def leave(here: Site) -> None:
    """Every node reports that ended jobs are gone."""
    for job in list(here.jobs.values()):
        for name in job.completing:
            here.gone(job.id, name)


def low(**fields: Any) -> JobSpec:
    return spec(batch=True, **fields)


def high(**fields: Any) -> JobSpec:
    return spec(batch=True, partitions=("high",), **fields)


def states(here: Site, *jobs: int) -> list[str]:
    return [here.jobs[job].state.value for job in jobs]


def victims(plan: Plan) -> list[list[int]]:
    return [[victim.job_id for victim in item.victims] for item in plan.preemptions]


def test_a_job_of_a_lower_tier_is_requeued_and_the_higher_one_starts_when_it_has_left() -> None:
    here = site()
    first = here.submit(low(tasks=8))
    run(here)
    second = here.submit(high(tasks=4))
    assert victims(run(here)) == [[first]]
    assert states(here, first, second) == ["PENDING", "PENDING"]
    assert here.jobs[first].restart_count == 1
    assert here.jobs[first].preempted_at == here.now
    assert run(here).preemptions == (), "once is enough"
    leave(here)
    run(here)
    assert states(here, first, second) == ["PENDING", "RUNNING"]


@pytest.mark.parametrize("again", [True, False])
def test_with_calculate_running_the_priority_of_a_victim_is_what_it_would_have_now(again: bool) -> None:
    """Source: slurm.conf(5) PriorityFlags=CALCULATE_RUNNING."""
    policy = PriorityPolicy(weight_fairshare=1000, calculate_running=again)
    settings = structs.replace(SETTINGS, priority_multifactor=True, priority_policy=policy)
    here = site("REQUEUE,PRIORITY", settings=settings)
    here.projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.9, ("a", "v"): 0.5}))
    first = here.submit(low(tasks=8, account="a", user="u"))
    run(here)
    second = here.submit(high(tasks=8, account="a", user="v"))
    run(here)
    assert states(here, first, second) == ["RUNNING", "PENDING"]
    here.projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.1, ("a", "v"): 0.5}))
    assert victims(run(here)) == ([[first]] if again else [])


def test_a_job_of_the_same_tier_is_left_alone() -> None:
    here = site()
    here.submit(high(tasks=8))
    run(here)
    here.submit(high(tasks=1))
    assert run(here).preemptions == ()


def test_nothing_is_preempted_for_a_job_that_could_not_start_all_the_same() -> None:
    here = site()
    here.submit(high(tasks=4))
    run(here)
    here.submit(low(tasks=4))
    run(here)
    here.submit(high(nodes=2, tasks=2, sharing=Sharing.EXCLUSIVE))
    assert run(here).preemptions == ()


@pytest.mark.parametrize(("requeue", "after"), [(True, "PENDING"), (False, "PREEMPTED")])
def test_a_job_that_may_not_queue_again_is_cancelled(requeue: bool, after: str) -> None:
    here = site()
    first = here.submit(low(tasks=8, requeue=requeue))
    run(here)
    here.submit(high(tasks=8))
    run(here)
    assert states(here, first) == [after]


def test_cancelled_jobs_are_preempted_with_the_exit_code_of_sigterm() -> None:
    here = site("CANCEL")
    first = here.submit(low(tasks=8))
    run(here)
    here.submit(high(tasks=8))
    run(here)
    assert (here.jobs[first].state, here.jobs[first].exit_status) == (JobState.PREEMPTED, 15)


def test_the_fewest_jobs_go_even_if_each_of_more_were_cheaper() -> None:
    here = site(nodes=1, cpus=4)
    small = [here.submit(low(tasks=1), priority=1) for _ in range(2)]
    large = here.submit(low(tasks=2), priority=5)
    run(here)
    here.submit(high(tasks=2))
    assert victims(run(here)) == [[large]]
    assert states(here, *small) == ["RUNNING", "RUNNING"]


def test_strict_order_takes_the_lowest_priorities_even_if_more_must_go() -> None:
    here = site(nodes=1, cpus=4, strict_order=True)
    small = [here.submit(low(tasks=1), priority=1) for _ in range(2)]
    here.submit(low(tasks=2), priority=5)
    run(here)
    here.submit(high(tasks=2))
    assert victims(run(here)) == [small]


def test_one_of_two_equals_goes_the_one_that_has_done_less() -> None:
    here = site(nodes=2, cpus=4)
    here.submit(low(tasks=4))
    run(here)
    here.now += 100
    young = here.submit(low(tasks=4))
    run(here)
    here.submit(high(tasks=4))
    assert victims(run(here)) == [[young]]


@pytest.mark.parametrize("youngest_first", [True, False])
def test_youngest_first_comes_before_priority(youngest_first: bool) -> None:
    here = site(nodes=2, cpus=4, youngest_first=youngest_first)
    old = here.submit(low(tasks=4), priority=1)
    run(here)
    here.now += 100
    young = here.submit(low(tasks=4), priority=9)
    run(here)
    here.submit(high(tasks=4))
    assert victims(run(here)) == [[young if youngest_first else old]]


def test_a_job_over_two_nodes_goes_rather_than_two_jobs_on_one_each() -> None:
    here = site(nodes=4, cpus=2)
    wide = here.submit(low(nodes=2, tasks=4))
    here.submit(low(tasks=2))
    here.submit(low(tasks=2))
    run(here)
    here.submit(high(nodes=2, tasks=4))
    assert victims(run(here)) == [[wide]]


def test_what_is_free_and_what_is_leaving_is_used_before_more_must_go() -> None:
    here = site(nodes=3, cpus=4)
    first, second = (here.submit(low(tasks=4)) for _ in range(2))
    run(here)
    wide = here.submit(high(nodes=2, tasks=8))
    assert len(victims(run(here))[0]) == 1
    later = here.submit(low(tasks=1))
    run(here)
    assert states(here, later) == ["PENDING"], "the free node is kept for the job that waits for the other"
    leave(here)
    run(here)
    assert states(here, wide) == ["RUNNING"]
    assert sorted(states(here, first, second)) == ["PENDING", "RUNNING"]


def test_gpus_are_what_counts_where_they_are_asked_for() -> None:
    here = site(nodes=2, cpus=8, gpus=4)
    here.submit(low(tasks=1, nodes=1, node_list=("n1",)))
    eater = here.submit(low(tasks=1, gpus_per_node=4, node_list=("n1",)))
    other = here.submit(low(tasks=1, gpus_per_node=1, node_list=("n2",)))
    run(here)
    here.submit(high(nodes=2, gpus_per_node=4))
    assert victims(run(here)) == [sorted([eater, other])]


def test_jobs_of_an_array_each_get_their_room() -> None:
    here = site(nodes=2, cpus=4)
    first, second = (here.submit(low(tasks=4)) for _ in range(2))
    run(here)
    here.submit(high(tasks=4), array=range(3))
    assert sorted(victims(run(here))) == [[first], [second]]
    leave(here)
    run(here)
    assert sum(job.state is JobState.RUNNING for job in here.jobs.values()) == 2


def test_exempt_time_and_exempt_priority_spare_a_job() -> None:
    here = site(nodes=1, exempt_seconds=60, min_exempt_priority=100)
    here.submit(low(tasks=4), priority=1)
    run(here)
    here.submit(high(tasks=4))
    assert run(here).preemptions == ()
    here.now += 60
    assert len(run(here).preemptions) == 1
    here = site(nodes=1, min_exempt_priority=100)
    here.submit(low(tasks=4, priority=100), priority=100)
    run(here)
    here.submit(high(tasks=4))
    assert run(here).preemptions == ()


def test_a_partition_can_keep_its_jobs_from_being_preempted() -> None:
    here = site(nodes=1, low={"preempt_mode": "OFF"})
    here.submit(low(tasks=4))
    run(here)
    here.submit(high(tasks=4))
    assert run(here).preemptions == ()


def test_a_grace_time_is_waited_for_and_then_the_job_goes() -> None:
    here = site(nodes=1, low={"grace_seconds": 20})
    first = here.submit(low(tasks=4))
    run(here)
    second = here.submit(high(tasks=4))
    run(here)
    assert here.jobs[first].ends_at == here.now + 20
    assert states(here, first) == ["RUNNING"]
    here.now += 19
    tick(here)
    assert run(here).preemptions == ()
    assert states(here, first) == ["RUNNING"]
    here.now += 1
    tick(here)
    assert states(here, first) == ["PENDING"]
    leave(here)
    run(here)
    assert states(here, second) == ["RUNNING"]


def test_a_suspended_job_makes_room_at_once_and_goes_on_when_the_other_has_ended() -> None:
    here = site("SUSPEND,GANG", nodes=2)
    first = here.submit(low(nodes=2, tasks=8))
    run(here)
    second = here.submit(high(tasks=4))
    assert victims(run(here)) == [[first]]
    assert states(here, first, second) == ["SUSPENDED", "RUNNING"]
    third = here.submit(low(tasks=1))
    run(here)
    assert states(here, third) == ["PENDING"], "CPUs of a suspended job wait for it"
    fourth = here.submit(high(tasks=4))
    run(here)
    assert states(here, fourth) == ["RUNNING"], "but not from those that may preempt it"
    here.now += 10
    ends_at = here.jobs[first].ends_at
    end(here, second)
    assert states(here, first) == ["SUSPENDED"]
    end(here, fourth)
    assert states(here, first) == ["RUNNING"]
    assert here.jobs[first].ends_at == ends_at + 10
    assert here.jobs[first].suspended_seconds == 10


def end(here: Site, job_id: int) -> None:
    """scancel, and its nodes are free."""
    from spritz.model.commands.job import CancelJobs
    from spritz.model.job.job_filter import JobFilter, JobTarget
    from spritz.model.node_daemon.reports import JobGone

    job = here.jobs[job_id]
    assert job.allocation is not None
    commands: list[Any] = [CancelJobs(filter=JobFilter(targets=(JobTarget(job_id),)))]
    commands += [JobGone(node=name, job_id=job_id, restart_count=0) for name in job.allocation.names]
    for command in commands:
        here.projection.follow(here.machine.handle(command, here.now).changes)


def test_memory_and_gpus_stay_with_a_suspended_job() -> None:
    here = site("SUSPEND,GANG", nodes=1, gpus=1)
    here.submit(low(tasks=1, gpus_per_node=1))
    run(here)
    here.submit(high(tasks=1, gpus_per_node=1))
    assert run(here).preemptions == ()
    here = site("SUSPEND,GANG", nodes=1)
    here.submit(low(tasks=4, memory_mib_per_node=900))
    run(here)
    here.submit(high(tasks=4, memory_mib_per_node=200))
    assert run(here).preemptions == ()


@pytest.mark.parametrize("kind", ["NO", "EXCLUSIVE", "YES", "FORCE"])
def test_jobs_are_suspended_whatever_oversubscribe_says(kind: str) -> None:
    """As Slurm 22.05 does (tried there)."""
    here = site("SUSPEND,GANG", nodes=1, low={"oversubscribe": kind})
    first = here.submit(low(tasks=4))
    run(here)
    second = here.submit(high(tasks=4))
    run(here)
    assert states(here, first, second) == ["SUSPENDED", "RUNNING"]


@pytest.mark.parametrize("reclaim", [True, False])
def test_licenses_are_reclaimed_if_the_administrator_says_so(reclaim: bool) -> None:
    here = site(nodes=1, reclaim_licenses=reclaim)
    here.projection.settings = structs.replace(here.projection.settings, licenses=(("matlab", 1),))
    here.machine.state.settings = here.projection.settings
    here.projection.rebuild()
    first = here.submit(low(tasks=1, licenses="matlab"))
    run(here)
    here.submit(high(tasks=1, licenses="matlab"))
    assert victims(run(here)) == ([[first]] if reclaim else [])


def test_a_longer_time_limit_is_no_way_out_of_the_grace_time() -> None:
    here = site(nodes=1, low={"grace_seconds": 20})
    first = here.submit(low(tasks=4))
    run(here)
    here.submit(high(tasks=4))
    run(here)
    changes: dict[str, object] = {"time_limit_minutes": 1000}
    outcome = here.machine.handle(UpdateJob(target=JobTarget(first), changes=changes), here.now)
    assert outcome.rejection is None
    here.projection.follow(outcome.changes)
    assert here.jobs[first].ends_at == here.now + 20
    here.now += 20
    tick(here)
    assert states(here, first) == ["PENDING"]


def test_a_node_where_a_stopped_job_keeps_a_gpu_is_not_given_exclusively() -> None:
    here = site("SUSPEND,GANG", nodes=1, gpus=2)
    first = here.submit(low(tasks=1, gpus_per_node=1))
    run(here)
    waiting = here.submit(high(tasks=1, sharing=Sharing.EXCLUSIVE))
    snapshot = here.projection.snapshot(here.now)
    table = snapshot.table.fork()
    stopped = table.rows[0].holders[first].aside()
    table.release(0, first)
    [(_key, shape)] = snapshot.records[waiting].entries
    assert place(table, shape.request, snapshot.eligibility) is not None
    table.charge(0, stopped)
    assert place(table, shape.request, snapshot.eligibility) is None
