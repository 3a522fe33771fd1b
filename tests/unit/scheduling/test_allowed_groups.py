"""Jobs that wait in a partition which is closed to their groups meanwhile. Source: answers of Slurm 22.05."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.events.cluster import PartitionUpdated
from tests.unit.scheduling.site import Site, node, partition, spec


@pytest.mark.parametrize(
    ("rule", "kept_out"),
    [
        ({"allow_groups": ("lab",), "allow_gids": (70,)}, {2}),
        ({"deny_groups": ("lab",), "deny_gids": (70,)}, {0, 1}),
        ({"allow_groups": ("gone",), "allow_gids": (-1,)}, {0, 1, 2}),
    ],
)
def test_a_job_waits_while_its_partition_is_closed_to_its_groups(rule: dict[str, Any], kept_out: set[int]) -> None:
    nodes = [node("n1", 4)]
    debug = partition("debug", nodes, default=True)
    site = Site(nodes, [debug])
    jobs = [
        site.submit(spec(1, uid=uid, gid=gid, groups=groups))
        for uid, gid, groups in ((7, 70, (70,)), (8, 80, (80, 70)), (9, 90, (90,)), (0, 0, (0,)))
    ]
    waiting = {jobs[index] for index in kept_out}
    site.apply(PartitionUpdated(at=site.now, partition=replace(debug, **rule)))
    assert site.cycle().keys() == set(jobs) - waiting
    assert {site.reason(job) for job in waiting} == {"PartitionConfig"}
    site.apply(PartitionUpdated(at=site.now, partition=debug))
    assert site.cycle().keys() == waiting


def test_of_several_partitions_an_open_one_is_chosen() -> None:
    nodes = [node("n1", 4)]
    closed = partition("staff", nodes, allow_groups=("lab",), allow_gids=(70,), priority_tier=9)
    site = Site(nodes, [partition("debug", nodes, default=True), closed])
    job = site.submit(spec(1, uid=9, gid=90, groups=(90,), partitions=("staff", "debug")))
    assert site.cycle()[job].partition == "debug"
