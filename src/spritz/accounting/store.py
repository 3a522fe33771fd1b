"""The database: batches of events in, each in one transaction with the place that it leads to.

Used by one thread for storing; `select` reads on connections of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from sqlalchemy import Connection, Engine, case, func, insert, select, update

from spritz.accounting import events as codec
from spritz.accounting import schema
from spritz.accounting.engine import DatabaseError, describe, told
from spritz.accounting.ledger import Ledger
from spritz.accounting.rollup import spans
from spritz.accounting.upsert import upsert
from spritz.model.accounting import (
    EventGroup,
    JobRecord,
    NodeEventRecord,
    RegisterCluster,
    ReservationRecord,
    StepRecord,
    StoreState,
)
from spritz.model.accounting_of import describe as describe_job
from spritz.model.accounting_of import record_of, step_record_of

if TYPE_CHECKING:
    from spritz.model.events import Event

#: Jobs in memory after which a ledger is emptied between batches.
LEDGER_JOBS_MAX = 20_000

#: Names of one IN list.
_IN = 500


class Cluster:
    """One cluster as the database has it. `place` = `base` + sequence number."""

    __slots__ = ("base", "id", "journal", "ledger", "name", "sequence", "store")

    def __init__(self, row: Any) -> None:
        self.id: int = row.id
        self.name: str = row.name
        self.base: int = row.base
        self.journal: int = row.journal
        self.sequence: int = row.sequence
        self.store: str = row.store
        self.ledger = Ledger()
        self.ledger.keep = frozenset(self.store.split(",")) - {""}


class Store:
    """The database behind one engine. Methods raise DatabaseError; a failed batch changes nothing."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._clusters: dict[str, Cluster] = {}

    def migrate(self) -> tuple[str | None, str | None]:
        """Bring the tables to this release; the revisions before and after."""
        with told(), self.engine.begin() as connection:
            before = schema.revision(connection)
            if before == schema.REVISION:
                return before, before
            from spritz.accounting import migrations  # which costs more to import than all the rest

            migrations.upgrade(connection)
            return before, schema.revision(connection)

    def forget(self) -> None:
        """Know nothing but what the database says: after a failure."""
        self._clusters.clear()

    def cluster(self, name: str) -> Cluster:
        """A registered cluster. Raises DatabaseError if it never registered."""
        known = self._clusters.get(name)
        if known is None:
            with told(), self.engine.connect() as connection:
                row = connection.execute(select(schema.clusters).where(schema.clusters.c.name == name)).first()
            if row is None:
                raise DatabaseError(f"cluster {name} is not registered", temporary=False)
            known = self._clusters[name] = Cluster(row)
        return known

    def register(self, request: RegisterCluster, now: float) -> tuple[int, str]:
        """Take note of a controller; the last stored event of its journal, and what is odd about it ("": nothing)."""
        table = schema.clusters
        self._clusters.pop(request.cluster, None)
        fresh: dict[str, Any] = {
            "term": request.term,
            "host": request.host[:255],
            "port": request.port,
            "version": request.version[:255],
            "store": ",".join(sorted(request.store)),
            "registered_at": now,
        }
        odd = ""
        with told(), self.engine.begin() as connection:
            row = connection.execute(select(table).where(table.c.name == request.cluster)).first()
            if row is None:
                fresh |= {"name": request.cluster, "base": 0, "journal": request.journal, "sequence": 0}
                connection.execute(insert(table).values(created_at=now, lost=0, **fresh))
                return 0, odd
            sequence = row.sequence
            if row.journal != request.journal:
                # Sequences begin anew: places go on behind the last one.
                odd = "another journal: its state was cleared"
                fresh |= {"journal": request.journal, "base": row.base + row.sequence, "sequence": 0}
                sequence = 0
            elif row.sequence > request.last_sequence:
                # The state directory was restored from a backup: what it does from here on is another story.
                odd = f"its journal was set back from event {row.sequence} to {request.last_sequence}"
                sequence = request.last_sequence
                fresh |= {"base": row.base + row.sequence - sequence, "sequence": sequence}
            connection.execute(update(table).where(table.c.id == row.id).values(**fresh))
        return sequence, odd

    # -- storing

    def ingest(
        self, name: str, journal: int, groups: Iterable[EventGroup], documents: Mapping[str, bytes] | None = None
    ) -> int:
        """Store events; the last one that is stored. Those that are already are passed over.

        Raises DatabaseError, also when events are missing before the first one.
        """
        cluster = self.cluster(name)
        if cluster.journal != journal:
            raise DatabaseError(f"cluster {name} has registered with another journal since")
        at, events = cluster.sequence, list[tuple[int, "Event"]]()
        for group in groups:
            if group.last <= at:
                continue
            if group.first > at + 1:
                raise DatabaseError(f"events {at + 1} to {group.first - 1} of cluster {name} are missing")
            for number, event in enumerate(codec.decode(group), group.first):
                if number > at:
                    events.append((cluster.base + number, event))
            at = group.last
        if at == cluster.sequence and not documents:
            return at
        try:
            with told(), self.engine.begin() as connection:
                since = self._apply(connection, cluster, events)
                if documents:
                    self._put_documents(connection, documents)
                self._advance(connection, cluster, at, since)
        except BaseException:
            self.forget()
            raise
        cluster.sequence = at
        if len(cluster.ledger.jobs) > LEDGER_JOBS_MAX:
            cluster.ledger.jobs.clear()
            cluster.ledger.steps.clear()
        return at

    def _advance(self, connection: Connection, cluster: Cluster, sequence: int, since: float) -> None:
        """Move the cluster's place, unless somebody else has: then this daemon's ledger is not to be believed.

        Usage that was rolled up beyond `since` is to be rolled up again.
        """
        table = schema.clusters
        done = connection.execute(
            update(table)
            .where(table.c.id == cluster.id, table.c.sequence == cluster.sequence, table.c.journal == cluster.journal)
            .values(sequence=sequence, rolled_until=set_back(since))
        )
        if done.rowcount != 1 and sequence != cluster.sequence:
            raise DatabaseError(f"cluster {cluster.name}: another slurmdbd stores its events in this database too")

    def _apply(self, connection: Connection, cluster: Cluster, events: list[tuple[int, Event]]) -> float:
        ledger = cluster.ledger
        self._load(connection, cluster, ledger.needed(event for _, event in events))
        if ledger.node_events is None:
            ledger.node_events = self._open_node_events(connection, cluster)
            ledger.reservations = self._open_reservations(connection, cluster)
        for place, event in events:
            ledger.apply(place, event)
        return self._write(connection, cluster)

    def _write(self, connection: Connection, cluster: Cluster) -> float:
        """The earliest time of which it writes something."""
        changes = cluster.ledger.take_changes()
        written = (
            (schema.jobs, changes.jobs.values()),
            (schema.steps, changes.steps.values()),
            (schema.pending_reasons, changes.reasons),
            (schema.suspensions, changes.suspensions.values()),
            (schema.node_events, changes.node_events.values()),
            (schema.reservations, changes.reservations.values()),
        )
        for table, records in written:
            rows = [_row(cluster.id, record) for record in records]
            if rows:
                upsert(connection, table, rows)
        return changes.since

    def _load(self, connection: Connection, cluster: Cluster, job_ids: list[int]) -> None:
        ledger, jobs, steps = cluster.ledger, schema.jobs, schema.steps
        for start in range(0, len(job_ids), _IN):
            wanted = job_ids[start : start + _IN]
            newest = (
                select(func.max(jobs.c.number))
                .where(jobs.c.cluster_id == cluster.id, jobs.c.job_id.in_(wanted), jobs.c.aside.is_(False))
                .group_by(jobs.c.job_id)
            )
            numbers = [row[0] for row in connection.execute(newest)]
            found = connection.execute(select(jobs).where(jobs.c.cluster_id == cluster.id, jobs.c.number.in_(numbers)))
            open_steps: dict[int, list[StepRecord]] = {}
            running = select(steps).where(
                steps.c.cluster_id == cluster.id, steps.c.job_id.in_(wanted), steps.c.ended_at == 0.0
            )
            for row in connection.execute(running):
                step = step_of(row)
                open_steps.setdefault(step.job_id, []).append(step)
            records = {record.job_id: record for record in map(job_of, found)}
            for job_id in wanted:
                ledger.put_job(job_id, records.get(job_id), open_steps.get(job_id, ()))

    def _open_node_events(self, connection: Connection, cluster: Cluster) -> dict[str, NodeEventRecord]:
        table = schema.node_events
        rows = connection.execute(select(table).where(table.c.cluster_id == cluster.id, table.c.ended_at == 0.0))
        return {row.node: _record(NodeEventRecord, row) for row in rows}

    def _open_reservations(self, connection: Connection, cluster: Cluster) -> dict[str, ReservationRecord]:
        table = schema.reservations
        rows = connection.execute(select(table).where(table.c.cluster_id == cluster.id, table.c.closed.is_(False)))
        return {row.name: _record(ReservationRecord, row) for row in rows}

    def _put_documents(self, connection: Connection, documents: Mapping[str, bytes]) -> None:
        upsert(connection, schema.documents, [{"key": key, "body": body} for key, body in documents.items()])

    def adopt(self, request: StoreState) -> int:
        """Take the state of a controller whose older events are gone; the last stored event.

        Jobs that the database does not have get places from the range of the lost events: each began with one of those.
        """
        cluster = self.cluster(request.cluster)
        if cluster.journal != request.journal:
            raise DatabaseError(f"cluster {request.cluster} has registered with another journal since")
        ledger = cluster.ledger
        try:
            with told(), self.engine.begin() as connection:
                self._load(connection, cluster, [job.id for job in request.jobs])
                place = self._free_place(connection, cluster)
                for job in request.jobs:
                    known = ledger.jobs.get(job.id)
                    same = known is not None and known.restart_count == job.restart_count
                    if known is None or not (same and abs(known.submitted_at - job.submitted_at) < 1e-3):
                        known = record_of(place, job, ledger.keep)
                        place += 1
                        ledger.begin(known)
                        ledger.rewrite(known.eligible_at or known.started_at)
                    else:
                        ledger.rewrite(known.eligible_at)
                        describe_job(known, job, ledger.keep)
                        ledger.changes.jobs[known.number] = known
                for step in request.steps:
                    owner = ledger.jobs.get(step.job_id)
                    if owner is not None and step.step_id not in ledger.steps[owner.number]:
                        ledger.begin_step(step_record_of(owner.number, step))
                values: dict[str, Any] = {"rolled_until": set_back(self._write(connection, cluster))}
                if request.last:
                    lost = schema.clusters.c.lost + (request.sequence - cluster.sequence)
                    values |= {"sequence": request.sequence, "lost": lost}
                connection.execute(update(schema.clusters).where(schema.clusters.c.id == cluster.id).values(**values))
        except BaseException:
            self.forget()
            raise
        if request.last:
            cluster.sequence = request.sequence
        return cluster.sequence

    def _free_place(self, connection: Connection, cluster: Cluster) -> int:
        jobs = schema.jobs
        newest = select(func.max(jobs.c.number)).where(jobs.c.cluster_id == cluster.id)
        return max(cluster.base + cluster.sequence, connection.execute(newest).scalar() or 0) + 1

    def ping(self) -> float:
        """Ask the database something trivial; how long that took, seconds."""
        began = time.perf_counter()
        with told(), self.engine.connect() as connection:
            connection.execute(select(func.count()).select_from(schema.clusters))
        return time.perf_counter() - began

    def describe(self) -> str:
        """The database in words."""
        return describe(self.engine.url)


