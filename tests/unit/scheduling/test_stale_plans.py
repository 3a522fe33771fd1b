"""Plans that were made while others started jobs: a full pass takes seconds, and quick ones go on meanwhile."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.controller.scheduler.forecasts import Forecasts
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.events.job import JobUpdated
from spritz.model.plan import Plan, PlannedStart
from spritz.model.resources import Allocation
from tests.unit.scheduling.site import Site, cpus, node, partition, spec


def promised(site: Site) -> list[float]:
    """Planned starts, seconds after the beginning."""
    return sorted(one.start_at - 1000.0 for starts in site.projection.ledger.by_request.values() for one in starts)


def full_node() -> tuple[Site, int, list[int]]:
    """A job of an hour on the only node, and three equal ones behind it."""
    nodes = [node("n1", 4)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    running = site.submit(spec(4, 1, time_limit_minutes=60), priority=9)
    site.cycle()
    return site, running, [site.submit(spec(4, 1, time_limit_minutes=60)) for _ in range(3)]


def test_a_job_that_started_meanwhile_leaves_its_planned_start_to_no_other() -> None:
    site, running, waiting = full_node()
    before = len(site.projection.redeemed)
    stale = site.plan()
    site.end(running)
    assert list(site.cycle()) == [waiting[0]]
    site.projection.adopt(stale, site.projection.redeemed[before:])
    # The first of these three was of the job that runs now, until 3600: nobody can have its nodes then.
    assert promised(site) == [7200.0, 10800.0]


def test_what_jobs_that_started_meanwhile_hold_is_planned_for_nobody() -> None:
    nodes = [node(f"n{number}", 4) for number in (1, 2)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    running = [site.submit(spec(4, 1, node_list=(name,), time_limit_minutes=60)) for name in ("n1", "n2")]
    site.cycle()
    site.end(running[1])
    wide = site.submit(spec(8, 2, time_limit_minutes=60), priority=9)
    before = len(site.projection.redeemed)
    stale = site.plan()
    # Of higher rank, or it would not start; two hours on a node where the other one is planned in an hour.
    newer = site.submit(spec(4, 1, time_limit_minutes=120), priority=99)
    assert list(site.cycle(100)) == [newer]
    site.projection.adopt(stale, site.projection.redeemed[before:])
    assert promised(site) == []
    site.cycle()
    assert promised(site) == [7200.0]
    assert site.jobs[wide].expected_start_at == 8200.0


def test_starts_of_the_plan_itself_are_not_taken_from_it() -> None:
    site, running, waiting = full_node()
    site.end(running)
    assert list(site.cycle()) == [waiting[0]]
    assert promised(site) == [3600.0, 7200.0]


def test_jobs_that_run_when_the_projection_is_made_anew_use_up_nothing() -> None:
    site, running, _waiting = full_node()
    assert running in [job_id for job_id, _request in site.projection.redeemed]
    state = site.machine.state
    site.projection.reset(state.jobs.values(), state.nodes.values(), site.partitions, site.settings)
    assert site.projection.records[running].allocation
    assert site.projection.redeemed == []


def test_a_planned_start_on_shared_cpus_outlives_a_job_that_shares_them_now() -> None:
    nodes = [node("n1", 4)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True, oversubscribe="FORCE:2")])
    running = [site.submit(spec(4, 1, time_limit_minutes=minutes)) for minutes in (30, 60)]
    site.cycle()
    site.submit(spec(4, 1, time_limit_minutes=45), priority=9)
    before = len(site.projection.redeemed)
    stale = site.plan()
    site.end(running[1])
    newer = site.submit(spec(4, 1, time_limit_minutes=120, node_list=("n1",)), priority=99)
    assert list(site.cycle(100)) == [newer]
    site.projection.adopt(stale, site.projection.redeemed[before:])
    assert promised(site) == [1800.0]


def start(site: Site, job_id: int, allocation: Allocation) -> None:
    """Others start the job there, which breaks all planned starts."""
    ledger = site.projection.ledger
    for future_start in [item for items in ledger.by_request.values() for item in items]:
        ledger.drop(site.projection.profile, future_start)
    site.follow(Plan(starts=(PlannedStart(job_id=job_id, allocation=allocation),)))


def test_a_job_that_the_plan_would_start_elsewhere_leaves_its_nodes_to_no_other() -> None:
    nodes = [node(f"n{number}", 4) for number in (1, 2)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    running = [site.submit(spec(4, 1, node_list=(name,), time_limit_minutes=60)) for name in ("n1", "n2")]
    site.cycle()
    first = site.submit(spec(4, 1, time_limit_minutes=120), priority=9)
    site.submit(spec(4, 1, time_limit_minutes=60))
    site.cycle()
    site.end(running[0])
    stale = site.plan()
    assert [item.job_id for item in stale.starts] == [first]
    (behind,) = stale.future_starts or ()
    site.end(running[1])
    start(site, first, behind.allocation)
    site.send(ApplyPlan(plan=stale))
    site.projection.adopt(stale, (), {first})
    assert promised(site) == []


def test_planned_starts_are_void_together_if_a_job_that_started_meanwhile_leaves_room_for_one() -> None:
    nodes = [node("n1", 8)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    site.submit(spec(6, 1, time_limit_minutes=60))
    site.cycle()
    first, _second = (site.submit(spec(4, 1, time_limit_minutes=minutes)) for minutes in (30, 31))
    before, stale = len(site.projection.redeemed), site.plan()
    newer = site.submit(spec(2, 1, time_limit_minutes=180), priority=9)
    assert list(site.cycle(100)) == [newer]
    site.projection.adopt(stale, site.projection.redeemed[before:])
    assert [(items[0].holder, items[0].start_at) for items in site.projection.ledger.by_request.values()] == [
        (first, 4600.0)
    ]


def test_a_job_whose_new_planned_start_is_void_keeps_its_former_one() -> None:
    nodes = [node(f"n{number}", 8) for number in (1, 2)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    site.submit(spec(8, 1, node_list=("n1",), time_limit_minutes=120))
    site.submit(spec(4, 1, node_list=("n2",), time_limit_minutes=60))
    long = site.submit(spec(4, 1, node_list=("n2",), time_limit_minutes=180))
    assert len(site.cycle()) == 3
    site.submit(spec(8, 1, time_limit_minutes=60))
    site.cycle()
    assert promised(site) == [7200.0]
    site.end(long)
    before, stale = len(site.projection.redeemed), site.plan()
    assert [item.start_at - 1000.0 for item in stale.future_starts or ()] == [3600.0]
    newer = site.submit(spec(4, 1, time_limit_minutes=180), priority=9)
    assert list(site.cycle(100)) == [newer]
    site.projection.adopt(stale, site.projection.redeemed[before:])
    assert promised(site) == [7200.0]


def test_a_job_that_is_not_started_after_all_keeps_its_former_planned_start() -> None:
    nodes = [node(f"n{number}", 4) for number in (1, 2)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    site.submit(spec(4, 1, node_list=("n1",), time_limit_minutes=60))
    other = site.submit(spec(4, 1, node_list=("n2",), time_limit_minutes=180))
    site.cycle()
    first = site.submit(spec(4, 1, time_limit_minutes=120))
    site.cycle()
    site.end(other)
    before, stale = len(site.projection.redeemed), site.plan()
    assert [item.job_id for item in stale.starts] == [first]
    newer = site.submit(spec(4, 1, time_limit_minutes=180), priority=9)
    assert list(site.cycle(100)) == [newer]
    site.send(ApplyPlan(plan=stale))
    site.projection.adopt(stale, site.projection.redeemed[before:])
    assert promised(site) == [3600.0]


def test_an_equal_job_that_started_meanwhile_leaves_the_planned_start_of_the_one_before_it() -> None:
    site, running, waiting = full_node()
    before, stale = len(site.projection.redeemed), site.plan()
    site.end(running)
    start(site, waiting[1], (stale.future_starts or ())[0].allocation)
    site.end(waiting[1])
    site.projection.adopt(stale, site.projection.redeemed[before:])
    assert promised(site) == [3600.0, 10800.0]


def test_what_is_planned_behind_a_void_planned_start_is_void_too() -> None:
    """Otherwise it would have the place to which that one returns."""
    nodes = [node("n1", 8)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    _short, long = (site.submit(spec(4, 1, time_limit_minutes=minutes)) for minutes in (60, 120))
    site.cycle()
    for minutes in (60, 30):
        site.submit(spec(8, 1, time_limit_minutes=minutes))
    site.cycle()
    assert promised(site) == [7200.0, 10800.0]
    site.end(long)
    before, stale = len(site.projection.redeemed), site.plan()
    assert sorted(item.start_at - 1000.0 for item in stale.future_starts or ()) == [3600.0, 7200.0]
    newer = site.submit(spec(4, 1, time_limit_minutes=90), priority=9)
    assert list(site.cycle(100)) == [newer]
    site.projection.adopt(stale, site.projection.redeemed[before:])
    assert promised(site) == [7200.0, 10800.0]


def test_seconds_by_which_others_come_late_do_not_void_a_planned_start() -> None:
    """Each of those behind a job that started late begins before its end, by what it was late."""
    nodes = [node("n1", 8)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    running = site.submit(spec(8, 1, time_limit_minutes=10))
    site.cycle()
    first, _second = (site.submit(spec(6, 1, time_limit_minutes=5)) for _ in range(2))
    site.submit(spec(2, 1, time_limit_minutes=15))
    before, stale = len(site.projection.redeemed), site.plan()
    site.now += 620
    site.end(running)
    start(site, first, (stale.future_starts or ())[0].allocation)
    site.projection.adopt(stale, site.projection.redeemed[before:])
    assert promised(site) == [600.0, 900.0]


def test_a_job_that_is_not_started_after_all_has_its_former_planned_start_before_those_behind_it() -> None:
    """The plan gives it to the second, which returns to its own."""
    nodes = [node(f"n{number}", 4) for number in (1, 2, 3)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    for name, minutes in (("n1", 60), ("n2", 90)):
        site.submit(spec(4, 1, node_list=(name,), time_limit_minutes=minutes))
    other = site.submit(spec(4, 1, node_list=("n3",), time_limit_minutes=180))
    site.cycle()
    first, second = (site.submit(spec(4, 1, time_limit_minutes=minutes)) for minutes in (120, 121))
    site.cycle()
    site.end(other)
    before, stale = len(site.projection.redeemed), site.plan()
    assert [item.job_id for item in stale.starts] == [first]
    assert [item.start_at - 1000.0 for item in stale.future_starts or ()] == [3600.0]
    newer = site.submit(spec(4, 1, time_limit_minutes=180), priority=9)
    assert list(site.cycle(100)) == [newer]
    site.send(ApplyPlan(plan=stale))
    site.projection.adopt(stale, site.projection.redeemed[before:])
    items = [item for items in site.projection.ledger.by_request.values() for item in items]
    assert {item.holder: item.start_at - 1000.0 for item in items} == {first: 3600.0, second: 5400.0}


def test_listings_show_what_a_job_has_and_not_what_a_late_plan_says() -> None:
    nodes = [node(f"n{number}", 8) for number in (1, 2)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    site.submit(spec(8, 1, node_list=("n1",), time_limit_minutes=120))
    site.submit(spec(4, 1, node_list=("n2",), time_limit_minutes=60))
    long = site.submit(spec(4, 1, node_list=("n2",), time_limit_minutes=180))
    site.cycle()
    first, second = (site.submit(spec(8, 1, time_limit_minutes=60)) for _ in range(2))
    site.cycle()
    site.end(long)
    before, stale = len(site.projection.redeemed), site.plan()
    site.submit(spec(4, 1, time_limit_minutes=180), priority=9)
    site.cycle(100)
    void = site.projection.adopt(stale, site.projection.redeemed[before:])
    assert void == {first, second}
    forecasts = Forecasts(site.projection)
    assert stale.forecast is not None
    forecasts.adopt(stale.forecast, void)
    shown = [forecasts.of(site.jobs[job], site.now).expected_start_at - 1000.0 for job in (first, second)]
    assert shown == promised(site)
    forecasts.adopt(stale.forecast)
    assert forecasts.of(site.jobs[first], site.now).expected_start_at - 1000.0 == 3600.0


def test_a_job_that_asks_for_more_meanwhile_has_no_planned_start_of_the_former_size() -> None:
    """It would start with too little. Those that were equal to it keep theirs."""
    nodes = [node("n1", 8)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    running = site.submit(spec(8, 1, time_limit_minutes=10))
    site.cycle()
    first, changed = (site.submit(spec(3, 1, time_limit_minutes=10)) for _ in range(2))
    stale = site.plan()
    job = site.jobs[changed]
    site.apply(JobUpdated(at=site.now, job=replace(job, spec=replace(job.spec, cpus_per_task=2))))
    site.cycle(100)
    site.projection.adopt(stale)
    (item,) = site.projection.snapshot(site.now).ledger.by_request[site.projection.records[first].entries[0][1].request]
    assert item.holder == first
    site.now += 600
    site.end(running)
    started = site.cycle(100)
    assert changed not in started
    assert cpus(started[first]) == {"n1": 3}
    site.end(first)
    assert cpus(site.cycle(100)[changed]) == {"n1": 6}
