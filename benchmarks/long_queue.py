"""How many no-op jobs a second does the cluster finish while ten thousand of them wait?"""

from __future__ import annotations

import time

from .cluster import Cluster

UNIT = "jobs/s"
BETTER = "more"
JOBS = 10_000
#: Jobs that are counted, after as many to warm up.
COUNTED = 2_000


def measure(cluster: Cluster) -> dict[str, float]:
    """Separate jobs that wait for their partition; those that are left are cancelled."""
    cluster.run("scontrol", "update", "PartitionName=debug", "State=DOWN")
    cluster.submit(JOBS, held=False)
    cluster.run("scontrol", "update", "PartitionName=debug", "State=UP")
    try:
        before = _waits_for(cluster, JOBS - COUNTED)
        began = time.monotonic()
        after = _waits_for(cluster, before - COUNTED)
        return {"with a long queue": (before - after) / (time.monotonic() - began)}
    finally:
        cluster.run("scancel", "--user", cluster.env["USER"])
        cluster.wait_for(lambda: not _waiting(cluster), "an empty queue", 120, 0.2)


def _waits_for(cluster: Cluster, most: int) -> int:
    """How many jobs there are as soon as there are no more than `most`."""
    left = _waiting(cluster)

    def few() -> bool:
        nonlocal left
        left = _waiting(cluster)
        return left <= most

    cluster.wait_for(few, f"{most} jobs to be left", 120, 0.5)
    return left


def _waiting(cluster: Cluster) -> int:
    return cluster.run("squeue", "-h", "-o", "%i").count("\n")
