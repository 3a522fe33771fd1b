"""Finds an allocation for one request on a table of nodes: eligible nodes -> capacity -> select -> assign.

The job gets everything that it asked for, or nothing. Arrays give bounds first; the exact rules for single nodes then
confirm or lower them (`_confirmed`), and the choice is made again. An answer of None is therefore final only if the
counts were exact or every lowered offer was tried.

Why an answer may be wrong, and what makes it right:

    a count is more than a node holds       CPUs and GPUs are counted apart, and lie on different sockets: `assign_all`
                                            names the node that does not fit, and less is offered for it
    the choice misses a set of nodes        it goes by sums, in one order: `_second_try` looks through the sets
    the search gave up                      `Effort`: where others had left it too few steps, `start_now` does not
                                            remember the failure

Source: sbatch(1); select/cons_tres.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from spritz.model.resources import Allocation, NodeAllocation
from spritz.scheduling.placement.columns import capacity_columns, counts_suffice, needed
from spritz.scheduling.placement.counted import nodes_for_counts
from spritz.scheduling.placement.counts import by_jobs_per_cpu, node_counts
from spritz.scheduling.placement.effort import Effort
from spritz.scheduling.placement.fragment import ranks, workload_of
from spritz.scheduling.placement.leaves import LeafCapacity, leaf_sets
from spritz.scheduling.placement.mixed import mixed_portions
from spritz.scheduling.placement.runs import plain, select_columns
from spritz.scheduling.placement.scheme import choose, scheme_for
from spritz.scheduling.placement.search import could_find, search
from spritz.scheduling.placement.select import Candidate, Portion, select, target_of
from spritz.scheduling.placement.share import assign, depends_on_free
from spritz.scheduling.view.capacity import capacity, open_to
from spritz.scheduling.view.eligibility import Choice
from spritz.scheduling.view.fabric import empty_leaves, keeping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spritz.scheduling.placement.scheme import Scheme
    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.fabric import Fabric
    from spritz.scheduling.view.nodes import NodeRow
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints, NodeTable

#: index of "the node is idle" in `NodeRow.counts`
IDLE = 3
#: up to this many nodes, rows are quicker than arrays
FEW = 8
#: sets of leaf switches tried for one request: sums by leaf may show more than single nodes hold
LEAF_SETS_MAX = 64
#: above all weights, those of powered-down nodes included
BOOT_WEIGHT = 1 << 34
_LARGE = np.iinfo(np.int64).max


def place(
    table: NodeTable,
    request: Request,
    eligibility: Eligibility,
    prefer: NodeTable | None = None,
    within: Ints | None = None,
    effort: Effort | None = None,
) -> Allocation | None:
    """An allocation for one job of this request on `table` as it is, or None.

    `prefer`: take nodes and CPUs that are busy on that table before others (for planned starts). `within`: the only
    nodes to look at, if the caller knows that others cannot serve. `effort`: bounds the second try (None: an effort of
    its own); where it says that a search gave up, None only means that no place was found.
    """
    missed: list[_Missed] = []
    if request.node_counts:
        allocation = _place_some(table, request, eligibility, prefer, within, missed)
    else:
        allocation = _first_try(table, request, eligibility, prefer, within, missed)
    # Last, since it is costly: for every number of nodes and every choice the usual way has failed.
    return allocation or _second_try(table, missed, eligibility, prefer, effort or Effort())


def _first_try(
    table: NodeTable,
    request: Request,
    eligibility: Eligibility,
    prefer: NodeTable | None,
    within: Ints | None,
    missed: list[_Missed] | None,
) -> Allocation | None:
    """Try one number of nodes. `missed` gets the nodes on which there may be a place all the same."""
    for narrowed in by_jobs_per_cpu(table, request, eligibility):
        allocation = _place_as_asked(table, narrowed, eligibility, prefer, within, missed)
        if allocation is not None:
            return allocation
    return None


def _place_some(
    table: NodeTable,
    request: Request,
    eligibility: Eligibility,
    prefer: NodeTable | None,
    within: Ints | None,
    missed: list[_Missed],
) -> Allocation | None:
    """Try each permitted number of nodes."""

    def at(narrowed: Request) -> Allocation | None:
        return _first_try(table, narrowed, eligibility, prefer, within, None)

    for count in node_counts(request, len(table.up), lambda narrowed: at(narrowed) is not None):
        allocation = at(replace(request, nodes_min=count, nodes_max=count, node_counts=()))
        if allocation is not None:
            return allocation
    # The search takes all numbers together.
    required = eligibility.required(request)
    if required is not None and not request.refusal:
        fabric = None if request.flat else eligibility.fabrics.get(request.partition)
        for choice in _choices(table, request, eligibility, within):
            choice = _narrowed(table, request, choice, eligibility)
            _note_missed(missed, request, choice, required, fabric, *capacity_columns(table, request, choice.nodes))
    return None


class _Missed(Struct, frozen=True):
    """Nodes on which the usual choice found no place, though there may be one."""

    request: Request
    choice: Choice
    required: frozenset[int]
    fabric: Fabric | None


def _note_missed(
    missed: list[_Missed],
    request: Request,
    choice: Choice,
    required: frozenset[int],
    fabric: Fabric | None,
    tasks: Ints,
    gpus: Ints,
) -> None:
    if could_find(request, choice, fabric, tasks, gpus):
        missed.append(_Missed(request, choice.only(tasks > 0), required, fabric))


def _second_try(
    table: NodeTable,
    missed: list[_Missed],
    eligibility: Eligibility,
    prefer: NodeTable | None,
    effort: Effort,
) -> Allocation | None:
    """Look through all sets of nodes, as far as the effort goes."""
    for case in missed:
        request = case.request
        portions = search(table, request, case.choice, case.required, case.fabric, effort)
        if portions is not None:
            allocation = _assigned(table, request, portions, prefer)
            if allocation is not None:
                return _kept_apart(table, request, allocation, eligibility)
            # The search goes by counts too: one that `assign` refuses proves nothing about the other sets.
            effort.unsure = True
    return None


def _choices(table: NodeTable, request: Request, eligibility: Eligibility, within: Ints | None) -> Iterator[Choice]:
    """The request's choices, restricted to nodes of `within`."""
    able = None
    if within is not None:
        able = np.zeros(len(table.up), np.bool_)
        able[within] = True  # required nodes are not added: a job that needs one outside cannot be served by these
    for choice in eligibility.choices(request):
        yield choice if able is None else choice.only(able[choice.nodes])


