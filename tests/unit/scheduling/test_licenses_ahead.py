"""Licenses that are planned ahead. Source: slurm.conf(5) SchedulerParameters bf_licenses."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.events.job import JobUpdated
from tests.unit.scheduling.site import SETTINGS, Site, node, spec

AHEAD = (("bf_licenses", ""),)


def site_of(parameters: tuple[tuple[str, str], ...] = AHEAD, **stock: int) -> Site:
    """Four nodes of four CPUs."""
    settings = replace(SETTINGS, scheduler_parameters=parameters, licenses=tuple(stock.items()))
    return Site([node(f"n{i}", 4) for i in range(1, 5)], settings=settings)


def expected(site: Site, job_id: int) -> float:
    """Seconds until the job's expected start; -1 where none is known."""
    at = site.projection.records[job_id].expected_start_at
    return at - site.now if at else -1


def licensed(text: str, minutes: int, **fields: Any) -> Any:
    """One task with these licenses."""
    return spec(1, licenses=text, time_limit_minutes=minutes, **fields)


@pytest.mark.parametrize(("parameters", "starts"), [(AHEAD, False), ((), True)])
def test_a_job_that_waits_for_licenses_is_not_passed_over_for_ever(parameters: Any, starts: bool) -> None:
    site = site_of(parameters, lab=2)
    site.submit(licensed("lab:1", 10))
    site.cycle()
    both = site.submit(licensed("lab:2", 10), priority=9)
    site.cycle()
    assert site.reason(both) == "Licenses"
    assert expected(site, both) == (-1 if starts else 600)
    longer, short = site.submit(licensed("lab:1", 11)), site.submit(licensed("lab:1", 10))
    begun = site.cycle()
    assert (longer in begun) is starts
    assert (short in begun) is not starts
    site.now += 600
    for job in [job for job in site.jobs.values() if job.state.value == "RUNNING"]:
        site.end(job.id)
    assert (both in site.cycle()) is True


def test_jobs_without_licenses_go_past() -> None:
    site = site_of(lab=1)
    site.submit(licensed("lab", 10))
    site.cycle()
    waits = site.submit(licensed("lab", 10), priority=9)
    site.submit(spec(16, time_limit_minutes=60))
    without = site.submit(spec(1, time_limit_minutes=10))
    assert set(site.cycle()) == {without}
    assert expected(site, waits) == 600


def test_a_higher_job_takes_licenses_that_were_planned_for_another() -> None:
    site = site_of(lab=2)
    site.submit(licensed("lab:1", 10))
    site.cycle()
    waits = site.submit(licensed("lab:2", 10), priority=5)
    site.cycle()
    first = site.submit(licensed("lab:1", 60), priority=9)
    assert first in site.cycle()
    site.cycle()
    assert expected(site, waits) == 3600


def test_what_reservations_keep_is_not_promised() -> None:
    from tests.unit.scheduling.test_reservations_tres import reserve

    site = site_of(lab=3)
    site.submit(licensed("lab:2", 10))
    site.cycle()
    reserve(site, 900, licenses=(("lab", 2),), flags=("ANY_NODES",))
    short, long = site.submit(licensed("lab:2", 5)), site.submit(licensed("lab:2", 6))
    site.cycle()
    assert expected(site, short) == 600
    assert expected(site, long) > 900


def test_components_are_promised_licenses_together() -> None:
    site = site_of(lab=2)
    site.submit(licensed("lab:1", 10))
    site.submit(licensed("lab:1", 20))
    site.cycle()
    whole = site.submit_het(licensed("lab", 5), licensed("lab", 5), priorities=[9, 9])
    behind = site.submit(licensed("lab", 30))
    site.cycle()
    assert [expected(site, whole + offset) for offset in (0, 1)] == [1200, 1200]
    site.now += 600
    site.end(1)
    assert behind not in site.cycle()


def test_requests_above_the_total_block_no_other_job() -> None:
    site = site_of((*AHEAD, ("allow_zero_lic", "")), lab=2)
    never = site.submit(licensed("lab:3", 10), priority=9)
    assert site.submit(licensed("lab:2", 600)) in site.cycle()
    assert (site.reason(never), expected(site, never)) == ("Licenses", -1)


def test_a_longer_limit_of_the_holder_moves_the_planned_start() -> None:
    site = site_of(lab=1)
    first = site.submit(licensed("lab", 10))
    site.cycle()
    waits = site.submit(licensed("lab", 10))
    site.cycle()
    job = site.jobs[first]
    site.apply(JobUpdated(at=site.now, job=replace(job, ends_at=job.ends_at + 600)))
    site.now += 601
    site.cycle()
    assert expected(site, waits) == 599


def test_a_job_with_a_choice_takes_licenses_that_are_not_planned() -> None:
    site = site_of(lab=2, desk=1)
    site.submit(licensed("lab", 10))
    site.cycle()
    waits = site.submit(licensed("lab:2", 10), priority=9)
    either = site.submit(licensed("lab|desk", 60))
    assert either in site.cycle()
    assert site.jobs[either].licenses == (("desk", 1),)
    assert expected(site, waits) == 600


def test_components_take_the_licenses_that_were_found_for_them() -> None:
    """The one with the fewest nodes to go to is placed first."""
    site = site_of((), lab=2, desk=1)
    whole = site.submit_het(licensed("lab:2|desk", 10), licensed("lab", 10, exclude=("n1", "n2", "n3")))
    assert set(site.cycle()) == {whole, whole + 1}
    assert [site.jobs[whole + offset].licenses for offset in (0, 1)] == [(("desk", 1),), (("lab", 1),)]


def test_those_planned_behind_a_late_job_for_its_licenses_are_put_off_as_much() -> None:
    """Their licenses are returned late, as nodes are. Nobody else has their nodes meanwhile."""
    site = site_of(AHEAD, lab=1)
    late = site.submit(licensed("lab:1", 10, node_list=("n1",)))
    site.cycle()
    first = site.submit(licensed("lab:1", 60, node_list=("n1",)))
    second = site.submit(spec(4, 1, licenses="lab:1", time_limit_minutes=60, node_list=("n2",)))
    third = site.submit(spec(4, 1, time_limit_minutes=120, node_list=("n2",)))
    begun = site.now
    site.cycle()
    site.now += 605
    site.end(late)
    assert list(site.cycle(100)) == [first]
    site.cycle()
    items = [item for items in site.projection.ledger.by_request.values() for item in items]
    assert {item.holder: item.start_at - begun for item in items} == {second: 4205.0, third: 7805.0}
