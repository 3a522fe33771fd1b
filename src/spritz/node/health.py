"""Load of the machine, and health checks. Sources: slurm.conf(5) HealthCheckProgram, HealthCheckNodeState."""

from __future__ import annotations

import os
from collections.abc import Iterable

from spritz.model.job.record import Job
from spritz.model.node.record import NodeSample
from spritz.model.resources import NodeCapacity, mask_of


def sample(now: float) -> tuple[int, int]:
    """(one-minute load in hundredths, free memory in MiB)."""
    load = round(os.getloadavg()[0] * 100)
    free = 0
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemFree:"):
                free = int(line.split()[1]) // 1024
                break
    return load, free


def samples(names: Iterable[str], now: float) -> tuple[NodeSample, ...]:
    """One sample for each node of this machine."""
    load, free = sample(now)
    return tuple(NodeSample(name=name, cpu_load=load, free_memory_mib=free, sampled_at=now) for name in names)


def pauses(states: Iterable[str], local_nodes: list[str], every: list[str], interval: float) -> list[tuple[str, float]]:
    """Own nodes in the order of their checks, and the seconds to wait before each.

    With CYCLE the checks of all nodes of the cluster (`every`) are spread over the interval.
    """
    if "CYCLE" not in {word.upper() for word in states}:
        return [(name, 0.0) for name in local_nodes]
    places = {name: rank for rank, name in enumerate(every)}
    ordered = sorted(local_nodes, key=lambda name: places.get(name, 0))
    times = [interval * places.get(name, 0) / max(len(every), 1) for name in ordered]
    return [(name, at - before) for name, at, before in zip(ordered, times, [0.0, *times], strict=False)]


def state_of(capacity: NodeCapacity, name: str, jobs: Iterable[Job]) -> str:
    """IDLE, MIXED or ALLOC, by the jobs that this daemon knows: a job that has started nothing here counts as none."""
    cpus, anything = 0, False
    for job in jobs:
        anything = True
        for share in job.allocation.nodes if job.allocation is not None else ():
            if share.node == name:
                cpus |= mask_of(share.cpus)
    free = capacity.cpus - mask_of(capacity.cpus_reserved).bit_count() - cpus.bit_count()
    return "IDLE" if not anything else "MIXED" if free > 0 else "ALLOC"


def wants_check(states: Iterable[str], state: str) -> bool:
    """Whether HealthCheckProgram runs again on a node in this state, of those of `state_of`. What only the controller
    knows (a drain) does not count.
    """
    words = {word.upper() for word in states} or {"ANY"}
    if "START_ONLY" in words:
        return False
    if "ANY" in words or words == {"CYCLE"}:
        return True
    return state in words or (state == "IDLE" and "NONDRAINED_IDLE" in words)
