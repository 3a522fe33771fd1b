"""Blocking calls to a daemon from a command; fast to import (no asyncio, no logging, not even `socket`).

    with connect_controller() as controller:
        reply = controller.call(SubmitJob(…), JobSubmitted)

Owns one connection of a short-lived process. Every wait has a deadline, so a silent peer, or one with another protocol,
costs at most MessageTimeout seconds. Long-lived callers use `client.channel.aio`.

Sources: slurm.conf(5) MessageTimeout, SlurmctldHost (order of failover).
"""

from __future__ import annotations

import _socket
import sys
from os import environ
from posix import geteuid, urandom
from time import monotonic, sleep
from typing import TYPE_CHECKING

from msgspec import DecodeError
from msgspec.msgpack import Decoder

from spritz.client.errors import (
    CallTimeout,
    ClientError,
    ConnectionLost,
    NoDaemonHere,
    RemoteError,
    RemoteHost,
    unreachable,
)
from spritz.client.locate import ControllerConfig, locate_controller
from spritz.wire.envelope import NO_BODY, Hello, Response, decode_envelope, encode, encode_request
from spritz.wire.frames import IDLE_SECONDS, FrameDecoder, FrameError
from spritz.wire.versions import IncompatiblePeer, hello, negotiate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self, TypeVar

    from msgspec import Struct

    T = TypeVar("T")

#: Bytes read at once: at first, and after a full read. Most answers are short, and allocating more takes longer than
#: they do.
_RECEIVE_BYTES, _RECEIVE_MORE_BYTES = 16 * 1024, 256 * 1024

#: Seconds by which a wait may exceed its timeout.
_SLACK_SECONDS = 0.01

#: Seconds between attempts while waiting for a controller that restarts: at first, and at most.
_RETRY_SECONDS, _RETRY_SECONDS_MAX = 0.05, 1.0

#: From the first attempt on pauses are this part of the time since, so waiting takes longer by no more than this.
_RETRY_PART = 0.1

#: Seconds to wait for this machine's slurmd or sackd, which relays to another machine. After a crash systemd starts it
#: again in 2 s, and it serves within one more; the rest is for loaded machines.
RELAY_START_SECONDS = 8.0

#: With several SlurmctldHosts: seconds for each to say whether it leads, and seconds to look for the leader; a failover
#: takes less.
HOST_SECONDS, TAKE_OVER_SECONDS = 2.0, 30.0

#: Seconds after which a daemon may soon close an idle connection.
_STALE_SECONDS = IDLE_SECONDS / 2

#: Variable with a token: the caller is then the token's user, not the process's.
TOKEN_VARIABLE = "SLURM_JWT"

#: Seconds between queries to the kernel about a server that has not accepted yet.
_ASK_AGAIN_SECONDS = 0.001


_decoders: dict[object, object] = {}


def decoder_of(reply_type: type[T]) -> Decoder[T]:
    """A cached decoder: creating one takes longer than a short command's call. A command server creates them in
    advance.
    """
    decoder = _decoders.get(reply_type)
    if decoder is None:
        decoder = _decoders[reply_type] = Decoder(reply_type)
    return decoder  # type: ignore[return-value]  # the table is keyed by the type


