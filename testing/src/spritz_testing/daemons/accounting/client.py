"""Commands of accounting as simulated processes: sacctmgr, sacct and sreport, by the requests that they send."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from spritz.client.channel.aio import connect
from spritz.model.accounting.records import JobRecords, JobWithSteps, SelectJobs
from spritz.model.accounting.usage import AskUsage, ClusterUsage, HolderUsage, UsageReport
from spritz.model.errors import SpritzError
from spritz.model.limits.records import Book, BookEdited, GetBook
from spritz.runtime.log import Logger
from spritz.timeouts import within
from spritz_testing.daemons.accounting.policy import edit_of, is_complete
from spritz_testing.daemons.system.world import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from msgspec import Struct

    from spritz.client.channel.channel import Channel
    from spritz_testing.daemons.system.world import Host

T = TypeVar("T")

#: Seconds between attempts of a command that an administrator repeats until it succeeds.
_AGAIN_SECONDS = 1.0

#: Seconds for one request.
_ANSWER_SECONDS = 60.0


class Behind(Exception):
    """slurmdbd could not wait for the newest events of the controller."""


class DatabaseClient:
    """Asks the slurmdbd at this address, each time over a connection of its own."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    async def _connect(self) -> Channel:
        return await connect([self._address], role="command", log=Logger("command"), owners=frozenset((0,)))

    async def call(self, request: Struct, reply_type: type[T]) -> T:
        """The answer. Raises SpritzError."""
        channel = await self._connect()
        try:
            return await channel.call(request, reply_type, timeout=_ANSWER_SECONDS)
        finally:
            channel.close()

    async def stream(self, request: Struct, item_type: type[T]) -> list[T]:
        """All items of the answer. Raises SpritzError."""
        channel = await self._connect()
        try:
            async with within(_ANSWER_SECONDS), aclosing(channel.stream(request, item_type)) as items:
                return [item async for item in items]
        finally:
            channel.close()

    # sacctmgr

    async def make_policy(self) -> int:
        """Repeat until all of `policy` is there. Returns the book's version then."""
        while True:
            try:
                book = await self.call(GetBook(), Book)
                edit = edit_of(book)
                if edit is None and is_complete(book):
                    return book.version
                if edit is not None and not (await self.call(edit, BookEdited)).stale:
                    continue
            except (SpritzError, TimeoutError):
                pass  # slurmdbd is not up, or died: it may have done the edit
            await asyncio.sleep(_AGAIN_SECONDS)

    # sacct -D -a

    async def read_jobs(self, *, newest: bool = True) -> list[JobWithSteps]:
        """All lives of all jobs, with their steps. Raises SpritzError; with `newest` Behind for old answers."""
        request = SelectJobs(starts_at=0.0, duplicates=True, not_eligible=True)
        pieces = await self.stream(request, JobRecords)
        if newest and any(piece.behind for piece in pieces):
            raise Behind
        return [job for piece in pieces for job in piece.jobs]

    # sreport

    async def read_usage(self, starts_at: int, ends_at: int) -> tuple[list[ClusterUsage], list[HolderUsage]]:
        """Usage between two full hours, of the cluster and of each user of an account. Raises SpritzError."""
        pieces = await self.stream(AskUsage(starts_at=starts_at, ends_at=ends_at), UsageReport)
        return [row for piece in pieces for row in piece.clusters], [row for piece in pieces for row in piece.holders]


class Command:
    """A command on a host. `result` when it has ended; `error` instead, if it raised one."""

    def __init__(self, host: Host, name: str, main: Callable[[], Coroutine[Any, Any, Any]], uid: int = 0) -> None:
        self.process = Process(host, name, uid)
        self.process.loop.run_as(lambda: self.process.begin(main()))

    @property
    def is_over(self) -> bool:
        return not self.process.is_alive

    @property
    def result(self) -> Any:
        """What it returned. Raises its error."""
        assert self.is_over, f"{self.process} still runs"
        if self.process.error is not None:
            raise self.process.error
        return self.process.result


__all__ = ["Behind", "Command", "DatabaseClient"]