def _place_as_asked(
    table: NodeTable,
    request: Request,
    eligibility: Eligibility,
    prefer: NodeTable | None,
    within: Ints | None,
    missed: list[_Missed] | None,
) -> Allocation | None:
    """Try one number of nodes, with as many jobs per CPU as the request allows."""
    required = eligibility.required(request)
    if required is None or request.refusal:
        return None
    fabric = None if request.flat else eligibility.fabrics.get(request.partition)
    for choice in _choices(table, request, eligibility, within):
        allocation = _place_on(table, request, choice, required, prefer, fabric, eligibility, missed)
        if allocation is not None:
            return _kept_apart(table, request, allocation, eligibility)
    return None


def _kept_apart(table: NodeTable, request: Request, allocation: Allocation, eligibility: Eligibility) -> Allocation:
    """The allocation, with the other nodes of its leaves kept free if the request wants that."""
    if request.segment_alone:
        return keeping(table, allocation, eligibility.fabrics.get(request.partition))
    return allocation


def _place_on(
    table: NodeTable,
    request: Request,
    choice: Choice,
    required: frozenset[int],
    prefer: NodeTable | None,
    fabric: Fabric | None,
    eligibility: Eligibility,
    missed: list[_Missed] | None,
) -> Allocation | None:
    # Three ways to choose nodes, quickest first, each for fewer kinds of requests than the next: compiled code over
    # counts (`scheme`), arrays (`select_columns`), rows (`_place_grouped`). Where two of them apply they give the same
    # nodes (tests compare them), so each may give up and leave the request to the next. Networks and fragmentation have
    # orders of their own.
    scheme = scheme_for(eligibility, table, request, choice)
    if scheme is not None:
        portions, final = _choose(table, scheme, choice.nodes, prefer)
        if portions is not None:
            allocation, _misfit = assign_all(table.rows, request, portions, prefer)
            if allocation is not None:
                return allocation
        elif final:
            return None
    workload = workload_of(eligibility, table)
    choice = _narrowed(table, request, choice, eligibility)
    tasks, gpus = capacity_columns(table, request, choice.nodes)
    exact = counts_suffice(table, request)
    # Counts do not know of --exclusive=user and its like: a node of another user's job has CPUs that are free.
    if exact and (exclusive := table.exclusive):
        tasks, gpus = _let_in(table, request, choice.nodes, exclusive, tasks, gpus)
    if missed is not None:
        _note_missed(missed, request, choice, required, fabric, tasks, gpus)
    if fabric is not None:
        return _place_near(table, request, _UsableNodes(choice, tasks, gpus, exact), required, prefer, fabric)
    weights = _weights(table, choice)
    if prefer is not None:
        # For a planned start. Of nodes of equal weight, prefer busy ones, so that other jobs may use the free ones
        # meanwhile.
        weights = 2 * weights + (prefer.cpus[choice.nodes] >= max(1, request.cpus_floor))
    if request.at_end:
        # pack_serial_at_end: give every node a weight of its own, the last node the least.
        weights = (weights + 1) * len(table.up) - choice.nodes
    elif workload is not None and not request.least_loaded:
        weights = ranks(table, request, choice.nodes, weights, workload)
        if exact and not choice.groups and plain(request) and not request.share_rows:
            allocation = _on_best(table, request, choice.nodes, tasks, gpus, weights, prefer)
            if allocation is not None:
                return allocation
    if exact and not choice.groups and plain(request):
        portions, final = select_columns(choice.nodes, tasks, gpus, weights, request)
        if portions is not None:
            allocation, _misfit = assign_all(table.rows, request, portions, prefer)
            if allocation is not None:
                return allocation
        elif final:
            return None
    candidates = _candidates(table, request, choice, tasks, gpus, weights, exact)
    return _place_grouped(table, request, choice, candidates, required, prefer)


