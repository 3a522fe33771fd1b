"""Who starts in a cycle, who waits, and what is said of those that wait."""

from __future__ import annotations

import pickle
from typing import Any

from msgspec import structs

from spritz.model.events import concerning
from spritz.model.events.job import JobHeld, JobReleased, JobResumed, JobSuspended, JobUpdated
from spritz.model.job.record import ArrayState, Hold, JobSpec, Sharing
from spritz.model.reasons import Reason
from spritz.model.states import NodeFlag, NodeState, PartitionState
from spritz.scheduling.forecast import full_cycle
from spritz.scheduling.view.events import handlers
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec


def four_nodes() -> Site:
    return Site([node(f"n{number}", 4) for number in range(1, 5)])


def whole(count: int, minutes: int = 10, **fields: Any) -> JobSpec:
    """A number of nodes, none equal to another."""
    return spec(count, nodes=count, sharing=Sharing.EXCLUSIVE, time_limit_minutes=minutes, **fields)


def test_just_the_events_that_say_so_are_followed() -> None:
    assert set(handlers.HANDLERS) == concerning("scheduler"), "see `concerns` of model/events/base.py"
    assert concerning("pass") <= concerning("scheduler"), "a pass sees what the view follows"


def test_a_job_gets_all_its_nodes_or_waits() -> None:
    site = four_nodes()
    site.submit(whole(2))
    site.cycle()
    big = site.submit(whole(3))
    assert big not in site.cycle()
    assert site.reason(big) == "Resources"


def test_priority_goes_before_age_and_age_before_number() -> None:
    site = Site([node("n1", 1)])
    site.submit(spec(1))
    site.cycle()
    early = site.submit(spec(1))
    site.now += 1
    late, urgent = site.submit(spec(1)), site.submit(spec(1), priority=5)
    order = []
    for running in (1, urgent, early):
        site.end(running)
        order += list(site.cycle())
    assert order == [urgent, early, late]


def test_a_higher_tier_goes_first_whatever_its_priority() -> None:
    nodes = [node("n1", 1)]
    site = Site(nodes, [partition("low", nodes, default=True), partition("high", nodes, priority_tier=2)])
    site.submit(spec(1), priority=100)
    above = site.submit(spec(1, partitions=("high",)))
    assert list(site.cycle()) == [above]


def test_the_first_blocked_job_says_resources_and_those_behind_it_priority() -> None:
    site = four_nodes()
    site.submit(whole(4, minutes=60))
    site.cycle()
    first, second, third = (site.submit(whole(2)) for _ in range(3))
    site.cycle()
    assert [site.reason(job) for job in (first, second, third)] == ["Resources", "Priority", "Priority"]


def test_only_changed_reasons_are_noted() -> None:
    site = four_nodes()
    site.submit(whole(4))
    site.cycle()
    for _ in range(20):
        site.submit(whole(1))
    assert len(site.plan().notes) == 20
    site.cycle()
    assert site.plan().notes == ()


def test_a_small_job_fills_the_hole_before_a_big_one_that_waits() -> None:
    """EASY: the four-node job is promised 1600 s; what ends before may start, what does not may not."""
    site = four_nodes()
    first = site.submit(whole(3))
    site.cycle()
    big = site.submit(whole(4))
    long, short = site.submit(whole(1, minutes=11)), site.submit(whole(1, minutes=10))
    assert list(site.cycle()) == [short]
    record = site.jobs[big]
    assert (record.expected_start_at, record.expected_nodes) == (1600.0, ("n1", "n2", "n3", "n4"))
    assert site.reason(long) == "Priority"
    assert [site.jobs[job].scheduler for job in (first, short)] == ["Submit", "Backfill"]


def test_a_long_job_may_use_what_the_promise_does_not_need() -> None:
    site = four_nodes()
    site.submit(whole(3))
    site.cycle()
    site.submit(whole(3))
    long = site.submit(whole(1, minutes=1000))
    assert list(site.cycle()) == [long]


