"""Relays commands to the cluster's daemons, on machines other than the controller's.

A `Relay` listens on the sockets that slurmctld and slurmdbd have on their own machine, so a command works as on the
controller's machine: it connects to a Unix socket, and the kernel identifies it. The relay opens a stream over its
established TLS link and vouches for the user with a credential. It also connects step supervisors to clients on other
machines, and vice versa (`hub.CLIENT`).

If the controller is away, a command waits for a link, then gets an error.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import DecodeError, ValidationError, structs
from msgspec.msgpack import Decoder, encode

from spritz.client.channel.aio import EACH_SECONDS, Address, Secure, address_text, open_address
from spritz.client.channel.log_throttle import LogThrottle
from spritz.client.channel.server import HELLO_SECONDS_MAX
from spritz.client.errors import CLOCK_QUESTION, ClientError, RemoteError
from spritz.client.relay.hub import (
    ABSENT_CLIENT,
    CLIENT,
    DAEMON,
    ECHO,
    Open,
    connect_client,
    encode_open,
    open_for_client,
)
from spritz.client.relay.mux import Mux, MuxStream, Splice
from spritz.client.relay.resumable_stream import BROKEN_SECONDS, COUNT, FORGOTTEN, LASTING, Answer, ResumableStream
from spritz.model.errors import SpritzError
from spritz.runtime.credentials import peer_credentials
from spritz.runtime.sockets import AddressInUse, unix_socket
from spritz.stepd.protocol import ABSENT, REACHED, Where
from spritz.timeouts import within
from spritz.wire.credential import LIFETIME_SECONDS, BadCredential, UserCredential, seal
from spritz.wire.envelope import Failure, encode_failure, failure, failure_of

if TYPE_CHECKING:
    from spritz.client.relay.hub import Hub
    from spritz.client.relay.peers import Peers
    from spritz.client.trust.membership import Membership
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger
    from spritz.runtime.randomness import Randomness
    from spritz.runtime.tasks import Supervisor

#: Seconds that a command waits for a link to the daemon; where controllers stand by for each other it gets the
#: controllers' answers within the time that it gives each of them (`sync.HOST_SECONDS`), and asks again.
PATIENCE_SECONDS, LEADER_SECONDS = 8.0, 1.5

#: Seconds between attempts to connect.
_AGAIN_SECONDS = 0.5

#: Seconds between looks whether a leading controller is known.
_LOOK_SECONDS = 0.1

#: Seconds between attempts to take a socket's name that another daemon of this machine holds, and between looks whether
#: that daemon runs.
_NAME_SECONDS = 0.5

_UNREACHABLE = failure(
    "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR", "Unable to contact slurm controller (connect failure)"
)
#: where slurmdbd is away, in the words of `cli.listings.acct.connect`
DATABASE_UNREACHABLE = failure(
    "SLURM_COMMUNICATIONS_CONNECTION_ERROR", "Problem talking to the database: Connection refused"
)

_user_decoder = Decoder(tuple[int, int])
_preamble_decoder = Decoder(Where)
_PREAMBLE_BYTES_MAX = 1024


#: Seals a credential in another way than with the machine's key (auth/munge); may take a while. Raises SpritzError.
Sealing = Callable[[bytes], Awaitable[bytes]]


class _Link:
    """A link to one daemon, opened on first use and again when it breaks. `addresses`: () while none is known."""

    def __init__(
        self,
        relay: Relay,
        addresses: Callable[[], Sequence[Address]],
        secure: Secure,
        sealing: Sealing | None,
        patience_seconds: float,
        silent_seconds: float,
        unreachable: Failure,
    ) -> None:
        self.patience_seconds = patience_seconds
        self._unreachable = unreachable
        #: why the last attempt to open the link failed
        self._problem: SpritzError | OSError | None = None
        self._silent_seconds = silent_seconds
        #: seals credentials; None: with the machine's key
        self.sealing = sealing
        self._relay = relay
        self._addresses = addresses
        self._secure = secure
        self._mux: Mux | None = None
        self._wanted = False
        self._made = asyncio.Event()

    def unreachable(self) -> Failure:
        """The answer to users as long as there is no link: with the address tried, and why it did not answer."""
        problem = self._problem
        if problem is None:
            text = "; ".join(f"no answer from {address_text(address)}" for address in self._addresses())
        else:
            text = problem.hint if isinstance(problem, SpritzError) else str(problem)
            if CLOCK_QUESTION in text:
                # Commands print the message alone, and users cannot know that a certificate has a time.
                return failure(BadCredential.CODE, f"{BadCredential.TEXT}: {text}")
        return structs.replace(self._unreachable, hint=text)

    async def mux(self, patience_seconds: float = PATIENCE_SECONDS) -> Mux:
        """The link; waits for one. Raises TimeoutError."""
        if self._mux is None or not self._mux.is_open:
            self.want()
            async with within(patience_seconds):
                while self._mux is None or not self._mux.is_open:
                    self._made.clear()
                    await self._made.wait()
        return self._mux

    def abandon(self) -> None:
        """The link leads to a daemon that has stopped: open another."""
        if self._mux is not None:
            self._mux.pipe.abort()

    def want(self) -> None:
        """Open the link and keep it."""
        if not self._wanted:
            self._wanted = True
            self._relay.tasks.keep_contained(self._keep, name="relay.link", clock=self._relay.clock)

    async def _keep(self) -> None:
        log, reported = self._relay.log, False
        while True:
            self._made.clear()
            addresses = self._addresses()
            if not addresses or self._relay.refusal() is not None:
                await self._relay.clock.sleep(_LOOK_SECONDS)
                continue
            try:
                timeout = EACH_SECONDS if self._silent_seconds else 10.0
                pipe = await open_address(addresses, timeout=timeout, secure=self._secure)
            except (SpritzError, OSError) as error:
                self._problem = error
                if not reported:
                    log.error("relay.failed", error=error, detail=getattr(error, "hint", ""))
                    reported = True
            else:
                reported = False
                self._problem = None
                self._mux = Mux(pipe, accepted=False, on_open=self._relay.opened, on_gone=lambda: None)
                self._made.set()
                log.verbose("relay.linked", peer=pipe.peer_name)
                if self._silent_seconds:
                    self._relay.tasks.spawn_contained(self._watch(self._mux), name="relay.watch")
                await asyncio.shield(pipe.closed)
                log.verbose("relay.lost", peer=pipe.peer_name)
            await self._relay.clock.sleep(_AGAIN_SECONDS)

    async def _watch(self, mux: Mux) -> None:
        """End a link whose daemon has stopped without closing it."""
        while True:
            await self._relay.clock.sleep(self._silent_seconds)
            if not mux.is_open:
                return
            answer = Answer()
            credential = await self._relay.sealed_by(self.sealing, os.geteuid(), os.getegid())
            mux.open(encode_open(Open(target=ECHO, credential=credential)), answer)
            try:
                async with within(self._silent_seconds):
                    await answer.first
            except TimeoutError:
                self._relay.log.error("relay.silent", peer=mux.pipe.peer_name)
                mux.pipe.abort()


class Relay:
    """Listens on socket names of remote daemons. `secure(role)`: TLS for daemons of this role."""

    def __init__(
        self,
        membership: Membership,
        cluster: str,
        *,
        tasks: Supervisor,
        clock: Clock,
        randomness: Randomness,
        log: Logger,
    ) -> None:
        self._membership = membership
        self._cluster = cluster
        self.tasks = tasks
        self.clock = clock
        self.randomness = randomness
        self.log = log
        self._complaints = LogThrottle(log)
        self._servers: list[asyncio.Server] = []
        self._over = asyncio.Event()
        self._links: list[_Link] = []
        #: clients of local users with connections from steps on other machines
        self._clients: dict[tuple[int, bytes], _Client] = {}
        #: links to other nodes, where this machine is one
        self.peers: Peers | None = None
        self.why_none_leads: Callable[[], SpritzError | OSError | None] = lambda: None

    def refusal(self) -> Failure | None:
        """The answer of a controller that has put this machine out; None while there is no such answer."""
        why = self.why_none_leads()
        return why.failure if isinstance(why, RemoteError) and why.code == "ESLURM_ACCESS_DENIED" else None

    def serve(
        self,
        name: str,
        addresses: Callable[[], Sequence[Address]],
        secure: Secure,
        *,
        streams: str = "",
        at_once: bool = False,
        sealing: Sealing | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        silent_seconds: float = 0.0,
        unreachable: Failure = _UNREACHABLE,
        yields_to: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Relay connections to the abstract socket `name` to the daemon at these addresses; and step supervisors, which
        connect to `streams`, to clients on other machines. With `silent_seconds` a daemon that does not answer for so
        long is left. `yields_to()`: whether a daemon of this machine runs that these names are for; it has them then.
        """
        link = _Link(self, addresses, secure, sealing, patience_seconds, silent_seconds, unreachable)
        if streams:
            self._links.append(link)
        if at_once:
            link.want()
        protocols: dict[str, Callable[[], asyncio.Protocol]] = {name: lambda: _Caller(self, link)}
        if streams:
            protocols[streams] = lambda: _Supervisor(self, link)
        self.tasks.keep_contained(
            lambda: self._listen(protocols, yields_to), name="relay.listen", clock=self.clock, seconds=_NAME_SECONDS
        )

    def abandon(self) -> None:
        """The leading controller is silent, or another one leads now."""
        for link in self._links:
            link.abandon()

    def close(self) -> None:
        """Stop listening; connections that are relayed already stay."""
        self._over.set()
        for server in self._servers:
            server.close()

    def sealed(self, uid: int, gid: int) -> bytes:
        """A credential for a local user, sealed with the machine's key."""
        return seal(self._credential(uid, gid), self._membership.user_key)

    async def sealed_by(self, sealing: Sealing | None, uid: int, gid: int) -> bytes:
        """The credential, sealed in the configured way. Logs and raises SpritzError."""
        if sealing is None:
            return self.sealed(uid, gid)
        try:
            return await sealing(encode(self._credential(uid, gid)))
        except SpritzError as error:
            self._complaints.write("credential.not_made", None, self.clock.monotonic(), error=error.message)
            raise

    def _credential(self, uid: int, gid: int) -> UserCredential:
        now = self.clock.now()
        return UserCredential(
            cluster=self._cluster,
            host=self._membership.host,
            uid=uid,
            gid=gid,
            issued_at=now,
            expires_at=now + LIFETIME_SECONDS,
            nonce=self.randomness.token(16),
        )

    def opened(self, stream: MuxStream, payload: bytes) -> None:
        """The controller opens a stream to a client here."""
        try:
            request = Decoder(Open).decode(payload)
            uid, _gid = _user_decoder.decode(request.credential)
        except (ValidationError, DecodeError, UnicodeDecodeError):
            stream.refuse("not understood")
            return
        if not request.lasting:
            open_for_client(stream, payload, self.tasks)
        elif not request.again:
            self.tasks.spawn_contained(self._lead_lasting(stream, uid, request), name="relay.client")
        elif (client := self._clients.get((uid, request.lasting))) is not None:
            client.attach_again(stream, request.received)
        else:
            stream.refuse(FORGOTTEN)

    async def _lead_lasting(self, stream: MuxStream, uid: int, request: Open) -> None:
        """Connect a stream to a user's client here; other streams may follow it."""
        try:
            connection = await connect_client(uid, request.address)
        except OSError as error:
            stream.refuse(f"{ABSENT_CLIENT}: {error.strerror}")
            return
        key = (uid, request.lasting)
        client = self._clients[key] = _Client(lambda: self._clients.pop(key, None))
        await asyncio.get_running_loop().create_unix_connection(lambda: client.end, sock=connection)
        client.attach_again(stream, 0)

    async def _listen(
        self, protocols: dict[str, Callable[[], asyncio.Protocol]], yields_to: Callable[[], Awaitable[bool]] | None
    ) -> None:
        """Hold these names until the relay is closed, while they are free and no other daemon should have them."""
        held: dict[str, asyncio.Server] = {}
        reported: set[str] = set()
        loop = asyncio.get_running_loop()
        try:
            while not self._over.is_set():
                if yields_to is not None and await yields_to():
                    self._give_up(held)
                else:
                    for name in sorted(protocols.keys() - held.keys()):
                        try:
                            bound = unix_socket(name)
                        except AddressInUse:
                            if name not in reported:
                                reported.add(name)
                                self.log.verbose("relay.name_taken", name=name.replace("\0", "@"))
                            continue
                        held[name] = await loop.create_unix_server(protocols[name], sock=bound)
                        self._servers.append(held[name])
                if yields_to is None and len(held) == len(protocols):
                    await self._over.wait()  # nothing to look for: a node's daemon must not wake up for it
                else:
                    await self.clock.sleep(_NAME_SECONDS)
        finally:
            self._give_up(held)

    def _give_up(self, held: dict[str, asyncio.Server]) -> None:
        """Release names; connections that are relayed already stay."""
        for server in held.values():
            server.close()
            if server in self._servers:
                self._servers.remove(server)
        held.clear()


