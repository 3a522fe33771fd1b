"""What memory counts of a job that asks for none. Figures and answers of Slurm 22.05 (`scontrol show job`, sbatch)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.test_accounts import world as site

from spritz.core.machine import Machine
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import Configure
from spritz.model.commands.job import UpdateJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.limits.records import Qos
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.rules.job_tres import requested
from spritz_testing.builders import ROOT, World, capacity

NAMES = ("n1", "n2", "n3")
PARTITIONS = (
    Partition(name="debug", nodes=NAMES, default=True),
    Partition(name="rest", nodes=NAMES[1:]),
    Partition(name="cpu", nodes=NAMES, default_memory_mib_per_cpu=7),
    Partition(name="node", nodes=NAMES, default_memory_mib_per_node=11),
)


def world(**settings: Any) -> World:
    """Nodes of 3000, 4000 and 5000 MiB."""
    made = World(settings=ClusterSettings(gres_types=("gpu",), **settings), hardware=capacity(cpus=8))
    nodes = tuple(
        NodeConfig(name=name, capacity=capacity(cpus=8, memory_mib=memory))
        for name, memory in zip(NAMES, (3000, 4000, 5000), strict=True)
    )
    made.machine = Machine(made.settings)
    made.events.clear()
    made.ok(Configure(settings=made.settings, nodes=nodes, partitions=PARTITIONS))
    return made


def memory(made: World, job: int) -> int:
    return dict(requested(made.job(job))).get("mem", 0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 3000),
        ({"memory_mib_per_node": 0}, 3000),
        ({"memory_mib_per_cpu": 0}, 3000),
        ({"nodes_min": 2}, 6000),
        ({"tasks": 3}, 3000),
        ({"node_list": ("n3",)}, 3000),  # of the first node, wherever it goes
        ({"partitions": ("rest", "debug")}, 4000),
        ({"partitions": ("debug", "rest")}, 3000),
        ({"partitions": ("cpu",), "tasks": 3}, 21),
        ({"partitions": ("cpu", "debug"), "tasks": 3}, 21),
        ({"partitions": ("debug", "cpu"), "tasks": 3}, 3000),
        ({"partitions": ("node",), "nodes_min": 2, "tasks": 2}, 22),
        ({"memory_mib_per_node": 10}, 10),
        ({"memory_mib_per_cpu": 10, "tasks": 3}, 30),
    ],
)
@pytest.mark.parametrize("consumable", [True, False])
def test_a_job_without_a_request_counts_all_of_the_first_node(
    changes: dict[str, Any], expected: int, consumable: bool
) -> None:
    made = world(memory_consumable=consumable)
    assert memory(made, made.submit(ROOT, **{"tasks": 1, **changes})) == expected


def test_it_follows_an_update() -> None:
    made = world()
    job = made.submit(ROOT, hold=True)
    changes: list[tuple[dict[str, object], int]] = [
        ({"partitions": ("rest",)}, 4000),
        ({"nodes_min": 2, "nodes_max": 2}, 8000),
        ({"memory_mib_per_node": 20}, 40),
    ]
    for change, expected in changes:
        made.ok(UpdateJob(target=JobTarget(job), changes=change))
        assert memory(made, job) == expected
    made.check()


def test_users_cannot_set_it() -> None:
    made = world()
    assert memory(made, made.submit(ROOT, memory_mib_counted=1)) == 3000


def test_a_strict_qos_refuses_it_and_leaves_it_less_time() -> None:
    """The nodes have 8000 MiB."""
    made = site(qos=(Qos(name="normal", id=1, flags="DenyOnLimit", max_tres_pj="mem=8000", grp_tres_mins="mem=80000"),))
    assert made.job(made.submit()).time_limit_minutes == 10
    assert made.submit_refused(nodes_min=2, tasks=2) == "ESLURM_ACCOUNTING_POLICY"
    made.submit(nodes_min=2, tasks=2, memory_mib_per_node=4000)
