"""A server: accepts connections on any number of addresses and answers requests with a table of handlers (asyncio).

    async with Server({SubmitJob: on_submit}, role="slurmctld", log=log) as server:
        await server.listen_unix("\\0spritz/slurmctld/cluster/6817")
        await server.listen_tcp("", 6817)
        await stopping.wait()

Leaving the block stops accepting, closes every connection after what is queued for it, and waits for the handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.client.channel import Channel
from spritz.client.handling import Handler, Handlers
from spritz.runtime.sockets import Listener, listen, tcp_socket, unix_socket
from spritz.runtime.tasks import Supervisor
from spritz.wire.envelope import encode_failure, failure

if TYPE_CHECKING:
    import socket

    from spritz.client.statistics import CallStatistics
    from spritz.runtime.log import Logger
    from spritz.runtime.pipe import Pipe

#: Seconds within which a peer that has connected must say hello.
HELLO_SECONDS_MAX = 10.0

#: Seconds that closing waits for handlers and for peers to read what is queued; then they are cut off.
CLOSE_SECONDS_MAX = 5.0


class Server:
    """Answers requests. `channels` are the open connections; either side of each may ask (`Channel.call`).

    `on_connect(channel)` is called with each new connection, before anything of it was read. Above `connections_max`
    further ones are told "Resource temporarily unavailable" and closed. Requests are counted in `statistics`.
    """

    def __init__(
        self,
        table: Mapping[type[Struct], Handler],
        *,
        role: str,
        log: Logger,
        connections_max: int = 10_000,
        on_connect: Callable[[Channel], None] | None = None,
        statistics: CallStatistics | None = None,
    ) -> None:
        self._statistics = statistics
        self.channels: set[Channel] = set()
        self._handlers = Handlers(table)
        self._role = role
        self._log = log
        self._connections_max = connections_max
        self._on_connect = on_connect
        self._listeners: list[Listener] = []
        self._tasks = Supervisor(self._contained_failure)

    async def __aenter__(self) -> Server:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._close()
        finally:
            self._tasks.cancel_all()
            await self._tasks.__aexit__(kind, error, trace)

    async def listen_unix(self, name: str, *, mode: int = 0o666) -> Listener:
        """Accept on a Unix socket; abstract if the name starts with NUL. Raises AddressInUse, OSError."""
        return await self.listen_socket(unix_socket(name, mode=mode))

    async def listen_tcp(self, host: str, port: int) -> Listener:
        """Accept on a TCP port; "" for every address, port 0 for any (`Listener.name` has it). Raises as above."""
        return await self.listen_socket(tcp_socket(host, port))

    async def listen_socket(self, bound: socket.socket) -> Listener:
        """Accept on a socket that was bound before, for instance before the daemon gave up root."""
        listener = await listen(bound, self._accept)
        self._listeners.append(listener)
        return listener

    def stop_listening(self) -> None:
        """Accept no more; open connections stay."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _accept(self, pipe: Pipe) -> None:
        if len(self.channels) >= self._connections_max:
            self._log.error("connection.refused", peer=pipe.peer_name, connections=len(self.channels))
            pipe.send(encode_failure(0, failure("ESLURM_MAX_JOB_COUNT", hint="too many connections")))
            pipe.close_slowly()
            return
        channel = Channel(
            pipe,
            self._handlers,
            role=self._role,
            accepted=True,
            log=self._log,
            tasks=self._tasks,
            statistics=self._statistics,
        )
        self.channels.add(channel)
        timer = asyncio.get_running_loop().call_later(HELLO_SECONDS_MAX, self._expect_hello, channel)
        channel.on_close(lambda: self._gone(channel, timer))
        if self._on_connect is not None:
            self._on_connect(channel)

    def _expect_hello(self, channel: Channel) -> None:
        if channel.peer is None and channel.is_open:
            self._log.error("connection.silent", peer=channel.pipe.peer_name, wait_seconds=HELLO_SECONDS_MAX)
            channel.pipe.abort()

    def _gone(self, channel: Channel, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self.channels.discard(channel)

    def _contained_failure(self, name: str, error: Exception) -> None:
        self._log.error("request.failed", exception=error, task=name)

    async def _close(self) -> None:
        self.stop_listening()
        open_channels = list(self.channels)
        for channel in open_channels:
            channel.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                for channel in open_channels:
                    await channel.wait_closed()
        except TimeoutError:
            for channel in list(self.channels):
                channel.pipe.abort()
