"""Reservations in full: `scontrol --json show reservation`. Source: OpenAPI `reservation_info` v0.0.43.

`core_specializations` numbers CPUs: how many of them a core has is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.json.envelope import show
from spritz.presentation.json.values import moment, number
from spritz.presentation.reservation_text import names, times, tres

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from spritz.model.reservation import Reservation
    from spritz.presentation.json.envelope import Output

    Json = dict[str, Any]


def show_records(output: Output, asked: str, now: float, reservations: Sequence[Reservation]) -> None:
    """Print them."""
    body = {"reservations": [reservation_json(one, now) for one in reservations], "last_update": moment(now)}
    show(output, asked, body, "GET /slurm/reservations")


def reservation_json(one: Reservation, now: float) -> Json:
    """One record."""
    from spritz.notation.hostlist import compress
    from spritz.notation.ranges import format_ids

    start_at, end_at = times(one, now)
    purge = one.purge_seconds if "PURGE_COMP" in one.flags else None
    return {
        "accounts": names(one.accounts, one.accounts_denied),
        "burst_buffer": "",
        "core_count": one.core_count,
        "core_specializations": [{"node": name, "core": format_ids(int(mask, 16))} for name, mask in one.cpus],
        "end_time": moment(end_at),
        "features": one.features,
        "flags": list(one.flags),
        "groups": ",".join(one.groups),
        "licenses": ",".join(f"{name}:{count}" for name, count in one.licenses),
        "max_start_delay": one.max_start_delay_seconds,
        "name": one.name,
        "node_count": len(one.nodes),
        "node_list": compress(one.nodes),
        "partition": one.partition,
        "purge_completed": {"time": number(purge)},
        "start_time": moment(start_at),
        "watts": number(None),
        "tres": tres(one),
        "users": names(one.users, one.users_denied),
        "comment": one.comment,
    }