def _narrowed(table: NodeTable, request: Request, choice: Choice, eligibility: Eligibility) -> Choice:
    """The choice without nodes that cannot serve now, by single columns."""
    # Bounds by columns first, over all nodes at once; rows are then looked at only on nodes that may serve.
    able = table.up[choice.nodes]
    for column, least in needed(table, request):
        able &= column[choice.nodes] >= least
    if request.segment_alone:
        able &= empty_leaves(table, eligibility.fabrics.get(request.partition))[choice.nodes]
    if choice.boots is not None:
        able &= table.idle[choice.nodes] | ~choice.boots
    return choice.only(able)


def _choose(
    table: NodeTable, scheme: Scheme, nodes: Ints, prefer: NodeTable | None
) -> tuple[list[Portion] | None, bool]:
    """`select_columns` over all nodes that can serve now."""
    counts = [table.cpus, table.core_cpus, table.memory, table.cpus, *table.gres.values()]
    if IDLE in scheme.columns:
        counts[IDLE] = table.idle.astype(np.int64)
    busy = None if prefer is None else prefer.cpus
    times = np.zeros((len(table.up), 1))
    choice = choose(scheme, times, counts, nodes, table.up, table.weight, busy, 0.0, 1.0, 0.0, 1)
    if choice is None:
        return None, True
    portions = None if choice[2] is None else scheme.portions(choice[2])
    return portions, portions is not None


