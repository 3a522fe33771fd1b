"""Several options for GPUs of one request count the same GPUs (sbatch(1) --gpus, --gpus-per-node …)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scheduling.site import Site, devices, gpus, node, spec


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        ({"gpus": 4, "gpus_per_node": 2}, [2, 2]),
        ({"gpus": 4, "gpus_per_node": 2, "nodes": 2}, [2, 2]),
        ({"gpus": 4, "gpus_per_node": 2, "nodes": (1, 3)}, [2, 2]),
        ({"gpus": 4, "gres_per_node": 2}, [2, 2]),
        ({"gpus": 4, "gpus_per_socket": 2, "sockets_per_node": 1}, [2, 2]),
        ({"gpus_per_node": 2, "gpus_per_task": 1, "tasks": 4}, [2, 2]),
        ({"gpus_per_node": 4, "gpus_per_task": 2, "nodes": 2}, [4, 4]),
        ({"gpus": 8, "gpus_per_node": 4, "gpus_per_task": 2}, [4, 4]),
        ({"gpus": 4, "gpus_per_task": 1}, [4]),
        ({"gpus_per_node": 3}, [3]),
    ],
)
def test_gpus_are_counted_once(asked: dict[str, Any], counts: list[int]) -> None:
    site = Site([node(f"n{number}", 8, gres=[gpus(4)]) for number in range(1, 4)])
    job = site.submit(spec(**asked))
    assert [len(indexes) for indexes in devices(site.cycle()[job]).values()] == counts
