"""Connections to slurmctld and slurmdbd for callers.

A connection has a single identity: slurmrestd's own, or that of the first token presented on it (`model.tokens`), so
callers can never get each other's privileges. If there are too many, those idle longest are closed. Each streamed
listing has its own connection, so that a slow reader does not delay other requests.

Daemons on other machines are reached with the cluster's key, where slurmrestd has it (`membership`), and otherwise by
the relay of this machine's sackd or slurmd.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from spritz.client.channel.aio import Secure, connect
from spritz.client.channel.leader import must_lead
from spritz.client.errors import ClientError, RemoteError, unreachable
from spritz.client.locate import locate_controller, locate_database
from spritz.model.errors import SpritzError
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.tokens import TokenTaken, UseToken
from spritz.rest.callers import Caller, NotAuthenticated

if TYPE_CHECKING:
    import ssl

    from spritz.client.channel.aio import Address
    from spritz.client.channel.channel import Channel
    from spritz.client.trust.membership import Membership
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger
    from spritz.runtime.tasks import Supervisor

T = TypeVar("T")

#: Most idle connections kept for further requests of their callers.
KEPT_MAX = 128

CONTROLLER, DATABASE = "slurmctld", "slurmdbd"

#: slurmrestd's name in the handshake with daemons.
ROLE = "slurmrestd"

#: Seconds for slurmctld to answer when slurmrestd is asked whether it is ready.
READY_SECONDS = 5.0


class Daemons:
    """Connections to both daemons, for all callers. `path`: the slurm.conf in use; `membership`: the cluster's key."""

    def __init__(
        self, path: str, log: Logger, tasks: Supervisor, clock: Clock, membership: Membership | None = None
    ) -> None:
        self.path = path
        self._log = log
        self._tasks = tasks
        self._clock = clock
        self._membership = membership
        self._kept: OrderedDict[tuple[str, str], Channel] = OrderedDict()

    @property
    def cluster(self) -> str:
        """ClusterName of slurm.conf, read again at each call. Raises ClientError."""
        return locate_controller(self.path).cluster_name

    @property
    def accounting_type(self) -> str:
        """AccountingStorageType of slurm.conf without `accounting_storage/`, read again at each call."""
        return locate_database(self.path).kind

    def close(self) -> None:
        for channel in self._kept.values():
            channel.close()
        self._kept.clear()

    async def channel(self, daemon: str, caller: Caller) -> Channel:
        """A connection with the caller's identity, kept for the next request. Raises ClientError, NotAuthenticated."""
        key = (daemon, fingerprint(caller))
        channel = self._kept.get(key)
        if channel is None or not channel.is_open:
            channel = await self.connect(daemon, caller)
            other = self._kept.get(key)
            if other is not None and other.is_open:
                # Another request of this caller was faster, and uses its connection by now.
                channel.close()
                channel = other
            else:
                self._kept[key] = channel
                self._make_room()
        self._kept.move_to_end(key)
        return channel

    def _make_room(self) -> None:
        for key, channel in list(self._kept.items()):
            if len(self._kept) <= KEPT_MAX:
                return
            if not channel.is_open or channel.is_idle:
                self._kept.pop(key).close()

    async def connect(self, daemon: str, caller: Caller) -> Channel:
        """A new connection with the caller's identity; the caller closes it. Raises as `channel`."""
        addresses, owners, timeout = self._place(daemon)
        secure = self._secure(daemon)
        try:
            if secure is not None and daemon == CONTROLLER and locate_controller(self.path).has_standby:
                channel = await self._leading(addresses, owners, timeout, secure)
            else:
                channel = await self._open(addresses, owners, timeout, secure)
        except ClientError as error:
            if daemon == DATABASE:
                raise _no_database(error.hint) from error
            raise
        if caller.token:
            try:
                await channel.call(UseToken(token=caller.token, user=caller.user), TokenTaken, timeout=timeout)
            except BaseException as error:
                channel.close()
                if isinstance(error, RemoteError) and error.code == "SLURM_PROTOCOL_AUTHENTICATION_ERROR":
                    raise NotAuthenticated from error
                raise
        return channel

    async def _open(
        self, addresses: Sequence[Address], owners: frozenset[int], timeout: float, secure: Secure | None
    ) -> Channel:
        return await connect(
            addresses, role=ROLE, log=self._log, tasks=self._tasks, owners=owners, timeout=timeout, secure=secure
        )

    async def _leading(
        self, addresses: Sequence[Address], owners: frozenset[int], timeout: float, secure: Secure
    ) -> Channel:
        """The controller that leads, of several. Raises ClientError."""
        problems = []
        for address in addresses:
            try:
                channel = await self._open([address], owners, timeout, secure)
            except ClientError as error:
                problems.append(error.hint)
                continue
            if isinstance(address, str):
                return channel  # of this machine, where one that stands by relays users to the leader
            try:
                await must_lead(channel)
            except SpritzError as error:
                channel.close()
                problems.append(error.hint or error.message)
            except BaseException:
                channel.close()
                raise
            else:
                return channel
        raise unreachable("; ".join(problems))

    def _secure(self, daemon: str) -> Secure | None:
        """TLS for daemons on other machines; None without the cluster's key."""
        membership = self._membership
        if membership is None:
            return None
        from spritz.runtime import tls

        # slurmdbd may serve several clusters, which then share a key
        cluster = self.cluster

        def context() -> ssl.SSLContext:
            return tls.client_context(membership.keys(cluster, tls.LOGIN, self._clock.now()))

        return Secure(context, "", tls.DATABASE) if daemon == DATABASE else Secure(context, cluster, tls.CONTROLLER)

    async def ready(self) -> None:
        """Whether slurmctld answers and leads. Raises SpritzError with what is wrong."""
        channel = await self.channel(CONTROLLER, Caller())
        pong = await channel.call(Ping(), Pong, timeout=READY_SECONDS)
        if not pong.leading:
            channel.close()
            raise SpritzError(f"{pong.host} stands by" + (f" for {pong.leader}" if pong.leader else ""))

    def _place(self, daemon: str) -> tuple[list[Address], frozenset[int], float]:
        if daemon == CONTROLLER:
            controller = locate_controller(self.path)
            ports: list[Address] = [(host, controller.port) for host in controller.hosts]
            addresses = [controller.socket_name, *ports]
            return addresses, controller.owners(), controller.message_timeout_seconds
        database = locate_database(self.path)
        if database.kind != "slurmdbd":
            raise _no_database("AccountingStorageType of slurm.conf is not accounting_storage/slurmdbd")
        return list(database.addresses), database.owners(), database.message_timeout_seconds


