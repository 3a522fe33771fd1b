"""Which users may change other users' jobs, reservations and nodes: AdminLevel and coordinators, as slurmdbd knows
them.

Root and SlurmUser (`Caller.admin`) may do everything. Administrators may do everything except act as other users or
speak as a daemon. Operators may change jobs and reservations of others. Coordinators may change jobs of their accounts
and of accounts below.

Source: sacctmgr(1) AdminLevel, coordinator; what 22.05's slurmctld allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
    from spritz.model.job.record import Job


def administers(state: State, caller: Caller) -> bool:
    """Whether the caller may change nodes, partitions and the daemon, and all that operators may."""
    return caller.admin or state.rules.admins.get(caller.user) == "Administrator"


def operates(state: State, caller: Caller) -> bool:
    """Whether the caller may change all users' jobs, and reservations."""
    return caller.admin or caller.user in state.rules.admins


def coordinates(state: State, caller: Caller, account: str) -> bool:
    """Whether the caller may change jobs of this account; False for no account."""
    return bool(account) and account in state.rules.coordinated(caller.user)


def controls(state: State, caller: Caller, job: Job) -> bool:
    """Whether the caller may cancel, hold or change this job."""
    return caller.uid == job.spec.uid or operates(state, caller) or coordinates(state, caller, job.spec.account)
