"""The nodes of a cluster as rows and columns: what placement reads.

A `NodeRow` is exact (masks); the columns of a `NodeTable` hold the same facts as counts, so that one array expression
rules out most nodes. Only its owner changes a table; `fork` gives a cycle its own copy, in which rows are copied when
they first change.

Invariant: each column equals the count of every row, except between `row` and `refresh` of that row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from spritz.model.resources import mask_of
from spritz.scheduling.view.sharing.gpu_parts import GpuParts
from spritz.scheduling.view.sharing.oversubscribed import Oversubscribed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spritz.model.resources import Allocation
    from spritz.scheduling.view.nodes import Holder, NodeRow

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: columns of a table, GRES excepted
_COLUMNS = (
    "core_cpus",
    "cpus",
    "cpus_total",
    "freed",
    "idle",
    "memory",
    "memory_total",
    "gpu_part_numbers",
    "threads",
    "tmp",
    "up",
    "weight",
)


def is_exclusive(holder: Holder) -> bool:
    """Whether the holder may keep other jobs off although the node has free resources. A suspended job has released its
    CPUs, and still has the node for itself.
    """
    return holder.user_exclusive or bool(holder.mcs) or (holder.whole and not holder.cpus)


class NodeTable:
    """Rows in configuration order, and their counts as columns.

    Columns are int64[node] (bool where they say yes or no): `cpus` free CPUs, `core_cpus` those in wholly free cores,
    `memory` MiB, `idle` no job holds anything, `up`, and one per (GRES name, type) in `gres`. `threads`, `weight`,
    `cpus_total`, `memory_total`, `tmp` never change. After `keep_parts`, `gpu_part_numbers` has a number for what is
    free of partly used GPUs; `gpu_parts` gives out the numbers, and forks share it. `freed`: the projection's count at
    which something on the node was last freed. `stale` and `changed`: nodes changed since the profile and `Occupants`,
    respectively, last emptied them. `oversubscribed`: CPUs that may be shared (None: the columns are not counts of
    these rows).
    """

    __slots__ = (
        "_own",
        "changed",
        "core_cpus",
        "cpus",
        "cpus_total",
        "exclusive_later",
        "exclusive_now",
        "freed",
        "gpu_part_numbers",
        "gpu_parts",
        "gres",
        "idle",
        "index_of",
        "keeps_gpu_cores",
        "memory",
        "memory_total",
        "oversubscribed",
        "rows",
        "stale",
        "threads",
        "tmp",
        "up",
        "weight",
    )

    rows: list[NodeRow]
    gres: dict[tuple[str, str], Ints]

    def __init__(self, rows: Iterable[NodeRow]) -> None:
        self.rows = list(rows)
        self._own: set[int] | None = None
        self.stale: set[int] = set()
        self.changed: set[int] = set()
        count = len(self.rows)
        self.index_of = {row.name: index for index, row in enumerate(self.rows)}
        self.core_cpus, self.cpus, self.memory = (np.zeros(count, np.int64) for _ in range(3))
        self.idle, self.up = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        #: some node keeps cores for jobs with GPUs
        self.keeps_gpu_cores = any(row.hardware.gpu_cores for row in self.rows)
        self.threads = np.array([row.hardware.threads for row in self.rows], np.int64)
        self.weight = np.array([row.weight for row in self.rows], np.int64)
        self.cpus_total = np.array([row.hardware.cpus.bit_count() for row in self.rows], np.int64)
        self.memory_total = np.array([row.hardware.memory_mib for row in self.rows], np.int64)
        self.freed, self.gpu_part_numbers = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.gpu_parts: GpuParts | None = None
        self.tmp = np.array([row.hardware.tmp_mib for row in self.rows], np.int64)
        kinds = sorted(
            {(name, kind) for row in self.rows for name, pool in row.hardware.pools.items() for kind in pool.counts}
        )
        self.gres = {kind: np.zeros(count, np.int64) for kind in kinds}
        self.oversubscribed: Oversubscribed | None = Oversubscribed()
        #: nodes where a holder, now or in a planned start, may keep jobs off although counts show free resources
        self.exclusive_now: set[int] = set()
        self.exclusive_later: set[int] = set()
        for index in range(count):
            self.refresh(index)
            if any(map(is_exclusive, self.rows[index].holders.values())):
                self.exclusive_now.add(index)

    def fork(self) -> NodeTable:
        """A copy to change. Cheap, since rows are shared until one of them changes."""
        other = NodeTable.__new__(NodeTable)
        other.rows = list(self.rows)
        other._own = set()
        other.stale, other.changed = set(), set()
        other.exclusive_now, other.exclusive_later = set(self.exclusive_now), set(self.exclusive_later)
        other.index_of, other.keeps_gpu_cores = self.index_of, self.keeps_gpu_cores
        other.core_cpus, other.cpus, other.memory = self.core_cpus.copy(), self.cpus.copy(), self.memory.copy()
        # Columns that a cycle changes are copied; the others are shared. `up` and `freed` change by events alone, and
        # there are none while a snapshot is in use.
        other.idle, other.up, other.freed = self.idle.copy(), self.up, self.freed
        other.threads, other.weight, other.tmp = self.threads, self.weight, self.tmp
        other.cpus_total, other.memory_total = self.cpus_total, self.memory_total
        other.gpu_parts, other.gpu_part_numbers = self.gpu_parts, self.gpu_part_numbers.copy()
        other.gres = {kind: column.copy() for kind, column in self.gres.items()}
        other.oversubscribed = None if self.oversubscribed is None else self.oversubscribed.fork(self.rows)
        return other

    def weighted(self, weight: Ints) -> NodeTable:
        """The table with other weights, to be read only."""
        other = NodeTable.__new__(NodeTable)
        for name in NodeTable.__slots__:
            setattr(other, name, getattr(self, name))
        other.weight = weight
        return other

    def extended(self, rows: list[NodeRow]) -> NodeTable:
        """A table with these rows after the present ones, which it shares. They have no GRES that is new to
        the table.
        """
        new, other = NodeTable(rows), NodeTable.__new__(NodeTable)
        other.rows = [*self.rows, *rows]
        other._own, other.gpu_parts, other.oversubscribed = self._own, self.gpu_parts, Oversubscribed()
        other.exclusive_now, other.exclusive_later = set(self.exclusive_now), set(self.exclusive_later)
        other.keeps_gpu_cores = self.keeps_gpu_cores or new.keeps_gpu_cores
        first = len(self.rows)
        other.changed = set()
        other.stale = self.stale | set(range(first, len(other.rows)))
        other.index_of = {**self.index_of, **{name: first + index for name, index in new.index_of.items()}}
        for name in _COLUMNS:
            setattr(other, name, np.concatenate((getattr(self, name), getattr(new, name))))
        none = np.zeros(len(rows), np.int64)
        other.gres = {kind: np.concatenate((column, new.gres.get(kind, none))) for kind, column in self.gres.items()}
        return other

    def keep_parts(self) -> GpuParts:
        """Number partly used GPUs, from the beginning."""
        self.gpu_parts = GpuParts()
        self.gpu_part_numbers = np.array([self.gpu_parts.number(row) for row in self.rows], np.int64)
        return self.gpu_parts

    def emptied(self, all_up: bool = False) -> NodeTable:
        """The same nodes without any job. `all_up`: as if every node were usable."""
        rows = []
        for row in self.rows:
            bare = row.copy()
            bare.holders = {}
            bare.up = bare.up or all_up
            bare.recount()
            rows.append(bare)
        return NodeTable(rows)

    def follow(self, row: NodeRow) -> None:
        """Take over whether the node is up, and its weight, from this row of another table of the same nodes."""
        present = self.rows[row.index]
        present.up, present.weight = row.up, row.weight
        self.up[row.index], self.weight[row.index] = row.up, row.weight

    def row(self, index: int) -> NodeRow:
        """The row, to be changed. Call `refresh` afterwards."""
        if self._own is not None and index not in self._own:
            self._own.add(index)
            self.rows[index] = self.rows[index].copy()
        return self.rows[index]

    def idle_cpus(self, allocation: Allocation) -> int:
        """How many CPUs of the allocation are idle now."""
        rows, index_of = self.rows, self.index_of
        return sum((mask_of(part.cpus) & rows[index_of[part.node]].free_cpus).bit_count() for part in allocation.nodes)

    def set_weight(self, index: int, weight: int) -> None:
        """The node is powered up or down. Tables forked earlier keep the old weight."""
        self.row(index).weight = weight
        self.weight = self.weight.copy()
        self.weight[index] = weight
        self.stale.add(index)

    def charge(self, index: int, holder: Holder) -> None:
        """Give the holder its part of a node."""
        self.row(index).charge(holder)
        self.refresh(index)
        if is_exclusive(holder):
            self.exclusive_now.add(index)

    @property
    def exclusive(self) -> set[int]:
        """Indexes of nodes for which the counts may be too high."""
        return self.exclusive_now | self.exclusive_later

    def release(self, index: int, job_id: int) -> bool:
        """Release a job's part of a node. False if it held nothing there."""
        if job_id not in self.rows[index].holders:
            return False
        self.row(index).release(job_id)
        self.refresh(index)
        if index in self.exclusive_now and not any(map(is_exclusive, self.rows[index].holders.values())):
            self.exclusive_now.discard(index)
        return True

    def refresh(self, index: int) -> None:
        """Bring the columns of one node up to date with its row."""
        row = self.rows[index]
        self.stale.add(index)
        self.changed.add(index)
        if self.oversubscribed is not None:
            self.oversubscribed.touch((index,))
        counts = row.counts(self.gres)
        self.cpus[index], self.core_cpus[index], self.memory[index], self.idle[index] = counts[:4]
        if self._own is None:
            self.up[index] = row.up
        if self.gpu_parts is not None:
            self.gpu_part_numbers[index] = self.gpu_parts.number(row)
        for column, count in zip(self.gres.values(), counts[4:], strict=True):
            column[index] = count

    def set_end(self, index: int, job_id: int, ends_at: float) -> None:
        """The job will release its part of a node at another time."""
        self.changed.add(index)
        holder = self.rows[index].holders.get(job_id)
        if holder is not None and holder.ends_at != ends_at:
            self.row(index).holders[job_id] = holder.until(ends_at)
            self.stale.add(index)


class ReadTable(Protocol):
    """The table of nodes, for reading. `fork` it to change it."""

    @property
    def rows(self) -> Sequence[NodeRow]: ...
    @property
    def index_of(self) -> Mapping[str, int]: ...
    @property
    def weight(self) -> Ints: ...
    def fork(self) -> NodeTable:
        """A copy to change; it shares unchanged rows."""

    def emptied(self, *, all_up: bool = False) -> NodeTable:
        """A copy without jobs. `all_up`: with every node up."""