def test_time_min_lowers_the_limit_when_that_lets_the_job_fill_a_hole() -> None:
    """sbatch(1) --time-min; the reservation begins after ten minutes."""
    site = four_nodes()
    site.submit(whole(3))
    site.cycle()
    site.submit(whole(4))
    stubborn = site.submit(whole(1, minutes=30, time_min_minutes=11))
    flexible = site.submit(whole(1, minutes=30, time_min_minutes=5))
    assert list(site.cycle()) == [flexible]
    assert site.jobs[flexible].time_limit_minutes == 10
    assert site.jobs[flexible].ends_at == site.now + 600
    assert site.reason(stubborn) == "Priority"


def test_time_min_does_not_lower_a_limit_without_need() -> None:
    site = four_nodes()
    job = site.submit(whole(1, minutes=30, time_min_minutes=5))
    site.cycle()
    assert site.jobs[job].time_limit_minutes == 30


def test_unreadable_licenses_stop_no_other_job() -> None:
    site = Site([node("n1", 8)], settings=structs.replace(SETTINGS, licenses=(("a", 1), ("b", 1), ("c", 1))))
    odd, fine = site.submit(spec(1, licenses="a,b|c")), site.submit(spec(1))
    assert list(site.cycle()) == [fine]
    assert site.reason(odd) == "BadConstraints"


def test_a_job_without_time_limit_is_taken_to_run_for_a_year() -> None:
    site = four_nodes()
    site.submit(whole(1, minutes=0))
    site.cycle()
    big = site.submit(whole(4))
    site.cycle()
    assert site.jobs[big].expected_start_at == 1000.0 + 365 * 86_400


def test_a_blocked_partition_does_not_block_another() -> None:
    nodes = [node("n1", 1), node("n2", 1)]
    site = Site(nodes, [partition("p", nodes[:1], default=True), partition("q", nodes[1:])])
    site.submit(spec(1))
    site.submit(spec(1))
    other = site.submit(spec(1, partitions=("q",)))
    assert other in site.cycle()


def test_a_job_of_two_partitions_starts_in_the_one_that_has_room() -> None:
    nodes = [node("n1", 1), node("n2", 1)]
    site = Site(nodes, [partition("p", nodes[:1], default=True), partition("q", nodes[1:])])
    site.submit(spec(1))
    job = site.submit(spec(1, partitions=("p", "q")))
    assert site.cycle()[job].partition == "q"


def test_an_array_starts_as_many_tasks_as_its_limit_allows() -> None:
    site = four_nodes()
    array = site.submit(spec(1), array=range(8), limit=3)
    started = site.cycle()
    assert [site.jobs[job].array_task_id for job in started] == [0, 1, 2]
    assert site.reason(array) == "JobArrayTaskLimit"
    site.end(next(iter(started)))
    assert [site.jobs[job].array_task_id for job in site.cycle()] == [3]


def test_the_last_task_of_an_array_takes_the_arrays_own_number() -> None:
    site = four_nodes()
    array = site.submit(spec(1), array=range(2))
    started = site.cycle()
    assert [site.jobs[job].array_task_id for job in started] == [0, 1]
    assert array in started


def test_a_raised_array_limit_lets_more_tasks_start() -> None:
    site = four_nodes()
    array = site.submit(spec(1), array=range(6), limit=1)
    site.cycle()
    job = site.jobs[array]
    assert job.array is not None
    wider: ArrayState = structs.replace(job.array, limit=4)
    site.apply(JobUpdated(at=site.now, job=structs.replace(job, array=wider)))
    assert len(site.cycle()) == 3


def test_held_jobs_are_not_looked_at() -> None:
    site = four_nodes()
    job = site.submit(spec(1))
    site.apply(JobHeld(at=site.now, job_id=job, hold=Hold.USER, reason=Reason.HELD_USER))
    plan = site.plan()
    assert (plan.starts, plan.notes, plan.examined) == ((), (), 0)
    site.apply(JobReleased(at=site.now, job_id=job, priority=1, eligible_at=site.now))
    assert job in site.cycle()


def test_licenses_are_counted_and_do_not_block_others() -> None:
    site = Site([node("n1", 8)], settings=structs.replace(SETTINGS, licenses=(("lab", 2), ("cad", 1))))
    holder = site.submit(spec(1, licenses="lab:2"))
    waiting, other = site.submit(spec(1, licenses="lab:1")), site.submit(spec(1))
    either = site.submit(spec(1, licenses="lab:1|cad:1"))
    assert sorted(site.cycle()) == [holder, other, either]
    assert site.reason(waiting) == "Licenses"
    site.end(holder)
    assert waiting in site.cycle()


