"""Rows of jobs as slurmctld sends them, and the values that views show.

Times are seconds since the epoch; 0.0 means unknown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from spritz.notation.duration import INFINITE, format_minutes
from spritz.notation.jobid import format_pending
from spritz.presentation.job.job_text import job_label, reason_text, state_compact, state_name, used_seconds

#: Fields of a job's record, in the order of `Job`.
PATHS = (
    "id", "array_job_id", "array_task_id", "array", "het_job_id", "spec.name", "spec.user", "spec.account", "spec.qos",
    "partition", "spec.partitions", "state", "flags", "reason", "reason_detail", "priority", "submitted_at",
    "started_at", "ends_at", "ended_at", "suspended_at", "suspended_seconds", "time_limit_minutes",
    "spec.time_limit_minutes", "exit_status", "allocation", "spec.nodes_min", "cpu_count", "gpu_count",
)  # fmt: skip

#: Base states of jobs that have not ended.
ACTIVE = frozenset(("PENDING", "RUNNING", "SUSPENDED"))


class Job(NamedTuple):
    """A job, a task of an array, or the pending tasks of an array."""

    id: int
    array_job_id: int
    array_task_id: int | None
    array: dict[str, object] | None
    het_job_id: int
    name: str
    user: str
    account: str
    qos: str
    partition: str
    partitions: list[str]
    state: str
    flags: int
    reason: str
    reason_detail: str
    priority: int
    submitted_at: float
    started_at: float
    ends_at: float
    ended_at: float
    suspended_at: float
    suspended_seconds: float
    limit_granted_minutes: int | None
    limit_asked_minutes: int | None
    exit_status: int
    allocation: dict[str, Any] | None
    nodes_min: int
    #: held, or the least that it requests
    cpu_count: int
    gpu_count: int

    @property
    def label(self) -> str:
        """The job's id as squeue prints it: `7`, `12_3`, `12_[4-9%2]`."""
        return job_label(self.id, self.array_job_id, self.array_task_id, self.array, 24, self.het_job_id)

    @property
    def target(self) -> str:
        """The job's id as commands accept it. For pending tasks of an array: these tasks, without running ones."""
        if self.array:
            return format_pending(self.id, int(str(self.array["pending"]), 16), 0, 1 << 20)
        return self.label

    @property
    def state_name(self) -> str:
        """The state in full, or a flag that squeue shows instead: RUNNING, COMPLETING …"""
        return state_name(self.state, self.flags)

    @property
    def state_code(self) -> str:
        """The state's code in squeue: R, CG …"""
        return state_compact(self.state, self.flags)

    @property
    def is_active(self) -> bool:
        """Whether the job has not ended."""
        return self.state in ACTIVE or self.state_code == "CG"

    @property
    def why(self) -> str:
        """The reason as squeue prints it; "" without one."""
        return "" if self.reason == "None" else reason_text(self.reason, self.reason_detail)

    @property
    def held(self) -> list[dict[str, Any]]:
        """The job's allocation: a map for each node, as slurmctld sends it."""
        return self.allocation["nodes"] if self.allocation and self.is_active else []

    @property
    def node_names(self) -> list[str]:
        """The nodes that the job holds or held."""
        return [part["node"] for part in self.allocation["nodes"]] if self.allocation else []

    @property
    def node_count(self) -> int:
        """Number of nodes that the job holds, or requests."""
        return len(self.node_names) or self.nodes_min

    def used_seconds(self, now: float) -> int:
        """Seconds that the job has run up to `now` or its end, without suspensions."""
        return used_seconds(now, self.state, self.started_at, self.ended_at, self.suspended_seconds, self.suspended_at)

    def left_seconds(self, now: float) -> int | None:
        """Seconds until the time limit; None without a limit, or if the job does not run."""
        return max(0, int(self.ends_at - now)) if self.ends_at and self.state == "RUNNING" else None

    @property
    def limit_minutes(self) -> int | None:
        """The time limit; None without one."""
        minutes = self.limit_granted_minutes or self.limit_asked_minutes
        return None if minutes == INFINITE else minutes

    @property
    def limit_text(self) -> str:
        """The time limit as squeue prints it."""
        minutes = self.limit_granted_minutes or self.limit_asked_minutes
        return "" if not minutes else "UNLIMITED" if minutes == INFINITE else format_minutes(minutes)


def jobs_of(rows: list[tuple[object, ...]]) -> list[Job]:
    """The jobs of rows that slurmctld sent for the fields `PATHS`."""
    return [Job._make(row) for row in rows]
