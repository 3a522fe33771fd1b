"""When and where a blocked job will start, and the promises made to those that wait.

`earliest` looks for the first moment at which a request fits into a profile. A `Promise` is such a start, exact to the
device, if every running job lasts to its limit and promises before it are kept. `Ledger` keeps the promises from cycle
to cycle: equal requests share them, the earliest to the first in the queue. A later job may start only beside what is
promised, so a promised start moves forward, or back for those that came later but rank higher.

Source: Lifka 1995 (EASY: one promise); Mu'alem and Feitelson 2001 (conservative: a promise each); slurm.conf(5) bf_*.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.plan import PlannedPromise
from spritz.model.resources import mask_of
from spritz.scheduling.placement.openings import searches
from spritz.scheduling.placement.place import assign_all, place
from spritz.scheduling.placement.scheme import choose
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.view.capacity import open_to, shared_out
from spritz.scheduling.view.holders import holders_of
from spritz.scheduling.view.profile import NEVER, FutureRows, Hold
from spritz.scheduling.view.request import Grain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spritz.model.resources import Allocation, NodeAllocation
    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.nodes import Holder, NodeRow
    from spritz.scheduling.view.profile import Profile
    from spritz.scheduling.view.records import Shape
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints, NodeTable

#: Holders with this number or less are promises: no job and no start of a cycle has one.
PROMISED = -(1 << 50)

#: Moments at which a place is looked for before giving up on one request.
MOMENTS_MAX = 256


class Promise(Hold):
    """A job of this request will start at `start_at` with `allocation`. `provisional`: made in passing by a quick
    cycle, to be made again in its turn. `freed`: what had been freed when it was last looked at. `queued`: how many
    jobs had joined the queue when it was made. `holder`: the job that was told of it (0: none). `place`: its job's in
    the order of the last full cycle (0: none).
    """

    __slots__ = ("allocation", "freed", "holder", "place", "provisional", "queued", "request")

    allocation: Allocation
    request: Request
    provisional: bool
    freed: int
    queued: int
    holder: int
    place: int


def earliest(
    profile: Profile,
    request: Request,
    eligibility: Eligibility,
    since: float,
    until: float = NEVER,
    nodes: Ints | None = None,
) -> tuple[float, Allocation] | None:
    """First moment from `since` to `until` at which the request fits for all its time, and where; None if there is
    none. `nodes`: on no others than these (None: on any that may serve).
    """
    if nodes is None:
        found, final = _by_counts(profile, request, eligibility, since, until)
        if final:
            return found
        nodes = eligibility.nodes(request)
    target = target_of(request)
    if len(nodes) < target.nodes_min:
        return None
    tried = 0
    for horizon, openings in searches(profile, request, nodes, since):
        at = openings.first(target.nodes_min)
        while tried < MOMENTS_MAX and at <= min(horizon, until) and at < NEVER:
            within = openings.at(at)
            if within is not None:
                tried += 1
                # What else is on a leaf is seen only if all nodes are.
                cells = None if request.segment_alone else within
                table = profile.at(at, at + request.seconds, within=cells)
                allocation = place(table, request, eligibility, profile.table, within.node)
                if allocation is not None:
                    return at, allocation
            at = openings.after(at)
        if horizon > until or tried == MOMENTS_MAX:
            break
    return None


def _by_counts(
    profile: Profile, request: Request, eligibility: Eligibility, since: float, until: float
) -> tuple[tuple[float, Allocation] | None, bool]:
    """The same by the compiled part; and whether that has said all there is to say."""
    choices, table = eligibility.choices(request), profile.table
    if len(choices) != 1 or request.refusal or request.node_counts:
        return None, False
    scheme = eligibility.scheme(table, request, choices[0])
    if scheme is None:
        return None, False
    profile.settle()
    seconds, nodes = request.seconds, choices[0].nodes
    found = choose(
        scheme,
        profile.times,
        profile.counts,
        nodes,
        table.up,
        table.weight,
        table.cpus,
        since,
        seconds,
        until,
        MOMENTS_MAX,
    )
    if found is None:
        return None, True
    at, _tried, chosen = found
    portions = None if chosen is None else scheme.portions(chosen)
    if portions is None:
        return None, False
    rows = FutureRows(profile, at, at + seconds)
    allocation, _misfit = assign_all(rows, request, portions, table)
    return (None, False) if allocation is None else ((at, allocation), True)


def spares(rows: FutureRows, index_of: Mapping[str, int], allocation: Allocation, request: Request) -> bool:
    """Does this allocation, found without regard to promises, fit `rows`, which have them (`Profile.at`)?

    No only means that another place must be looked for on those themselves.
    """
    if request.whole or request.share_rows or request.choosy:
        # These look at who else is on a node, and promises count as being there.
        found = [rows[index_of[name]] for name in allocation.held if name in index_of]
        return not any(job_id <= PROMISED for row in found for job_id in row.holders)
    return all(
        fits(rows[index], part, request.uid, flexible=rows.is_flexible(index))
        for index, part in ((index_of[part.node], part) for part in allocation.nodes)
    )


def fits(row: NodeRow, part: NodeAllocation, uid: int, *, flexible: bool) -> bool:
    """Is exactly this free on the node for a job of this user, or, where promises there are `flexible`, as much?"""
    cpus = mask_of(part.cpus)
    if part.memory_mib > row.free_memory_mib:
        return False
    if cpus & ~row.free_cpus and not (flexible and _as_much(row, cpus)):
        return False
    for gres in part.gres:
        if gres.name not in row.gres_free:
            return False
        mask = mask_of(gres.indexes)
        free = row.devices_free(gres.name, gres.type)
        if mask & ~free and not (flexible and mask.bit_count() <= free.bit_count()):
            return False
    return not any(
        job_id <= PROMISED and (holder.whole or bool(holder.mcs) or (holder.user_exclusive and holder.uid != uid))
        for job_id, holder in row.holders.items()
    )


def is_free(row: NodeRow, part: NodeAllocation, request: Request) -> bool:
    """Is exactly this free on the node for a job of the request?"""
    cpus = mask_of(part.cpus)
    if not row.up or not open_to(row, request) or (request.memory_counts and part.memory_mib > row.free_memory_mib):
        return False
    if cpus & (shared_out(row, request) if request.share_rows else ~row.free_cpus):
        return False
    for gres in part.gres:
        mask = mask_of(gres.indexes)
        if row.hardware.pools[gres.name].shares or not mask:
            return False  # which are free is for placement to say
        if mask & ~row.devices_free(gres.name, gres.type):
            return False
    return True


def all_free(table: NodeTable, placed: Iterable[tuple[Request, Allocation]]) -> bool:
    """Is exactly this free on the table, of each beside those before it? The table is the caller's to change."""
    for number, (request, allocation) in enumerate(placed):
        holders = holders_of(allocation, request, PROMISED - number, request.uid, table, NEVER)
        for (index, holder), part in zip(holders, allocation.nodes, strict=False):
            if not is_free(table.rows[index], part, request):
                return False
            table.charge(index, holder)
    return True


