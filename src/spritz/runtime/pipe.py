"""A connection that carries bytes both ways, on asyncio: the seam where the simulator puts its network.

Owns batched writing, flow control in both directions, and the identity of the peer. Knows nothing about frames:
incoming bytes go to a `Receiver`.

Flow control: `send` never blocks and never drops. Its buffer is bounded by its users, which stop accepting work from a
peer that does not read (`Receiver.pipe_writable(False)`), and by `UNSENT_BYTES_MAX`, above which the pipe is aborted.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from spritz.runtime.credentials import PeerCredentials, is_same_machine, peer_credentials, tcp_peer_owner
from spritz.runtime.tls import machine_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.runtime.tls import Machine

#: unsent bytes above which the user of a pipe is asked to pause
UNSENT_BYTES_HIGH = 64 * 1024

#: unsent bytes above which the peer is taken to be gone
UNSENT_BYTES_MAX = 512 * 1024 * 1024

#: Seconds for a peer to read the last bytes.
LINGER_SECONDS = 1.0

#: Bytes read at once from a connection that has ended.
_PIECE_BYTES = 64 * 1024


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel notice within about a minute that the other machine is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def expect_answers(connection: socket.socket, seconds: float) -> None:
    """Let the kernel end a connection whose peer has acknowledged nothing for so long, and disable Nagle's delay."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


@contextmanager
def socket_of(transport: asyncio.BaseTransport) -> Iterator[socket.socket]:
    """The socket of a transport, for several calls: uvloop's stand-in makes such an object for each of them."""
    given = transport.get_extra_info("socket")
    connection = socket.socket(given.family, given.type, given.proto, given.fileno())
    try:
        yield connection
    finally:
        connection.detach()


def unread(transport: asyncio.BaseTransport) -> bytes:
    """Bytes that a peer sent before it went away: a failed write ends a transport at once, with these bytes (a task's
    last line) still in its socket.
    """
    plain_socket = transport.get_extra_info("socket")
    if plain_socket is None or transport.get_extra_info("ssl_object") is not None:
        return b""
    pieces = []
    try:
        while piece := os.read(plain_socket.fileno(), _PIECE_BYTES):
            pieces.append(piece)
    except OSError:
        pass  # nothing more
    return b"".join(pieces)


class Receiver(Protocol):
    """The user's end of a pipe. None of these methods may raise or block."""

    def pipe_data(self, data: bytes) -> None: ...

    def pipe_writable(self, writable: bool) -> None:
        """The peer does not keep up (False), or does again (True)."""
        ...

    def pipe_closed(self, error: Exception | None) -> None:
        """No more bytes will arrive or leave. Called exactly once; `error` is None if either side closed in order."""
        ...


