"""The roll-up: from records of jobs, reservations and nodes to usage by hour, day and month.

`roll` processes one piece: some hours from the end of the cluster's usage, in one transaction with the new end. A piece
replaces its hours, so it may be repeated. A late event rewinds the end (`Store._advance`), so the affected hours are
computed again: late events, restored backups and replayed journals give the same usage as punctual events. A day or
month is summed up when its last hour is done.

Source: slurmdbd(8), which rolls up at the start of every hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, func, select, update

from spritz.accounting import schema, spans
from spritz.accounting.engine import database_errors
from spritz.accounting.rollup import read
from spritz.accounting.rollup.hours import Window
from spritz.accounting.rollup.sizes import Days, days_ending
from spritz.accounting.rollup.write import Piece

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Hours of one piece: a week. A cluster that is up to date has one hour to do.
HOURS_MAX = 168

_HOUR = 3600


def roll(engine: Engine, now: float) -> tuple[str, int] | None:
    """Process one piece of what is due at `now`. Returns the cluster and the number of hours; None if nothing is due.

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
    """Process one piece of one cluster. Returns the number of hours."""
    table = schema.clusters.c
    hours = 0
    with engine.connect() as connection:
        start: int = row.rolled_until or min(due, max(row.purged_until, _first(connection, row.id, due)))
        end = start + HOURS_MAX * _HOUR
        # Whole days, so that the next piece need not read any of them again.
        end = spans.floor(spans.DAY, end) if end < due else due
        if start < end:
            hours = _roll_hours(connection, row.id, row.name, spans.hours(start, end))
        done = connection.execute(
            update(schema.clusters)
            .where(table.id == row.id, table.rolled_until == row.rolled_until)
            .values(rolled_until=end)
        )
        if done.rowcount != 1:  # another slurmdbd was faster, or an earlier event arrived
            connection.rollback()
            return 0
        connection.commit()
    return hours


def _first(connection: Connection, cluster_id: int, due: int) -> int:
    """The hour of the cluster's first record. After a clock was set back a job may start before it was submitted."""
    events, jobs, reservations = schema.node_events.c, schema.jobs.c, schema.reservations.c
    first_times = [
        connection.execute(select(func.min(column)).where(owner == cluster_id, column > 0)).scalar()
        for column, owner in (
            (events.started_at, events.cluster_id),
            (jobs.submitted_at, jobs.cluster_id),
            (jobs.eligible_at, jobs.cluster_id),
            (jobs.started_at, jobs.cluster_id),
            (reservations.started_at, reservations.cluster_id),
        )
    ]
    known = [at for at in first_times if at]
    return min(due, spans.floor(spans.HOUR, min(known))) if known else due


def _roll_hours(connection: Connection, cluster_id: int, name: str, bounds: list[int]) -> int:
    """Write the usage of these hours (`spans.hours`). Returns their number."""
    start, end = bounds[0], bounds[-1]
    window = Window(bounds)
    for record in read.reservations(connection, cluster_id, start, end):
        window.reserve(record, read.holders_of(connection, name, record))
    configured, trouble, by_node = read.node_events(connection, cluster_id, start, end)
    window.watch(trouble)
    # The first day that ends in the piece may have begun before it.
    ending = days_ending(start, end)
    days = Days(ending)
    for job in read.jobs(connection, cluster_id, min([start, *ending]), end):
        window.add(job)
        days.add(job)
    piece = Piece(connection, cluster_id, start, end)
    piece.write_holders(window)
    piece.write_cluster(window, configured, trouble, by_node)
    piece.write_sizes(days)
    return len(window.hours)
