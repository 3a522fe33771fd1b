"""Every request that `slurmdbd` takes: authorization, database work and answer.

One thread does all writing, in order. Queries run on other threads, each with a connection of its own, at most
`engine.READERS` at a time. Later requests join `handlers`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from spritz import SLURM_VERSION, __version__
from spritz.accounting import engine as engines
from spritz.accounting.admin import AdminRequests
from spritz.accounting.associations.callers import Callers
from spritz.accounting.associations.requests import BookRequests
from spritz.accounting.associations.store import ensure, read_book
from spritz.accounting.debug_flags import DebugFlags
from spritz.accounting.links import Link, Links
from spritz.accounting.purge import PurgeRules, purge
from spritz.accounting.rollup.requests import UsageRequests
from spritz.accounting.select import document_of, histories, need_few, read_jobs
from spritz.accounting.spans import next_hour
from spritz.client.channel.statistics import CallStatistics
from spritz.model.accounting import records as model
from spritz.model.accounting.accounting_admin import RollupCount
from spritz.model.errors import SpritzError
from spritz.model.federation import PassToCluster, SiblingAnswer
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.queries.events import Counters, Statistics
from spritz.runtime.directory import Directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Struct

    from spritz.accounting.store import Store
    from spritz.client.channel.handling import Call, Handler
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger

T = TypeVar("T")


class Api:
    """Answers requests. `slurm_uid`: SlurmUser's number; that user, root and the daemon's own user are administrators.
    `private`: PrivateData.
    """

    def __init__(
        self, store: Store, clock: Clock, log: Logger, slurm_uid: int, *, private: frozenset[str] = frozenset()
    ) -> None:
        self._store = store
        self._clock = clock
        self._log = self.log = log
        self.engine = store.engine
        self.directory = Directory(clock, log)
        #: unless DisableCoordDBD
        self.coordinators_change = True
        #: keys of slurmdbd.conf that are on, and DefaultQOS, in the form that `Book` has
        self.book_options: tuple[str, ...] = ()
        self.default_qos = "normal"
        #: MessageTimeout, seconds: how long a controller may take to accept a policy
        self.message_timeout = 10.0
        self.purge_rules = PurgeRules(periods={})
        self.links = Links(log)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._readers = ThreadPoolExecutor(engines.READERS, thread_name_prefix="read")
        self.reading = asyncio.Semaphore(engines.READERS)
        self.callers = Callers(store.engine, self.directory, clock, self._read_by, slurm_uid, private)
        self.started_at = clock.now()
        self.statistics_of_calls = CallStatistics()
        #: counters of periodic work, by name
        self.rounds: dict[str, RollupCount] = {}
        self.debug_flags = DebugFlags(self)
        self.admin = AdminRequests(self, self._store_by, self.statistics_of_calls)
        self.usage = UsageRequests(self, self._store_by, self._read_by)
        self._counts = {
            "events.stored_count": 0.0,
            "queries.count": 0.0,
            "batches.count": 0.0,
            "events.set_aside_count": 0.0,
        }

    def handlers(self) -> dict[type[Struct], Handler]:
        return {
            model.RegisterCluster: self.register,
            model.StoreEvents: self.store_events,
            model.StoreState: self.store_state,
            PassToCluster: self.pass_on,
            model.SelectJobs: self.select_jobs,
            model.GetDocuments: self.get_documents,
            model.AskHistory: self.ask_history,
            **BookRequests(self, self._store_by, self._read_by).handlers(),
            **self.admin.handlers(),
            **self.usage.handlers(),
            Ping: self.ping,
            Statistics: self.statistics,
        }

    async def prepare(self) -> None:
        """Add root and the default QOS to an empty database: `sacctmgr add cluster` comes before any controller."""
        await self._store_by(ensure, self.engine, "", self._clock.now(), (), self.default_qos)

    def close(self) -> None:
        """Finish the write in progress. Blocks."""
        self.directory.close()
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True, cancel_futures=True)

    def now(self) -> float:
        return self._clock.now()

    def monotonic(self) -> float:
        """Seconds of a clock that is never set back."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    # Requests of controllers

    async def _store_by(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, lambda: work(*arguments))

    async def register(self, request: model.RegisterCluster, call: Call) -> model.ClusterRegistered:
        """Register a controller, and answer from which event on it must send."""
        self.callers.need_admin(call)
        try:
            known = await self._store_by(self._store.register, request, self._clock.now())
            set_aside = await self._store_by(self._store.count_set_aside, request.cluster)
        except SpritzError as error:
            self.links.keep_out(request.cluster, error.message)
            raise
        self.links.connect(request.cluster, call.channel, known.sequence).set_aside = set_aside
        log = self._log.error if known.odd else self._log.info
        of = request.last_sequence
        log("cluster.registered", cluster=request.cluster, sequence=known.sequence, of=of, odd=known.odd)
        return model.ClusterRegistered(
            sequence=known.sequence,
            set_aside=set_aside,
            set_back_from=known.set_back_from,
            last_job_id=known.last_job_id,
        )

    async def store_events(self, request: model.StoreEvents, call: Call) -> model.EventsStored:
        """Store a batch; answered after the commit."""
        self.callers.need_admin(call)
        link = self.links.of(request.cluster, call.channel)
        try:
            sequence = await self._store_by(
                self._store.ingest, request.cluster, request.journal, request.groups, request.documents
            )
        except SpritzError as error:  # the controller sends the batch again
            self.links.refused.add(request.cluster)
            self._log.error("events.not_stored", cluster=request.cluster, after=link.stored, error=error.message)
            raise
        self._counts["events.stored_count"] += sequence - link.stored
        self._counts["batches.count"] += 1
        self._advance(link, sequence)
        return model.EventsStored(sequence=sequence, set_aside=link.set_aside)

    async def pass_on(self, request: PassToCluster, call: Call) -> SiblingAnswer:
        """Pass the request of one cluster's controller on to another's. Raises SpritzError if that cluster is unknown
        or not connected.
        """
        self.callers.need_admin(call)
        link = self.links.by_cluster.get(request.cluster)
        if link is None:
            known = any(row.name == request.cluster for row in (await self._read_by(read_book, self.engine)).clusters)
            code = "SLURM_COMMUNICATIONS_CONNECTION_ERROR" if known else "ESLURM_INVALID_CLUSTER_NAME"
            raise SpritzError(f"slurmctld of cluster {request.cluster} is not connected to slurmdbd", code=code)
        return await link.channel.call(request.request, SiblingAnswer, timeout=self.message_timeout)

    async def store_state(self, request: model.StoreState, call: Call) -> model.EventsStored:
        """Store the state of a controller whose older events are gone."""
        self.callers.need_admin(call)
        link = self.links.of(request.cluster, call.channel)
        before = link.stored
        sequence = await self._store_by(self._store.adopt, request)
        if request.last:
            self._log.error("events.lost", cluster=request.cluster, first=before + 1, last=sequence)
        self._advance(link, sequence)
        return model.EventsStored(sequence=sequence, set_aside=link.set_aside)

    def _advance(self, link: Link, sequence: int) -> None:
        for event in self._store.take_set_aside():
            link.set_aside += 1
            self._counts["events.set_aside_count"] += 1
            self._log.error(
                "event.set_aside", cluster=event.cluster, place=event.place, kind=event.kind, error=event.error
            )
        self.links.refused.discard(link.cluster)
        link.advance(sequence)

    # Purging

    def forget(self) -> None:
        """Drop cached records, so that the storing thread reads the database again."""
        self._store.forget()

    async def purge_hourly(self) -> None:
        """Purge old records now and at the start of every hour."""
        while True:
            now = self._clock.now()
            if self.purge_rules.periods:
                try:
                    await self.purge_once(self.purge_rules, [])
                except SpritzError as error:
                    self._log.error("purge.failed", error=error.message)
            await self._clock.sleep(next_hour(now) - now)

    async def purge_once(self, rules: PurgeRules, files: list[str]) -> None:
        """Purge in short transactions between batches; `files` collects the archives' paths. Raises SpritzError."""
        # Records must be rolled up into usage before they are purged.
        await self.usage.roll_due()
        now, began = self._clock.now(), self._clock.monotonic()
        pieces = purge(self._store.engine, rules, now, files)
        counts: dict[str, int] = {}
        try:
            while (piece := await self._store_by(next, pieces, None)) is not None:
                counts[piece[0]] = counts.get(piece[0], 0) + piece[1]
        finally:
            await asyncio.shield(self._store_by(_close, pieces))
            self._store.forget()
            for key, rows in counts.items():
                self._log.info("records.purged", key=key, rows=rows)
            for path in files:
                self._log.info("records.archived", path=path)
            self.count_round("purge", now, self._clock.monotonic() - began)

    def count_round(self, name: str, at: float, seconds: float) -> None:
        """Count one more run of periodic work, for `sacctmgr show stats`."""
        took = int(seconds * 1e6)
        before = self.rounds.get(name) or RollupCount(name, 0.0, 0, 0, 0, 0)
        self.rounds[name] = RollupCount(
            name, at, took, max(took, before.longest), before.total + took, before.count + 1
        )

    # Queries

    async def select_jobs(self, request: model.SelectJobs, call: Call) -> AsyncIterator[model.JobRecords]:
        """Jobs and their steps, streamed at the caller's pace.

        With PrivateData=jobs, other users' jobs are for operators and for coordinators of the account.
        """
        need_few(request.picks)
        if not request.picks:  # as in Slurm: jobs asked for by id are found regardless of the time window
            await self.callers.check_window(call, request.starts_at, request.ends_at)
        rights = await self.callers.restricted(call, "jobs")
        if rights is not None:
            request = structs.replace(
                request, owner=self.callers.uid(call), owner_accounts=tuple(sorted(rights.accounts))
            )
        self._counts["queries.count"] += 1
        behind = await self.links.catch_up(request.clusters)
        if behind:
            yield model.JobRecords(now=self._clock.now(), jobs=[], behind=tuple(behind))
        async for piece in self.stream(read_jobs(self._store.engine, request)):
            yield model.JobRecords(now=self._clock.now(), jobs=piece)

    async def stream(self, pieces: Iterator[T]) -> AsyncIterator[T]:
        """Run a blocking iterator on reading threads, item by item."""
        async with self.reading:
            try:
                while (piece := await self._read_by(next, pieces, None)) is not None:
                    yield piece
            finally:
                # On a thread too: closing rolls back and returns the connection to the pool.
                await asyncio.shield(self._read_by(_close, pieces))

    async def _read_by(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, lambda: work(*arguments))

    async def ask_history(self, request: model.AskHistory, call: Call) -> model.Histories:
        """Histories of jobs. PrivateData=jobs applies as in `select_jobs`."""
        uid = self.callers.uid(call)
        need_few(request.picks)
        rights = await self.callers.restricted(call, "jobs")
        await self.links.catch_up(request.clusters)
        query = model.SelectJobs(clusters=request.clusters, picks=request.picks, duplicates=True, not_eligible=True)
        if rights is not None:
            query = structs.replace(query, owner=uid, owner_accounts=tuple(sorted(rights.accounts)))
        async with self.reading:
            lives = await self._read_by(histories, self._store.engine, query)
        return model.Histories(now=self._clock.now(), lives=lives)

    async def get_documents(self, request: model.GetDocuments, call: Call) -> AsyncIterator[model.Documents]:
        """Scripts and environments, one at a time, for the jobs' owners and administrators only."""
        uid, admin = self.callers.uid(call), self.callers.is_admin(call)
        need_few(request.picks)
        await self.links.catch_up(request.clusters)
        query = model.SelectJobs(clusters=request.clusters, picks=request.picks, steps=False, not_eligible=True)
        async for document in self.stream(self._documents(query, request.environment, -1 if admin else uid)):
            yield model.Documents(documents=[document])

    def _documents(self, query: model.SelectJobs, environment: bool, uid: int) -> Iterator[model.Document]:
        """Documents of `uid`'s jobs (-1: of all users)."""
        for piece in read_jobs(self._store.engine, query):
            for job in (row.job for row in piece if uid in (-1, row.job.uid)):
                key = job.environment_key if environment else job.script_key
                with engines.database_errors(), self._store.engine.connect() as connection:
                    body = document_of(connection, key) if key else None
                yield model.Document(cluster=job.cluster, job=job, body=body)

    # The daemon itself

    def ping(self, request: Ping, call: Call) -> Pong:
        return Pong(
            host=os.uname().nodename,
            pid=os.getpid(),
            version=SLURM_VERSION,
            software=__version__,
            started_at=self.started_at,
            now=self._clock.now(),
        )

    def statistics(self, request: Statistics, call: Call) -> Counters:
        """Counters since the start of the daemon."""
        self.callers.need_admin(call)
        return Counters(values={**self._counts, "clusters.connected_count": float(len(self.links.by_cluster))})


def _close(pieces: Iterator[object]) -> None:
    close = getattr(pieces, "close", None)
    if close is not None:
        close()
