"""Nodes as lanes: the time from which each lane of a node is free for good.

Arrays: `free_at[kind]` is float64[lane, node] for CPUs, GPUs and parts of the memory, ascending by lane: entry k is
when k + 1 lanes are free. `need[kind]` is how many lanes of the kind each node must give; `whole` asks for all of its
CPUs. `cpus` int64[node]: number of CPUs; `up` bool[node]: nodes that serve; `nodes`: the indexes to look at.

Each function is the rule in numpy, and calls the compiled loop where there is one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spritz.scheduling import kernels

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Lanes = tuple[Floats, Floats, Floats]
Need = tuple[int, int, int]

NEVER = float("inf")


def free_for_good(times: Floats, counts: Ints, lanes: int, now: float) -> Floats:
    """Times from which 1, 2 … lanes of each node are free for good: float64[lane, node] (inf: never).

    `times` float64[node, breakpoint], ascending (inf: no more); `counts` int64[node, breakpoint]: lanes free from then
    on.
    """
    if kernels.compiled:
        free_at = np.empty((lanes, len(times)))
        kernels.lanes_free_at(times, np.ascontiguousarray(counts), now, free_at)
        return free_at
    valid = times < NEVER
    least = np.where(valid, counts, np.iinfo(np.int64).max)
    least = np.minimum.accumulate(least[:, ::-1], axis=1)[:, ::-1]
    free_from = np.full((lanes, len(times)), NEVER)
    begins = np.maximum(times, now)
    for breakpoint in reversed(range(times.shape[1])):
        free = np.where(valid[:, breakpoint], least[:, breakpoint], 0)
        held = np.arange(1, lanes + 1)[:, None] <= free[None, :]
        free_from = np.where(held, begins[None, :, breakpoint], free_from)
    return free_from


def soonest(
    free_at: Lanes, need: Need, whole: bool, cpus: Ints, up: Bools, nodes: Ints, since: float, count: int
) -> tuple[Ints, Floats]:
    """The `count` nodes that can give what is needed first, in order of time and of `nodes`, and when they can."""
    if kernels.compiled:
        chosen, at = np.empty(count, np.int64), np.empty(count, np.float64)
        kernels.lanes_soonest(free_at, need, whole, cpus, up, nodes, since, chosen, at)
        return chosen, at
    at = _ready(free_at, need, whole, cpus, up, nodes, since)
    order = np.argsort(at, kind="stable")[:count]
    return nodes[order], at[order]


def pool(
    free_at: Lanes, need: Need, whole: bool, cpus: Ints, up: Bools, nodes: Ints, since: float, width: int
) -> tuple[Ints, int, float]:
    """The `width` nodes that can give what is needed first, in the order of `nodes`; how many nodes ever can; and when
    the first of the others can.
    """
    if kernels.compiled:
        chosen = np.empty(width, np.int64)
        usable, limit = kernels.lanes_pool(free_at, need, whole, cpus, up, nodes, since, chosen)
        return chosen, usable, limit
    at = _ready(free_at, need, whole, cpus, up, nodes, since)
    order = np.argsort(at, kind="stable")
    return np.sort(nodes[order[:width]]), int((at < NEVER).sum()), float(at[order[width]])


def take(
    free_at: Lanes, need: Need, whole: bool, cpus: Ints, up: Bools, nodes: Ints, now: float, until: Floats
) -> None:
    """The first lanes of each of these nodes are in use until then (float64[node of `nodes`])."""
    if kernels.compiled:
        kernels.lanes_take(free_at, need, whole, cpus, up, np.ascontiguousarray(nodes), now, until)
        return
    for kind, (lanes, count) in enumerate(zip(free_at, need, strict=True)):
        if count:
            columns = lanes[:, nodes]
            taken = columns.shape[0] if whole and kind == 0 else count
            columns[:taken] = np.where(columns[:taken] < NEVER, until, NEVER)
            columns.sort(axis=0)
            lanes[:, nodes] = columns


def _ready(free_at: Lanes, need: Need, whole: bool, cpus: Ints, up: Bools, nodes: Ints, since: float) -> Floats:
    """When each of these nodes can give what is needed."""
    everywhere = len(nodes) == len(up)
    at = np.full(len(nodes), since)
    for lanes, count in zip(free_at, need, strict=True):
        if count > len(lanes):
            return np.full(len(nodes), NEVER)
        if count:
            np.maximum(at, lanes[count - 1] if everywhere else lanes[count - 1, nodes], out=at)
    if whole:
        np.maximum(at, free_at[0][cpus[nodes] - 1, nodes], out=at)
    at[~(up if everywhere else up[nodes])] = NEVER
    return at
