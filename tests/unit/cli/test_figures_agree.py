"""A figure of a job is the same wherever it is shown: squeue, scontrol, JSON, views that follow the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json

from spritz.cli.scontrol import main as scontrol
from spritz.cli.squeue import main as squeue
from spritz.controller.api.rows import row_of
from spritz.live.jobs import PATHS, jobs_of
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
