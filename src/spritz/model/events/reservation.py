"""Events about reservations: created, updated, begun, deleted."""

from __future__ import annotations

from spritz.model.events.base import Event
from spritz.model.node.reservation import Reservation


class ReservationCreated(Event, frozen=True, kw_only=True):
    concerns = "accounting subscribers"

    reservation: Reservation


class ReservationUpdated(Event, frozen=True, kw_only=True):
    """The reservation changed, or its next occurrence is due: the whole new record. With `moves_jobs`, times of jobs
    that run in it follow its end.
    """

    concerns = "accounting subscribers"

    reservation: Reservation
    moves_jobs: bool = False


class ReservationBegan(Event, frozen=True, kw_only=True):
    """The reservation's start time has come: its jobs may start."""

    # accounting: the reservation's record says it
    concerns = "subscribers"

    name: str


class ReservationDeleted(Event, frozen=True, kw_only=True):
    """The reservation is over, or was deleted."""

    concerns = "accounting subscribers"

    name: str
