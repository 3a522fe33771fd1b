"""Programs that keep a connection and follow the cluster over it, as slurmrestd does: several streams of the
asynchronous client, whose items are taken slowly.

Rule 5: while a caller is behind with a stream, reading from the peer pauses, so what waits stays bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

from spritz.client.channel import aio, channel
from spritz.client.channel.channel import Channel
from spritz.client.errors import ClientError
from spritz.model.queries.events import ChangeBatch, WatchChanges
from spritz.model.queries.jobs import JobRows, ListJobs
from spritz.timeouts import within
from spritz_testing.daemons import seam
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.machine import StoryLogger
from spritz_testing.daemons.system.world import EPOCH, Process

if TYPE_CHECKING:
    from types import ModuleType

    from spritz_testing.daemons.clients.command import Command, Data

T = TypeVar("T")

STREAMS_PAUSE = "5: a stream that is full pauses its connection"

#: Seconds until a program connects again.
_AGAIN_SECONDS = 5.0

#: SlurmctldPort, unless slurm.conf has it
_PORT = 6817

_TRUSTED = frozenset((0,))


class ObservedItems(channel._Items[T]):
    """What waits for a stream's caller, which must not grow while the peer is read from."""

    def put(self, item: T | Exception | None) -> None:
        super().put(item)
        owner = getattr(self._on_change, "__self__", None)
        is_full = self._queue.qsize() >= channel.STREAM_ITEMS_MAX
        if is_full and isinstance(owner, Channel) and owner._full_streams <= 0:
            world = threads.world()
            text = f"{world.running}: {self._queue.qsize()} items wait, and its peer is read from"
            world.violations.append((STREAMS_PAUSE, world.now - EPOCH, text))
            world.tell(f"VIOLATION {STREAMS_PAUSE}: {text}")


def follow(command: Command, data: Data) -> None:
    """Start such a program, for `data["seconds"]`; it takes an item each `data["pause"]` seconds."""
    site = command.users.site
    addresses = [(host.name, _PORT) for host in site.controllers]
    process = Process(command.process.host, "follower", command.uid)
    process.loop.run_as(lambda: process.begin(_follow(process, addresses, data["seconds"], data["pause"])))


async def _follow(process: Process, addresses: list[tuple[str, int]], seconds: float, pause: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with within(seconds):
            while True:
                with contextlib.suppress(ClientError):
                    log = StoryLogger("follower", process)
                    connection = await aio.connect(addresses, role="command", log=log, owners=_TRUSTED)
                    try:
                        await _read(connection, pause)
                    finally:
                        connection.close()
                await asyncio.sleep(_AGAIN_SECONDS)


async def _read(connection: Channel, pause: float) -> None:
    """What there is, then each change of it, over one connection."""
    async with contextlib.aclosing(connection.stream(ListJobs(fields=("id", "state"), all=True), JobRows)) as rows:
        async for _ in rows:
            await asyncio.sleep(pause / 10)
    async with contextlib.aclosing(connection.stream(WatchChanges(), ChangeBatch)) as changes:
        async for _ in changes:
            await asyncio.sleep(pause)


def _names() -> list[tuple[ModuleType, str, object]]:
    return [(channel, "_Items", ObservedItems)]


seam.NAMES.append(_names)
