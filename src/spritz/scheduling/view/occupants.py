"""What the running jobs of each class (partition and QOS) hold of every node, as columns.

Preemption uses it as a bound (`plan.preemption_bound`) and to choose cheap nodes (`plan.victim_nodes`). `Occupants`
follows the projection's table and recomputes only nodes that have changed. Its counts are never too small.

Source: ours; docs/decisions/0033-preemption.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.scheduling.view.nodes import Holder
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.table import Ints, NodeTable

Floats = npt.NDArray[np.float64]


class JobClass(NamedTuple):
    """All that a relation of `model.rules.preemption` sees of a job, besides its priority.

    The relation is asked once for a pair of classes and not for each pair of jobs. If it looks at anything else of a
    job, that is one more field here, set by `class_of` (of a job that runs or would run in the partition).
    """

    partition: str
    qos: str


def class_of(record: JobRecord, partition: str) -> JobClass:
    """Class of a job in this partition."""
    return JobClass(partition, record.spec.qos)


#: jobs that have ended, or are in their grace time
LEAVING = JobClass("", "")

#: rows of the arrays before GRES
CPUS, MEMORY, JOBS = 0, 1, 2

#: rows of the arrays of prices
SHARES, PRIORITIES, STARTS, SIZES, WORK, FIRST, LAST = range(7)
PRICES = 7


class Occupants:
    """By class: arrays `held` are int32[quantity, node]: CPUs, memory, jobs, and GRES in the table's order.

    `prices` are float64[price, node], sums over these jobs: `SHARES` of a whole job (a half for each of two nodes),
    `PRIORITIES`, `STARTS` (seconds since the epoch), `SIZES` (CPUs of the whole job, roughly) and `WORK` (SIZES times
    the start); `FIRST` and `LAST` are the first and last start. `counts`: parts of nodes that jobs of the class hold.
    All values are those of the last `settle`.
    """

    __slots__ = ("_on", "counts", "held", "parts", "prices", "table")

    def __init__(self, table: NodeTable, gres_names: tuple[tuple[str, str], ...]) -> None:
        self.table = table
        self.parts = gres_names
        self.held: dict[JobClass, Ints] = {}
        self.prices: dict[JobClass, Floats] = {}
        self.counts: dict[JobClass, int] = {}
        #: by node and class: ids of the jobs that hold something there
        self._on: dict[int, dict[JobClass, list[int]]] = {}
        table.changed.update(range(len(table.rows)))

    def settle(self, records: Mapping[int, JobRecord]) -> None:
        """Bring changed nodes up to date."""
        changed = self.table.changed
        for index in changed:
            for job_class, jobs in self._on.pop(index, {}).items():
                self.held[job_class][:, index] = 0
                self.prices[job_class][:, index] = 0.0
                # Classes without jobs are removed: each class costs a search for victims two arrays over all nodes.
                self.counts[job_class] -= len(jobs)
                if not self.counts[job_class]:
                    del self.counts[job_class], self.held[job_class], self.prices[job_class]
            row = self.table.rows[index]
            if not row.holders:
                continue
            on_node = self._on[index] = {}
            for job_id, holder in row.holders.items():
                record = records.get(job_id)
                job_class = LEAVING
                if record is not None and not record.completing and not record.preempting:
                    job_class = class_of(record, holder.partition)
                on_node.setdefault(job_class, []).append(job_id)
                held = self.held.get(job_class)
                if held is None:
                    held = self.held[job_class] = np.zeros((3 + len(self.parts), len(self.table.rows)), np.int32)
                    self.prices[job_class] = np.zeros((PRICES, len(self.table.rows)))
                held[:, index] += holder.taken(self.parts, row.hardware)
                self.counts[job_class] = self.counts.get(job_class, 0) + 1
            for job_class, jobs in on_node.items():
                if job_class != LEAVING:
                    self.prices[job_class][:, index] = _prices([(records[job], row.holders[job]) for job in jobs])
        changed.clear()

    def on(self, index: int, job_class: JobClass) -> list[int]:
        """Ids of the class's jobs on that node."""
        return self._on.get(index, {}).get(job_class, [])

    def classes(self) -> list[JobClass]:
        """Kinds with running jobs, without jobs that are leaving."""
        return [job_class for job_class in self.held if job_class != LEAVING]

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
