"""Heterogeneous jobs: all components start together or none does, and all are promised one start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec import structs

from spritz.model.events.job import JobHeld
from spritz.model.job.record import Hold, Sharing
from spritz.model.reasons import Reason
from spritz.model.states import NodeFlag, NodeState
from spritz.scheduling.placement.earliest import earliest
from spritz.scheduling.plan import gangs
from spritz.scheduling.plan.feasible import check_whole
from spritz.scheduling.plan.gangs import fits_empty
from spritz.scheduling.view.resolve import resolve
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, partition, spec


def four(**fields: object) -> Site:
    """Four nodes of eight CPUs."""
    return Site([node(f"n{number}") for number in range(1, 5)], **fields)  # type: ignore[arg-type]


def promised(site: Site) -> dict[int, float]:
    """Planned starts, by component."""
    found = {}
    for request, items in site.projection.ledger.by_request.items():
        if request.component:
            found[request.component] = items[0].start_at
    return found


def test_all_components_start_in_one_cycle_on_resources_of_their_own() -> None:
    site = four()
    first = site.submit_het(spec(4), spec(nodes=2, tasks=2), spec(8))
    started = site.cycle()
    assert sorted(started) == [first, first + 1, first + 2]
    assert len(started[first + 1].nodes) == 2


SHARING = structs.replace(SETTINGS, scheduler_parameters=(("hetjob_share_nodes", ""),))


def test_components_are_on_nodes_of_their_own() -> None:
    """As in Slurm, now and in what is promised."""
    site = Site([node("n1"), node("n2")])
    busy = site.submit(spec(4, node_list=("n2",), sharing=Sharing.EXCLUSIVE, time_limit_minutes=30))
    site.cycle()
    first = site.submit_het(spec(1), spec(1))
    assert site.cycle() == {}
    assert set(promised(site).values()) == {site.now + 1800.0}
    site.end(busy)
    started = site.cycle()
    assert started[first].names != started[first + 1].names
    assert check_whole([spec(1)] * 3, site.projection.snapshot(site.now)) is not None


def test_components_are_not_refused_because_no_place_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are placed one after another, which proves nothing; too few nodes do, and too few CPUs."""
    monkeypatch.setattr(gangs, "together", lambda *_args, **_options: None)
    snapshot = Site([node("n1"), node("n2")]).projection.snapshot(0.0)
    assert check_whole([spec(1), spec(8)], snapshot) is None
    assert check_whole([spec(1), spec(9)], snapshot) is not None
    assert check_whole([spec(1, node_list=("n1",)), spec(1, exclude=("n2",))], snapshot) is not None
    shared = Site([node("n1")], settings=SHARING).projection.snapshot(0.0)
    assert check_whole([spec(4), spec(4)], shared) is None
    assert check_whole([spec(4), spec(5)], shared) is not None


def test_components_take_the_nodes_that_only_they_can_use_last_of_all() -> None:
    """The second one has n1 alone, so the first goes elsewhere."""
    site = Site([node("n1"), node("n2")])
    first = site.submit_het(spec(1), spec(1, node_list=("n1",)))
    started = site.cycle()
    assert (started[first].names, started[first + 1].names) == (("n2",), ("n1",))


def test_components_share_a_node_where_the_site_lets_them() -> None:
    site = Site([node("n1")], settings=SHARING)
    first = site.submit_het(spec(4), spec(4))
    assert sorted(site.cycle()) == [first, first + 1]


def test_none_starts_while_one_has_no_place_and_all_are_promised_the_same_start() -> None:
    site = four()
    busy = site.submit(spec(nodes=3, tasks=24, time_limit_minutes=30))
    assert busy in site.cycle()
    first = site.submit_het(spec(4), spec(nodes=2, tasks=2))
    assert site.cycle() == {}
    assert promised(site) == {first: site.now + 1800.0, first + 1: site.now + 1800.0}
    assert site.jobs[first].expected_start_at == site.now + 1800.0
    site.end(busy)
    assert sorted(site.cycle()) == [first, first + 1]


