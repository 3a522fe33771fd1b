"""Listening and connecting: Unix sockets (abstract ones start with NUL) and TCP, giving a `Pipe` for each connection.

A connection is tried before a stale socket file is removed, so that a second daemon cannot displace a living one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from spritz.runtime import tls as rules
from spritz.runtime.credentials import is_same_machine
from spritz.runtime.pipe import Pipe, expect_answers, socket_of
from spritz.timeouts import within

if TYPE_CHECKING:
    import ssl

#: Connections waiting to be accepted: a burst of commands from a whole cluster.
BACKLOG = 4096

#: Called with each accepted pipe, to attach a receiver.
OnAccept = Callable[[Pipe], None]


#: Seconds of silence after which a connection to another machine is given up.
SILENT_SECONDS = 20.0

#: called for failed connections: the peer's address, and the reason
OnRefused = Callable[[str, str], None]


class AddressInUse(OSError):
    """Another process listens at that address."""


class _AcceptedPipe(Pipe):
    """A pipe that reports itself to the server once the peer is known."""

    def __init__(self, on_accept: OnAccept) -> None:
        super().__init__()
        self._on_accept = on_accept

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._on_accept(self)


class Listener:
    """A listening socket. `close` stops accepting, and removes a socket file."""

    def __init__(self, server: asyncio.Server | _Secured, name: str | tuple[str, int], path: str | None = None) -> None:
        self._server = server
        self._path = path
        #: where it listens: the Unix name, or host and port (the real port, if 0 was requested)
        self.name = name

    def close(self) -> None:
        """Stop accepting connections; those that were accepted stay open."""
        self._server.close()
        if self._path is not None:
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass
            self._path = None


def unix_socket(name: str, *, mode: int = 0o666) -> socket.socket:
    """A bound, listening Unix socket; a name that starts with NUL is abstract and has no mode.

    Raises AddressInUse if a living process listens there, OSError otherwise. A dead process's file is replaced.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            listener.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if name.startswith("\0") or _answers(name):
                raise AddressInUse(
                    error.errno, "another process listens there, or it is no socket", name.replace("\0", "@")
                ) from error
            os.unlink(name)
            listener.bind(name)
        if not name.startswith("\0"):
            os.chmod(name, mode)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _answers(path: str) -> bool:
    """Whether the file is in use: no socket, or one with a listener. A dead process's socket refuses connections."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
        return True


def tcp_socket(host: str, port: int) -> socket.socket:
    """A bound, listening TCP socket; an empty host means every address, IPv6 too where there is any.

    Raises AddressInUse if a process listens there, OSError otherwise. `port` 0 lets the system choose.
    """
    everywhere = host in ("", "*")
    try:
        if everywhere and socket.has_dualstack_ipv6():
            listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server(("" if everywhere else host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(error.errno, "another process listens there", f"{host or '*'}:{port}") from error
        raise
    listener.setblocking(False)
    return listener


#: Connections accepted in one turn of the loop, each of which may need a handshake.
_ACCEPTS_PER_TURN = 4

#: Handshakes computed at once, a millisecond or two each: bounds the delay of other requests.
_TURNS = 4
#: Seconds for which one counts as being computed: at most 800 begin in a second while peers answer more slowly than
#: that, which is what a controller computes; and silent peers hold up another for little more than a second.
_TURN_SECONDS = 0.005
#: Local connections whose first bytes are awaited; beyond that, they are treated as plain ones, with the usual limits.
_LOOKING_MAX = 64


class _Secured:
    """Accepts TCP connections: plain ones from this machine, which the kernel identifies, and TLS from others.

    A peer of this machine may speak TLS too: a container that joins under a name of its own. Handshakes are bounded in
    number and time. At a bound the handshake that has waited longest for its peer makes place: else any user of a
    machine could keep that machine's daemons out by connections that say nothing.
    """

    def __init__(
        self,
        bound: socket.socket,
        make_pipe: Callable[[], Pipe],
        tls: Callable[[], ssl.SSLContext],
        on_refused: OnRefused,
        plain_too: Callable[[bytes], bool] | None,
    ) -> None:
        self._bound = bound
        self._make_pipe = make_pipe
        self._tls = tls
        self._on_refused = on_refused
        self._plain_too = plain_too
        self._rules = rules
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        #: address -> number of its handshakes
        self._shaking: Counter[str] = Counter()
        #: handshakes that wait for their peers, with the addresses and since when: the longest wait first
        self._awaited: dict[asyncio.Task[None], tuple[str, float]] = {}
        self._looking = 0
        self._turns = asyncio.Semaphore(_TURNS)
        bound.setblocking(False)
        self._loop.add_reader(bound, self._ready)

    def close(self) -> None:
        self._loop.remove_reader(self._bound)
        self._bound.close()
        for task in self._tasks:
            task.cancel()

    def _ready(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                connection, address = self._bound.accept()
                same = is_same_machine(connection)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return  # it has gone again, or there are no descriptors: the loop retries
            connection.setblocking(False)
            peer = address[0]
            if not same and not self._has_place(peer):
                connection.close()
                self._on_refused(peer, "too many handshakes are under way")
                continue
            task = self._loop.create_task(self._begin(connection, peer, same))
            self._tasks.add(task)
            if not same:
                self._shaking[peer] += 1
                self._awaited[task] = peer, self._loop.time()
            task.add_done_callback(partial(self._ended, connection, "" if same else peer))

    def _has_place(self, peer: str) -> bool:
        """Whether one more handshake may begin; ends another for it if need be."""
        if self._shaking[peer] >= self._rules.HANDSHAKES_PER_ADDRESS_MAX:
            longest = next((task for task, (address, _) in self._awaited.items() if address == peer), None)
        elif len(self._tasks) - self._looking >= self._rules.HANDSHAKES_MAX:
            longest = next(iter(self._awaited), None)
            late = self._loop.time() - self._rules.HANDSHAKE_SECONDS_LEAST
            if longest is not None and self._awaited[longest][1] > late:
                return False
        else:
            return True
        if longest is None:
            return False
        self._on_refused(self._awaited.pop(longest)[0], "too many handshakes are under way")
        return longest.cancel()

    def _ended(self, connection: socket.socket, counted: str, task: asyncio.Task[None]) -> None:
        """`counted`: the address whose handshake it was; "" for this machine."""
        self._tasks.discard(task)
        if task.cancelled():
            connection.close()  # it may not have begun
        if counted:
            self._awaited.pop(task, None)
            self._shaking[counted] -= 1
            if not self._shaking[counted]:
                del self._shaking[counted]

    async def _begin(self, connection: socket.socket, peer: str, same: bool) -> None:
        """`same`: the peer is on this machine."""
        loop = self._loop
        try:
            if same and not await self._begins_with_tls(connection):
                await loop.connect_accepted_socket(self._make_pipe, connection)
                return
            expect_answers(connection, SILENT_SECONDS)
            first = await self._first_bytes(connection)
            if self._plain_too is not None and self._plain_too(first):
                await loop.connect_accepted_socket(self._make_pipe, connection)
                return
            give_back = await self._turn()
            try:
                await loop.connect_accepted_socket(
                    self._make_pipe,
                    connection,
                    ssl=self._tls(),
                    ssl_handshake_timeout=self._rules.HANDSHAKE_SECONDS_MAX,
                    ssl_shutdown_timeout=1.0,
                )
            finally:
                give_back()
        except OSError as error:  # ssl.SSLError and TimeoutError are OSErrors
            wrong = getattr(error, "verify_message", "")  # what is wrong with the peer's certificate
            why = wrong or getattr(error, "reason", None) or error.strerror or str(error)
            why = why or "the peer closed the connection"
            self._on_refused(peer, f"TLS: {why}")
            connection.close()
        except asyncio.CancelledError:  # the listener was closed, or another handshake needs the place
            connection.close()
            raise

    async def _begins_with_tls(self, connection: socket.socket) -> bool:
        """Whether the first bytes are a TLS handshake: as a frame's length they would be too large. False for a silent
        peer.
        """
        if self._looking >= _LOOKING_MAX:
            return False
        self._looking += 1
        try:
            return (await self._first_bytes(connection))[:2] == b"\x16\x03"
        except TimeoutError:
            return False
        finally:
            self._looking -= 1

    async def _turn(self) -> Callable[[], None]:
        """Wait until few other handshakes are being computed; call the returned function when this one is over.

        A peer that answers more slowly than that does not keep others waiting.
        """
        task = asyncio.current_task()
        assert task is not None, "called by one"
        peer, _ = self._awaited.pop(task, ("", 0.0))
        await self._turns.acquire()
        given_back = False

        def give_back() -> None:
            nonlocal given_back
            if not given_back:
                given_back = True
                timer.cancel()
                self._turns.release()

        def await_peer() -> None:
            if peer:
                self._awaited[task] = peer, self._loop.time()
            give_back()

        timer = self._loop.call_later(_TURN_SECONDS, await_peer)
        return give_back

    async def _first_bytes(self, connection: socket.socket) -> bytes:
        """The peer's first bytes, without consuming them. Raises TimeoutError."""
        try:
            return connection.recv(4, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            pass
        readable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(connection, lambda: None if readable.done() else readable.set_result(None))
        try:
            async with within(self._rules.HANDSHAKE_SECONDS_MAX):
                await readable
        finally:
            self._loop.remove_reader(connection)
        return connection.recv(4, socket.MSG_PEEK)


async def listen(
    bound: socket.socket,
    on_accept: OnAccept,
    *,
    tls: Callable[[], ssl.SSLContext] | None = None,
    on_refused: OnRefused = lambda peer, reason: None,
    plain_too: Callable[[bytes], bool] | None = None,
) -> Listener:
    """Accept connections on a bound socket (from `unix_socket` or `tcp_socket`) until the Listener is closed.

    With `tls`, asked for the context of each handshake, peers on other machines must use it, unless `plain_too` accepts
    their first four bytes.
    """
    loop = asyncio.get_running_loop()

    def make_pipe() -> Pipe:
        return _AcceptedPipe(on_accept)

    if bound.family == socket.AF_UNIX:
        raw = bound.getsockname()
        name = raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else str(raw)
        server = await loop.create_unix_server(make_pipe, sock=bound, backlog=BACKLOG)
        return Listener(server, name, None if name.startswith("\0") else name)
    host, port = bound.getsockname()[:2]
    if tls is not None:
        return Listener(_Secured(bound, make_pipe, tls, on_refused, plain_too), (host, port))
    return Listener(await loop.create_server(make_pipe, sock=bound, backlog=BACKLOG), (host, port))


async def connect_unix(name: str, *, timeout: float = 10.0) -> Pipe:
    """A pipe to a Unix socket. Raises OSError (TimeoutError after `timeout` seconds)."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        async with within(timeout):
            await loop.sock_connect(connection, name)
            _, pipe = await loop.create_unix_connection(Pipe, sock=connection)
    except BaseException:
        connection.close()
        raise
    return pipe


async def connect_tcp(host: str, port: int, *, timeout: float = 10.0, tls: ssl.SSLContext | None = None) -> Pipe:
    """A pipe to a TCP port, each address of the host in turn. Raises OSError (TimeoutError after `timeout` s)."""
    loop = asyncio.get_running_loop()
    async with within(timeout):
        if tls is None:
            _, pipe = await loop.create_connection(Pipe, host, port)
        else:
            transport, pipe = await loop.create_connection(
                Pipe, host, port, ssl=tls, server_hostname="", ssl_shutdown_timeout=1.0
            )
            with socket_of(transport) as connection:
                expect_answers(connection, SILENT_SECONDS)
    return pipe
