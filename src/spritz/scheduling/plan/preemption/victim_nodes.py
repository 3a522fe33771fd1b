"""On which nodes to look for victims where there are many: those that need the fewest and cheapest.

Works on columns alone (`occupants`): roughly how many jobs each node would lose, and what they cost. A search among
many jobs thus costs only what it looks at, and a quick cycle can name victims on a cluster of any size. The search
itself (`victims`) then decides, over the whole jobs of these nodes. With a network, nodes are taken leaf by leaf,
starting with leaves that can hold the job alone.

Pure; changes nothing. Source: ours; docs/decisions/0033-preemption.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from spritz.scheduling.placement.columns import capacity_columns, least_counts
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.plan.preemption.victims import stand_aside
from spritz.scheduling.view.capacity import capacity
from spritz.scheduling.view.occupants import (
    CPUS,
    FIRST,
    JOBS,
    LAST,
    MEMORY,
    PRICES,
    PRIORITIES,
    SHARES,
    SIZES,
    STARTS,
    WORK,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.scheduling.plan.preemption.victims import Cleared, Cost, Victim
    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.fabric import Fabric
    from spritz.scheduling.view.nodes import NodeRow
    from spritz.scheduling.view.occupants import Floats, JobClass, Occupants
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Bools, Ints, NodeTable

#: Least length of a shortlist; its length as a multiple of the nodes that the job needs; and leaf switches.
NODES_MIN = 32
NODES_TIMES = 2
LEAVES = 4

#: index in `NodeRow.counts` of "the node is idle"
IDLE = 3


class VictimClass(Struct, frozen=True):
    """Jobs of a class that may be preempted. `tier`: lower tiers go first. `exempt_seconds`: a job may not be preempted
    for this long after its start (0: immediately). `suspends`: victims keep memory and devices.
    """

    job_class: JobClass
    tier: float
    exempt_seconds: float
    suspends: bool


class Occupied:
    """The resources that possible victims hold of each node now, and their cost: the arrays of `Occupants`, summed over
    classes.

    A class is left out on a node where all of its jobs are exempt.
    """

    def __init__(self, occupants: Occupants, victim_classes: Iterable[VictimClass], now: float) -> None:
        count = len(occupants.table.rows)
        self.held: Ints = np.zeros((3 + len(occupants.table.gres), count), np.int64)
        self.prices: Floats = np.zeros((PRICES, count))
        self.tiers: Floats = np.zeros(count)
        kept_by_suspended = np.isin(np.arange(len(self.held)), (CPUS, JOBS), invert=True)[:, None]
        for victim_class in victim_classes:
            held, prices = occupants.held[victim_class.job_class], occupants.prices[victim_class.job_class]
            if victim_class.exempt_seconds:
                spared = prices[FIRST] + victim_class.exempt_seconds > now
                if spared.any():
                    held, prices = np.where(spared, 0, held), np.where(spared, 0.0, prices)
            self.held += held if not victim_class.suspends else np.where(kept_by_suspended, 0, held)
            self.tiers += victim_class.tier * held[JOBS]
            self.prices[:FIRST] += prices[:FIRST]
            self.prices[LAST] = np.maximum(self.prices[LAST], prices[LAST])

    def without(self, taken: Iterable[tuple[int, tuple[int, ...]]]) -> Ints:
        """`held` without these jobs: pairs of node and the counts that the job takes there."""
        held = self.held.copy()
        for index, part in taken:
            held[:, index] -= part
        return np.maximum(held, 0)


def nodes_for(
    request: Request,
    base: NodeTable,
    occupied: Occupied,
    held: Ints,
    eligibility: Eligibility,
    now: float,
    *,
    youngest_first: bool,
) -> Ints:
    """Indexes of nodes that could serve once victims have left, best first.

    `base`: free resources; `held`: resources that victims hold in addition.
    """
    nodes, wanted = eligibility.nodes(request), target_of(request).nodes_min
    nodes = nodes[base.up[nodes]]
    # Equal parts first, as jobs mostly run. If too few nodes can carry an equal part, any node that can carry a task
    # may help, and the search itself decides.
    for tasks in dict.fromkeys((portion(request)[0], 1)):
        losses = _losses(request, base, held, nodes, tasks)
        if int(losses.able.sum()) >= wanted:
            break
    nodes, lost, free = nodes[losses.able], losses.lost[losses.able], losses.free[losses.able]
    if wanted > 1:
        # A job that holds several of these nodes is one victim, so each node counts a share of it.
        lost = lost * occupied.prices[SHARES, nodes] / np.maximum(1, occupied.held[JOBS, nodes])
    order = _in_order(occupied, nodes, lost, now, youngest_first=youngest_first)
    nodes, lost, free = nodes[order], lost[order], free[order]
    fabric = None if request.flat else eligibility.fabrics.get(request.partition)
    if fabric is not None and wanted > 1:
        near = _near(fabric, nodes, lost, wanted)
        nodes, free = nodes[near], free[near]
    return nodes[~free]


def portion(request: Request) -> tuple[int, int]:
    """Tasks and GPUs of one node, if the request puts equal parts on all of its nodes."""
    target = target_of(request)
    count = max(1, target.nodes_min)
    tasks = target.tasks_per_node if target.tasks is None else -(-target.tasks // count)
    return max(1, tasks), -(-target.gpus // count)


class _Losses(Struct, frozen=True):
    """For each node: whether it could carry its part as it is, or without its victims; and how many victims would have
    to leave if all were of equal size (those that are suspended already count as none).
    """

    free: Bools
    able: Bools
    lost: Floats


def _losses(request: Request, base: NodeTable, held: Ints, nodes: Ints, tasks: int) -> _Losses:
    """Losses for `tasks` tasks on each of these nodes."""
    jobs = held[JOBS, nodes].astype(np.float64)
    least = least_counts(base, request, tasks)
    if least is None:
        free = capacity_columns(base, request, nodes)[0] >= tasks
        return _Losses(free, free | held[:, nodes].any(axis=0), np.where(free, 0.0, jobs))
    columns: list[Ints] = [base.cpus, base.core_cpus, base.memory, base.memory, *base.gres.values()]
    rows = [CPUS, CPUS, MEMORY, JOBS, *range(3, 3 + len(base.gres))]
    free, able = (np.ones(len(nodes), np.bool_) for _ in range(2))
    lost = np.zeros(len(nodes))
    for place, count in least.items():
        if place == IDLE:
            free &= base.idle[nodes]
            lost = np.where(base.idle[nodes], lost, jobs)
            continue
        part = held[rows[place], nodes]
        lacking = count - columns[place][nodes]
        free &= lacking <= 0
        able &= lacking <= part
        # As many victims as hold what is lacking, if all were of equal size.
        lost = np.maximum(lost, np.ceil(np.maximum(0, lacking) * jobs / np.maximum(1, part)))
    return _Losses(free, able, np.minimum(lost, jobs))


def _in_order(occupied: Occupied, nodes: Ints, lost: Floats, now: float, *, youngest_first: bool) -> Ints:
    """Positions in `nodes`, fewest victims first, then cheapest (by average cost, as `rules` defines it)."""
    prices, jobs = occupied.prices[:, nodes], np.maximum(1, occupied.held[JOBS, nodes])
    some_stay = lost < jobs
    # If one of several victims is enough, the last to have started is the cheapest.
    age = now - np.where(some_stay, prices[LAST], prices[STARTS] / jobs)
    if youngest_first:
        return np.lexsort((nodes, age, lost))
    work = np.where(some_stay, age * prices[SIZES], now * prices[SIZES] - prices[WORK]) / jobs
    return np.lexsort((nodes, work, prices[PRIORITIES] / jobs, occupied.tiers[nodes] / jobs, lost))


def _near(fabric: Fabric, nodes: Ints, lost: Floats, wanted: int) -> Ints:
    """Positions in `nodes`, leaf by leaf; if some leaves can hold the job alone, only these."""
    leaf_of = fabric.leaf_of[nodes]
    by_leaf = np.argsort(leaf_of, kind="stable")
    leaves, begins, counts = np.unique(leaf_of[by_leaf], return_index=True, return_counts=True)
    first = by_leaf[np.arange(len(nodes)) - np.repeat(begins, counts) < wanted]
    # Of leaves that lose equally many victims, prefer those whose nodes come first on average.
    sums, places = (np.bincount(leaf_of[first], weights=column[first]) for column in (lost, np.arange(len(nodes))))
    alone = leaves[counts >= wanted]
    if len(alone):
        chosen = alone[np.lexsort((places[alone], sums[alone]))][:LEAVES]
    else:
        largest = np.argsort(-counts, kind="stable")
        enough = int(np.searchsorted(np.cumsum(counts[largest]), wanted)) + LEAVES
        chosen = leaves[largest[:enough]]
    rank_of_leaf = np.full(int(leaf_of.max(initial=0)) + 1, len(chosen))
    rank_of_leaf[chosen] = np.arange(len(chosen))
    rank_of_node = rank_of_leaf[leaf_of]
    order: Ints = np.argsort(rank_of_node, kind="stable")[: int((rank_of_node < len(chosen)).sum())]
    return order


def ranked(cleared: Cleared, base: NodeTable, request: Request) -> list[int]:
    """Nodes with victims, those first that lose the fewest victims and then the cheapest; without nodes that cannot
    serve.
    """
    need, wanted = portion(request), target_of(request).nodes_min
    prices: list[tuple[float, list[Cost], int]] = []
    for index, node_victims in cleared.by_node.items():
        victims = _least(base.rows[index], node_victims, request, need)
        if victims is None and need != (1, 0):
            victims = _least(base.rows[index], node_victims, request, (1, 0))
        if victims is not None:
            # A victim that leaves several of these nodes is counted once.
            count = sum(1.0 / min(len(victim.nodes), wanted) for victim in victims)
            prices.append((count, sorted(victim.cost for victim in victims), index))
    return [index for _count, _costs, index in sorted(prices)]


def _least(row: NodeRow, node_victims: list[Victim], request: Request, need: tuple[int, int]) -> list[Victim] | None:
    """Few and cheap ones of `node_victims` (cheapest first) without which the node can carry `need` (tasks, GPUs)."""

    def serves(victims: Iterable[Victim]) -> bool:
        other = row.copy()
        for victim in victims:
            stand_aside(other, victim)
        tasks, gpus = capacity(other, request)
        return tasks >= need[0] and gpus >= need[1]

    # At most two tests for each victim: is it enough alone, and else, can it be spared, the dearest first. This finds a
    # minimal set, not always the smallest; `victims` improves on it.
    if not serves(node_victims):
        return None
    if serves(()):
        return []
    alone = next(([victim] for victim in node_victims if serves((victim,))), None)
    if alone is not None:
        return alone
    remaining = list(node_victims)
    for victim in reversed(node_victims):
        fewer = [candidate for candidate in remaining if candidate is not victim]
        if serves(fewer):
            remaining = fewer
    return remaining
