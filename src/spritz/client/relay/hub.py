"""The daemon's side of relayed connections: streams that local daemons of other machines open for their users.

A stream is either a user's connection to this daemon, treated like any other (`on_pipe`), or it leads to a client
(srun, sattach) that listens on another machine, and is forwarded to the daemon there. Each stream begins with a
credential of the user, sealed by its machine; streams with an invalid credential are refused and logged.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import DecodeError, Struct, ValidationError, structs
from msgspec.msgpack import Decoder, Encoder

from spritz.client.channel.channel import peer_of
from spritz.client.relay.mux import Mux, MuxStream, Splice
from spritz.model.errors import SpritzError
from spritz.runtime.credentials import PeerCredentials, peer_credentials
from spritz.runtime.pipe import Pipe
from spritz.runtime.tls import LOGIN, NODE
from spritz.stepd.protocol import REACHED
from spritz.wire.credential import BadCredential, Taken, UserCredential, unseal

if TYPE_CHECKING:
    from spritz.client.channel.log_throttle import LogThrottle
    from spritz.client.trust.membership import Membership
    from spritz.runtime.clock import Clock
    from spritz.runtime.tasks import Supervisor
    from spritz.runtime.tls import Machine

DAEMON, CLIENT = "daemon", "client"

#: target of a stream that is refused, which shows that the daemon answers
ECHO = "echo"

#: First words of the reason why a stream is refused whose client does not listen.
ABSENT_CLIENT = "the client cannot be reached"

#: Only sockets of such names are connected to on behalf of others: those that commands create for steps
#: (cli.jobs.launch.listener).
_CLIENT_PREFIX = "unix:@spritz-"

#: Links of one machine: a restarted daemon connects before its old link is known to be dead.
_LINKS_PER_MACHINE = 8


class Open(Struct, frozen=True, kw_only=True, array_like=True):
    """First word of a stream. `host` and `address` identify the client.

    `lasting` is the secret number of a connection that outlives the stream (`resumable_stream`; b"": none), of which
    `received` bytes have come; `again`: it had a stream before.
    """

    target: str
    credential: bytes
    host: str = ""
    address: str = ""
    lasting: bytes = b""
    received: int = 0
    again: bool = False


_encode = Encoder().encode
_decoder = Decoder(Open)
_user_decoder = Decoder(UserCredential)
_plain_user_decoder = Decoder(tuple[int, int])


def encode_open(request: Open) -> bytes:
    return _encode(request)


class Led(Protocol):
    """An end to connect to a client: a stream of another machine, or a supervisor's connection on this one."""

    def set_protocol(self, near: Splice) -> None: ...

    def refuse(self, reason: str) -> None:
        """End the stream: nothing can be connected to it, for this reason."""
        ...

    def write(self, data: bytes) -> None: ...


class RelayedPipe(Pipe):
    """A connection of a user on another machine."""

    def __init__(self, user: UserCredential, on_pipe: Callable[[Pipe], None]) -> None:
        super().__init__()
        self._user = user
        self._on_pipe = on_pipe

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        user = self._user
        self._transport = transport  # type: ignore[assignment]  # a MuxStream
        transport.set_write_buffer_limits(high=64 * 1024)  # type: ignore[attr-defined]  # likewise
        self.credentials = PeerCredentials(pid=0, uid=user.uid, gid=user.gid, via="relay")
        self.origin = user.host
        self.peer_name = f"uid {user.uid} on {user.host}"
        self._on_pipe(self)