async def listen_here(name: str, hub: Hub, tasks: Supervisor) -> asyncio.Server:
    """Connect step supervisors on the controller's machine to clients on others, until the server is closed.

    Keep a reference to the server: it ends when it is collected. Raises OSError.
    """
    loop = asyncio.get_running_loop()
    return await loop.create_unix_server(lambda: _LocalSupervisor(hub, tasks), sock=unix_socket(name))


class _Caller(asyncio.Protocol):
    """A connected command; becomes one end of a splice once there is a stream."""

    def __init__(self, relay: Relay, link: _Link) -> None:
        self._relay = relay
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # a Unix stream
        self._early = bytearray()
        self._gone = False
        self._near: Splice | ResumableStream | None = None
        caller = peer_credentials(transport.get_extra_info("socket"))
        if caller is None:
            self._transport.abort()
            return
        mux = self._link._mux
        if (refusal := self._relay.refusal()) is not None:
            self._refuse(refusal)
        elif mux is not None and mux.is_open and self._link.sealing is None:
            self._open(mux, self._relay.sealed(caller.uid, caller.gid))
        else:
            self._relay.tasks.spawn_contained(self._wait(caller.uid, caller.gid), name="relay.wait")

    async def _wait(self, uid: int, gid: int) -> None:
        try:
            mux = await self._link.mux(self._link.patience_seconds)
            credential = await self._relay.sealed_by(self._link.sealing, uid, gid)
        except TimeoutError:
            why = self._relay.why_none_leads()
            standby = isinstance(why, SpritzError) and why.code == "ESLURM_IN_STANDBY_MODE"
            self._refuse(failure_of(why) if standby else self._link.unreachable())  # type: ignore[arg-type]  # a SpritzError
            return
        except SpritzError as error:
            self._refuse(failure(BadCredential.CODE, f"{BadCredential.TEXT}: {error.message}"))
            return
        if not self._gone:
            self._open(mux, credential)

    def _refuse(self, problem: Failure) -> None:
        if not self._gone:
            self._transport.write(encode_failure(0, problem))
            self._transport.close()

    def _open(self, mux: Mux, credential: bytes) -> None:
        near, far = Splice.pair()
        near.on_refused = self._refused
        mux.open(encode_open(self._request(credential)), far)
        self.set_protocol(near)

    def _refused(self, reason: str) -> None:
        """The daemon does not take the stream, for this reason."""
        if reason.startswith(BadCredential.TEXT):
            self._refuse(failure(BadCredential.CODE, reason))
        else:
            self._refuse(structs.replace(self._link.unreachable(), hint=reason))

    def set_protocol(self, near: Splice | ResumableStream) -> None:
        """The stream to the daemon is open."""
        if self._gone:
            near.close()
            return
        self._near = near
        near.connection_made(self._transport)
        if self._early:
            near.data_received(bytes(self._early))
            self._early.clear()
        self._transport.resume_reading()

    def _request(self, credential: bytes) -> Open:
        return Open(target=DAEMON, credential=credential)

    def data_received(self, data: bytes) -> None:
        if self._near is not None:
            self._near.data_received(data)
            return
        self._early += data
        if len(self._early) > 64 * 1024:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        if self._near is not None:
            self._near.pause_writing()

    def resume_writing(self) -> None:
        if self._near is not None:
            self._near.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        if self._near is not None:
            self._near.connection_lost(error)


