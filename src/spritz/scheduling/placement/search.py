"""The second try: looks through all sets of nodes, where the usual choice found none.

The usual choice (`select`, `leaves`, `mixed`) takes sums of nodes, and fails where these do not meet: tasks and GPUs
that depend on each other, several types of GPUs, counts of features, segments, few switches. Here a table holds, for
each number of nodes, GPUs and counted features that some set of nodes reaches, the most tasks of such a set. It grows
by one node after another, so its size depends on what the request asks for and not on the number of sets. `Effort`
bounds it; an answer of None is final unless the effort says otherwise.

Source: sbatch(1) --gpus, --ntasks-per-gpu, --constraint, --segment, --switches, --contiguous.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from spritz.model.ids import INFINITE
from spritz.scheduling.placement.counted import nodes_for_counts
from spritz.scheduling.placement.mixed import request_of_node
from spritz.scheduling.placement.select import Candidate, Portion, portions_of, target_of
from spritz.scheduling.placement.share import assign, depends_on_free
from spritz.scheduling.view.capacity import capacity, open_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from spritz.scheduling.placement.effort import Effort
    from spritz.scheduling.placement.select import Target
    from spritz.scheduling.view.eligibility import Choice
    from spritz.scheduling.view.fabric import Fabric
    from spritz.scheduling.view.nodes import NodeRow
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints, NodeTable

#: number of nodes, nodes of each counted feature, GPUs of each type; features count for no more than is asked for
Sums = tuple[int, ...]
#: nodes taken, newest first: (position of the node, its GPUs, the earlier ones)
Chain = tuple[int, Sums, "Chain"] | None
#: the most tasks of a set of nodes with these sums, and the set
Sets = dict[Sums, tuple[int, Chain]]


class Offer(Struct, frozen=True, gc=False):
    """The capacity of one node: `options` are GPUs of each type and the most tasks with them; `marks` the ways in which
    it counts for features. `part`: its leaf switch or block.
    """

    index: int
    options: tuple[tuple[Sums, int], ...]
    marks: tuple[Sums, ...]
    part: int
    required: bool

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for nodes of which any will do."""
        return self.options, self.marks, self.part


class _OutOfSteps(Exception):
    """The search needs more steps than it may take."""


def could_find(request: Request, choice: Choice, fabric: Fabric | None, tasks: Ints, gpus: Ints) -> bool:
    """Whether the usual choice may miss a place on these nodes, of which `tasks` and `gpus` are upper bounds."""
    if request.tasks_by_node or not (request.gres_total is not None or choice.groups or fabric is not None):
        return False
    target = target_of(request)
    able = tasks >= (target.tasks_per_node if target.tasks is None else 1)
    if int(able.sum()) < target.nodes_min:
        return False
    if not (target.tasks or target.gpus):
        return True
    return all(
        int(np.sort(np.minimum(column[able], wanted))[-target.nodes_max :].sum()) >= wanted
        for column, wanted in ((tasks, target.tasks or 0), (gpus, target.gpus))
        if wanted
    )


def search(
    table: NodeTable, request: Request, choice: Choice, required: frozenset[int], fabric: Fabric | None, effort: Effort
) -> list[tuple[Portion, Request]] | None:
    """The portion of each node, in node order, with the request as it applies to this node alone; None if no set of
    these nodes can carry the job, or if none was found within the effort.
    """
    # A share of the cycle's steps, not all: one request that is hard would leave none to those behind it.
    steps = effort.take()
    job = _Job(request, choice, fabric, steps)
    try:
        offers = job.offers(table, required)
        if not job.could_suffice(offers, required):
            return None
        chain = job.best(offers)
        return None if chain is None else job.portions(offers, chain)
    except _OutOfSteps:
        effort.gave_up(steps)
        return None
    finally:
        effort.give_back(max(0, job.steps))


