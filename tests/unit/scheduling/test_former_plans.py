"""Where a job was to start is forgotten when it starts or ends, by the core and by the projection alike."""

from __future__ import annotations

import pytest

from spritz.model.commands.job import CancelJobs, HoldJob, RequeueJob
from spritz.model.events.job import JobsNoted
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.plan import PendingNote
from spritz.model.reasons import Reason
from tests.unit.scheduling.site import Site, node, spec


def planned(site: Site, start_at: float) -> int:
    """A job that was to start on n0 at this time (0.0: it has lost its planned start)."""
    job = site.submit(spec(1, batch=True))
    note = PendingNote(job_id=job, reason=Reason.RESOURCES, expected_start_at=start_at, expected_nodes=("n0",))
    site.apply(JobsNoted(at=site.now, notes=(note,)))
    return job


def plans(site: Site, job: int) -> set[tuple[float, tuple[str, ...]]]:
    """What core and projection know of its planned start."""
    return {(one.expected_start_at, one.expected_nodes) for one in (site.jobs[job], site.projection.records[job])}


@pytest.mark.parametrize("start_at", [0.0, 2000.0])
def test_with_a_start(start_at: float) -> None:
    site = Site([node("n0", 8)])
    job = planned(site, start_at)
    assert job in site.cycle()
    assert plans(site, job) == {(0.0, ())}


@pytest.mark.parametrize("start_at", [0.0, 2000.0])
def test_with_an_end_before_a_start_also_when_it_is_queued_again(start_at: float) -> None:
    site = Site([node("n0", 8)])
    job = planned(site, start_at)
    site.send(CancelJobs(filter=JobFilter(targets=(JobTarget(job),))))
    site.send(RequeueJob(target=JobTarget(job)))
    assert plans(site, job) == {(0.0, ())}


def test_a_hold_takes_the_time_and_leaves_the_place() -> None:
    site = Site([node("n0", 8)])
    job = planned(site, 2000.0)
    site.send(HoldJob(target=JobTarget(job)))
    assert plans(site, job) == {(0.0, ("n0",))}
