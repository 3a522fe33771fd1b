"""Whose jobs, reservations and nodes somebody may change: AdminLevel and coordinators, as slurmdbd has told them.

Root and SlurmUser (`Caller.admin`) may do everything. Administrators may do what they may, but not act as other users
or speak as a daemon. Operators: jobs and reservations of others. Coordinators: jobs of their accounts and of those
below.

Source: sacctmgr(1) AdminLevel, coordinator; what 22.05's slurmctld allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.cluster import Caller
    from spritz.model.job import Job


def administers(state: State, caller: Caller) -> bool:
    """Nodes, partitions and the daemon, and what operators may."""
    return caller.admin or state.rules.admins.get(caller.user) == "Administrator"


def operates(state: State, caller: Caller) -> bool:
    """Everybody's jobs, and reservations."""
    return caller.admin or caller.user in state.rules.admins


def coordinates(state: State, caller: Caller, account: str) -> bool:
    """Jobs of this account; never those without one."""
    return bool(account) and account in state.rules.coordinated(caller.user)


def controls(state: State, caller: Caller, job: Job) -> bool:
    """May cancel, hold or change this job."""
    return caller.uid == job.spec.uid or operates(state, caller) or coordinates(state, caller, job.spec.account)