class Connection:
    """One connection to a daemon. `timeout_seconds` bounds each call that has no timeout of its own.

    With an `address` it may be kept for the next call instead of being closed (`connection_cache`).
    """

    def __init__(
        self,
        connection: _socket.socket,
        *,
        timeout_seconds: float,
        role: str = "command",
        address: tuple[object, ...] = (),
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self.address = address
        #: the name of the daemon in errors
        self.daemon = "slurm controller"
        self._unanswered = 0
        #: The daemon's Hello, once its first answer has come.
        self.peer: Hello | None = None
        self._socket = connection
        self._frames = FrameDecoder()
        self._piece = _RECEIVE_BYTES
        self._timeout: float | None = None
        #: received frames not processed yet, the next one last
        self._received: list[bytes] = []
        self._next_id = 1
        self._used_at = monotonic()
        self._unsent = encode(hello(role))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection. Unanswered requests may still be executed."""
        if (
            connection_cache is None
            or not self.address
            or self._unanswered
            or self._received
            or not connection_cache.keep(self)
        ):
            self._socket.close()

    def is_fresh(self) -> bool:
        """Whether the connection was used so recently that the daemon will not close it for idleness now."""
        return monotonic() - self._used_at < _STALE_SECONDS

    def is_quiet(self) -> bool:
        """Whether the daemon has sent nothing, and not closed the connection, since the last answer."""
        if self._socket.fileno() < 0:
            return False  # closed
        return not self._frames.buffered_bytes and not _is_readable(self._socket)

    def fileno(self) -> int:
        """The socket's descriptor, for waiting on several inputs."""
        return self._socket.fileno()

    def call(self, request: Struct, reply_type: type[T], *, timeout: float | None = -1.0) -> T:
        """The daemon's answer, which must be of `reply_type` (NoneType for none).

        `timeout` is in seconds; the connection's if not given, None to wait for ever. Raises RemoteError if the daemon
        refuses; CallTimeout, ConnectionLost or ClientError if it cannot be asked or understood.
        """
        return _body(decoder_of(reply_type), self._exchange(request, timeout))

    def call_raw(self, request: Struct, *, timeout: float | None = -1.0) -> bytes:
        """As `call`, but returns the answer's msgpack undecoded."""
        return bytes(self._exchange(request, timeout).body)

    def call_exact(self, request: Struct, reply_type: type[T], *, timeout: float | None = -1.0) -> T:
        """As `call`, for an answer that will be sent back whole: raises ClientError if it has unknown fields."""
        from spritz.wire.unknown_fields import unknown_field

        response = self._exchange(request, timeout)
        reply = _body(decoder_of(reply_type), response)
        if more := unknown_field(reply, response.body):
            raise ClientError(
                f"Incompatible versions of client and server code: {more} is not known here",
                code="SLURM_PROTOCOL_VERSION_ERROR",
                hint="the daemon is of a later release than this command",
            )
        return reply

    def stream(self, request: Struct, item_type: type[T], *, timeout: float | None = None) -> Iterator[T]:
        """Items until the daemon ends the stream. `timeout` applies to each item; None waits for ever."""
        decoder = decoder_of(item_type)
        request_id = self.send(request)
        while True:
            response = self.receive(timeout=timeout)
            _expect(request_id, response)
            if not response.more:
                return
            yield _body(decoder, response)

    def joined(self, request: Struct, item_type: type[T], field: str) -> T:
        """The items of a stream merged: the first one, with the lists in `field` of all items joined.

        A daemon of an earlier release sends one plain answer.
        """
        decoder, request_id = decoder_of(item_type), self.send(request)
        first: T | None = None
        while True:
            response = _expect(request_id, self.receive())
            if response.more or bytes(response.body) != NO_BODY:
                item = _body(decoder, response)
                if first is None:
                    first = item
                else:
                    getattr(first, field).extend(getattr(item, field))
            if not response.more:
                if first is None:
                    raise _not_understood(FrameError("an answer without content"))
                return first

    def send(self, request: Struct) -> int:
        """Send a request without waiting. Returns its id. With `receive`, many requests can be in flight."""
        return self.send_many([request])

    def send_many(self, requests: list[Struct]) -> int:
        """Send requests in one go; the id of the first, the others count up from it.

        A daemon stops reading after thousands of requests whose answers are not read: read answers in between.
        """
        if not self._unanswered and not self.is_fresh() and not self.is_quiet():
            raise ConnectionLost(
                f"Unable to contact {self.daemon} (send failure)",
                code="SLURMCTLD_COMMUNICATIONS_SEND_ERROR",
                hint="the daemon closed the connection while nothing was asked; nothing was sent",
            )
        self._used_at = monotonic()
        first = self._next_id
        frames = [self._unsent]
        for request in requests:
            frames.append(encode_request(self._next_id, request))
            self._next_id += 1
        self._unsent = b""
        self._unanswered += len(requests)
        try:
            self._set_timeout(self.timeout_seconds)
            self._socket.sendall(b"".join(frames))
        except TimeoutError as error:
            raise _timed_out() from error
        except OSError as error:
            # the daemon may have sent a reason before it closed
            self._raise_refusal()
            raise ConnectionLost(
                f"Unable to contact {self.daemon} (send failure)",
                code="SLURMCTLD_COMMUNICATIONS_SEND_ERROR",
                hint=error.strerror or "",
            ) from error
        return first

    def receive(self, *, timeout: float | None = -1.0) -> Response:
        """The next response to any request; a failure is returned in it, not raised.

        A daemon says hello at once, also where its answer takes long: one that hangs is noticed by the first response.
        Raises RemoteError only if the daemon refuses the connection as such.
        """
        limit = self.timeout_seconds if timeout == -1.0 else timeout
        deadline = None if limit is None else monotonic() + limit
        hello_by = monotonic() + self.timeout_seconds
        while True:
            envelope = self._envelope(deadline if self.peer is not None else min(hello_by, deadline or hello_by))
            if isinstance(envelope, Response):
                if envelope.id == 0 and envelope.error is not None:
                    raise RemoteError(envelope.error)
                if not envelope.more:
                    self._unanswered -= 1
                return envelope
            if isinstance(envelope, Hello):
                self.peer = envelope
                try:
                    negotiate(envelope)
                except IncompatiblePeer as error:
                    raise ClientError(error.message, code=error.code, hint=error.hint) from error
            # Requests from the daemon and cancellations are for serving callers, which use client.aio.

    def _exchange(self, request: Struct, timeout: float | None) -> Response:
        request_id = self.send(request)
        response = self.receive(timeout=timeout)
        return _expect(request_id, response)

    def _envelope(self, deadline: float | None) -> object:
        while not self._received:
            data = self._receive_bytes(deadline)
            try:
                self._received = self._frames.feed(data)[::-1]
            except FrameError as error:
                raise _not_understood(error) from error
        try:
            return decode_envelope(self._received.pop())
        except FrameError as error:
            raise _not_understood(error) from error

    def _receive_bytes(self, deadline: float | None) -> bytes:
        try:
            self._set_timeout(None if deadline is None else max(0.001, deadline - monotonic()))
            data = self._socket.recv(self._piece)
        except TimeoutError as error:
            raise _timed_out() from error
        except OSError as error:
            raise self.lost(error.strerror or "") from error
        if not data:
            raise self.lost("the daemon closed the connection")
        if len(data) == self._piece:
            self._piece = _RECEIVE_MORE_BYTES
        return data

    def lost(self, hint: str) -> ConnectionLost:
        """The error that says that the daemon has closed the connection."""
        return ConnectionLost(
            f"Unable to contact {self.daemon} (receive failure)",
            code="SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR",
            hint=hint,
        )

    def _set_timeout(self, seconds: float | None) -> None:
        """Set the socket's timeout. A slightly longer one is kept, as setting it is a system call."""
        known = self._timeout
        if known is None or seconds is None or not seconds <= known < seconds + _SLACK_SECONDS:
            self._socket.settimeout(seconds)
            self._timeout = seconds

    def _raise_refusal(self) -> None:
        """Raise the error that the daemon sent before it closed the connection, if any."""
        try:
            self.receive(timeout=0.1)
        except (CallTimeout, ConnectionLost):
            return


class ConnectionCache:
    """Keeps one connection to a controller between calls, in processes that serve many calls.

    The daemon knows its peer by the process's user and groups, so these must not change meanwhile.
    """

    def __init__(self) -> None:
        self._kept: Connection | None = None

    def keep(self, connection: Connection) -> bool:
        """Store the connection. Returns whether it was stored; else the caller closes it."""
        if self._kept is None:
            self._kept = connection
        return self._kept is connection

    def take(self, address: tuple[object, ...]) -> Connection | None:
        """The stored connection if it leads to the address and is alive; any other one is closed."""
        connection, self._kept = self._kept, None
        if connection is not None:
            if address == connection.address and connection.is_fresh() and connection.is_quiet():
                return connection
            connection.address = ()
            connection.close()
        return None

    def descriptor(self) -> int:
        """Descriptor of the stored connection; -1 if there is none."""
        return -1 if self._kept is None else self._kept.fileno()


#: Set by a process that serves many calls.
connection_cache: ConnectionCache | None = None


def _is_readable(connection: _socket.socket) -> bool:
    """Whether bytes, or the end of the stream, have arrived."""
    from select import POLLIN, poll

    readable = poll()
    readable.register(connection, POLLIN)
    return bool(readable.poll(0))


def submit_key() -> str:
    """A unique key for a submission (docs/decisions/0161)."""
    return urandom(16).hex()


class _Search:
    """The results of one search for the controller that leads."""

    def __init__(self) -> None:
        #: why each place is not the one
        self.problems: list[str] = []
        #: whether a controller answered that it does not lead
        self.stands_by = False
        #: whether other machines have controllers, and no daemon runs on this one
        self.nothing_here = False


def connect_controller(
    config: ControllerConfig | None = None, *, timeout: float | None = None, wait_seconds: float | None = None
) -> Connection:
    """A connection to the controller, over its Unix socket on this machine, else by TCP to each host in order.

    `timeout` is in seconds and MessageTimeout by default: for connecting, and then for each call. Attempts continue for
    `wait_seconds`: by default `timeout`, since a command must survive a restart of the controller, as in Slurm; by
    default 0 for a controller passed in by the caller. Several hosts are each asked whether they lead; they are tried
    for at least TAKE_OVER_SECONDS. Raises ClientError: "Unable to contact slurm controller (connect failure)";
    "Protocol authentication error" if the server runs neither as root nor as SlurmUser; RemoteHost if every configured
    host is another machine; where this machine has keys, only after RELAY_START_SECONDS, as its slurmd or sackd may be
    starting.
    """
    controller = config or locate_controller()
    timeout = controller.message_timeout_seconds if timeout is None else timeout
    if wait_seconds is None:
        wait_seconds = timeout if config is None else 0.0
    if controller.has_standby and wait_seconds:
        timeout_to_connect = wait_seconds = max(wait_seconds, TAKE_OVER_SECONDS)
    else:
        timeout_to_connect = timeout
    address: tuple[object, ...] = ()
    if connection_cache is not None:
        address = (
            controller.socket_name,
            controller.hosts,
            controller.port,
            controller.owners(),
            environ.get(TOKEN_VARIABLE),
        )
        kept = connection_cache.take(address)
        if kept is not None:
            kept.timeout_seconds = timeout
            return kept
    patience_seconds = min(wait_seconds, timeout_to_connect)
    started = monotonic()
    while True:
        search = _Search()
        is_late = monotonic() - started >= patience_seconds
        try:
            if controller.has_standby:
                leading = _try_hosts(controller, timeout, address, search)
                if leading is not None:
                    return _identified(leading)
            else:
                connection = _try_controller(controller, started + timeout, search.problems)
                if connection is not None:
                    return _identified(Connection(connection, timeout_seconds=timeout, address=address))
        except RemoteHost:
            # This machine's slurmd or sackd may be starting again.
            if is_late or monotonic() - started >= RELAY_START_SECONDS or not is_member(controller.path):
                raise
        if search.nothing_here and (is_late or monotonic() - started >= RELAY_START_SECONDS):
            raise _nothing_here(controller, search)
        if is_late:
            if search.stands_by:
                raise ClientError.of("ESLURM_IN_STANDBY_MODE", "; ".join(search.problems))
            raise unreachable("; ".join(search.problems))
        waited = monotonic() - started
        sleep(max(0.0, min(retry_pause(waited), patience_seconds - waited)))


def retry_pause(waited: float) -> float:
    """Seconds until the next attempt to reach a daemon for which a command has waited so long: the commands of a whole
    cluster wait for a controller, and each attempt is work for those that stand by.
    """
    return min(_RETRY_SECONDS_MAX, max(_RETRY_SECONDS, _RETRY_PART * waited))


def is_member(path: str) -> bool:
    """Whether keys lie next to this slurm.conf; users cannot read them."""
    from os.path import dirname, join, lexists

    from spritz.client.trust.membership import KEY_FILE, KEYS_FILE, MACHINE_FILE

    return any(lexists(join(dirname(path), name)) for name in (MACHINE_FILE, KEYS_FILE, KEY_FILE))


def connect_address(
    address: str | tuple[str, int], *, timeout: float, owners: frozenset[int] | None = None
) -> Connection:
    """A connection to any daemon: a Unix socket's name (abstract ones start with NUL), or TCP host and port.

    The server must run as one of `owners` (uids): by default root or this process's user. Raises ClientError;
    RemoteHost for a host that is another machine.
    """
    trusted = frozenset((0, geteuid())) if owners is None else owners
    try:
        if isinstance(address, str):
            return _identified(Connection(_open_unix(address, timeout, trusted), timeout_seconds=timeout))
        return _identified(Connection(_open_tcp(*address, trusted, monotonic() + timeout), timeout_seconds=timeout))
    except OSError as error:
        where = address.replace("\0", "@") if isinstance(address, str) else f"{address[0]}:{address[1]}"
        raise ClientError(
            "Communication connection failure",
            code="SLURM_COMMUNICATIONS_CONNECTION_ERROR",
            hint=f"{where}: {error.strerror or error}",
        ) from error


def _identified(connection: Connection) -> Connection:
    """Send the token of the environment (SLURM_JWT), if set: the daemon then treats this process as its user."""
    token = environ.get(TOKEN_VARIABLE)
    if not token:
        return connection
    from spritz.model.tokens import TokenTaken, UseToken

    try:
        connection.call(UseToken(token=token), TokenTaken)
    except BaseException:
        connection.address = ()  # not to be kept for a later call
        connection.close()
        raise
    return connection


def _try_controller(config: ControllerConfig, deadline: float, problems: list[str]) -> _socket.socket | None:
    owners = config.owners()
    untrusted: ClientError | None = None
    try:
        return _open_unix(config.socket_name, _left(deadline), owners)
    except OSError as error:
        problems.append(f"local socket: {error.strerror or error}")
    except ClientError as error:
        untrusted = error  # any user can take the name while the controller is away; the port may still be its own
    remote: list[RemoteHost] = []
    for host in config.hosts:
        try:
            return _open_tcp(host, config.port, owners, deadline)
        except OSError as error:
            problems.append(f"{host}:{config.port}: {error.strerror or error}")
        except RemoteHost as error:
            remote.append(error)
            problems.append(error.message)
        except ClientError as error:
            untrusted = error
    if untrusted is not None:
        raise untrusted
    if remote and len(remote) == len(config.hosts):
        raise remote[0].naming(f"{config.path}: {config.hosts_key}={config.hosts[0]}")
    return None


def _try_hosts(
    config: ControllerConfig, timeout: float, address: tuple[object, ...], search: _Search
) -> Connection | None:
    """A connection to the controller that says that it leads; None if none does now."""
    from spritz.model.queries.daemons import Ping, Pong

    owners, problems = config.owners(), search.problems
    untrusted: ClientError | None = None
    remote: list[RemoteHost] = []
    relayed = answered = False
    for host in ("", *config.hosts):
        where = f"{host}:{config.port}" if host else "local socket"
        deadline = monotonic() + HOST_SECONDS
        try:
            if host:
                opened = _open_tcp(host, config.port, owners, deadline)
            else:
                opened = _open_unix(config.socket_name, HOST_SECONDS, owners)
                relayed = True  # at least slurmd or sackd runs here, and looks for the leading controller
            answered = True
            connection = Connection(opened, timeout_seconds=timeout, address=address)
        except OSError as error:
            problems.append(f"{where}: {error.strerror or error}")
            continue
        except RemoteHost as error:
            remote.append(error)
            continue
        except ClientError as error:
            untrusted, answered = error, True
            problems.append(f"{where}: {error.message}")
            continue
        try:
            pong = connection.call(Ping(), Pong, timeout=HOST_SECONDS)
        except ClientError as error:
            # slurmd and sackd pass on what the controllers say
            search.stands_by = search.stands_by or error.code == "ESLURM_IN_STANDBY_MODE"
            problems.append(f"{where}: {error.hint or error.message}")
        else:
            if pong.leading:
                return connection
            search.stands_by = True
            why = pong.detail or (f"{pong.leader} leads" if pong.leader else "none leads")
            problems.append(f"{where}: {pong.host} stands by: {why}")
        connection.address = ()
        connection.close()
    if untrusted is not None and not search.stands_by:
        raise untrusted
    if len(remote) == len(config.hosts) and not relayed:  # else a daemon of this machine has the key
        raise remote[0].naming(f"{config.path}: {config.hosts_key}={config.hosts[0]}")
    search.nothing_here = bool(remote) and not answered
    return None


def _nothing_here(config: ControllerConfig, search: _Search) -> NoDaemonHere:
    error = unreachable(
        "a controller on another machine may lead, but commands reach it by slurmctld, slurmd or sackd of this machine,"
        f" and none of them runs: start one; {'; '.join(search.problems)}"
    )
    return NoDaemonHere(error.message, code=error.code, hint=error.hint)


def _left(deadline: float) -> float:
    return max(0.001, deadline - monotonic())


def _open_unix(name: str, timeout: float, owners: frozenset[int]) -> _socket.socket:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(name)
        _check_owner(connection, owners)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_owner(connection: _socket.socket, owners: frozenset[int]) -> None:
    """unix(7) SO_PEERCRED: three 32-bit numbers, pid, uid and gid of the process that listens."""
    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    _trust(int.from_bytes(credentials[4:8], sys.byteorder), owners, "local socket")


def _check_tcp_owner(connection: _socket.socket, owners: frozenset[int], deadline: float) -> None:
    """Check the owner of a TCP port likewise. Raises ClientError for a peer on another machine, which the kernel cannot
    identify.
    """
    from socket import socket

    from spritz.runtime.credentials import is_same_machine, tcp_peer_owner

    view = socket(fileno=connection.fileno())
    try:
        if not is_same_machine(view):
            raise RemoteHost.of_host(str(view.getpeername()[0]))
        while (uid := tcp_peer_owner(view)) is None:  # the server has not accepted the connection yet
            if monotonic() >= deadline:
                raise TimeoutError(110, "the connection is not accepted")
            sleep(_ASK_AGAIN_SECONDS)
    finally:
        view.detach()
    _trust(uid, owners, "port")


def _trust(uid: int, owners: frozenset[int], what: str) -> None:
    if uid not in owners:
        raise ClientError(
            "Protocol authentication error",
            code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
            hint=f"the daemon's {what} is served by uid {uid}, neither root nor SlurmUser",
        )


def _open_tcp(host: str, port: int, owners: frozenset[int], deadline: float) -> _socket.socket:
    """A TCP connection to the first address of the host that answers and is served by one of `owners`.

    Raises OSError; ClientError for a host that is another machine, or a server of another user.
    """
    from spritz.client.trust.same_machine import own_addresses, plain_name

    problem: OSError = OSError(2, "host has no address", host)
    try:
        resolved = _socket.getaddrinfo(plain_name(host), port, 0, _socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(22, f"not a host name ({error})", host) from error
    for family, address in own_addresses(host, resolved):
        connection = _socket.socket(family, _socket.SOCK_STREAM)
        try:
            connection.settimeout(_left(deadline))
            connection.connect(address)
            _check_tcp_owner(connection, owners, deadline)
            connection.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        except OSError as error:
            connection.close()
            problem = error
            continue
        except BaseException:
            connection.close()
            raise
        return connection
    raise problem


def _expect(request_id: int, response: Response) -> Response:
    if response.id != request_id:
        raise _not_understood(FrameError(f"answer to request {response.id} in place of {request_id}"))
    if response.error is not None:
        raise RemoteError(response.error)
    return response


def _body(decoder: Decoder[T], response: Response) -> T:
    try:
        return decoder.decode(response.body)
    except (DecodeError, UnicodeDecodeError) as error:
        raise _not_understood(error) from error


def _timed_out() -> CallTimeout:
    return CallTimeout("Socket timed out on send/recv operation", code="SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT")


def _not_understood(error: Exception) -> ClientError:
    return ClientError(
        f"Unexpected message received: {error}",
        code="SLURM_UNEXPECTED_MSG_ERROR",
        hint="is another program than slurmctld listening there?",
    )