def _let_in(
    table: NodeTable, request: Request, nodes: Ints, exclusive: set[int], tasks: Ints, gpus: Ints
) -> tuple[Ints, Ints]:
    """Tasks and GPUs of each node; none where jobs on the node keep the request off."""
    tasks, gpus = tasks.copy(), gpus.copy()
    for place in np.flatnonzero(np.isin(nodes, list(exclusive)) & (tasks > 0)).tolist():
        if not open_to(table.rows[int(nodes[place])], request):
            tasks[place] = gpus[place] = 0
    return tasks, gpus


def _weights(table: NodeTable, choice: Choice) -> Ints:
    """Weights of the choice's nodes; nodes that must be rebooted come last."""
    weights = table.weight[choice.nodes]
    return weights if choice.boots is None else weights + BOOT_WEIGHT * choice.boots


def _on_best(
    table: NodeTable, request: Request, nodes: Ints, tasks: Ints, gpus: Ints, weights: Ints, prefer: NodeTable | None
) -> Allocation | None:
    """Place on the one node of the least weight, the first of equals, so that nearly equal nodes are packed one after
    another. None if more nodes are wanted, or if the job does not fit there.
    """
    target = target_of(request)
    if target.nodes_min > 1 or target.nodes_max != 1:
        return None
    if target.tasks_per_gpu and target.gpus and (target.tasks or 0) > target.gpus * target.tasks_per_gpu:
        return None
    able = (tasks >= max(1, target.tasks_per_node if target.tasks is None else target.tasks)) & (gpus >= target.gpus)
    if not able.any():
        return None
    best = int(np.where(able, weights, _LARGE).argmin())
    portion = Portion(int(nodes[best]), target.tasks_per_node if target.tasks is None else target.tasks, target.gpus)
    return assign_all(table.rows, request, [portion], prefer)[0]


def _place_grouped(
    table: NodeTable,
    request: Request,
    choice: Choice,
    candidates: list[Candidate],
    required: frozenset[int],
    prefer: NodeTable | None,
) -> Allocation | None:
    """Place on these nodes, with as many nodes of each feature as `[a*2&b*4]` asks for."""
    if not choice.groups:
        return _place_among(table, request, candidates, required, prefer)
    # Which nodes count for a feature is settled before tasks are dealt, so the first order may give away the roomy
    # ones.
    for order in _GROUP_ORDERS:
        ordered = [candidate.index for candidate in sorted(candidates, key=order)]
        grouped = nodes_for_counts(choice.groups, ordered, required)
        if grouped is not None:
            allocation = _place_among(table, request, candidates, grouped, prefer)
            if allocation is not None:
                return allocation
    return None


class _UsableNodes(Struct, frozen=True):
    """Nodes of a choice, with the tasks and GPUs that they could carry; upper bounds unless `exact`."""

    choice: Choice
    tasks: Ints
    gpus: Ints
    exact: bool


def _place_near(
    table: NodeTable,
    request: Request,
    able: _UsableNodes,
    required: frozenset[int],
    prefer: NodeTable | None,
    fabric: Fabric,
) -> Allocation | None:
    """Place on as few leaf switches as hold the job."""
    choice, target = able.choice, target_of(request)
    tasks, gpus = able.tasks, able.gpus
    if not able.exact:
        tasks, gpus = tasks.copy(), gpus.copy()
        for position in tasks.nonzero()[0].tolist():
            row = table.rows[int(choice.nodes[position])]
            tasks[position], gpus[position] = capacity(row, request)
    usable = (tasks >= (target.tasks_per_node if target.tasks is None else 1)).nonzero()[0]
    weights = _weights(table, choice)[usable]
    named = np.isin(choice.nodes[usable], list(required)) if required else np.zeros(len(usable), np.bool_)
    # As in Slurm, weight goes before nearness: consider heavier nodes only when the lighter ones do not suffice.
    # Required nodes are always among them, however heavy: without them no lighter set is an answer.
    for weight in np.unique(weights).tolist():
        light = usable[(weights <= weight) | named]
        if len(light) >= target.nodes_min:
            part = _UsableNodes(choice.only(light), tasks[light], gpus[light], exact=True)
            allocation = _place_in_leaves(table, request, part, required, prefer, fabric)
            if allocation is not None:
                return allocation
    return None


