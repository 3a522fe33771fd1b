"""Queries about jobs by size.

Whole days that are rolled up come from `stored`. Days that the span cuts, and queries restricted to users, groups,
nodes or jobs, are counted from the jobs. Source: sreport(1) job reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, Integer, and_, case, cast, func, or_, select

from spritz.accounting import schema, spans
from spritz.accounting.engine import database_errors
from spritz.accounting.rollup.amounts import text_of
from spritz.accounting.rollup.read import NAME_MAX, suspensions
from spritz.accounting.rollup.sizes import Days, Size, Sums, merge, summed
from spritz.accounting.rollup.stored import sizes_within
from spritz.accounting.select import Choice, matching
from spritz.accounting.store import job_of
from spritz.model.accounting.records import SelectJobs
from spritz.model.accounting.usage import AskJobSizes, JobSize

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

_FETCH = 2_000


def job_sizes(engine: Engine, query: AskJobSizes, now: float) -> list[JobSize]:
    """Jobs that ran in the span, grouped by size. Raises DatabaseError."""
    sizes: list[JobSize] = []
    table = schema.clusters.c
    chosen = select(table.id, table.name, table.rolled_until, table.sizes_since).order_by(table.name)
    if query.clusters:
        chosen = chosen.where(table.name.in_(query.clusters))
    with database_errors(), engine.connect() as connection:
        for cluster_id, name, rolled, since in connection.execute(chosen).all():
            sums = _Asking(connection, cluster_id, query, int(now)).sums(*_whole_days(query, rolled, since))
            sizes += [
                JobSize(
                    cluster=name,
                    account=size.account,
                    wckey=size.wckey,
                    cpus=size.cpus,
                    jobs=total.running + total.begun,
                    seconds=total.seconds,
                    used=text_of(total.used),
                )
                for size, total in sums.items()
            ]
    return sizes


def _whole_days(query: AskJobSizes, rolled: int, since: int) -> tuple[int, int]:
    """The stored part of the span: whole days, from and to; equal if there is none."""
    low, high = query.starts_at, spans.floor(spans.DAY, min(query.ends_at, rolled))
    if query.picks or query.users or query.groups or query.nodes:
        return low, low
    # No record is older than the first day of 1970.
    first = spans.floor(spans.DAY, max(86_400, low, since))
    if first < max(low, since):
        first = spans.following(spans.DAY, first)
    return (first, high) if first < high else (low, low)


def _chosen(query: AskJobSizes) -> SelectJobs:
    return SelectJobs(
        picks=query.picks,
        users=query.users,
        groups=query.groups,
        partitions=query.partitions,
        wckeys=query.wckeys,
        nodes=query.nodes,
    )


class _Asking:
    """A query about one cluster. All times are cut to whole seconds, as in the roll-up."""

    def __init__(self, connection: Connection, cluster_id: int, query: AskJobSizes, now: int) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        self._query = query
        self._chosen = _chosen(query)
        self._now = now

    def sums(self, first: int, after: int) -> Sums:
        """Sums of the whole span; the part from `first` to `after` is stored."""
        low, high = self._query.starts_at, self._query.ends_at
        parts: list[Sums] = []
        if low < first:
            parts.append(self._counted(low, first))
        for period, begin, end in spans.cover(first, after):
            parts.append(sizes_within(self._connection, self._cluster_id, period, begin, end, *self._stored()))
        if after < high:
            parts.append(self._counted(after, high))
        sums: Sums = {}
        for number, part in enumerate(parts):
            merge(sums, part, follows=number > 0)
        return sums

    def _stored(self) -> list[ColumnElement[bool]]:
        table = schema.job_sizes.c
        pairs = ((table.partition, self._query.partitions), (table.wckey, self._query.wckeys))
        return [column.in_(names) for column, names in pairs if names]

    def _counted(self, low: int, high: int) -> Sums:
        """Sums counted from the jobs themselves."""
        sums: Sums = {}
        condition = and_(self._ran(low, high), *matching(self._chosen, self._cluster_id))
        # Lists of nodes and array tasks cannot be conditions in SQL: they are checked job by job.
        query = self._query
        if not query.nodes and not any(pick.tasks or pick.het_offset is not None for pick in query.picks):
            paused = schema.jobs.c.number.in_(self._paused(low, high))
            merge(sums, self._together(and_(condition, ~paused), low, high), follows=False)
            condition = and_(condition, paused)
        merge(sums, self._one_by_one(condition, low, high), follows=False)
        return sums

    def _ran(self, low: int, high: int) -> Any:
        job = schema.jobs.c
        return and_(
            job.cluster_id == self._cluster_id,
            job.started_at > 0.0,
            job.started_at < high,
            or_(job.ended_at == 0.0, job.ended_at >= low + 1, job.started_at >= low),
            or_(job.ended_at == 0.0, self._whole(job.ended_at) > self._whole(job.started_at)),
            job.node_count > 0,
        )

    def _paused(self, low: int, high: int) -> Any:
        """Numbers of jobs that were suspended within the span."""
        table = schema.suspensions.c
        return select(table.number).where(
            table.cluster_id == self._cluster_id,
            table.started_at < high,
            or_(table.ended_at == 0.0, table.ended_at > low),
        )

    def _whole(self, column: Any) -> Any:
        # Only SQLite's CAST truncates, and only SQLite may lack floor().
        return cast(column, Integer) if self._connection.dialect.name == "sqlite" else func.floor(column)

    def _together(self, wanted: Any, low: int, high: int) -> Sums:
        job = schema.jobs.c
        last = max(low, min(high, self._now))
        ended = case((or_(job.ended_at == 0.0, job.ended_at > last), last), else_=self._whole(job.ended_at))
        started = case((job.started_at < low, low), (job.started_at > last, last), else_=self._whole(job.started_at))
        begun = func.sum(case((job.started_at >= low, 1), else_=0))
        groups = (job.account, job.wckey, job.partition, job.cpus, job.tres_allocated)
        rows = self._connection.execute(
            select(*groups, func.count(), begun, func.sum(ended - started)).where(wanted).group_by(*groups)
        )
        return summed(
            ((_size(account, wckey, partition, cpus), tres), (count - int(new), int(new), int(seconds)))
            for account, wckey, partition, cpus, tres, count, new, seconds in rows
        )

    def _one_by_one(self, wanted: Any, low: int, high: int) -> Sums:
        choice = Choice(self._chosen)
        days = Days([low, high])
        pauses = suspensions(self._connection, wanted, high)
        rows = self._connection.execution_options(yield_per=_FETCH).execute(select(schema.jobs).where(wanted))
        for row in rows:
            job = job_of(row)
            if choice.fits(job):
                days.count(
                    (_size(job.account, job.wckey, job.partition, job.cpus), job.tres_allocated),
                    int(job.started_at),
                    int(job.ended_at) or max(int(job.started_at), self._now),
                    pauses.get(job.number, ()),
                )
        return next(sums for _, sums in days.each())


def _size(account: str, wckey: str, partition: str, cpus: int) -> Size:
    return Size(account[:NAME_MAX], wckey[:NAME_MAX], partition[:NAME_MAX], cpus)
