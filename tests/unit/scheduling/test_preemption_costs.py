"""What preemption costs where it is of no use, or where many could be victims: counts, not times."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.cluster.topology import Switch, Topology
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.plan import Plan
from spritz.scheduling.plan import cycle
from spritz.scheduling.plan.preemption import preemptor as preemption
from spritz.scheduling.plan.preemption import victim_nodes
from spritz.scheduling.plan.preemption.bound import Bound
from spritz.scheduling.plan.preemption.rules import PreemptionRules
from spritz.scheduling.plan.preemption.victims import Victim
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Job numbers of which it was asked by counts whether there could be room, in this order."""
    found: list[int] = []
    could_hold = Bound.could_hold

    def noted(self: Bound, request: Any, eligibility: Any) -> bool:
        found.append(request.time_limit_minutes)
        return could_hold(self, request, eligibility)

    monkeypatch.setattr(Bound, "could_hold", noted)
    return found


def site(nodes: int = 4, topology: Topology | None = None, **policy: Any) -> Site:
    """Nodes of four CPUs; jobs of `high` may preempt those of `low`, and `some` are the first two nodes of high."""
    configs = [node(f"n{number}", 4) for number in range(nodes)]
    rules = PreemptionPolicy(type="partition_prio", mode=("REQUEUE",), **policy)
    return Site(
        configs,
        [
            partition("low", configs, default=True, priority_tier=1),
            partition("high", configs, priority_tier=10),
            partition("some", configs[:2], priority_tier=10),
        ],
        structs.replace(SETTINGS, preemption=rules, topologies=(topology,) if topology is not None else ()),
    )


def full_of_both(here: Site) -> tuple[list[int], list[int]]:
    """Jobs of high on the first two nodes, jobs of low on the others; numbers of both."""
    first = [here.submit(spec(tasks=4, partitions=("some",))) for _ in range(2)]
    here.cycle()
    others = [here.submit(spec(tasks=4, batch=True)) for _ in range(2)]
    here.cycle()
    return first, others


def quick(here: Site) -> Plan:
    plan = here.plan(budget=100)
    here.follow(plan)
    return plan


def test_a_job_that_can_preempt_nothing_useful_is_not_tried_again_when_its_victims_end(asked: list[int]) -> None:
    here = site()
    first, others = full_of_both(here)
    here.submit(spec(tasks=4, partitions=("some",), time_limit_minutes=33))
    assert not quick(here).preemptions
    assert asked == [33]
    asked.clear()
    for job_id in others:
        here.end(job_id)
        assert not quick(here).preemptions
    assert asked == [], "what it may preempt was counted as free before, wherever it is"
    here.end(first[0])
    assert len(quick(here).starts) == 1


def test_what_is_freed_by_others_is_looked_at_only_where_it_could_hold_a_part_of_the_job(asked: list[int]) -> None:
    here = site()
    small = here.submit(spec(tasks=1, partitions=("some",)))
    here.submit(spec(tasks=3, partitions=("some",)))
    here.submit(spec(tasks=4, partitions=("some",)))
    here.submit(spec(tasks=4, batch=True))
    here.cycle()
    here.submit(spec(tasks=2, cpus_per_task=2, nodes=1, partitions=("some",), time_limit_minutes=44))
    quick(here)
    assert asked == [44]
    asked.clear()
    here.end(small)
    assert not quick(here).starts
    assert asked == [], "one CPU was freed, and two are needed for a task"


