"""Heterogeneous jobs: all components start in the same cycle, each on its own resources, or none does.

`Gang` holds the waiting components of such a job. `start_now` finds resources for all components together;
`start_later` finds the first time at which all can start, given that running jobs end at their limits and planned
starts are kept. Components are placed one after the other, the most particular first. If one takes what only another
could use, other orders are tried, and nodes that the later component needs are barred to the earlier. Decides nothing
about other jobs.

Source: https://slurm.schedmd.com/heterogeneous_jobs.html; slurm.conf(5) SchedulerParameters=bf_hetjob_prio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.placement.columns import capacity_columns
from spritz.scheduling.placement.counted import has_nodes_for
from spritz.scheduling.placement.earliest import earliest
from spritz.scheduling.placement.effort import Effort
from spritz.scheduling.placement.place import place
from spritz.scheduling.view.holders import holders_of
from spritz.scheduling.view.profile import NEVER
from spritz.scheduling.view.reservations import view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from spritz.model.resources import Allocation
    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.planned_starts import FutureStart
    from spritz.scheduling.view.profile import Profile
    from spritz.scheduling.view.records import JobRecord, Rank, Shape, SortKey
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.reservations import Reserved
    from spritz.scheduling.view.snapshot import Snapshot
    from spritz.scheduling.view.table import Ints, NodeTable

#: orders of components to try before giving up, and nodes barred in each
ORDERS_MAX = 6
BARRED_MAX = 8
#: times at which a common start is looked for
BREAKPOINTS_MAX = 64
#: sorts before `inf`, which stands for "never"
LAST = np.finfo(np.float64).max
#: Components placed by a search are holders with numbers from here downwards, apart from those of the cycle and of
#: planned starts.
_ALIAS = -(1 << 44)

#: requests of one component (one per partition), any of which may place it
Choices = list["Request"]
#: the request that was served, and its allocation
Placed = tuple["Request", "Allocation"]
#: time, request and allocation of a start in the future
Start = tuple[float, "Request", "Allocation"]


class Gang:
    """The waiting components of one job. `key`: its rank in the queue. `complete`: no component is held back."""

    __slots__ = ("complete", "key", "records")

    def __init__(self, records: list[JobRecord], key: Rank) -> None:
        self.records = records
        self.key = key
        self.complete = len(records) == records[0].het_size

    @property
    def partitions(self) -> set[str]:
        """Partitions in which some component waits."""
        return {shape.request.partition for record in self.records for _key, shape in record.entries}

    def shapes(self, record: JobRecord) -> list[Shape]:
        """The shapes by which the component may be placed, best first."""
        return [shape for _key, shape in sorted(record.entries, key=lambda entry: entry[0])]


def gangs_of(snapshot: Snapshot, mode: str, rank_of: Callable[[Shape, SortKey], Rank]) -> list[Gang]:
    """All heterogeneous jobs that wait, last one first. `mode`: bf_hetjob_prio (min, avg or max), how the ranks of the
    components become one.
    """
    gangs = []
    for waiting in snapshot.queue.gangs.values():
        records = [waiting[number] for number in sorted(waiting)]
        ranks = [min(rank_of(shape, key) for key, shape in record.entries) for record in records]
        gangs.append(Gang(records, _common(ranks, mode)))
    return sorted(gangs, key=lambda gang: gang.key, reverse=True)


def _common(ranks: list[Rank], mode: str) -> Rank:
    """One rank for all components. Ranks ascend, so the greatest belongs to the lowest priority; they end with the time
    and number of the job.
    """
    heads = [rank[:-2] for rank in ranks]
    if mode == "max":
        head = min(heads)
    elif mode == "avg":
        head = tuple(sum(parts) / len(heads) for parts in zip(*heads, strict=True))
    else:
        head = max(heads)
    return (*head, *ranks[0][-2:])


def start_now(
    table: NodeTable,
    profile_of: Callable[[Request, NodeTable], Profile],
    choices: Sequence[Choices],
    eligibility: Eligibility,
    now: float,
    planned: Collection[FutureStart],
    accept: Callable[[int, Placed | None], bool],
    *,
    apart: bool,
) -> list[Placed] | None:
    """An allocation on `table` for every component that breaks no planned start; None if there is none.

    `profile_of(request, table)`: the profile for jobs of the request over that table. `planned`: planned starts that do
    not count. `accept(index, placed)`: whether the component may have this in addition to those before it (None: the
    search begins again).
    """
    trial, effort = table, Effort()
    #: profiles over the trial's table, by the reservations that the requests see
    profiles: dict[tuple[str, int], Profile] = {}

    def begin() -> None:
        nonlocal trial
        trial = table.fork()
        # Rows of this table that differ from the one under the profiles differ on the fork too.
        trial.stale.update(table.stale)
        profiles.clear()
        accept(0, None)

    def put(index: int, barred: Collection[int]) -> Placed | None:
        for request in choices[index]:
            until = now + request.seconds
            profile = profiles.get(_sight(request))
            if profile is None:
                profile = profiles[_sight(request)] = profile_of(request, trial)
            seen = profile.at(None, until, planned)
            within = None if not barred else _left(eligibility, request, barred)
            allocation = place(seen, request, eligibility, within=within, effort=effort)
            if allocation is None or not accept(index, (request, allocation)):
                continue
            for node, holder in holders_of(allocation, request, _ALIAS - index, request.uid, trial, until):
                trial.charge(node, holder)
            return request, allocation
        return None

    return together(choices, eligibility, begin, put, table.index_of, apart=apart)


def start_later(
    profile: Profile,
    reserved: Reserved,
    choices: Sequence[Choices],
    eligibility: Eligibility,
    since: float,
    until: float,
    make: Callable[[Profile, Request, float, Allocation], FutureStart],
    *,
    apart: bool,
) -> tuple[float, list[Placed]] | None:
    """The first time in [since, until] at which all components can start, and where; None if none was found.

    `profile` belongs to the caller; it is changed during the search and restored afterwards.
    """
    trial = TrialStart(profile, reserved, choices, eligibility, make, apart=apart)
    # Ask the component that is hardest to place first: it most often rules a time out.
    order = sorted(
        range(len(choices)), key=lambda index: (*_descending(choices[index]), _reach(eligibility, choices[index]))
    )
    # Counter-example for asking each component alone and taking the latest answer: two components that each fit at noon
    # may want the same GPUs at noon. So a time is found at which each fits alone (necessary), all are placed one on top
    # of the other at that time (sufficient), and if that fails the search goes on at the next change. Counts of the
    # whole cluster (`Enough`) rule most times out before any component is placed.
    enough = Enough(profile, choices, until)
    at = since
    for _ in range(BREAKPOINTS_MAX):
        at = enough.first(at)
        if at > until or at == NEVER:
            return None
        common = _all_alone(order, trial.first, at, until)
        if common is None:
            return None
        at = common.at
        if enough.first(at) > at:
            continue
        if enough.lasts(at):
            placed = trial.together(common)
            if placed is not None:
                return at, placed
        at = profile.next_breakpoint(at)
    return None


class TrialStart:
    """Places components at one time of a profile, one on top of the other, and restores the profile afterwards."""

    def __init__(
        self,
        profile: Profile,
        reserved: Reserved,
        choices: Sequence[Choices],
        eligibility: Eligibility,
        make: Callable[[Profile, Request, float, Allocation], FutureStart],
        *,
        apart: bool,
    ) -> None:
        self._profile = profile
        self._views = Views(profile, reserved)
        self._choices = choices
        self._eligibility = eligibility
        self._make = make
        self._apart = apart
        #: components placed so far, on the profile and its views
        self._held: list[FutureStart] = []
        #: names of their nodes
        self._taken: set[str] = set()

    def first(self, index: int, since: float, until: float, barred: Collection[int] = ()) -> Start | None:
        """The earliest start of one component in [since, until], in addition to what is placed."""
        best: Start | None = None
        for request in self._choices[index]:
            nodes = _left(self._eligibility, request, barred) if barred else None
            start = self._views.earliest(request, self._eligibility, since, until, nodes)
            if start is not None and (best is None or start[0] < best[0]):
                best = start[0], request, start[1]
        return best

    def together(self, common: Common) -> list[Placed] | None:
        """An allocation for every component at `common.at`; None if none was found."""

        def put(index: int, barred: Collection[int]) -> Placed | None:
            # The place that the component has when alone is still good unless a component placed before has a node of
            # it. A search of all nodes is by far the dearest step here, so it is repeated only where it must be.
            _time, request, allocation = common.alone[index]
            if not self._taken.isdisjoint(allocation.held) or _on_any(allocation, barred, self._index_of):
                start = self.first(index, common.at, common.at, barred)
                if start is None:
                    return None
                _time, request, allocation = start
            self._hold(self._make(self._profile, request, common.at, allocation))
            return request, allocation

        placed = together(self._choices, self._eligibility, self._restore, put, self._index_of, apart=self._apart)
        self._restore()
        return placed

    @property
    def _index_of(self) -> dict[str, int]:
        return self._profile.table.index_of

    def _hold(self, future_start: FutureStart) -> None:
        self._taken.update(future_start.allocation.held)
        self._views.hold(future_start)
        self._held.append(future_start)

    def _restore(self) -> None:
        for future_start in self._held:
            self._views.let_go(future_start)
        self._held.clear()
        self._taken.clear()


def on_planned_nodes(
    profile: Profile,
    reserved: Reserved,
    planned: Sequence[FutureStart],
    eligibility: Eligibility,
    at: float,
    make: Callable[[Profile, Request, float, Allocation], FutureStart],
) -> list[Placed] | None:
    """Allocations for all components at time `at` on the nodes of their planned starts; None if these are not free.

    Allocations for several components are found by trial, which may fail where an earlier trial succeeded; this reuses
    the earlier result. `profile` is without these planned starts, and is the caller's to change.
    """
    views, index_of = Views(profile, reserved), profile.table.index_of
    placed: list[Placed] = []
    for future_start in planned:
        request = future_start.request
        nodes = np.array(sorted(index_of[name] for name in future_start.allocation.names if name in index_of), np.intp)
        start = views.earliest(request, eligibility, at, at, nodes)
        if start is None:
            return None
        views.hold(make(profile, request, at, start[1]))
        placed.append((request, start[1]))
    return placed


def _sight(request: Request) -> tuple[str, int]:
    """Requests with equal keys see the same reservations."""
    return request.reservation, request.leaving_seconds


class Views:
    """A profile as each component sees it, while planned starts are tried on it."""

    def __init__(self, profile: Profile, reserved: Reserved) -> None:
        self._profile = profile
        self._reserved = reserved
        self._effort = Effort()
        self._made: dict[tuple[str, int], Profile] = {("", -1): profile}

    def hold(self, future_start: FutureStart) -> None:
        """Hold the planned start in all views, for the trial."""
        for view in self._made.values():
            view.hold(future_start)

    def let_go(self, future_start: FutureStart) -> None:
        """Give the resources of the planned start back in all views."""
        for view in self._made.values():
            view.let_go(future_start)

    def earliest(
        self, request: Request, eligibility: Eligibility, since: float, until: float, nodes: Ints | None
    ) -> tuple[float, Allocation] | None:
        """The earliest start as of `earliest`, limited to the time of the request's reservation."""
        view = self._made.get(_sight(request))
        if view is None:
            view = self._made[_sight(request)] = view_of(self._profile, self._reserved, request)
        begins, ends = self._reserved.window(request)
        since, until = max(since, begins), min(until, ends)
        return earliest(view, request, eligibility, since, until, nodes, self._effort)


