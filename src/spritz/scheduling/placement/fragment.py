"""Ranks nodes by how much a request would fragment their GPUs: `SchedulerParameters=gpu_fragmentation`.

A request counts as the share that it takes of one node. The workload by which fragments are measured is what waits and
runs now. Weight still goes first. The rank takes the place of the weight in the choice of nodes, so everything else is
decided as without it.

Source: `scheduling.view.sharing.fragmentation` (FGD, USENIX ATC'23).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from spritz.model.rules.node_shape import SHARED_GRES
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.placement.share import needs_of
from spritz.scheduling.view.sharing.fragmentation import WHOLE_GPU, TypicalTasks, fragments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Bools, Ints, NodeTable

#: The workload is represented by its most frequent requests: this share of it, and at most this many requests.
POPULAR = 0.95
TYPICAL_MAX = 64

#: Two workloads count as equal if their shares of requests differ by no more than this in sum; points are then kept.
ALIKE = 0.02
#: node states whose points are kept, per request
STATES_MAX = 1 << 16

#: Bits of a node's state, which is one number: free CPUs, wholly free GPUs, the set of GPU types, parts of others.
_GPU_BITS, _MODEL_BITS, _PART_BITS = 12, 11, 20
#: a cache with one state that no node has
_NOTHING: tuple[Ints, Ints] = (np.array([-1], np.int64), np.array([0], np.int64))

#: (thousandths of a CPU, GPUs, thousandths of each, GPU type) that one node gives
Part = tuple[int, int, int, str]


def workload_of(eligibility: Eligibility, table: NodeTable) -> Workload | None:
    """The workload for which nodes are kept usable; None unless GPUs are placed by fragmentation."""
    sample = eligibility.workload
    if sample is None:
        return None
    workload = sample.derived
    if not isinstance(workload, Workload):
        workload, before = Workload(table, sample.requests), sample.before
        if isinstance(before, Workload) and workload.is_like(before):
            workload = before
        sample.derived, sample.before = workload, None
    return workload


class Workload:
    """The workload for which nodes are kept usable. `models`: sets of GPU types of nodes; `model_of`: int64[node]."""

    __slots__ = ("_known", "_numbers", "_shares", "model_of", "tasks")

    def __init__(self, table: NodeTable, requests: Iterable[tuple[Request, int]]) -> None:
        """`requests`: each with its number of jobs. `table` numbers parts of GPUs, as its forks do."""
        sets: dict[frozenset[str], int] = {}
        self._shares: dict[str, int] = {}
        tasks = []
        for row in table.rows:
            pools = row.hardware.pools
            types = frozenset(kind for kind in pools["gpu"].counts if kind) if "gpu" in pools else frozenset()
            tasks.append(sets.setdefault(types, len(sets)))
            for name in SHARED_GRES:
                if name in pools and pools[name].shares:
                    self._shares[name] = max(pools[name].shares.values())
        self.model_of: Ints = np.array(tasks, np.int64)
        self.tasks = _typical(requests, list(sets), self._shares)
        self._numbers = table.gpu_parts
        #: by what a job takes of a node: states, ascending, and the points of each
        self._known: dict[tuple[int, int, int, bool], tuple[Ints, Ints]] = {}

    def is_like(self, other: Workload) -> bool:
        """Whether points would be nearly the same."""
        own_shares, other_shares = self.tasks, other.tasks
        if own_shares is None or other_shares is None or len(self.model_of) != len(other.model_of):
            return own_shares is other_shares
        shares = _by_part(own_shares), _by_part(other_shares)
        return (
            self._numbers is other._numbers
            and own_shares.models.shape[1] == other_shares.models.shape[1]
            and sum(abs(shares[0].get(part, 0.0) - shares[1].get(part, 0.0)) for part in {**shares[0], **shares[1]})
            <= ALIKE
        )

    def points(self, table: NodeTable, request: Request, nodes: Ints, typical: TypicalTasks) -> Ints:
        """How good each of `nodes` is for a job of this request: int64[len(nodes)], 0 to 100; 50 leaves fragments
        unchanged. Whole points, as in the study, so that nearly equal nodes are packed one after another.
        """
        # Clusters have few distinct node states, which come back all the time. So a state is packed into one number,
        # and its points, which are dear to compute, are kept: a sorted array of states, searched for all nodes at once.
        part = part_of(request, self._shares)[:3]
        whole = table.gres.get(("gpu", ""))
        state = (table.cpus[nodes] << _GPU_BITS) + (0 if whole is None else whole[nodes])
        state = ((state << _MODEL_BITS) + self.model_of[nodes]) << _PART_BITS
        if table.gpu_parts is not None and table.gpu_parts is self._numbers:
            state += table.gpu_part_numbers[nodes]
        keys, points = self._known.get((*part, request.whole), _NOTHING)
        at = np.minimum(np.searchsorted(keys, state), len(keys) - 1)
        strange = keys[at] != state
        if strange.any():
            new = np.unique(state[strange])
            worth = np.concatenate(
                [
                    self._compute_points(states, part, typical, whole=request.whole)
                    for states in np.array_split(new, len(new) // 256 + 1)
                ]
            )
            if len(keys) > STATES_MAX:
                keys, points = _NOTHING
            places = np.searchsorted(keys, new)
            keys, points = np.insert(keys, places, new), np.insert(points, places, worth)
            self._known[(*part, request.whole)] = keys, points
            at = np.minimum(np.searchsorted(keys, state), len(keys) - 1)
            if (keys[at] != state).any():
                # The cache was full and has just been emptied.
                return self.points(table, request, nodes, typical)
        node_points: Ints = points[at]
        return node_points

    def _compute_points(self, states: Ints, part: tuple[int, int, int], typical: TypicalTasks, *, whole: bool) -> Ints:
        cpus, gpus, milli = part
        numbers = states & ((1 << _PART_BITS) - 1)
        model = states >> _PART_BITS & ((1 << _MODEL_BITS) - 1)
        above = states >> (_PART_BITS + _MODEL_BITS)
        counts, cpu_free = above & ((1 << _GPU_BITS) - 1), (above >> _GPU_BITS) * 1000
        parts = [
            () if not number or self._numbers is None else self._numbers.parts[number] for number in numbers.tolist()
        ]
        width = max(1, max(count + len(some) for count, some in zip(counts.tolist(), parts, strict=True)))
        free = np.zeros((len(states), width), np.int64)
        for row, count, some in zip(free, counts.tolist(), parts, strict=True):
            row[: len(some)] = some
            row[len(some) : len(some) + count] = WHOLE_GPU
        if whole:
            cpu_after, after = np.zeros_like(cpu_free), np.zeros_like(free)
        else:
            cpu_after, after = np.maximum(cpu_free - cpus, 0), _after(free, gpus, milli)
        gain = fragments(cpu_free, free, model, typical) - fragments(cpu_after, after, model, typical)
        # A sigmoid of the gain in whole GPUs, as in FGD's scheduler plugin: 50 if the fragment neither grows nor
        # shrinks.
        rank: Ints = (100.0 / (1.0 + np.exp(-gain / WHOLE_GPU))).astype(np.int64)
        return rank


def _by_part(tasks: TypicalTasks) -> dict[tuple[object, ...], float]:
    """Share of each request in the workload."""
    rows = zip(tasks.cpu.tolist(), tasks.gpus.tolist(), tasks.milli.tolist(), tasks.models.tolist(), strict=True)
    shares: dict[tuple[object, ...], float] = {}
    for (cpu, gpus, milli, models), share in zip(rows, tasks.share.tolist(), strict=True):
        shares[cpu, gpus, milli, tuple(models)] = share
    return shares


def _typical(
    requests: Iterable[tuple[Request, int]], models: list[frozenset[str]], shares: dict[str, int]
) -> TypicalTasks | None:
    counts: Counter[Part] = Counter()
    for request, count in requests:
        counts[part_of(request, shares)] += count * max(1, request.nodes_min)
    total, covered = sum(counts.values()), 0
    chosen: list[tuple[Part, int]] = []
    for part, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= POPULAR * total or len(chosen) == TYPICAL_MAX:
            break
        chosen.append((part, count))
        covered += count
    if not any(part[1] for part, _count in chosen):
        return None
    return TypicalTasks(
        cpu=np.array([part[0] for part, _ in chosen], np.int64),
        gpus=np.array([part[1] for part, _ in chosen], np.int64),
        milli=np.array([part[2] for part, _ in chosen], np.int64),
        share=np.array([count / covered for _, count in chosen]),
        models=np.array([[not part[3] or part[3] in model for model in models] for part, _ in chosen], np.bool_),
    )


def part_of(request: Request, shares: dict[str, int]) -> Part:
    """The share of a node that a job of this request needs. `shares`: shares per GPU, by name."""
    target, nodes = target_of(request), max(1, request.nodes_min)
    tasks = request.tasks_per_node_fixed if target.tasks is None else -(-target.tasks // nodes)
    needs = needs_of(request, tasks, -(-target.gpus // nodes))
    gpus, milli, kind = 0, WHOLE_GPU, ""
    for (name, wanted), count in sorted(needs.items()):
        if name == "gpu":
            gpus, kind = gpus + count, wanted or kind
        elif name in shares and not gpus:
            gpus, milli = 1, min(WHOLE_GPU, count * WHOLE_GPU // shares[name])
    cpus = 0 if request.overcommit else tasks * request.cpus_per_task
    return max(1, cpus, request.cpus_per_node_min, request.cpus_per_gpu * gpus) * 1000, gpus, milli, kind


def ranks(table: NodeTable, request: Request, nodes: Ints, weights: Ints, workload: Workload) -> Ints:
    """Lower ranks are taken first: by weight, then by growth of the fragment. int64[len(nodes)]."""
    typical = workload.tasks
    if typical is None or len(nodes) < 2:
        return weights
    node_ranks: Ints = weights * 128 + (100 - workload.points(table, request, nodes, typical))
    return node_ranks


def _after(free: Ints, gpus: int, milli: int) -> Ints:
    """Free GPUs after this many whole ones are gone, or a share of the fullest one that has room for it."""
    after = free.copy()
    if not gpus:
        return after
    if milli == WHOLE_GPU:
        open_gpus: Bools = free == WHOLE_GPU
        after[open_gpus & (open_gpus.cumsum(axis=1) <= gpus)] = 0
        return after
    chosen = np.where(free >= milli, free, WHOLE_GPU + 1).argmin(axis=1)
    rows = np.arange(len(free))
    after[rows, chosen] = np.maximum(free[rows, chosen] - milli, 0)
    return after
