"""PrivateData: what callers are not shown of others' jobs and reservations. Source: slurm.conf(5) PrivateData."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.cluster import Caller
    from spritz.model.reservation import Reservation


def hides_jobs(state: State, caller: Caller) -> bool:
    """Whether others' jobs are none of the caller's business: PrivateData=jobs."""
    return "jobs" in state.settings.private_data and not caller.admin


def usable(state: State, reservations: list[Reservation], caller: Caller) -> list[Reservation]:
    """With PrivateData=reservations only those that the caller may use, with some account of his."""
    if "reservations" not in state.settings.private_data or caller.admin:
        return reservations
    accounts = {one.account for one in state.rules.policy.associations if one.user == caller.user} | {""}
    gids = (caller.gid, *caller.groups)
    return [
        one
        for one in reservations
        if any(one.admits(user=caller.user, gids=gids, account=account) for account in sorted(accounts))
    ]
