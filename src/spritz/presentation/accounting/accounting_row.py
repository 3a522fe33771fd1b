"""A line of sacct: a job or one of its steps, with values derived from the record. Source: sacct(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import step_name
from spritz.model.states import JobFlag
from spritz.notation.jobid import format_pending

if TYPE_CHECKING:
    from spritz.model.accounting.records import JobRecord, StepRecord

_REQUEUED = int(JobFlag.REQUEUED)


class Row:
    """`step` None: the job's own line. `start` and `end` are cut to the window with --truncate."""

    __slots__ = ("end", "job", "now", "start", "step", "steps")

    def __init__(
        self, job: JobRecord, step: StepRecord | None, steps: list[StepRecord], now: float, window: tuple[float, float]
    ) -> None:
        self.job = job
        self.step = step
        self.steps = steps
        self.now = now
        source = job if step is None else step
        self.start, self.end = source.started_at, source.ended_at
        first, last = window
        if first and 0.0 < self.start < first:
            self.start = first
        if last and (self.end > last or (not self.end and self.start)):
            self.end = min(last, now) if not self.end else last

    @property
    def ran(self) -> bool:
        return bool(self.job.nodes) and bool(self.start)

    @property
    def elapsed(self) -> int:
        """Run time in seconds, without suspensions."""
        if not self.ran:
            return 0
        suspended = self.suspended
        return max(0, int(self.end or self.now) - int(self.start) - suspended)

    @property
    def suspended(self) -> int:
        """Seconds of suspension up to now, for a job that is suspended too."""
        if self.step is not None:
            return int(self.step.suspended_seconds)
        extra = self.now - self.job.suspended_at if self.job.suspended_at else 0.0
        return int(self.job.suspended_seconds + extra)

    @property
    def planned(self) -> int:
        """Seconds from eligible to the start."""
        job = self.job
        if not job.eligible_at:
            return 0
        until = job.started_at or job.ended_at or self.now
        return max(0, int(until) - int(job.eligible_at))

    @property
    def cpus(self) -> int:
        """Allocated CPUs; 0 before the start."""
        return self.job.cpus if self.step is None else self.step.cpus

    @property
    def state(self) -> str:
        """The state; for a cancelled job with the user who cancelled it."""
        source = self.job if self.step is None else self.step
        if self.step is None and self.job.flags & _REQUEUED and self.job.state in ("PENDING", "CANCELLED"):
            return "REQUEUED"
        if source.state == "CANCELLED" and source.cancelled_by >= 0:
            return f"CANCELLED by {source.cancelled_by}"
        return source.state

    def cpu_seconds(self) -> tuple[float, float]:
        """User and system time, seconds: of the step, or the sum over all steps."""
        steps = self.steps if self.step is None else [self.step]
        return sum(step.user_cpu_seconds for step in steps), sum(step.system_cpu_seconds for step in steps)

    def job_name(self, length: int = 64) -> str:
        """The job's id in Slurm's forms: `12`, `12_3`, `12_[4-9%2]`, `12+1`."""
        job = self.job
        if job.array_tasks:
            return format_pending(job.job_id, int(job.array_tasks, 16), max(0, job.array_limit), length)
        if job.array_job_id and job.array_task_id is not None:
            return f"{job.array_job_id}_{job.array_task_id}"
        if job.het_job_id and job.het_offset is not None:
            return f"{job.het_job_id}+{job.het_offset}"
        return str(job.job_id)

    def with_step(self, job: str) -> str:
        """The job's id followed by the step's name, if this is a step's row: `12.batch`, `12.0`."""
        return job if self.step is None else f"{job}.{step_name(self.step.step_id)}"
