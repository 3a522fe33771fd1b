"""Rolling up: from the records of jobs, reservations and nodes to usage by hour, day and month.

`roll` does one piece: some hours from where the cluster's usage ends, in one transaction with the new end. It may be
repeated at will: a piece replaces what its hours held. What is stored of an earlier time sets the end back
(`Store._advance`), so late events, restored backups and replayed journals lead to the same usage as punctual ones.
A day or month is summed up when its last hour is done.

Source: slurmdbd(8), which rolls up at the start of every hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, func, select, update

from spritz.accounting import schema
from spritz.accounting.engine import database_errors
from spritz.accounting.rollup import read, spans
from spritz.accounting.rollup.hours import Window
from spritz.accounting.rollup.sizes import Days, days_ending
from spritz.accounting.rollup.write import Piece

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Hours of one piece: a week. A cluster that is up to date has one.
HOURS_MAX = 168

_HOUR = 3600


def roll(engine: Engine, now: float) -> tuple[str, int] | None:
    """One piece of what is due at `now`: the cluster, and the hours that were done; None: nothing is.

    Raises DatabaseError.
    """
    due = spans.floor(spans.HOUR, now)
    table = schema.clusters.c
    behind = (
        select(table.id, table.name, table.rolled_until, table.purged_until)
        .where(table.rolled_until < due)
        .order_by(table.name)
    )
    with database_errors():
        with engine.connect() as connection:
            rows = connection.execute(behind).all()
        for row in rows:
            hours = _roll_one(engine, row, due)
            if hours:
                return row.name, hours
    return None


def _roll_one(engine: Engine, row: Any, due: int) -> int:
    """One piece of one cluster's; the hours that were done."""
    table = schema.clusters.c
    with engine.connect() as connection:
        start: int = row.rolled_until or min(due, max(row.purged_until, _first(connection, row.id, due)))
        end = start + HOURS_MAX * _HOUR
        # Whole days, so that none has to be read again by the next piece.
        end = spans.floor(spans.DAY, end) if end < due else due
        if start < end:
            _roll_hours(connection, row.id, row.name, start, end)
        done = connection.execute(
            update(schema.clusters)
            .where(table.id == row.id, table.rolled_until == row.rolled_until)
            .values(rolled_until=end)
        )
        if done.rowcount != 1:  # another slurmdbd was quicker, or knows of something earlier
            connection.rollback()
            return 0
        connection.commit()
    return (end - start) // _HOUR


def _first(connection: Connection, cluster_id: int, due: int) -> int:
    """The hour in which the cluster's story begins."""
    events, jobs = schema.node_events.c, schema.jobs.c
    found = [
        connection.execute(select(func.min(column)).where(owner == cluster_id, column > 0)).scalar()
        for column, owner in ((events.started_at, events.cluster_id), (jobs.submitted_at, jobs.cluster_id))
    ]
    known = [at for at in found if at]
    return min(due, spans.floor(spans.HOUR, min(known))) if known else due


def _roll_hours(connection: Connection, cluster_id: int, name: str, start: int, end: int) -> None:
    window = Window(start, end)
    for record in read.reservations(connection, cluster_id, start, end):
        window.reserve(record, read.holders_of(connection, name, record))
    configured, trouble, by_node = read.node_events(connection, cluster_id, start, end)
    window.watch(trouble)
    # The day that ends first may have begun before the piece.
    ending = days_ending(start, end)
    days = Days(ending)
    for job in read.jobs(connection, cluster_id, min([start, *ending]), end):
        window.add(job)
        days.add(job)
    piece = Piece(connection, cluster_id, start, end)
    piece.write_holders(window)
    piece.write_cluster(window, configured, trouble, by_node)
    piece.write_sizes(days)
