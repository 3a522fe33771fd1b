"""The input of an explanation: the snapshot after the plan's starts have been made, and its planned starts.

Source: docs/explain.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.model.reasons import Reason
from spritz.scheduling.explain.wording import label, record_label
from spritz.scheduling.view.charges import charge_of, count_charge
from spritz.scheduling.view.holders import holders_of
from spritz.scheduling.view.planned_starts import FUTURE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.model.job.record import Job
    from spritz.model.node.record import Node
    from spritz.model.plan import PendingNote, PlannedPreemption, PlannedStart
    from spritz.model.resources import Allocation
    from spritz.scheduling.plan.decisions import Result
    from spritz.scheduling.view.nodes import Holder
    from spritz.scheduling.view.records import Charge, JobRecord
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

#: starts of the plan are holders with numbers from here downwards
STARTING = -(1 << 44)


class Planned:
    """A planned start: what it takes, from when on, and for which job."""

    __slots__ = ("end_at", "names", "parts", "request", "start_at")

    def __init__(
        self, start_at: float, end_at: float, request: Request, names: tuple[str, ...], parts: list[tuple[int, Holder]]
    ) -> None:
        self.start_at = start_at
        self.end_at = end_at
        self.request = request
        self.names = names
        self.parts = parts


#: stands for jobs and users that the caller may not see
PRIVATE = "(private)"


class PlanView:
    """`table` and `licenses` are those after the plan's starts; `jobs` and `nodes` are the core's records.

    `result` must be that of a full cycle over `snapshot`, which must not have changed since.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        result: Result,
        jobs: Mapping[int, Job],
        nodes: Mapping[str, Node],
        viewer: str | None = None,
    ) -> None:
        #: the only user whose jobs are named (None: all are)
        self.viewer = viewer
        self.snapshot = snapshot
        plan = self.plan = result.plan
        self.findings = result.findings
        self.jobs = jobs
        self.nodes = nodes
        self.now = snapshot.now
        self.starts: dict[int, list[PlannedStart]] = {}
        for start in plan.starts:
            self.starts.setdefault(start.job_id, []).append(start)
        self.preemptions: dict[int, PlannedPreemption] = {item.job_id: item for item in plan.preemptions}
        self.notes: dict[int, PendingNote] = {note.job_id: note for note in plan.notes}
        self.table = snapshot.table.fork()
        self.licenses = snapshot.licenses.copy()
        #: (label, user) by holder number, for holders that are no jobs
        self.starting: dict[int, tuple[str, str]] = {}
        #: limits of associations and QOS: what is in use, and by which running job
        self.in_use = snapshot.in_use.fork()
        self.charges = charges_of(self)
        self._take_starts()
        self.future_starts = self._planned_starts()
        self._forecast: tuple[list[int], list[float], list[int], list[int]] | None = None

    def _take_starts(self) -> None:
        for number, start in enumerate(self.plan.starts):
            record = self.snapshot.records[start.job_id]
            request = self.request_in(record, start.allocation)
            if request is None:
                continue
            alias = STARTING - number
            shown = label(record.id, record.array_job_id, start.task_id)
            self.starting[alias] = self.named(record, shown)
            minutes = start.time_limit_minutes
            ends_at = self.now + (request.seconds if minutes is None else minutes * 60.0)
            for index, holder in holders_of(start.allocation, request, alias, record.spec.uid, self.table, ends_at):
                self.table.charge(index, holder)
            if self.snapshot.rules.known:
                self.charges[alias] = charge = charge_of(self.snapshot.rules, record, start.allocation)
                count_charge(self.in_use, charge)
            if request.licenses:
                self.licenses.take(self.licenses.choose(request.licenses) or {})

    def _planned_starts(self) -> list[Planned]:
        """All planned starts that hold after the plan."""
        if self.plan.future_starts is None:
            return [
                Planned(item.start_at, item.end_at, request, item.allocation.names, list(item.parts))
                for request, items in self.snapshot.ledger.by_request.items()
                for item in items
            ]
        planned = []
        for number, item in enumerate(self.plan.future_starts):
            record = self.snapshot.records[item.job_id]
            request = self.request_in(record, item.allocation)
            if request is None:
                continue
            parts = holders_of(item.allocation, request, FUTURE - 1 - number, record.spec.uid, self.table, item.end_at)
            planned.append(Planned(item.start_at, item.end_at, request, item.allocation.names, parts))
        return planned

    @staticmethod
    def request_in(record: JobRecord, allocation: Allocation) -> Request | None:
        """The request of the waiting job in this partition and reservation."""
        for _key, shape in record.entries:
            if shape.request.queue_key == (allocation.partition, allocation.reservation):
                return shape.request
        return None

    def who(self, number: int) -> tuple[str, str]:
        """Label and user of a holder."""
        if number in self.starting:
            return self.starting[number]
        record = self.snapshot.records[number]
        return self.named(record, record_label(record))

    def named(self, record: JobRecord, shown: str) -> tuple[str, str]:
        """Label and user of a job, if the viewer may see them."""
        return (shown, record.spec.user) if self.viewer in (None, record.spec.user) else (PRIVATE, PRIVATE)

    def reason(self, record: JobRecord) -> tuple[Reason, str]:
        """Why the job waits, by this plan: its note for the job, or the earlier reason if that still holds."""
        note = self.notes.get(record.id)
        return (note.reason, note.detail) if note is not None else (record.reason, record.reason_detail)

    def forecast(self, job_id: int) -> tuple[float, tuple[str, ...]]:
        """Expected start and nodes of a waiting job, by this plan; 0.0 if it has none."""
        if self.plan.forecast is None:
            return 0.0, ()
        if self._forecast is None:
            forecast = self.plan.forecast
            self._forecast = (
                np.frombuffer(forecast.job_ids, np.int64).tolist(),
                np.frombuffer(forecast.start_at, np.float64).tolist(),
                np.frombuffer(forecast.ends, np.int64).tolist(),
                np.frombuffer(forecast.nodes, np.int32).tolist(),
            )
            self._places = {number: place for place, number in enumerate(self._forecast[0])}
        _ids, starts, ends, nodes = self._forecast
        place = self._places.get(job_id)
        if place is None:
            return 0.0, ()
        first = ends[place - 1] if place else 0
        rows = self.snapshot.table.rows
        return starts[place], tuple(rows[index].name for index in nodes[first : ends[place]])

    def planned_start_of(self, record: JobRecord) -> Planned | None:
        """The planned start behind the forecast of this job; None if the forecast is an estimate."""
        start_at, names = self.forecast(record.id)
        if not start_at:
            return None
        asked = {shape.request for _key, shape in record.entries}
        for future_start in self.future_starts:
            if (
                future_start.request in asked
                and future_start.start_at == start_at
                and set(future_start.names) == set(names)
            ):
                return future_start
        return None


def charges_of(view: PlanView) -> dict[int, Charge]:
    """What each running job counts, and where."""
    records = view.snapshot.records
    charges = ((number, records[number].charge) for _ends_at, number in view.snapshot.ends)
    return {number: charge for number, charge in charges if charge is not None}