def test_reasons_of_partitions() -> None:
    nodes = [node("n1", 8)]
    partitions = [
        partition("down", nodes, default=True, state=PartitionState.DOWN),
        partition("off", nodes, state=PartitionState.INACTIVE),
        partition("drain", nodes, state=PartitionState.DRAIN),
        partition("brief", nodes, max_time_minutes=5),
        partition("small", [*nodes, node("n2", 8)], max_nodes=1),
    ]
    site = Site([*nodes, node("n2", 8)], partitions)
    expected = {
        "down": "PartitionDown",
        "off": "PartitionInactive",
        "brief": "PartitionTimeLimit",
        "small": "PartitionNodeLimit",
    }
    jobs = {name: site.submit(spec(2, nodes=2 if name == "small" else 1, partitions=(name,))) for name in expected}
    drained = site.submit(spec(1, partitions=("drain",)))
    assert list(site.cycle()) == [drained]
    assert {name: site.reason(job) for name, job in jobs.items()} == expected


def test_tasks_are_not_spread_over_more_nodes_than_the_partition_gives_a_job() -> None:
    nodes = [node("n1", 4), node("n2", 4)]
    site = Site(nodes, [partition("small", nodes, default=True, max_nodes=1), partition("wide", nodes)])
    site.submit(spec(1, partitions=("wide",)))
    site.cycle()
    one, two = site.submit(spec(4)), site.submit(spec(5))
    assert [part.node for part in site.cycle()[one].nodes] == ["n2"]
    assert site.reason(two) == "PartitionConfig"


def test_numbers_of_nodes_beyond_the_partitions_wait_for_it_to_change() -> None:
    nodes = [node("n1"), node("n2")]
    site = Site(nodes, [partition("small", nodes, default=True, max_nodes=1)])
    range_of_two, one_task = site.submit(spec(2, nodes=(1, 2))), site.submit(spec(1, nodes=(1, 2)))
    assert list(site.cycle()) == [one_task]
    assert site.reason(range_of_two) == "PartitionNodeLimit"


def test_a_job_of_two_partitions_waits_for_what_the_one_lacks_that_would_take_it() -> None:
    nodes = [node("n1"), node("n2")]
    site = Site(nodes, [partition("small", nodes, max_nodes=1), partition("wide", nodes, default=True)])
    site.submit(spec(nodes=2, sharing=Sharing.EXCLUSIVE))
    site.cycle()
    names = ("small", "wide")
    first, second = (site.submit(spec(tasks, nodes=2, partitions=names)) for tasks in (4, 2))
    site.cycle()
    assert [site.reason(job) for job in (first, second)] == ["Resources", "Priority"]


def test_required_nodes_that_are_down_are_named() -> None:
    site = four_nodes()
    for name in ("n2", "n3"):
        site.set_node(name, NodeState.IDLE, NodeFlag.DRAIN)
    named = site.submit(spec(nodes=2, node_list=("n2", "n3")))
    unnamed = site.submit(whole(3))
    small = site.submit(whole(1))
    assert list(site.cycle()) == [small]
    assert site.reason(named) == "ReqNodeNotAvail, UnavailableNodes:n[2-3]"
    assert site.reason(unnamed).startswith("Resources, Nodes required for job are DOWN, DRAINED or reserved")
    site.set_node("n3")
    site.set_node("n2")
    assert list(site.cycle()) == [named]


def test_a_request_that_no_node_could_ever_meet_does_not_block_others() -> None:
    site = four_nodes()
    impossible, modest = site.submit(spec(1, cpus_per_task=99)), site.submit(spec(1))
    assert list(site.cycle()) == [modest]
    assert site.reason(impossible) == "PartitionConfig"


