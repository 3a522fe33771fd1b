"""When and where a blocked job will start, and the promises made to those that wait.

`earliest` looks for the first moment at which a request fits into a profile. A `Promise` is such a start, exact to the
device, if every running job lasts to its limit and promises before it are kept. `Ledger` keeps the promises from cycle
to cycle: equal requests share them, the earliest to the first in the queue. A later job may start only beside what is
promised, so a promised start moves forward, or back for those that came later but rank higher.

Source: Lifka 1995 (EASY: one promise); Mu'alem and Feitelson 2001 (conservative: a promise each); slurm.conf(5) bf_*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.model.resources import mask_of
from spritz.scheduling.placement.columns import capacity_columns
from spritz.scheduling.placement.place import holders_of, place
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.profile import NEVER, Hold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spritz.model.plan import PlannedPromise
    from spritz.model.resources import Allocation, NodeAllocation
    from spritz.scheduling.nodes import Holder, Ints, NodeRow
    from spritz.scheduling.placement.eligible import Eligibility
    from spritz.scheduling.profile import Floats, Profile
    from spritz.scheduling.request import Request

#: Holders with this number or less are promises: no job and no start of a cycle has one.
PROMISED = -(1 << 50)

#: Moments at which a place is looked for before giving up on one request.
MOMENTS_MAX = 256


class Promise(Hold):
    """A job of this request will start at `start_at` with `allocation`. `provisional`: made in passing by a quick
    cycle, to be made again in its turn. `freed`: what had been freed when it was last looked at.
    """

    __slots__ = ("allocation", "freed", "provisional", "request")

    allocation: Allocation
    request: Request
    provisional: bool
    freed: int


def earliest(
    profile: Profile, request: Request, eligibility: Eligibility, since: float, until: float = NEVER
) -> tuple[float, Allocation] | None:
    """First moment from `since` to `until` at which the request fits for all its time, and where; None if there is
    none.
    """
    nodes = eligibility.nodes(request)
    target = target_of(request)
    if len(nodes) < target.nodes_min:
        return None
    openings = _Openings(profile, request, nodes, since)
    first = openings.first(target.nodes_min)
    if first > until:
        return None
    tried = 0
    for at in openings.moments(first):
        if at > until or tried >= MOMENTS_MAX:
            break
        if not openings.enough(at):
            continue
        tried += 1
        allocation = place(profile.at(at, at + request.seconds), request, eligibility, prefer=profile.table)
        if allocation is not None:
            return at, allocation
    return None


class _Openings:
    """From when, and for how long, each node could carry a part of the request."""

    def __init__(self, profile: Profile, request: Request, nodes: Ints, since: float) -> None:
        flat = profile.flat()
        self.target = target_of(request)
        self.seconds = request.seconds
        moments = profile.times.shape[1]
        where = (nodes[:, None] * moments + np.arange(moments)).reshape(-1)
        tasks, gpus = capacity_columns(flat, request, where)
        self.times: Floats = profile.times[nodes]
        self.tasks, self.gpus = tasks.reshape(self.times.shape), gpus.reshape(self.times.shape)
        able = self.tasks >= (self.target.each if self.target.tasks is None else 1)
        able &= np.isfinite(self.times) | (self.times < 0)
        ends = np.concatenate((self.times[:, 1:], np.full((len(nodes), 1), NEVER)), axis=1)
        #: until when a node that is able at a moment stays so
        self.lasts: Floats = np.zeros_like(self.times)
        lasts = np.full(len(nodes), NEVER)
        for moment in reversed(range(moments)):
            lasts = np.where(able[:, moment], lasts, self.times[:, moment])
            self.lasts[:, moment] = np.where(able[:, moment], lasts, -NEVER)
        starts = np.maximum(self.times, since)
        good = able & (self.lasts - starts >= self.seconds) & (ends > since)
        self.starts: Floats = np.where(good, starts, NEVER)

    def first(self, nodes_min: int) -> float:
        """Not before so many nodes have had an opening."""
        ready = self.starts.min(axis=1)
        return float(np.partition(ready, nodes_min - 1)[nodes_min - 1])

    def moments(self, first: float) -> Iterator[float]:
        """Moments at which some node opens, from `first` on, ascending."""
        found = np.unique(self.starts[(self.starts >= first) & (self.starts < NEVER)])
        yield from found.tolist()

    def enough(self, at: float) -> bool:
        """Could all that is open at that moment carry the job, by its sums?"""
        moment = (self.times <= at).sum(axis=1) - 1
        every = np.arange(len(moment))
        is_open = self.lasts[every, moment] - at >= self.seconds
        if int(is_open.sum()) < self.target.nodes_min:
            return False
        if self.target.tasks and int(self.tasks[every, moment][is_open].sum()) < self.target.tasks:
            return False
        return not self.target.gpus or int(self.gpus[every, moment][is_open].sum()) >= self.target.gpus


def spares(rows: Sequence[NodeRow], index_of: Mapping[str, int], allocation: Allocation, request: Request) -> bool:
    """Does this allocation, found without regard to promises, fit `rows`, which have them (`Profile.at`)?

    No only means that another place must be looked for on those themselves.
    """
    if request.whole or request.share_rows or request.user_exclusive:
        # These look at who else is on a node, and promises count as being there.
        found = [rows[index_of[part.node]] for part in allocation.nodes]
        return not any(job_id <= PROMISED for row in found for job_id in row.holders)
    return all(fits(rows[index_of[part.node]], part) for part in allocation.nodes)


def fits(row: NodeRow, part: NodeAllocation) -> bool:
    """Is exactly this free on the node?"""
    if mask_of(part.cpus) & ~row.free_cpus or part.memory_mib > row.free_memory_mib:
        return False
    for gres in part.gres:
        if gres.name not in row.gres_free or mask_of(gres.indexes) & ~row.devices_free(gres.name):
            return False
    return not any(
        job_id <= PROMISED and (holder.whole or holder.user_exclusive) for job_id, holder in row.holders.items()
    )


def clash(holder: Holder, part: NodeAllocation) -> bool:
    """Do both want the same CPUs or devices, or memory that may not be there for both? Never wrongly no."""
    if holder.whole or holder.user_exclusive or holder.cpus & mask_of(part.cpus):
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
    """Promises by request, each list ascending by start. Invariant: every promise of it is held in its profile, and no
    request has more of them than jobs that wait.
    """

    __slots__ = ("_made", "promises", "up_version", "version")

    def __init__(self) -> None:
        #: counts whatever may let a job start that promises kept back
        self.version = 0
        #: of the memo, when promises were last checked against nodes that are down
        self.up_version = 0
        self.promises: dict[Request, list[Promise]] = {}
        self._made = 0

    def fork(self) -> Ledger:
        """A ledger of one's own; promises themselves do not change."""
        other = Ledger()
        other.promises = {request: list(items) for request, items in self.promises.items()}
        other._made, other.version, other.up_version = self._made, self.version, self.up_version
        return other

    def __len__(self) -> int:
        return sum(map(len, self.promises.values()))

    def of(self, request: Request) -> list[Promise]:
        """Those of one request."""
        return self.promises.get(request, [])

    def make(self, profile: Profile, request: Request, start_at: float, allocation: Allocation, *, uid: int) -> Promise:
        """A promise, not yet kept."""
        self._made += 1
        number = PROMISED - self._made
        parts = holders_of(allocation, request, number, uid, profile.table, start_at + request.seconds)
        promise = Promise(start_at, start_at + request.seconds, parts)
        promise.allocation, promise.request = allocation, request
        promise.provisional, promise.freed = False, 0
        return promise

    def keep(self, profile: Profile, promise: Promise) -> None:
        """From now on nobody may take what it needs."""
        items = self.promises.setdefault(promise.request, [])
        items.append(promise)
        items.sort(key=_order)
        profile.hold(promise)

    def drop(self, profile: Profile, promise: Promise) -> None:
        """It is kept no longer."""
        items = self.promises[promise.request]
        self.version += 1
        items.remove(promise)
        if not items:
            del self.promises[promise.request]
        profile.let_go(promise)


def is_same(promise: Promise, planned: PlannedPromise) -> bool:
    """Does the plan keep this promise?"""
    return (
        promise.start_at == planned.start_at
        and promise.provisional == planned.provisional
        and promise.allocation == planned.allocation
    )


def _order(promise: Promise) -> float:
    return promise.start_at