#: First words of the names of requests that change nothing.
_READING = ("Ask", "Explain", "Get", "List", "Ping", "Select", "Show", "Watch")


class Changes(Exception):
    """An error of this program: a request that only reads would send one that changes something."""


def only_reads(request: Struct) -> bool:
    """Whether this request to a daemon changes nothing."""
    return type(request).__name__.startswith(_READING)


class Daemon:
    """A daemon, queried with a caller's identity. `reading`: for a GET or HEAD, which must not change anything."""

    def __init__(self, daemons: Daemons, name: str, caller: Caller, *, reading: bool = False) -> None:
        self._daemons = daemons
        self._name = name
        self._caller = caller
        self._reading = reading

    async def check(self) -> None:
        """Authenticate the caller without sending a request. Raises NotAuthenticated, ClientError."""
        await self._daemons.channel(self._name, self._caller)

    async def call(self, request: Struct, reply: type[T], *, timeout: float = 30.0) -> T:
        """Send a request and return its answer. Raises RemoteError for a refusal, else ClientError."""
        self._check_kind(request)
        channel = await self._daemons.channel(self._name, self._caller)
        try:
            return await channel.call(request, reply, timeout=timeout)
        except RemoteError as error:
            if self._caller.token and error.code == "SLURM_PROTOCOL_AUTHENTICATION_ERROR":
                channel.close()
                raise NotAuthenticated from error
            raise

    async def stream(self, request: Struct, item: type[T]) -> AsyncGenerator[T, None]:
        """Items of a listing, on a connection of its own."""
        self._check_kind(request)
        channel = await self._daemons.connect(self._name, self._caller)
        try:
            async with aclosing(channel.stream(request, item)) as items:
                async for listed in items:
                    yield listed
        finally:
            channel.close()

    def _check_kind(self, request: Struct) -> None:
        if self._reading and not only_reads(request):
            raise Changes(f"{type(request).__name__} for a request that only reads")


def fingerprint(caller: Caller) -> str:
    """A key for a caller's connections, so that tokens need not be stored."""
    if not caller.token:
        return ""
    return hashlib.sha256(f"{caller.user}\0{caller.token}".encode("utf-8", "surrogateescape")).hexdigest()


def _no_database(hint: str) -> SpritzError:
    return SpritzError("Unable to connect to database", code="ESLURM_DB_CONNECTION", hint=hint)