def set_back(since: float) -> Any:
    """Up to when usage is rolled up, once something of the time since then is news."""
    column, purged = schema.clusters.c.rolled_until, schema.clusters.c.purged_until
    hour = spans.floor(spans.HOUR, since) if since < 1e12 else 1 << 62
    # Records of the time before are gone: what was made of them is not made again.
    first = case((purged > hour, purged), else_=hour)
    return case((column > first, first), else_=column)


_JOB_COLUMNS = [column.name for column in schema.jobs.columns][1:]
_STEP_COLUMNS = [column.name for column in schema.steps.columns][1:]


def job_of(row: Any, cluster: str = "") -> JobRecord:
    """A row of `jobs`, all its columns."""
    return JobRecord(cluster=cluster, **dict(zip(_JOB_COLUMNS, row[1:], strict=True)))


def step_of(row: Any) -> StepRecord:
    """A row of `steps`, all its columns."""
    return StepRecord(**dict(zip(_STEP_COLUMNS, row[1:], strict=True)))


def _record(kind: Any, row: Any) -> Any:
    values = row._mapping
    return kind(**{name: values[name] for name in kind.__struct_fields__})


def _row(cluster_id: int, record: Any) -> dict[str, Any]:
    row = asdict(record)
    row["cluster_id"] = cluster_id
    row.pop("cluster", None)
    return row
