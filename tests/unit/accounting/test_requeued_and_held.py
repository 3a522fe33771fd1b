"""Where no end of the window is given, the present is asked for: the new life of a requeued job is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.accounting.select import read_jobs
from spritz.cli.listings.acct.live import fits
from spritz.model.accounting.records import EventGroup, JobRecord, RegisterCluster, SelectJobs
from spritz.model.commands.job import RequeueJob
from spritz.model.events.codec import encode_events
from spritz.model.job.job_filter import JobTarget
from spritz_testing.builders import World
from tests.databases import open_store

#: As slurmrestd, `sacctmgr show runaway`, and `seff` ask.
QUERIES = (SelectJobs(), SelectJobs(states=("PENDING",)), SelectJobs(not_eligible=True))


@pytest.mark.parametrize("query", QUERIES)
def test_a_requeued_job_that_is_held_is_listed_as_pending(tmp_path: Path, query: SelectJobs) -> None:
    world = World()
    job_id = world.submit()
    world.start(job_id)
    world.started(job_id)
    world.ok(RequeueJob(target=JobTarget(job_id), hold=True))
    world.gone(job_id, world.first_node(job_id))
    world.now += 60.0
    store = open_store(tmp_path / "acct.db")
    store.register(RegisterCluster(cluster="cluster", journal=1, last_sequence=0), 0.0)
    store.ingest("cluster", 1, [EventGroup(1, len(world.events), encode_events(world.events))])
    listed = [one.job for piece in read_jobs(store.engine, query) for one in piece]
    assert [(job.restart_count, job.state, job.eligible_at) for job in listed] == [(1, "PENDING", 0.0)]


def test_the_controllers_own_answer_lists_it_too() -> None:
    job = JobRecord(number=1, job_id=5, restart_count=1, state="PENDING", submitted_at=100.0)
    assert fits(SelectJobs(not_eligible=True), job)
    assert fits(SelectJobs(not_eligible=True, ends_at=105.0), job)
    assert not fits(SelectJobs(not_eligible=True, ends_at=103.0), job)