def test_what_was_found_for_a_promise_is_not_lost_when_the_search_does_not_find_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Places for several are found by trial, and from another beginning not every time."""
    site = four()
    busy = site.submit(spec(nodes=3, tasks=24, time_limit_minutes=30))
    site.cycle()
    first = site.submit_het(spec(nodes=2, tasks=16), spec(8), spec(8))
    assert site.cycle() == {}
    start_at = site.now + 1800.0
    assert promised(site) == {first: start_at, first + 1: start_at, first + 2: start_at}
    where = {
        request.component: items[0].allocation.names
        for request, items in site.projection.ledger.by_request.items()
        if request.component
    }
    monkeypatch.setattr(gangs, "together", lambda *ignored, **apart: None)
    site.now += 60.0
    assert site.cycle() == {}
    site.end(busy)
    assert {number: allocation.names for number, allocation in site.cycle().items()} == where


def test_what_is_promised_to_a_waiting_whole_is_not_given_to_those_behind_it() -> None:
    site = four()
    site.submit(spec(nodes=3, tasks=24, time_limit_minutes=30))
    site.cycle()
    site.submit_het(spec(8), spec(8), spec(8), spec(8))
    site.cycle()
    too_long = site.submit(spec(8, time_limit_minutes=60))
    fills = site.submit(spec(8, time_limit_minutes=30))
    started = site.cycle()
    assert fills in started
    assert too_long not in started


def test_a_promise_that_is_late_is_kept_before_those_of_lower_jobs_behind_it() -> None:
    """A lower-ranked job is planned right behind; however late the start is, it must not push it back for ever."""
    site = Site([node("n1"), node("n2")])
    busy = site.submit(spec(2, nodes=2, sharing=Sharing.EXCLUSIVE, time_limit_minutes=30))
    site.cycle()
    first = site.submit_het(spec(8, time_limit_minutes=60), spec(8, time_limit_minutes=60), priorities=(9, 9))
    behind = site.submit(spec(2, nodes=2, sharing=Sharing.EXCLUSIVE, time_limit_minutes=60))
    assert site.cycle() == {}
    site.now += 1800.5
    site.end(busy)
    started: list[int] = []
    for _ in range(3):
        site.now += 0.01
        started += site.cycle()
    assert sorted(started) == [first, first + 1]
    assert behind not in started


def test_one_that_is_started_at_its_planned_time_overtakes_nobody_and_blocks_nobody() -> None:
    """A lower-ranked job makes way for it: it is no backfilled job, and nor is one that starts behind it."""
    site = Site([node("n1"), node("n2"), node("n3")])
    busy = site.submit(spec(2, nodes=2, node_list=("n1", "n2"), sharing=Sharing.EXCLUSIVE, time_limit_minutes=30))
    site.cycle()
    het = spec(8, time_limit_minutes=60), spec(8, node_list=("n1",), time_limit_minutes=60)
    first = site.submit_het(*het, priorities=(9, 9))
    site.submit(spec(2, nodes=2, node_list=("n1", "n2"), sharing=Sharing.EXCLUSIVE, time_limit_minutes=60))
    assert site.cycle() == {}
    site.now += 1800.5
    site.end(busy)
    behind = site.submit(spec(8, time_limit_minutes=10), priority=5)
    assert {start.job_id: start.backfilled for start in site.plan().starts} == {
        first: False,
        first + 1: False,
        behind: False,
    }


def test_a_component_that_is_held_keeps_the_others() -> None:
    site = four()
    first = site.submit_het(spec(1), spec(1))
    site.apply(JobHeld(at=site.now, job_id=first + 1, hold=Hold.USER, reason=Reason.HELD_USER))
    assert site.cycle() == {}
    assert site.jobs[first].reason is Reason.RESOURCES


def test_a_component_yields_the_node_that_only_another_can_use() -> None:
    site = Site([node("n1", gres=[gpus(2)]), node("n2")])
    first = site.submit_het(spec(8, node_list=()), spec(8, gpus_per_node=2))
    started = site.cycle()
    assert started[first + 1].names == ("n1",)
    assert started[first].names == ("n2",)


def test_components_that_want_overlapping_sets_of_nodes_find_a_way() -> None:
    """Each could take the two nodes in the middle, which the other needs one of."""
    nodes = [
        node("n1", features=("a",)),
        node("n2", features=("a", "b")),
        node("n3", features=("a", "b")),
        node("n4", features=("b",)),
    ]
    site = Site([nodes[1], nodes[2], nodes[0], nodes[3]])
    first = site.submit_het(spec(nodes=2, tasks=16, features="a"), spec(nodes=2, tasks=16, features="b"))
    assert sorted(site.cycle()) == [first, first + 1]


def test_the_lowest_priority_counts_unless_the_configuration_says_otherwise() -> None:
    for mode, before in (("", False), ("min", False), ("avg", True), ("max", True)):
        parameters = (("hetjob_share_nodes", ""), *((("bf_hetjob_prio", mode),) if mode else ()))
        site = Site([node("n1")], settings=structs.replace(SETTINGS, scheduler_parameters=parameters))
        first = site.submit_het(spec(4), spec(4), priorities=[1, 100])
        single = site.submit(spec(8), priority=50)
        started = site.cycle()
        assert (first in started) is before, mode
        assert (single in started) is not before, mode


def test_components_wait_in_partitions_of_their_own() -> None:
    nodes = [node("n1"), node("g1", gres=[gpus(4)])]
    site = Site(nodes, [partition("cpu", nodes[:1], default=True), partition("gpu", nodes[1:])])
    first = site.submit_het(spec(2, partitions=("cpu",)), spec(1, gpus_per_node=4, partitions=("gpu",)))
    started = site.cycle()
    assert started[first].partition == "cpu"
    assert started[first + 1].partition == "gpu"


def test_a_plan_is_the_same_with_and_without_what_earlier_cycles_remember() -> None:
    site = four()
    site.submit(spec(nodes=4, tasks=32, time_limit_minutes=5))
    site.cycle()
    site.submit_het(spec(8), spec(nodes=3, tasks=24))
    site.cycle()
    remembered = site.plan(64)
    site.projection.queue.forget_failures()
    assert site.plan(64).starts == remembered.starts == ()


def test_components_that_fit_nowhere_together_wait_without_blocking_other_jobs() -> None:
    site = Site([node("n1")])
    site.submit_het(spec(8), spec(8))
    single = site.submit(spec(8))
    assert list(site.cycle()) == [single]


def test_components_without_a_promise_are_expected_to_start_together_as_well() -> None:
    site = four(settings=structs.replace(SETTINGS, scheduler_parameters=(("bf_max_job_test", "0"),)))
    site.submit(spec(nodes=4, tasks=32, time_limit_minutes=30))
    site.cycle()
    site.submit(spec(nodes=4, tasks=32, time_limit_minutes=30))
    first = site.submit_het(spec(1), spec(nodes=4, tasks=32))
    forecast = site.plan().forecast
    assert forecast is not None
    starts = dict(zip(np.frombuffer(forecast.job_ids, np.int64), np.frombuffer(forecast.start_at), strict=True))
    assert starts[first] == starts[first + 1] > site.now


def test_together_on_an_empty_cluster() -> None:
    site = four()
    part = site.partitions[0]

    def fit(*requests: object) -> bool:
        choices = [[resolve(request, part, SETTINGS)] for request in requests]  # type: ignore[arg-type]
        table = site.projection.snapshot(site.now).ideal_table()
        return fits_empty(table, choices, site.projection.eligibility, apart=True)

    assert fit(spec(nodes=2, tasks=16), spec(nodes=2, tasks=16))
    assert not fit(spec(nodes=2, tasks=16), spec(nodes=3, tasks=24))


def test_a_heterogeneous_job_whose_start_cannot_be_earlier_is_not_placed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a full cycle after something was freed it is found by the largest component alone."""
    here = Site([node(f"n{number}", 8) for number in range(12)])
    for number in range(12):
        here.submit(spec(8, nodes=1, time_limit_minutes=60 + number))
    here.cycle()
    many = 10
    for _ in range(many):
        here.submit_het(spec(8, nodes=1), spec(24, nodes=3), spec(16, nodes=2))
    here.cycle()
    here.end(1)
    asked: list[int] = []

    def counted(*args: Any) -> Any:
        asked.append(1)
        return earliest(*args)

    monkeypatch.setattr(gangs, "earliest", counted)
    here.cycle()
    assert len(asked) <= 2 * many


