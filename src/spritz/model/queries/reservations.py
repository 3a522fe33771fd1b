"""Requests that read reservations, and their replies; apart from `model.queries`, which every command loads."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.node.reservation import Reservation


class ListReservations(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reservations (all when `names` is empty; unknown names are left out). Reply: `Reservations`."""

    names: tuple[str, ...] = ()


class Reservations(Struct, frozen=True, kw_only=True):
    """Reply to ListReservations, in the order in which they were made."""

    now: float
    reservations: list[Reservation]