class Pipe(asyncio.Protocol):
    """A connection. Created by `runtime.sockets`; `attach` a Receiver before returning to the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._flush_due = False
        self._writable = True
        self._reading = True
        self._closing = False
        self._linger: asyncio.TimerHandle | None = None
        self._early: list[bytes] = []
        self._lost = False
        self._lost_by: Exception | None = None
        #: resolved when the connection has ended
        self.closed: asyncio.Future[None] = self._loop.create_future()
        #: the peer as identified by the kernel; None if it cannot
        self.credentials: PeerCredentials | None = None
        #: the peer for log lines: `pid 7 uid 1000` or `10.0.0.1:40712`
        self.peer_name = "?"
        #: whether the peer is a process of this machine
        self.is_same_machine = False
        #: the peer's certificate, over TLS; None if it has shown none
        self.machine: Machine | None = None
        #: the machine from which a user's connection is relayed; "" for this machine
        self.origin = ""
        #: the protocol spoken over TLS (ALPN); "" without
        self.protocol = ""

    def ask_credentials(self) -> PeerCredentials | None:
        """Ask the kernel again: over TCP it cannot identify a server that has not accepted the connection yet.

        Raises OSError if the connection has ended meanwhile.
        """
        if self.credentials is None:
            if self._transport is None:
                raise ConnectionResetError(errno.ECONNRESET, "the peer has closed the connection")
            connection = self._transport.get_extra_info("socket")
            self.credentials = peer_credentials(connection)
            if self.credentials is None:
                tcp_peer_owner(connection)
        return self.credentials

    def expect_acknowledgements(self, seconds: float) -> None:
        """Over TCP: end the connection when the peer's kernel has acknowledged nothing for so long."""
        connection = self._transport.get_extra_info("socket") if self._transport is not None else None
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))

    def watch_peer(self, seconds: int) -> None:
        """Over TCP: end the connection when the peer's kernel has been silent for so long, whether or not we send."""
        self.expect_acknowledgements(seconds)
        connection = self._transport.get_extra_info("socket") if self._transport is not None else None
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in ((socket.TCP_KEEPIDLE, seconds // 2), (socket.TCP_KEEPINTVL, max(1, seconds // 4))):
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)

    def attach(self, receiver: Receiver) -> None:
        """Set the receiver; bytes that arrived already are delivered at the loop's next turn."""
        self._receiver = receiver
        if self._early or self._lost:
            self._loop.call_soon(self._catch_up)

    def send(self, data: bytes) -> None:
        """Queue bytes; all bytes queued in one turn of the loop leave in one system call. Ignored once closed."""
        if self._closing or self._transport is None:
            return
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    @property
    def is_open(self) -> bool:
        return not self._closing and self._transport is not None

    @property
    def unsent_bytes(self) -> int:
        """Bytes queued in this turn of the loop."""
        return self._unsent_bytes

    @property
    def backlog_bytes(self) -> int:
        """Bytes sent that the kernel has not accepted yet."""
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._unsent_bytes + waiting

    @property
    def writable(self) -> bool:
        """Whether the peer keeps up: fewer than `UNSENT_BYTES_HIGH` bytes wait to be sent."""
        return self._writable

    def pause_reading(self) -> None:
        """Read no more until `resume_reading`; the peer's sends will block."""
        if self._reading and self.is_open and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading and self.is_open and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def close(self) -> None:
        """Send what is queued, then close."""
        if not self.is_open:
            return
        self._flush()
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def close_slowly(self) -> None:
        """Send what is queued, read no more, and close when the peer does, or after `LINGER_SECONDS`.

        For a last message to a peer that is still sending: closing at once would reset the connection, and the peer
        could lose the message unread.
        """
        if not self.is_open or self._transport is None:
            return
        self._flush()
        self._closing = True
        if not self._transport.can_write_eof():  # TLS, whose own close message reaches the peer
            self._transport.close()
            return
        self._transport.write_eof()
        self._linger = self._loop.call_later(LINGER_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """Close at once; what is queued is lost."""
        self._closing = True
        self._unsent.clear()
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        self._flush_due = False
        self._unsent_bytes = 0
        transport, unsent = self._transport, self._unsent
        if transport is None or not unsent or self._closing:
            return
        transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))
        unsent.clear()
        if transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.abort()

    # asyncio.Protocol, called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop has a connection for us."""
        # Always a stream transport; uvloop's are not registered as asyncio.Transport, so it cannot be asserted.
        stream: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport = stream
        stream.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        secured = transport.get_extra_info("ssl_object")
        with socket_of(transport) as connection:
            is_unix = connection.family == socket.AF_UNIX
            self.is_same_machine = is_unix or is_same_machine(connection)
            # A certificate identifies a machine; the kernel cannot identify a user there.
            if self.is_same_machine and secured is None:
                self.credentials = peer_credentials(connection)
            if not is_unix:
                keep_alive(connection)
        if not is_unix:
            host, port = transport.get_extra_info("peername")[:2]
            self.peer_name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            if secured is not None:
                self.machine = machine_of(transport.get_extra_info("peercert"))
                self.protocol = secured.selected_alpn_protocol() or ""
        elif self.credentials is not None:
            self.peer_name = f"pid {self.credentials.pid} uid {self.credentials.uid}"

    def data_received(self, data: bytes) -> None:
        """The loop has bytes for us."""
        if self._closing:
            return
        if self._receiver is None or self._early:
            self._early.append(data)
        else:
            self._receiver.pipe_data(data)

    def pause_writing(self) -> None:
        """Called by the loop when more than `UNSENT_BYTES_HIGH` bytes wait to be sent."""
        self._writable = False
        if self._receiver is not None:
            self._receiver.pipe_writable(False)

    def resume_writing(self) -> None:
        self._writable = True
        if self._receiver is not None:
            self._receiver.pipe_writable(True)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._lost_by = error
        self._closing = True
        self._transport = None
        self._unsent.clear()
        if self._linger is not None:
            self._linger.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        if not self._early:
            self._report_loss()

    def _catch_up(self) -> None:
        """Deliver bytes that came before there was a receiver."""
        early, self._early = self._early, []
        if early and self._receiver is not None:
            self._receiver.pipe_data(b"".join(early))
        if self._lost:
            self._report_loss()

    def _report_loss(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.pipe_closed(self._lost_by)