class Enough:
    """When all nodes together have as many CPUs and GPUs free as all components need. At other times they
    cannot fit.
    """

    def __init__(self, profile: Profile, choices: Sequence[Choices], until: float) -> None:
        profile.settle()
        self._profile = profile
        #: run time of the shortest component, in seconds
        self._seconds = min(request.seconds for component in choices for request in component)
        gpu = next((place for place, kind in enumerate(profile.table.gres, 4) if kind == ("gpu", "")), None)
        self._cpus, self._gpus = (sum(min(map(least, component)) for component in choices) for least in (_cpus, _gpus))
        needs = [(0, self._cpus), *([(gpu, self._gpus)] if gpu is not None else ())]
        # The sum over all nodes is a step function of time: what is free now, plus what each breakpoint of each node
        # adds. Sorting all breakpoints once, O(n log n), answers for every time.
        times = profile.times[:, 1:]
        changes = np.nonzero(times <= min(until, LAST))
        breakpoints = times[changes]
        order = np.argsort(breakpoints, kind="stable")
        #: breakpoints, ascending, and whether enough is free from each on; the first is before all
        self._breakpoints = np.append(-NEVER, breakpoints[order])
        self._enough = np.ones(len(self._breakpoints), np.bool_)
        for column, need in needs:
            counts = profile.counts[column]
            more = (counts[:, 1:] - counts[:, :-1])[changes][order]
            self._enough &= int(counts[:, 0].sum()) + np.append(0, np.cumsum(more)) >= need
        # Of several changes at one time only the last counts.
        self._enough[:-1] &= self._breakpoints[:-1] < self._breakpoints[1:]

    def first(self, since: float) -> float:
        """The first such time from `since` on; NEVER if there is none."""
        place = int(np.searchsorted(self._breakpoints, since, "right")) - 1
        if self._enough[place]:
            return since
        later = self._enough[place + 1 :].nonzero()[0]
        return float(self._breakpoints[place + 1 + later[0]]) if len(later) else NEVER

    def lasts(self, at: float) -> bool:
        """Whether enough stays free from `at` until the first component ends."""
        table = self._profile.at(at, at + self._seconds)
        gpus = table.gres.get(("gpu", ""))
        return int(table.cpus.sum()) >= self._cpus and (gpus is None or int(gpus.sum()) >= self._gpus)


