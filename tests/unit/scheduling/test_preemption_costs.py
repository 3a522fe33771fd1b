"""What preemption costs where it is of no use, or where many could be victims: counts, not times."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from spritz.model.commands.cluster import ApplyPlan
from spritz.model.plan import Plan
from spritz.model.preemption import PreemptionPolicy
from spritz.scheduling import cycle, preemption
from spritz.scheduling.occupants import Bound
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


def site(**policy: Any) -> Site:
    """Four nodes of four CPUs; jobs of `high` may preempt those of `low`, and `some` are half of the nodes of high."""
    configs = [node(f"n{number}", 4) for number in range(4)]
    rules = PreemptionPolicy(type="partition_prio", mode=("REQUEUE",), **policy)
    return Site(
        configs,
        [
            partition("low", configs, default=True, priority_tier=1),
            partition("high", configs, priority_tier=10),
            partition("some", configs[:2], priority_tier=10),
        ],
        structs.replace(SETTINGS, preemption=rules),
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


def test_a_quick_cycle_leaves_the_search_for_many_victims_to_a_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here = site()
    _first, others = full_of_both(here)
    waits = here.submit(spec(tasks=4, partitions=("high",)))
    monkeypatch.setattr(preemption, "QUICK_PARTS", 1)
    plan = quick(here)
    assert (plan.preemptions, plan.victims_wanted) == ((), True)
    plan = here.plan()
    assert [(item.job_id, len(item.victims)) for item in plan.preemptions] == [(waits, 1)]
    assert plan.preemptions[0].victims[0].job_id in others


def test_what_a_full_cycle_tried_in_vain_no_quick_one_asks_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    here = site(exempt_seconds=600)
    full_of_both(here)
    here.submit(spec(tasks=4, partitions=("high",)))
    monkeypatch.setattr(preemption, "QUICK_PARTS", 1)
    assert quick(here).victims_wanted
    # As in the controller: a copy of the projection makes the full plan, and remembers nothing here.
    memo = here.projection.memo
    known = dict(memo.no_room)
    plan = cycle.run(here.projection.snapshot(here.now))
    memo.no_room.clear()
    memo.no_room.update(known)
    here.machine.handle(ApplyPlan(plan=plan), here.now)
    here.projection.adopt(plan)
    again = quick(here)
    assert not again.victims_wanted
    assert again.look_again_at == here.now + 600
    here.now += 600
    assert quick(here).victims_wanted
