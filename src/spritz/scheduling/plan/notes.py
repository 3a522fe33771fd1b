"""The reasons that one cycle found, and which of them have changed.

Jobs of one request all wait for the same thing, mostly Priority. Once their records say so, no further notes are made:
only `Queue.unsettled`, the blocked jobs themselves and requests whose verdict has changed are looked at. A long queue
therefore costs nothing here.

Source: squeue(1) JOB REASON CODES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.plan import PendingNote
from spritz.model.reasons import Reason
from spritz.scheduling.view.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.scheduling.view.findings import Findings
    from spritz.scheduling.view.records import JobRecord, Shape
    from spritz.scheduling.view.snapshot import Snapshot

#: jobs with these reasons may have a planned start
WITH_PLANNED_START = (Reason.RESOURCES, Reason.LICENSES)
PRIORITY = Verdict(Reason.PRIORITY)
#: Reasons that the end of another job does not change.
_NEVER_HERE = frozenset(
    {
        Reason.ACCOUNT_NOT_ALLOWED,
        Reason.BAD_CONSTRAINTS,
        Reason.INVALID_ACCOUNT,
        Reason.INVALID_QOS,
        Reason.MAX_MEMORY_PER_LIMIT,
        Reason.PARTITION_CONFIG,
        Reason.PARTITION_DOWN,
        Reason.PARTITION_INACTIVE,
        Reason.PARTITION_NODE_LIMIT,
        Reason.PARTITION_TIME_LIMIT,
        Reason.QOS_NOT_ALLOWED,
    }
)


class Notes:
    """Verdicts of one cycle, by job and by shape."""

    def __init__(
        self,
        snapshot: Snapshot,
        findings: Findings,
        resolution_seconds: float,
        still_planned: Callable[[JobRecord], bool],
    ) -> None:
        self._snapshot = snapshot
        self._findings = findings
        #: whether a job that this cycle has not come to may still start when its record says
        self._still_planned = still_planned
        #: a new expected start is reported only if it moved by at least this much
        self._resolution_seconds = resolution_seconds
        self._jobs: dict[int, tuple[JobRecord, Verdict]] = {}
        self._shapes: dict[int, tuple[Shape, Verdict]] = {}
        self._expected: dict[int, tuple[float, tuple[str, ...]]] = {}
        self._tasks: dict[int, int] = {}

    def job(self, record: JobRecord, verdict: Verdict) -> None:
        """Verdict on this job alone. The first verdict on a job stands."""
        self._jobs.setdefault(record.id, (record, verdict))

    def shape(self, shape: Shape, verdict: Verdict) -> None:
        """Verdict on every waiting job of the shape."""
        self._shapes[shape.order] = (shape, verdict)

    def expected(self, record: JobRecord, start_at: float, names: tuple[str, ...]) -> None:
        """When and where the job will start. Only jobs that wait for resources keep it in their records; the forecast
        has it for all jobs.
        """
        self._expected.setdefault(record.id, (start_at, names))

    def tasks_left(self, record: JobRecord) -> int:
        """Pending tasks of the array that this cycle has not started, as a mask."""
        return self._tasks.get(record.id, record.tasks or 0)

    def started(self, record: JobRecord, task_id: int | None) -> bool:
        """Note that a job or array task starts. True: no task of the record is left to wait."""
        if task_id is None or record.tasks is None:
            return True
        open_tasks = self._tasks[record.id] = self.tasks_left(record) & ~(1 << task_id)
        return not open_tasks

    def collect(self, started: set[int], complete: bool) -> tuple[PendingNote, ...]:
        """Notes for jobs that wait for another reason than before, in order of job id."""
        records = dict(self._snapshot.queue.unsettled)
        records.update((job_id, record) for job_id, (record, _verdict) in self._jobs.items())
        for shape, verdict in self._shapes.values():
            before = shape.verdict
            if before != verdict:
                self._findings.verdicts[shape] = verdict
                if verdict != PRIORITY or (before is not None and before != PRIORITY):
                    records.update((record.id, record) for record in shape.jobs.values())
        notes = []
        for job_id in sorted(records):
            record = records[job_id]
            verdict_now = self._verdict(record, complete)
            if job_id not in started and verdict_now is not None:
                note = self._note(record, verdict_now)
                if note is not None:
                    notes.append(note)
                else:
                    self._findings.settled.append(record)
        return tuple(notes)

    def _verdict(self, record: JobRecord, complete: bool) -> Verdict | None:
        """The job's own verdict, or else that of the first of its requests that was considered; None if none was.

        The verdict of a partition that could never run the job counts only if none of its other partitions could.
        """
        job_verdict = self._jobs.get(record.id)
        if job_verdict is not None:
            return job_verdict[1]
        looked_at = [self._shapes[shape.order][1] for _key, shape in record.entries if shape.order in self._shapes]
        for verdict in looked_at:
            if verdict.reason not in _NEVER_HERE:
                return verdict
        if looked_at and len(looked_at) == len(record.entries):
            return looked_at[0]
        return PRIORITY if complete else None

    def _note(self, record: JobRecord, verdict: Verdict) -> PendingNote | None:
        start_at = 0.0
        nodes: tuple[str, ...] = ()
        if verdict.reason in WITH_PLANNED_START:
            expected = self._expected.get(record.id)
            if expected is not None:
                start_at, nodes = expected
            elif record.reason is verdict.reason:
                # Where it was to start stays known, without a time: it takes that place back when its nodes return.
                start_at = record.expected_start_at if self._still_planned(record) else 0.0
                nodes = record.expected_nodes
        shift = abs(start_at - record.expected_start_at)
        moved = shift >= self._resolution_seconds or nodes != record.expected_nodes
        if record.reason is verdict.reason and record.reason_detail == verdict.detail and not moved:
            return None
        return PendingNote(
            job_id=record.id,
            reason=verdict.reason,
            detail=verdict.detail,
            expected_start_at=start_at,
            expected_nodes=nodes,
        )
