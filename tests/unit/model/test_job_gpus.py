"""GPUs that several options ask for. Source: allocations of Slurm 22.05 for these options (`SLURM_GPUS_ON_NODE`)."""

from __future__ import annotations

from typing import Any

import pytest

from spritz.model.job.job_gpus import asked_of_each_node, gpus_each_node
from spritz.model.job.record import JobSpec
from spritz.model.resources import GresRequest
from spritz.model.rules.job_tres import requested_gres


def gpus(count: int, kind: str = "") -> tuple[GresRequest, ...]:
    return (GresRequest("gpu", kind, count),)


@pytest.mark.parametrize(
    ("fields", "each_node", "total"),
    [
        ({"gpus_per_node": gpus(2)}, 2, 2),
        ({"gres_per_node": gpus(2)}, 2, 2),
        ({"gpus_per_node": gpus(2), "gres_per_node": gpus(2)}, 2, 2),
        ({"gpus_per_node": gpus(2), "gres_per_node": gpus(1)}, 1, 1),
        ({"gpus_per_node": gpus(1), "gres_per_node": gpus(2)}, 2, 2),
        ({"gpus_per_node": gpus(1), "gres_per_node": gpus(1), "nodes_min": 2}, 1, 2),
        ({"gpus_per_node": gpus(1, "a"), "gres_per_node": gpus(2, "b")}, 3, 3),
        ({"gpus": gpus(2), "gres_per_node": gpus(2)}, 2, 2),
        ({"gpus": gpus(4), "gpus_per_node": gpus(2), "nodes_min": 2}, 2, 4),
        ({"gpus_per_task": gpus(1), "gres_per_node": gpus(1)}, 1, 1),
        (
            {"gpus_per_node": gpus(8), "gres_per_node": gpus(8), "gpus_per_task": gpus(8), "nodes_min": 2, "tasks": 2},
            8,
            16,
        ),
    ],
)
def test_options_for_the_same_gpus_are_not_added_up(fields: dict[str, Any], each_node: int, total: int) -> None:
    spec = JobSpec(**fields)
    assert gpus_each_node(spec) == each_node
    assert requested_gres(spec)["gpu"] == total


def test_other_gres_of_a_node_stay() -> None:
    shards = (GresRequest("shard", "", 4), *gpus(1))
    assert asked_of_each_node(JobSpec(gres_per_node=shards, gpus_per_node=gpus(2))) == shards
