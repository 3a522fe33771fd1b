"""Finds resources on which a job may start now without delaying planned starts.

A request that did not fit is skipped until a node is freed that could carry a part of it (`Findings.failure`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.placement.effort import CYCLE_STEPS_MAX, QUICK_STEPS_MAX, Effort
from spritz.scheduling.placement.exact import spares
from spritz.scheduling.placement.place import could_serve, place
from spritz.scheduling.placement.runs import plain
from spritz.scheduling.plan.notes import PRIORITY
from spritz.scheduling.view.profile import NEVER
from spritz.scheduling.view.records import Failure
from spritz.scheduling.view.reservations import crossed

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.resources import Allocation
    from spritz.scheduling.plan.planned_starts import PlannedStarts
    from spritz.scheduling.view.findings import Findings
    from spritz.scheduling.view.parameters import Parameters
    from spritz.scheduling.view.records import Entry, JobRecord, Rank, Shape
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot
    from spritz.scheduling.view.table import Ints, NodeTable

#: with more freed nodes than this, bounds over arrays replace the test of each node
FEW_NODES = 8

#: an allocation, and the time limit in minutes for it (None: the request's)
Start = tuple["Allocation", int | None]


class StartSearch:
    """The search for starts in one cycle. `blocked_queues`, `table` and `planned` belong to the cycle and change while
    it runs. `guarantees(record, request)`: guarantees that have room for the job.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        findings: Findings,
        table: NodeTable,
        parameters: Parameters,
        planned: PlannedStarts,
        blocked_queues: set[tuple[str, str]],
        guarantees: Callable[[JobRecord, Request], tuple[Guarantee, ...]],
        *,
        quick: bool,
    ) -> None:
        self._snapshot = snapshot
        self._findings = findings
        self._table = table
        self._parameters = parameters
        self._planned = planned
        self._blocked_queues = blocked_queues
        self._open_guarantees = guarantees
        #: placements tried
        self.examined = 0
        #: for all second tries of the cycle
        self._effort = Effort(QUICK_STEPS_MAX if quick else CYCLE_STEPS_MAX)
        #: jobs started behind the first blocked job of their partition
        self.backfilled = 0
        #: nodes freed since a given value of the projection's counter of freed nodes
        self._changed: dict[int, list[int]] = {}
        #: requests, without their time limit, for which there was no room, and what is to be remembered of that
        self._no_place: dict[Request, Failure | None] = {}
        self._freed_rooms: dict[int, list[tuple[int, int]]] = {}

    # -- one job

    def find(self, record: JobRecord, key: Rank, shape: Shape) -> Start | None:
        """Resources that are free now and not planned for another job while this job lasts, with the time limit if it
        differs from the request's (--time-min). None if there are none.
        """
        # bf_max_job_start and sched/builtin: no job (or no more) passes the first blocked one.
        if shape.request.queue_key in self._blocked_queues and not self.may_overtake():
            return None
        planned = self._planned.of(record, shape.request)
        allocation = self._planned.due(record, shape.request)
        due = None if allocation is None else (allocation, None)
        is_late = planned is not None and planned.start_at < self._snapshot.now
        start = (due if is_late else None) or self._look_for(record, key, shape) or due
        if start is not None and crossed(self._snapshot.reserved, shape.request, start[0], self._snapshot.now):
            return None
        return start

    def _look_for(self, record: JobRecord, key: Rank, shape: Shape) -> Start | None:
        request, eligibility = shape.request, self._snapshot.eligibility
        freed = self._snapshot.partition_freed.get(request.partition, 0)
        failures = self._findings.failures
        failure = self._findings.failure(shape)
        if failure is not None and self._still_fails(shape, failure, freed):
            return None
        # Three ways to be spared a search, cheapest first: this request failed and nothing that helps was freed since;
        # an equal request with another time limit failed in this cycle; and, below, only the nodes freed since need a
        # look.
        fit = shape.fit
        if fit in self._no_place:
            failures[shape] = self._no_place[fit]
            return None
        within = self._within(shape)
        self.examined += 1
        self._effort.begin()
        allocation = place(self._table, request, eligibility, within=within, effort=self._effort)
        if allocation is None:
            # What other jobs left too little effort for is looked for in the next cycle, when their failures are known.
            failures[shape] = self._no_place[fit] = None if self._effort.cut else Failure(freed)
            return None
        # The search first ignores planned starts, since most jobs fit with them in place and the plain table is quick;
        # `_around_planned` then checks the result, and searches the rest of the profile only if it clashes.
        early = self._early_first(self._table, request, self._snapshot.now + request.seconds)
        if early is not None:
            allocation = place(early, request, eligibility, within=within, effort=self._effort) or allocation
        start = self._around_planned(record, allocation, request, within)
        if start is None:
            ahead = bool(self._open_guarantees(record, request))
            void = self._planned.outranked(
                record, key, request, allocation, self._snapshot.now + request.seconds, any_age=ahead
            )
            if void is not None:
                self._planned.take_back(void)
                start = allocation, None
        # With the version: it failed because of planned starts, and may succeed once one of them is dropped, without
        # any node freed.
        failures[shape] = Failure(freed, self._planned.version) if start is None else None
        return start

    def _early_first(self, table: NodeTable, request: Request, ends_at: float) -> NodeTable | None:
        """The table with a preference, among nodes of one weight, for nodes that are planned only after `ends_at`. This
        leaves nodes without plans to jobs that last longer. None if there are no such nodes, or if the site asks for
        another order.
        """
        eligibility = self._snapshot.eligibility
        if not plain(request) or eligibility.workload is not None or eligibility.fabrics.get(request.partition):
            return None
        held_from = self._planned.held_from(request)
        early = (held_from >= ends_at) & (held_from < NEVER)
        return table.weighted(2 * table.weight - early) if early.any() else None

    def _within(self, shape: Shape) -> Ints | None:
        """For a request of one node: the few nodes freed since it failed, as no other node can serve it. None: all
        nodes.
        """
        failure = self._findings.failure(shape)
        if failure is None or shape.request.nodes_max != 1 or failure.version not in (None, self._planned.version):
            return None
        changed = self._changed.get(failure.freed)
        return np.array(changed) if changed and len(changed) <= FEW_NODES else None

    def may_overtake(self) -> bool:
        """Whether one more job may start behind the first blocked job of its partition."""
        limit = self._parameters.starts_max
        return not self._parameters.builtin and (limit is None or self.backfilled < limit)

    def _around_planned(
        self, record: JobRecord, allocation: Allocation, request: Request, within: Ints | None
    ) -> Start | None:
        """The allocation, or another, that breaks no planned start; with --time-min perhaps for a shorter time."""
        now = self._snapshot.now
        start = self._until(record, now + request.seconds, allocation, request, within)
        if start is not None or not request.time_min_minutes:
            return None if start is None else (start, None)
        # Shorten the job so that it ends when a planned start begins: try the latest such time that will do. Bisection
        # is right because a longer job never fits where a shorter one does not: it meets more planned starts.
        starts = self._planned.starts_between(now + request.time_min_minutes * 60.0, now + request.seconds)
        best: Start | None = None
        low, high = 0, len(starts)
        while low < high:
            middle = (low + high) // 2
            minutes = int((starts[middle] - now) // 60)
            start = self._until(record, now + minutes * 60.0, allocation, request, within)
            if start is None:
                high = middle
            else:
                best, low = (start, minutes), middle + 1
        return best

    def _until(
        self, record: JobRecord, ends_at: float, allocation: Allocation, request: Request, within: Ints | None
    ) -> Allocation | None:
        if not self._planned.any_before(ends_at):
            return allocation
        leftover = self._planned.leftover(record, request, ends_at)
        if spares(leftover.rows, self._table.index_of, allocation, request):
            return allocation
        if within is not None and len(within) == 1 and self._planned.flexible(int(within[0])):
            # The only candidate node has too little left between its plans.
            return None
        table = leftover.table(within)
        early = self._early_first(table, request, ends_at)
        eligibility = self._snapshot.eligibility
        return place(table if early is None else early, request, eligibility, within=within, effort=self._effort)

    def _still_fails(self, shape: Shape, failure: Failure, freed: int) -> bool:
        """Whether no node freed since the request failed can carry any part of it."""
        if failure.freed != freed:
            if self._helped(shape, failure.freed):
                return False
            self._findings.failures[shape] = Failure(freed, failure.version)
        return failure.version is None or failure.version == self._planned.version

    def _helped(self, shape: Shape, since: int) -> bool:
        """Whether a node that could serve the request has been freed since."""
        changed = self._changed.get(since)
        if changed is None:
            changed = self._changed[since] = (self._table.freed > since).nonzero()[0].tolist()
        request, rows = shape.request, self._table.rows
        if len(changed) > FEW_NODES:
            nodes = self._snapshot.eligibility.nodes(request)
            return could_serve(self._table, request, nodes[self._table.freed[nodes] > since])
        able = [index for index in changed if shape.could_use(rows[index])]
        if not able:
            return False
        nodes = self._snapshot.eligibility.nodes(request)
        at = np.searchsorted(nodes, able)
        eligible = [
            index
            for index, place in zip(able, at.tolist(), strict=True)
            if place < len(nodes) and nodes[place] == index
        ]
        return bool(eligible) and could_serve(self._table, request, np.array(eligible))

    # -- many shapes together

    def hopeful(self, waiting: list[Entry], could_preempt: Callable[[Shape], bool]) -> tuple[list[Entry], int]:
        """Entries that may start or need another reason than before, and the number of jobs left out.

        A shape is left out if it failed before, no node freed since has the CPUs and GPUs of its smallest part, and its
        jobs have the reason Priority already. `could_preempt`: whether jobs of the shape may preempt others.
        """
        up_version, rooms, blocked_queues = (
            self._snapshot.memory.up_version,
            self._snapshot.partition_freed,
            self._blocked_queues,
        )
        findings, renewed = self._findings, self._findings.renewed
        # Only shapes considered in this cycle can differ from what earlier cycles left; the others may be many.
        touched = {*findings.failures, *findings.stuck}
        # Many shapes failed at the same time and have the same smallest part: the answer is shared.
        hopeful: dict[tuple[int, tuple[int, int]], bool] = {}
        kept, left_out = [], 0
        for entry in waiting:
            shape = entry[3]
            failure, stuck, line, verdict = shape.failure, shape.stuck, shape.queue_key, shape.verdict
            if findings.forgotten or shape in touched:
                failure, stuck = findings.failure(shape), findings.stuck_at(shape)
            if (
                # Earlier jobs of the shape were considered in this cycle, so its next job is to be as well.
                entry[2]
                or failure is None
                # A failure with a version may end when planned starts move, which no node tells; such shapes are few
                # and always tried.
                or failure.version is not None
                or (verdict is not PRIORITY and verdict != PRIORITY)
                or stuck is None
                or stuck[0] != up_version
                or line not in blocked_queues
                or could_preempt(shape)
            ):
                kept.append(entry)
                continue
            freed = rooms.get(line[0], 0)
            if failure.freed != freed:
                question = (failure.freed, shape.floor)
                may = hopeful.get(question)
                if may is None:
                    may = hopeful[question] = shape.could_use_any(self._rooms(failure.freed))
                if may:
                    kept.append(entry)
                    continue
                if freed not in renewed:
                    renewed[freed] = []
                renewed[freed].append(shape)
            left_out += len(shape.keys)
        return kept, left_out

    def _rooms(self, since: int) -> list[tuple[int, int]]:
        """Free CPUs and GPUs of each node freed since; for many nodes, one upper bound of both."""
        rooms = self._freed_rooms.get(since)
        if rooms is None:
            table = self._table
            freed = (table.freed > since).nonzero()[0]
            gpus = table.gres.get(("gpu", ""), np.zeros_like(table.cpus))
            if len(freed) > FEW_NODES:
                rooms = [(int(table.cpus[freed].max()), int(gpus[freed].max()))]
            else:
                rooms = list(zip(table.cpus[freed].tolist(), gpus[freed].tolist(), strict=True))
            self._freed_rooms[since] = rooms
        return rooms
