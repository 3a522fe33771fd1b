"""What a cycle may cost, counted: quick ones touch what has changed, however many jobs wait or have promises."""

from __future__ import annotations

import pytest

from spritz.model.reasons import Reason
from spritz.scheduling.plan import cycle
from tests.unit.scheduling.site import Site, gpus, node, partition, spec

QUICK = 64


def busy_site(shapes: int, jobs: int) -> Site:
    """Eight full nodes and a queue of different requests, each with every planned start that it may have."""
    site = Site([node(f"n{number}", 8) for number in range(8)])
    for number in range(jobs):
        site.submit(spec(1, time_limit_minutes=60 + number % shapes))
    site.cycle()
    site.cycle()
    return site


@pytest.mark.parametrize("shapes", [1, 50, 200])
def test_after_one_end_a_quick_cycle_looks_at_few_requests(shapes: int) -> None:
    site = busy_site(shapes, 600)
    examined = visited = 0
    worked_out = site.projection.profile.worked_out
    for job_id in range(1, 21):
        site.now += 1
        site.end(job_id)
        plan = site.cycle_plan(QUICK)
        assert len(plan.starts) == 1
        examined, visited = examined + plan.examined, visited + plan.visited
    # One starts, and the next in line is looked at. With 50 the first often may not take the freed CPU, since others
    # have promises there, and those behind it are tried.
    limits = (20 * 12, 20 * 50, 20 * 60) if shapes == 50 else (20 * 3, 20 * 4, 0)
    counted = examined, visited, site.projection.profile.worked_out - worked_out
    assert all(count <= limit for count, limit in zip(counted, limits, strict=True)), counted


def test_a_request_that_fits_nowhere_is_tried_once_for_all_time_limits() -> None:
    site = Site([node("n1", 4)])
    site.submit(spec(4))
    site.cycle()
    for number in range(50):
        site.submit(spec(2, time_limit_minutes=5 + number))
    assert site.plan().examined == 1


def test_one_more_submission_is_looked_at_alone() -> None:
    site = busy_site(100, 400)
    site.submit(spec(1, time_limit_minutes=60))
    plan = site.plan(QUICK)
    assert plan.examined == 0
    assert plan.visited <= 100


def test_a_freed_node_is_no_reason_to_look_at_what_it_cannot_hold() -> None:
    site = Site([node("small", 2), node("big", 16, gres=[gpus(4)])])
    big = site.submit(spec(16, gpus_per_node=4, time_limit_minutes=600))
    small = site.submit(spec(2, time_limit_minutes=600))
    site.cycle()
    for number in range(60):
        site.submit(spec(4, gpus_per_node=2, time_limit_minutes=5 + number))
    site.cycle()
    site.end(small)
    plan = site.plan(QUICK)
    assert (plan.starts, plan.examined) == ((), 0)
    assert plan.visited <= 3
    site.end(big)
    assert len(site.plan(QUICK).starts) == 2


def test_jobs_that_all_wait_for_the_same_are_not_looked_at_one_by_one() -> None:
    nodes = [node("n1", 4)]
    site = Site(nodes, [partition("p", nodes, default=True, max_time_minutes=5)])
    jobs = [site.submit(spec(1, time_limit_minutes=10)) for _ in range(50)]
    site.cycle()
    site.cycle()
    assert site.jobs[jobs[0]].reason is site.jobs[jobs[-1]].reason is Reason.PARTITION_TIME_LIMIT
    assert not site.projection.queue.unsettled
    late = site.submit(spec(1, time_limit_minutes=10))
    assert list(site.projection.snapshot(site.now).queue.unsettled) == [late]
    site.cycle()
    assert site.jobs[late].reason is Reason.PARTITION_TIME_LIMIT


def test_a_cycle_that_is_stopped_does_not_undo_what_it_found_out_and_the_next_goes_on() -> None:
    site = Site([node("n1", 8)])
    jobs = [site.submit(spec(1, time_limit_minutes=5 + number)) for number in range(12)]
    turns = iter([False] * 5 + [True])
    plan = cycle.run(site.projection.snapshot(site.now), QUICK, stop=lambda: next(turns)).plan
    assert (len(plan.starts), plan.complete, plan.visited) == (5, False, 5)
    site.follow(plan)
    rest = site.cycle_plan(QUICK)
    assert ([start.job_id for start in rest.starts], rest.complete) == (jobs[5:8], True)
