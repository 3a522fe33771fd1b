"""--time-min as what a job is planned to last. Source: slurm.conf(5) SchedulerParameters time_min_as_soft_limit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spritz.model.commands.cluster import Tick
from tests.unit.scheduling.site import SETTINGS, Site, node, spec
from tests.unit.scheduling.test_reservations_tres import reserve

SOFT = (("time_min_as_soft_limit", ""),)


def site_of(parameters: tuple[tuple[str, str], ...] = SOFT) -> Site:
    """Two nodes of four CPUs."""
    return Site([node("n1", 4), node("n2", 4)], settings=replace(SETTINGS, scheduler_parameters=parameters))


@pytest.mark.parametrize(("parameters", "minutes"), [(SOFT, 10), ((), 60)])
def test_running_jobs_are_planned_to_end_then(parameters: tuple[tuple[str, str], ...], minutes: int) -> None:
    site = site_of(parameters)
    first = site.submit(spec(nodes=2, time_limit_minutes=60, time_min_minutes=10, tasks=8))
    site.cycle()
    assert site.jobs[first].ends_at == site.now + 3600
    waits = site.submit(spec(1))
    site.cycle()
    assert site.projection.records[waits].expected_start_at == site.now + minutes * 60


@pytest.mark.parametrize(("parameters", "limit"), [(SOFT, 60), ((), 20)])
def test_what_starts_before_others_keeps_its_limit(parameters: tuple[tuple[str, str], ...], limit: int) -> None:
    site = site_of(parameters)
    site.submit(spec(4, 1, time_limit_minutes=20))
    site.cycle()
    waits = site.submit(spec(8, 2), priority=9)
    short = site.submit(spec(1, time_limit_minutes=60, time_min_minutes=10))
    begun = site.cycle()
    assert set(begun) == {short}
    assert site.jobs[short].ends_at == site.now + limit * 60
    # Neither has ended when it should have: the next cycle finds another start.
    site.now += 1261
    site.end(1)
    assert (waits in site.cycle()) is False
    assert site.projection.records[waits].expected_start_at >= site.now


def test_no_job_runs_into_a_reservation() -> None:
    site = site_of()
    reserve(site, 1800, nodes=("n1", "n2"))
    crosses = site.submit(spec(1, time_limit_minutes=60, time_min_minutes=10))
    fits = site.submit(spec(1, time_limit_minutes=30, time_min_minutes=10))
    assert set(site.cycle()) == {fits}
    site.cycle()
    assert crosses not in site.cycle()


def test_no_component_runs_into_a_reservation() -> None:
    site = site_of()
    reserve(site, 1800, nodes=("n1", "n2"))
    crosses = site.submit_het(spec(1), spec(1, time_limit_minutes=60, time_min_minutes=10))
    assert site.cycle() == {}
    over = site.projection.records[crosses].expected_start_at
    assert over >= site.now + 1800
    site.now = over
    site.send(Tick())
    assert sorted(site.cycle()) == [crosses, crosses + 1]
