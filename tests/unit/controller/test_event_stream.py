"""Subscribers to events, over real connections: together they read the journal a little at a time, hold little, and
hold up no other user.

Counted are reads of the journal, subscribers that read it at the same time, and bytes that wait for subscribers that do
not read.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.client.channel import server as server_module
from spritz.client.channel.aio import connect
from spritz.client.channel.channel import Channel
from spritz.client.channel.server import Server
from spritz.client.channel.turns import Turns
from spritz.client.errors import RemoteError
from spritz.controller.api import events as events_module
from spritz.controller.api.events import BATCH_MAX, REPLAYS_MAX, EventStream
from spritz.controller.journal.contract import Group
from spritz.controller.journal.reader import JournalReader
from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.events.codec import encode_events
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.queries.events import ChangeBatch, WatchChanges
from spritz.runtime import tasks
from spritz.runtime.log import get_logger
from spritz.wire.envelope import encode, encode_request
from spritz.wire.versions import hello
from spritz_testing.builders import World
from spritz_testing.memory_journal import MemoryJournal, MemoryStore
from tests.unit.client.conversation import LOG, abstract_name
from tests.unit.controller.heard import Heard

ALICE, BOB = 1001, 1002
JOBS = 1500
PONG = Pong(host="h", pid=1, version="", software="", started_at=0.0, now=0.0, mode="primary")

#: Bytes that may wait for one connection: what the loop may have sent before the kernel took no more, and a batch.
UNREAD_MAX = 3 * 64 * 1024


class CountedReader(JournalReader):
    """Counts how many read events at the same time."""

    def __init__(self, journal: MemoryJournal) -> None:
        super().__init__(journal)
        self.inside = 0
        self.most = 0
        self.batches = 0

    async def events(self, after: int, count: int) -> Any:
        self.inside += 1
        self.batches += 1
        self.most = max(self.most, self.inside)
        try:
            return await super().events(after, count)
        finally:
            self.inside -= 1


class Site:
    """A journal of `JOBS` submissions, one in a group, and a server that streams it; `connect` as any user."""

    def __init__(self) -> None:
        self.world = World(settings=ClusterSettings(max_job_count=100_000))
        for number in range(JOBS):
            self.world.submit(name=f"j{number}")
        self.journal = MemoryJournal(MemoryStore())
        for number, event in enumerate(self.world.events, 1):
            self.journal.append(Group(first=number, last=number, at=1.0, payload=encode_events([event])), {})
        self.last = len(self.world.events)
        self.reader = CountedReader(self.journal)
        self.heard = Heard()
        self.users: list[int] = []
        context: Any = SimpleNamespace(
            machine=self.world.machine,
            journal=self.journal,
            reader=self.reader,
            identity=SimpleNamespace(caller=self._caller),
            writer=SimpleNamespace(
                listeners=self.heard, last_sequence=self.last, durable_sequence=self.last, durable=self._durable
            ),
            log=get_logger("test"),
        )
        self.context = context
        self.stream = EventStream(context)
        self.table: dict[Any, Any] = {
            WatchChanges: self.stream.watch_changes,
            Ping: lambda request, call: PONG,
        }

    async def _durable(self) -> None:
        return

    def _caller(self, call: Any) -> Caller:
        uid = call.channel.account
        return Caller(uid=uid, gid=uid, user=str(uid), group="", groups=(), group_names=())

    @asynccontextmanager
    async def serving(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
        self.name = abstract_name()
        monkeypatch.setattr(server_module, "peer_of", lambda pipe: self.users.pop(0))
        async with Server(self.table, role="slurmctld", log=LOG, trusted=frozenset({0})) as server:
            server.turns = Turns(0.0)
            await server.listen_unix(self.name)
            yield server

    async def connect(self, uid: int) -> Channel:
        self.users.append(uid)
        return await connect([self.name], role="command", log=LOG)

    def open_and_not_read(self, uid: int, requests: int) -> socket.socket:
        """A connection with this many subscriptions from the beginning, that never reads."""
        self.users.append(uid)
        connection = socket.socket(socket.AF_UNIX)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        connection.connect(self.name)
        request = WatchChanges(since=0)
        connection.send(encode(hello("command")) + b"".join(encode_request(n + 1, request) for n in range(requests)))
        return connection


async def read_all(link: Channel) -> list[int]:
    """Numbers of all events from the beginning."""
    numbers: list[int] = []
    async with aclosing(link.stream(WatchChanges(since=0, follow=False), ChangeBatch)) as batches:
        async for batch in batches:
            numbers += [change.sequence for change in batch.changes]
    return numbers


async def until(what: Callable[[], bool]) -> None:
    while not what():  # noqa: ASYNC110  # a condition of several parts
        await asyncio.sleep(0.001)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(100):
            await story()

    tasks.run(limited())


def test_subscribers_that_do_not_read_hold_little_and_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty connections with ten subscriptions each, all from the beginning of the journal."""
    site = Site()

    async def main() -> None:
        async with site.serving(monkeypatch) as server, AsyncExitStack() as opened:
            alice = await site.connect(ALICE)
            slow = [opened.enter_context(site.open_and_not_read(BOB, 10)) for _ in range(40)]
            await until(lambda: site.stream._watchers.held(BOB) == 400)
            served = site.reader.batches
            await alice.call(Ping(), Pong)
            assert site.reader.batches - served < 20, "her request waited for more than a few of his batches"
            assert site.last - JOBS < len(await read_all(alice)) <= site.last
            # By now every slow connection has been sent what it takes.
            assert site.reader.most <= REPLAYS_MAX
            held = [channel.pipe.backlog_bytes for channel in server.channels]
            assert max(held) < UNREAD_MAX
            for connection in slow:
                connection.close()
            await until(lambda: site.stream._watchers.used == 0)
            await until(lambda: not site.reader._decoded)

    run(main)


