"""Connections between simulated processes: what `runtime.sockets` gives, over a network that the simulation rules.

Bytes arrive in order or not at all, as with TCP; how long they take, and how they are cut into pieces, is drawn from
the seed. A link between two hosts can be slow, or cut in one direction or both: bytes then wait, and a connection ends
when its side has waited longer than it asked the kernel to (`Pipe.expect_acknowledgements`, keep-alive). A process that
is gone closes its connections; a host without power does not, so its peers hold half-open ones.

All hosts count as one machine for the question who the peer is (`Pipe.is_same_machine`): the simulated kernel names
the user of every peer. Certificates between machines are not simulated.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from spritz.runtime.credentials import PeerCredentials
from spritz.runtime.pipe import UNSENT_BYTES_HIGH, Pipe
from spritz.runtime.sockets import AddressInUse
from spritz.timeouts import within
from spritz_testing.daemons.system import rates, threads

if TYPE_CHECKING:
    import ssl

    from spritz.runtime.sockets import OnAccept, OnRefused
    from spritz_testing.daemons.system.world import Host, Process, World

#: Seconds in which bytes cross: within a host, and between two.
_LOCAL_SECONDS = 10e-6, 100e-6
_REMOTE_SECONDS = 50e-6, 1e-3

#: Bytes that the kernels of both sides hold for a reader that does not read.
_KERNEL_BYTES = 256 * 1024

#: Seconds of silence after which a kernel asks whether its peer lives, and gives it up (`runtime.pipe.keep_alive`).
_KEEP_ALIVE_SECONDS = 60.0

#: Seconds for a connection to a host that does not answer.
_CONNECT_SECONDS = 130.0


class Network:
    """All listeners, connections and links of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._random = world.random("network")
        self._listeners: dict[tuple[str, str | int], BoundSocket] = {}
        #: in the order in which they were made: a set's order would depend on addresses in memory
        self.connections: dict[Connection, None] = {}
        #: (from, to) -> until when nothing crosses
        self._cut: dict[tuple[str, str], float] = {}
        #: (from, to) -> seconds that everything takes longer, and until when
        self._slow: dict[tuple[str, str], tuple[float, float]] = {}
        #: host -> until when its processes read nothing
        self._stalled: dict[str, float] = {}
        self._ports = 40_000
        #: called with each message's bytes that cross: (from, to, bytes)
        self.on_bytes: list[Callable[[Process, Process, bytes], None]] = []
        #: the same, when they are sent
        self.on_send: list[Callable[[Process, Process, bytes], None]] = []
        #: called when a link was cut, and when one may be whole again
        self.on_links: list[Callable[[], None]] = []

    # Faults

    def cut(self, source: str, target: str, seconds: float) -> None:
        """Nothing crosses from one host to the other for so long."""
        until = self.world.now + seconds
        self._cut[source, target] = max(until, self._cut.get((source, target), 0.0))
        self.world.at(until, self._healed)
        for connection in list(self.connections):
            connection.cut(source, target, seconds)
        self._links_changed()

    def slow(self, source: str, target: str, by_seconds: float, seconds: float) -> None:
        """All that crosses takes longer."""
        self._slow[source, target] = by_seconds, self.world.now + seconds

    def stall(self, host: str, seconds: float) -> None:
        """Processes of this host read nothing of what other hosts send."""
        until = self.world.now + seconds
        self._stalled[host] = max(until, self._stalled.get(host, 0.0))
        self.world.at(until, self._healed)

    def is_stalled(self, source: Host, target: Host) -> bool:
        return source is not target and self._stalled.get(target.name, 0.0) > self.world.now

    def reset(self, host: str) -> int:
        """Break all connections between this host and others, for both sides. Returns how many."""
        found = [one for one in self.connections if one.is_between(host)]
        for connection in found:
            connection.ends[0].reset()
        return len(found)

    def forget(self, host: str) -> int:
        """The host's kernel loses its connections with others and tells nobody. Returns how many are half open."""
        found = [one for one in self.connections if one.is_between(host)]
        for connection in found:
            for end in connection.ends:
                if end.process.host.name == host:
                    end.forget()
        return len(found)

    def is_cut(self, source: Host, target: Host) -> bool:
        return source is not target and self._cut.get((source.name, target.name), 0.0) > self.world.now

    def _healed(self) -> None:
        for connection in list(self.connections):
            connection.retransmit()
        self._links_changed()

    def _links_changed(self) -> None:
        for told in self.on_links:
            told()

    def delay(self, source: Host, target: Host) -> float:
        low, high = _LOCAL_SECONDS if source is target else _REMOTE_SECONDS
        seconds = low + (high - low) * self._random.random()
        more, until = self._slow.get((source.name, target.name), (0.0, 0.0))
        return seconds + (more * self._random.random() if until > self.world.now else 0.0)

    # Listening and connecting: as in `runtime.sockets`

    def bind(self, name: str | int) -> BoundSocket:
        process = self.world.running
        key = (process.host.name, name)
        holder = self._listeners.get(key)
        if holder is not None and holder.process.is_alive:
            raise AddressInUse(errno.EADDRINUSE, "another process listens there", str(name).replace("\0", "@"))
        if name == 0:
            self._ports += 1
            key = (process.host.name, self._ports)
        bound = BoundSocket(self, process, key)
        self._listeners[key] = bound
        process.on_end.append(lambda silently: self.unbind(bound))
        return bound

    def unbind(self, bound: BoundSocket) -> None:
        if self._listeners.get(bound.key) is bound:
            del self._listeners[bound.key]

    async def connect(self, host_name: str, name: str | int, timeout: float) -> Pipe:
        """A pipe to whoever listens there. Raises OSError (TimeoutError after `timeout` seconds)."""
        process = self.world.running
        host = self.world.find_host(host_name) if host_name else process.host
        if host is None:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        rates.note(self.world, f"{process} connects to {host.name} {name}", rates.CONNECTIONS_MAX)
        async with within(timeout):
            end = self.world.now + _CONNECT_SECONDS
            # The first packet is repeated until it is answered.
            while not host.is_up or self.is_cut(process.host, host) or self.is_cut(host, process.host):
                await asyncio.sleep(1.0)
                if self.world.now > end:
                    raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            await asyncio.sleep(self.delay(process.host, host) + self.delay(host, process.host))
        pipe = SimulatedPipe()
        self.join(process, host, name, pipe)
        return pipe

    def join(self, process: Process, host: Host, name: str | int, pipe: PipeOfEnd) -> End:
        """The process's end of a new connection to whoever listens there. Raises ConnectionRefusedError."""
        bound = self._listeners.get((host.name, name))
        if bound is None or not bound.process.is_alive or bound.on_accept is None:
            number = errno.ECONNREFUSED
            raise ConnectionRefusedError(number, os.strerror(number))
        connection = Connection(self, process, bound.process)
        self.connections[connection] = None
        connection.ends[0].made(pipe)
        on_accept = bound.on_accept

        def accept() -> None:
            connection.ends[1].made(AcceptedPipe(on_accept))

        bound.process.loop.arrive(accept)
        return connection.ends[0]