def _place_in_leaves(
    table: NodeTable,
    request: Request,
    able: _UsableNodes,
    required: frozenset[int],
    prefer: NodeTable | None,
    fabric: Fabric,
) -> Allocation | None:
    nodes, target = able.choice.nodes, target_of(request)
    leaf_of = fabric.leaf_of[nodes]
    if _has_segments(request):
        able = _in_segments(able, fabric, request, required)
        nodes = able.choice.nodes
        leaf_of = fabric.leaf_of[nodes]
    room = LeafCapacity(fabric, nodes, able.tasks, able.gpus, target)
    must = sorted({int(fabric.leaf_of[index]) for index in required})
    for leaves in islice(leaf_sets(fabric, room, target, must, request.switches), LEAF_SETS_MAX):
        # Rank of each leaf in this set, in which `select` fills them; -1: not in the set.
        turn = np.full(fabric.below.shape[1], -1, np.int64)
        turn[leaves] = np.arange(len(leaves))
        near = (turn[leaf_of] >= 0).nonzero()[0]
        part = able.choice.only(near)
        weights = _weights(table, part)
        candidates = [
            replace(candidate, turn=int(turn[fabric.leaf_of[candidate.index]]))
            for candidate in _candidates(table, request, part, able.tasks[near], able.gpus[near], weights, exact=True)
        ]
        if fabric.spread and len(leaves) > 1:
            candidates = _leaf_by_leaf(candidates)
        allocation = _place_grouped(table, request, part, candidates, required, prefer)
        # Counts of nodes only bound what fits: whether the leaves got whole segments shows in the allocation.
        if allocation is not None and (
            (request.segment == 1 and not request.segments_spread) or _is_segmented(table, allocation, fabric, request)
        ):
            return allocation
    return None


def _leaf_by_leaf(candidates: list[Candidate]) -> list[Candidate]:
    """One node of each leaf in turn."""
    taken: Counter[int] = Counter()
    leaves = 1 + max(candidate.turn for candidate in candidates) if candidates else 0
    ordered = []
    for candidate in candidates:
        ordered.append(replace(candidate, turn=taken[candidate.turn] * leaves + candidate.turn))
        taken[candidate.turn] += 1
    return ordered


def _has_segments(request: Request) -> bool:
    return request.segment > 1 or request.segments_spread


