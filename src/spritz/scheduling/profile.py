"""What every node will have free at any time to come, if running jobs last to their limits and promises are kept.

`Profile` holds, for each node, the moments at which something changes there and the counts from each moment on; so one
array expression finds when a request could first start. Reservations of any kind subtract from it as promises do:
`hold` and `let_go`. `Profile.at` is the table as a job would find it that starts then and lasts so long: `place` reads
it like the present one.

Counts are upper bounds between two moments, rows are exact. Decides nothing.

Source: slurm.conf(5) SchedulerParameters=bf_*; the profile of conservative backfill (Mu'alem and Feitelson 2001).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spritz.scheduling.nodes import Bools, Holder, Ints, NodeRow, NodeTable

Floats = npt.NDArray[np.float64]

NEVER = float("inf")
#: Moments for which a profile has room at first, per node.
MOMENTS = 4


class Hold:
    """Something that will take `parts` (node index, holder) from `start_at` until `end_at`, seconds since the epoch."""

    __slots__ = ("end_at", "parts", "start_at")

    def __init__(self, start_at: float, end_at: float, parts: Sequence[tuple[int, Holder]]) -> None:
        self.start_at = start_at
        self.end_at = end_at
        self.parts = parts


class Cells:
    """The moments of all nodes in one row, node by node and ascending in time. Arrays [cell]: `place` position in the
    flat table, `node` index, `begins` and `ends` float64 (-inf: now; inf: for ever).
    """

    __slots__ = ("begins", "ends", "node", "place")

    def __init__(self, times: Floats) -> None:
        self.place = np.flatnonzero(times.reshape(-1) < NEVER)
        self.node = self.place // times.shape[1]
        self.begins: Floats = times.reshape(-1)[self.place]
        last = np.append(self.node[1:] != self.node[:-1], True)
        self.ends: Floats = np.where(last, NEVER, np.append(self.begins[1:], NEVER))


class Profile:
    """Arrays: `times` float64[node, moment] (inf: no more), and `counts[k]` int64[node, moment] for the columns of
    `NodeRow.counts`. Moment 0 is now. `held_from` float64[node]: start of the first hold there.
    """

    __slots__ = ("_cells", "_flat", "_kinds", "_shares", "counts", "held_from", "holds", "table", "times")

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._kinds = tuple(table.gres)
        count = len(table.rows)
        self.times: Floats = np.full((count, MOMENTS), NEVER)
        self.counts = [np.zeros((count, MOMENTS), np.int64) for _ in range(4 + len(self._kinds))]
        self.held_from: Floats = np.full(count, NEVER)
        #: by node
        self.holds: dict[int, list[tuple[Hold, Holder]]] = {}
        self._flat: NodeTable | None = None
        self._cells: Cells | None = None
        self._shares = False
        table.stale.update(range(count))

    def fork(self, table: NodeTable) -> Profile:
        """A profile of one's own over a fork of the table; arrays are copied when it first changes them."""
        self.settle()
        other = Profile.__new__(Profile)
        other.table = table
        other._kinds = self._kinds
        other.times, other.held_from, other.counts, other.holds = self.times, self.held_from, self.counts, self.holds
        other._flat, other._cells, other._shares = None, self._cells, True
        return other

    def _own(self) -> None:
        if self._shares:
            self._shares = False
            self.times, self.held_from = self.times.copy(), self.held_from.copy()
            self.counts = [column.copy() for column in self.counts]
            self.holds = {index: list(holds) for index, holds in self.holds.items()}

    # -- holds

    def hold(self, hold: Hold) -> None:
        """Subtract it."""
        self._own()
        for index, holder in hold.parts:
            self.holds.setdefault(index, []).append((hold, holder))
            self._touch(index)

    def let_go(self, hold: Hold) -> None:
        """Give it back."""
        self._own()
        for index, _holder in hold.parts:
            left = [item for item in self.holds.get(index, ()) if item[0] is not hold]
            if left:
                self.holds[index] = left
            else:
                self.holds.pop(index, None)
            self._touch(index)

    def _touch(self, index: int) -> None:
        self.held_from[index] = min((hold.start_at for hold, _ in self.holds.get(index, ())), default=NEVER)
        self.table.stale.add(index)

    # -- moments

    def settle(self) -> None:
        """Work out again the nodes that have changed."""
        stale = self.table.stale
        if stale:
            self._own()
            self._cells = None
        for index in sorted(stale):
            self._work_out(index)
        stale.clear()

    def _work_out(self, index: int) -> None:
        row = self.table.rows[index]
        holds = self.holds.get(index, ())
        moments = {holder.ends_at for holder in row.holders.values()}
        for hold, _holder in holds:
            moments.update((hold.start_at, hold.end_at))
        if len(moments) >= self.times.shape[1]:
            self._widen(len(moments) + 1)
        self.times[index, 0] = -NEVER
        self.times[index, 1:] = NEVER
        found = [row.counts(self._kinds)]
        if moments:
            row = row.copy()
            ordered = sorted(moments)
            for at in ordered:
                change(row, at, holds)
                found.append(row.counts(self._kinds))
            self.times[index, 1 : len(found)] = ordered
        for column, values in zip(self.counts, zip(*found, strict=True), strict=True):
            column[index, : len(found)] = values

    def _widen(self, moments: int) -> None:
        more = max(moments, 2 * self.times.shape[1]) - self.times.shape[1]
        self.times = np.pad(self.times, ((0, 0), (0, more)), constant_values=NEVER)
        self.counts = [np.pad(column, ((0, 0), (0, more))) for column in self.counts]
        self._flat = None

    # -- questions

    def cells(self) -> Cells:
        """The moments of all nodes."""
        self.settle()
        if self._cells is None:
            self._cells = Cells(self.times)
        return self._cells

    def flat(self) -> NodeTable:
        """Every moment of every node as a node of its own, in order: for array expressions over all of them."""
        self.settle()
        table, moments = self.table, self.times.shape[1]
        flat = self._flat
        if flat is None:
            flat = self._flat = NodeTable.__new__(NodeTable)
            for name in ("threads", "cpus_total", "memory_total", "tmp", "weight"):
                setattr(flat, name, np.repeat(getattr(table, name), moments))
        flat.up = np.repeat(table.up, moments)
        flat.cpus, flat.core_cpus, flat.memory = (column.reshape(-1) for column in self.counts[:3])
        flat.idle = self.counts[3].reshape(-1) > 0
        flat.gres = {kind: column.reshape(-1) for kind, column in zip(self._kinds, self.counts[4:], strict=True)}
        return flat

    def row_at(self, index: int, start_at: float | None, until: float, without: Hold | None = None) -> NodeRow:
        """What is free on one node all the time from `start_at` (None: now, as things are) to `until`; `without` is a
        hold that does not count.
        """
        row = self.table.rows[index]
        if start_at is None and self.held_from[index] >= until:
            return row
        holds = [item for item in self.holds.get(index, ()) if item[0] is not without]
        row = row.copy()
        begun = -NEVER if start_at is None else start_at
        moments = {hold.start_at for hold, _holder in holds} | {holder.ends_at for holder in row.holders.values()}
        moments.update(hold.end_at for hold, _holder in holds)
        least = None
        for at in sorted(moments):
            if at > begun and least is None:
                least = row.copy()
            if at >= until:
                break
            change(row, at, holds)
            if least is not None and holds:
                meet(least, row)
        return row if least is None else least

    def at(
        self, start_at: float | None, until: float, without: Hold | None = None, within: Ints | None = None
    ) -> NodeTable:
        """The table for a job that starts at `start_at` (None: now, as things are) and ends at `until`.

        `without`: a hold that does not count. `within`: positions of the cells that are looked at, one a node; other
        nodes are as they are now.
        """
        table = self.table.fork()
        columns: list[npt.NDArray[Any]] = [table.cpus, table.core_cpus, table.memory, table.idle, *table.gres.values()]
        held = self.held_from < until
        if start_at is not None:
            cells = self.cells()
            if within is None:
                within = np.flatnonzero((cells.begins <= start_at) & (start_at < cells.ends))
            nodes, places = cells.node[within], cells.place[within]
            for column, counts in zip(columns, self.counts, strict=True):
                column[nodes] = counts.reshape(-1)[places]
            held_nodes = nodes[held[nodes]]
        else:
            held_nodes = np.flatnonzero(held)
        if len(held_nodes):
            self.settle()
            self._lower(columns, held_nodes, -NEVER if start_at is None else start_at, until)
        table.rows = FutureRows(self, start_at, until, without)
        if without is not None:
            for index, _holder in without.parts:
                for column, count in zip(columns, table.rows[index].counts(self._kinds), strict=True):
                    column[index] = count
        return table

    def _lower(self, columns: Sequence[npt.NDArray[Any]], nodes: Ints, start_at: float, until: float) -> None:
        """Put the least of the whole time into the columns of nodes that have holds."""
        times = self.times[nodes]
        ends = np.concatenate((times[:, 1:], np.full((len(nodes), 1), NEVER)), axis=1)
        inside: Bools = (times < until) & (ends > start_at)
        for column, counts in zip(columns, self.counts, strict=True):
            column[nodes] = np.where(inside, counts[nodes], np.iinfo(np.int64).max).min(axis=1)


