"""--requeue=expedite: after a node failure a job starts again before all others, its other nodes kept for it.

Source: sbatch(1) --requeue; slurm.conf(5) SlurmctldParameters=enable_expedited_requeue.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from spritz.model.commands.cluster import ApplyPlan
from spritz.model.commands.job import SubmitJob
from spritz.model.job.record import JobSpec
from spritz.model.node_daemon.reports import JobGone, NodeLost
from spritz.model.rejection import Rejection
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec


def site() -> Site:
    """Three nodes of two CPUs in two partitions, the second of a higher tier."""
    configs = [node(f"n{number}", 2) for number in (1, 2, 3)]
    homes = [partition("p", configs, default=True), partition("top", configs, priority_tier=9)]
    return Site(configs, homes, structs.replace(SETTINGS, expedited_requeue=True, requeue_delay_seconds=60.0))


def do(here: Site, command: Any) -> Any:
    outcome = here.machine.handle(command, here.now)
    here.projection.follow(outcome.changes)
    return outcome.reply


def cycle(here: Site) -> None:
    assert do(here, ApplyPlan(plan=here.plan())).messages == ()


def wide(**fields: Any) -> JobSpec:
    return spec(nodes=2, tasks=4, batch=True, **fields)


def names(here: Site, job_id: int) -> tuple[str, ...]:
    allocation = here.jobs[job_id].allocation
    return allocation.names if allocation is not None else ()


def test_it_starts_again_on_what_is_left_and_a_spare_node_before_all_others() -> None:
    here = site()
    job = here.submit(wide(requeue=True, expedite=True))
    cycle(here)
    assert names(here, job) == ("n1", "n2")
    waiting = here.submit(spec(nodes=2, tasks=4, partitions=("top",)))
    small = here.submit(spec(tasks=2, partitions=("top",)))
    do(here, NodeLost(names=("n2",)))
    do(here, JobGone(node="n1", job_id=job, restart_count=0))
    cycle(here)
    assert names(here, job) == ("n1", "n3")
    assert here.jobs[job].restart_count == 1
    assert [here.jobs[other].state.value for other in (waiting, small)] == ["PENDING", "PENDING"]


def test_nodes_that_are_free_of_it_early_are_kept_for_it() -> None:
    here = site()
    job = here.submit(spec(nodes=3, tasks=6, batch=True, requeue=True, expedite=True))
    cycle(here)
    do(here, NodeLost(names=("n3",)))
    do(here, JobGone(node="n1", job_id=job, restart_count=0))
    thief = here.submit(spec(tasks=2, partitions=("top",)))
    cycle(here)
    assert here.jobs[thief].state.value == "PENDING"


def test_without_it_a_requeued_job_waits_and_others_go_first() -> None:
    here = site()
    job = here.submit(wide(requeue=True))
    cycle(here)
    other = here.submit(spec(nodes=2, tasks=4, partitions=("top",)))
    do(here, NodeLost(names=("n2",)))
    do(here, JobGone(node="n1", job_id=job, restart_count=0))
    cycle(here)
    assert (names(here, job), names(here, other)) == ((), ("n1", "n3"))


def test_it_must_be_enabled() -> None:
    here = site()
    here.machine.state.settings = SETTINGS
    reply = do(here, SubmitJob(spec=wide(requeue=True, expedite=True), script=b"#!/bin/sh\n"))
    assert isinstance(reply, Rejection)
    assert reply.code == "ESLURM_NOT_SUPPORTED"
    assert "enable_expedited_requeue" in reply.hint