def test_replays_at_the_same_time_share_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()

    async def main() -> None:
        async with site.serving(monkeypatch):
            first = await read_all(await site.connect(ALICE))
            reads, site.reader._decoded = site.reader.reads, type(site.reader._decoded)()
            links = [await site.connect(BOB) for _ in range(20)]
            assert await asyncio.gather(*map(read_all, links)) == [first] * 20
            assert site.reader.reads - reads <= 2 * reads
            assert site.reader.most <= REPLAYS_MAX

    run(main)


def test_a_user_may_have_no_more_subscribers_than_are_free_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "WATCHERS_MAX", 10)
    monkeypatch.setattr(events_module, "WATCHERS_KEPT", 2)
    site = Site()

    async def main() -> None:
        async with site.serving(monkeypatch):
            bob, alice = await site.connect(BOB), await site.connect(ALICE)
            streams = [bob.stream(WatchChanges(), ChangeBatch) for _ in range(4)]
            for stream in streams:
                await anext(stream)
            with pytest.raises(RemoteError, match="too many subscribers"):
                await anext(bob.stream(WatchChanges(), ChangeBatch))
            await anext(alice.stream(WatchChanges(), ChangeBatch))
            await streams[0].aclose()
            await until(lambda: site.stream._watchers.held(BOB) == 3)
            await anext(bob.stream(WatchChanges(), ChangeBatch))

    run(main)


def test_subscribers_that_follow_get_each_event_once_and_one_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()

    async def main() -> None:
        async with site.serving(monkeypatch):
            stream = (await site.connect(BOB)).stream(WatchChanges(since=site.last), ChangeBatch)
            assert (await anext(stream)).sequence == site.last
            before = len(site.world.events)
            for number in range(3 * BATCH_MAX):
                site.world.submit(name=f"new{number}")
            events = site.world.events[before:]
            site.context.writer.last_sequence = site.context.writer.durable_sequence = site.last + len(events)
            site.heard.inform(events)
            numbers: list[int] = []
            while len(numbers) < len(events):
                batch = await anext(stream)
                assert len(batch.changes) <= BATCH_MAX
                numbers += [change.sequence for change in batch.changes]
            assert numbers == list(range(site.last + 1, site.last + 1 + len(events)))

    run(main)
