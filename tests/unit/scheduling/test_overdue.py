"""A job runs past its limit: those that wait behind it keep their order.

Source: slurm.conf(5) KillWait, OverTimeLimit.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.commands.reservation import CreateReservation, ReservationRequest
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec

POLICIES = [(), (("bf_policy", "easy"),), (("bf_predict", ""),), (("bf_predict", "slowdown"),)]


def site_of(parameters: tuple[tuple[str, str], ...], *names: str) -> Site:
    """Nodes of four CPUs; `q` has the lower PriorityTier, `r` the lowest."""
    homes = [partition(name, names, default=name == "p", priority_tier=tier) for name, tier in (("p", 9), ("q", 5))]
    homes.append(partition("r", names, priority_tier=1))
    return Site(
        [node(name, 4) for name in names], partitions=homes, settings=replace(SETTINGS, scheduler_parameters=parameters)
    )


@pytest.mark.parametrize("parameters", POLICIES)
@pytest.mark.parametrize("between", [None, 100, "none"])
def test_a_few_seconds_do_not_cost_a_job_its_place(parameters: tuple[tuple[str, str], ...], between: object) -> None:
    site = site_of(parameters, "n1")
    late = site.submit(spec(4, time_limit_minutes=10))
    site.cycle()
    first = site.submit(spec(4, time_limit_minutes=60))
    site.submit(spec(4, time_limit_minutes=30, partitions=("q",)))
    site.cycle()
    site.now += 605
    if between != "none":
        assert site.cycle(between) == {}  # type: ignore[arg-type]  # "none" is out
    site.now += 30
    site.end(late)
    assert list(site.cycle(100)) == [first]


def test_those_planned_behind_it_keep_their_order_too() -> None:
    site = site_of((), "n1")
    late = site.submit(spec(4, time_limit_minutes=10))
    site.cycle()
    first = site.submit(spec(4, time_limit_minutes=60))
    second = site.submit(spec(4, time_limit_minutes=30, partitions=("q",)))
    third = site.submit(spec(4, time_limit_minutes=20, partitions=("r",)))
    site.cycle()
    site.now += 630
    site.end(late)
    assert list(site.cycle(100)) == [first]
    begun = site.now
    site.cycle()
    promised = {item.holder: item.start_at for items in site.projection.ledger.by_request.values() for item in items}
    assert promised == {second: begun + 3600, third: begun + 5400}
    site.now += 3640
    site.end(first)
    assert list(site.cycle(100)) == [second]
    site.cycle()
    site.now += 1800
    site.end(second)
    assert list(site.cycle(100)) == [third]


def test_a_job_on_other_nodes_is_not_made_late() -> None:
    """A job whose start is overdue does not take a node that is planned for another job."""
    site = site_of((), "n1", "n2")
    late = site.submit(spec(4, time_limit_minutes=10, node_list=("n1",)))
    other = site.submit(spec(4, time_limit_minutes=11, node_list=("n2",)))
    site.cycle()
    first = site.submit(spec(4, time_limit_minutes=60))
    named = site.submit(spec(4, time_limit_minutes=30, node_list=("n2",), partitions=("q",)))
    site.cycle()
    site.now += 660
    site.end(other)
    assert list(site.cycle(100)) == [named]
    site.end(late)
    assert list(site.cycle(100)) == [first]


@pytest.mark.parametrize("quick", [None, 100])
def test_with_preemption_too_nobody_overtakes_while_a_job_leaves(quick: int | None) -> None:
    """A job may then wait for those that are leaving, victims or not, which must not cost it its planned start."""
    nodes = [node("n1", 4)]
    homes = [partition(name, nodes, default=name == "p", priority_tier=tier) for name, tier in (("p", 9), ("q", 5))]
    site = Site(nodes, homes, replace(SETTINGS, preemption=PreemptionPolicy(type="partition_prio", mode=("REQUEUE",))))
    late = site.submit(spec(4, time_limit_minutes=10, partitions=("p",)))
    site.cycle()
    first = site.submit(spec(4, time_limit_minutes=1, partitions=("p",)))
    site.submit(spec(2, time_limit_minutes=30, partitions=("q",)))
    site.cycle()
    site.now += 600
    site.end(late, completing=("n1",))
    assert not site.cycle(quick)
    site.now += 1
    assert not site.cycle()
    site.now += 10
    site.gone(late, "n1")
    assert list(site.cycle(100)) == [first]


def test_a_late_job_that_is_not_the_first_takes_its_place_back_beside_one_that_is_before_it() -> None:
    """One ranks higher and has planned to use a part of the late node; one ranks lower, and wants the whole of it."""
    site = site_of((), "n1", "n2", "n3")
    site.submit(spec(4, time_limit_minutes=3))
    late = site.submit(spec(4, time_limit_minutes=2))
    site.submit(spec(3, time_limit_minutes=6))
    assert len(site.cycle()) == 3
    site.submit(spec(2, 2, cpus_per_task=3, time_limit_minutes=2))
    second = site.submit(spec(2, 2, time_limit_minutes=10))
    site.submit(spec(2, 2, cpus_per_task=4, time_limit_minutes=15))
    site.cycle()
    site.now += 130
    site.end(late)
    assert list(site.cycle()) == [second]


def test_a_full_cycle_makes_the_starts_that_it_plans_for_its_own_time() -> None:
    """It may take half a minute. Its plan comes late then, and the next cycle would find others planned too close
    behind.
    """
    site = site_of((), "n1", "n2", "n3")
    early = site.submit(spec(4, time_limit_minutes=15, node_list=("n1",)))
    late = site.submit(spec(4, time_limit_minutes=10, node_list=("n2",)))
    site.submit(spec(4, time_limit_minutes=15, node_list=("n3",)))
    assert len(site.cycle()) == 3
    first = site.submit(spec(4, time_limit_minutes=10))
    site.submit(spec(8, 2, time_limit_minutes=10, node_list=("n1", "n3")))
    site.submit(spec(4, time_limit_minutes=10, node_list=("n2",)))
    site.cycle()
    site.now += 605
    site.end(early)
    site.end(late)
    plan = site.plan()
    site.now += 25
    started = site.follow(plan)
    assert list(started) == [first]
    assert started[first].names == ("n2",)


def test_equal_jobs_behind_a_late_one_wait_no_longer_than_it_was_late() -> None:
    """Its start drops the planned start right behind it. The others, which are of equal jobs, move up by one place."""
    site = site_of((), "n1")
    late = site.submit(spec(4, time_limit_minutes=10))
    site.cycle()
    waiting = [site.submit(spec(4, time_limit_minutes=30)) for _ in range(4)]
    site.cycle()
    site.now += 610
    site.end(late)
    started_at = site.now
    assert list(site.cycle()) == [waiting[0]]
    (ledger,) = site.projection.ledger.by_request.values()
    assert [item.start_at - started_at for item in ledger] == [1800.0, 3600.0, 5400.0]


@pytest.mark.parametrize("quick", [None, 100])
@pytest.mark.parametrize("late", [10, 100])
def test_equal_jobs_behind_one_that_waits_for_others_to_leave_keep_their_places(quick: int | None, late: int) -> None:
    """If it takes back the planned start right behind it, the job of that one gets no later one of an equal job."""
    nodes = [node("n1", 4)]
    homes = [partition("p", nodes, default=True)]
    site = Site(nodes, homes, replace(SETTINGS, preemption=PreemptionPolicy(type="qos", mode=("REQUEUE",))))
    running = site.submit(spec(4, time_limit_minutes=10))
    site.cycle()
    first, *others = (site.submit(spec(4, time_limit_minutes=3)) for _ in range(4))
    site.cycle()
    due = site.now + 600
    site.now = due
    site.end(running, completing=("n1",))
    site.now += late
    assert not site.cycle(quick)
    site.cycle()
    site.gone(running, "n1")
    assert list(site.cycle(100)) == [first]
    site.cycle()
    (items,) = site.projection.ledger.by_request.values()
    promised = [(item.holder, item.start_at - due - late) for item in items]
    assert promised == list(zip(others, (180.0, 360.0, 540.0), strict=True))


def test_those_planned_behind_a_late_job_are_put_off_as_much_and_overtaken_by_nobody() -> None:
    """The second ranks higher than the late one, which was to be over in time. The third and fourth are behind that."""
    site = site_of((), "n1", "n2")
    running = site.submit(spec(4, time_limit_minutes=10, node_list=("n1",)))
    site.submit(spec(4, time_limit_minutes=30, node_list=("n2",)))
    site.cycle()
    second = site.submit(spec(8, 2, time_limit_minutes=10))
    late = site.submit(spec(4, time_limit_minutes=20, node_list=("n1",)))
    third = site.submit(spec(4, time_limit_minutes=60, node_list=("n2",)))
    fourth = site.submit(spec(8, 2, time_limit_minutes=10))
    begun = site.now
    site.cycle()
    site.now += 600
    site.end(running, completing=("n1",))
    site.now += 5
    assert not site.cycle()
    site.gone(running, "n1")
    assert list(site.cycle(100)) == [late]
    for _ in range(2):
        ledger = site.projection.ledger.by_request
        promised = {item.holder: item.start_at - begun for items in ledger.values() for item in items}
        assert promised == {second: 1805.0, third: 2405.0, fourth: 6005.0}
        site.cycle()


def test_a_job_that_starts_beside_an_equal_one_leaves_that_its_planned_start() -> None:
    """One of them joined the queue when the other had its planned start."""
    site = site_of((), "n1")
    running = site.submit(spec(4, time_limit_minutes=10))
    site.cycle()
    first = site.submit(spec(4, time_limit_minutes=30))
    site.cycle()
    later = site.submit(spec(4, time_limit_minutes=30, nice=-100))
    site.cycle()
    site.end(running)
    started = list(site.cycle(100))
    assert len(started) == 1
    (items,) = site.projection.ledger.by_request.values()
    assert [item.holder for item in items] == [job for job in (first, later) if job not in started]


def test_an_equal_job_that_starts_in_the_same_cycle_leaves_the_one_before_it_its_new_planned_start() -> None:
    """The first in the queue displaces one behind it; beside it there is room for the next, and none for the last."""
    site = site_of((), "n1", "n2")
    site.submit(spec(2, time_limit_minutes=60, node_list=("n1",)))
    early = site.submit(spec(2, time_limit_minutes=10, node_list=("n1",)))
    site.submit(spec(4, time_limit_minutes=8, node_list=("n2",)))
    assert len(site.cycle()) == 3
    equal = [site.submit(spec(1, time_limit_minutes=60)) for _ in range(2)]
    site.submit(spec(2, 1, time_limit_minutes=90, node_list=("n1",)))
    site.submit(spec(1, time_limit_minutes=61, node_list=("n1",)))
    site.cycle()
    site.end(early)
    assert sorted(site.cycle()) == equal


def test_those_put_off_keep_their_places_from_one_that_has_come_since() -> None:
    """The second ranks higher than the late one: the cycle has considered it by the time that it is put off."""
    site = site_of((), "n1", "n2")
    running = site.submit(spec(4, time_limit_minutes=10, node_list=("n1",)))
    site.submit(spec(4, time_limit_minutes=30, node_list=("n2",)))
    site.cycle()
    second = site.submit(spec(8, 2, time_limit_minutes=10))
    late = site.submit(spec(4, time_limit_minutes=20, node_list=("n1",)))
    begun = site.now
    site.cycle()
    site.now += 605
    site.end(running)
    newest = site.submit(spec(8, 2, time_limit_minutes=30))
    plan = site.cycle_plan()
    assert [start.job_id for start in plan.starts] == [late]
    assert {item.holder: item.start_at - begun for item in plan.future_starts or ()} == {second: 1805.0, newest: 2405.0}


def reserve(site: Site, name: str, start: float) -> None:
    request = ReservationRequest(
        name="r", users=("alice",), nodes=(name,), start_at=site.now + start, duration_seconds=9000.0
    )
    site.send(CreateReservation(request=request))


def test_reservations_of_other_nodes_do_not_matter_to_those_that_are_put_off() -> None:
    site = site_of((), "n1", "n2")
    reserve(site, "n2", 0.0)
    late = site.submit(spec(4, time_limit_minutes=10))
    site.cycle()
    first, second = site.submit(spec(4, time_limit_minutes=60)), site.submit(spec(4, time_limit_minutes=30))
    site.cycle()
    site.now += 630
    site.end(late)
    assert list(site.cycle(100)) == [first]
    (item,) = (item for items in site.projection.ledger.by_request.values() for item in items)
    assert (item.holder, item.start_at) == (second, site.now + 3600)


@pytest.mark.parametrize("quick", [None, 100])
def test_a_late_job_does_not_run_into_a_reservation(quick: int | None) -> None:
    """The core would refuse the start, again and again."""
    site = site_of((), "n1")
    reserve(site, "n1", 4200.0)
    late = site.submit(spec(4, time_limit_minutes=10))
    site.cycle()
    site.submit(spec(4, time_limit_minutes=60))
    site.cycle()
    site.now += 605
    site.end(late)
    assert not site.cycle(quick)
    site.cycle()
    (item,) = (item for items in site.projection.ledger.by_request.values() for item in items)
    assert item.start_at == 1000.0 + 4200.0 + 9000.0


@pytest.mark.parametrize("quick", [None, 100])
def test_equal_jobs_change_places_if_the_nodes_of_the_second_are_free_first(quick: int | None) -> None:
    """Then the second waits for those of the first. One behind them, for which there is room already, does not."""
    site = site_of((), "n1", "n2")
    running = [site.submit(spec(2, 1, time_limit_minutes=10)) for _ in range(4)]
    homes = site.cycle()
    equal = [site.submit(spec(4, 1, time_limit_minutes=60)) for _ in range(2)]
    site.submit(spec(2, 1, time_limit_minutes=60))
    site.cycle()
    items = next(iter(site.projection.ledger.by_request.values()))
    (name,) = items[0].allocation.names
    site.now += 600
    last = next(job for job in running if homes[job].names == (name,))
    for job in running:
        site.end(job, completing=(name,) if job == last else ())
    site.now += 5
    assert list(site.cycle(quick)) == [equal[0]]
    site.now += 20
    site.gone(last, name)
    assert list(site.cycle(100)) == [equal[1]]


@pytest.mark.parametrize("quick", [None, 100])
def test_a_job_whose_nodes_are_being_cleared_takes_none_from_an_equal_one(quick: int | None) -> None:
    """Each waits for a part of the second node. Both would wait for it if the first took the third one."""
    homes = [partition("p", ("n1", "n2", "n3"), default=True)]
    site = Site([node("n1", 2), node("n2", 4), node("n3", 2)], homes)
    running = [
        site.submit(spec(count, 1, time_limit_minutes=10, node_list=(name,)))
        for name, count in (("n1", 2), ("n2", 4), ("n3", 2))
    ]
    site.cycle()
    equal = [site.submit(spec(2, 2, cpus_per_task=2, time_limit_minutes=60)) for _ in range(2)]
    site.submit(spec(2, 1, time_limit_minutes=60, node_list=("n2",)))
    site.cycle()
    site.now += 600
    for job in running:
        site.end(job, completing=("n2",) if job == running[1] else ())
    site.now += 5
    assert not site.cycle(quick)
    site.gone(running[1], "n2")
    assert list(site.cycle(100)) == equal


def test_equal_jobs_that_start_at_the_same_time_keep_their_own_planned_starts() -> None:
    """Otherwise a job between them in the queue would seem to have overtaken the one behind it."""
    site = site_of((), "n1", "n2")
    for name in ("n1", "n2"):
        site.submit(spec(4, time_limit_minutes=10, node_list=(name,)))
    site.cycle()
    equal = [site.submit(spec(3, 1, time_limit_minutes=60)) for _ in range(2)]
    site.cycle()
    ledger = site.projection.ledger
    (items,) = ledger.by_request.values()
    before = [(item.holder, item.allocation.names) for item in items]
    assert [holder for holder, _names in before] == equal
    ledger.drop(site.projection.profile, items[0])
    ledger.keep(site.projection.profile, items[0])
    site.submit(spec(1, 1, time_limit_minutes=60))
    site.cycle()
    (items, _other) = ledger.by_request.values()
    assert sorted((item.holder, item.allocation.names) for item in items) == before


def test_a_task_of_an_array_uses_up_the_planned_start_whose_nodes_it_has() -> None:
    """Those of the first one are being cleared."""
    site = site_of((), "n1", "n2")
    first = site.submit(spec(4, 1, time_limit_minutes=10, node_list=("n1",)))
    site.cycle()
    site.now += 5
    second = site.submit(spec(4, 1, time_limit_minutes=10, node_list=("n2",)))
    site.cycle()
    array = site.submit(spec(4, 1, time_limit_minutes=60), array=range(2))
    site.cycle()
    site.now += 601
    site.end(first, completing=("n1",))
    site.end(second)
    (started,) = site.cycle(100).values()
    assert started.names == ("n2",)
    (items,) = site.projection.ledger.by_request.values()
    assert [(item.holder, item.allocation.names) for item in items] == [(array, ("n1",))]