def _cpus(request: Request) -> int:
    """Least CPUs on all of its nodes."""
    if request.share_rows:
        return 0
    floor = request.nodes_min * request.cpus_floor
    return floor if request.overcommit else max(floor, (request.tasks or 0) * request.cpus_per_task)


def _gpus(request: Request) -> int:
    """Least GPUs on all of its nodes."""
    total = request.gres_total.count if request.gres_total is not None and request.gres_total.name == "gpu" else 0
    return max(total, request.nodes_min * request.gpus_floor)


class Common:
    """A time at which each component could start if the others were not there, and where."""

    __slots__ = ("alone", "at")

    def __init__(self, at: float) -> None:
        self.at = at
        self.alone: dict[int, Start] = {}


def _all_alone(
    order: Sequence[int], first: Callable[[int, float, float], Start | None], since: float, until: float
) -> Common | None:
    """The first such time in [since, until]. `order`: in which components are asked."""
    # Round robin: each component is asked for its first start from the time that the others have agreed on so far. A
    # later answer moves that time, and all are asked again; when as many have answered for one time as there are
    # components, it is common to all. No time before it can be, as each answer is the earliest there is.
    common = Common(since)
    turn = 0
    while len(common.alone) < len(order):
        index = order[turn % len(order)]
        start = first(index, common.at, until)
        if start is None:
            return None
        if start[0] > common.at:
            common = Common(start[0])
        common.alone[index] = start
        turn += 1
    return common


