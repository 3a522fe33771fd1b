"""EASY backfill: the first job of a partition that must wait gets a reservation, which later ones may not delay.

A reservation is exact: a time and the very resources the blocked job will find then if every running job lasts to its
limit. A later job may start if it ends before, or if it leaves those resources alone. So the reserved start only ever
moves forward. Pure; changes nothing but forks of tables.

Source: Lifka 1995 (EASY); slurm.conf(5) SchedulerParameters bf_*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.resources import mask_of
from spritz.scheduling.placement.capacity import capacity
from spritz.scheduling.placement.columns import capacity_columns
from spritz.scheduling.placement.place import holders_of, place
from spritz.scheduling.placement.select import target_of

if TYPE_CHECKING:
    from spritz.model.resources import Allocation, NodeAllocation
    from spritz.scheduling.nodes import NodeRow, NodeTable
    from spritz.scheduling.placement.eligible import Eligibility
    from spritz.scheduling.request import Request


class Release(Struct, frozen=True, gc=False):
    """At `at` (seconds since the epoch, at the latest) a job gives back what it holds on these nodes (indexes)."""

    at: float
    job_id: int
    nodes: tuple[int, ...]


class Reservation(Struct, frozen=True):
    """The blocked job `job_id` will start at `start_at` with `allocation`. `rows`:

    the nodes as they are then, the job included.
    """

    job_id: int
    start_at: float
    allocation: Allocation
    rows: dict[int, NodeRow]


def reserve(
    table: NodeTable,
    request: Request,
    eligibility: Eligibility,
    releases: Iterable[Release],
    *,
    job_id: int,
    uid: int,
    now: float,
    earlier: Sequence[Reservation] = (),
) -> Reservation | None:
    """Earliest start of a blocked job if nothing new is started before it, or None if no release lets it start.

    `releases` ascend by time. Resources of `earlier` reservations are taken as gone for good, which can only make this
    one later.
    """
    future = table.fork()
    for other in earlier:
        for index, row in other.rows.items():
            future.charge(index, row.holders[-other.job_id])
    tally = _Tally(future, request, eligibility)
    at = now
    if tally.enough():
        allocation = place(future, request, eligibility, prefer=table)
        if allocation is not None:
            return _reservation(future, request, allocation, job_id, uid, at)
    for release in _grouped(releases):
        at = max(now, release[0].at)
        touched = False
        for part in release:
            for index in part.nodes:
                future.release(index, part.job_id)
                touched = tally.update(index) or touched
        if touched and tally.enough():
            allocation = place(future, request, eligibility, prefer=table)
            if allocation is not None:
                return _reservation(future, request, allocation, job_id, uid, at)
    return None


def _grouped(releases: Iterable[Release]) -> Iterable[list[Release]]:
    """Releases of the same moment together."""
    group: list[Release] = []
    for release in releases:
        if group and release.at != group[0].at:
            yield group
            group = []
        group.append(release)
    if group:
        yield group


def _reservation(
    future: NodeTable, request: Request, allocation: Allocation, job_id: int, uid: int, at: float
) -> Reservation:
    rows = {}
    for index, holder in holders_of(allocation, request, -job_id, uid, future):
        future.charge(index, holder)
        rows[index] = future.rows[index]
    return Reservation(job_id, at, allocation, rows)


class _Tally:
    """Sums over the nodes of each choice, kept up as nodes empty:

    a cheap test that must pass before a place is looked for.
    """

    def __init__(self, table: NodeTable, request: Request, eligibility: Eligibility) -> None:
        self.table = table
        self.request = request
        self.target = target_of(request)
        self.least = self.target.each if self.target.tasks is None else 1
        #: by choice: (tasks, GPUs) of each node, and the sums [nodes, tasks, GPUs] of those that can serve
        self.choices: list[tuple[dict[int, tuple[int, int]], list[int]]] = []
        for choice in eligibility.choices(request):
            tasks, gpus = capacity_columns(table, request, choice.nodes)
            able = tasks >= self.least
            sums = [int(able.sum()), int(tasks[able].sum()), int(gpus[able].sum())]
            sizes = zip(tasks.tolist(), gpus.tolist(), strict=True)
            self.choices.append((dict(zip(choice.nodes.tolist(), sizes, strict=True)), sums))

    def update(self, index: int) -> bool:
        """Something left this node; True if that matters."""
        size: tuple[int, int] | None = None
        for sizes, sums in self.choices:
            old = sizes.get(index)
            if old is None:
                continue
            if size is None:
                size = capacity(self.table.rows[index], self.request)
            sizes[index] = size
            for (tasks, gpus), sign in ((old, -1), (size, 1)):
                if tasks >= self.least:
                    sums[0] += sign
                    sums[1] += sign * tasks
                    sums[2] += sign * gpus
        return size is not None

    def enough(self) -> bool:
        """Could some choice carry the job, by its sums?"""
        target = self.target
        return any(
            nodes >= target.nodes_min and tasks >= (target.tasks or 0) and gpus >= target.gpus
            for _sizes, (nodes, tasks, gpus) in self.choices
        )


def guarded(table: NodeTable, reservations: Sequence[Reservation]) -> NodeTable:
    """`table` without what the reservations will need: what a job may use that lasts beyond all of them."""
    guard = table.fork()
    for reservation in reservations:
        for index, later in reservation.rows.items():
            row = guard.row(index)
            row.free_cpus &= later.free_cpus
            row.free_memory_mib = min(row.free_memory_mib, later.free_memory_mib)
            for name in row.gres_free:
                row.gres_free[name] &= later.gres_free[name]
            for kind in row.counts_free:
                row.counts_free[kind] = min(row.counts_free[kind], later.counts_free[kind])
            for name, shares in row.shares_free.items():
                for device in shares:
                    shares[device] = min(shares[device], later.shares_free[name][device])
            row.holders[-reservation.job_id] = later.holders[-reservation.job_id]
            guard.refresh(index)
    return guard


def spares(guard: NodeTable, allocation: Allocation, request: Request) -> bool:
    """Does this allocation, found without regard to reservations, leave alone what they need (`guard`: see `guarded`)?

    No only means that another place must be looked for on `guard` itself.
    """
    if request.whole or request.share_rows or request.user_exclusive:
        # These look at who else is on a node, and reservations count as being there.
        nodes = [guard.rows[guard.index_of[part.node]] for part in allocation.nodes]
        return not any(job_id < 0 for row in nodes for job_id in row.holders)
    return all(_spares(guard.rows[guard.index_of[part.node]], part) for part in allocation.nodes)


def _spares(row: NodeRow, part: NodeAllocation) -> bool:
    if mask_of(part.cpus) & ~row.free_cpus or part.memory_mib > row.free_memory_mib:
        return False
    for gres in part.gres:
        if gres.name not in row.gres_free or mask_of(gres.indexes) & ~row.devices_free(gres.name):
            return False
    return not any(holder.whole or holder.user_exclusive for holder in row.holders.values())