def _as_much(row: NodeRow, cpus: int) -> bool:
    """Are as many CPUs free in whole cores?"""
    cores = row.hardware.whole_cores(cpus)
    whole = row.hardware.core_cpus(cores) == cpus
    return whole and cores.bit_count() <= row.hardware.whole_cores(row.free_cpus).bit_count()


def is_flexible(request: Request, parts: Sequence[tuple[int, Holder]], rows: Sequence[NodeRow]) -> bool:
    """Would any CPUs, and any devices of the same type, do for this request?"""
    if (
        request.tasks_per_socket
        or request.enforce_binding
        or request.share_rows
        or request.grain is Grain.SOCKET
        or request.max_cpus_per_socket < INFINITE
        or (not request.uses_gpus and any(rows[index].hardware.gpu_cores for index, _holder in parts))
    ):
        return False
    return request.grain is not Grain.CPU or all(rows[index].hardware.threads == 1 for index, _holder in parts)


def clash(holder: Holder, part: NodeAllocation) -> bool:
    """Do both want the same CPUs or devices, or memory that may not be there for both? Never wrongly no."""
    if holder.choosy or holder.cpus & mask_of(part.cpus):
        return True
    if holder.memory_mib and part.memory_mib:
        return True
    for mine in part.gres:
        for theirs in holder.gres:
            if mine.name == theirs.name and not (mask_of(mine.indexes) and mask_of(theirs.indexes)):
                return True
            if mine.name == theirs.name and mask_of(mine.indexes) & mask_of(theirs.indexes):
                return True
    return False


