"""Rolling up: from the records of jobs, reservations and nodes to usage by hour, day and month.

`roll` does one piece: some hours from where the cluster's usage ends, in one transaction with the new end. It may be
repeated at will: a piece replaces what its hours held. What is stored of an earlier time sets the end back
(`Store._advance`), so late events, restored backups and replayed journals lead to the same usage as punctual ones.
A day or month is summed up when its last hour is done.

Source: slurmdbd(8), which rolls up at the start of every hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from sqlalchemy import Engine, and_, delete, func, insert, literal, or_, select, update

from spritz.accounting import schema
from spritz.accounting.associations.tables import TABLES
from spritz.accounting.engine import told
from spritz.accounting.nodes import tres_by_node
from spritz.accounting.rollup import spans
from spritz.accounting.rollup.hours import ClusterHour, Holder, Used, Window
from spritz.accounting.upsert import upsert
from spritz.model import step_usage
from spritz.model.accounting import NodeEventRecord, ReservationRecord
from spritz.model.ids import STEP_MAX
from spritz.model.limits.records import Association
from spritz.model.resources import mask_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Hours of one piece: a week. A cluster that is up to date has one.
HOURS_MAX = 168

_HOUR = 3600
_NAME = 120
#: Jobs fetched at once.
_FETCH = 2_000


def roll(engine: Engine, now: float) -> tuple[str, int] | None:
    """One piece of what is due at `now`: the cluster, and the hours that were done; None: nothing is.

    Raises DatabaseError.
    """
    due = spans.floor(spans.HOUR, now)
    table = schema.clusters.c
    behind = select(table.id, table.name, table.rolled_until).where(table.rolled_until < due).order_by(table.name)
    with told(engine.url):
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
        start = row.rolled_until or _first(connection, row.id, due)
        end = min(due, start + HOURS_MAX * _HOUR)
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
    for record in _reservations(connection, cluster_id, start, end):
        window.reserve(record, _holders_of(connection, name, record))
    configured, trouble, by_node = _node_events(connection, cluster_id, start, end)
    window.watch(trouble)
    for job in _jobs(connection, cluster_id, start, end):
        window.add(job)
    for table in (schema.usage, schema.cluster_usage):
        within = (table.c.started_at >= start, table.c.started_at < end)
        connection.execute(delete(table).where(table.c.cluster_id == cluster_id, table.c.period == spans.HOUR, *within))
    numbers = _Holders(connection, cluster_id)
    used, whole = list[dict[str, Any]](), list[dict[str, Any]]()
    for hour in range(start, end, _HOUR):
        key = {"cluster_id": cluster_id, "period": spans.HOUR, "started_at": hour}
        for holder, sums in window.holders(hour).items():
            number = numbers.of(holder)
            used += [key | {"holder_id": number, "tres": one[:64], "seconds": sums[one]} for one in sums]
        whole += [key | _row(one) for one in window.cluster(hour, configured, trouble, by_node)]
    for table, rows in ((schema.usage, used), (schema.cluster_usage, whole)):
        if rows:
            upsert(connection, table, rows)
    for period, below in ((spans.DAY, spans.HOUR), (spans.MONTH, spans.DAY)):
        _sum_up(connection, cluster_id, period, below, start, end)


def _row(one: ClusterHour) -> dict[str, Any]:
    return asdict(one) | {"tres": one.tres[:64]}


def _sum_up(connection: Connection, cluster_id: int, period: int, below: int, start: int, end: int) -> None:
    """Days of hours, or months of days: those that end in the piece that was done."""
    first = spans.floor(period, start)
    while (after := spans.following(period, first)) <= end:
        for table, groups in ((schema.usage, ("holder_id", "tres")), (schema.cluster_usage, ("tres",))):
            column = table.c
            here = (column.cluster_id == cluster_id, column.period == period, column.started_at == first)
            connection.execute(delete(table).where(*here))
            names = ["cluster_id", "period", "started_at", *groups]
            sums = [one for one in column if one.name not in names]
            totals = [func.max(one) if one.name == "count" else func.sum(one) for one in sums]
            made = (
                select(literal(cluster_id), literal(period), literal(first), *(column[one] for one in groups), *totals)
                .where(column.cluster_id == cluster_id, column.period == below)
                .where(column.started_at >= first, column.started_at < after)
                .group_by(*(column[one] for one in groups))
            )
            connection.execute(insert(table).from_select([*names, *(one.name for one in sums)], made))
        first = after


class _Holders:
    """Numbers of holders; new ones are written at once."""

    def __init__(self, connection: Connection, cluster_id: int) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        table = schema.usage_holders.c
        rows = connection.execute(
            select(table.id, table.account, table.user, table.wckey, table.qos).where(table.cluster_id == cluster_id)
        )
        self._known = {tuple(row[1:]): row[0] for row in rows}

    def of(self, holder: Holder) -> int:
        key = tuple(name[:_NAME] for name in holder)
        number: int | None = self._known.get(key)
        if number is None:
            names = dict(zip(Holder._fields, key, strict=True))
            done = self._connection.execute(insert(schema.usage_holders).values(cluster_id=self._cluster_id, **names))
            assert done.inserted_primary_key is not None, "the table has one"
            number = self._known[key] = int(done.inserted_primary_key[0])
        return number


# -- what is there


def _reservations(connection: Connection, cluster_id: int, start: int, end: int) -> list[ReservationRecord]:
    table = schema.reservations
    rows = connection.execute(
        select(table).where(table.c.cluster_id == cluster_id, table.c.started_at < end, table.c.ended_at > start)
    )
    return [_record(ReservationRecord, row) for row in rows]


def _record(kind: Any, row: Any) -> Any:
    values = row._mapping
    return kind(**{name: values[name] for name in kind.__struct_fields__})


def _holders_of(connection: Connection, cluster: str, record: ReservationRecord) -> list[Holder]:
    """For whom it is kept: its users in its accounts, its accounts, or its users in every account of theirs."""
    users, accounts = (
        [] if text.startswith("-") else [name for name in text.split(",") if name]
        for text in (record.users, record.accounts)
    )
    if not users:
        return [Holder(account, "") for account in accounts]
    table = TABLES[Association].c
    chosen = select(table.account, table.user).where(table.cluster == cluster, table.user.in_(users)).distinct()
    if accounts:
        chosen = chosen.where(table.account.in_(accounts))
    found = [Holder(row[0], row[1]) for row in connection.execute(chosen.order_by(table.account, table.user))]
    return found or [Holder("", user) for user in users]


def _node_events(
    connection: Connection, cluster_id: int, start: int, end: int
) -> tuple[list[NodeEventRecord], list[NodeEventRecord], dict[str, Any]]:
    table = schema.node_events
    rows = connection.execute(
        select(table).where(
            table.c.cluster_id == cluster_id,
            table.c.started_at < end,
            or_(table.c.ended_at == 0.0, table.c.ended_at > start),
        )
    )
    configured, trouble = list[NodeEventRecord](), list[NodeEventRecord]()
    for row in rows:
        (trouble if row.node else configured).append(_record(NodeEventRecord, row))
    by_node: dict[str, Any] = {}
    for record in sorted(configured, key=lambda one: one.started_at):
        by_node |= tres_by_node(record)
    return configured, trouble, by_node


def _jobs(connection: Connection, cluster_id: int, start: int, end: int) -> Iterable[Used]:
    """Jobs that waited or ran in the window."""
    job = schema.jobs.c
    lives = and_(
        job.cluster_id == cluster_id,
        or_(job.ended_at == 0.0, job.ended_at > start),
        or_(and_(job.eligible_at > 0.0, job.eligible_at < end), and_(job.started_at > 0.0, job.started_at < end)),
    )
    suspended = suspensions(connection, lives, end)
    joules = _energy(connection, cluster_id, start, end)
    columns = select(
        *(job.number, job.account, job.user, job.wckey, job.qos, job.reservation, job.eligible_at, job.started_at),
        *(job.ended_at, job.requested_cpus, job.array_tasks, job.tres_allocated, job.nodes),
    ).where(lives)
    holders: dict[tuple[str, ...], Holder] = {}
    for part in connection.execute(columns).partitions(_FETCH):
        for row in part:
            key = (row.account, row.user, row.wckey, row.qos)
            holder = holders.get(key)
            if holder is None:
                holder = holders[key] = Holder(*(name[:_NAME] for name in key))
            yield Used(
                holder=holder,
                reservation=row.reservation,
                eligible_at=int(row.eligible_at),
                started_at=int(row.started_at),
                ended_at=int(row.ended_at),
                cpus_asked=row.requested_cpus,
                tasks=mask_of(row.array_tasks).bit_count() if row.array_tasks else 1,
                tres=row.tres_allocated,
                nodes=row.nodes,
                suspended=suspended.get(row.number, ()),
                energy=joules.get(row.number, 0),
            )


def _energy(connection: Connection, cluster_id: int, start: int, end: int) -> dict[int, int]:
    """Joules of jobs that ended in the window, by their numbers: what script or steps saw, whichever is more."""
    job, step = schema.jobs.c, schema.steps.c
    ended = select(job.number).where(job.cluster_id == cluster_id, job.ended_at >= start, job.ended_at < end)
    rows = connection.execute(
        select(step.number, step.step_id, step.usage_in_tot).where(
            step.cluster_id == cluster_id, step.number.in_(ended), step.usage_in_tot.like("%energy=%")
        )
    )
    proper: dict[int, int] = {}
    whole: dict[int, int] = {}
    for number, step_id, text in rows:
        joules = int(step_usage.parse(text).get("energy", 0))
        if step_id <= STEP_MAX:
            proper[number] = proper.get(number, 0) + joules
        else:
            whole[number] = max(whole.get(number, 0), joules)
    return {number: max(proper.get(number, 0), whole.get(number, 0)) for number in {*proper, *whole}}


def suspensions(connection: Connection, lives: Any, end: int) -> dict[int, tuple[tuple[int, int], ...]]:
    """When jobs that fulfil the condition were suspended, up to `end`: (from, to or 0), by their numbers."""
    job, table = schema.jobs.c, schema.suspensions.c
    rows = connection.execute(
        select(table.number, table.started_at, table.ended_at)
        .select_from(
            schema.suspensions.join(schema.jobs, and_(job.cluster_id == table.cluster_id, job.number == table.number))
        )
        .where(lives, table.started_at < end)
    )
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for number, began, over in rows:
        found[number] = (*found.get(number, ()), (int(began), int(over)))
    return found