def test_where_there_are_many_a_quick_cycle_looks_at_the_victims_of_a_few_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many could be victims, the best of them are asked, and the fewest are found."""
    monkeypatch.setattr(preemption, "QUICK_PARTS", 60)
    counts = []
    for size in (80, 240):
        here = low_jobs(size)
        seen: list[int] = []
        real = PreemptionRules.victim

        def noted(self: PreemptionRules, record: Any, mode: Any, seen: list[int] = seen, real: Any = real) -> Victim:
            seen.append(record.id)
            found: Victim = real(self, record, mode)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(PreemptionRules, "victim", noted)
            waits = here.submit(spec(tasks=3, nodes=3, cpus_per_task=4, partitions=("high",)))
            plan = quick(here)
        assert [(item.job_id, len(item.victims)) for item in plan.preemptions] == [(waits, 6)]
        assert not plan.victims_wanted
        youngest = sorted(here.jobs, reverse=True)[1:7]
        assert sorted(victim.job_id for victim in plan.preemptions[0].victims) == sorted(youngest), "least work is lost"
        counts.append(len(seen))
    assert counts[0] == counts[1] <= 2 * victim_nodes.NODES_MIN


def low_jobs(count: int) -> Site:
    """Full of jobs of two CPUs, two on each node, the last the youngest."""
    here = site(nodes=count // 2)
    for _ in range(count):
        here.now += 10
        here.submit(spec(tasks=2, batch=True))
        here.cycle(budget=100)
    return here


def test_a_job_on_many_nodes_is_one_victim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "QUICK_PARTS", 20)
    here = site(nodes=20)
    wide = here.submit(spec(tasks=4, nodes=4, cpus_per_task=4, batch=True))
    here.cycle()
    for _ in range(16):
        here.now += 10
        here.submit(spec(tasks=4, batch=True))
        here.cycle()
    monkeypatch.setattr(victim_nodes, "NODES_MIN", 6)
    monkeypatch.setattr(preemption, "QUICK_PARTS", 8)
    here.submit(spec(tasks=4, nodes=4, cpus_per_task=4, partitions=("high",)))
    plan = quick(here)
    assert [[victim.job_id for victim in item.victims] for item in plan.preemptions] == [[wide]]


def test_victims_among_many_are_on_one_switch_where_the_job_asks_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "QUICK_PARTS", 8)
    names = [f"n{number}" for number in range(20)]
    leaves = tuple(Switch(name=f"s{leaf}", nodes=f"n[{leaf * 4}-{leaf * 4 + 3}]", level=0) for leaf in range(5))
    top = Switch(name="top", nodes="n[0-19]", switches="s[0-4]", level=1)
    here = site(nodes=20, topology=Topology(kind="tree", name="default", switches=(*leaves, top)))
    for number in (0, 5, 10, 15, 1, 2, 3, 6, 7, 4, 8, 9, 11, 12, 13, 14, 16, 17, 18, 19):
        here.now += 10
        here.submit(spec(tasks=4, batch=True, node_list=(names[number],)))
        here.cycle()
    here.submit(spec(tasks=4, nodes=4, cpus_per_task=4, switches=1, partitions=("high",)))
    plan = quick(here)
    assert [item.allocation.names for item in plan.preemptions] == [("n16", "n17", "n18", "n19")]


def test_where_the_best_nodes_do_not_do_a_quick_cycle_leaves_the_search_to_a_full_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = site()
    _first, others = full_of_both(here)
    waits = here.submit(spec(tasks=8, nodes=2, partitions=("high",)))
    monkeypatch.setattr(preemption, "QUICK_PARTS", 1)
    plan = quick(here)
    assert (plan.preemptions, plan.victims_wanted) == ((), True)
    plan = here.plan()
    assert [(item.job_id, len(item.victims)) for item in plan.preemptions] == [(waits, 2)]
    assert {victim.job_id for victim in plan.preemptions[0].victims} == set(others)


def test_what_a_full_cycle_tried_in_vain_no_quick_one_asks_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    here = site(exempt_seconds=300)
    full_of_both(here)
    here.submit(spec(tasks=4, partitions=("high",)))
    monkeypatch.setattr(preemption, "QUICK_PARTS", 1)
    assert quick(here).victims_wanted
    # As in the controller: a copy of the projection makes the full plan, whose findings are lost.
    plan = cycle.run(here.projection.snapshot(here.now)).plan
    here.machine.handle(ApplyPlan(plan=plan), here.now)
    here.projection.adopt(plan)
    again = quick(here)
    assert not again.victims_wanted
    assert again.look_again_at == here.now + 300
    here.now += 300
    assert quick(here).preemptions
