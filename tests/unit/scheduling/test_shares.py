"""Shares of GPUs: on one device, on several, or a device for each task.

Source: slurm.conf(5) SelectTypeParameters=MULTIPLE_SHARING_GRES_PJ, ONE_TASK_PER_SHARING_GRES; sbatch(1) --gres-flags.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.job.record import JobSpec
from spritz.model.resources import GresCapacity, GresRequest
from tests.unit.scheduling.site import SETTINGS, Site, devices, gpus, node, spec

SEVERAL = replace(SETTINGS, several_sharing=True)
APART = replace(SETTINGS, one_task_per_sharing=True)
FLAG = ("one-task-per-sharing",)


def by_task(tasks: int, count: int, **fields: Any) -> JobSpec:
    return spec(tasks, gres_per_task=(GresRequest("shard", "", count),), **fields)


def by_node(count: int) -> JobSpec:
    return spec(1, 1, gres_per_node=(GresRequest("shard", "", count),))


def placed(job: JobSpec, settings: Any = SETTINGS, *before: JobSpec) -> dict[str, list[int]] | None:
    """Node -> devices; nodes n1 and n2 have four GPUs of four shares each."""
    lines = [gpus(4), GresCapacity(name="shard", count=16, per_device=4)]
    site = Site([node(f"n{number}", 8, gres=lines) for number in (1, 2)], settings=settings)
    for one in before:
        site.submit(one, priority=9)
    site.cycle()
    number = site.submit(job, priority=5)
    allocation = site.cycle().get(number)
    if allocation is None:
        return None
    assert sum(one.count for each in allocation.nodes for one in each.gres if one.name == "shard") == sum(
        item.count * (job.tasks if item in job.gres_per_task else 1)
        for item in (*job.gres_per_task, *job.gres_per_node)
    )
    return devices(allocation, "shard")


@pytest.mark.parametrize(
    ("job", "settings", "expected"),
    [
        (by_task(2, 2, nodes=1), SETTINGS, {"n1": [0]}),
        (by_task(2, 3), SETTINGS, {"n1": [0], "n2": [0]}),
        (by_task(2, 3, nodes=1), SETTINGS, None),
        (by_task(2, 3, nodes=1), SEVERAL, {"n1": [0, 1]}),
        (by_node(5), SETTINGS, None),
        (by_node(5), SEVERAL, {"n1": [0, 1]}),
        (by_node(4), SEVERAL, {"n1": [0]}),
        (by_node(17), SEVERAL, None),
        (by_task(3, 1, nodes=1, gres_flags=FLAG), SETTINGS, {"n1": [0, 1, 2]}),
        (by_task(5, 1, gres_flags=FLAG), SETTINGS, {"n1": [0, 1, 2, 3], "n2": [0]}),
        (by_task(5, 1, nodes=1, gres_flags=FLAG), SETTINGS, None),
        (by_task(9, 1, gres_flags=FLAG), SETTINGS, None),
        (by_task(2, 1, nodes=1), APART, {"n1": [0, 1]}),
        (by_task(2, 1, nodes=1, gres_flags=("multiple-tasks-per-sharing",)), APART, {"n1": [0]}),
        (by_node(2), APART, {"n1": [0]}),
    ],
)
def test_where_shares_lie(job: JobSpec, settings: Any, expected: dict[str, list[int]] | None) -> None:
    assert placed(job, settings) == expected


def test_a_tasks_device_has_room_for_all_of_its_shares() -> None:
    others = spec(1, 1, gres_per_node=(GresRequest("shard", "", 2),), node_list=("n1",))
    assert placed(by_task(4, 3, nodes=1, gres_flags=FLAG), SETTINGS, others) == {"n2": [0, 1, 2, 3]}
    assert placed(by_task(3, 3, nodes=1, gres_flags=FLAG, node_list=("n1",)), SETTINGS, others) == {"n1": [1, 2, 3]}
    # The fullest that has room first.
    assert placed(by_task(2, 2, nodes=1, gres_flags=FLAG, node_list=("n1",)), SETTINGS, others) == {"n1": [0, 1]}


def test_other_gres_by_task_is_counted() -> None:
    lines = [GresCapacity(name="nic", count=3)]
    site = Site([node("n1", 8, gres=lines)], settings=replace(SETTINGS, gres_types=("nic",)))
    fits, not_yet = (site.submit(spec(tasks, gres_per_task=(GresRequest("nic", "", 1),))) for tasks in (2, 2))
    started = site.cycle()
    assert set(started) == {fits}
    assert [(one.name, one.count) for one in started[fits].nodes[0].gres] == [("nic", 2)]
    assert site.jobs[not_yet].state.value == "PENDING"
