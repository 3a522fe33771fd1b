"""Free resources of every node over time, if running jobs last to their limits and planned starts are kept.

`Profile` holds, for each node, the breakpoints at which something changes there and the counts from each breakpoint on,
so that one array expression finds when a request could first start. Reservations subtract from it as planned starts do,
through `hold` and `let_go`. `Profile.at` is the table as a job would find it that starts at one time and ends at
another: `place` reads it like the present table.

Counts are upper bounds between two breakpoints; rows are exact. They differ because counts do not say *which* CPUs and
devices are free: 2 GPUs free before noon and 2 after are no 2 GPUs for a job that runs across noon, if they are not the
same two. Decides nothing.

Source: slurm.conf(5) SchedulerParameters=bf_*; the profile of conservative backfill (Mu'alem and Feitelson 2001).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spritz.scheduling import kernels
from spritz.scheduling.view.node_timeline import FutureHold, Least, Timeline, counts_ahead, events_ahead
from spritz.scheduling.view.nodes import Holder, NodeRow
from spritz.scheduling.view.table import Bools, Ints, NodeTable, is_exclusive

Floats = npt.NDArray[np.float64]

NEVER = float("inf")
#: more than any count
MOST = np.iinfo(np.int64).max
#: breakpoints per node for which a new profile has room
BREAKPOINTS = 4
#: If at most one node in this many is stale, its counts are computed apart and the shared arrays are not copied.
ASIDE_SHARE = 32
#: Starts are looked for in the first 1/64 of all breakpoints, then in the first 1/8, then in all. Fewer breakpoints
#: than FEW are not divided.
SHARES = (64, 8)
FEW = 64


class Cells:
    """Intervals between breakpoints, node by node and ascending in time. Arrays [cell]: `place` position in the flat
    table, `node` index, `begins` and `ends` float64 (-inf: now; inf: for ever).
    """

    __slots__ = ("begins", "ends", "node", "place")

    def __init__(self, times: Floats, horizon: float, nodes: Ints | None = None) -> None:
        """Cells of `nodes` (ascending; None: of all) that begin by `horizon`."""
        width = times.shape[1]
        node_times = times if nodes is None else times[nodes]
        flat = node_times.reshape(-1)
        place = np.flatnonzero(flat <= horizon) if horizon < NEVER else np.flatnonzero(flat < NEVER)
        self.begins: Floats = flat[place]
        following = np.append(flat[1:], NEVER)[place]
        self.ends: Floats = np.where(following == -NEVER, NEVER, following)
        self.node = place // width
        self.place = place
        if nodes is not None:
            self.place = place + (nodes[self.node] - self.node) * width
            self.node = nodes[self.node]


class Profile:
    """Arrays: `times` float64[node, breakpoint] (inf: no more), and `counts[k]` int64[node, breakpoint] for the columns
    of `NodeRow.counts`. Breakpoint 0 is now. `held_from` float64[node]: start of the first hold there. Times and counts
    are those of the last `settle`; reading settles first.
    """

    __slots__ = (
        "_base",
        "_flat",
        "_horizons",
        "_shares",
        "_simulated",
        "counts",
        "held_from",
        "holds",
        "kinds",
        "table",
        "times",
        "worked_out",
    )

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        #: GRES kinds: the columns from the fifth on
        self.kinds = tuple(table.gres)
        count = len(table.rows)
        self.times: Floats = np.full((count, BREAKPOINTS), NEVER)
        self.counts = [np.zeros((count, BREAKPOINTS), np.int64) for _ in range(4 + len(self.kinds))]
        self.held_from: Floats = np.full(count, NEVER)
        #: by node
        self.holds: dict[int, tuple[tuple[FutureHold, Holder], ...]] = {}
        self._flat: NodeTable | None = None
        self._shares = False
        self._base: Profile | None = None
        self._horizons: list[float] | None = None
        #: nodes whose counts could not be found by addition (`_simulated`)
        self._simulated: set[int] = set()
        #: breakpoints computed so far, a measure of work for tests and benchmarks
        self.worked_out = 0
        table.stale.update(range(count))

    def extend(self, table: NodeTable) -> None:
        """Use `table` from now on: it has more nodes after the present ones, and the same kinds of GRES."""
        self._attach(None)
        more = len(table.rows) - len(self.table.rows)
        self.table = table
        self.times = np.pad(self.times, ((0, more), (0, 0)), constant_values=NEVER)
        self.counts = [np.pad(column, ((0, more), (0, 0))) for column in self.counts]
        self.held_from = np.append(self.held_from, np.full(more, NEVER))
        self._flat, self._shares, self._horizons = None, False, None

    def fork(self, table: NodeTable) -> Profile:
        """A copy to change, over a fork of the table. Arrays are copied when it first changes them."""
        other = Profile.__new__(Profile)
        self.fork_into(other, table)
        return other

    def fork_into(self, other: Profile, table: NodeTable) -> None:
        """Make `other` a fork of this profile over another table."""
        other.table = table
        other.kinds = self.kinds
        other.holds, other.held_from = dict(self.holds), self.held_from.copy()
        other._flat, other._base, other._shares, other.worked_out = None, self, True, 0
        other._horizons, other._simulated = None, self._simulated

    @property
    def stale(self) -> set[int]:
        """Nodes that have changed since the last `settle`."""
        return self.table.stale

    def _attach(self, only: Iterable[int] | None) -> None:
        """Take over the arrays of the profile that this one was forked from. What is computed there stays there."""
        # Copy on write in two steps. A fork shares the arrays of its base until it first changes them (`_unshare`).
        # What was stale in the base is computed in the base before the fork takes the arrays over, so that the next
        # fork of the same base finds it done.
        base = self._base
        if base is not None:
            self._base = None
            base.settle(only)
            self.times, self.counts, self._simulated = base.times, base.counts, set(base._simulated)
            for index in base.stale:
                self.stale.add(index)

    def _unshare(self) -> None:
        if self._shares:
            self._shares = False
            self.times = self.times.copy()
            self.counts = [column.copy() for column in self.counts]
            self._flat = None

    # -- holds

    def hold(self, hold: FutureHold) -> None:
        """Subtract what the hold takes while it lasts."""
        for index, holder in hold.parts:
            self.holds[index] = (*self.holds.get(index, ()), (hold, holder))
            if is_exclusive(holder):
                self.table.exclusive_later.add(index)
            if self._put(index, hold, holder):
                self.held_from[index] = min(self.held_from[index], hold.start_at)
            else:
                self._touch(index)

    def _put(self, index: int, hold: FutureHold, holder: Holder) -> bool:
        """Enter the hold into the arrays directly, with the result that `_work_out` would give. False if it must be
        asked.
        """
        # A flexible hold changes counts by plain subtraction between two times. Any other hold may take particular
        # CPUs, so what is left does not follow from counts. Nor is it done on a fork that has not taken its arrays over
        # (`_base`), or on a node whose arrays are stale anyway.
        if not kernels.compiled or self._base is not None or not hold.flexible or hold.start_at >= holder.ends_at:
            return False
        if index in self.stale or index in self._simulated:
            return False
        self._unshare()
        cpus, memory, oversubscribed, *devices = holder.taken(self.kinds, self.table.rows[index].hardware)
        amounts = (cpus, cpus, memory, oversubscribed, *devices)
        done = kernels.timeline_hold(self.times, tuple(self.counts), index, hold.start_at, holder.ends_at, amounts)
        self.worked_out += 2 * done
        return done

    def let_go(self, hold: FutureHold) -> None:
        """Give back what the hold takes."""
        for index, _holder in hold.parts:
            left = tuple(item for item in self.holds.get(index, ()) if item[0] is not hold)
            if index in self.table.exclusive_later and not any(is_exclusive(other) for _hold, other in left):
                self.table.exclusive_later.discard(index)
            if left:
                self.holds[index] = left
            else:
                self.holds.pop(index, None)
            self._touch(index)

    def _touch(self, index: int) -> None:
        self.held_from[index] = min((hold.start_at for hold, _ in self.holds.get(index, ())), default=NEVER)
        self.stale.add(index)

    # -- breakpoints

    def settle(self, only: Iterable[int] | None = None) -> None:
        """Compute the counts of changed nodes again. `only`: of these nodes alone."""
        self._attach(only)
        stale = self.stale
        todo = sorted(stale) if only is None else sorted(stale.intersection(only))
        if todo:
            self._unshare()
        for index in todo:
            self._work_out(index)
        stale.difference_update(todo)

    def _settle_most(self, nodes: list[int]) -> list[int]:
        """As `settle`, but if only a few nodes are stale, leave them so and return them: no array is copied."""
        self._attach(nodes)
        stale_nodes = sorted(self.stale.intersection(nodes)) if self._shares else []
        # For a few stale nodes, a copy of all arrays (megabytes on large clusters) would cost more than computing these
        # nodes apart.
        if len(stale_nodes) * ASIDE_SHARE > len(self.table.rows):
            stale_nodes = []
        if not stale_nodes:
            self.settle(nodes)
        return stale_nodes

    def _least(self, index: int, begun: float, until: float) -> list[int]:
        """The least that the node has of each quantity from `begun` to `until`."""
        row, holds = self.table.rows[index], self.holds.get(index, ())
        breakpoints, counts = counts_ahead(row, holds, self.kinds) or _simulated(row, holds, self.kinds)
        self.worked_out += len(counts)
        first, last = bisect_right(breakpoints, begun), bisect_left(breakpoints, until)
        return [min(values) for values in zip(*counts[first : last + 1], strict=True)]

    def _work_out(self, index: int) -> None:
        row, holds = self.table.rows[index], self.holds.get(index, ())
        if kernels.compiled and self._add_up(index, row, holds):
            return
        added = counts_ahead(row, holds, self.kinds)
        breakpoints, counts = added or _simulated(row, holds, self.kinds)
        if added is None:
            self._simulated.add(index)
        else:
            self._simulated.discard(index)
        self.worked_out += len(breakpoints) + 1
        if len(breakpoints) >= self.times.shape[1]:
            self._widen(len(breakpoints) + 1)
        self.times[index, 0] = -NEVER
        self.times[index, 1 : len(counts)] = breakpoints
        self.times[index, len(counts) :] = NEVER
        for column, values in zip(self.counts, zip(*counts, strict=True), strict=True):
            column[index, : len(counts)] = values

    def _add_up(self, index: int, row: NodeRow, holds: Sequence[tuple[FutureHold, Holder]]) -> bool:
        """Compute the node by addition alone, in the compiled part. False if addition may not be exact."""
        events = events_ahead(row, holds, self.kinds)
        if events is None:
            return False
        now = row.counts(self.kinds)
        breakpoints = kernels.timeline_put(self.times, tuple(self.counts), index, now, events)
        if breakpoints >= self.times.shape[1]:
            self._widen(breakpoints + 1)
            kernels.timeline_put(self.times, tuple(self.counts), index, now, events)
        if breakpoints < 0:
            return False
        self._simulated.discard(index)
        self.worked_out += breakpoints + 1
        return True

    def _widen(self, breakpoints: int) -> None:
        more = max(breakpoints, 2 * self.times.shape[1]) - self.times.shape[1]
        self.times = np.pad(self.times, ((0, 0), (0, more)), constant_values=NEVER)
        self.counts = [np.pad(column, ((0, 0), (0, more))) for column in self.counts]
        self._flat = None

    # -- questions

    def cells(self, horizon: float = NEVER, nodes: Ints | None = None) -> Cells:
        """The cells of these nodes (None: all) that begin by `horizon`."""
        self.settle()
        return Cells(self.times, horizon, nodes)

    def cells_at(self, places: Ints) -> Cells:
        """The cells at these positions of the flat table."""
        width = self.times.shape[1]
        cells = Cells.__new__(Cells)
        flat = self.times.reshape(-1)
        cells.place, cells.node, cells.begins = places, places // width, flat[places]
        last = places % width == width - 1
        cells.ends = np.where(last, NEVER, flat[np.minimum(places + 1, len(flat) - 1)])
        return cells

    def horizons(self, since: float) -> list[float]:
        """Times up to which starts are looked for, one after the other, ascending; the last is `NEVER`. The first of
        them suffices for most requests.
        """
        self.settle()
        if self._horizons is None:
            ends = self.times[(self.times > -NEVER) & (self.times < NEVER)]
            ends.sort()
            self._horizons = [float(ends[len(ends) // share]) for share in SHARES if len(ends) >= share * FEW]
        return [*(at for at in self._horizons if at > since), NEVER]

    def next_breakpoint(self, at: float) -> float:
        """The next time at which something changes on some node."""
        self.settle()
        later = self.times[self.times > at]
        return float(later.min()) if len(later) else NEVER

    def flat(self) -> NodeTable:
        """Every cell of every node as a node of a table of its own, in order: for array expressions over all cells."""
        self.settle()
        table, breakpoints = self.table, self.times.shape[1]
        flat = self._flat
        if flat is None:
            flat = self._flat = NodeTable.__new__(NodeTable)
            for name in ("threads", "cpus_total", "memory_total", "tmp", "weight", "up"):
                setattr(flat, name, np.repeat(getattr(table, name), breakpoints))
            flat.cpus, flat.core_cpus, flat.memory = (column.reshape(-1) for column in self.counts[:3])
            flat.oversubscribed = None
            flat.gres = {kind: column.reshape(-1) for kind, column in zip(self.kinds, self.counts[4:], strict=True)}
        flat.idle = self.counts[3].reshape(-1) > 0
        return flat

    def row_at(self, index: int, start_at: float | None, until: float, without: Collection[FutureHold] = ()) -> NodeRow:
        """What is free on one node throughout `start_at` (None: now) to `until`. `without`: holds that do not count."""
        row = self.table.rows[index]
        if start_at is None and self.held_from[index] >= until:
            return row
        holds = [item for item in self.holds.get(index, ()) if item[0] not in without]
        begun = -NEVER if start_at is None else start_at
        if not holds or (
            not (row.overlaps or row.shares_free)
            and all(hold.start_at >= until or holder.ends_at <= begun for hold, holder in holds)
        ):
            # No hold begins while the job runs, and running jobs only release resources: what is free at first is the
            # least.
            return row.after(begun)
        # The job must find its resources free at *every* moment of its life, so take the least over all changes in it.
        # Sums at the two ends are not enough: a planned start may begin and end in between.
        row = row.copy()
        changes = Timeline(row, holds)
        least: Least | None = None
        for at in changes.breakpoints:
            if at > begun and least is None:
                least = Least(row, flexible=changes.flexible)
            if at >= until:
                break
            changes.make(row, at)
            if least is not None:
                least.meet(row)
        return row if least is None else least.row()

    def is_flexible(self, index: int) -> bool:
        """Whether all holds on the node may move to other CPUs and devices."""
        return all(hold.flexible for hold, _holder in self.holds.get(index, ()))

    def at(
        self,
        start_at: float | None,
        until: float,
        without: Collection[FutureHold] = (),
        *,
        within: Cells | None = None,
        only: Ints | None = None,
    ) -> NodeTable:
        """The table for a job that starts at `start_at` (None: now) and ends at `until`.

        `without`: holds that do not count. `within`: the cells to look at, one per node; other nodes are as they are
        now. `only`: with `start_at` None, the only nodes to look at.
        """
        table = self.table.fork()
        columns: list[npt.NDArray[Any]] = [table.cpus, table.core_cpus, table.memory, table.idle, *table.gres.values()]
        held = self.held_from < until
        if start_at is not None:
            if within is None:
                cells = self.cells()
                within = cells_of(cells, (cells.begins <= start_at) & (start_at < cells.ends))
            nodes, places = within.node, within.place
            for column, counts in zip(columns, self.counts, strict=True):
                column[nodes] = counts.reshape(-1)[places]
            # Without a hold that begins before `until`, a node keeps what is free at the start: only the others are
            # lowered.
            held_nodes = nodes[held[nodes]]
        elif only is None:
            held_nodes = np.flatnonzero(held)
        else:
            held_nodes = only[held[only]]
        if len(held_nodes):
            begun = -NEVER if start_at is None else start_at
            aside = self._settle_most(held_nodes.tolist())
            self._lower(columns, held_nodes, begun, until)
            for index in aside:
                for column, least in zip(columns, self._least(index, begun, until), strict=True):
                    column[index] = least
        table.rows = FutureRows(self, start_at, until, without)
        excluded = {index for hold in without for index, _holder in hold.parts}
        if table.oversubscribed is not None:
            table.oversubscribed.touch((*excluded, *(held_nodes if start_at is None else nodes).tolist()))
        for index in excluded:
            for column, count in zip(columns, table.rows[index].counts(self.kinds), strict=True):
                column[index] = count
        return table

    def _lower(self, columns: Sequence[npt.NDArray[Any]], nodes: Ints, start_at: float, until: float) -> None:
        """Lower the columns of nodes that have holds to the least of the whole time."""
        if kernels.compiled:
            kernels.timeline_lowest(self.times, tuple(self.counts), nodes, start_at, until, tuple(columns))
            return
        times = self.times[nodes]
        ends = np.concatenate((times[:, 1:], np.full((len(nodes), 1), NEVER)), axis=1)
        inside: Bools = (times < until) & (ends > start_at)
        for column, counts in zip(columns, self.counts, strict=True):
            column[nodes] = np.where(inside, counts[nodes], MOST).min(axis=1)


class FutureRows(list[NodeRow]):
    """The rows of a table at another time, made when they are first read."""

    def __init__(
        self, profile: Profile, start_at: float | None, until: float, without: Collection[FutureHold] = ()
    ) -> None:
        super().__init__(profile.table.rows)
        self._profile = profile
        self._time = (start_at, until, without)
        self._made: dict[int, NodeRow] = {}

    def is_flexible(self, index: int) -> bool:
        return self._profile.is_flexible(index)

    def __getitem__(self, index: Any) -> Any:
        row = self._made.get(index)
        if row is None:
            row = self._made[index] = self._profile.row_at(index, *self._time)
        return row

    def __setitem__(self, index: Any, row: Any) -> None:
        self._made[index] = row


def _simulated(
    row: NodeRow, holds: Sequence[tuple[FutureHold, Holder]], kinds: tuple[tuple[str, str], ...]
) -> tuple[list[float], list[tuple[int, ...]]]:
    """As `counts_ahead`, for any row: carries out every change on a copy, one after the other."""
    changes = Timeline(row, holds)
    counts = [tuple(row.counts(kinds))]
    row = row.copy()
    for at in changes.breakpoints:
        changes.make(row, at)
        counts.append(tuple(row.counts(kinds)))
    return changes.breakpoints, counts


def cells_of(cells: Cells, which: Bools | Ints) -> Cells:
    """A selection of the cells: by mask, or by positions."""
    selected = Cells.__new__(Cells)
    selected.place, selected.node = cells.place[which], cells.node[which]
    selected.begins, selected.ends = cells.begins[which], cells.ends[which]
    return selected
