"""Deleted association records, and whether a record may be deleted.

A record that is older than a day, or that a job ran under, stays in its table, marked as deleted and without its
limits: `withdeleted` shows it, and it gets its number back if it is added again. Other records, and all coordinators,
are removed.

Source: sacctmgr(1) WithDeleted; behaviour of slurmdbd 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from sqlalchemy import Connection, and_, delete, or_, select, update

from spritz.accounting import schema
from spritz.accounting.associations import tables
from spritz.model.errors import SpritzError
from spritz.model.limits.records import Account, Association, ClusterRow, Qos, Record, User, WcKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement

#: A younger record without jobs is removed, not marked.
DAY = 86_400.0

#: Most running jobs named in a refusal.
NAMED_MAX = 100

_JOBS = schema.jobs.c


def read_deleted(connection: Connection) -> tuple[Record, ...]:
    records: list[Record] = []
    for kind, table in tables.TABLES.items():
        if "deleted" in table.c:
            rows = connection.execute(tables.records_of(kind).where(table.c.deleted).order_by(*table.primary_key))
            records += (kind(**row._mapping) for row in rows)
    return tuple(records)


def split_clusters(
    known: Iterable[ClusterRow], associations: Iterable[Association], deleted: Iterable[Record]
) -> tuple[tuple[ClusterRow, ...], tuple[ClusterRow, ...]]:
    """Clusters that have associations, and those that had some. `known`: clusters that have ever registered."""
    rows = {cluster.name: cluster for cluster in known}
    live = {association.cluster for association in associations}
    gone = (
        {association.cluster for association in deleted if isinstance(association, Association)} | rows.keys()
    ) - live

    def of(names: set[str]) -> tuple[ClusterRow, ...]:
        return tuple(rows.get(name) or ClusterRow(name=name) for name in sorted(names))

    return of(live), of(gone)


def number_of(connection: Connection, record: Association | Qos) -> int | None:
    """The number of a deleted record; None if there was none."""
    table = tables.TABLES[type(record)]
    names = ("cluster", "account", "user", "partition") if isinstance(record, Association) else ("name",)
    same = and_(table.c.deleted, *(table.c[name] == getattr(record, name) for name in names))
    row_id: int | None = connection.execute(select(table.c.id).where(same)).scalar()
    return row_id


def drop(connection: Connection, record: Record, now: float) -> None:
    """Mark the record as deleted, or remove it."""
    table = tables.TABLES[type(record)]
    condition = and_(*(table.c[name] == getattr(record, name) for name in tables.KEYS[type(record)]))
    created = None
    if "deleted" in table.c:
        created = connection.execute(select(table.c.created_at).where(condition)).scalar()
    if created is None or (now - created < DAY and not _used(connection, record, created)):
        connection.execute(delete(table).where(condition))
        return
    bare = asdict(_bare(record))
    connection.execute(update(table).where(condition).values(**bare, deleted=True))


def _bare(record: Record) -> Record:
    """The record without limits: they are not restored when it is added again."""
    if isinstance(record, Association):
        names = ("id", "cluster", "account", "user", "partition", "parent")
        return Association(**{name: getattr(record, name) for name in names})
    if isinstance(record, Qos):
        return Qos(name=record.name, id=record.id, description=record.description)
    return record


def _used(connection: Connection, record: Record, since: float) -> bool:
    """Whether a job ran under the record after `since`."""
    if isinstance(record, Account):
        condition = _JOBS.account == record.name
    elif isinstance(record, User):
        condition = _JOBS.user == record.name
    elif isinstance(record, Qos):
        condition = _JOBS.qos == record.name
    elif isinstance(record, WcKey):
        condition = and_(_on(record.cluster), _JOBS.wckey == record.name, _JOBS.user == record.user)
    elif isinstance(record, Association):
        condition = _under(record)
    else:
        return False
    clusters = select(schema.clusters.c.id)
    alive = or_(_JOBS.ended_at == 0.0, _JOBS.ended_at >= since)
    query = (
        select(_JOBS.number).where(_JOBS.cluster_id.in_(clusters), alive, _JOBS.started_at > 0.0, condition).limit(1)
    )
    return connection.execute(query).scalar() is not None


def _on(cluster: str) -> ColumnElement[bool]:
    known = select(schema.clusters.c.id).where(schema.clusters.c.name == cluster).scalar_subquery()
    return _JOBS.cluster_id == known


def _under(association: Association) -> ColumnElement[bool]:
    condition = and_(_on(association.cluster), _JOBS.account == association.account)
    if association.partition:
        condition = and_(condition, _JOBS.partition == association.partition)
    return and_(condition, _JOBS.user == association.user) if association.user else condition


def check_idle(connection: Connection, drops: Sequence[Record]) -> None:
    """Raises SpritzError, which names the jobs, if jobs wait or run under associations to be deleted."""
    lines: list[str] = []
    for record in drops:
        if not isinstance(record, Association):
            continue
        query = select(_JOBS.job_id, _JOBS.user).where(_under(record), _JOBS.ended_at == 0.0).order_by(_JOBS.job_id)
        lines += (
            f"  JobID = {row.job_id:<10} C = {record.cluster:<10} A = {record.account:<10} U = {row.user:<9}"
            for row in connection.execute(query.limit(NAMED_MAX))
        )
    if lines:
        text = "\n".join(["Job(s) active, cancel job(s) before remove", *dict.fromkeys(lines)])
        raise SpritzError(text, code="ESLURM_JOBS_RUNNING_ON_ASSOC")


def row_of(record: Record, now: float) -> dict[str, Any]:
    """The table's row for a new or changed record; an existing row keeps its `created_at`."""
    row = asdict(record)
    return {**row, "deleted": False, "created_at": now} if "deleted" in tables.TABLES[type(record)].c else row
