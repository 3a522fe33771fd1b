"""Refuses callers without the right to act. The rights themselves are in `core.rights`.

Source: scontrol(1), scancel(1): "only the job's owner, or a privileged user".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decision import DecisionContext, Refused
from spritz.core.rights import administers, controls, coordinates, operates

if TYPE_CHECKING:
    from spritz.model.job.record import Job


def may_control(context: DecisionContext, job: Job) -> bool:
    """Whether the caller may cancel, hold or change this job."""
    return controls(context.state, context.caller, job)


def need_control(context: DecisionContext, job: Job, code: str = "ESLURM_ACCESS_DENIED") -> None:
    if not may_control(context, job):
        raise Refused(code)


def need_owner(context: DecisionContext, job: Job, code: str = "ESLURM_ACCESS_DENIED") -> None:
    """Refuse with `code` unless the caller owns the job or is root or SlurmUser: what runs in it runs as its owner."""
    if not context.caller.admin and context.caller.uid != job.spec.uid:
        raise Refused(code)


def is_operator(context: DecisionContext) -> bool:
    """Whether the caller may change all users' jobs, and reservations."""
    return operates(context.state, context.caller)


def may_raise(context: DecisionContext, job: Job) -> bool:
    """Whether the caller may give this job more than its owner may (higher priority, longer time)."""
    return is_operator(context) or coordinates(context.state, context.caller, job.spec.account)


def need_operator(context: DecisionContext, code: str = "ESLURM_USER_ID_MISSING") -> None:
    if not is_operator(context):
        raise Refused(code)


def need_admin(context: DecisionContext, code: str = "ESLURM_USER_ID_MISSING") -> None:
    """Refuse with `code` unless the caller is an administrator. Slurm mostly says "Invalid user id" here."""
    if not administers(context.state, context.caller):
        raise Refused(code)