class _Client:
    """A client here that a step on another machine uses; between two streams it waits for a while."""

    def __init__(self, on_over: Callable[[], object]) -> None:
        self.end = ResumableStream(self._broken, self._over)
        self._on_over = on_over
        self._timer: asyncio.TimerHandle | None = None

    def attach_again(self, stream: MuxStream, taken: int) -> None:
        """Another stream leads to it."""
        self._stop_timer()
        stream.write(LASTING + COUNT.pack(self.end.received))
        self.end.attach(stream, taken)

    def _broken(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(BROKEN_SECONDS, self.end.abandon)

    def _over(self) -> None:
        self._stop_timer()
        self._on_over()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Supervisor(_Caller):
    """A step's supervisor that connects to its client; it sends the client's address first (`stepd.clients`).

    The connection to a client on another machine is resumable: when its stream breaks, another is opened.
    """

    _near: Splice | ResumableStream | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a Unix stream
        self._early = bytearray()
        self._gone = False
        self._near = None
        self._where: Where | None = None
        caller = peer_credentials(transport.get_extra_info("socket"))
        if caller is None:
            self._transport.abort()
            return
        self._uid, self._gid = caller.uid, caller.gid
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HELLO_SECONDS_MAX, self._expect)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._near is not None or self._where is not None or len(self._early) < 2:
            return
        size = int.from_bytes(self._early[:2], "big")
        if size > _PREAMBLE_BYTES_MAX:
            self._transport.abort()
        elif len(self._early) >= 2 + size:
            try:
                self._where = _preamble_decoder.decode(self._early[2 : 2 + size])
            except (ValidationError, DecodeError, UnicodeDecodeError):
                self._transport.abort()
                return
            del self._early[: 2 + size]
            self._begin()

    def _begin(self) -> None:
        """The client's address is known."""
        self._relay.tasks.spawn_contained(self._wait(self._uid, self._gid), name="relay.wait")

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(error)

    def _expect(self) -> None:
        if self._where is None:
            self._transport.abort()

    async def _wait(self, uid: int, gid: int) -> None:
        self._number = self._relay.randomness.token(16)
        self._end = ResumableStream(self._broken, lambda: None)
        try:
            stream, first = await self._ask()
        except (TimeoutError, SpritzError):
            self._transport.close()
            return
        if not first:
            if stream.reason.startswith(ABSENT_CLIENT):
                self._transport.write(ABSENT)
            self._transport.close()
        elif first.startswith(LASTING):
            self._transport.write(REACHED)
            self.set_protocol(self._end)
            self._attach(stream, first)
        else:
            # An earlier release, the controller's own machine, or another node: the stream cannot be resumed.
            near, far = Splice.pair()
            self.set_protocol(near)
            far.connection_made(stream)
            stream.set_protocol(far)
            far.data_received(first)
            stream.resume_reading()

    async def _ask(self, *, again: bool = False) -> tuple[MuxStream, bytes]:
        """A stream towards the client, and its first bytes. Raises TimeoutError, SpritzError."""
        where = self._where
        assert where is not None, "known before"
        answer = Answer()
        if where.at:
            if self._relay.peers is None:
                raise ClientError("not a node")
            peers = self._relay.peers
            stream = await peers.open(where.at, where.port, self._uid, self._gid, where.address, answer)
            return stream, await self._first(stream, answer)
        mux = await self._link.mux()
        credential = await self._relay.sealed_by(self._link.sealing, self._uid, self._gid)
        request = Open(
            target=CLIENT,
            credential=credential,
            host=where.host,
            address=where.address,
            lasting=self._number,
            received=self._end.received,
            again=again,
        )
        stream = mux.open(encode_open(request), answer)
        return stream, await self._first(stream, answer)

    async def _first(self, stream: MuxStream, answer: Answer) -> bytes:
        try:
            async with within(PATIENCE_SECONDS):
                return await answer.first
        except TimeoutError:
            stream.abort()
            raise

    def _attach(self, stream: MuxStream, first: bytes) -> None:
        count = 1 + COUNT.size
        self._end.attach(stream, COUNT.unpack(first[1:count])[0], first[count:])
        if not self._end.over:
            stream.resume_reading()

    def _broken(self) -> None:
        self._relay.tasks.spawn_contained(self._reach_again(), name="relay.again")

    async def _reach_again(self) -> None:
        """Open another stream, through the controller that leads now."""
        clock, log = self._relay.clock, self._relay.log
        deadline = clock.monotonic() + BROKEN_SECONDS
        while self._end.is_broken and clock.monotonic() < deadline:
            try:
                stream, first = await self._ask(again=True)
            except (TimeoutError, SpritzError):
                continue
            if first.startswith(LASTING):
                self._attach(stream, first)
                log.verbose("stream.continued", host=self._where.host if self._where is not None else "")
                return
            if stream.reason == FORGOTTEN:
                break
            stream.abort()
            await clock.sleep(_AGAIN_SECONDS)
        if self._end.is_broken:
            log.error(
                "stream.lost",
                host=self._where.host if self._where is not None else "",
                detail="the connection between a step and its client is lost",
            )
            self._end.abandon()


class _LocalSupervisor(_Supervisor):
    """A supervisor on the controller's own machine, where the hub is. To the hub it looks like a stream."""

    def __init__(self, hub: Hub, tasks: Supervisor) -> None:
        self._hub = hub

    def _begin(self) -> None:
        where = self._where
        assert where is not None, "known before"
        if where.at:
            self._transport.close()  # slurmd has the links to other nodes, and slurmctld this socket
            return
        request = Open(target=CLIENT, credential=b"", host=where.host, address=where.address)
        self._hub.lead(self, self._uid, self._gid, request)

    def refuse(self, reason: str) -> None:
        """Close the connection; the supervisor learns first if its client is absent."""
        if reason.startswith(ABSENT_CLIENT):
            self._transport.write(ABSENT)
        self._transport.close()

    def write(self, data: bytes) -> None:
        """Send the data to the supervisor."""
        self._transport.write(data)
