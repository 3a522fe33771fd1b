"""Refusals of those who may not. Who may is in `core.rights`.

Source: scontrol(1), scancel(1): "only the job's owner, or a privileged user".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.rights import administers, controls, coordinates, operates
from spritz.core.turn import Refused, Turn

if TYPE_CHECKING:
    from spritz.model.job import Job


def may_control(turn: Turn, job: Job) -> bool:
    """The caller may cancel, hold or change this job."""
    return controls(turn.state, turn.caller, job)


def need_control(turn: Turn, job: Job, code: str = "ESLURM_ACCESS_DENIED") -> None:
    """Refuse with `code` unless `may_control`."""
    if not may_control(turn, job):
        raise Refused(code)


def need_owner(turn: Turn, job: Job, code: str = "ESLURM_ACCESS_DENIED") -> None:
    """Refuse with `code` unless it is the caller's, or root or SlurmUser asks: what runs in it runs as its owner."""
    if not turn.caller.admin and turn.caller.uid != job.spec.uid:
        raise Refused(code)


def is_operator(turn: Turn) -> bool:
    """The caller may change everybody's jobs, and reservations."""
    return operates(turn.state, turn.caller)


def may_raise(turn: Turn, job: Job) -> bool:
    """The caller may give this job more than its owner may."""
    return is_operator(turn) or coordinates(turn.state, turn.caller, job.spec.account)


def need_operator(turn: Turn, code: str = "ESLURM_USER_ID_MISSING") -> None:
    """Refuse with `code` unless `is_operator`."""
    if not is_operator(turn):
        raise Refused(code)


def need_admin(turn: Turn, code: str = "ESLURM_USER_ID_MISSING") -> None:
    """Refuse with `code` all but administrators. Slurm mostly says "Invalid user id" here."""
    if not administers(turn.state, turn.caller):
        raise Refused(code)
