"""How events about reservations change the state. Source: scontrol(1) RESERVATIONS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spritz.model.events import reservation as events

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.state import State
    from spritz.model.events import Event
    from spritz.model.job.record import Job


def _created(state: State, event: events.ReservationCreated) -> None:
    state.put_reservation(event.reservation)
    state.next_reservation_id = event.reservation.id + 1


def _updated(state: State, event: events.ReservationUpdated) -> None:
    reservation = event.reservation
    state.put_reservation(reservation)
    if not event.moves_jobs:
        return
    ends_at = 0.0 if reservation.flexible else reservation.end_at
    for job_id in list(state.reservation_jobs.get(reservation.name, ())):
        job = state.jobs[job_id]
        if job.state.active and job.allocation is not None and job.allocation.reservation == reservation.name:
            state.put_job(replace(job, reservation_ends_at=ends_at))


def _began(state: State, event: events.ReservationBegan) -> None:
    state.put_reservation(replace(state.reservations[event.name], began=True, used_at=event.at))


def _deleted(state: State, event: events.ReservationDeleted) -> None:
    state.drop_reservation(event.name)


def unused(state: State, job: Job, at: float) -> None:
    """The job has left its reservations: PURGE_COMP counts from now on for those without jobs."""
    for name in job.spec.reservation.split(","):
        reservation = state.reservations.get(name)
        if reservation is not None and reservation.purge_seconds and reservation.began:
            state.put_reservation(replace(reservation, used_at=at))
    inside = job.allocation.reservation if job.allocation is not None else ""
    reservation = state.reservations.get(inside)
    if reservation is not None and reservation.purge_seconds and reservation.began:
        state.put_reservation(replace(reservation, used_at=at))


# Any: each function takes its own kind of event.
APPLIERS: dict[type[Event], Callable[[State, Any], None]] = {
    events.ReservationCreated: _created,
    events.ReservationUpdated: _updated,
    events.ReservationBegan: _began,
    events.ReservationDeleted: _deleted,
}
