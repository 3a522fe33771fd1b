"""SlurmSchedLogFile: the scheduler's decisions, one line each, in a file separate from slurmctld's log.

A thread, `Context.log_files`, opens the file for every batch of lines, so that it may be rotated at any time. Lines
begin with Slurm's words (`Allocate`, `JobId=`); unlike Slurm, which does so only when debugging, they also have reasons
and victims. Source: slurm.conf(5) SlurmSchedLogFile, SlurmSchedLogLevel; scontrol(1) schedloglevel.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from spritz.controller.needs import Clocked, Logged, Reading
from spritz.model.errors import SpritzError
from spritz.model.events import job
from spritz.notation.hostlist import compress
from spritz.runtime.disk import append
from spritz.runtime.log import time_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spritz.model.events import Event
    from spritz.runtime.worker import Worker


class Writing(Clocked, Logged, Reading, Protocol):
    """Where lines come from and go."""

    @property
    def log_files(self) -> Worker: ...


class SchedulingLog:
    """Off unless there is a file and the level is 1. `listen` gets every event."""

    def __init__(self, context: Writing) -> None:
        self._context = context
        self._path = ""
        self._form = ""
        #: writing failed, and that was logged
        self._failed = False
        self.level = 0

    def put(self, path: str, level: int, form: str) -> None:
        """Take over the configuration. `path` "": no log; `form`: LogTimeFormat."""
        self._path, self._form, self.level, self._failed = path, form, level, False

    def set_level(self, level: int) -> None:
        """Set the level until the configuration is read again. Raises SpritzError without a file."""
        if not self._path:
            raise SpritzError("Requested operation is presently disabled", code="ESLURM_DISABLED")
        self.level = level
        self._write([f"Set scheduler log level to {level}"])

    def listen(self, events: Sequence[Event]) -> None:
        """Log the events that the scheduler decided."""
        if not self.level or not self._path:
            return
        lines = [line for event in events if (tell := _TOLD.get(type(event))) for line in tell(self, event)]
        if lines:
            self._write(lines)

    def _started(self, event: job.JobStarted) -> Iterator[str]:
        where = event.allocation
        by = f" Scheduler={event.scheduler}" if event.scheduler else ""
        yield (
            f"Allocate {self._named(event.job_id)} NodeList={compress(where.names)} #CPUs={where.cpu_count} "
            f"Partition={where.partition} Priority={event.priority}{by}"
        )

    def _noted(self, event: job.JobsNoted) -> Iterator[str]:
        for note in event.notes:
            start = time_stamp("iso8601", note.expected_start_at) if note.expected_start_at else "Unknown"
            detail = f" ({note.detail})" if note.detail else ""
            yield f"{self._named(note.job_id)} State=PENDING Reason={note.reason.value}{detail} StartTime={start}"

    def _preempted(self, event: job.JobPreempted) -> Iterator[str]:
        yield f"Preempt {self._named(event.job_id)} Mode={event.mode} For={self._named(event.by_job_id)}"

    def _suspended(self, event: job.JobSuspended) -> Iterator[str]:
        if event.by:
            yield f"Suspend {self._named(event.job_id)} By={event.by}"

    def _named(self, number: int) -> str:
        """`JobId=7`, or `JobId=5_1(7)` for a task of an array."""
        job = self._context.machine.state.jobs.get(number)
        if job is None or job.array_task_id is None:
            return f"JobId={number}"
        return f"JobId={job.array_job_id}_{job.array_task_id}({number})"

    def _write(self, lines: list[str]) -> None:
        stamp = time_stamp(self._form, self._context.clock.now())
        text = "".join(f"sched: [{stamp}] {line}\n" for line in lines)
        data = text.encode("utf-8", "backslashreplace")
        self._context.log_files.put(partial(self._append, self._path, data), units=len(lines))

    def _append(self, path: str, data: bytes) -> None:
        """Runs in the writing thread."""
        try:
            append(path, data, mode=0o640)
        except OSError as error:
            if not self._failed:
                self._failed = True
                self._context.log.error("scheduling_log.failed", path=path, error=error)


_TOLD: dict[type, Callable[..., Iterator[str]]] = {
    job.JobStarted: SchedulingLog._started,
    job.JobsNoted: SchedulingLog._noted,
    job.JobPreempted: SchedulingLog._preempted,
    job.JobSuspended: SchedulingLog._suspended,
}