class Ledger:
    """Promises by request, those of each ascending by start. Invariant: every promise of it is held in its profile, and
    no request has more of them than jobs that wait.
    """

    __slots__ = ("_made", "_numbers", "promises", "starts", "up_version", "version")

    def __init__(self) -> None:
        #: the number of the last event that may let a job start that promises kept back; one of its own in all forks
        self.version = 0
        self._numbers = [0]
        #: of the memo, when promises were last checked against nodes that are down
        self.up_version = 0
        self.promises: dict[Request, tuple[Promise, ...]] = {}
        #: of all of them, ascending
        self.starts: list[float] = []
        self._made = 0

    def fork(self) -> Ledger:
        """A ledger of one's own; promises themselves do not change."""
        other = Ledger()
        other.promises, other.starts = dict(self.promises), list(self.starts)
        other._made, other.version, other.up_version = self._made, self.version, self.up_version
        other._numbers = self._numbers
        return other

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, request: Request) -> tuple[Promise, ...]:
        """Those of one request."""
        return self.promises.get(request, ()) if self.promises else ()

    def make(self, profile: Profile, request: Request, start_at: float, allocation: Allocation, *, uid: int) -> Promise:
        """A promise, not yet kept."""
        self._made += 1
        number = PROMISED - self._made
        parts = holders_of(allocation, request, number, uid, profile.table, start_at + request.seconds)
        promise = Promise(start_at, start_at + request.seconds, parts)
        promise.allocation, promise.request = allocation, request
        promise.flexible = is_flexible(request, parts, profile.table.rows)
        promise.provisional, promise.freed, promise.queued, promise.holder = False, 0, 0, 0
        promise.place = 0
        return promise

    def moved(self, profile: Profile, promise: Promise, start_at: float, allocation: Allocation) -> Promise:
        """One in its stead, not yet kept and told to nobody."""
        uid = promise.parts[0][1].uid
        other = self.make(profile, promise.request, start_at, allocation, uid=uid)
        other.freed, other.queued, other.place = promise.freed, promise.queued, promise.place
        return other

    def keep(self, profile: Profile, promise: Promise) -> None:
        """From now on nobody may take what it needs."""
        items = self.of(promise.request)
        place = bisect_right(items, promise.start_at, key=_order)
        self.promises[promise.request] = (*items[:place], promise, *items[place:])
        insort(self.starts, promise.start_at)
        profile.hold(promise)

    def drop(self, profile: Profile, promise: Promise) -> None:
        """It is kept no longer."""
        items = self.promises[promise.request]
        place = items.index(promise)
        left = items[:place] + items[place + 1 :]
        self._numbers[0] += 1
        self.version = self._numbers[0]
        if left:
            self.promises[promise.request] = left
        else:
            del self.promises[promise.request]
        del self.starts[bisect_left(self.starts, promise.start_at)]
        profile.let_go(promise)


class Beside:
    """What promises leave to a job that starts now and ends at some time: single rows, or all of the table."""

    def __init__(self, profile: Profile, ends_at: float, own: Promise | None) -> None:
        without = () if own is None else (own,)
        self.rows = FutureRows(profile, None, ends_at, without)
        self._make: Callable[[Ints | None], NodeTable] = lambda only: profile.at(None, ends_at, without, only=only)

    def table(self, only: Ints | None = None) -> NodeTable:
        """As `place` reads it, if it looks at no nodes but these (None: all)."""
        return self._make(only)


def planned(
    ledger: Ledger, shapes: Mapping[Request, Shape], holders: Mapping[int, int], places: Mapping[int, int]
) -> tuple[PlannedPromise, ...]:
    """All promises of a ledger as a plan has them. `holders`: jobs that were told of them just now, and `places`: their
    order where that has been looked at, by `id` of the promise.
    """
    found = []
    for request, items in ledger.promises.items():
        shape = shapes[request]
        # The last of them is the least likely to have started when the plan is taken up.
        last = shape.jobs[shape.keys[-1]].id
        for item in items:
            found.append(
                PlannedPromise(
                    job_id=last,
                    start_at=item.start_at,
                    end_at=item.end_at,
                    allocation=item.allocation,
                    provisional=item.provisional,
                    queued=item.queued,
                    freed=item.freed,
                    holder=holders.get(id(item), item.holder),
                    place=places.get(id(item), item.place),
                )
            )
    return tuple(found)


def is_same(promise: Promise, planned: PlannedPromise) -> bool:
    """Does the plan keep this promise?"""
    return (
        promise.start_at == planned.start_at
        and promise.provisional == planned.provisional
        and promise.allocation == planned.allocation
    )


def _order(promise: Promise) -> float:
    return promise.start_at
