"""The store: writes batches of events, each in one transaction with the place that it reaches.

One thread does all writing; `select` reads on connections of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import asdict
from sqlalchemy import Connection, Engine, case, func, insert, select, update

from spritz.accounting import events as codec
from spritz.accounting import schema, spans
from spritz.accounting.engine import DatabaseError, ValueRefused, database_errors, describe
from spritz.accounting.ledger.ledger import Ledger
from spritz.accounting.upsert import upsert
from spritz.model import stored
from spritz.model.accounting.accounting_of import describe as describe_job
from spritz.model.accounting.accounting_of import record_of, step_record_of
from spritz.model.accounting.records import (
    EventGroup,
    JobRecord,
    NodeEventRecord,
    RegisterCluster,
    ReservationRecord,
    SetAside,
    StepRecord,
    StoreState,
)
from spritz.model.errors import SpritzError
from spritz.model.job.record import Job

if TYPE_CHECKING:
    from spritz.model.events import Event
    from spritz.model.job.step import Step

#: Jobs in memory after which a ledger is emptied between batches.
LEDGER_JOBS_MAX = 20_000

#: Parameters of one IN list.
_IN = 500


class Cluster:
    """A cluster's row. `place` = `base` + sequence number."""

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


class Registration(NamedTuple):
    """The last stored event of the controller's journal, and a warning ("": none). The rest as in
    `ClusterRegistered`.
    """

    sequence: int
    odd: str = ""
    set_back_from: int = 0
    last_job_id: int = 0


