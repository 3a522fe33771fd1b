"""PrivateData: hides nodes, partitions, and other users' jobs, reservations and usage.

Source: slurm.conf(5) PrivateData.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.rights import coordinates, operates
from spritz.model.errors import SpritzError
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
    from spritz.model.job.record import Job
    from spritz.model.limits.records import Association
    from spritz.model.node.reservation import Reservation


def hides_jobs(state: State, caller: Caller) -> bool:
    """Whether other users' jobs are hidden from the caller: PrivateData=jobs."""
    return "jobs" in state.settings.private_data and not operates(state, caller)


def may_see(state: State, caller: Caller) -> Callable[[Job], bool]:
    """Exceptions to `hides_jobs`: jobs of accounts that the caller coordinates and, with MCSParameters=privatedata,
    jobs with a label that the caller could have.
    """
    policy = state.settings.mcs
    if not policy.private:
        return lambda job: coordinates(state, caller, job.spec.account)
    if policy.plugin == "group":
        labels = frozenset(caller.group_names)
    elif policy.plugin == "account":
        labels = frozenset(
            association.account for association in state.rules.policy.associations if association.user == caller.user
        )
    else:
        labels = frozenset((caller.user,) if policy.plugin == "user" else ())
    return lambda job: (
        not job.spec.mcs_label or job.spec.mcs_label in labels or coordinates(state, caller, job.spec.account)
    )


def usable(state: State, reservations: list[Reservation], caller: Caller) -> list[Reservation]:
    """With PrivateData=reservations only the reservations that one of the caller's accounts may use."""
    if "reservations" not in state.settings.private_data or operates(state, caller):
        return reservations
    accounts = {
        association.account for association in state.rules.policy.associations if association.user == caller.user
    } | {""}
    gids = (caller.gid, *caller.groups)
    return [
        reservation
        for reservation in reservations
        if any(reservation.admits(user=caller.user, gids=gids, account=account) for account in sorted(accounts))
    ]


def need_open(state: State, caller: Caller, what: str) -> None:
    """Raises SpritzError (ESLURM_ACCESS_DENIED) if `what`, nodes or partitions, is hidden from the caller."""
    if what in state.settings.private_data and not operates(state, caller):
        raise SpritzError(Rejection(code="ESLURM_ACCESS_DENIED").text, code="ESLURM_ACCESS_DENIED")


def own_associations(state: State, caller: Caller, *words: str) -> Callable[[Association], bool]:
    """Which associations the caller may see: only its own if PrivateData has any of `words` (usage, users)."""
    if operates(state, caller) or not set(words) & set(state.settings.private_data):
        return lambda association: True
    coordinated = state.rules.coordinated(caller.user)
    return lambda association: (
        (association.user == caller.user and bool(association.user)) or association.account in coordinated
    )
