"""Who may do what. Owner, root and SlurmUser; nobody else.

Source: scontrol(1), scancel(1): "only the job's owner, or a privileged user".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.turn import Refused, Turn

if TYPE_CHECKING:
    from spritz.model.job import Job


def may_control(turn: Turn, job: Job) -> bool:
    """The caller may cancel, hold or change this job."""
    return turn.caller.admin or turn.caller.uid == job.spec.uid


def need_control(turn: Turn, job: Job, code: str = "ESLURM_ACCESS_DENIED") -> None:
    """Refuse with `code` unless `may_control`."""
    if not may_control(turn, job):
        raise Refused(code)


def need_admin(turn: Turn, code: str = "ESLURM_USER_ID_MISSING") -> None:
    """Refuse with `code` unless root or SlurmUser asks. Slurm mostly says "Invalid user id" here."""
    if not turn.caller.admin:
        raise Refused(code)
