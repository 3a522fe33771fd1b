"""The nodes of a cluster as rows and columns: what placement reads.

A `NodeRow` is exact (masks); the columns of a `NodeTable` hold the same facts as counts, so that one array expression
rules out most nodes. A table is changed by its owner only; `fork` gives a cycle its own copy, in which rows are copied
when they are first changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.scheduling.nodes import Holder, NodeRow

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: columns of a table that are not GRES
_COLUMNS = (
    "core_cpus",
    "cpus",
    "cpus_total",
    "freed",
    "idle",
    "memory",
    "memory_total",
    "threads",
    "tmp",
    "up",
    "weight",
)


class NodeTable:
    """Rows in configuration order, and their counts as columns.

    Columns are int64[node] (bool where they say yes or no): `cpus` free CPUs, `core_cpus` those in wholly free cores,
    `memory`, `idle` nobody holds anything, `up`, and one per (GRES name, type) in `gres`. `threads`, `weight`,
    `cpus_total`, `memory_total`, `tmp` never change.
    `freed` is the projection's count at which something on the node was last freed. `stale` are the nodes that have
    changed since somebody emptied it.
    """

    __slots__ = (
        "_own",
        "core_cpus",
        "cpus",
        "cpus_total",
        "freed",
        "gres",
        "idle",
        "index_of",
        "memory",
        "memory_total",
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
        count = len(self.rows)
        self.index_of = {row.name: index for index, row in enumerate(self.rows)}
        self.core_cpus, self.cpus, self.memory = (np.zeros(count, np.int64) for _ in range(3))
        self.idle, self.up = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        self.threads = np.array([row.hardware.threads for row in self.rows], np.int64)
        self.weight = np.array([row.weight for row in self.rows], np.int64)
        self.cpus_total = np.array([row.hardware.cpus.bit_count() for row in self.rows], np.int64)
        self.memory_total = np.array([row.hardware.memory_mib for row in self.rows], np.int64)
        self.freed = np.zeros(count, np.int64)
        self.tmp = np.array([row.hardware.tmp_mib for row in self.rows], np.int64)
        kinds = sorted(
            {(name, kind) for row in self.rows for name, pool in row.hardware.pools.items() for kind in pool.counts}
        )
        self.gres = {kind: np.zeros(count, np.int64) for kind in kinds}
        for index in range(count):
            self.refresh(index)

    def fork(self) -> NodeTable:
        """A table of one's own: cheap, since rows are shared until one of them changes."""
        other = NodeTable.__new__(NodeTable)
        other.rows = list(self.rows)
        other._own = set()
        other.stale = set()
        other.index_of = self.index_of
        other.core_cpus, other.cpus, other.memory = self.core_cpus.copy(), self.cpus.copy(), self.memory.copy()
        other.idle, other.up, other.freed = self.idle.copy(), self.up, self.freed
        other.threads, other.weight, other.tmp = self.threads, self.weight, self.tmp
        other.cpus_total, other.memory_total = self.cpus_total, self.memory_total
        other.gres = {kind: column.copy() for kind, column in self.gres.items()}
        return other

    def extended(self, rows: list[NodeRow]) -> NodeTable:
        """A table with these rows after all others; they have no GRES that is new to it. Rows are shared with it."""
        new, other = NodeTable(rows), NodeTable.__new__(NodeTable)
        other.rows = [*self.rows, *rows]
        other._own = self._own
        first = len(self.rows)
        other.stale = self.stale | set(range(first, len(other.rows)))
        other.index_of = {**self.index_of, **{name: first + index for name, index in new.index_of.items()}}
        for name in _COLUMNS:
            setattr(other, name, np.concatenate((getattr(self, name), getattr(new, name))))
        none = np.zeros(len(rows), np.int64)
        other.gres = {kind: np.concatenate((column, new.gres.get(kind, none))) for kind, column in self.gres.items()}
        return other

    def emptied(self, all_up: bool = False) -> NodeTable:
        """The same nodes without any job; `all_up`: as if every one of them were usable."""
        rows = []
        for row in self.rows:
            bare = row.copy()
            bare.holders = {}
            bare.up = bare.up or all_up
            bare.recount()
            rows.append(bare)
        return NodeTable(rows)

    def row(self, index: int) -> NodeRow:
        """The row, to be changed; follow with `refresh`."""
        if self._own is not None and index not in self._own:
            self._own.add(index)
            self.rows[index] = self.rows[index].copy()
        return self.rows[index]

    def set_weight(self, index: int, weight: int) -> None:
        """The node is powered up or down. Tables forked earlier keep what they saw."""
        self.row(index).weight = weight
        self.weight = self.weight.copy()
        self.weight[index] = weight
        self.stale.add(index)

    def charge(self, index: int, holder: Holder) -> None:
        """A job takes its part of a node."""
        self.row(index).charge(holder)
        self.refresh(index)

    def release(self, index: int, job_id: int) -> bool:
        """A job gives its part of a node back; False if it held nothing there."""
        if job_id not in self.rows[index].holders:
            return False
        self.row(index).release(job_id)
        self.refresh(index)
        return True

    def refresh(self, index: int) -> None:
        """Bring the columns of one node up to date with its row."""
        row = self.rows[index]
        self.stale.add(index)
        counts = row.counts(self.gres)
        self.cpus[index], self.core_cpus[index], self.memory[index], self.idle[index] = counts[:4]
        if self._own is None:
            self.up[index] = row.up
        for column, count in zip(self.gres.values(), counts[4:], strict=True):
            column[index] = count

    def set_end(self, index: int, job_id: int, ends_at: float) -> None:
        """The job will give its part of a node back at another time."""
        holder = self.rows[index].holders.get(job_id)
        if holder is not None and holder.ends_at != ends_at:
            self.row(index).holders[job_id] = holder.until(ends_at)
            self.stale.add(index)