class Store:
    """The database behind one engine. Methods raise DatabaseError; a failed batch changes nothing.

    An event that cannot be stored must not block the events after it: it goes to `events_set_aside`, whole, and
    `take_set_aside` reports it once.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._clusters: dict[str, Cluster] = {}
        self._set_aside: list[SetAside] = []

    def migrate(self) -> tuple[str | None, str | None]:
        """Upgrade the tables to this release. Returns the revisions before and after."""
        with database_errors(), self.engine.begin() as connection:
            before = schema.revision(connection)
            if before == schema.REVISION:
                return before, before
            from spritz.accounting import migrations  # costs more to import than everything else here

            migrations.upgrade(connection)
            return before, schema.revision(connection)

    def forget(self) -> None:
        """Drop all cached state after a failure: the database alone counts."""
        self._clusters.clear()

    def cluster(self, name: str) -> Cluster:
        """A registered cluster. Raises DatabaseError if it never registered."""
        known = self._clusters.get(name)
        if known is None:
            with database_errors(), self.engine.connect() as connection:
                row = connection.execute(select(schema.clusters).where(schema.clusters.c.name == name)).first()
            if row is None:
                raise DatabaseError(f"cluster {name} is not registered", temporary=False)
            known = self._clusters[name] = Cluster(row)
        return known

    def register(self, request: RegisterCluster, now: float) -> Registration:
        """Register a controller.

        Raises UnreadableEvents for a controller whose events this release may not understand.
        """
        if request.format > stored.FORMAT:
            raise codec.UnreadableEvents(
                f"slurmctld of cluster {request.cluster} writes events of format {request.format}; "
                f"this slurmdbd reads up to format {stored.FORMAT}"
            )
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
        odd, set_back_from, last_job_id = "", 0, 0
        with database_errors(), self.engine.begin() as connection:
            row = connection.execute(select(table).where(table.c.name == request.cluster)).first()
            if row is None:
                fresh |= {"name": request.cluster, "base": 0, "journal": request.journal, "sequence": 0}
                connection.execute(insert(table).values(created_at=now, lost=0, **fresh))
                return Registration(0)
            sequence = row.sequence
            if row.journal != request.journal:
                # Sequence numbers restart; places continue after the last one.
                odd = "another journal: its state was cleared"
                fresh |= {"journal": request.journal, "base": row.base + row.sequence, "sequence": 0}
                sequence = 0
            elif row.sequence > request.last_sequence:
                # The state directory was restored from a backup: events after this one differ from those stored.
                odd = f"its journal was set back from event {row.sequence} to {request.last_sequence}"
                sequence = request.last_sequence
                fresh |= {"base": row.base + row.sequence - sequence, "sequence": sequence}
                set_back_from = row.sequence
                ids = select(func.max(schema.jobs.c.job_id)).where(schema.jobs.c.cluster_id == row.id)
                last_job_id = connection.execute(ids).scalar() or 0
            connection.execute(update(table).where(table.c.id == row.id).values(**fresh))
        return Registration(sequence, odd, set_back_from, last_job_id)

    # Storing events

    def ingest(
        self, name: str, journal: int, groups: Iterable[EventGroup], documents: Mapping[str, bytes] | None = None
    ) -> int:
        """Store events. Returns the last stored one. Events that are stored already are skipped.

        Raises DatabaseError, also if events are missing before the first one.
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
        self._store(name, events, at, documents or {})
        return at

    def _store(self, name: str, events: list[tuple[int, Event]], sequence: int, documents: Mapping[str, bytes]) -> None:
        """Store events up to `sequence`, in one transaction if possible.

        If a value is refused, the batch is halved until the faulty event is alone, which is then set aside.
        """
        try:
            self._store_together(name, events, sequence, documents)
        except ValueRefused as refused:
            if len(events) > 1:
                middle = len(events) // 2
                reached = events[middle - 1][0] - self.cluster(name).base
                self._store(name, events[:middle], reached, documents)
                self._store(name, events[middle:], sequence, {})
            elif events:
                place, event = events[0]
                with self._transaction() as connection:
                    cluster = self.cluster(name)
                    self._put_aside(connection, cluster, place, event, refused)
                    self._advance(connection, cluster, sequence, math.inf)
                cluster.sequence = sequence
            else:
                raise

    def _store_together(
        self, name: str, events: list[tuple[int, Event]], sequence: int, documents: Mapping[str, bytes]
    ) -> None:
        cluster = self.cluster(name)
        with self._transaction() as connection:
            since = self._apply(connection, cluster, events)
            if documents:
                self._put_documents(connection, documents)
            self._advance(connection, cluster, sequence, since)
        cluster.sequence = sequence
        if len(cluster.ledger.jobs) > LEDGER_JOBS_MAX:
            cluster.ledger.jobs.clear()
            cluster.ledger.steps.clear()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """A transaction for data of a controller. On failure cached state is dropped and DatabaseError raised."""
        try:
            with database_errors(), self.engine.begin() as connection:
                yield connection
        except BaseException:
            self.forget()
            raise

    def _put_aside(
        self, connection: Connection, cluster: Cluster, place: int, what: Event | Job, refused: ValueRefused
    ) -> None:
        kind = type(what).__name__
        # The message may quote the text that the database could not hold.
        error = refused.message.encode("ascii", "backslashreplace").decode().replace("\0", "\\0")
        at = what.submitted_at if isinstance(what, Job) else what.at
        row = {"cluster_id": cluster.id, "place": place, "at": at, "kind": kind, "error": error}
        upsert(connection, schema.events_set_aside, [{**row, "body": stored.encode(what)}])
        self._set_aside.append(SetAside(cluster=cluster.name, place=place, kind=kind, error=error))

    def take_set_aside(self) -> list[SetAside]:
        """Events set aside since the last call."""
        taken, self._set_aside = self._set_aside, []
        return taken

    def count_set_aside(self, name: str) -> int:
        """Number of events of a cluster that were ever set aside."""
        table = schema.events_set_aside
        with database_errors(), self.engine.connect() as connection:
            count = connection.execute(
                select(func.count()).select_from(table).where(table.c.cluster_id == self.cluster(name).id)
            )
            return int(count.scalar() or 0)

    def _advance(self, connection: Connection, cluster: Cluster, sequence: int, since: float) -> None:
        """Move the cluster's place, unless another daemon has: then this daemon's ledger is out of date and the batch
        fails.

        Usage rolled up beyond `since` is to be rolled up again.
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
        with _faults():
            for place, event in events:
                ledger.apply(place, event)
        return self._write(connection, cluster)

    def _write(self, connection: Connection, cluster: Cluster) -> float:
        """Write the ledger's changes. Returns the earliest time whose usage they affect."""
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
            piece = job_ids[start : start + _IN]
            newest = (
                select(func.max(jobs.c.number))
                .where(jobs.c.cluster_id == cluster.id, jobs.c.job_id.in_(piece), jobs.c.aside.is_(False))
                .group_by(jobs.c.job_id)
            )
            numbers = [row[0] for row in connection.execute(newest)]
            rows = connection.execute(select(jobs).where(jobs.c.cluster_id == cluster.id, jobs.c.number.in_(numbers)))
            open_steps: dict[int, list[StepRecord]] = {}
            running = select(steps).where(
                steps.c.cluster_id == cluster.id, steps.c.job_id.in_(piece), steps.c.ended_at == 0.0
            )
            for row in connection.execute(running):
                step = step_of(row)
                open_steps.setdefault(step.job_id, []).append(step)
            records = {record.job_id: record for record in map(job_of, rows)}
            for job_id in piece:
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
        """Take over the state of a controller whose older events are gone. Returns the last stored event.

        Jobs that the database lacks get places from the range of the lost events: one of those began each of them.
        """
        cluster = self.cluster(request.cluster)
        if cluster.journal != request.journal:
            raise DatabaseError(f"cluster {request.cluster} has registered with another journal since")
        steps: dict[int, list[Step]] = {}
        for step in request.steps:
            steps.setdefault(step.job_id, []).append(step)
        self._adopt_jobs(request.cluster, request.jobs, steps)
        cluster = self.cluster(request.cluster)
        if request.last:
            with self._transaction() as connection:
                lost = schema.clusters.c.lost + (request.sequence - cluster.sequence)
                connection.execute(
                    update(schema.clusters)
                    .where(schema.clusters.c.id == cluster.id)
                    .values(sequence=request.sequence, lost=lost)
                )
            cluster.sequence = request.sequence
        return cluster.sequence

    def _adopt_jobs(self, name: str, jobs: Sequence[Job], steps: Mapping[int, list[Step]]) -> None:
        """Store jobs with their steps. If a value is refused, halves the list until the faulty job is alone and set
        aside.
        """
        try:
            self._adopt_together(name, jobs, steps)
        except ValueRefused as refused:
            if len(jobs) > 1:
                middle = len(jobs) // 2
                self._adopt_jobs(name, jobs[:middle], steps)
                self._adopt_jobs(name, jobs[middle:], steps)
            elif jobs:
                with self._transaction() as connection:
                    cluster = self.cluster(name)
                    self._put_aside(connection, cluster, self._free_place(connection, cluster), jobs[0], refused)
            else:
                raise

    def _adopt_together(self, name: str, jobs: Sequence[Job], steps: Mapping[int, list[Step]]) -> None:
        cluster = self.cluster(name)
        ledger = cluster.ledger
        with self._transaction() as connection:
            self._load(connection, cluster, [job.id for job in jobs])
            place = self._free_place(connection, cluster)
            with _faults():
                for job in jobs:
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
                    for step in steps.get(job.id, ()):
                        if step.step_id not in ledger.steps[known.number]:
                            ledger.begin_step(step_record_of(known.number, step))
            values = {"rolled_until": set_back(self._write(connection, cluster))}
            connection.execute(update(schema.clusters).where(schema.clusters.c.id == cluster.id).values(**values))

    def _free_place(self, connection: Connection, cluster: Cluster) -> int:
        jobs = schema.jobs
        newest = select(func.max(jobs.c.number)).where(jobs.c.cluster_id == cluster.id)
        aside = schema.events_set_aside
        newest_aside = select(func.max(aside.c.place)).where(aside.c.cluster_id == cluster.id)
        taken = (connection.execute(query).scalar() or 0 for query in (newest, newest_aside))
        return max(cluster.base + cluster.sequence, *taken) + 1

    def ping(self) -> float:
        """Round-trip time of a trivial query, seconds."""
        began = time.perf_counter()
        with database_errors(), self.engine.connect() as connection:
            connection.execute(select(func.count()).select_from(schema.clusters))
        return time.perf_counter() - began

    def describe(self) -> str:
        """The database's URL without its password."""
        return describe(self.engine.url)


@contextmanager
def _faults() -> Iterator[None]:
    """Turns an exception of our own code into ValueRefused, so that the event at fault is set aside."""
    try:
        yield
    except (SpritzError, MemoryError):
        raise
    except Exception as error:
        raise ValueRefused(f"{type(error).__name__}: {error}") from error


def set_back(since: float) -> Any:
    """The new end of the roll-up after records since `since` changed."""
    column, purged = schema.clusters.c.rolled_until, schema.clusters.c.purged_until
    hour = spans.floor(spans.HOUR, since) if since < 1e12 else 1 << 62
    # Records before that are purged: their usage is not computed again.
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
