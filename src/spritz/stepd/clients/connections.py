"""Connections to clients (srun, salloc, sattach): frames out with a bounded queue, frames in to the supervisor."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections import deque
from collections.abc import Callable

from spritz.stepd import protocol
from spritz.stepd.reactor import READABLE, WRITABLE, Reactor

#: Queued bytes above which reading a task's output pauses.
QUEUE_HIGH_BYTES = 1024 * 1024
#: An attached client this far behind is dropped: it must not stop the step.
ATTACHED_MAX_BYTES = 8 * 1024 * 1024
#: Seconds for connecting: a client listens before it requests a step, so only a busy one needs time.
CONNECT_SECONDS = 2.0

#: Seconds for reaching a client on another machine: daemons may have to connect first.
ELSEWHERE_SECONDS = 10.0

OnFrame = Callable[["ClientLink", int, int, bytes], None]
OnDrained = Callable[["ClientLink"], None]
#: the link is closed; True if the client closed it unexpectedly
OnClosed = Callable[["ClientLink", bool], None]


class ClientUnreachable(Exception):
    """The client does not listen, or another user does."""


def connect(address: str, uid: int, relay_uid: int, patience_seconds: float = CONNECT_SECONDS) -> socket.socket:
    """A connected socket, retried for `patience_seconds`. The kernel must report that the listener runs as `uid` or
    root, or a daemon that leads to another machine as `relay_uid`.

    Raises ClientUnreachable.
    """
    before = b""
    there = protocol.elsewhere(address)
    try:
        name = protocol.parse_address(there[2] if there is not None else address)
    except ValueError as error:
        raise ClientUnreachable(str(error)) from error
    if there is not None and is_elsewhere(there[0]) and not _listens(name):
        name, before = there[1], protocol.preamble(protocol.Where(there[0], there[2]))
    deadline = time.monotonic() + patience_seconds
    wait = 0.005
    while True:
        try:
            connection = connect_once(name)
            if before:
                _reach(connection, before)
            break
        except OSError as error:
            if time.monotonic() + wait > deadline:
                raise ClientUnreachable(f"connect io: {error.strerror or error}") from error
        time.sleep(wait)
        wait = min(0.5, wait * 2)
    if not is_trusted(connection, uid, *((relay_uid,) if before else ())):
        connection.close()
        raise ClientUnreachable(f"connect io: {address} belongs to another user")
    connection.setblocking(False)
    return connection


def is_led(address: str) -> bool:
    """Whether the client at this address is on another machine, to which daemons lead."""
    there = protocol.elsewhere(address)
    return there is not None and is_elsewhere(there[0])


def is_elsewhere(host: str) -> bool:
    """Whether a machine is another than this one."""
    return host != socket.gethostname().partition(".")[0].lower()


def is_trusted(connection: socket.socket, *uids: int) -> bool:
    """Whether root or one of these users listens at the other end."""
    peer = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], "little")
    return peer in (0, *uids)


def _reach(connection: socket.socket, where: bytes) -> None:
    """Connect through a daemon to a client on another machine; returns when connected. Raises OSError."""
    connection.settimeout(ELSEWHERE_SECONDS)
    connection.sendall(where)
    if connection.recv(1) != protocol.REACHED:
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, "its machine cannot be reached, or it has gone")


def _listens(name: str) -> bool:
    """Whether the client is on this machine after all: nodes that share a machine may have host names of their own."""
    try:
        connect_once(name).close()
    except OSError:
        return False
    return True


def connect_once(name: str, *, blocking: bool = True) -> socket.socket:
    """To a Unix socket. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connection.setblocking(blocking)
    try:
        connection.connect(name)
    except OSError:
        connection.close()
        raise
    return connection


class ClientLink:
    """One connected client. `primary`: the one of the step's `io_address`, whose end is the step's."""

    def __init__(
        self,
        reactor: Reactor,
        connection: socket.socket,
        *,
        primary: bool,
        on_frame: OnFrame,
        on_drained: OnDrained,
        on_closed: OnClosed,
    ) -> None:
        self.primary = primary
        self.detached = False
        self.queued_bytes = 0
        self._reactor = reactor
        self._connection = connection
        self._descriptor = connection.fileno()
        self._queue: deque[memoryview] = deque()
        self._decoder = protocol.Decoder()
        self._on_frame = on_frame
        self._on_drained = on_drained
        self._on_closed = on_closed
        self._finishing = False
        self._paused = False
        self.closed = False
        reactor.watch(self._descriptor, READABLE, self._ready)

    def send(self, frame: bytes) -> None:
        """Send now, or when the client reads again."""
        if self.closed or not frame:
            return
        self._queue.append(memoryview(frame))
        self.queued_bytes += len(frame)
        if len(self._queue) == 1:
            self._flush()
        if not self.primary and self.queued_bytes > ATTACHED_MAX_BYTES:
            self._lose()

    def pass_on(self, frames: bytes) -> None:
        """Send frames of supervisors below this one, unchanged."""
        self.send(frames)

    def pause(self, paused: bool) -> None:
        """Read no more, or go on."""
        if not self.closed and paused != self._paused:
            self._paused = paused
            self._watch()

    def finish(self) -> None:
        """Close as soon as all is sent."""
        self._finishing = True
        if not self._queue:
            self.close()

    def close(self) -> None:
        """Close now; queued data is lost."""
        self._close(lost=False)

    def _lose(self) -> None:
        self._close(lost=True)

    def _close(self, *, lost: bool) -> None:
        if not self.closed:
            self.closed = True
            self._queue.clear()
            self.queued_bytes = 0
            self._reactor.forget(self._descriptor)
            self._connection.close()
            self._on_closed(self, lost)

    def _ready(self, ready: int) -> None:
        if ready & WRITABLE:
            self._flush()
        if not self.closed and ready & ~WRITABLE:
            self._receive()

    def _flush(self) -> None:
        before = self.queued_bytes
        while self._queue:
            piece = self._queue[0]
            try:
                sent = os.write(self._descriptor, piece)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                    raise
                self._lose()
                return
            self.queued_bytes -= sent
            if sent < len(piece):
                self._queue[0] = piece[sent:]
            else:
                self._queue.popleft()
        self._watch()
        if self._finishing and not self._queue:
            self.close()
        elif before > QUEUE_HIGH_BYTES >= self.queued_bytes:
            self._on_drained(self)

    def _watch(self) -> None:
        events = (0 if self._paused else READABLE) | (WRITABLE if self._queue else 0)
        self._reactor.watch(self._descriptor, events, self._ready)

    def _receive(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        try:
            for kind, task, payload in self._decoder.feed(data):
                self._on_frame(self, kind, task, payload)
                if self.closed:
                    return
        except protocol.ProtocolError:
            self._lose()
