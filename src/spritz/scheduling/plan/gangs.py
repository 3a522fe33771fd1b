"""Heterogeneous jobs: all components start in the same cycle, on resources of their own each, or none does.

`Gang` is what waits of such a job. `start_now` finds a place for every component beside the others; `start_later` the
first moment at which there is one, when those running end at their limits and planned starts are kept. Components are
put one after the other, the most particular first; where one takes what only another could use, other orders are tried,
and nodes that the later one needs are barred to the earlier. Decides nothing about other jobs.

Source: https://slurm.schedmd.com/heterogeneous_jobs.html; slurm.conf(5) SchedulerParameters=bf_hetjob_prio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.placement.earliest import earliest
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

#: Orders in which components are put before giving up, and nodes barred in each.
ORDERS_MAX = 6
BARRED_MAX = 8
#: Moments at which a common start is looked for.
BREAKPOINTS_MAX = 64
#: Before all times that mean none.
LAST = np.finfo(np.float64).max
#: As holders, components that a search has put have numbers from here downwards, beside those of cycles and planned
#: starts.
_ALIAS = -(1 << 44)

#: what a component may be placed by: any of these
Choices = list["Request"]
#: request that was served, and where
Placed = tuple["Request", "Allocation"]
#: moment, request and place of a start to come
Start = tuple[float, "Request", "Allocation"]


class Gang:
    """The waiting components of one job; `key` is its place in the queue. `complete`: nothing keeps any of them."""

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
        """What the component may be placed by, best first."""
        return [shape for _key, shape in sorted(record.entries, key=lambda entry: entry[0])]


def gangs_of(snapshot: Snapshot, mode: str, rank_of: Callable[[Shape, SortKey], Rank]) -> list[Gang]:
    """All that wait, last one first. `mode`: bf_hetjob_prio, how the ranks of components make one: min, avg or max."""
    found = []
    for waiting in snapshot.queue.gangs.values():
        records = [waiting[number] for number in sorted(waiting)]
        ranks = [min(rank_of(shape, key) for key, shape in record.entries) for record in records]
        found.append(Gang(records, _common(ranks, mode)))
    return sorted(found, key=lambda gang: gang.key, reverse=True)


def _common(ranks: list[Rank], mode: str) -> Rank:
    """Ranks ascend: the greatest is that of the lowest priority. They end with the time and number of the job."""
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
    own: Collection[FutureStart],
    accept: Callable[[int, Placed | None], bool],
    *,
    apart: bool,
) -> list[Placed] | None:
    """A place on `table` for every component that breaks no planned start; None if there is none.

    `profile_of(request, table)`: the profile for jobs of the request over that table. `own`: planned starts that do not
    count. `accept(index, placed)`: may the component have this beside those before it (None: all begins again)?
    """
    trial = table
    #: by what they see of reservations: over the trial's table, and as it changes
    profiles: dict[tuple[str, int], Profile] = {}

    def begin() -> None:
        nonlocal trial
        trial = table.fork()
        # What is different on this table from the one that profiles are of is so on the fork.
        trial.stale.update(table.stale)
        profiles.clear()
        accept(0, None)

    def put(index: int, barred: Collection[int]) -> Placed | None:
        for request in choices[index]:
            until = now + request.seconds
            profile = profiles.get(_sight(request))
            if profile is None:
                profile = profiles[_sight(request)] = profile_of(request, trial)
            seen = profile.at(None, until, own)
            within = None if not barred else _left(eligibility, request, barred)
            allocation = place(seen, request, eligibility, within=within)
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
    """The first moment from `since` to `until` at which all can start, and where; None if none was found.

    `profile` is the caller's to change, and is as before afterwards.
    """
    views, index_of = Views(profile, reserved), profile.table.index_of
    held: list[FutureStart] = []
    #: nodes of `held`
    taken: set[str] = set()

    def begin() -> None:
        for future_start in held:
            views.let_go(future_start)
        held.clear()
        taken.clear()

    def first(index: int, since: float, until: float, barred: Collection[int] = ()) -> Start | None:
        best: Start | None = None
        for request in choices[index]:
            nodes = _left(eligibility, request, barred) if barred else None
            found = views.earliest(request, eligibility, since, until, nodes)
            if found is not None and (best is None or found[0] < best[0]):
                best = found[0], request, found[1]
        return best

    def put(index: int, barred: Collection[int]) -> Placed | None:
        found = alone.get(index)
        if found is None or not taken.isdisjoint(found[2].held) or _on_any(found[2], barred, index_of):
            found = first(index, at, at, barred)
        if found is None:
            return None
        taken.update(found[2].held)
        future_start = make(profile, found[1], at, found[2])
        views.hold(future_start)
        held.append(future_start)
        return found[1], found[2]

    at, alone = since, dict[int, Start]()
    # The one that is hardest to place says most often that it cannot be, or when.
    order = sorted(
        range(len(choices)), key=lambda index: (*_descending(choices[index]), _reach(eligibility, choices[index]))
    )
    enough = Enough(profile, choices, until)
    for _ in range(BREAKPOINTS_MAX):
        at = enough.first(at)
        if at > until or at == NEVER:
            return None
        common = _all_alone(order, first, at, until)
        if common is None:
            return None
        at, alone = common.at, common.alone
        if enough.first(at) > at:
            continue
        if enough.lasts(at):
            found = together(choices, eligibility, begin, put, index_of, apart=apart)
            begin()
            if found is not None:
                return at, found
        later = profile.next_breakpoint(at)
        if later > until or later == NEVER:
            return None
        at = later
    return None


def where_promised(
    profile: Profile,
    reserved: Reserved,
    own: Sequence[FutureStart],
    eligibility: Eligibility,
    at: float,
    make: Callable[[Profile, Request, float, Allocation], FutureStart],
) -> list[Placed] | None:
    """Places for all at that moment on the nodes that they were planned for another one; None if these are not free.

    Places for several are found by trial: those that were found once need not be found again. `profile`, without these
    planned starts, is the caller's to change.
    """
    views, index_of = Views(profile, reserved), profile.table.index_of
    found: list[Placed] = []
    for future_start in own:
        request = future_start.request
        nodes = np.array(sorted(index_of[name] for name in future_start.allocation.names if name in index_of), np.intp)
        start = views.earliest(request, eligibility, at, at, nodes)
        if start is None:
            return None
        views.hold(make(profile, request, at, start[1]))
        found.append((request, start[1]))
    return found


def _sight(request: Request) -> tuple[str, int]:
    """Requests of the same see the same reservations."""
    return request.reservation, request.leaving_seconds


class Views:
    """A profile as each component sees it, while planned starts are tried on it."""

    def __init__(self, profile: Profile, reserved: Reserved) -> None:
        self._profile = profile
        self._reserved = reserved
        self._made: dict[tuple[str, int], Profile] = {("", -1): profile}

    def hold(self, future_start: FutureStart) -> None:
        """For a while this is kept."""
        for view in self._made.values():
            view.hold(future_start)

    def let_go(self, future_start: FutureStart) -> None:
        """Give the resources of the planned start back in all views."""
        for view in self._made.values():
            view.let_go(future_start)

    def earliest(
        self, request: Request, eligibility: Eligibility, since: float, until: float, nodes: Ints | None
    ) -> tuple[float, Allocation] | None:
        """As `backfill.earliest`, in the time of its reservation."""
        view = self._made.get(_sight(request))
        if view is None:
            view = self._made[_sight(request)] = view_of(self._profile, self._reserved, request)
        begins, ends = self._reserved.window(request)
        return earliest(view, request, eligibility, max(since, begins), min(until, ends), nodes)


class Enough:
    """When all nodes together have as many CPUs and GPUs free as all components need: else they fit nowhere."""

    def __init__(self, profile: Profile, choices: Sequence[Choices], until: float) -> None:
        profile.settle()
        self._profile = profile
        #: all of them last so long
        self._seconds = min(request.seconds for some in choices for request in some)
        gpu = next((place for place, kind in enumerate(profile.table.gres, 4) if kind == ("gpu", "")), None)
        self._cpus, self._gpus = (sum(min(map(least, some)) for some in choices) for least in (_cpus, _gpus))
        needs = [(0, self._cpus), *([(gpu, self._gpus)] if gpu is not None else ())]
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
        # Of changes at one moment the last counts.
        self._enough[:-1] &= self._breakpoints[:-1] < self._breakpoints[1:]

    def first(self, since: float) -> float:
        """The first moment from then on; NEVER if there is none."""
        place = int(np.searchsorted(self._breakpoints, since, "right")) - 1
        if self._enough[place]:
            return since
        later = self._enough[place + 1 :].nonzero()[0]
        return float(self._breakpoints[place + 1 + later[0]]) if len(later) else NEVER

    def lasts(self, at: float) -> bool:
        """Is so much free from that moment until the first of them ends?"""
        table = self._profile.at(at, at + self._seconds)
        gpus = table.gres.get(("gpu", ""))
        return int(table.cpus.sum()) >= self._cpus and (gpus is None or int(gpus.sum()) >= self._gpus)


def _cpus(request: Request) -> int:
    """CPUs that it takes at least, on all of its nodes."""
    if request.share_rows:
        return 0
    floor = request.nodes_min * request.cpus_floor
    return floor if request.overcommit else max(floor, (request.tasks or 0) * request.cpus_per_task)


def _gpus(request: Request) -> int:
    """Likewise GPUs."""
    total = request.gres_total.count if request.gres_total is not None and request.gres_total.name == "gpu" else 0
    return max(total, request.nodes_min * request.gpus_floor)


class Common:
    """A moment at which each component could start if the others were not there, and where then."""

    __slots__ = ("alone", "at")

    def __init__(self, at: float) -> None:
        self.at = at
        self.alone: dict[int, Start] = {}


def _all_alone(
    order: Sequence[int], first: Callable[[int, float, float], Start | None], since: float, until: float
) -> Common | None:
    """The first such moment from `since` to `until`. `order`: in which components are asked."""
    common = Common(since)
    turn = 0
    while len(common.alone) < len(order):
        index = order[turn % len(order)]
        found = first(index, common.at, until)
        if found is None:
            return None
        if found[0] > common.at:
            common = Common(found[0])
        common.alone[index] = found
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
    """Put all components, each beside those before it. `begin` takes back what was put; `put(index, barred nodes)`.

    `apart`: no two of them on one node, as Slurm has it. Source: https://slurm.schedmd.com/heterogeneous_jobs.html.
    """
    count = len(choices)
    order = sorted(
        range(count), key=lambda index: (_reach(eligibility, choices[index]), *_descending(choices[index]), index)
    )
    for turn in range(min(count, ORDERS_MAX)):
        barred: dict[int, set[int]] = {}
        for _ in range(BARRED_MAX):
            begin()
            placed: dict[int, Placed] = {}
            taken: set[int] = set()
            stuck = -1
            for index in (*order[turn:], *order[:turn]):
                found = put(index, barred.get(index, set()) | taken)
                if found is None:
                    stuck = index
                    break
                placed[index] = found
                if apart:
                    taken.update(index_of[name] for name in found[1].names)
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
    """Keep one that was put before from a node that the stuck one could use. False: there is none."""
    wanted = {node for request in choices for node in eligibility.nodes(request).tolist()}
    for index in reversed(placed):
        for part in placed[index][1].nodes:
            node = index_of[part.node]
            if node in wanted and node not in barred.get(index, ()):
                barred.setdefault(index, set()).add(node)
                return True
    return False


def _on_any(allocation: Allocation, barred: Collection[int], index_of: dict[str, int]) -> bool:
    return bool(barred) and any(index_of[name] in barred for name in allocation.names)


def _left(eligibility: Eligibility, request: Request, barred: Iterable[int]) -> Ints:
    nodes = eligibility.nodes(request)
    return nodes[~np.isin(nodes, list(barred))]


def _reach(eligibility: Eligibility, choices: Choices) -> int:
    """How many nodes could serve it; those that it names, if it names some."""
    return sum(len(eligibility.required(request) or eligibility.nodes(request)) for request in choices)


def _descending(choices: Choices) -> tuple[int, int]:
    """Larger ones first: by nodes, then by CPUs."""
    nodes, cpus = _size(choices)
    return -nodes, -cpus


def _size(choices: Choices) -> tuple[int, int]:
    return max(((one.nodes_min, (one.tasks or 1) * one.cpus_per_task) for one in choices), default=(0, 0))


def fits_empty(table: NodeTable, choices: Sequence[Choices], eligibility: Eligibility, *, apart: bool) -> bool:
    """Is there a place for all of them on the table, if it were theirs alone?"""
    trial = table

    def begin() -> None:
        nonlocal trial
        trial = table.fork()

    def put(index: int, barred: Collection[int]) -> Placed | None:
        for request in choices[index]:
            within = _left(eligibility, request, barred) if barred else None
            allocation = place(trial, request, eligibility, within=within)
            if allocation is not None:
                for node, holder in holders_of(allocation, request, _ALIAS - index, request.uid, trial, NEVER):
                    trial.charge(node, holder)
                return request, allocation
        return None

    return together(choices, eligibility, begin, put, table.index_of, apart=apart) is not None