def test_suspended_jobs_lend_their_cpus_but_not_their_memory() -> None:
    site = Site([node("n1", 2, memory=100)])
    job = site.submit(spec(2, memory_mib_per_node=60))
    site.cycle()
    site.apply(JobSuspended(at=site.now, job_id=job))
    greedy = site.submit(spec(1, memory_mib_per_node=60))
    modest = site.submit(spec(1, memory_mib_per_node=40, time_limit_minutes=1))
    assert list(site.cycle()) == [modest]
    site.end(modest)
    site.apply(JobResumed(at=site.now, job_id=job, ends_at=site.now + 600, suspended_seconds=0.0))
    assert greedy not in site.cycle()


def test_nodes_of_a_completing_job_stay_taken_until_they_are_clear() -> None:
    site = Site([node("n1", 1), node("n2", 1)])
    job = site.submit(spec(2, nodes=2))
    site.cycle()
    site.end(job, completing=("n2",))
    first, second = site.submit(spec(1)), site.submit(spec(1))
    assert list(site.cycle()) == [first]
    site.gone(job, "n2")
    assert list(site.cycle()) == [second]


def test_a_cycle_cut_off_by_its_budget_says_so() -> None:
    site = Site([node("n1", 64)])
    for _ in range(10):
        site.submit(spec(1))
    plan = site.plan(budget=4)
    assert (len(plan.starts), plan.examined, plan.complete) == (4, 4, False)
    assert site.plan().complete


def test_starts_that_the_core_dropped_are_tried_again() -> None:
    site = Site([node("n1", 1)])
    first, second = site.submit(spec(1)), site.submit(spec(1))
    assert [start.job_id for start in site.plan().starts] == [first]
    assert [start.job_id for start in site.plan().starts] == [first]
    site.cycle()
    assert [start.job_id for start in site.plan().starts] == []
    site.end(first)
    assert list(site.cycle()) == [second]


def test_waiting_jobs_cost_nothing_when_one_more_comes() -> None:
    site = Site([node("n1", 1)])
    for _ in range(1000):
        site.submit(spec(1))
    site.cycle()
    site.submit(spec(1))
    plan = site.plan()
    assert (plan.examined, len(plan.notes)) == (0, 1)


def test_a_pickled_snapshot_gives_the_same_plan() -> None:
    site = four_nodes()
    for count in (3, 4, 1, 1):
        site.submit(whole(count))
    snapshot = site.projection.snapshot(site.now)
    copied = pickle.loads(pickle.dumps(snapshot))
    assert full_cycle.run(copied).plan == full_cycle.run(snapshot).plan


def test_age_and_size_decide_with_multifactor_priority() -> None:
    settings = structs.replace(SETTINGS, priority_weight_age=1000, priority_max_age_seconds=1000)
    site = Site([node("n1", 1)], settings=settings)
    site.submit(spec(1, time_limit_minutes=60))
    site.cycle()
    old = site.submit(spec(1))
    site.now += 400
    young = site.submit(spec(1), priority=300)
    site.end(1)
    assert list(site.cycle()) == [old]
    site.end(old)
    assert list(site.cycle()) == [young]


EASY = structs.replace(SETTINGS, scheduler_parameters=(("bf_policy", "easy"),))


def three_nodes_two_wanted(first_minutes: int | None) -> tuple[Site, int, int]:
    """Two of three nodes are busy for ten minutes, and the first for so long, if at all; one job waits for two nodes,
    and a long one behind it for one.
    """
    site = Site([node(f"n{number}", 1) for number in (1, 2, 3)], settings=EASY)
    first = site.submit(spec(1, time_limit_minutes=first_minutes)) if first_minutes else 0
    for name in ("n2", "n3"):
        site.submit(spec(1, node_list=(name,), time_limit_minutes=10))
    site.cycle()
    site.submit(spec(2, nodes=2, time_limit_minutes=60))
    return site, first, site.submit(spec(1, time_limit_minutes=600))


def test_a_promise_is_of_nodes_that_are_busy_until_then() -> None:
    site, _first, long = three_nodes_two_wanted(None)
    assert site.cycle()[long].names == ("n1",)


def test_a_promise_moves_from_a_node_that_is_freed_early_to_one_that_is_busy_until_then() -> None:
    site, first, long = three_nodes_two_wanted(5)
    assert site.cycle() == {}
    site.end(first)
    assert site.cycle()[long].names == ("n1",)
