"""Which of the nodes that could serve are taken, and how many tasks and GPUs go to each.

Works on capacities alone (lists in node order), so the same rules serve now, at a later time, and for an empty cluster.
As in Slurm: required nodes first; low weight before high; the smallest run of neighbouring nodes that suffices, else
the largest; within a run from its beginning. Where that takes too many nodes, the largest ones are taken instead, so
that no request that fits is refused.

Source: slurm.conf(5) Weight, LLN; sbatch(1) --nodes, --contiguous, --spread-job; select/cons_tres.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.scheduling.placement.cover import cover

if TYPE_CHECKING:
    from spritz.scheduling.view.request import Request


class Candidate(Struct, frozen=True, gc=False):
    """A node that could take part: its index, its most tasks and GPUs (at least one task), its weight, and how full it
    is (0..1).
    """

    index: int
    tasks: int
    gpus: int = 0
    weight: int = 1
    load: float = 0.0
    #: position of its leaf switch in the order of leaves (-1: the network does not matter)
    turn: int = -1


class Portion(Struct, frozen=True, gc=False):
    """The share of a job that one node carries."""

    index: int
    tasks: int
    gpus: int


class Target(Struct, frozen=True, gc=False):
    """The total for all nodes together. `tasks` None: `tasks_per_node` on every node. `gpus` 0: no total."""

    nodes_min: int
    nodes_max: int
    nodes_wanted: int
    tasks: int | None
    tasks_per_node: int
    gpus: int
    tasks_per_gpu: int | None


def target_of(request: Request) -> Target:
    """The sums that `request` asks for."""
    most = request.nodes_max if request.nodes_max is not None else 1 << 30
    gpus = request.gres_total.count if request.gres_total is not None else 0
    if gpus:
        most = min(most, gpus)
    nodes_wanted = most if request.nodes_want_max or request.spread else request.nodes_min
    return Target(
        request.nodes_min, most, nodes_wanted, request.tasks, request.tasks_per_node_fixed, gpus, request.tasks_per_gpu
    )


def select(
    candidates: Sequence[Candidate], request: Request, required: frozenset[int] = frozenset()
) -> list[Portion] | None:
    """Portions in node order; None if these nodes cannot carry the job.

    `candidates` are in node order. All of `required` (indexes) must be among them.
    """
    target = target_of(request)
    # --ntasks-per-node without a total: each node carries exactly that many, so one with room for fewer is of no use.
    if target.tasks is None:
        candidates = [candidate for candidate in candidates if candidate.tasks >= target.tasks_per_node]
    if len(candidates) < target.nodes_min or not _sums_suffice(candidates, target):
        return None
    first = [candidate for candidate in candidates if candidate.index in required]
    if len(first) < len(required) or len(first) > target.nodes_max:
        return None
    others = [candidate for candidate in candidates if candidate.index not in required] if required else candidates
    if request.contiguous:
        chosen = _contiguous(candidates, required, target)
    else:
        # The second only where the first ends incomplete: it takes few and large nodes, which Slurm's order saves.
        chosen = _in_order(first, others, request, target) or _roomiest(first, others, target)
    return portions_of(chosen, target) if chosen else None


def _sums_suffice(chosen: Sequence[Candidate], target: Target) -> bool:
    """Whether these could carry everything if the number of nodes were not limited."""
    if target.tasks is not None and sum(candidate.tasks for candidate in chosen) < target.tasks:
        return False
    return not target.gpus or sum(candidate.gpus for candidate in chosen) >= target.gpus


def _complete(chosen: Sequence[Candidate], target: Target) -> bool:
    return target.nodes_min <= len(chosen) <= target.nodes_max and _sums_suffice(chosen, target)


class _Taking:
    """The nodes taken so far, and what is still missing."""

    def __init__(self, target: Target, first: Sequence[Candidate]) -> None:
        self.chosen: list[Candidate] = []
        self.target = target
        self.nodes = target.nodes_wanted
        self.tasks = target.tasks or 0
        self.gpus = target.gpus
        for candidate in first:
            self.take(candidate)

    def take(self, candidate: Candidate) -> None:
        self.chosen.append(candidate)
        self.nodes -= 1
        self.tasks -= candidate.tasks
        self.gpus -= candidate.gpus

    def is_full(self) -> bool:
        """Whether nothing is missing, or no more nodes may be taken."""
        return (self.nodes <= 0 and self.tasks <= 0 and self.gpus <= 0) or len(self.chosen) >= self.target.nodes_max


def _in_order(
    first: list[Candidate], others: Sequence[Candidate], request: Request, target: Target
) -> list[Candidate] | None:
    """Slurm's choice; None if it ends incomplete."""
    taking = _Taking(target, first)
    if request.least_loaded or request.spread:
        for candidate in sorted(others, key=lambda candidate: (candidate.weight, candidate.load, candidate.index)):
            if taking.is_full():
                break
            taking.take(candidate)
        return taking.chosen if _complete(taking.chosen, target) else None
    if others and others[0].turn >= 0:
        for candidate in sorted(others, key=lambda candidate: (candidate.turn, candidate.weight, candidate.index)):
            if taking.is_full():
                break
            taking.take(candidate)
        return taking.chosen if _complete(taking.chosen, target) else None
    # As Slurm's best fit: lighter nodes first; among equal weights the smallest run of neighbours that completes the
    # job, else the largest, so that few runs are broken.
    weights = sorted({candidate.weight for candidate in others})
    for weight in weights:
        runs = [_Run(run) for run in _runs([candidate for candidate in others if candidate.weight == weight])]
        while runs and not taking.is_full():
            best = min(range(len(runs)), key=lambda position: runs[position].rank(taking))
            for candidate in runs.pop(best).nodes:
                if taking.is_full():
                    break
                taking.take(candidate)
    return taking.chosen if _complete(taking.chosen, target) else None


