"""Forgetting what is older than Purge*After says: at the start of every hour, some thousand rows at a time.

A job goes with its steps, suspensions and reasons; a script or environment when no job names it any more. Records that
should be archived first are kept, since archives are not built yet.

Source: slurmdbd.conf(5) PurgeJobAfter and its kin: ages count from the start of this hour, day or month.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, Table, and_, delete, exists, select, tuple_, update

from spritz.accounting import schema
from spritz.accounting.engine import told

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from spritz.config.loaded import DbdSettings

#: Rows of one transaction: storing waits no longer than this takes.
ROWS = 2_000

#: 2 January 1970: nothing is older, in any zone.
_FIRST_DAY = datetime(1970, 1, 2).toordinal()

#: key -> the key that wants an archive of the same records first
PERIODS = {
    "PurgeJobAfter": "ArchiveJobs",
    "PurgeStepAfter": "ArchiveSteps",
    "PurgeSuspendAfter": "ArchiveSuspend",
    "PurgeEventAfter": "ArchiveEvents",
    "PurgeJobScriptAfter": "",
    "PurgeJobEnvAfter": "",
}


def wanted(settings: DbdSettings) -> tuple[dict[str, str], list[str]]:
    """Periods by key, and the keys that are not carried out because an archive is wanted first."""
    given = {key: settings.text(key) for key in PERIODS if settings.text(key)}
    held = [key for key in given if PERIODS[key] and settings[PERIODS[key]] is True]
    return {key: period for key, period in given.items() if key not in held}, held


def cutoff(period: str, now: float) -> float:
    """What ended before this is forgotten. `period` as `schema.slurmdbd` has it: `6hour`, `30day`, `12month`."""
    digits = period.rstrip("hourdaymnt")
    count, unit = int(digits), period[len(digits) :]
    local = datetime.fromtimestamp(now)
    if unit == "hour":
        return local.replace(minute=0, second=0, microsecond=0).timestamp() - count * 3600
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "day":
        return datetime.fromordinal(max(_FIRST_DAY, midnight.toordinal() - count)).timestamp()
    months = max(1971 * 12, midnight.year * 12 + midnight.month - 1 - count)
    return datetime(months // 12, months % 12 + 1, 1).timestamp()


def next_hour(now: float) -> float:
    """When to look again."""
    return datetime.fromtimestamp(now + 3600).replace(minute=0, second=0, microsecond=0).timestamp()


def purge(engine: Engine, periods: dict[str, str], now: float) -> Iterator[tuple[str, int]]:
    """Do it piece by piece: (key, rows) for each transaction. Raises DatabaseError."""
    limits = {key: cutoff(period, now) for key, period in periods.items()}
    for key, limit in limits.items():
        yield from _repeated(engine, key, _PURGES[key], limit)
    if limits.keys() & {"PurgeJobAfter", "PurgeJobScriptAfter", "PurgeJobEnvAfter"}:
        yield from _repeated(engine, "documents", _purge_documents, now)


def _repeated(
    engine: Engine, key: str, work: Callable[[Connection, float], int], before: float
) -> Iterator[tuple[str, int]]:
    while True:
        with told(engine.url), engine.begin() as connection:
            rows = work(connection, before)
        if not rows:
            return
        yield key, rows


def _ended(table: Table, before: float) -> Any:
    return and_(table.c.ended_at > 0.0, table.c.ended_at < before)


def _purge_jobs(connection: Connection, before: float) -> int:
    jobs = schema.jobs
    chosen = select(jobs.c.cluster_id, jobs.c.number).where(_ended(jobs, before)).limit(ROWS)
    keys = [tuple(row) for row in connection.execute(chosen)]
    if keys:
        for table in (schema.steps, schema.suspensions, schema.pending_reasons, jobs):
            connection.execute(delete(table).where(tuple_(table.c.cluster_id, table.c.number).in_(keys)))
    return len(keys)


def _purge_table(table: Table) -> Callable[[Connection, float], int]:
    primary = tuple(table.primary_key.columns)

    def work(connection: Connection, before: float) -> int:
        keys = [tuple(row) for row in connection.execute(select(*primary).where(_ended(table, before)).limit(ROWS))]
        if keys:
            connection.execute(delete(table).where(tuple_(*primary).in_(keys)))
        return len(keys)

    return work


def _forget_key(column: str) -> Callable[[Connection, float], int]:
    def work(connection: Connection, before: float) -> int:
        jobs = schema.jobs
        chosen = select(jobs.c.cluster_id, jobs.c.number).where(_ended(jobs, before), jobs.c[column] != "").limit(ROWS)
        keys = [tuple(row) for row in connection.execute(chosen)]
        if keys:
            found = tuple_(jobs.c.cluster_id, jobs.c.number).in_(keys)
            connection.execute(update(jobs).where(found).values({column: ""}))
        return len(keys)

    return work


def _purge_documents(connection: Connection, _before: float) -> int:
    jobs, table = schema.jobs, schema.documents
    named = (exists().where(column == table.c.key) for column in (jobs.c.script_key, jobs.c.environment_key))
    keys = [row[0] for row in connection.execute(select(table.c.key).where(*(~one for one in named)).limit(ROWS))]
    if keys:
        connection.execute(delete(table).where(table.c.key.in_(keys)))
    return len(keys)


_PURGES: dict[str, Callable[[Connection, float], int]] = {
    "PurgeJobAfter": _purge_jobs,
    "PurgeStepAfter": _purge_table(schema.steps),
    "PurgeSuspendAfter": _purge_table(schema.suspensions),
    "PurgeEventAfter": _purge_table(schema.node_events),
    "PurgeJobScriptAfter": _forget_key("script_key"),
    "PurgeJobEnvAfter": _forget_key("environment_key"),
}
