"""Reservations in full: `scontrol --json show reservation`. Source: OpenAPI `reservation_info` v0.0.43.

`core_specializations` has numbers of CPUs: the number of CPUs in a core is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.hostlist import compress
from spritz.notation.ranges import format_ids
from spritz.presentation.json.envelope import show
from spritz.presentation.json.values import moment, number
from spritz.presentation.reservation_text import names, times, tres

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from spritz.model.node.reservation import Reservation
    from spritz.presentation.json.envelope import Output

    Json = dict[str, Any]


def show_records(output: Output, version_word: str, now: float, reservations: Sequence[Reservation]) -> None:
    body = {
        "reservations": [reservation_json(reservation, now) for reservation in reservations],
        "last_update": moment(now),
    }
    show(output, version_word, body, "GET /slurm/reservations")


def reservation_json(reservation: Reservation, now: float) -> Json:
    """One record; times of a floating reservation are relative to `now`."""
    start_at, end_at = times(reservation, now)
    purge = reservation.purge_seconds if "PURGE_COMP" in reservation.flags else None
    return {
        "accounts": names(reservation.accounts, reservation.accounts_denied),
        "burst_buffer": "",
        "core_count": reservation.core_count,
        "core_specializations": [{"node": name, "core": format_ids(int(mask, 16))} for name, mask in reservation.cpus],
        "end_time": moment(end_at),
        "features": reservation.features,
        "flags": list(reservation.flags),
        "groups": ",".join(reservation.groups),
        "licenses": ",".join(f"{name}:{count}" for name, count in reservation.licenses),
        "max_start_delay": reservation.max_start_delay_seconds,
        "name": reservation.name,
        "node_count": len(reservation.nodes),
        "node_list": compress(reservation.nodes),
        "partition": reservation.partition,
        "purge_completed": {"time": number(purge)},
        "start_time": moment(start_at),
        "watts": number(None),
        "tres": tres(reservation),
        "users": names(reservation.users, reservation.users_denied),
        "comment": reservation.comment,
    }
