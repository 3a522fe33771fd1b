"""What the running jobs of each kind (partition and QOS) hold of every node, as columns.

Preemption uses it as a bound (`plan.preemption_bound`) and to choose cheap nodes (`plan.victim_nodes`). `Occupants`
follows the projection's table and recomputes only nodes that have changed. Its counts are never too small.

Source: ours; docs/decisions/0033-preemption.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.scheduling.view.nodes import Holder
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.table import Ints, NodeTable

Floats = npt.NDArray[np.float64]
#: partition and QOS
Kind = tuple[str, str]

#: jobs that have ended, or are in their grace time
LEAVING: Kind = ("", "")

#: rows of the arrays before GRES
CPUS, MEMORY, JOBS = 0, 1, 2

#: rows of the arrays of prices
SHARES, PRIORITIES, STARTS, SIZES, WORK, FIRST, LAST = range(7)
PRICES = 7


class Occupants:
    """Arrays `held[kind]` are int32[quantity, node]: CPUs, memory, jobs, and GRES in the table's order.

    `prices[kind]` are float64[price, node], sums over these jobs: `SHARES` of a whole job (a half for each of two
    nodes), `PRIORITIES`, `STARTS` (seconds since the epoch), `SIZES` (CPUs of the whole job, roughly) and `WORK` (SIZES
    times the start); `FIRST` and `LAST` are the first and last start. `counts[kind]`: parts of nodes that jobs of the
    kind hold. All values are those of the last `settle`.
    """

    __slots__ = ("_on", "counts", "held", "parts", "prices", "table")

    def __init__(self, table: NodeTable, kinds: tuple[tuple[str, str], ...]) -> None:
        self.table = table
        self.parts = kinds
        self.held: dict[Kind, Ints] = {}
        self.prices: dict[Kind, Floats] = {}
        self.counts: dict[Kind, int] = {}
        #: by node and kind: ids of the jobs that hold something there
        self._on: dict[int, dict[Kind, list[int]]] = {}
        table.changed.update(range(len(table.rows)))

    def settle(self, records: Mapping[int, JobRecord]) -> None:
        """Bring changed nodes up to date."""
        changed = self.table.changed
        for index in changed:
            for kind, jobs in self._on.pop(index, {}).items():
                self.held[kind][:, index] = 0
                self.prices[kind][:, index] = 0.0
                self.counts[kind] -= len(jobs)
                if not self.counts[kind]:
                    del self.counts[kind], self.held[kind], self.prices[kind]
            row = self.table.rows[index]
            if not row.holders:
                continue
            here = self._on[index] = {}
            for job_id, holder in row.holders.items():
                record = records.get(job_id)
                kind = LEAVING
                if record is not None and not record.completing and not record.preempting:
                    kind = holder.partition, record.spec.qos
                here.setdefault(kind, []).append(job_id)
                held = self.held.get(kind)
                if held is None:
                    held = self.held[kind] = np.zeros((3 + len(self.parts), len(self.table.rows)), np.int32)
                    self.prices[kind] = np.zeros((PRICES, len(self.table.rows)))
                held[:, index] += holder.taken(self.parts, row.hardware)
                self.counts[kind] = self.counts.get(kind, 0) + 1
            for kind, jobs in here.items():
                if kind != LEAVING:
                    self.prices[kind][:, index] = _prices([(records[job], row.holders[job]) for job in jobs])
        changed.clear()

    def on(self, index: int, kind: Kind) -> list[int]:
        """Ids of the kind's jobs on that node."""
        return self._on.get(index, {}).get(kind, [])

    def kinds(self) -> list[Kind]:
        """Kinds with running jobs, without jobs that are leaving."""
        return [kind for kind in self.held if kind != LEAVING]

    def leaving(self) -> list[int]:
        """Ids of the jobs that are leaving, ascending."""
        if LEAVING not in self.held:
            return []
        nodes = self.held[LEAVING][JOBS].nonzero()[0].tolist()
        return sorted({job_id for index in nodes for job_id in self._on[index].get(LEAVING, ())})


def _prices(jobs: list[tuple[JobRecord, Holder]]) -> list[float]:
    """A column of `Occupants.prices` for these jobs of one node."""
    shares = priorities = starts = sizes = work = 0.0
    for record, holder in jobs:
        width = len(record.all_names) or 1
        shares += 1.0 / width
        priorities += record.priority
        starts += record.started_at
        size = holder.cpus.bit_count() * width
        sizes += size
        work += record.started_at * size
    times = [record.started_at for record, _holder in jobs]
    return [shares, priorities, starts, sizes, work, min(times), max(times)]
