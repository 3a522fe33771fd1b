"""TRES that a job asks for. Source: `scontrol show job` of held jobs on Slurm 22.05."""

from __future__ import annotations

from typing import Any

import pytest

from spritz.model.job.record import JobSpec
from spritz.model.rules.job_tres import requested_pairs


@pytest.mark.parametrize(
    ("fields", "cpus"),
    [
        ({"tasks": 512}, 512),
        ({"tasks": 6, "cpus_per_task": 2}, 12),
        ({"tasks": 1, "nodes_min": 2}, 2),
        ({"tasks": 512, "overcommit": True}, 1),
        ({"tasks": 20, "nodes_min": 2, "overcommit": True}, 2),
        ({"tasks": 6, "cpus_per_task": 2, "overcommit": True}, 1),
    ],
)
def test_overcommitted_tasks_ask_for_a_cpu_a_node(fields: dict[str, Any], cpus: int) -> None:
    """Else limits of accounts hold a job that fits: `srun -O -n 512` waited for 512 CPUs of 48."""
    asked = dict(requested_pairs(JobSpec(tasks_given=True, **fields)))
    assert (asked["cpu"], asked["billing"]) == (cpus, cpus)
