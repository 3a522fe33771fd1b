"""Heterogeneous jobs have room made for all of their components, or for none. Source: https://slurm.schedmd.com/preempt.html."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from spritz.core.invariants import breaches
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.events.cluster import PartitionCreated, PartitionUpdated
from spritz.model.plan import Plan
from spritz.model.states import JobState
from tests.unit.scheduling.site import Site, spec
from tests.unit.scheduling.test_guarantees import site as guaranteed
from tests.unit.scheduling.test_guarantees import submit
from tests.unit.scheduling.test_preemption import end, high, leave, low, run, site, states


def preempted(plan: Plan) -> list[int]:
    """Numbers of the victims."""
    parts = [part for whole in plan.preemptions for part in (whole, *whole.others)]
    return sorted(victim.job_id for part in parts for victim in part.victims)


def fill(here: Site, *jobs: dict[str, Any]) -> list[int]:
    """Jobs of low, which run."""
    numbers = [here.submit(low(**fields)) for fields in jobs]
    run(here)
    assert all(here.jobs[number].state is JobState.RUNNING for number in numbers)
    return numbers


def test_all_components_get_their_room_in_one_plan_and_start_together() -> None:
    here = site(nodes=3)
    first, second, third = fill(here, *[{"tasks": 4, "nodes": 1}] * 3)
    gang = here.submit_het(high(tasks=4, nodes=1), high(tasks=2, nodes=1))
    plan = run(here)
    assert len(preempted(plan)) == 2
    assert all(here.jobs[number].awaits_victims_since for number in (gang, gang + 1))
    assert here.jobs[gang].state is JobState.PENDING
    # What was freed first is kept until the rest is.
    later = here.submit(high(tasks=4, nodes=1), priority=99)
    leave(here)
    run(here)
    assert here.jobs[gang].state is here.jobs[gang + 1].state is JobState.RUNNING
    assert here.jobs[later].state is JobState.PENDING
    assert {first, second, third} - set(preempted(plan))


def test_no_job_is_preempted_if_a_component_finds_no_room() -> None:
    here = site(nodes=2)
    fill(here, *[{"tasks": 4, "nodes": 1}] * 2)
    keeps = here.submit(high(tasks=4, nodes=1))
    run(here)
    leave(here)
    run(here)
    assert here.jobs[keeps].state is JobState.RUNNING
    here.submit_het(high(tasks=4, nodes=1), high(tasks=4, nodes=1))
    assert run(here).preemptions == ()


def test_what_is_free_is_taken_before_anybody_has_to_go() -> None:
    here = site(nodes=2)
    (only,) = fill(here, {"tasks": 4, "nodes": 1})
    gang = here.submit_het(high(tasks=4, nodes=1), high(tasks=4, nodes=1))
    plan = run(here)
    assert preempted(plan) == [only]
    leave(here)
    run(here)
    assert here.jobs[gang].state is here.jobs[gang + 1].state is JobState.RUNNING


def test_components_of_low_partitions_only_take_what_is_free() -> None:
    here = site(nodes=3)
    fill(here, *[{"tasks": 4, "nodes": 1}] * 3)
    here.submit_het(high(tasks=4, nodes=1), low(tasks=4, nodes=1))
    assert run(here).preemptions == ()


def test_victims_are_suspended_for_all_components_at_once_and_go_on_after_them() -> None:
    here = site("SUSPEND,GANG", nodes=3)
    first, second, third = fill(here, *[{"tasks": 4, "nodes": 1}] * 3)
    gang = here.submit_het(high(tasks=4, nodes=1), high(tasks=2, nodes=1))
    plan = run(here)
    assert len(preempted(plan)) == 2
    assert states(here, gang, gang + 1) == ["RUNNING", "RUNNING"]
    assert sorted(states(here, first, second, third)) == ["RUNNING", "SUSPENDED", "SUSPENDED"]
    assert breaches(here.machine.state) == []
    end(here, gang)
    end(here, gang + 1)
    assert states(here, first, second, third) == ["RUNNING"] * 3


def test_no_job_is_suspended_if_a_component_finds_no_room() -> None:
    here = site("SUSPEND,GANG")
    fill(here, *[{"tasks": 4, "nodes": 1}] * 2)
    here.submit_het(high(tasks=4, nodes=1), high(tasks=4, nodes=2, tasks_per_node=2))
    plan = run(here)
    assert (plan.preemptions, plan.starts) == ((), ())


def test_jobs_to_be_suspended_run_on_until_jobs_to_be_ended_have_left() -> None:
    here = site("SUSPEND,GANG", nodes=2, low={"preempt_mode": "SUSPEND"})
    other = structs.replace(here.machine.state.partitions["low"], name="brief", preempt_mode="CANCEL")
    here.apply(PartitionCreated(at=here.now, partition=other))
    stays = here.submit(low(tasks=4, nodes=1))
    ends = here.submit(low(tasks=4, nodes=1, partitions=("brief",)))
    run(here)
    gang = here.submit_het(high(tasks=4, nodes=1), high(tasks=4, nodes=1))
    run(here)
    assert states(here, stays, ends, gang, gang + 1) == ["RUNNING", "PREEMPTED", "PENDING", "PENDING"]
    leave(here)
    run(here)
    assert states(here, stays, gang, gang + 1) == ["SUSPENDED", "RUNNING", "RUNNING"]


def test_a_heterogeneous_victim_goes_as_a_whole_once() -> None:
    here = site(nodes=2)
    victim = here.submit_het(low(tasks=4, nodes=1), low(tasks=4, nodes=1))
    run(here)
    gang = here.submit_het(high(tasks=4, nodes=1), high(tasks=4, nodes=1))
    run(here)
    assert here.jobs[victim].state is not JobState.RUNNING
    leave(here)
    run(here)
    assert here.jobs[gang].state is here.jobs[gang + 1].state is JobState.RUNNING


sizes = st.tuples(st.integers(1, 2), st.integers(1, 4))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["REQUEUE", "SUSPEND,GANG"]),
    st.integers(1, 4),
    st.lists(sizes, max_size=8),
    st.lists(sizes, min_size=2, max_size=3),
)
def test_jobs_are_preempted_only_for_a_job_that_starts_once_they_have_left(
    mode: str, nodes: int, running: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    here = site(mode, nodes=nodes)
    for count, each in running:
        here.submit(low(tasks=count * each, nodes=count, tasks_per_node=each))
    run(here)
    gang = here.submit_het(*(high(tasks=count * each, nodes=count, tasks_per_node=each) for count, each in wanted))
    plan = run(here)
    assert here.jobs[gang].state is JobState.PENDING or not plan.preemptions or mode != "REQUEUE"
    assert breaches(here.machine.state) == []
    if plan.preemptions:
        leave(here)
        run(here)
        assert here.jobs[gang].state is JobState.RUNNING


def test_a_heterogeneous_job_takes_back_what_its_account_is_guaranteed_and_no_more() -> None:
    here = guaranteed({"ai": "gres/gpu=2"}, nodes=2)
    guests = [submit(here, "guests") for _ in range(8)]
    run(here)
    assert states(here, *guests) == ["RUNNING"] * 8
    one = spec(batch=True, account="vision", user="vision", gpus_per_node=1, nodes=1, tasks=1, time_limit_minutes=600)
    mine = here.submit_het(one, one)
    assert len(preempted(run(here))) == 2
    leave(here)
    run(here)
    assert states(here, mine, mine + 1) == ["RUNNING", "RUNNING"]
    here.submit_het(one, one)
    assert run(here).preemptions == ()


def test_a_plan_with_a_part_of_it_is_dropped_by_the_core() -> None:
    here = site(nodes=2)
    fill(here, *[{"tasks": 4, "nodes": 1}] * 2)
    here.submit_het(high(tasks=4, nodes=1), high(tasks=4, nodes=1))
    (whole,) = here.plan().preemptions
    assert len(whole.others) == 1
    for part in (structs.replace(whole, others=()), whole.others[0]):
        outcome = here.machine.handle(ApplyPlan(plan=Plan(preemptions=(part,))), here.now)
        assert "not all components" in str(outcome.reply)
        assert outcome.events == ()
    # Victims are tested against the component that needs them: that one may not preempt jobs of low.
    here.apply(PartitionUpdated(at=here.now, partition=structs.replace(here.partitions[1], priority_tier=1)))
    outcome = here.machine.handle(ApplyPlan(plan=Plan(preemptions=(whole,))), here.now)
    assert "not preemptable" in str(outcome.reply)
