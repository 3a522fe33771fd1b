"""A server: accepts connections on any number of addresses and answers requests with a table of handlers (asyncio).

    async with Server({SubmitJob: on_submit}, role="slurmctld", log=log) as server:
        await server.listen_unix("\\0spritz/slurmctld/cluster/6817")
        await server.listen_tcp("", 6817)
        await stopping.wait()

Leaving the block stops accepting, closes every connection after what is queued for it, and waits for the handlers.

`admission` limits peers' connections, memory and time; a refused peer gets the limit in its error.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from spritz.client.channel.admission import Limits, Peer, Rank
from spritz.client.channel.channel import Channel, peer_of
from spritz.client.channel.handling import Handler, Handlers
from spritz.client.channel.log_throttle import LogThrottle
from spritz.client.channel.quota import OverQuota, Quotas
from spritz.client.channel.statistics import CallStatistics
from spritz.client.channel.turns import Turns
from spritz.runtime.sockets import Listener, listen, tcp_socket, unix_socket
from spritz.runtime.tasks import Supervisor
from spritz.runtime.tls import STREAMS
from spritz.timeouts import within
from spritz.wire.envelope import encode_failure, failure

if TYPE_CHECKING:
    import socket
    import ssl

    from spritz.runtime.log import Logger
    from spritz.runtime.pipe import Pipe

#: Seconds for a connected peer to say hello.
HELLO_SECONDS_MAX = 10.0

#: Descriptors reserved for the daemon's own files and processes.
OWN_DESCRIPTORS = 128

#: Refused connections kept open until their peers have read the reason; further ones are closed at once.
REFUSALS_MAX = 64

#: Checks of connections within their shortest time limit.
LOOKS = 4

#: Seconds that closing waits for handlers and for peers to read queued data; then they are cut off.
CLOSE_SECONDS_MAX = 5.0


class Streams(Protocol):
    """Takes connections of other machines' daemons that carry streams (`relay.hub`, `relay.peers`)."""

    def accept(self, pipe: Pipe) -> None: ...

    def close(self) -> None: ...


