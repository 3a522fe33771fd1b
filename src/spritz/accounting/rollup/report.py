"""Usage queries, as SQL.

A query reads the fewest months, days and hours that cover its span (`spans.cover`), so a year costs no more than a
week. Source: sreport(1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, and_, func, or_, select

from spritz.accounting import schema, spans
from spritz.accounting.engine import database_errors
from spritz.accounting.rollup.amounts import Amounts, add, add_text
from spritz.accounting.rollup.hours import pairs_of, used_amounts
from spritz.accounting.rollup.read import suspensions
from spritz.model.accounting.records import ReservationRecord
from spritz.model.accounting.usage import (
    AskReservations,
    AskUsage,
    ClusterUsage,
    HolderUsage,
    ReservationUsage,
    UsageReport,
)
from spritz.notation import hostlist

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Rows of one piece of an answer.
PIECE = 2_000
_FETCH = 2_000


def usage_of(engine: Engine, query: AskUsage, only_user: str | None = None) -> Iterator[UsageReport]:
    """Usage, cluster by cluster. `only_user`: restricts it to this user. Raises DatabaseError."""
    with database_errors(), engine.connect() as connection:
        for cluster_id, name, rolled in clusters(connection, query.clusters):
            # No record is older than the first day of 1970.
            runs = spans.cover(spans.floor(spans.HOUR, max(86_400, query.starts_at)), min(query.ends_at, rolled))
            yield UsageReport(clusters=list(_whole(connection, cluster_id, name, runs)))
            if query.holders:
                holders = list(_holders(connection, cluster_id, name, runs, only_user))
                for start in range(0, len(holders), PIECE):
                    yield UsageReport(holders=holders[start : start + PIECE])


def clusters(connection: Connection, names: tuple[str, ...]) -> list[tuple[int, str, int]]:
    """(number, name, end of the roll-up) of the named clusters, or of all."""
    table = schema.clusters.c
    statement = select(table.id, table.name, table.rolled_until).order_by(table.name)
    if names:
        statement = statement.where(table.name.in_(names))
    return [(row[0], row[1], row[2]) for row in connection.execute(statement)]


def _within(table: Any, cluster_id: int, run: tuple[int, int, int]) -> Any:
    period, first, after = run
    column = table.c
    return and_(
        column.cluster_id == cluster_id,
        column.period == period,
        column.started_at >= first,
        column.started_at < after,
    )


_PARTS = ("allocated", "down", "planned_down", "idle", "planned", "over")


def _whole(
    connection: Connection, cluster_id: int, name: str, runs: list[tuple[int, int, int]]
) -> Iterator[ClusterUsage]:
    table = schema.cluster_usage
    sums: dict[str, list[int]] = {}
    for run in runs:
        rows = connection.execute(
            select(table.c.tres, func.max(table.c.count), *(func.sum(table.c[part]) for part in _PARTS))
            .where(_within(table, cluster_id, run))
            .group_by(table.c.tres)
        )
        for tres, count, *parts in rows:
            known = sums.setdefault(tres, [0] * (len(_PARTS) + 1))
            known[0] = max(known[0], count)
            for place, part in enumerate(parts, 1):
                known[place] += int(part)
    for tres, (count, *parts) in sums.items():
        yield ClusterUsage(cluster=name, tres=tres, count=count, **dict(zip(_PARTS, parts, strict=True)))


def _holders(
    connection: Connection, cluster_id: int, name: str, runs: list[tuple[int, int, int]], only_user: str | None
) -> Iterator[HolderUsage]:
    table, who = schema.holder_usage, schema.usage_holders
    sums: dict[int, Amounts] = {}
    for run in runs:
        rows = connection.execute(select(table.c.holder_id, table.c.tres).where(_within(table, cluster_id, run)))
        for part in rows.partitions(_FETCH):
            for holder, text in part:
                add_text(sums.setdefault(holder, {}), text)
    names = {row.id: row for row in connection.execute(select(who).where(who.c.cluster_id == cluster_id))}
    for holder, amounts in sums.items():
        record = names[holder]
        if only_user is None or record.user == only_user:
            whose = {"account": record.account, "user": record.user, "wckey": record.wckey, "qos": record.qos}
            for tres, seconds in amounts.items():
                yield HolderUsage(cluster=name, tres=tres, seconds=seconds, **whose)


# Reservations


def reservations(engine: Engine, query: AskReservations, now: float) -> list[ReservationUsage]:
    """Reservations that overlap the span, by start time. Raises DatabaseError."""
    table = schema.reservations
    usages: list[ReservationUsage] = []
    nodes = frozenset(query.nodes)
    with database_errors(), engine.connect() as connection:
        for cluster_id, name, _ in clusters(connection, query.clusters):
            chosen = select(table).where(
                table.c.cluster_id == cluster_id,
                table.c.started_at < query.ends_at,
                table.c.ended_at > query.starts_at,
                table.c.ended_at > table.c.started_at,
            )
            if query.names:
                chosen = chosen.where(table.c.name.in_(query.names))
            for row in connection.execute(chosen.order_by(table.c.started_at, table.c.number)).all():
                values = row._mapping
                record = ReservationRecord(**{field: values[field] for field in ReservationRecord.__struct_fields__})
                if not nodes or nodes.intersection(hostlist.expand(record.nodes) if record.nodes else ()):
                    used = _used_of(connection, cluster_id, record, now)
                    usages.append(ReservationUsage(cluster=name, record=record, used=used))
    return usages


def _used_of(connection: Connection, cluster_id: int, record: ReservationRecord, now: float) -> list[tuple[str, int]]:
    """Use by jobs of the reservation in the record's time, counted as the roll-up does."""
    job = schema.jobs.c
    lives = and_(
        job.cluster_id == cluster_id,
        job.reservation == record.name,
        job.started_at > 0.0,
        job.started_at < record.ended_at,
        or_(job.ended_at == 0.0, job.ended_at > record.started_at),
    )
    pauses = suspensions(connection, lives, int(record.ended_at))
    rows: Iterable[Any] = connection.execute(
        select(job.number, job.started_at, job.ended_at, job.tres_allocated).where(lives)
    )
    sums: Amounts = {}
    for number, started, ended, text in rows:
        low, high = max(int(started), int(record.started_at)), min(int(ended or now), int(record.ended_at))
        if low < high:
            add(sums, used_amounts(pairs_of(text), low, high, pauses.get(number, ())))
    return list(sums.items())
