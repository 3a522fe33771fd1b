"""The report of reservations. Source: sreport(1) reservation Utilization; columns as 22.05 has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.options import Fatal
from spritz.cli.report.table import Amount, Field
from spritz.notation import tres as notation
from spritz.notation.duration import format_duration
from spritz.notation.times import format_time

if TYPE_CHECKING:
    from spritz.model.usage import ReservationReport

    Row = dict[str, object]

FIELDS = {
    "allocated": Field("allocated", "Allocated", 20, width_both=29),
    "associations": Field("holders", "Associations", 15),
    "cluster": Field("cluster", "Cluster", 9),
    "end": Field("end", "End", 19),
    "flags": Field("flags", "Flags", 20),
    "idle": Field("idle", "Idle", 20, width_both=29),
    "name": Field("name", "Name", 9),
    "nodes": Field("nodes", "Nodes", 15),
    "reservationid": Field("id", "Id", 8),
    "start": Field("start", "Start", 19),
    "totaltime": Field("seconds", "TotalTime", 9),
    "trescount": Field("count", "TRES count", 10),
    "tresname": Field("tres", "TRES Name", 14),
    "trestime": Field("time", "TRES Time", 9),
}
DEFAULT = "cluster,name,start,end,tresname,allocated,idle"


def rows_of(found: ReservationReport, asked: str | None) -> list[Row]:
    """One line for each TRES of each reservation. `asked`: -T."""
    wanted = None if asked is None else {word.strip().lower() for word in asked.split(",")}
    rows: list[Row] = []
    known = set[str]()
    for one in found.reservations:
        record, used = one.record, dict(one.used)
        seconds = int(record.ended_at) - int(record.started_at)
        pairs = notation.parse(record.tres)
        known |= {name for name, _ in pairs}
        for name, count in pairs:
            if wanted is not None and "all" not in wanted and name.lower() not in wanted:
                continue
            whole = count * seconds
            allocated = min(used.get(name, 0), whole)
            rows.append(
                {
                    "cluster": one.cluster,
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
    if wanted is not None and found.reservations and not rows and not wanted & known:
        raise Fatal("No valid TRES given")
    return rows