def together(
    choices: Sequence[Choices],
    eligibility: Eligibility,
    begin: Callable[[], None],
    put: Callable[[int, Collection[int]], Placed | None],
    index_of: dict[str, int],
    *,
    apart: bool,
) -> list[Placed] | None:
    """Place all components, each in addition to those before it. `begin` takes back what was placed; `put(index,
    barred)` places one, avoiding the barred nodes.

    `apart`: no two components share a node, as in Slurm. Source: https://slurm.schedmd.com/heterogeneous_jobs.html.
    """
    count = len(choices)
    order = sorted(
        range(count), key=lambda index: (_reach(eligibility, choices[index]), *_descending(choices[index]), index)
    )
    # Placing components together is bin packing; a failure here does not prove that there is no way. Two cheap remedies
    # cover what occurs: begin with another component, and bar the node that a flexible component took from one that can
    # use no other.
    for turn in range(min(count, ORDERS_MAX)):
        barred: dict[int, set[int]] = {}
        for _ in range(BARRED_MAX):
            begin()
            placed: dict[int, Placed] = {}
            taken: set[int] = set()
            stuck = -1
            for index in (*order[turn:], *order[:turn]):
                placement = put(index, barred.get(index, set()) | taken)
                if placement is None:
                    stuck = index
                    break
                placed[index] = placement
                if apart:
                    taken.update(index_of[name] for name in placement[1].names)
            if stuck < 0:
                return [placed[index] for index in range(count)]
            if not placed and not barred.get(stuck):
                return None  # it fits nowhere even alone
            if not _bar(placed, barred, stuck, choices[stuck], eligibility, index_of):
                break
    return None


