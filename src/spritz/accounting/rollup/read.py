"""Reads the records that the roll-up of a window needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, or_, select

from spritz.accounting import schema
from spritz.accounting.associations.tables import TABLES
from spritz.accounting.ledger.nodes import tres_by_node
from spritz.accounting.rollup.hours import Holder, Used
from spritz.model.accounting import step_usage
from spritz.model.accounting.records import NodeEventRecord, ReservationRecord
from spritz.model.ids import STEP_MAX
from spritz.model.limits.records import Association
from spritz.model.resources import mask_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Characters of a name that are significant.
NAME_MAX = 120
#: Jobs per fetch.
_FETCH = 2_000


def reservations(connection: Connection, cluster_id: int, start: int, end: int) -> list[ReservationRecord]:
    table = schema.reservations
    rows = connection.execute(
        select(table).where(table.c.cluster_id == cluster_id, table.c.started_at < end, table.c.ended_at > start)
    )
    return [_record(ReservationRecord, row) for row in rows]


def _record(kind: Any, row: Any) -> Any:
    values = row._mapping
    return kind(**{name: values[name] for name in kind.__struct_fields__})


def holders_of(connection: Connection, cluster: str, record: ReservationRecord) -> list[Holder]:
    """The users and accounts that are charged for a reservation: its users in its accounts, its accounts, or its users
    in all their accounts.
    """
    users, accounts = (
        [] if text.startswith("-") else [name for name in text.split(",") if name]
        for text in (record.users, record.accounts)
    )
    if not users:
        return [Holder(account[:NAME_MAX], "") for account in accounts]
    table = TABLES[Association].c
    chosen = select(table.account, table.user).where(table.cluster == cluster, table.user.in_(users)).distinct()
    if accounts:
        chosen = chosen.where(table.account.in_(accounts))
    rows = [tuple(row) for row in connection.execute(chosen.order_by(table.account, table.user))]
    return [Holder(account[:NAME_MAX], user[:NAME_MAX]) for account, user in rows or [("", user) for user in users]]


def node_events(
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
    for record in sorted(configured, key=lambda event: event.started_at):
        by_node |= tres_by_node(record)
    return configured, trouble, by_node


def jobs(connection: Connection, cluster_id: int, start: int, end: int) -> Iterable[Used]:
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
        *(job.ended_at, job.requested_cpus, job.array_tasks, job.tres_allocated, job.nodes, job.cpus, job.node_count),
        job.partition,
    ).where(lives)
    holders: dict[tuple[str, ...], Holder] = {}
    for part in connection.execute(columns).partitions(_FETCH):
        for row in part:
            number, account, user, wckey, qos, reservation, eligible, started, ended, asked, tasks, *given = row
            tres, nodes, cpus, node_count, partition = given
            key = (account, user, wckey, qos)
            holder = holders.get(key)
            if holder is None:
                holder = holders[key] = Holder(*(name[:NAME_MAX] for name in key))
            yield Used(
                holder,
                reservation,
                int(eligible),
                int(started),
                int(ended),
                asked,
                mask_of(tasks).bit_count() if tasks else 1,
                tres,
                nodes,
                suspended.get(number, ()),
                joules.get(number, 0),
                cpus if node_count else 0,
                partition[:NAME_MAX],
            )


def _energy(connection: Connection, cluster_id: int, start: int, end: int) -> dict[int, int]:
    """Joules of jobs that ended in the window, by job number: the larger of the script's and the steps' figures."""
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
    """Suspensions of the jobs that `lives` selects, up to `end`: (from, to or 0), by job number."""
    job, table = schema.jobs.c, schema.suspensions.c
    rows = connection.execute(
        select(table.number, table.started_at, table.ended_at)
        .select_from(
            schema.suspensions.join(schema.jobs, and_(job.cluster_id == table.cluster_id, job.number == table.number))
        )
        .where(lives, table.started_at < end)
    )
    intervals: dict[int, tuple[tuple[int, int], ...]] = {}
    for number, began, over in rows:
        intervals[number] = (*intervals.get(number, ()), (int(began), int(over)))
    return intervals
