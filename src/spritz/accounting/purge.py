"""Deletes records older than Purge*After: at the start of every hour, some thousand rows a transaction.

A job goes with its steps, suspensions and reasons; a script or environment goes when no job refers to it. Records to
archive are written to files (`archive`), or fetched by ArchiveScript, before their rows are deleted.

Source: slurmdbd.conf(5) PurgeJobAfter and its kin: ages count from the start of this hour, day or month.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Engine, Table, and_, delete, exists, select, tuple_, update

from spritz.accounting import schema
from spritz.accounting.archive import HOLDER, ArchiveError, Archivist, Line
from spritz.accounting.associations.tables import transactions
from spritz.accounting.engine import database_errors

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from spritz.config.loaded import DbdSettings

#: Rows of one transaction: storing never waits longer than one takes.
ROWS = 2_000

#: Hours, days or months of usage of one transaction.
_SPANS = 200

#: 2 January 1970: no record is older, in any time zone.
_FIRST_DAY = datetime(1970, 1, 2).toordinal()

#: purge key -> the key that turns on archiving of the same records, and the word in a file's name
PERIODS = {
    "PurgeEventAfter": ("ArchiveEvents", "event"),
    "PurgeSuspendAfter": ("ArchiveSuspend", "suspend"),
    "PurgeStepAfter": ("ArchiveSteps", "step"),
    "PurgeJobAfter": ("ArchiveJobs", "job"),
    "PurgeJobScriptAfter": ("", ""),
    "PurgeJobEnvAfter": ("", ""),
    "PurgeResvAfter": ("ArchiveResvs", "resv"),
    "PurgeTXNAfter": ("ArchiveTXN", "txn"),
    "PurgeUsageAfter": ("ArchiveUsage", "usage"),
}

#: Seconds that an ArchiveScript may take.
_SCRIPT_SECONDS = 3600


class PurgeRules(Struct, frozen=True, kw_only=True):
    """What is purged and when, and what is archived: periods by purge key, and a set of purge keys."""

    periods: dict[str, str]
    archived: frozenset[str] = frozenset()
    directory: str = "/tmp"
    script: str = ""
    #: rows of one transaction
    rows: int = ROWS


def rules_of(settings: DbdSettings) -> PurgeRules:
    """The keys Purge*After and Archive* of slurmdbd.conf."""
    periods = {key: settings.text(key) for key in PERIODS if settings.text(key)}
    archived = frozenset(key for key in periods if PERIODS[key][0] and settings[PERIODS[key][0]] is True)
    return PurgeRules(
        periods=periods,
        archived=archived,
        directory=settings.text("ArchiveDir") or "/tmp",
        script=settings.text("ArchiveScript"),
        rows=settings.integer("MaxPurgeLimit") or ROWS,
    )


def cutoff(period: str, now: float) -> float:
    """Records that ended before this time are purged. `period` as in `schema.slurmdbd`: `6hour`, `30day`, `12month`."""
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


def purge(engine: Engine, rules: PurgeRules, now: float, files: list[str] | None = None) -> Iterator[tuple[str, int]]:
    """Purge in steps: yields (key, rows) for each transaction. `files` collects the paths of archives.

    Raises DatabaseError and ArchiveError; records that could not be archived are still in the database.
    """
    limits = {key: cutoff(rules.periods[key], now) for key in PERIODS if key in rules.periods}
    archived = rules.archived & limits.keys()
    if rules.script and archived:
        _run_script(rules.script, archived, limits)
    archivist = Archivist(rules.directory, {} if rules.script else {key: PERIODS[key][1] for key in archived})
    try:
        for key, limit in limits.items():
            work = _PURGES[key]
            yield from _repeated(
                engine,
                key,
                lambda connection, w=work, k=key, b=limit: w(  # type: ignore[misc]
                    _Batch(connection, k, b, archivist, rules.rows)
                ),
            )
        if limits.keys() & {"PurgeJobAfter", "PurgeJobScriptAfter", "PurgeJobEnvAfter"}:
            yield from _repeated(engine, "documents", lambda connection: _purge_documents(connection, rules.rows))
    finally:
        if files is not None:
            files += archivist.files
        archivist.close()


def _run_script(script: str, archived: frozenset[str], limits: dict[str, float]) -> None:
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    for key, (_, word) in PERIODS.items():
        if word:
            name = {"event": "EVENTS", "job": "JOBS", "step": "STEPS"}.get(word, word.upper())
            environment[f"SLURM_ARCHIVE_{name}"] = "1" if key in archived else "0"
            environment[f"SLURM_ARCHIVE_LAST_{name.removesuffix('S')}"] = str(int(limits.get(key, 0.0)))
    try:
        subprocess.run([script], env=environment, stdin=subprocess.DEVNULL, check=True, timeout=_SCRIPT_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise ArchiveError(f"ArchiveScript {script} failed: {error}") from error


def _repeated(engine: Engine, key: str, work: Callable[[Connection], int]) -> Iterator[tuple[str, int]]:
    while True:
        with database_errors(), engine.begin() as connection:
            rows = work(connection)
        if not rows:
            return
        yield key, rows


class _Batch:
    """One transaction for one purge key: deletes records that ended before `before`."""

    def __init__(self, connection: Connection, key: str, before: float, archivist: Archivist, rows: int) -> None:
        self.connection = connection
        self.key = key
        self.before = before
        self.archivist = archivist
        self.rows = rows

    def keep(self, cluster_id: int, begins: float, lines: list[Line]) -> None:
        clusters = schema.clusters
        name = self.connection.execute(select(clusters.c.name).where(clusters.c.id == cluster_id)).scalar()
        self.archivist.write(self.key, name or "slurmdbd", begins, self.before, lines)

    def settle_usage(self, cluster_ids: set[int]) -> None:
        """Exclude the purged time from later roll-ups: the records are gone."""
        table = schema.clusters
        self.connection.execute(
            update(table)
            .where(table.c.id.in_(sorted(cluster_ids)), table.c.purged_until < int(self.before))
            .values(purged_until=int(self.before))
        )

    def lines(self, table: Table, chosen: ColumnElement[bool]) -> list[Line]:
        names = [str(column.name) for column in table.columns]
        rows = self.connection.execute(select(table).where(chosen))
        return [(str(table.name), dict(zip(names, row, strict=True))) for row in rows]


def _ended(table: Table, before: float) -> Any:
    return and_(table.c.ended_at > 0.0, table.c.ended_at < before)


def _purge_jobs(batch: _Batch) -> int:
    jobs = schema.jobs
    columns = (jobs.c.cluster_id, jobs.c.number)
    chosen = select(*columns).where(_ended(jobs, batch.before)).order_by(*columns).limit(batch.rows)
    keys = [tuple(row) for row in batch.connection.execute(chosen)]
    if not keys:
        return 0
    tables = (schema.steps, schema.suspensions, schema.pending_reasons, jobs)
    if batch.archivist.keeps(batch.key):
        for cluster_id in sorted({key[0] for key in keys}):
            numbers = [key[1] for key in keys if key[0] == cluster_id]
            lines: list[Line] = []
            for table in reversed(tables):
                lines += batch.lines(table, and_(table.c.cluster_id == cluster_id, table.c.number.in_(numbers)))
            job_rows = [row for name, row in lines if name == jobs.name]
            named = batch.archivist.new_documents(row[c] for row in job_rows for c in ("script_key", "environment_key"))
            if named:
                lines += batch.lines(schema.documents, schema.documents.c.key.in_(named))
            batch.keep(cluster_id, min(row["submitted_at"] for row in job_rows), lines)
    for table in tables:
        batch.connection.execute(delete(table).where(tuple_(table.c.cluster_id, table.c.number).in_(keys)))
    batch.settle_usage({key[0] for key in keys})
    return len(keys)


def _purge_table(table: Table) -> Callable[[_Batch], int]:
    primary = tuple(table.primary_key.columns)

    def work(batch: _Batch) -> int:
        chosen = select(*primary).where(_ended(table, batch.before)).order_by(*primary).limit(batch.rows)
        keys = [tuple(row) for row in batch.connection.execute(chosen)]
        if not keys:
            return 0
        doomed = tuple_(*primary).in_(keys)
        if batch.archivist.keeps(batch.key):
            lines = batch.lines(table, doomed)
            for cluster_id in sorted({key[0] for key in keys}):
                lines_of_cluster = [line for line in lines if line[1]["cluster_id"] == cluster_id]
                batch.keep(cluster_id, min(row["started_at"] for _, row in lines_of_cluster), lines_of_cluster)
        batch.connection.execute(delete(table).where(doomed))
        if table is not schema.steps:
            batch.settle_usage({key[0] for key in keys})
        return len(keys)

    return work


def _purge_transactions(batch: _Batch) -> int:
    table = transactions
    chosen = select(table.c.id).where(table.c.at < batch.before).order_by(table.c.id).limit(batch.rows)
    keys = [row[0] for row in batch.connection.execute(chosen)]
    if keys:
        if batch.archivist.keeps(batch.key):
            lines = batch.lines(table, table.c.id.in_(keys))
            batch.keep(0, min(row["at"] for _, row in lines), lines)
        batch.connection.execute(delete(table).where(table.c.id.in_(keys)))
    return len(keys)


def _purge_usage(batch: _Batch) -> int:
    """Purge usage of hours, days and months that began before; whole spans at a time."""
    count = 0
    changed: set[int] = set()
    for table in (schema.holder_usage, schema.cluster_usage, schema.job_sizes):
        span = (table.c.cluster_id, table.c.period, table.c.started_at)
        chosen = select(*span).where(table.c.started_at < batch.before).distinct().limit(_SPANS)
        keys = [tuple(row) for row in batch.connection.execute(chosen)]
        if keys:
            doomed = tuple_(*span).in_(keys)
            if batch.archivist.keeps(batch.key):
                lines = batch.lines(table, doomed) if table is not schema.holder_usage else _named_usage(batch, doomed)
                for cluster_id in sorted({key[0] for key in keys}):
                    lines_of_cluster = [line for line in lines if line[1]["cluster_id"] == cluster_id]
                    batch.keep(cluster_id, min(key[2] for key in keys if key[0] == cluster_id), lines_of_cluster)
            count += batch.connection.execute(delete(table).where(doomed)).rowcount
            changed |= {key[0] for key in keys}
    batch.settle_usage(changed)
    return count


def _named_usage(batch: _Batch, doomed: ColumnElement[bool]) -> list[Line]:
    """Usage lines with holders' names: their numbers mean nothing in another database."""
    table, who = schema.holder_usage, schema.usage_holders
    names = [*(str(column.name) for column in table.columns if column.name != "holder_id"), *HOLDER]
    columns = [*(column for column in table.columns if column.name != "holder_id"), *(who.c[name] for name in HOLDER)]
    rows = batch.connection.execute(select(*columns).join_from(table, who, who.c.id == table.c.holder_id).where(doomed))
    return [(str(table.name), dict(zip(names, row, strict=True))) for row in rows]


