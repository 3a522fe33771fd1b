"""A figure of a job is the same wherever it is shown: squeue, scontrol, JSON, views that follow the cluster."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec import json

from spritz.cli.scontrol import main as scontrol
from spritz.cli.squeue import main as squeue
from spritz.controller.api.queue.rows import row_of
from spritz.live.jobs import PATHS, jobs_of
from spritz.model.commands.job import RequeueJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import Job
from spritz.model.resources import GresRequest
from spritz_testing.builders import World, capacity
from tests.unit.cli.site import Site

GPU = (GresRequest(name="gpu", count=2),)


def record(site: Site, job_id: int) -> dict[str, str]:
    text = site.run(scontrol, "-o", "show", "job", str(job_id)).out
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


@pytest.mark.parametrize(
    ("request_", "cpus", "gpus"),
    [
        ({"nodes_min": 2, "cpus_per_task": 4}, 4, 0),
        ({"nodes_min": 2, "tasks_per_node": 3}, 6, 0),
        ({"tasks": 8, "overcommit": True}, 1, 0),
        ({"gpus": GPU, "cpus_per_gpu": 3}, 6, 2),
        ({"gpus_per_task": GPU, "tasks": 3, "tasks_given": True}, 3, 6),
        ({"gpus_per_socket": GPU, "sockets_per_node": 2}, 1, 4),
        ({"gres_per_node": GPU, "nodes_min": 2}, 2, 4),
        ({"memory_mib_per_gpu": 100, "gpus_per_node": GPU}, 1, 2),
    ],
)
def test_the_size_of_a_waiting_job(site: Site, request_: dict[str, Any], cpus: int, gpus: int) -> None:
    site.world = World(hardware=capacity(cpus=16, gpus=8, sockets=2))
    job_id = site.submit(**request_)
    shown = record(site, job_id)
    assert shown["NumCPUs"] == str(cpus)
    assert f"gres/gpu={gpus}" in shown["ReqTRES"] or not gpus
    assert site.run(squeue, "-h", "-j", str(job_id), "-O", "numcpus,maxcpus").out.split() == [str(cpus)] * 2
    assert site.run(squeue, "-h", "-j", str(job_id), "-O", "tres:200").out.strip() == shown["ReqTRES"]
    [whole] = json.decode(site.run(scontrol, "--json", "show", "job", str(job_id)).out)["jobs"]
    assert whole["cpus"]["number"] == cpus
    [followed] = jobs_of([row_of(Job, PATHS)(site.world.job(job_id))])
    assert (followed.cpu_count, followed.gpu_count) == (cpus, gpus)


def times(site: Site, job_id: int) -> tuple[list[str], ...]:
    """Start, end and eligible time as squeue, scontrol and JSON show them, as epoch seconds ("": none)."""

    def seconds(text: str) -> str:
        return "" if text in ("N/A", "NONE", "Unknown") else f"{datetime.fromisoformat(text).timestamp():.0f}"

    listed = site.run(squeue, "-h", "-t", "all", "-j", str(job_id), "-O", "starttime,endtime,eligibletime").out.split()
    shown = record(site, job_id)
    [whole] = json.decode(site.run(scontrol, "--json", "show", "job", str(job_id)).out)["jobs"]
    numbers = [whole[name]["number"] for name in ("start_time", "end_time", "eligible_time")]
    return (
        [seconds(text) for text in listed],
        [seconds(shown[name]) for name in ("StartTime", "EndTime", "EligibleTime")],
        [str(number) if number else "" for number in numbers],
    )


def test_the_times_of_a_job(site: Site) -> None:
    world = site.world
    later = world.now + 600.0
    waits = site.submit(begin_at=later, time_limit_minutes=5)
    held = site.submit(begin_at=later, hold=True)
    running = site.running("n1", time_limit_minutes=7)
    cancelled = site.submit()
    world.advance(10.0)
    world.cancel(cancelled)
    world.ok(RequeueJob(target=JobTarget(running)))
    again = world.job(running)
    assert again.eligible_at > world.now
    for job_id, start, end, eligible in (
        (waits, later, later + 300.0, later),
        (held, later, 0.0, later),
        (cancelled, world.now, world.now, world.now - 10.0),
        (running, again.eligible_at, again.eligible_at + 420.0, again.eligible_at),
    ):
        expected = [f"{at:.0f}" if at else "" for at in (start, end, eligible)]
        assert times(site, job_id) == (expected, expected, expected), world.job(job_id)
    # A held job keeps its begin time when that has passed: it starts at no known time.
    world.now = later + 60.0
    assert [shown[0] for shown in times(site, held)] == ["", "", ""]
