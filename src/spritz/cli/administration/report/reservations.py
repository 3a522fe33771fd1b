"""The report of reservations. Source: sreport(1) reservation Utilization; columns of 22.05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.options import Fatal
from spritz.notation import tres as notation
from spritz.notation.duration import format_duration
from spritz.notation.times import format_time
from spritz.presentation.accounting.report_fields import Amount

if TYPE_CHECKING:
    from spritz.model.accounting.usage import ReservationReport

    Row = dict[str, object]


def rows_of(report: ReservationReport, names_text: str | None) -> list[Row]:
    """A row for each TRES of each reservation. `names_text`: the list of -T. Raises Fatal if it names no known TRES."""
    names = None if names_text is None else {word.strip().lower() for word in names_text.split(",")}
    rows: list[Row] = []
    known = set[str]()
    for reservation in report.reservations:
        record, used = reservation.record, dict(reservation.used)
        seconds = int(record.ended_at) - int(record.started_at)
        pairs = notation.parse(record.tres)
        known |= {name for name, _ in pairs}
        for name, count in pairs:
            if names is not None and "all" not in names and name.lower() not in names:
                continue
            whole = count * seconds
            allocated = min(used.get(name, 0), whole)
            rows.append(
                {
                    "cluster": reservation.cluster,
                    "name": record.name,
                    "id": record.reservation_id,
                    "start": format_time(record.started_at),
                    "end": format_time(record.ended_at),
                    "nodes": record.nodes,
                    "flags": record.flags,
                    "holders": ",".join(text for text in (record.accounts, record.users) if text),
                    "seconds": format_duration(seconds),
                    "tres": name,
                    "count": count,
                    "time": format_duration(whole),
                    "allocated": Amount(allocated, whole),
                    "idle": Amount(whole - allocated, whole),
                }
            )
    if names is not None and report.reservations and not rows and not names & known:
        raise Fatal("No valid TRES given")
    return rows
