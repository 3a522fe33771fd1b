"""Requests about usage, and the schedule of the roll-up: at the start of every hour and before an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import structs

from spritz.accounting.rollup.report import reservations, usage_of
from spritz.accounting.rollup.roll import roll
from spritz.accounting.rollup.size_queries import job_sizes
from spritz.accounting.select import need_few
from spritz.accounting.spans import next_hour
from spritz.model.accounting.usage import (
    AskJobSizes,
    AskReservations,
    AskUsage,
    JobSizes,
    ReservationReport,
    UsageReport,
)
from spritz.model.errors import SpritzError
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from typing import TypeVar

    from msgspec import Struct
    from sqlalchemy.engine import Engine

    from spritz.accounting.associations.callers import Callers
    from spritz.accounting.links import Links
    from spritz.runtime.log import Logger

    T = TypeVar("T")
    from spritz.client.channel.handling import Call, Handler

#: Seconds between checks for late events that rewound the roll-up.
LOOK_SECONDS = 60.0
#: Most pieces of roll-up that an answer waits for: twenty years.
PIECES_MAX = 1_100


class Rolling(Protocol):
    """The database, who asks about it, and the time (`api.Api`)."""

    @property
    def callers(self) -> Callers: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def links(self) -> Links: ...

    @property
    def log(self) -> Logger: ...

    @property
    def reading(self) -> asyncio.Semaphore: ...

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def count_round(self, name: str, at: float, seconds: float) -> None: ...

    def stream(self, pieces: Iterator[T]) -> AsyncIterator[T]: ...


class UsageRequests:
    """`store` runs work on the single thread that writes; `read` on a thread that reads."""

    def __init__(
        self,
        api: Rolling,
        store: Callable[..., Coroutine[Any, Any, Any]],
        read: Callable[..., Coroutine[Any, Any, Any]],
    ) -> None:
        self._api = api
        self._store = store
        self._read = read

    def handlers(self) -> dict[type[Struct], Handler]:
        """Entries for the table of requests."""
        return {AskUsage: self.usage, AskJobSizes: self.job_sizes, AskReservations: self.reservations}

    # Roll-up

    async def roll_always(self) -> None:
        """Runs for ever: rolls up what is due, now and whenever more becomes due."""
        while True:
            try:
                await self.roll_due()
            except SpritzError as error:
                self._api.log.error("usage.not_rolled", error=error.message)
            now = self._api.now()
            await self._api.sleep(min(LOOK_SECONDS, max(1.0, next_hour(now) - now)))

    async def roll_due(self) -> None:
        """Roll up all that is due, one piece at a time between batches of events."""
        hours: dict[str, int] = {}
        now, began = self._api.now(), self._api.monotonic()
        for _ in range(PIECES_MAX):
            done: tuple[str, int] | None = await self._store(roll, self._api.engine, self._api.now())
            if done is None:
                break
            hours[done[0]] = hours.get(done[0], 0) + done[1]
        for cluster, count in hours.items():
            self._api.log.info("usage.rolled", cluster=cluster, hours=count)
        if hours:
            self._api.count_round("roll-up", now, self._api.monotonic() - began)

    # Queries

    async def _catch_up(self, clusters: tuple[str, ...]) -> None:
        """Wait for the controllers' newest events, and roll up what is due."""
        await self._api.links.catch_up(clusters)
        try:
            await self.roll_due()
        except SpritzError as error:  # what is rolled up so far is still worth an answer
            self._api.log.error("usage.not_rolled", error=error.message)

    async def usage(self, request: AskUsage, call: Call) -> AsyncIterator[UsageReport]:
        """Usage of clusters, accounts and users. With PrivateData=usage only operators see other users' usage."""
        rights = await self._api.callers.restricted(call, "usage")
        only = None if rights is None else rights.name
        await self._catch_up(request.clusters)
        async for piece in self._api.stream(usage_of(self._api.engine, request, only)):
            yield piece

    async def job_sizes(self, request: AskJobSizes, call: Call) -> JobSizes:
        """Jobs by size. With PrivateData=jobs only operators see other users' jobs."""
        uid = self._api.callers.uid(call)
        need_few(request.picks)
        if not request.picks:
            await self._api.callers.check_window(call, request.starts_at, request.ends_at)
        if await self._api.callers.restricted(call, "jobs") is not None:
            if request.users and uid not in request.users:
                return JobSizes(sizes=[])
            request = structs.replace(request, users=(uid,))
        await self._catch_up(request.clusters)
        async with self._api.reading:
            return JobSizes(sizes=await self._read(job_sizes, self._api.engine, request, self._api.now()))

    async def reservations(self, request: AskReservations, call: Call) -> ReservationReport:
        """Reservations. With PrivateData=reservations for operators only. Raises SpritzError."""
        if await self._api.callers.restricted(call, "reservations") is not None:
            raise SpritzError(Rejection(code="ESLURM_ACCESS_DENIED").text, code="ESLURM_ACCESS_DENIED")
        await self._api.links.catch_up(request.clusters)
        async with self._api.reading:
            usages = await self._read(reservations, self._api.engine, request, self._api.now())
        return ReservationReport(reservations=usages)