class Server:
    """Answers requests. `channels` are the open connections; either side of each may ask (`Channel.call`).

    `otherwise` answers requests that `table` does not have, unread; without it they are refused as unknown.
    `on_connect(channel)` is called with each new connection before anything was read. Requests are counted in
    `statistics`, where it is given. With `secure(…)`, peers on other machines come by TLS. Peers that run as one of
    `trusted` (uids; by default root and the daemon's own) have reserved places. `limits.connections` is lowered to the
    limit of open files.
    """

    def __init__(
        self,
        table: Mapping[type[Struct], Handler],
        *,
        role: str,
        log: Logger,
        limits: Limits | None = None,
        trusted: frozenset[int] | None = None,
        on_connect: Callable[[Channel], None] | None = None,
        statistics: CallStatistics | None = None,
        otherwise: Handler | None = None,
    ) -> None:
        self._statistics = statistics
        self.channels: dict[Channel, None] = {}
        self._tls: Callable[[], ssl.SSLContext] | None = None
        self._streams_protocol = ""
        self._hub: Streams | None = None
        self._handlers = Handlers(table, otherwise)
        self._role = role
        self._log = log
        self._limits = _within_open_files(limits or Limits())
        self._trusted = frozenset((0, os.geteuid())) if trusted is None else trusted
        self._quotas = Quotas(self._limits)
        counted = statistics or CallStatistics()
        counted.held = self._held
        self.complaints = LogThrottle(log, counted.complaints)
        self._on_connect = on_connect
        #: See `Channel.on_first_bytes`.
        self.otherwise_spoken: Callable[[Channel, bytes], bool] | None = None
        #: whether connections of other machines with these first bytes need no TLS; `otherwise_spoken` takes them
        self.plain_too: Callable[[bytes], bool] | None = None
        self._listeners: list[Listener] = []
        #: refused connections, until their peers have read the reason
        self._refused: dict[Pipe, None] = {}
        self._next_look: asyncio.TimerHandle | None = None
        self._tasks = Supervisor(self._contained_failure)
        #: the loop's time, shared among users; None until the server runs
        self.turns: Turns | None = None

    async def __aenter__(self) -> Server:
        self.turns = Turns()
        await self._tasks.__aenter__()
        self._look()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._close()
        finally:
            self._tasks.cancel_all()
            await self._tasks.__aexit__(kind, error, trace)

    def secure(self, tls: Callable[[], ssl.SSLContext], hub: Streams | None) -> None:
        """Let TCP ports opened from now on accept other machines by TLS; `hub` takes their streams.

        `tls` gives the context of the next handshake.
        """
        self._tls, self._hub, self._streams_protocol = tls, hub, STREAMS

    async def listen_unix(self, name: str, *, mode: int = 0o666) -> Listener:
        """Accept on a Unix socket; abstract if the name starts with NUL. Raises AddressInUse, OSError."""
        return await self.listen_socket(unix_socket(name, mode=mode))

    async def listen_tcp(self, host: str, port: int) -> Listener:
        """Accept on a TCP port; "" for every address, port 0 for any (`Listener.name` has it). Raises as above."""
        return await self.listen_socket(tcp_socket(host, port))

    async def listen_socket(self, bound: socket.socket) -> Listener:
        """Accept on a socket bound earlier, for instance before the daemon gave up root."""
        listener = await listen(
            bound, self._accept, tls=self._tls, on_refused=self._refused_handshake, plain_too=self.plain_too
        )
        self._listeners.append(listener)
        return listener

    def stop_listening(self) -> None:
        """Accept no more connections; open ones stay."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _refused_handshake(self, peer: str, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        self.complaints.write("connection.refused", peer, now, peer=peer, reason=reason)

    def _accept(self, pipe: Pipe) -> None:
        if pipe.protocol and pipe.protocol == self._streams_protocol:
            if self._hub is None:
                pipe.abort()
            else:
                self._hub.accept(pipe)
            return
        self.take(pipe)

    def take(self, pipe: Pipe) -> None:
        peer = peer_of(pipe)
        rank = Rank.REMOTE
        if pipe.machine is not None:
            rank = Rank.DAEMON
        elif isinstance(peer, int):
            # Daemons identify themselves in their hello.
            rank = Rank.DAEMON if peer in self._trusted else Rank.USER
        try:
            quota = self._quotas.open(peer, rank)
        except OverQuota as refused:
            self._refuse(pipe, peer, str(refused))
            return
        channel = Channel(
            pipe,
            self._handlers,
            role=self._role,
            accepted=True,
            log=self._log,
            tasks=self._tasks,
            statistics=self._statistics,
            complaints=self.complaints,
            quota=quota,
            turns=self.turns,
        )
        channel.on_first_bytes = self.otherwise_spoken
        self.channels[channel] = None
        timer = asyncio.get_running_loop().call_later(HELLO_SECONDS_MAX, self._expect_hello, channel)
        channel.on_gone = lambda: self._gone(channel, timer)
        if self._on_connect is not None:
            self._on_connect(channel)

    def _refuse(self, pipe: Pipe, peer: Peer, reason: str) -> None:
        loop = asyncio.get_running_loop()
        self.complaints.write("connection.refused", peer, loop.time(), peer=pipe.peer_name, reason=reason)
        if len(self._refused) >= REFUSALS_MAX:
            pipe.abort()
            return
        self._refused[pipe] = None
        pipe.closed.add_done_callback(lambda _: self._refused.pop(pipe, None))
        pipe.send(encode_failure(0, failure("ESLURM_MAX_JOB_COUNT", f"Resource temporarily unavailable: {reason}")))
        pipe.close_slowly()

    def _expect_hello(self, channel: Channel) -> None:
        if channel.peer is None and channel.is_open:
            channel.complain("connection.silent", wait_seconds=HELLO_SECONDS_MAX)
            channel.pipe.abort()

    def _gone(self, channel: Channel, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self.channels.pop(channel, None)

    def _look(self) -> None:
        """Check periodically for connections that exceed a time limit."""
        loop, limits = asyncio.get_running_loop(), self._limits
        now = loop.time()
        for channel in list(self.channels):
            channel.look(limits, now)
        self.complaints.flush(now)
        pause = min(limits.idle_seconds, limits.frame_seconds, limits.unread_seconds) / LOOKS
        self._next_look = loop.call_later(pause, self._look)

    def _held(self) -> dict[str, int]:
        quotas = self._quotas
        return {
            "connections": len(self.channels),
            "connections_max": self._limits.connections,
            "receiving_bytes": quotas.receiving.used + quotas.waiting.used,
            "unread_bytes": quotas.unread.used,
        }

    def _contained_failure(self, name: str, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        self.complaints.write("request.failed", None, now, exception=error, task=name)

    async def _close(self) -> None:
        self.stop_listening()
        if self._hub is not None:
            self._hub.close()
        if self._next_look is not None:
            self._next_look.cancel()
        open_channels = list(self.channels)
        for channel in open_channels:
            channel.close()
        refused = list(self._refused)
        for pipe in refused:
            pipe.abort()
        for pipe in refused:
            await pipe.closed
        try:
            async with within(CLOSE_SECONDS_MAX):
                for channel in open_channels:
                    await channel.wait_closed()
        except TimeoutError:
            for channel in list(self.channels):
                channel.pipe.abort()


def _within_open_files(limits: Limits) -> Limits:
    """Fewer connections if the limit of open files is low: else the kernel would refuse root's as well."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return limits
    most = max(files - OWN_DESCRIPTORS, files // 2)
    return structs.replace(limits, connections=min(limits.connections, most))