def _in_segments(able: _UsableNodes, fabric: Fabric, request: Request, required: frozenset[int]) -> _UsableNodes:
    """On each leaf, as many nodes as make whole segments, or one node: required ones first, else the first."""
    segment = request.segment
    most = 1 if request.segments_spread else len(able.choice.nodes)
    leaves: dict[int, list[int]] = {}
    for position in sorted(range(len(able.choice.nodes)), key=lambda at: int(able.choice.nodes[at]) not in required):
        leaves.setdefault(int(fabric.leaf_of[able.choice.nodes[position]]), []).append(position)
    kept = np.array(
        sorted(at for members in leaves.values() for at in members[: min(len(members) // segment, most) * segment]),
        np.int64,
    )
    return _UsableNodes(able.choice.only(kept), able.tasks[kept], able.gpus[kept], exact=True)


def _is_segmented(table: NodeTable, allocation: Allocation, fabric: Fabric, request: Request) -> bool:
    """Whether the nodes on each leaf make whole segments, or are one node."""
    counts = Counter(int(fabric.leaf_of[table.index_of[name]]) for name in allocation.names)
    if request.segments_spread and max(counts.values()) > request.segment:
        return False
    return not any(count % request.segment for count in counts.values())


def _place_among(
    table: NodeTable,
    request: Request,
    candidates: list[Candidate],
    required: frozenset[int],
    prefer: NodeTable | None,
) -> Allocation | None:
    confirmed = False
    while True:
        if request.gpu_types:
            return _place_mixed(table, request, candidates, required, prefer)
        if request.tasks_by_node:
            portions = _as_named(table, request, candidates)
        else:
            portions = select(candidates, request, required)
        if portions is None:
            return None
        allocation, misfit = assign_all(table.rows, request, portions, prefer)
        if allocation is not None:
            return allocation
        # The counts showed more than devices and cores together can hold: offer less and try again. All nodes are
        # confirmed once; after that only the node that does not fit offers less, so that each round ends nearer to an
        # answer, and the loop when nothing is offered any more.
        if confirmed:
            candidates = [
                smaller
                for candidate in candidates
                for smaller in ([candidate] if candidate.index != misfit else _reduced(candidate, portions))
            ]
        else:
            candidates, confirmed = _confirmed(table, request, candidates), True


def _confirmed(table: NodeTable, request: Request, candidates: list[Candidate]) -> list[Candidate]:
    """The candidates with as many tasks and GPUs as can be assigned on each. All nodes together, since correcting one
    at a time would need a new choice of nodes for each.
    """
    confirmed_sizes: dict[tuple[object, ...], tuple[int, int]] = {}
    confirmed = []
    for candidate in candidates:
        row = table.rows[candidate.index]
        alike = depends_on_free(request) and not row.shares_free
        key = (candidate.tasks, candidate.gpus, *(row.free() if alike else (candidate.index,)))
        if key not in confirmed_sizes:
            confirmed_sizes[key] = _most(row, request, candidate)
        tasks, gpus = confirmed_sizes[key]
        if tasks:
            confirmed.append(replace(candidate, tasks=tasks, gpus=gpus))
    return confirmed


def _most(row: NodeRow, request: Request, candidate: Candidate) -> tuple[int, int]:
    """Most tasks and GPUs, at most the candidate's, that can be assigned on its node; no tasks if none can."""
    for gpus in range(candidate.gpus, 0, -1) if candidate.gpus else (0,):

        def misfits(tasks: int, gpus: int = gpus) -> bool:
            return assign(row, request, tasks, gpus) is None

        tasks = bisect_left(range(1, candidate.tasks + 1), True, key=misfits)
        if tasks:
            return tasks, gpus
    return 0, 0


def _place_mixed(
    table: NodeTable,
    request: Request,
    candidates: list[Candidate],
    required: frozenset[int],
    prefer: NodeTable | None,
) -> Allocation | None:
    """Place GPUs of several types: ask each node for its own devices."""
    portions = mixed_portions(table, request, candidates, required)
    return None if portions is None else _assigned(table, request, portions, prefer)


def _assigned(
    table: NodeTable, request: Request, portions: list[tuple[Portion, Request]], prefer: NodeTable | None
) -> Allocation | None:
    """The allocation, where each node has a request of its own; None if some portion does not fit."""
    if all(node_request is request for _portion, node_request in portions):
        return assign_all(table.rows, request, [portion for portion, _request in portions], prefer)[0]
    parts = [assign_all(table.rows, node_request, [portion], prefer)[0] for portion, node_request in portions]
    nodes = tuple(node for part in parts if part is not None for node in part.nodes)
    if len(nodes) < len(portions):
        return None
    tasks = tuple(portion.tasks for portion, _node_request in portions)
    return Allocation(
        partition=request.partition,
        nodes=nodes,
        tasks=tasks,
        whole_nodes=request.whole,
        reservation=request.reservation,
    )


def _as_named(table: NodeTable, request: Request, candidates: list[Candidate]) -> list[Portion] | None:
    """The tasks that --distribution=arbitrary puts on each node; None if there is no room for them."""
    room = {candidate.index: candidate.tasks for candidate in candidates}
    tasks_by_index = sorted((table.index_of.get(name, -1), tasks) for name, tasks in request.tasks_by_node)
    if any(room.get(index, 0) < tasks for index, tasks in tasks_by_index):
        return None
    return [Portion(index, tasks, 0) for index, tasks in tasks_by_index]


def _reduced(candidate: Candidate, portions: list[Portion]) -> list[Candidate]:
    # One less than what did not fit, not than what was offered: else the same portion would come back.
    portion = next(portion for portion in portions if portion.index == candidate.index)
    if portion.tasks > 1:
        return [replace(candidate, tasks=portion.tasks - 1)]
    if portion.gpus > 1:
        return [replace(candidate, gpus=portion.gpus - 1)]
    return []


def _candidates(
    table: NodeTable, request: Request, choice: Choice, tasks: Ints, gpus: Ints, weights: Ints, exact: bool
) -> list[Candidate]:
    """Nodes of the choice that can serve now, in node order. `tasks` and `gpus` are bounds unless `exact`; `weights`
    give the order in which nodes are taken.
    """
    weighted = request.least_loaded or request.spread
    candidates = []
    for position in tasks.nonzero()[0].tolist():
        index = int(choice.nodes[position])
        row = table.rows[index]
        most, devices = (int(tasks[position]), int(gpus[position])) if exact else capacity(row, request)
        if most:
            load = 1.0 - row.free_cpus.bit_count() / max(1, row.hardware.cpus.bit_count()) if weighted else 0.0
            candidates.append(Candidate(index, most, devices, int(weights[position]), load))
    return candidates


def _in_order(candidate: Candidate) -> tuple[int, ...]:
    return (candidate.weight, candidate.index)


def _most_tasks(candidate: Candidate) -> tuple[int, ...]:
    return (-candidate.tasks, -candidate.gpus, candidate.index)


def _most_gpus(candidate: Candidate) -> tuple[int, ...]:
    return (-candidate.gpus, -candidate.tasks, candidate.index)


#: orders in which nodes are tried for `[a*2&b*4]`; the later ones in case the first leaves too little room
_GROUP_ORDERS = (_in_order, _most_tasks, _most_gpus)


def assign_all(
    rows: Sequence[NodeRow], request: Request, portions: list[Portion], prefer: NodeTable | None
) -> tuple[Allocation | None, int]:
    """The allocation, or the index of the node on which its portion does not fit."""
    nodes = []
    # Equal nodes give equal allocations.
    by_key: dict[tuple[object, ...], NodeAllocation] = {}
    # A job of 1,000 nodes mostly gets 1,000 equal shares; computing one and copying it makes wide jobs cheap. Equal is:
    # equal portion and equal free resources, on equal hardware (part of `row.free()`).
    # Not where shares of CPUs, or a limit by socket, make two nodes differ that have the same left (`depends_on_free`).
    counted = len(portions) > 1 and depends_on_free(request)
    for portion in portions:
        row = rows[portion.index]
        busy = ~prefer.rows[portion.index].free_cpus & row.hardware.cpus if prefer is not None else 0
        key = (portion.tasks, portion.gpus, busy, *row.free()) if counted and not row.shares_free else ()
        like = by_key.get(key) if key else None
        if like is not None:
            node = NodeAllocation(node=row.name, cpus=like.cpus, memory_mib=like.memory_mib, gres=like.gres)
        else:
            share = assign(row, request, portion.tasks, portion.gpus, busy)
            if share is None:
                return None, portion.index
            node = by_key[key] = share
        nodes.append(node)
    allocation = Allocation(
        partition=request.partition,
        nodes=tuple(nodes),
        tasks=tuple(portion.tasks for portion in portions),
        whole_nodes=request.whole,
        reservation=request.reservation,
    )
    return allocation, -1


def could_serve(table: NodeTable, request: Request, nodes: Ints) -> bool:
    """Whether any of these nodes (indexes) could carry even one task of the request now."""
    if len(nodes) > FEW:
        return bool(capacity_columns(table, request, nodes)[0].any())
    for index in nodes.tolist():
        row = table.rows[index]
        enough_cpus = request.share_rows or row.free_cpus.bit_count() >= request.cpus_floor
        if enough_cpus and capacity(row, request)[0]:
            return True
    return False
