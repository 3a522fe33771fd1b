"""Reservations in the state: which one keeps a job off a node, which jobs may use one, and when one falls due.

Only reads. Source: scontrol(1) RESERVATIONS; slurm.conf(5) ResvOverRun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decision import Refused
from spritz.core.job.timers import NEVER
from spritz.model.rules.reservation_use import (
    admits,
    asks_for,
    gives_way,
    has_all_of,
    is_confined,
    meets,
    names_of,
    starts_jobs,
    takes_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.state import State
    from spritz.model.job.record import Job, JobSpec
    from spritz.model.node.reservation import Reservation
    from spritz.model.resources import NodeAllocation


def in_the_way(
    state: State, share: NodeAllocation, since: float, seconds: float, own_reservation: Reservation | None, leaving: int
) -> Reservation | None:
    """A reservation that keeps a job off this part of a node if the job starts at `since` and lasts `seconds`; None if
    none does.

    `own_reservation`: the job's own reservation. `leaving`: `leaving_seconds` of the job.
    """
    others = (state.reservations[name] for name in state.reserved.get(share.node, ()))
    return next(
        (
            other
            for other in others
            if not gives_way(other, own_reservation, leaving)
            and meets(other, since, seconds)
            and takes_of(other, share)
        ),
        None,
    )


def licenses_used(state: State, name: str) -> dict[str, int]:
    """Licenses that running jobs of the reservation hold."""
    used: dict[str, int] = {}
    for job in users_of(state, name):
        if job.state.active and job.allocation is not None and job.allocation.reservation == name:
            for license_name, count in job.licenses:
                used[license_name] = used.get(license_name, 0) + count
    return used


def use_refusal(state: State, job: Job, name: str, shares: Iterable[NodeAllocation], now: float) -> str:
    """Why the job may not run in this reservation now on these parts of nodes; "" if it may."""
    reservation = state.reservations.get(name)
    if reservation is None:
        return f"no reservation {name}"
    if not asks_for(job.spec, reservation):
        return f"reservation {name} not asked for"
    if not admits(reservation, job.spec):
        return f"no access to reservation {name}"
    if not starts_jobs(reservation, now):
        return f"reservation {name} does not hold now"
    for share in shares if is_confined(reservation) else ():
        if not has_all_of(reservation, share):
            return f"reservation {name} does not have it on node {share.node}"
    return ""


def check_reservation(state: State, spec: JobSpec) -> None:
    """Check --reservation of a new or changed job. Raises Refused."""
    for name in names_of(spec):
        reservation = state.reservations.get(name)
        if reservation is None:
            raise Refused("ESLURM_RESERVATION_INVALID", hint=f"there is no reservation {name}")
        if not admits(reservation, spec):
            raise Refused("ESLURM_RESERVATION_ACCESS", hint=f"the job may not use reservation {name}")


def users_of(state: State, name: str) -> list[Job]:
    """Jobs that have not ended and name the reservation or run in it."""
    return [state.jobs[job_id] for job_id in state.reservation_jobs.get(name, ())]


def subject_of(reservation: Reservation) -> str:
    """The subject of a decision about the reservation (`DecisionContext.subject`)."""
    return f"reservation {reservation.name}"


def due_at(state: State, reservation: Reservation) -> float:
    """When the reservation next falls due: its start, its end, or the end of PURGE_COMP."""
    if reservation.floating:
        return NEVER
    if not reservation.began:
        return reservation.start_at
    at = reservation.end_at
    if reservation.purge_seconds and not state.reservation_jobs.get(reservation.name):
        at = min(at, reservation.used_at + reservation.purge_seconds)
    return at


def next_due(state: State) -> float | None:
    """The earliest time at which any reservation falls due."""
    items, memory = state.reservations.values(), state.memory
    at = min((due_at(state, item) for item in items if not memory.ignores(subject_of(item))), default=NEVER)
    return None if at == NEVER else at
