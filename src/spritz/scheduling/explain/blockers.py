"""Which running jobs must end before a job can start: on the nodes of its planned start, or anywhere if no waiting job
is ahead.

The blockers suffice once the jobs ahead have started: without them `place` finds an allocation on the present table,
and licenses and limits permit the start. None of them can be spared (up to `MINIMISE_MAX` jobs; with more, a few may be
superfluous).

Source: squeue(1) --start; `placement.earliest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.model.queries.explain import Blocker
from spritz.model.resources import mask_of
from spritz.notation.hostlist import compress
from spritz.notation.licenses import parse as license_choices
from spritz.scheduling.explain.account_limits import limit_holders
from spritz.scheduling.explain.nodes import starts_together
from spritz.scheduling.explain.wording import count, gres_noun, listed, memory
from spritz.scheduling.placement.earliest import earliest
from spritz.scheduling.placement.effort import Effort
from spritz.scheduling.placement.exact import clash
from spritz.scheduling.placement.place import place
from spritz.scheduling.view.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.model.resources import Allocation
    from spritz.scheduling.explain.context import Planned, PlanView
    from spritz.scheduling.view.nodes import Holder, NodeRow
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints, NodeTable

#: how many jobs are tried for being superfluous
MINIMISE_MAX = 64


class NodeBlockers:
    """The running jobs that must leave nodes for one request. `start_at`: end of the last of them (inf: no end helps).

    `own`: the planned start of the job, or those of all components; only its nodes are then considered. Without it, the
    jobs are found as if no other job waited.
    """

    def __init__(self, view: PlanView, request: Request, planned: Planned | None = None) -> None:
        self._view = view
        self._request = request
        self._within: Ints | None = None
        #: for second tries, however many sets of jobs are tried
        self._effort = Effort()
        self.numbers: list[int] = []
        self.start_at = view.now
        if self._fits(_with_mates(view, request)) or (planned is not None and self._clear_planned(planned)):
            return
        self._within = None
        # A new profile, without the planned starts of other jobs.
        start = earliest(Profile(view.table.fork()), request, view.snapshot.eligibility, view.now)
        if start is None:
            self.start_at = float("inf")
            return
        self.start_at, allocation = start
        ends = self._ends()
        # Two guesses before the search for the fewest: the jobs that hold what the found allocation needs; if that is
        # not enough (placement may choose otherwise on the changed table), all that have ended by then.
        numbers = [number for number in self._in_the_way(allocation) if ends[number] <= self.start_at]
        if not self._suffices(numbers):
            numbers = [number for number, ends_at in ends.items() if ends_at <= self.start_at]
        self._choose(numbers, ends)

    def _clear_planned(self, planned: Planned) -> bool:
        """Find the jobs in the way of the planned start; False if more than running jobs is in its way."""
        self._within = np.array(sorted({index for index, _holder in planned.parts}), np.int64)
        ends = self._ends()
        numbers = [number for number, ends_at in ends.items() if ends_at <= planned.start_at]
        if not numbers or self._suffices([]) or not self._suffices(numbers):
            return False
        self.start_at = planned.start_at
        self._choose(numbers, ends)
        return True

    def _choose(self, numbers: list[int], ends: Mapping[int, float]) -> None:
        numbers.sort(key=lambda number: (-ends[number], number))
        self.numbers = self._fewest(numbers) if len(numbers) <= MINIMISE_MAX else numbers

    def _fits(self, table: NodeTable) -> bool:
        eligibility = self._view.snapshot.eligibility
        return place(table, self._request, eligibility, within=self._within, effort=self._effort) is not None

    def _ends(self) -> dict[int, float]:
        """When each job on a node that could serve releases what it holds there."""
        ends: dict[int, float] = {}
        rows = self._view.table.rows
        nodes = self._view.snapshot.eligibility.nodes(self._request) if self._within is None else self._within
        for index in nodes.tolist():
            for number, holder in rows[index].holders.items():
                ends[number] = max(ends.get(number, 0.0), holder.ends_at)
        return ends

    def _in_the_way(self, allocation: Allocation) -> list[int]:
        """Jobs that hold what the allocation needs, or keep other jobs off its nodes."""
        table, request = self._view.table, self._request
        alone = request.whole or request.exclusive
        blocking: dict[int, None] = {}
        for part in allocation.nodes:
            for number, holder in table.rows[table.index_of[part.node]].holders.items():
                if alone or clash(holder, part):
                    blocking[number] = None
        return list(blocking)

    def _suffices(self, numbers: Iterable[int]) -> bool:
        table = self._view.table.fork()
        for number in numbers:
            release(table, self._view, number)
        return self._fits(table)

    def _fewest(self, numbers: list[int]) -> list[int]:
        """`numbers` without jobs that need not end; those that end last are spared first."""
        table = self._view.table.fork()
        for number in numbers:
            release(table, self._view, number)
        kept = []
        for number in numbers:
            # Greedy: put one job back, and leave it there if the request still fits. The result is minimal (no job in
            # it is superfluous) and perhaps not the fewest. Those that end last are spared first, so the answer names
            # the jobs that end soonest.
            back = _charge_again(table, self._view, number)
            if not self._fits(table):
                for index in back:
                    table.release(index, number)
                kept.append(number)
        return kept


def _with_mates(view: PlanView, request: Request) -> NodeTable:
    """The present table with the free resources that are planned for components starting together with this
    one taken.
    """
    if not request.component:
        return view.table
    table = view.table.fork()
    for future_start in view.future_starts:
        mate = future_start.request is not request and starts_together(view, request, future_start.request)
        if mate and all(_is_free(table.rows[index], holder) for index, holder in future_start.parts):
            for index, holder in future_start.parts:
                table.charge(index, holder)
    return table


def _is_free(row: NodeRow, holder: Holder) -> bool:
    trial = row.copy()
    trial.charge(holder)
    return row.up and trial.overlaps is row.overlaps and trial.free_memory_mib >= 0


def release(table: NodeTable, view: PlanView, number: int) -> None:
    """Remove the job from every node."""
    for index in _nodes_of(view, number):
        table.release(index, number)


def _nodes_of(view: PlanView, number: int) -> list[int]:
    if number in view.starting:
        return [index for index, row in enumerate(view.table.rows) if number in row.holders]
    index_of = view.table.index_of
    return [index_of[name] for name in view.snapshot.records[number].names if name in index_of]


def _charge_again(table: NodeTable, view: PlanView, number: int) -> list[int]:
    charged = []
    for index in _nodes_of(view, number):
        holder = view.table.rows[index].holders.get(number)
        if holder is not None:
            table.charge(index, holder)
            charged.append(index)
    return charged


def blockers(view: PlanView, record: JobRecord, room: NodeBlockers | None) -> tuple[Blocker, ...]:
    """All running jobs that must end, in the order in which they will. `room`: those on nodes."""
    by_number = {number: _blocker(view, number) for number in (room.numbers if room is not None else ())}
    for number in _license_holders(view, record):
        by_number.setdefault(number, _blocker(view, number, "licenses"))
    for number in limit_holders(view, record):
        by_number.setdefault(number, _blocker(view, number, "limit"))
    for number in _array_tasks(view, record):
        by_number.setdefault(number, _blocker(view, number, "array"))
    return tuple(sorted(by_number.values(), key=lambda item: (item.ends_at, item.job)))


def victims(view: PlanView, record: JobRecord) -> tuple[Blocker, ...]:
    """The jobs that the plan preempts for the job."""
    room = view.preemptions.get(record.id)
    return tuple(_blocker(view, victim.job_id, "preemption") for victim in (room.victims if room is not None else ()))


def _blocker(view: PlanView, number: int, why: str = "nodes") -> Blocker:
    label, user = view.who(number)
    names, held, ends_at = [], _Held(), 0.0
    for index in _nodes_of(view, number):
        row = view.table.rows[index]
        holder = row.holders.get(number)
        if holder is not None:
            names.append(row.name)
            held.add(holder)
            ends_at = max(ends_at, holder.ends_at)
    state = "starting"
    record = view.snapshot.records.get(number)
    if record is not None:
        state = "running"
        if record.completing:
            state = "completing"
        elif record.preempting or why == "preemption":
            state = "preempted"
        elif record.suspended or record.stopped:
            state = "suspended"
        ends_at = ends_at or record.ends_at
    holds = held.text()
    if why == "licenses" and record is not None:
        holds = listed([f"{amount} {name}" for name, amount in sorted(record.licenses.items())])
    return Blocker(job=label, user=user, ends_at=ends_at, nodes=compress(names), holds=holds, state=state, why=why)


class _Held:
    """The resources that a job holds, summed over its nodes."""

    def __init__(self) -> None:
        self.cpus = self.memory_mib = 0
        self.gres: dict[tuple[str, str], int] = {}

    def add(self, holder: Holder) -> None:
        self.cpus += holder.cpus.bit_count()
        self.memory_mib += holder.memory_mib
        for gres in holder.gres:
            number = gres.count or mask_of(gres.indexes).bit_count()
            self.gres[gres.name, gres.type] = self.gres.get((gres.name, gres.type), 0) + number

    def text(self) -> str:
        """`4 GPUs, 16 CPUs, 64 GB`."""
        parts = [gres_noun(name, kind, number) for (name, kind), number in sorted(self.gres.items())]
        if self.cpus:
            parts.append(count(self.cpus, "CPU"))
        if self.memory_mib:
            parts.append(memory(self.memory_mib))
        return ", ".join(parts)


def _license_holders(view: PlanView, record: JobRecord) -> list[int]:
    """Jobs that hold the missing licenses: those that end first, for the choice of licenses that needs fewest."""
    choices = license_choices(record.spec.licenses)
    if any(map(view.licenses.available, choices)):
        return []
    best: list[int] | None = None
    for needs in choices:
        chosen: list[int] = []
        pool = view.licenses.copy()
        for _ends_at, number in view.snapshot.ends:
            held = view.snapshot.records[number].licenses
            if pool.available(needs):
                break
            if any(name in held and pool.taken.get(name, 0) + needs[name] > pool.total.get(name, 0) for name in needs):
                pool.give_back(held)
                chosen.append(number)
        if pool.available(needs) and (best is None or len(chosen) < len(best)):
            best = chosen
    return best or []


def _array_tasks(view: PlanView, record: JobRecord) -> list[int]:
    """The task of the array that ends first, if its limit is reached."""
    array_id = record.array_job_id
    most = view.snapshot.array_limits.get(array_id, 0) if array_id else 0
    if not most or view.snapshot.array_running.get(array_id, 0) < most:
        return []
    for _ends_at, number in view.snapshot.ends:
        other = view.snapshot.records[number]
        if other.array_job_id == array_id and not other.completing:
            return [number]
    return []
