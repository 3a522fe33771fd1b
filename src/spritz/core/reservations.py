"""Reservations in the state: which of them stands in a job's way, who may use one, and when one falls due.

Only reads. Source: scontrol(1) RESERVATIONS; slurm.conf(5) ResvOverRun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.timers import NEVER
from spritz.core.turn import Refused
from spritz.model.resources import mask_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.state import State
    from spritz.model.job import Job, JobSpec
    from spritz.model.reservation import Reservation
    from spritz.model.resources import NodeAllocation

#: Occurrences of a recurring reservation that are looked at: the present one and the next. A job that starts now
#: cannot meet a later one without meeting the next.
OCCURRENCES = 2


def admits(reservation: Reservation, spec: JobSpec) -> bool:
    """May this job's owner and account use it?"""
    return reservation.admits(user=spec.user, gids=(spec.gid, *spec.groups), account=spec.account)


def names_of(spec: JobSpec) -> tuple[str, ...]:
    """--reservation=a,b"""
    return tuple(name for name in spec.reservation.split(",") if name)


def crosses(reservation: Reservation, since: float, until: float) -> bool:
    """Does something that lasts from `since` to `until` meet it?"""
    if reservation.floating:
        return until - since > reservation.float_seconds
    return any(start < until and end > since for start, end in reservation.spans(OCCURRENCES))


def in_the_way(
    state: State, share: NodeAllocation, since: float, until: float, mine: Reservation | None, leaving: int
) -> Reservation | None:
    """A reservation that keeps a job of `mine` (None: of none) off this part of a node during that time. `leaving`:
    `leaving_seconds` of the job.
    """
    for name in state.reserved.get(share.node, ()):
        other = state.reservations[name]
        if other.gives_way_to(mine) or other.lets_in(leaving) or not crosses(other, since, until):
            continue
        mask = other.mask_on(share.node)
        if mask is None or mask & mask_of(share.cpus):
            return other
        devices = other.devices_on(share.node)
        if any(mask_of(gres.indexes) & devices.get(gres.name, 0) for gres in share.gres):
            return other
    return None


def licenses_kept(state: State, since: float, until: float, mine: Reservation | None) -> dict[str, int]:
    """Licenses that reservations keep from a job of `mine` (None: of none) during that time: those that their own jobs
    do not use now.
    """
    kept: dict[str, int] = {}
    for other in state.reservations.values():
        if not other.licenses or other.gives_way_to(mine) or not crosses(other, since, until):
            continue
        used: dict[str, int] = {}
        for job in users_of(state, other.name):
            if job.state.active and job.allocation is not None and job.allocation.reservation == other.name:
                for name, count in job.licenses:
                    used[name] = used.get(name, 0) + count
        for name, count in other.licenses:
            kept[name] = kept.get(name, 0) + max(0, count - used.get(name, 0))
    return kept


def use_refusal(state: State, job: Job, name: str, shares: Iterable[NodeAllocation], now: float) -> str:
    """Why the job may not run in this reservation now with these parts of nodes; "" if it may."""
    reservation = state.reservations.get(name)
    if reservation is None:
        return f"no reservation {name}"
    wanted = names_of(job.spec)
    if (wanted and name not in wanted) or (not wanted and not reservation.magnetic):
        return f"reservation {name} not asked for"
    if not admits(reservation, job.spec):
        return f"no access to reservation {name}"
    if reservation.flexible:
        return ""
    if not reservation.active(now):
        return f"reservation {name} does not hold now"
    if reservation.any_nodes and not reservation.nodes:
        return ""
    own = set(reservation.nodes)
    for share in shares:
        mask = reservation.mask_on(share.node) if share.node in own else 0
        devices = reservation.devices_on(share.node)
        if (mask is not None and mask_of(share.cpus) & ~mask) or any(
            mask_of(gres.indexes) & ~devices[gres.name] for gres in share.gres if gres.name in devices
        ):
            return f"reservation {name} does not have it on node {share.node}"
    return ""


def check_reservation(state: State, spec: JobSpec) -> None:
    """--reservation of a new or changed job. Raises Refused."""
    for name in names_of(spec):
        reservation = state.reservations.get(name)
        if reservation is None:
            raise Refused("ESLURM_RESERVATION_INVALID", hint=f"there is no reservation {name}")
        if not admits(reservation, spec):
            raise Refused("ESLURM_RESERVATION_ACCESS", hint=f"reservation {name} is for others")


def users_of(state: State, name: str) -> list[Job]:
    """Jobs that have not ended and name the reservation or run in it."""
    return [state.jobs[job_id] for job_id in state.reservation_jobs.get(name, ())]


def due_at(state: State, reservation: Reservation) -> float:
    """When something about it falls due: its beginning, its end, or PURGE_COMP's end."""
    if reservation.floating:
        return NEVER
    if not reservation.began:
        return reservation.start_at
    at = reservation.end_at
    if reservation.purge_seconds and not state.reservation_jobs.get(reservation.name):
        at = min(at, reservation.used_at + reservation.purge_seconds)
    return at


def next_due(state: State) -> float | None:
    """The earliest of all."""
    at = min((due_at(state, item) for item in state.reservations.values()), default=NEVER)
    return None if at == NEVER else at