class Hub:
    """Accepts links of other machines' daemons. `cluster` "": of any cluster with the same authority."""

    def __init__(
        self,
        membership: Membership,
        cluster: str,
        clock: Clock,
        tasks: Supervisor,
        complaints: LogThrottle,
        on_pipe: Callable[[Pipe], None],
    ) -> None:
        self._membership = membership
        self._cluster = cluster
        self._clock = clock
        self._tasks = tasks
        self._complaints = complaints
        self._on_pipe = on_pipe
        self._links: dict[str, list[Mux]] = {}
        self.taken = Taken()
        #: whether a machine's certificate is still accepted
        self.is_welcome: Callable[[Machine], bool] = lambda machine: True
        #: unseals credentials not sealed with a machine's key (auth/munge); may take a while
        self.unseal: Callable[[bytes], Awaitable[bytes]] | None = None

    def accept(self, pipe: Pipe) -> None:
        """A daemon on another machine has connected to relay its users."""
        machine = pipe.machine
        if machine is None or machine.role not in (NODE, LOGIN) or not self.is_welcome(machine):
            # By machine or address: each attempt comes from another port, and would have a line of its own.
            self.complain(str(peer_of(pipe)), "streams are for machines that have joined")
            pipe.abort()
            return
        links = self._links.setdefault(machine.host, [])
        mux = Mux(
            pipe,
            accepted=True,
            on_open=lambda stream, payload: self._opened(machine, stream, payload),
            on_gone=lambda: self._gone(machine.host, mux),
        )
        links.append(mux)
        if len(links) > _LINKS_PER_MACHINE:
            links.pop(0).pipe.abort()

    def close(self) -> None:
        """End all links together: the end of one must not be reported to another, whose streams move to the next
        controller.
        """
        for links in list(self._links.values()):
            for mux in list(links):
                mux.pipe.abort()

    def dismiss(self, host: str) -> None:
        """Abort every link from a machine, and with them the streams of its users."""
        for mux in self._links.get(host, [])[:]:
            mux.pipe.abort()

    def lead(self, stream: Led, uid: int, gid: int, request: Open) -> None:
        """Connect a stream to a user's client on another machine, or on this one."""
        host, address = request.host, request.address
        if not address.startswith(_CLIENT_PREFIX):
            stream.refuse("not an address of a client")
        elif host == self._membership.host:
            self._tasks.spawn_contained(lead_here(stream, uid, address), name="relay.client")
        elif links := [mux for mux in self._links.get(host, ()) if mux.is_open]:
            near, far = Splice.pair()
            near.on_refused = stream.refuse
            # The controller's certificate is proof enough.
            content = _encode((uid, gid))
            links[-1].open(encode_open(structs.replace(request, credential=content)), far)
            stream.set_protocol(near)
        else:
            stream.refuse(f"machine {host} is not connected")

    def complain(self, peer: str, reason: str, sort: str = "") -> None:
        """Log a refused machine, at a limited rate per peer and sort."""
        now = asyncio.get_running_loop().time()
        self._complaints.write("machine.refused", peer, now, sort=sort, peer=peer, reason=reason)

    def _opened(self, machine: Machine, stream: MuxStream, payload: bytes) -> None:
        if self.unseal is not None:
            self._tasks.spawn_contained(self._open_later(machine, stream, payload, self.unseal), name="relay.unseal")
        else:
            self._open(machine, stream, payload, None)

    async def _open_later(
        self, machine: Machine, stream: MuxStream, payload: bytes, unseal: Callable[[bytes], Awaitable[bytes]]
    ) -> None:
        try:
            content = await unseal(_decoder.decode(payload).credential)
        except (ValidationError, DecodeError, UnicodeDecodeError) as error:
            self._not_understood(machine, stream, error)
        except BadCredential as error:
            self._not_taken(machine, stream, error.message, error.kind)
        except SpritzError as error:  # of this machine's munged
            self._not_taken(machine, stream, f"{BadCredential.TEXT}: {self._membership.host}: {error.message}")
        else:
            self._open(machine, stream, payload, content)

    def _not_understood(self, machine: Machine, stream: MuxStream, error: Exception) -> None:
        self.complain(machine.host, f"not a request for a stream: {error}")
        stream.refuse("not understood")

    def _not_taken(self, machine: Machine, stream: MuxStream, reason: str, kind: str = "") -> None:
        self.complain(machine.host, reason, kind)
        stream.refuse(reason)

    def _open(self, machine: Machine, stream: MuxStream, payload: bytes, content: bytes | None) -> None:
        """`content` of the credential, if it was unsealed elsewhere."""
        try:
            request = _decoder.decode(payload)
            if content is None:
                user = unseal(request.credential, self._membership.user_keys(machine.host))
            else:
                user = _user_decoder.decode(content)
            if user.host != machine.host:
                raise BadCredential("foreign", f"it is of {user.host[:60]!r}, and came from {machine.host}")
            self.taken.check(user, cluster=self._cluster or machine.cluster, now=self._clock.now())
        except (ValidationError, DecodeError, UnicodeDecodeError) as error:
            self._not_understood(machine, stream, error)
        except BadCredential as error:
            self._not_taken(machine, stream, error.between(machine.host, self._membership.host), error.kind)
        else:
            if request.target == DAEMON:
                stream.set_protocol(RelayedPipe(user, self._on_pipe))
            elif request.target == CLIENT:
                self.lead(stream, user.uid, user.gid, request)
            else:
                stream.refuse("no such target")

    def _gone(self, host: str, mux: Mux) -> None:
        links = self._links.get(host, [])
        if mux in links:
            links.remove(mux)
        if not links:
            self._links.pop(host, None)


def open_for_client(stream: MuxStream, payload: bytes, tasks: Supervisor) -> None:
    """Lead a stream of a daemon whose word on the user is enough to that user's client here."""
    try:
        request = _decoder.decode(payload)
        uid, _gid = _plain_user_decoder.decode(request.credential)
    except (ValidationError, DecodeError, UnicodeDecodeError):
        stream.refuse("not understood")
        return
    tasks.spawn_contained(lead_here(stream, uid, request.address), name="relay.client")


async def lead_here(stream: Led, uid: int, address: str) -> None:
    """Connect a stream to a client on this machine that belongs to this user."""
    try:
        connection = await connect_client(uid, address)
        near, far = Splice.pair()
        await asyncio.get_running_loop().create_unix_connection(lambda: far, sock=connection)
        stream.write(REACHED)
        stream.set_protocol(near)
    except OSError as error:
        stream.refuse(f"{ABSENT_CLIENT}: {error.strerror}")


async def connect_client(uid: int, address: str) -> socket.socket:
    """A connection to a user's client on this machine. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        if not address.startswith(_CLIENT_PREFIX):
            raise ConnectionRefusedError(111, "not an address of a client")
        await asyncio.get_running_loop().sock_connect(connection, "\0" + address.removeprefix("unix:@"))
        owner = peer_credentials(connection)
        if owner is None or owner.uid != uid:
            raise PermissionError(1, "another user's")
    except OSError:
        connection.close()
        raise
    return connection
