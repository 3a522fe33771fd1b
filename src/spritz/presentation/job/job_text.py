"""Job values as Slurm shows them, shared by squeue and `scontrol show job`.

Source: squeue(1); texts as 22.05 prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.states import JOB_FLAG_COMPACT, JOB_STATE_COMPACT, JobState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.job.record import Job

_FLAG_NAMES = tuple((int(flag), flag.name or "", JOB_FLAG_COMPACT.get(flag, "")) for flag in JOB_FLAG_COMPACT)


def state_name(state: str, flags: int) -> str:
    """Long name: the flag that replaces the base state, or the base state."""
    if flags:
        for bit, name, _ in _FLAG_NAMES:
            if flags & bit:
                return name
    return state


def state_compact(state: str, flags: int) -> str:
    """Two-letter code of the state; flags such as COMPLETING (CG) come before the base state."""
    if flags:
        for bit, _, code in _FLAG_NAMES:
            if flags & bit:
                return code
    return JOB_STATE_COMPACT[JobState(state)]


def job_label(
    job_id: int,
    array_job_id: int,
    task_id: int | None,
    array: dict[str, object] | None,
    length: int = 64,
    het_job_id: int = 0,
) -> str:
    """`12`, `12_3`, `12+1`, or `12_[4-9%2]` for the pending part of an array."""
    if het_job_id:
        return f"{het_job_id}+{job_id - het_job_id}"
    if array:
        from spritz.notation.jobid import format_pending

        return format_pending(job_id, int(str(array["pending"]), 16), int(str(array.get("limit", 0))), length)
    if array_job_id and task_id is not None:
        return f"{array_job_id}_{task_id}"
    return str(job_id)


#: --exclusive and --oversubscribe in listings
SHARING = {"": "OK", "exclusive": "NO", "user": "USER", "mcs": "MCS", "topo": "TOPO", "oversubscribe": "YES"}

#: reasons that show only their detail
_TOLD_BY_DETAIL = frozenset({"AccountNotAllowed", "QOSNotAllowed", "Resources", "ReservationDeleted"})


def reason_text(reason: str, detail: str) -> str:
    """The reason, with its detail if it has one: `ReqNodeNotAvail, UnavailableNodes:n1`.

    For a job requeued on hold only the detail, as in Slurm: `job requeued in held state`.
    """
    if not detail:
        return reason
    if reason.startswith("JobHeld"):
        return detail.replace("_", " ")
    if reason.endswith(":%d") or reason in _TOLD_BY_DETAIL:
        return detail
    return f"{reason}, {detail}"


def reason_word(reason: str, detail: str) -> str:
    """The reason as one word, for `scontrol show job`."""
    return reason_text(reason, detail).replace(" ", "_")


def licenses_held(state: str, text: str, held: Iterable[tuple[str, int]]) -> str:
    """The licenses that a job holds: what it asked for, or the one of `a|b` that it got (`Job.licenses`)."""
    if state not in ("RUNNING", "SUSPENDED"):
        return ""
    return ",".join(f"{name}:{count}" for name, count in held) if "|" in text else text


def used_seconds(now: float, state: str, started: float, ended: float, suspended: float, suspended_at: float) -> int:
    """Run time in seconds without suspensions; 0 before the start."""
    if not started or state == "PENDING":
        return 0
    if state == "SUSPENDED":
        until = suspended_at or now
    else:
        until = ended or now
    return max(0, int(until - started - suspended))


def least_cpus(per_node: int | None, tasks_per_node: int | None, per_task: int | None) -> int:
    """CPUs that each node must have for the job."""
    return per_node or (tasks_per_node or 1) * (per_task or 1)


def shown_start(
    now: float, state: str, started: float, ended: float, expected: float, begin: float, eligible: float
) -> float:
    """When the job started. Of a pending job the expected start, else the begin time that it still waits for; of a job
    that ended before it started its end, as in Slurm. 0.0: unknown.
    """
    if state != "PENDING":
        return started or ended
    # A requeued job becomes eligible in the future.
    waits_until = max(begin, eligible)
    return expected or (waits_until if waits_until > now else 0.0)


def shown_end(state: str, start: float, ends: float, ended: float, limit_minutes: int | None) -> float:
    """When the job ended, or its time limit ends, which is counted from `start` (`shown_start`) for a pending job.
    0.0: unknown, or it has no limit.
    """
    if ended or state != "PENDING":
        return ended or ends
    return start + limit_minutes * 60.0 if start and limit_minutes is not None and limit_minutes < INFINITE else 0.0


def shown_eligible(eligible: float, begin: float) -> float:
    """When the job became eligible, or the begin time of one that waits for something else as well (0.0: unknown)."""
    return eligible or begin


def preemptable_at(job: Job, start: float, exempt_seconds: int | None) -> float:
    """When a started job may be preempted; 0 for a pending job, or if jobs are never preempted. `start`: its start.

    `exempt_seconds`: `model.queries.job_records.Jobs.exempt_of`.
    """
    if job.state.value == "PENDING":
        return 0.0
    if job.preempted_at:
        return job.started_at
    if exempt_seconds is None or not start:
        return 0.0
    from spritz.model.rules.preemption import exempt_until

    return max(start, exempt_until(exempt_seconds, started_at=start, suspended=job.suspended_seconds))