def _bar(
    placed: dict[int, Placed],
    barred: dict[int, set[int]],
    stuck: int,
    choices: Choices,
    eligibility: Eligibility,
    index_of: dict[str, int],
) -> bool:
    """Bar one of the components placed before from a node that the stuck component could use. False: there is none."""
    usable = {node for request in choices for node in eligibility.nodes(request).tolist()}
    for index in reversed(placed):
        for part in placed[index][1].nodes:
            node = index_of[part.node]
            if node in usable and node not in barred.get(index, ()):
                barred.setdefault(index, set()).add(node)
                return True
    return False


def _on_any(allocation: Allocation, barred: Collection[int], index_of: dict[str, int]) -> bool:
    return bool(barred) and any(index_of[name] in barred for name in allocation.names)


def _left(eligibility: Eligibility, request: Request, barred: Iterable[int]) -> Ints:
    nodes = eligibility.nodes(request)
    return nodes[~np.isin(nodes, list(barred))]


def _reach(eligibility: Eligibility, choices: Choices) -> int:
    """How many nodes could serve the component; if it names nodes, how many it names."""
    return sum(len(eligibility.required(request) or eligibility.nodes(request)) for request in choices)


def _descending(choices: Choices) -> tuple[int, int]:
    """Sort key, larger components first: by nodes, then by CPUs."""
    nodes, cpus = _size(choices)
    return -nodes, -cpus


def _size(choices: Choices) -> tuple[int, int]:
    return max(
        ((request.nodes_min, (request.tasks or 1) * request.cpus_per_task) for request in choices), default=(0, 0)
    )


def could_fit(table: NodeTable, choices: Sequence[Choices], eligibility: Eligibility, *, apart: bool) -> bool:
    """Whether all components may fit on the table together if they had it alone: necessary conditions.

    `fits_empty` places one component after another, so its "no" proves nothing.
    """
    needs: list[tuple[frozenset[int], int]] = []
    for requests in choices:
        nodes: set[int] = set()
        fewest = []
        for request in requests:
            usable = eligibility.nodes(request)
            tasks, _gpus = capacity_columns(table, request, usable)
            sums = np.cumsum(np.sort(np.minimum(tasks, request.tasks or 1))[::-1])
            fewest.append(max(request.nodes_min, 1 + int(np.searchsorted(sums, request.tasks or 1))))
            named = eligibility.required(request) or frozenset()
            nodes.update(named if len(named) >= fewest[-1] else usable[tasks > 0].tolist())
        needs.append((frozenset(nodes), min(fewest, default=1)))
    if apart:
        return has_nodes_for(tuple(needs))
    least = sum(
        min((request.cpus_per_task * max(request.tasks or 1, request.nodes_min) for request in requests), default=0)
        for requests in choices
        if not any(request.share_rows or request.overcommit for request in requests)
    )
    every = sorted(frozenset().union(*(nodes for nodes, _count in needs)))
    return least <= int(table.cpus[every].sum())


def fits_empty(table: NodeTable, choices: Sequence[Choices], eligibility: Eligibility, *, apart: bool) -> bool:
    """Whether all components fit on the table together if they had it alone."""
    trial, effort = table, Effort()

    def begin() -> None:
        nonlocal trial
        trial = table.fork()

    def put(index: int, barred: Collection[int]) -> Placed | None:
        for request in choices[index]:
            within = _left(eligibility, request, barred) if barred else None
            allocation = place(trial, request, eligibility, within=within, effort=effort)
            if allocation is not None:
                for node, holder in holders_of(allocation, request, _ALIAS - index, request.uid, trial, NEVER):
                    trial.charge(node, holder)
                return request, allocation
        return None

    return together(choices, eligibility, begin, put, table.index_of, apart=apart) is not None