def _forget_key(column: str) -> Callable[[_Batch], int]:
    def work(batch: _Batch) -> int:
        jobs = schema.jobs
        chosen = select(jobs.c.cluster_id, jobs.c.number).where(_ended(jobs, batch.before), jobs.c[column] != "")
        keys = [tuple(row) for row in batch.connection.execute(chosen.limit(batch.rows))]
        if keys:
            same_job = tuple_(jobs.c.cluster_id, jobs.c.number).in_(keys)
            batch.connection.execute(update(jobs).where(same_job).values({column: ""}))
        return len(keys)

    return work


def _purge_documents(connection: Connection, rows: int) -> int:
    jobs, table = schema.jobs, schema.documents
    named = (exists().where(column == table.c.key) for column in (jobs.c.script_key, jobs.c.environment_key))
    keys = [row[0] for row in connection.execute(select(table.c.key).where(*(~batch for batch in named)).limit(rows))]
    if keys:
        connection.execute(delete(table).where(table.c.key.in_(keys)))
    return len(keys)


_PURGES: dict[str, Callable[[_Batch], int]] = {
    "PurgeJobAfter": _purge_jobs,
    "PurgeStepAfter": _purge_table(schema.steps),
    "PurgeSuspendAfter": _purge_table(schema.suspensions),
    "PurgeEventAfter": _purge_table(schema.node_events),
    "PurgeJobScriptAfter": _forget_key("script_key"),
    "PurgeJobEnvAfter": _forget_key("environment_key"),
    "PurgeResvAfter": _purge_table(schema.reservations),
    "PurgeTXNAfter": _purge_transactions,
    "PurgeUsageAfter": _purge_usage,
}
