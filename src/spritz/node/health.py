"""Load of the machine, and health checks. Sources: slurm.conf(5) HealthCheckProgram, HealthCheckNodeState."""

from __future__ import annotations

import os
from collections.abc import Iterable

from spritz.model.node import NodeSample


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
    """One for each node of this machine."""
    load, free = sample(now)
    return tuple(NodeSample(name=name, cpu_load=load, free_memory_mib=free, sampled_at=now) for name in names)


def pauses(states: Iterable[str], own: list[str], every: list[str], interval: float) -> list[tuple[str, float]]:
    """Own nodes in the order of their checks, and the seconds to wait before each.

    With CYCLE the checks of all nodes of the cluster (`every`) are spread over the interval.
    """
    if "CYCLE" not in {word.upper() for word in states}:
        return [(name, 0.0) for name in own]
    places = {name: rank for rank, name in enumerate(every)}
    ordered = sorted(own, key=lambda name: places.get(name, 0))
    times = [interval * places.get(name, 0) / max(len(every), 1) for name in ordered]
    return [(name, at - before) for name, at, before in zip(ordered, times, [0.0, *times], strict=False)]


def wants_check(states: Iterable[str], *, busy: bool) -> bool:
    """Whether HealthCheckProgram runs on a node again. What only the controller knows of a state counts as idle."""
    words = {word.upper() for word in states} or {"ANY"}
    if "START_ONLY" in words:
        return False
    if "ANY" in words or words == {"CYCLE"}:
        return True
    return bool(words & ({"ALLOC", "MIXED"} if busy else {"IDLE", "NONDRAINED_IDLE"}))
