"""Jobs that wait in a partition which is closed to their groups meanwhile. Source: answers of Slurm 22.05."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.model.events.cluster import PartitionUpdated
from tests.unit.scheduling.site import Site, node, partition, spec


def test_a_job_waits_while_its_partition_is_closed_to_its_groups() -> None:
    nodes = [node("n1", 4)]
    debug = partition("debug", nodes, default=True)
    site = Site(nodes, [debug])
    own, further, other, root = (
        site.submit(spec(1, uid=uid, gid=gid, groups=groups))
        for uid, gid, groups in ((7, 70, (70,)), (8, 80, (80, 70)), (9, 90, (90,)), (0, 0, (0,)))
    )
    closed = replace(debug, allow_groups=("lab",), allow_gids=(70,))
    site.apply(PartitionUpdated(at=site.now, partition=closed))
    assert site.cycle().keys() == {own, further, root}
    assert site.reason(other) == "PartitionConfig"
    site.apply(PartitionUpdated(at=site.now, partition=debug))
    assert site.cycle().keys() == {other}
