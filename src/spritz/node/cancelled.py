"""The line on a job's standard error when the job is terminated. Wording: Slurm's, by cause. Pure."""

from __future__ import annotations

from spritz.model.ids import STEP_BATCH, step_name
from spritz.model.node_daemon.reports import RunningStep
from spritz.notation.times import format_time

_DUE_TO = {
    "TIMEOUT": " DUE TO TIME LIMIT",
    "PREEMPTED": " DUE TO PREEMPTION",
    "NODE_FAIL": " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
    "REQUEUED": " DUE TO JOB REQUEUE",
}


def cancelled_text(node: str, key: RunningStep, cause: str, at: float) -> str:
    """`error: *** JOB 5 ON n1 CANCELLED AT 2026-01-31T12:00:00 DUE TO TIME LIMIT ***`; "" where nothing is said."""
    if not at:
        return ""
    what = f"JOB {key.job_id}" if key.step_id == STEP_BATCH else f"STEP {key.job_id}.{step_name(key.step_id)}"
    return f"error: *** {what} ON {node} CANCELLED AT {format_time(at)}{_DUE_TO.get(cause, '')} ***"