class _Job:
    """One request's demands on a set of nodes."""

    def __init__(self, request: Request, choice: Choice, fabric: Fabric | None, steps: int) -> None:
        self.request, self.choice, self.fabric = request, choice, fabric
        self.target: Target = target_of(request)
        self.steps = steps
        #: the counts of features, one after another
        self.counts = tuple(count for pairs in choice.groups for _members, count in pairs)
        self.gpus: Sums = ()
        if request.gpu_types:
            self.gpus = tuple(need.count for need in request.gpu_types)
        elif request.gres_total is not None:
            self.gpus = (request.gres_total.count,)
        #: smaller numbers of GPUs serve as many tasks, so sums may be more than is asked for
        self.loose = len(self.gpus) == 1 and not request.enforce_binding and not request.tasks_per_gpu
        self.nothing: Sums = (0,) * (1 + len(self.counts) + len(self.gpus))
        self.numbers = frozenset(request.node_counts)
        self.nodes_max = min(self.target.nodes_max, max(self.numbers, default=self.target.nodes_max))
        self.tasks = self.target.tasks or 0

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise _OutOfSteps

    # -- single nodes

    def offers(self, table: NodeTable, required: frozenset[int]) -> list[Offer]:
        """The capacity of each node that can serve now, in node order."""
        offers = []
        known: dict[tuple[object, ...], tuple[tuple[Sums, int], ...]] = {}
        request = self.request
        alike = depends_on_free(request) and request.max_cpus_per_node >= INFINITE
        for index in self.choice.nodes.tolist():
            self.spend(1)
            row = table.rows[index]
            if not row.up or not open_to(row, request):
                continue
            # Of a thousand equal nodes one is asked; where shares or limits count, none is equal to another.
            key = row.free() if alike and not row.shares_free else (index,)
            options = known.get(key)
            if options is None:
                options = known[key] = tuple(self._options(row))
            if options:
                part = int(self.fabric.leaf_of[index]) if self.fabric is not None else 0
                offers.append(Offer(index, options, self._marks(index), part, index in required))
        return offers

    def _options(self, row: NodeRow) -> Iterator[tuple[Sums, int]]:
        request, target = self.request, self.target
        least = target.tasks_per_node if target.tasks is None else 1
        tasks, gpus = capacity(row, request)
        if tasks < least:
            return
        if request.gpu_types:
            yield from self._options_of_types(row, least)
        elif self.loose:
            yield (min(gpus, self.gpus[0]),), min(tasks, self.tasks or tasks)
        elif request.gres_total is not None:
            for count in range(1, min(gpus, self.gpus[0]) + 1):
                most = min(tasks, count * request.tasks_per_gpu) if request.tasks_per_gpu else tasks
                most = self._confirmed(row, request, most, count)
                if most >= least:
                    yield (count,), most
        else:
            most = self._confirmed(row, request, tasks, 0)
            if most >= least:
                yield (), most

    def _options_of_types(self, row: NodeRow, least: int) -> Iterator[tuple[Sums, int]]:
        needs = self.request.gpu_types
        free = [min(row.count_free(need.name, need.type), need.count) for need in needs]
        for counts in product(*(range(count + 1) for count in free)):
            self.spend(1)
            if any(counts):
                request = request_of_node(self.request, counts)
                most = self._confirmed(row, request, capacity(row, request)[0], 0)
                if most >= least:
                    yield counts, most

    def _confirmed(self, row: NodeRow, request: Request, tasks: int, gpus: int) -> int:
        """The most tasks, up to `tasks`, that fit on the node with these GPUs."""
        tasks = min(tasks, self.tasks or self.target.tasks_per_node)
        if not request.enforce_binding:
            return tasks  # `capacity` is exact
        low, high = 0, tasks
        # Counts mostly say what is right, so the bisection begins at their end.
        middle = high
        while low < high:
            self.spend(1)
            if assign(row, request, middle, gpus) is not None:
                low = middle
            else:
                high = middle - 1
            middle = (low + high + 1) // 2
        return low

    def _marks(self, index: int) -> tuple[Sums, ...]:
        """The ways in which the node can count: in each set of features for one of those that it has."""
        ways: list[Sums] = [()]
        for pairs in self.choice.groups:
            mine = [position for position, (members, _count) in enumerate(pairs) if index in members]
            ones = [tuple(int(at == feature) for at in range(len(pairs))) for feature in mine] or [(0,) * len(pairs)]
            ways = [(*way, *feature) for way in ways for feature in ones]
        return tuple(ways)

    # -- sets of nodes

    def could_suffice(self, offers: Sequence[Offer], required: frozenset[int]) -> bool:
        """Whether the largest nodes could carry the job, each sum considered alone: a quick necessary condition."""
        if len(offers) < self.target.nodes_min or sum(offer.required for offer in offers) < len(required):
            return False
        most = self.nodes_max
        sizes = [self._size(offer) for offer in offers]
        wanted = (1, self.tasks, *self.gpus)
        if any(
            sum(sorted(values)[-most:]) < count for count, values in zip(wanted, zip(*sizes, strict=True), strict=True)
        ):
            return False
        if self.request.tasks_per_gpu and not self.request.enforce_binding and len(self.gpus) == 1:
            # Each further GPU of a node serves no more tasks than the one before, so the best GPUs bound the tasks.
            gains = [
                tasks - (offer.options[position - 1][1] if position else 0)
                for offer in offers
                for position, (_gpus, tasks) in enumerate(offer.options)
            ]
            if sum(sorted(gains)[-self.gpus[0] :]) < self.tasks:
                return False
        return not self.counts or self._may_count(offers, required)

    def _may_count(self, offers: Sequence[Offer], required: frozenset[int]) -> bool:
        """Whether there are nodes for all counts of features."""
        return nodes_for_counts(self.choice.groups, [offer.index for offer in offers], required) is not None

    def _size(self, offer: Offer) -> Sums:
        """One node, its tasks, and its GPUs of each type: upper bounds, each considered alone."""
        gpus = (max(gpus[kind] for gpus, _tasks in offer.options) for kind in range(len(self.gpus)))
        return (1, max(tasks for _gpus, tasks in offer.options), *gpus)

    def _leaves_suffice(self, sizes: Sequence[Sums]) -> bool:
        """Whether so few of these leaves as the job may have could carry it, each sum considered alone."""
        wanted = (self.target.nodes_min, self.tasks, *self.gpus)
        most = self.request.switches or len(sizes)
        sums = zip(wanted, zip(*sizes, strict=True), strict=True)
        return all(sum(sorted(values)[-most:]) >= count for count, values in sums)

    def best(self, offers: list[Offer]) -> Chain:
        """The best set of nodes; None if there is none."""
        if self.request.contiguous:
            return self._contiguous(offers)
        if self.fabric is None:
            sets = self._grown({self.nothing: (0, None)}, self._few_of_a_kind(offers))
            return self._first(
                [(0, 0, sums, chain) for sums, (tasks, chain) in sets.items() if self._enough(sums, tasks)]
            )
        return self._near(offers, self.fabric)

    def _near(self, offers: list[Offer], fabric: Fabric) -> Chain:
        """The best set below one switch: the lowest one, and there on the fewest leaves."""
        parts: dict[int, list[tuple[int, Offer]]] = {}
        for position, offer in self._few_of_a_kind(offers):
            parts.setdefault(offer.part, []).append((position, offer))
        must = {offer.part for offer in offers if offer.required}
        sizes: dict[int, Sums] = {}
        for leaf, members in parts.items():
            nodes = len(members) // self.request.segment * self.request.segment
            totals = [sum(values) for values in zip(*(self._size(offer) for _at, offer in members), strict=True)]
            sizes[leaf] = (nodes, *(total if nodes else 0 for total in totals[1:]))
        tables: dict[int, Sets] = {}
        candidates: list[tuple[int, int, Sums, Chain]] = []
        below_seen: set[tuple[int, ...]] = set()
        for switch, level in enumerate(fabric.levels.tolist()):
            below = [leaf for leaf in np.flatnonzero(fabric.below[switch]).tolist() if leaf in parts]
            if not below or not must <= set(below) or tuple(below) in below_seen:
                continue
            below_seen.add(tuple(below))
            if not self._leaves_suffice([sizes[leaf] for leaf in below]):
                continue
            if candidates and level > candidates[0][0] and self._is_wanted(candidates):
                break
            for leaf in below:
                if leaf not in tables:
                    grown = self._grown({self.nothing: (0, None)}, parts[leaf])
                    tables[leaf] = {sums: entry for sums, entry in grown.items() if self._whole_segments(sums[0])}
            for sums, leaves, tasks, chain in self._joined([tables[leaf] for leaf in below]):
                if self._enough(sums, tasks):
                    candidates.append((level, leaves, sums, chain))
        return self._first(candidates)

    def _is_wanted(self, sets: Sequence[tuple[int, int, Sums, Chain]]) -> bool:
        """Whether one of these sets has as many nodes as the job would like."""
        return any(sums[0] >= min(self.target.nodes_wanted, self.nodes_max) for _level, _leaves, sums, _chain in sets)

    def _first(self, sets: Sequence[tuple[int, int, Sums, Chain]]) -> Chain:
        """The best of these sets: of the wanted size, then near, then small or large as the job asks."""
        wanted = min(self.target.nodes_wanted, self.nodes_max)
        largest = -1 if wanted > self.target.nodes_min or self.request.nodes_want_max else 1
        best = min(
            sets,
            key=lambda item: (item[2][0] < wanted, item[0], item[1], largest * item[2][0], item[2]),
            default=None,
        )
        return None if best is None else best[3]

    def _whole_segments(self, nodes: int) -> bool:
        """Whether this number of nodes may be on one leaf."""
        segment = self.request.segment
        return not nodes % segment and (nodes <= segment or not self.request.segments_spread)

    def _few_of_a_kind(self, offers: Iterable[Offer]) -> list[tuple[int, Offer]]:
        """Positions and offers; of nodes that are alike, no more than a job can have."""
        seen: Counter[tuple[object, ...]] = Counter()
        kept = []
        for position, offer in enumerate(offers):
            seen[offer.kind] += 1
            if offer.required or seen[offer.kind] <= self.nodes_max:
                kept.append((position, offer))
        return kept

    def _grown(self, sets: Sets, offers: Iterable[tuple[int, Offer]]) -> Sets:
        """The sets with any of these nodes added, and all of the required ones."""
        for position, offer in offers:
            before = sets
            sets = {} if offer.required else dict(before)
            self.spend(len(before) * len(offer.options) * len(offer.marks))
            for sums, (tasks, chain) in before.items():
                if sums[0] < self.nodes_max:
                    self._add(sets, sums, tasks, chain, position, offer)
        return sets

    def _add(self, sets: Sets, sums: Sums, tasks: int, chain: Chain, position: int, offer: Offer) -> None:
        for gpus, most in offer.options:
            total = min(self.tasks, tasks + most)
            for mark in offer.marks:
                added = self._sum(sums, (1, *mark, *gpus))
                if added is not None and total > sets.get(added, (-1, None))[0]:
                    sets[added] = total, (position, gpus, chain)

    def _sum(self, first: Sums, second: Sums) -> Sums | None:
        """Both together; None if they have more GPUs than the job."""
        counted = 1 + len(self.counts)
        total = [left + other for left, other in zip(first, second, strict=True)]
        for position, most in enumerate(self.counts, 1):
            total[position] = min(total[position], most)
        for position, most in enumerate(self.gpus, counted):
            if total[position] > most:
                if not self.loose:
                    return None
                total[position] = most
        return tuple(total)

    def _joined(self, tables: Sequence[Sets]) -> list[tuple[Sums, int, int, Chain]]:
        """(sums, leaves, tasks, set) of sets on several leaves."""
        most_leaves = self.request.switches or len(tables)
        joined: dict[tuple[Sums, int], tuple[int, Chain]] = {(self.nothing, 0): (0, None)}
        for sets in tables:
            new: dict[tuple[Sums, int], tuple[int, Chain]] = {}
            self.spend(len(joined) * len(sets))
            for (sums, leaves), (tasks, chain) in joined.items():
                for more, (more_tasks, more_chain) in sets.items():
                    used = leaves + (more[0] > 0)
                    if used > most_leaves or sums[0] + more[0] > self.nodes_max:
                        continue
                    total = self._sum(sums, more)
                    if total is not None:
                        both = min(self.tasks, tasks + more_tasks)
                        if both > new.get((total, used), (-1, None))[0]:
                            new[total, used] = both, _linked(chain, more_chain)
            joined = new
        return [(sums, leaves, tasks, chain) for (sums, leaves), (tasks, chain) in joined.items()]

    def _contiguous(self, offers: list[Offer]) -> Chain:
        """The shortest stretch of neighbours that holds the job; the first of equal ones."""
        required = sum(offer.required for offer in offers)
        candidates: list[tuple[int, int, Sums, Chain]] = []
        for first in range(len(offers)):
            sets: Sets = {self.nothing: (0, None)}
            named = 0
            leaves: Counter[int] = Counter()
            for position in range(first, min(len(offers), first + self.nodes_max)):
                offer = offers[position]
                if position > first and offer.index != offers[position - 1].index + 1:
                    break
                named += offer.required
                leaves[offer.part] += 1
                sets = self._grown(sets, [(position, replace(offer, required=True))])
                if not sets:
                    break
                if named < required or not self._may_lie_on(leaves):
                    continue
                candidates += [
                    (0, 0, sums, chain) for sums, (tasks, chain) in sets.items() if self._enough(sums, tasks)
                ]
        return min(candidates, key=lambda item: item[2][0], default=(0, 0, (), None))[3]

    def _may_lie_on(self, leaves: Counter[int]) -> bool:
        """Whether the job may have this number of nodes on each of these leaves."""
        fabric = self.fabric
        if fabric is None:
            return True
        if self.request.switches and len(leaves) > self.request.switches:
            return False
        joined = bool(fabric.below[:, sorted(leaves)].all(axis=1).any())
        return joined and all(map(self._whole_segments, leaves.values()))

    def _enough(self, sums: Sums, tasks: int) -> bool:
        """Whether a set with these sums carries the job."""
        if not self.target.nodes_min <= sums[0] <= self.nodes_max or (self.numbers and sums[0] not in self.numbers):
            return False
        return tasks >= self.tasks and sums[1:] == (*self.counts, *self.gpus)

    # -- the result

    def portions(self, offers: Sequence[Offer], chain: Chain) -> list[tuple[Portion, Request]] | None:
        """How much each node of the set carries."""
        taken = []
        while chain is not None:
            position, gpus, chain = chain
            taken.append((offers[position], gpus))
        taken.sort(key=lambda item: item[0].index)
        if self.loose:
            chosen = [Candidate(offer.index, offer.options[0][1], gpus[0]) for offer, gpus in taken]
            portions = portions_of(chosen, self.target)
            return None if portions is None else [(portion, self.request) for portion in portions]
        undealt, dealt = self.tasks, []
        for later, (offer, gpus) in zip(range(len(taken) - 1, -1, -1), taken, strict=True):
            tasks = self.target.tasks_per_node
            if self.target.tasks is not None:
                tasks = min(dict(offer.options)[gpus], undealt - later)
                undealt -= tasks
            request = request_of_node(self.request, gpus) if self.request.gpu_types else self.request
            dealt.append((Portion(offer.index, tasks, gpus[0] if gpus and not self.request.gpu_types else 0), request))
        return dealt


def _linked(first: Chain, second: Chain) -> Chain:
    """The chain of both sets together."""
    while second is not None:
        position, gpus, second = second
        first = position, gpus, first
    return first
