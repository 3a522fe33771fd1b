"""Columns of a table of nodes: CPUs that jobs of partitions with OverSubscribe may use.

How many CPUs a node has left depends on the jobs on it, so the exact rule (`usable_cpus`) is applied, but only to nodes
that have changed since. Columns are made when a request first asks for them.

Source: slurm.conf(5) OverSubscribe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spritz.scheduling.view.capacity import usable_cpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.scheduling.view.nodes import NodeRow
    from spritz.scheduling.view.request import Request

Ints = npt.NDArray[np.int64]
#: everything in a request that these CPUs depend on
Key = tuple[object, ...]


class Oversubscribed:
    """The columns of one table. Forks share the columns that neither has changed, and the set of `_wanted` ones.

    Invariant: a column is correct for every node outside its `_stale`.
    """

    __slots__ = ("_columns", "_own", "_stale", "_wanted")

    def __init__(self) -> None:
        self._columns: dict[Key, Ints] = {}
        self._own: set[Key] = set()
        self._stale: dict[Key, set[int]] = {}
        self._wanted: dict[Key, Request] = {}

    def fork(self, rows: Sequence[NodeRow]) -> Oversubscribed:
        """Columns for a table that begins with these rows. They are brought up to date here first, so that later cycles
        inherit what one cycle has computed.
        """
        for request in self._wanted.values():
            self.cpus(rows, request)
        self._own.clear()
        other = Oversubscribed()
        other._wanted, other._columns = self._wanted, dict(self._columns)
        other._stale = {key: set() for key in self._columns}
        return other

    def touch(self, nodes: Iterable[int]) -> None:
        """Something on these nodes has changed."""
        nodes = tuple(nodes)
        for stale in self._stale.values():
            stale.update(nodes)

    def cpus(self, rows: Sequence[NodeRow], request: Request) -> Ints:
        """int64[node]: CPUs, in whole grains, that a job of the request may use on each node. Read only."""
        key = (
            request.partition,
            request.share_rows,
            request.grain,
            request.uses_gpus,
            request.max_cpus_per_socket,
        )
        column = self._columns.get(key)
        if column is None:
            # By index: rows of a later time are made when they are read.
            cpus = (_room(rows[index], request) for index in range(len(rows)))
            column = self._columns[key] = np.fromiter(cpus, np.int64, len(rows))
            self._stale[key] = set()
            self._wanted[key] = request
            self._own.add(key)
        elif stale := self._stale[key]:
            if key not in self._own:
                column = self._columns[key] = column.copy()
                self._own.add(key)
            for index in stale:
                column[index] = _room(rows[index], request)
            stale.clear()
        return column


def _room(row: NodeRow, request: Request) -> int:
    """Zero if a job holds the node exclusively, even while suspended."""
    if any(holder.whole and not holder.stopped for holder in row.holders.values()):
        return 0
    return usable_cpus(row, request).bit_count()