class BoundSocket:
    """As the socket that `runtime.sockets.tcp_socket` gives, and the Listener that `listen` gives."""

    family = socket.AF_INET

    def __init__(self, network: Network, process: Process, key: tuple[str, str | int]) -> None:
        self.network = network
        self.process = process
        self.key = key
        self.on_accept: OnAccept | None = None
        #: as `Listener.name`
        self.name: str | tuple[str, int] = (process.host.address, key[1]) if isinstance(key[1], int) else key[1]

    def close(self) -> None:
        self.network.unbind(self)


class PipeOfEnd(Protocol):
    """What an end tells of: a pipe of `runtime`, or a blocking socket (`blocking`)."""

    end: End

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class SimulatedPipe(Pipe):
    """A pipe whose peer the simulation knows; all else is production code."""

    end: End

    def ask_credentials(self) -> PeerCredentials | None:
        if self._transport is None:
            raise ConnectionResetError(errno.ECONNRESET, "the peer has closed the connection")
        return self.credentials

    def expect_acknowledgements(self, seconds: float) -> None:
        self.end.silent_seconds = min(self.end.silent_seconds, seconds)

    def watch_peer(self, seconds: int) -> None:
        self.end.silent_seconds = min(self.end.silent_seconds, float(seconds))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self.end
        self.is_same_machine = True
        peer = self.end.other.process
        self.credentials = PeerCredentials(pid=peer.pid, uid=peer.uid, gid=peer.uid)
        self.peer_name = f"{peer.host.name} pid {peer.pid} uid {peer.uid}"