def test_components_do_not_start_where_a_job_that_has_ended_still_is() -> None:
    site = Site([node("n1", 2), node("n2", 2)])
    first = site.submit(spec(2, nodes=1, time_limit_minutes=1))
    site.cycle()
    site.now += 600
    site.end(first, completing=("n1",))
    site.submit_het(spec(2, nodes=1), spec(2, nodes=1))
    # `Site` sees to it that the core accepts every start.
    assert site.cycle() == {}
    site.gone(first, "n1")
    assert len(site.cycle()) == 2


def test_one_that_is_larger_than_what_is_ever_free_is_promised_nothing() -> None:
    here = Site([node("n1", 8), node("n2", 8)])
    here.set_node("n2", NodeState.IDLE, NodeFlag.DRAIN)
    here.submit(spec(8, nodes=1))
    here.cycle()
    here.submit_het(spec(8, nodes=1), spec(10, nodes=2, overcommit=True), spec(8, nodes=1))
    assert here.cycle() == {}
    assert promised(here) == {}


def test_no_more_jobs_overtake_than_are_allowed_if_one_is_heterogeneous() -> None:
    """Source: slurm.conf(5) SchedulerParameters=bf_max_job_start."""
    parameters = (("bf_max_job_start", "1"),)
    site = Site(
        [node(f"n{i}") for i in range(1, 6)], settings=structs.replace(SETTINGS, scheduler_parameters=parameters)
    )
    site.submit(spec(2, node_list=("n1",), sharing=Sharing.EXCLUSIVE, time_limit_minutes=30))
    site.cycle()
    site.submit(spec(5, nodes=5, sharing=Sharing.EXCLUSIVE, time_limit_minutes=60))
    single = site.submit(spec(2, time_limit_minutes=10))
    het = site.submit_het(spec(2, time_limit_minutes=10), spec(2, time_limit_minutes=10))
    assert [sorted(site.cycle()) for _ in range(2)] == [[single], [het, het + 1]]
