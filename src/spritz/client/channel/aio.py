"""Calls to a daemon from asyncio, over a single connection or one that reconnects.

The node daemon keeps a `PersistentChannel` to its controller: reports go up, and launches come down, on the same
connection. Addresses are tried in order, so the next controller is found when the first one is gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from spritz.client.channel.channel import Channel
from spritz.client.channel.handling import Handler, Handlers
from spritz.client.errors import CallTimeout, ClientError, RemoteError, RemoteHost, certificate_problem, unreachable
from spritz.client.trust.same_machine import is_own_address, plain_name
from spritz.model.errors import SpritzError
from spritz.runtime.clock import Clock, SystemClock
from spritz.runtime.randomness import Randomness, SystemRandomness, backoff
from spritz.runtime.sockets import connect_tcp, connect_unix
from spritz.runtime.tasks import Supervisor
from spritz.runtime.worker import WorkerTimeout
from spritz.timeouts import within

if TYPE_CHECKING:
    import ssl

    from spritz.runtime.log import Logger
    from spritz.runtime.pipe import Pipe

T = TypeVar("T")

_ASK_AGAIN_SECONDS = 0.002

#: Different reasons that are logged in one outage: a peer chooses its words.
_REASONS_MAX = 10

#: Seconds to reach one address if there are standby servers.
EACH_SECONDS = 3.0

#: A Unix socket's name (abstract ones start with NUL), or a TCP host and port.
Address = str | tuple[str, int]


class Secure(Struct, frozen=True):
    """TLS for daemons on other machines: their certificate must be for this cluster and role.

    `cluster` "": any cluster with the same authority. `context` is called for each connection, since certificates are
    renewed; in a thread, since it reads files.
    """

    context: Callable[[], ssl.SSLContext]
    cluster: str
    role: str


async def connect(
    addresses: Sequence[Address],
    *,
    role: str,
    log: Logger,
    table: Mapping[type[Struct], Handler] | None = None,
    tasks: Supervisor | None = None,
    owners: frozenset[int] | None = None,
    timeout: float = 10.0,
    secure: Secure | None = None,
) -> Channel:
    """A channel to the first address that can be reached; `timeout` seconds for each.

    `table`: the requests answered on this side; handlers that await need `tasks`. The server must run as one of
    `owners` (uids; by default root or this process's user); others are skipped. On other machines its certificate
    counts (`secure`); without `secure` these are skipped too. Raises ClientError, with every address in the hint.
    """
    pipe = await open_address(addresses, owners=owners, timeout=timeout, secure=secure)
    return Channel(pipe, Handlers(table or {}), role=role, accepted=False, log=log, tasks=tasks)


async def open_address(
    addresses: Sequence[Address],
    *,
    owners: frozenset[int] | None = None,
    timeout: float = 10.0,
    secure: Secure | None = None,
) -> Pipe:
    """Connect as `connect` does, for callers with their own protocol."""
    trusted = frozenset((0, os.geteuid())) if owners is None else owners
    problems: list[str] = []
    for address in addresses:
        try:
            return await _open(address, trusted, timeout, secure)
        except OSError as error:
            reason = certificate_problem(error) or error.strerror or _nameless(error, timeout)
            if isinstance(error, ConnectionResetError) and not error.errno:
                reason = "it ended the TLS handshake; its log says why"
            problems.append(f"{address_text(address)}: {reason}")
        except (RemoteHost, UnicodeError) as error:
            problems.append(str(error))
    raise unreachable("; ".join(problems) or "no address is known")


def _nameless(error: OSError, timeout: float) -> str:
    return f"no answer in {timeout:g} s" if isinstance(error, TimeoutError) else type(error).__name__


async def _open(address: Address, owners: frozenset[int], timeout: float, secure: Secure | None) -> Pipe:
    """A pipe to a server identified by the kernel (`owners`) or its certificate. Raises OSError, RemoteHost."""
    if isinstance(address, str):
        pipe = await connect_unix(address, timeout=timeout)
    else:
        pipe = await _open_tcp(*address, timeout, secure)
    if secure is not None and pipe.machine is not None and not pipe.protocol:
        pipe.abort()
        raise ConnectionRefusedError(111, "it takes no streams: it stands by")
    if secure is not None and pipe.protocol:
        machine = pipe.machine
        if machine is None or machine.role != secure.role or secure.cluster not in ("", machine.cluster):
            pipe.abort()
            identity = "nothing" if machine is None else f"{machine.role} of cluster {machine.cluster}"
            raise PermissionError(1, f"its certificate says {identity}, not {secure.role} of cluster {secure.cluster}")
        return pipe
    try:
        if not pipe.is_same_machine:
            raise RemoteHost.of_host(pipe.peer_name)
        async with within(timeout):
            # Over TCP the kernel cannot identify the server before it has accepted.
            while (credentials := pipe.ask_credentials()) is None:  # noqa: ASYNC110 - the kernel sends no event
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
    except BaseException:
        pipe.abort()
        raise
    if credentials.uid not in owners:
        pipe.abort()
        raise PermissionError(1, f"served by uid {credentials.uid}, neither root nor SlurmUser")
    return pipe


async def _open_tcp(host: str, port: int, timeout: float, secure: Secure | None) -> Pipe:
    """A pipe to the host's first address that answers; by TLS to another machine. Raises OSError, RemoteHost."""
    problem: Exception = OSError(2, "host has no address", host)
    async with within(timeout):
        resolved = await asyncio.get_running_loop().getaddrinfo(plain_name(host), port, type=socket.SOCK_STREAM)
    for family, _, _, _, address in resolved:
        is_own = is_own_address(family, address)
        if not is_own and secure is None:
            problem = RemoteHost.of_host(host if host == address[0] else f"{host} ({address[0]})")
            continue
        try:
            tls = None if is_own or secure is None else await _context_of(secure, timeout)
            return await connect_tcp(str(address[0]), port, timeout=timeout, tls=tls)
        except OSError as error:
            problem = error
    raise problem


async def _context_of(secure: Secure, timeout: float) -> ssl.SSLContext:
    """Raises OSError (TimeoutError, too), SpritzError."""
    from spritz.runtime.tls import reading  # commands do without `ssl`

    try:
        return await reading.run(secure.context, seconds=timeout)
    except WorkerTimeout as error:
        raise TimeoutError(error.message) from error


def _worse(first: SpritzError | None, error: SpritzError | OSError) -> SpritzError:
    """Both errors in the hint; the message is that of a controller that stands by, else of the second."""
    now = error if isinstance(error, SpritzError) else unreachable(str(error))
    if first is None:
        return now
    hint = "; ".join(part for part in (first.hint or first.message, now.hint or now.message) if part)
    chosen = first if first.code == "ESLURM_IN_STANDBY_MODE" else now
    return ClientError(chosen.message, code=chosen.code, hint=hint)


def address_text(address: Address) -> str:
    return address.replace("\0", "@") if isinstance(address, str) else f"{address[0]}:{address[1]}"


class PersistentChannel:
    """A channel that reconnects whenever it breaks. Use it as `async with PersistentChannel(…) as link`.

    `on_connect(channel)` runs on each new connection before it is used: to register. If it raises, the connection is
    closed and another attempt is made, with `each` at the next address, since several servers may be standbys for each
    other. Attempts are spaced by `backoff`, at most `ceiling_seconds` apart. `to`: the daemon's name, for the log.
    """

    def __init__(
        self,
        addresses: Callable[[], Sequence[Address]] | Sequence[Address],
        *,
        role: str,
        log: Logger,
        table: Mapping[type[Struct], Handler] | None = None,
        on_connect: Callable[[Channel], Awaitable[None]] | None = None,
        owners: frozenset[int] | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        ceiling_seconds: float = 5.0,
        secure: Secure | None = None,
        each: bool = False,
        to: str = "slurmctld",
    ) -> None:
        self._to = to
        self._secure = secure
        self._addresses = addresses
        self._each = each
        self._role = role
        self._log = log
        self._table = table or {}
        self._on_connect = on_connect
        self._owners = owners
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._ceiling_seconds = ceiling_seconds
        self._tasks = Supervisor(self._contained_failure)
        self._channel: Channel | None = None
        self._connected = asyncio.Event()
        #: connections made so far, including the first
        self.connections = 0
        #: address of the current or last connection, from before its `on_connect`; None before the first, or without
        #: `each`
        self.address: Address | None = None
        #: why the last attempt to connect failed
        self.problem: SpritzError | OSError | None = None

    async def __aenter__(self) -> PersistentChannel:
        await self._tasks.__aenter__()
        self._tasks.keep(self._keep_connected(), name="persistent-channel")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._channel is not None:
            self._channel.close()
        self._tasks.cancel_all()
        await self._tasks.__aexit__(kind, error, trace)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection whose `on_connect` has finished."""
        return self._connected.is_set()

    async def channel(self, *, timeout: float | None = None) -> Channel:
        """The current connection; waits for one. Raises CallTimeout after `timeout` seconds."""
        try:
            async with within(timeout):
                while self._channel is None or not self._connected.is_set():
                    await self._connected.wait()
        except TimeoutError as error:
            raise CallTimeout(
                "Unable to contact slurm controller (connect failure)", code="SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR"
            ) from error
        return self._channel

    async def call(self, request: Struct, reply_type: type[T], *, timeout: float = 30.0) -> T:
        """As `Channel.call`; `timeout` includes waiting for a connection. Not repeated if that breaks."""
        deadline = self._clock.monotonic() + timeout
        channel = await self.channel(timeout=timeout)
        return await channel.call(request, reply_type, timeout=max(0.001, deadline - self._clock.monotonic()))

    def notify(self, request: Struct) -> bool:
        """Notify the peer if there is a connection. Returns False, and sends nothing, if there is none."""
        if self._channel is None or not self._connected.is_set() or not self._channel.is_open:
            return False
        self._channel.notify(request)
        return True

    async def _keep_connected(self) -> None:
        waits = backoff(self._randomness, ceiling_seconds=self._ceiling_seconds)
        reported: set[tuple[str, str]] = set()
        while True:
            try:
                channel = await self._connect()
            except (SpritzError, OSError) as error:
                self.problem = error
                self._report(error, reported)
                await self._clock.sleep(next(waits))
                continue
            self._log.verbose("connection.made", peer=channel.pipe.peer_name)
            await channel.wait_closed()
            self._connected.clear()
            self._channel = None
            if channel.peer is None and channel.refusal is not None:  # as one of another release does
                self.problem = RemoteError(channel.refusal)
                self._report(self.problem, reported)
            else:
                reported.clear()
                waits = backoff(self._randomness, ceiling_seconds=self._ceiling_seconds)
                self._log.info("connection.lost", peer=channel.pipe.peer_name)
            await self._clock.sleep(next(waits))

    def _report(self, error: SpritzError | OSError, reported: set[tuple[str, str]]) -> None:
        """Log each reason once per outage: a daemon that is upgraded cannot be reached at first, and then may refuse
        this release.
        """
        reason = str(error), error.hint if isinstance(error, SpritzError) else ""
        if reason not in reported and len(reported) < _REASONS_MAX:
            reported.add(reason)
            text = reason[0] if self._to == "slurmctld" else reason[0].replace("slurm controller", self._to)
            self._log.error("connection.failed", to=self._to, error=text, detail=reason[1])

    async def _connect(self) -> Channel:
        addresses = list(self._addresses() if callable(self._addresses) else self._addresses)
        problem: SpritzError | None = None
        # One after the other with `on_connect`: a reachable peer may be only a standby.
        for number, address in enumerate(addresses):
            try:
                return await self._connect_to([address] if self._each else addresses[number:])
            except (SpritzError, OSError) as error:
                problem = _worse(problem, error)
                if not self._each:
                    break
        raise problem or unreachable("no address is known")

    async def _connect_to(self, addresses: Sequence[Address]) -> Channel:
        channel = await connect(
            addresses,
            role=self._role,
            log=self._log,
            table=self._table,
            tasks=self._tasks,
            owners=self._owners,
            secure=self._secure,
            timeout=EACH_SECONDS if self._each else 10.0,
        )
        self.address = addresses[0] if self._each else None
        try:
            if self._on_connect is not None:
                await self._on_connect(channel)
            if not channel.is_open:
                raise ClientError.of("SLURM_COMMUNICATIONS_CONNECTION_ERROR")
        except BaseException:
            channel.close()
            raise
        self._channel = channel
        self.connections += 1
        self._connected.set()
        return channel

    def _contained_failure(self, name: str, error: Exception) -> None:
        self._log.error("request.failed", exception=error, task=name)
