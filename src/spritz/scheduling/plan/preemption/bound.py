"""The most that a preemptor could have: the table as if all jobs that it may preempt were gone.

If a request does not fit there, no search for victims is made. The bound uses counts alone, so it may be too large but
never too small.

Source: docs/decisions/0033-preemption.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.placement.columns import could_hold
from spritz.scheduling.view.occupants import CPUS, JOBS, LEAVING, MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.occupants import JobClass, Occupants
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints, NodeTable


class Bound:
    """The table of a cycle without all jobs of some classes and all jobs that are leaving. Valid for that table and for
    later ones of the cycle, on which only more is taken.
    """

    def __init__(self, table: NodeTable, occupants: Occupants, classes: Iterable[JobClass], empty: NodeTable) -> None:
        bound = table.fork()
        # Its rows are those of the jobs that are still there, and so do not match the columns of the bound.
        bound.oversubscribed = None
        gone = [occupants.held[job_class] for job_class in (*classes, LEAVING) if job_class in occupants.held]
        if gone:
            taken: Ints = np.add.reduce([held.astype(np.int64) for held in gone])
            bound.cpus += taken[CPUS]
            # Returned CPUs may complete cores that are free in part, so count cores at their best.
            bound.core_cpus = np.minimum(bound.cpus, bound.cpus_total)
            bound.memory += taken[MEMORY]
            others = np.zeros(len(table.rows), np.int64)
            for job_class, held in occupants.held.items():
                if job_class != LEAVING and job_class not in classes:
                    others += held[JOBS]
            bound.idle = others == 0
            shared = any(row.shares_free for row in table.rows)
            for (gres_name, column), part in zip(bound.gres.items(), taken[3:], strict=True):
                # Shares lie on devices: the most that one job could have is no sum, so take the empty table's.
                bound.gres[gres_name] = empty.gres[gres_name] if shared else column + part
        self.table = bound
        self._rooms: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def could_hold(self, request: Request, eligibility: Eligibility) -> bool:
        """Whether there may be room for a job of the request. Never wrongly False."""
        return could_hold(self.table, request, eligibility.choices(request))

    def is_helped(self, request: Request, eligibility: Eligibility, since: int) -> bool:
        """Whether a node freed since `since` (a value of the projection's counter) might carry a part of the job."""
        nodes = eligibility.nodes(request)  # cached: the same array for the same nodes
        rooms = self._rooms.get((since, id(nodes)))
        if rooms is None:
            table = self.table
            freed = nodes[table.freed[nodes] > since]
            gpus = table.gres.get(("gpu", ""), np.zeros_like(table.cpus))
            pairs = {*zip(table.cpus[freed].tolist(), gpus[freed].tolist(), strict=True)}
            rooms = self._rooms[since, id(nodes)] = sorted(pairs)
        least_cpus = 0 if request.share_rows else request.cpus_floor
        least_gpus = request.gpus_floor
        return any(cpus >= least_cpus and gpus >= least_gpus for cpus, gpus in rooms)