class AcceptedPipe(SimulatedPipe):
    def __init__(self, on_accept: OnAccept) -> None:
        super().__init__()
        self._on_accept = on_accept

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._on_accept(self)


class Connection:
    """Two ends. `ends[0]` has called."""

    def __init__(self, network: Network, caller: Process, server: Process) -> None:
        self.network = network
        self.ends = (End(self, caller), End(self, server))
        self.ends[0].other, self.ends[1].other = self.ends[1], self.ends[0]
        for end in self.ends:
            end.process.on_end.append(end.process_ended)

    def is_between(self, host: str) -> bool:
        """Whether it joins this host with another one."""
        names = [end.process.host.name for end in self.ends]
        return host in names and names[0] != names[1]

    def cut(self, source: str, target: str, seconds: float) -> None:
        """A link was cut: each side gives up when it has waited as long as it wants."""
        for end in self.ends:
            hosts = end.process.host.name, end.other.process.host.name
            if (source, target) in (hosts, hosts[::-1]) and end.silent_seconds <= seconds:
                end.give_up_later()

    def retransmit(self) -> None:
        for end in self.ends:
            end.deliver_soon()

    def over(self) -> None:
        if all(end.is_over for end in self.ends):
            self.network.connections.pop(self, None)


class End(asyncio.Transport):
    """One end, as the transport of its pipe."""

    other: End

    def __init__(self, connection: Connection, process: Process) -> None:
        super().__init__()
        self.connection = connection
        self.process = process
        self.network = connection.network
        self.world = process.world
        self.pipe: PipeOfEnd | None = None
        self.silent_seconds = _KEEP_ALIVE_SECONDS
        #: sent to this end, and not read yet: bytes, or None for the end of the stream
        self._incoming: deque[bytes | None] = deque()
        self._incoming_bytes = 0
        self._delivery_due = False
        self._reading = True
        self._closing = False
        self._high = UNSENT_BYTES_HIGH
        self._told_to_pause = False
        #: when the last bytes sent to the other end will arrive: they overtake nothing
        self._arrives_at = 0.0
        self.is_over = False
        #: its process is gone with its host, which has told nobody
        self.is_silent = False

    # Life

    def made(self, pipe: PipeOfEnd) -> None:
        """The pipe of this end is there. In its process's turn."""
        if self.is_over or not self.process.is_alive:
            return
        self.pipe = pipe
        pipe.end = self
        pipe.connection_made(self)
        if self._incoming:
            self.deliver_soon()

    def process_ended(self, silently: bool) -> None:
        if self.is_over:
            return
        self.is_over = True
        self.is_silent = silently
        if silently:
            # The other kernel asks now and then (`runtime.pipe.keep_alive`, which the relay of commands sets, too).
            other = self.other
            self.world.after(
                other.silent_seconds, lambda: other.lost(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
            )
            return
        # The kernel closes it: what was sent still arrives, then the end of the stream.
        self.other.take(None)
        self.connection.over()

    def lost(self, error: Exception | None) -> None:
        """This end's pipe hears of the end, once."""
        if self.is_over:
            return
        self.is_over = True
        self._closing = True
        pipe = self.pipe
        if pipe is not None and self.process.is_alive:
            self.process.loop.arrive(pipe.connection_lost, error)
        self.connection.over()

    def reset(self, error: Exception | None = None) -> None:
        """The connection breaks for both sides, as by a reset."""
        broken = error or ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self.lost(broken)
        self.other.lost(broken)

    def forget(self) -> None:
        """This side's kernel knows the connection no more; the other side learns it when it sends or asks."""
        if not self.is_over:
            self.is_silent = True
            self.lost(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
            self.world.after(self.other.silent_seconds, self.other.reset)

    def give_up_later(self) -> None:
        """The link does not carry for as long as this side's kernel waits."""
        began = self.world.now

        def look() -> None:
            here, there = self.process.host, self.other.process.host
            is_cut = self.network.is_cut(here, there) or self.network.is_cut(there, here)
            if not self.is_over and is_cut and self.world.now - began >= self.silent_seconds - 1e-6:
                self.lost(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

        self.world.after(self.silent_seconds, look)

    # Bytes that arrive here

    def take(self, data: bytes | None) -> None:
        """The other end has sent something."""
        self._incoming.append(data)
        self._incoming_bytes += len(data or b"")
        self.deliver_soon()

    def deliver_soon(self) -> None:
        if self._delivery_due or not self._incoming or self.is_over:
            return
        self._delivery_due = True
        seconds = self.network.delay(self.other.process.host, self.process.host)
        self.world.after(seconds, self._deliver)

    def _deliver(self) -> None:
        self._delivery_due = False
        if self.is_over or not self._reading or not self._incoming or self.pipe is None:
            return
        if not self.process.when_running(self._deliver):
            return
        if self.network.is_cut(self.other.process.host, self.process.host):
            return  # `retransmit` delivers it
        if self.network.is_stalled(self.other.process.host, self.process.host):
            return  # and this
        first = self._incoming.popleft()
        if first is None:
            self.lost(None)
            return
        data = self._pieces(first)
        self._incoming_bytes -= len(data)
        for told in self.network.on_bytes:
            told(self.other.process, self.process, data)
        self.process.loop.arrive(self._receive, data)
        self.other.look_at_buffer()
        self.deliver_soon()

    def _pieces(self, first: bytes) -> bytes:
        """What one call of recv gives: often all that was sent at once, now and then less or more."""
        chance = self.world.random("network").random()
        if chance < 0.02 and len(first) > 1:
            cut = 1 + int(self.world.random("network").random() * (len(first) - 1))
            self._incoming.appendleft(first[cut:])
            return first[:cut]
        if chance < 0.2:
            while self._incoming and (following := self._incoming[0]) is not None and len(first) < 65536:
                first += following
                self._incoming.popleft()
        return first

    def _receive(self, data: bytes) -> None:
        if self.pipe is not None and not self.is_over:
            self.pipe.data_received(data)

    # asyncio.Transport, for the pipe of this end

    def write(self, data: Any) -> None:
        if self.is_over or self._closing:
            return
        other = self.other
        if other.is_over:
            if other.is_silent and other.process.host.is_up:
                self.world.after(0.001, self.reset)  # the host is up again, and knows no such connection
            elif other.is_silent:
                self.world.after(self.silent_seconds, self.reset)
            return
        for told in self.network.on_send:
            told(self.process, other.process, bytes(data))
        other.take(bytes(data))
        self.look_at_buffer()

    def look_at_buffer(self) -> None:
        """Tell the pipe when the peer does not keep up, and when it does again."""
        waiting = self.get_write_buffer_size()
        pipe = self.pipe
        if pipe is None or self.is_over:
            return
        if waiting > self._high and not self._told_to_pause:
            self._told_to_pause = True
            pipe.pause_writing()
        elif waiting <= self._high // 4 and self._told_to_pause:
            self._told_to_pause = False
            self.process.loop.arrive(pipe.resume_writing)

    def get_write_buffer_size(self) -> int:
        return max(0, self.other._incoming_bytes - _KERNEL_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = UNSENT_BYTES_HIGH if high is None else high

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.deliver_soon()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self.other.is_over:
            self.other.take(None)
        self.lost(None)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self.other.is_over:
            self.other.take(None)

    def abort(self) -> None:
        if not self.is_over:
            self._closing = True
            self.other.lost(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
            self.lost(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def network() -> Network:
    """The network of the world that runs."""
    return threads.world().network


# What stands for the functions of `runtime.sockets`.


def unix_socket(name: str, *, mode: int = 0o666) -> BoundSocket:
    return network().bind(name)


def tcp_socket(host: str, port: int) -> BoundSocket:
    return network().bind(port)


async def listen(
    bound: BoundSocket,
    on_accept: OnAccept,
    *,
    tls: Callable[[], ssl.SSLContext] | None = None,
    on_refused: OnRefused | None = None,
    plain_too: Callable[[bytes], bool] | None = None,
) -> BoundSocket:
    bound.on_accept = on_accept
    return bound


async def connect_unix(name: str, *, timeout: float = 10.0) -> Pipe:
    return await network().connect("", name, timeout)


async def connect_tcp(host: str, port: int, *, timeout: float = 10.0, tls: ssl.SSLContext | None = None) -> Pipe:
    return await network().connect(host, port, timeout)