def _runs(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Groups of candidates whose nodes are neighbours in the order of nodes."""
    runs: list[list[Candidate]] = []
    previous = -2
    for candidate in candidates:
        if candidate.index != previous + 1:
            runs.append([])
        runs[-1].append(candidate)
        previous = candidate.index
    return runs


class _Run:
    """Neighbouring nodes with the sums of their resources."""

    __slots__ = ("gpus", "nodes", "tasks")

    def __init__(self, nodes: list[Candidate]) -> None:
        self.nodes = nodes
        self.tasks = sum(candidate.tasks for candidate in nodes)
        self.gpus = sum(candidate.gpus for candidate in nodes)

    def rank(self, taking: _Taking) -> tuple[bool, int, int]:
        """Least is best: the smallest run that would complete the choice, else the largest."""
        enough = len(self.nodes) >= taking.nodes and self.tasks >= taking.tasks and self.gpus >= taking.gpus
        return (not enough, self.tasks if enough else -self.tasks, self.nodes[0].index)


def _roomiest(first: list[Candidate], others: Sequence[Candidate], target: Target) -> list[Candidate] | None:
    """Few nodes that are large enough together, where the usual order took too many small ones."""
    tasks = max(0, (target.tasks or 0) - sum(candidate.tasks for candidate in first))
    gpus = max(0, target.gpus - sum(candidate.gpus for candidate in first))
    sizes = [(candidate.tasks, candidate.gpus) for candidate in others]
    positions = cover(sizes, target.nodes_max - len(first), tasks, gpus)
    if positions is None:
        return None
    # Fewer nodes than asked for at least: further ones take a share of the tasks in `portions_of`.
    chosen = [*first, *(others[position] for position in positions)]
    taken = frozenset(positions)
    spare = [candidate for position, candidate in enumerate(others) if position not in taken]
    chosen += spare[: max(0, target.nodes_min - len(chosen))]
    return chosen if _complete(chosen, target) else None


def _contiguous(candidates: Sequence[Candidate], required: frozenset[int], target: Target) -> list[Candidate] | None:
    """The shortest stretch of neighbours that holds everything, required nodes included; the first of equal ones."""
    best: list[Candidate] | None = None
    for run in _runs(candidates):
        stretch = _shortest_stretch(run, required, target)
        if stretch is not None and (best is None or len(stretch) < len(best)):
            best = stretch
    return best


def _shortest_stretch(run: list[Candidate], required: frozenset[int], target: Target) -> list[Candidate] | None:
    """Two pointers move along the run; `tasks` and `gpus` are the sums between them."""
    # Without required nodes these two bound nothing: any start is before the end of the run.
    first, last = min(required, default=run[-1].index), max(required, default=run[0].index)
    if first < run[0].index or last > run[-1].index:
        return None
    best: list[Candidate] | None = None
    end = tasks = gpus = 0
    for start, candidate in enumerate(run):
        if candidate.index > first:
            break
        while end < len(run) and (
            end - start < target.nodes_min
            or tasks < (target.tasks or 0)
            or gpus < target.gpus
            or run[end - 1].index < last
        ):
            tasks += run[end].tasks
            gpus += run[end].gpus
            end += 1
        stretch = run[start:end]
        if _complete(stretch, target) and stretch[-1].index >= last and (best is None or len(stretch) < len(best)):
            best = stretch
        tasks -= candidate.tasks
        gpus -= candidate.gpus
    return best


def portions_of(chosen: list[Candidate], target: Target) -> list[Portion] | None:
    """Fill node after node, but leave one task (and GPU) for each node that follows.

    None if the tasks do not come out even, or are fewer than the nodes.
    """
    # Dealt in node order, whatever order the nodes were chosen in: ranks follow the nodes of the allocation.
    chosen = sorted(chosen, key=lambda candidate: candidate.index)
    # Nodes that follow. Each must get a task (and a GPU, if GPUs are dealt): of 4 tasks on nodes with room for 4 each,
    # the second of `-N2` would otherwise get none, and a node without a task is not part of the job.
    nodes_after = len(chosen)
    tasks, gpus = target.tasks, target.gpus
    dealt = _gpus_for_tasks(chosen, target)
    portions = []
    for position, candidate in enumerate(chosen):
        nodes_after -= 1
        devices = min(candidate.gpus, gpus - nodes_after) if gpus else 0
        if dealt is not None:
            devices = dealt[position]
        gpus -= devices
        node_tasks = target.tasks_per_node
        if tasks is not None:
            most = devices * target.tasks_per_gpu if devices and target.tasks_per_gpu else candidate.tasks
            node_tasks = min(candidate.tasks, most, tasks - nodes_after)
            tasks -= node_tasks
            if node_tasks < 1:
                return None
        portions.append(Portion(candidate.index, node_tasks, devices))
    return None if tasks else portions


def _gpus_for_tasks(chosen: Sequence[Candidate], target: Target) -> list[int] | None:
    """With --ntasks-per-gpu, GPUs of each node so that most tasks have one; None where the number of tasks does not
    depend on it, or if there are too few or too many GPUs.
    """
    each = target.tasks_per_gpu
    if not each or not target.gpus or target.tasks is None:
        return None
    undealt = target.gpus - len(chosen)
    if undealt < 0 or sum(candidate.gpus for candidate in chosen) < target.gpus:
        return None
    # Each further GPU of a node serves no more tasks than the one before. So it is best to give each GPU where it
    # serves most tasks: first those that are used to the full, then the largest rest of a node, then any.
    dealt = [1] * len(chosen)
    for position, candidate in enumerate(chosen):
        more = min(undealt, max(0, min(candidate.gpus, candidate.tasks // each) - 1))
        dealt[position] += more
        undealt -= more

    def served(position: int) -> int:
        return max(0, chosen[position].tasks - dealt[position] * each)

    for position in sorted(range(len(chosen)), key=lambda position: (-served(position), position)):
        more = min(undealt, chosen[position].gpus - dealt[position], 1)
        dealt[position] += more
        undealt -= more
    for position, candidate in enumerate(chosen):
        more = min(undealt, candidate.gpus - dealt[position])
        dealt[position] += more
        undealt -= more
    return dealt