class FutureRows(list[NodeRow]):
    """The rows of a table at another time, made when they are first looked at."""

    def __init__(self, profile: Profile, start_at: float | None, until: float, without: Hold | None = None) -> None:
        super().__init__(profile.table.rows)
        self._profile = profile
        self._time = (start_at, until, without)
        self._made: dict[int, NodeRow] = {}

    def __getitem__(self, index: Any) -> Any:
        row = self._made.get(index)
        if row is None:
            row = self._made[index] = self._profile.row_at(index, *self._time)
        return row

    def __setitem__(self, index: Any, row: Any) -> None:
        self._made[index] = row


def change(row: NodeRow, at: float, holds: Iterable[tuple[Hold, Holder]]) -> None:
    """What happens on the node at this moment: first who gives back, then who takes."""
    for holder in list(row.holders.values()):
        if holder.ends_at == at:
            row.release(holder.job_id)
    for hold, holder in holds:
        if hold.start_at == at:
            row.charge(holder)


def meet(least: NodeRow, row: NodeRow) -> None:
    """Leave in `least` what is free in both."""
    least.free_cpus &= row.free_cpus
    least.free_memory_mib = min(least.free_memory_mib, row.free_memory_mib)
    for name in least.gres_free:
        least.gres_free[name] &= row.gres_free[name]
    for kind in least.counts_free:
        least.counts_free[kind] = min(least.counts_free[kind], row.counts_free[kind])
    for name, shares in least.shares_free.items():
        for device in shares:
            shares[device] = min(shares[device], row.shares_free[name][device])
    for job_id, holder in row.holders.items():
        least.holders.setdefault(job_id, holder)
