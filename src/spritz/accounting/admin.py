"""sacctmgr requests that are not about associations or job listings: events, the daemon's state, archives, changes of
records.

Source: sacctmgr(1); slurmdbd(8).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from spritz.accounting import archive, configuration_rows, purge
from spritz.accounting.amend import end_runaway, modify_jobs
from spritz.accounting.select import need_few
from spritz.accounting.select_events import read_events
from spritz.config.schema.slurmdbd import PERIOD
from spritz.model.accounting import accounting_admin as model
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.runtime.directory import DirectoryUnavailable, uid_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeVar

    from msgspec import Struct
    from sqlalchemy.engine import Engine

    from spritz.accounting.associations.callers import Callers
    from spritz.accounting.links import Links
    from spritz.runtime.directory import Directory
    from spritz.runtime.log import Logger

    T = TypeVar("T")
    from spritz.client.channel.handling import Call, Handler
    from spritz.client.channel.statistics import CallStatistics
    from spritz.config.loaded import DbdSettings


async def _nothing() -> None:
    """Default for `stop` and `reload` in tests that have no daemon."""


class Administered(Protocol):
    """What administrators see and change of the daemon (`api.Api`)."""

    @property
    def callers(self) -> Callers: ...

    @property
    def directory(self) -> Directory: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def links(self) -> Links: ...

    @property
    def log(self) -> Logger: ...

    @property
    def rounds(self) -> dict[str, model.RollupCount]: ...

    @property
    def started_at(self) -> float: ...

    def now(self) -> float: ...

    def forget(self) -> None: ...

    async def purge_once(self, rules: purge.PurgeRules, files: list[str]) -> None: ...

    def stream(self, pieces: Iterator[T]) -> AsyncIterator[T]: ...


class AdminRequests:
    """`store` runs work on the thread that writes; `reload` reads slurmdbd.conf again; `stop` ends the daemon."""

    def __init__(
        self,
        api: Administered,
        store: Callable[..., Coroutine[Any, Any, Any]],
        statistics: CallStatistics,
    ) -> None:
        self._api = api
        self._store = store
        self.statistics = statistics
        self._since = api.now()
        #: Set by the daemon; None in tests.
        self.settings: DbdSettings | None = None
        self.reload: Callable[[], Awaitable[None]] = _nothing
        self.stop: Callable[[], None] = lambda: None

    def handlers(self) -> dict[type[Struct], Handler]:
        """Entries for the table of requests."""
        return {
            model.SelectEvents: self.events,
            model.GetDatabaseConfiguration: self.configuration,
            model.ReconfigureDatabase: self.reconfigure,
            model.ShutdownDatabase: self.shutdown,
            model.GetCallStatistics: self.call_statistics,
            model.ClearStatistics: self.clear_statistics,
            model.FixRunaway: self.fix_runaway,
            model.ModifyJobs: self.modify,
            model.ArchiveDump: self.archive_dump,
            model.ArchiveLoad: self.archive_load,
        }

    # Queries

    async def events(self, request: model.SelectEvents, call: Call) -> AsyncIterator[model.EventRecords]:
        """Streamed at the caller's pace. PrivateData=events restricts them to operators."""
        self._api.callers.uid(call)
        if self.settings is not None and "events" in self.settings.words("PrivateData"):
            await self._api.callers.need(call, "Operator", "Administrator")
        await self._api.links.catch_up(request.clusters)
        async for piece in self._api.stream(read_events(self._api.engine, request)):
            yield piece

    async def configuration(self, request: model.GetDatabaseConfiguration, call: Call) -> model.DatabaseConfiguration:
        """Open to every caller: it contains no passwords."""
        self._api.callers.uid(call)
        rows: list[tuple[str, str]] = []
        if self.settings is not None:
            try:
                slurm_uid = await self._api.directory.answer(uid_of, self.settings.text("SlurmUser"))
            except DirectoryUnavailable:
                slurm_uid = None
            rows = configuration_rows.rows(self.settings, self._api.engine.url, self._api.started_at, slurm_uid)
        return model.DatabaseConfiguration(now=self._api.now(), rows=rows)

    async def call_statistics(self, request: model.GetCallStatistics, call: Call) -> model.CallCounts:
        """Call counts by kind and by user."""
        await self._api.callers.need(call, "Operator", "Administrator")
        return model.CallCounts(
            now=self._api.now(),
            since=self._since,
            kinds=[model.CallCount(kind, int(n), int(s * 1e6)) for kind, (n, s) in self.statistics.kinds.items()],
            users=[model.CallCount(str(uid), int(n), int(s * 1e6)) for uid, (n, s) in self.statistics.users.items()],
            rollups=list(self._api.rounds.values()),
            connections=self.statistics.connections(),
        )

    # Control of the daemon

    async def clear_statistics(self, request: model.ClearStatistics, call: Call) -> Done:
        await self._api.callers.need(call, "Administrator")
        self.statistics.clear()
        self._api.rounds.clear()
        self._since = self._api.now()
        return Done()

    async def reconfigure(self, request: model.ReconfigureDatabase, call: Call) -> Done:
        """Read slurmdbd.conf again. Raises SpritzError for mistakes in it; the configuration in force then stays."""
        await self._api.callers.need(call, "Administrator")
        await self.reload()
        return Done()

    def shutdown(self, request: model.ShutdownDatabase, call: Call) -> Done:
        """Stop the daemon after this request has been answered."""
        self._api.callers.need_admin(call)
        self._api.log.info("daemon.shutdown_requested", uid=self._api.callers.uid(call))
        # after the answer has been sent
        asyncio.get_running_loop().call_soon(self.stop)
        return Done()

    # Changes of records

    async def fix_runaway(self, request: model.FixRunaway, call: Call) -> model.Changed:
        """End jobs that are open in the database but unknown to their controller."""
        await self._api.callers.need(call, "Operator", "Administrator")
        ended = await self._store(self._changing, end_runaway, self._api.engine, request.cluster, request.numbers)
        self._api.log.info("runaway.fixed", cluster=request.cluster, jobs=len(ended), uid=self._api.callers.uid(call))
        return model.Changed(names=tuple(map(str, ended)))

    async def modify(self, request: model.ModifyJobs, call: Call) -> model.Changed:
        """Change comments and codes of ended jobs."""
        need_few(request.picks)
        operator = await self._api.callers.has_level(call, "Operator", "Administrator")
        await self._api.links.catch_up((request.cluster,))
        uid = self._api.callers.uid(call)
        labels = await self._store(
            self._changing, lambda: modify_jobs(self._api.engine, request, uid, operator=operator)
        )
        return model.Changed(names=tuple(labels))

    def _changing(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run `work` on the storing thread, then drop its cached jobs: they may be out of date."""
        try:
            return work(*arguments)
        finally:
            self._api.forget()

    async def archive_dump(self, request: model.ArchiveDump, call: Call) -> model.Changed:
        """Purge now by the request's periods, writing archives first. Answers with the archives' paths."""
        self._api.callers.need_admin(call)
        rules = self.rules_of_request(request)
        files: list[str] = []
        await self._api.purge_once(rules, files)
        return model.Changed(names=tuple(files))

    def rules_of_request(self, request: model.ArchiveDump) -> purge.PurgeRules:
        """Purge and archive settings of slurmdbd.conf, overridden by those of the request. Raises SpritzError."""
        rules = purge.rules_of(self.settings) if self.settings is not None else purge.PurgeRules(periods={})
        periods = dict(rules.periods)
        for key, text in request.periods.items():
            if key not in purge.PERIODS:
                raise SpritzError(f"{key} is not supported", code="ESLURM_NOT_SUPPORTED")
            try:
                periods[key] = str(PERIOD.parse(text))
            except ValueError as error:
                raise SpritzError(f"{key}={text}: {PERIOD.accepted}") from error
        archived = set(rules.archived)
        for key, (name, _) in purge.PERIODS.items():
            if name and name in request.kinds:
                (archived.add if request.kinds[name] else archived.discard)(key)
        return replace(
            rules,
            periods=periods,
            archived=frozenset(archived),
            directory=request.directory or rules.directory,
            script=request.script or rules.script,
        )

    async def archive_load(self, request: model.ArchiveLoad, call: Call) -> model.Changed:
        """Load the records of an archive file into the database."""
        self._api.callers.need_admin(call)
        added = await self._store(self._changing, lambda: archive.load(self._api.engine, request.path, self._api.now()))
        return model.Changed(names=tuple(f"{name}: {count}" for name, count in added.items()))
