"""Reservation events as records: time span, holders and reserved resources. Pure; used by `ledger`.

A reservation that changes after its start becomes two records: one up to the change and one from then on. Source:
sacctmgr(1) show reservation; scontrol(1) RESERVATIONS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from spritz.accounting.ledger.nodes import tres_by_node
from spritz.model.accounting.records import ReservationRecord
from spritz.model.resources import mask_of
from spritz.notation import hostlist, tres

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.accounting.ledger.changes import Changes
    from spritz.model.accounting.records import NodeEventRecord
    from spritz.model.events import reservation as events
    from spritz.model.node.reservation import Reservation


class ReservationBook(Protocol):
    """The records of reservations, and of nodes (`ledger.Ledger`)."""

    @property
    def reservations(self) -> dict[str, ReservationRecord]: ...

    @property
    def node_events(self) -> Mapping[str, NodeEventRecord] | None: ...

    @property
    def changes(self) -> Changes: ...

    def rewrite(self, at: float) -> None: ...


def created(ledger: ReservationBook, place: int, event: events.ReservationCreated) -> None:
    _put(ledger, _record(ledger, place, event.reservation))


def updated(ledger: ReservationBook, place: int, event: events.ReservationUpdated) -> None:
    """The reservation was changed, or its next occurrence came up."""
    new = _record(ledger, place, event.reservation)
    old = ledger.reservations.get(new.name)
    if old is None:
        _put(ledger, new)
        return
    if replace(old, number=place) == new:
        return
    if event.at <= old.started_at:
        ledger.rewrite(min(old.started_at, new.started_at))
        _put(ledger, replace(new, number=old.number))
        return
    old.ended_at, old.closed = min(old.ended_at, event.at), True
    ledger.changes.reservations[old.number] = old
    new.started_at = max(new.started_at, event.at)
    _put(ledger, new)


def deleted(ledger: ReservationBook, place: int, event: events.ReservationDeleted) -> None:
    """The reservation ended or was deleted. One that had not started leaves no record."""
    old = ledger.reservations.pop(event.name, None)
    if old is not None:
        old.ended_at, old.closed = max(old.started_at, min(old.ended_at, event.at)), True
        ledger.changes.reservations[old.number] = old


def _put(ledger: ReservationBook, record: ReservationRecord) -> None:
    ledger.reservations[record.name] = record
    ledger.changes.reservations[record.number] = record


def _record(ledger: ReservationBook, place: int, reservation: Reservation) -> ReservationRecord:
    return ReservationRecord(
        number=place,
        reservation_id=reservation.id,
        name=reservation.name[:255],
        started_at=reservation.start_at,
        ended_at=reservation.end_at,
        nodes=hostlist.compress(reservation.nodes),
        tres=tres.format(_kept(ledger, reservation), convert=False),
        flags=",".join(reservation.flags),
        users=_names(reservation.users, denied=reservation.users_denied),
        accounts=_names(reservation.accounts, denied=reservation.accounts_denied),
    )


def _names(names: tuple[str, ...], *, denied: bool) -> str:
    return ("-" if denied else "") + ",".join(names).replace("\0", "")


def _kept(ledger: ReservationBook, reservation: Reservation) -> list[tuple[str, int]]:
    """The resources that the reservation holds: whole nodes, or only CPUs of them."""
    cluster = (ledger.node_events or {}).get("")
    if reservation.cpus:
        cpus = sum(mask_of(mask).bit_count() for _, mask in reservation.cpus)
        return [("cpu", cpus), ("billing", cpus)]
    by_node = tres_by_node(cluster) if cluster is not None else {}
    total: dict[str, int] = {}
    for node in reservation.nodes:
        for name, count in by_node.get(node, ()):
            total[name] = total.get(name, 0) + count
    return list(total.items())
