"""What memory a job gets that asks for none, where defaults for GPUs and for CPUs differ."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, partition, spec

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.job.record import JobSpec
from spritz.model.node.partition import Partition
from spritz.model.resources import GresRequest
from spritz.model.rules.default_memory import ALL, Memory, memory_of
from spritz.model.rules.job_tres import requested_pairs
from spritz.scheduling.view.resolve import resolve

GPU = (GresRequest("gpu", "", 1),)
CLUSTER = ClusterSettings(default_memory_mib_per_gpu=8, default_memory_mib_per_cpu=2)


@pytest.mark.parametrize(
    ("asked", "memory"),
    [
        ({}, (None, 2, None)),
        ({"memory_mib_per_node": 5}, (5, None, None)),
        ({"memory_mib_per_node": 0}, ALL),
        ({"memory_mib_per_cpu": 0}, ALL),
        ({"gpus": GPU}, (None, None, 8)),
        ({"gres_per_node": GPU}, (None, None, 8)),
        ({"gres_per_node": (GresRequest("disk", "", 1),)}, (None, 2, None)),
        ({"gpus": (GresRequest("gpu", "", 0),)}, (None, 2, None)),
        ({"tasks": 4, "tasks_given": True, "tasks_per_gpu": 2}, (None, None, 8)),
        ({"tasks_per_gpu": 2}, (None, 2, None)),
    ],
)
def test_a_job_with_gpus_gets_the_default_for_gpus_by_whichever_option_it_asks_for_them(
    asked: dict[str, Any], memory: Memory
) -> None:
    request, home = JobSpec(**asked), Partition(name="p")
    assert memory_of(request, home, CLUSTER) == memory
    planned = resolve(request, home, CLUSTER)
    assert (planned.memory_per_node, planned.memory_per_cpu, planned.memory_per_gpu) == memory


def test_partition_before_cluster_and_all_of_the_node_if_neither_has_a_default() -> None:
    home = Partition(name="p", default_memory_mib_per_node=3)
    assert memory_of(JobSpec(), home, CLUSTER) == (3, None, None)
    assert memory_of(JobSpec(), Partition(name="q"), ClusterSettings()) == ALL


def test_gpus_that_tasks_imply_bring_the_same_memory_in_every_partition() -> None:
    """The core fixes the default where all partitions of a job agree on it; the scheduler looks it up where not."""
    nodes = [node("n1", 8, gres=[gpus(4)])]
    homes = [
        partition("one", nodes, default=True, default_memory_mib_per_gpu=100, default_memory_mib_per_cpu=1),
        partition("two", nodes, default_memory_mib_per_gpu=100, default_memory_mib_per_cpu=2),
    ]
    site = Site(nodes, homes, SETTINGS)
    job = site.ask(spec(4, tasks_per_gpu=2, partitions=("one", "two")))
    assert site.jobs[job].spec.memory_mib_per_gpu == 100
    assert dict(requested_pairs(site.jobs[job].spec))["mem"] == 200
    assert [share.memory_mib for share in site.cycle()[job].nodes] == [200]
