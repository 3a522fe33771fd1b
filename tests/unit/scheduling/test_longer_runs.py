"""A running job that stays longer than was planned: planned starts that it makes impossible are given up at once."""

from __future__ import annotations

import pytest

from spritz.model.commands.job import ResumeJob, SuspendJob, UpdateJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.states import JobState
from tests.unit.scheduling.site import Site, node, partition, spec

BEGIN = 1000.0


def planned(site: Site) -> list[tuple[int, float, bool]]:
    """Job, seconds after the beginning, and whether it is provisional, of planned starts in order."""
    items = [item for starts in site.projection.ledger.by_request.values() for item in starts]
    return [(one.holder, one.start_at - BEGIN, one.provisional) for one in sorted(items, key=lambda one: one.start_at)]


def two_nodes() -> tuple[Site, int, int, int]:
    """Jobs of ten minutes and an hour on a node each, and one of an hour that waits for the first of these."""
    nodes = [node(name, 4) for name in ("n1", "n2")]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    first = site.submit(spec(4, 1, node_list=("n1",), time_limit_minutes=10), priority=9)
    second = site.submit(spec(4, 1, node_list=("n2",), time_limit_minutes=60), priority=9)
    site.cycle()
    waiting = site.submit(spec(4, 1, time_limit_minutes=60), priority=8)
    site.cycle()
    assert planned(site) == [(waiting, 600.0, False)]
    return site, first, second, waiting


def raise_limit(site: Site, job_id: int, minutes: int) -> None:
    site.send(UpdateJob(target=JobTarget(job_id), changes={"time_limit_minutes": minutes}))


def test_a_raised_time_limit_moves_what_was_planned_behind_the_job() -> None:
    site, first, _second, waiting = two_nodes()
    site.now += 60
    raise_limit(site, first, 120)
    assert planned(site) == [(waiting, 7200.0, True)]
    site.cycle(100)
    assert site.jobs[waiting].expected_start_at == BEGIN + 7200.0
    site.cycle()  # a full one
    assert planned(site) == [(waiting, 3600.0, False)]
    assert (site.jobs[waiting].expected_start_at, site.jobs[waiting].expected_nodes) == (BEGIN + 3600.0, ("n2",))


def test_no_job_of_lower_rank_takes_its_place_meanwhile() -> None:
    nodes = [node("n1", 4)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    running = site.submit(spec(2, 1, time_limit_minutes=10), priority=9)
    site.cycle()
    wide = site.submit(spec(4, 1, time_limit_minutes=60), priority=8)
    site.cycle()
    raise_limit(site, running, 20)
    long, short = (site.submit(spec(2, 1, time_limit_minutes=minutes)) for minutes in (60, 20))
    assert list(site.cycle(100)) == [short]
    site.cycle()
    assert planned(site)[0] == (wide, 1200.0, False)
    assert site.jobs[long].state is JobState.PENDING


@pytest.mark.parametrize(("minutes", "start"), [(11, 600.0), (12, 720.0)])
def test_a_start_that_is_late_by_less_than_bf_resolution_is_kept(minutes: int, start: float) -> None:
    site, first, _second, waiting = two_nodes()
    raise_limit(site, first, minutes)
    assert planned(site) == [(waiting, start, start != 600.0)]


def test_a_job_that_is_resumed_takes_its_nodes_back_from_planned_starts() -> None:
    site, first, _second, waiting = two_nodes()
    site.send(SuspendJob(target=JobTarget(first)))
    site.now += 300
    site.send(ResumeJob(target=JobTarget(first)))
    assert planned(site) == [(waiting, 900.0, True)]


def test_a_shorter_limit_moves_nothing_until_the_next_full_cycle() -> None:
    site, first, _second, waiting = two_nodes()
    raise_limit(site, first, 5)
    assert planned(site) == [(waiting, 600.0, False)]
    site.cycle()
    assert planned(site) == [(waiting, 300.0, False)]


def test_a_plan_that_was_made_before_the_limit_was_raised_promises_nothing_there() -> None:
    site, first, _second, waiting = two_nodes()
    site.now += 60
    other = site.submit(spec(4, 1, time_limit_minutes=30))
    stale = site.plan()
    raise_limit(site, first, 120)
    void = site.projection.adopt(stale)
    assert waiting in void
    assert all(at != 600.0 for _job, at, _provisional in planned(site))
    site.cycle()
    assert planned(site) == [(waiting, 3600.0, False), (other, 7200.0, False)]
