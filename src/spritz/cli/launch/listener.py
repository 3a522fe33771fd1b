"""The socket for a step's supervisors, and the connected supervisors, some of them connected through others.

An abstract Unix socket: nothing to clean up. The kernel identifies the peer, and the key proves which step it is for.
Supervisors on other machines connect through this machine's daemon (docs/decisions/0177).
"""

from __future__ import annotations

import _socket
import errno
import os
import resource
import sys
from typing import TYPE_CHECKING

from spritz.client.locate import locate_controller
from spritz.stepd import protocol
from spritz.stepd.numbered import TELL_BYTES, Kept
from spritz.stepd.reactor import READABLE, WRITABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.stepd.reactor import Reactor

_RECEIVE_BYTES = 256 * 1024
_BACKLOG = 4096


class Listener:
    """Bound and listening from the start; `address` and `key` go into the StepSpec."""

    def __init__(self) -> None:
        self._owners: frozenset[int] | None = None
        self.key = os.urandom(16).hex()
        name = f"spritz-{os.getpid()}-{os.urandom(8).hex()}"
        self.address = f"unix:@{name}"
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        self._socket.bind("\0" + name)
        self._socket.listen(_BACKLOG)
        self._socket.settimeout(0)
        #: A TCP port of this machine that is ours as long as the step runs. Differs: supervisors do not come by it, so
        #: nobody listens there; programs take the number for one that no other step on the machine has.
        self._reserved = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        self._reserved.bind(("", 0))
        self.port: int = self._reserved.getsockname()[1]

    def fileno(self) -> int:
        """To be watched for connections."""
        return self._socket.fileno()

    def accept(self) -> int | None:
        """Descriptor of the next supervisor: ours or root's. None if no (further) one is there."""
        while True:
            try:
                # What `socket.socket.accept` calls; typeshed leaves it out.
                descriptor: int = self._socket._accept()[0]  # type: ignore[attr-defined]
            except OSError as error:
                if error.errno == errno.EMFILE and _allow_more_files():
                    continue
                return None
            connection = _socket.socket(fileno=descriptor)
            credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
            connection.detach()
            uid = int.from_bytes(credentials[4:8], sys.byteorder)
            if uid in (0, os.getuid()) or uid in self._relays():
                os.set_blocking(descriptor, False)
                return descriptor
            os.close(descriptor)

    def _relays(self) -> frozenset[int]:
        """Who leads supervisors of other machines to us: the daemons' users."""
        if self._owners is None:
            self._owners = locate_controller().owners()
        return self._owners

    def close(self) -> None:
        """No more connections."""
        self._socket.close()
        self._reserved.close()


def _allow_more_files() -> bool:
    """A step on a thousand nodes has as many connections. Whether the system allows more than before.

    Not from the start: the step is to have the limit that its user has set.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return True


class Link:
    """One supervisor, by whichever connection it comes; `move` says by which.

    Numbered conversations outlive their connection (`stepd.protocol`): what is sent meanwhile is kept.
    """

    def __init__(self, hello: protocol.Hello, part: int, rank: int) -> None:
        self.hello = hello
        #: which part of the step it is of, and the rank of its node in the whole
        self.part = part
        self.rank = rank
        self.done = False
        self.started = False
        self.pids: tuple[int, ...] = ()
        #: bytes of standard input that the supervisor has not used up
        self.uncredited = 0
        self.closed = False
        #: when it was lost, by the reactor's clock; None: it is there
        self.lost_at: float | None = None
        self._kept = Kept() if hello.attempt >= 0 else None
        self._received = 0
        self._told = 0
        self._connection: Connection | None = None
        self._place = -1

    @property
    def node(self) -> str:
        """Its node's name."""
        return self.hello.node

    @property
    def is_numbered(self) -> bool:
        """Whether it may come by another connection."""
        return self._kept is not None

    @property
    def connection(self) -> Connection | None:
        """By which it comes; None: it was lost."""
        return self._connection

    @property
    def is_behind(self) -> bool:
        """Whether it comes by way of another node's supervisor."""
        return self._place >= 0

    def move(self, connection: Connection, place: int, hello: protocol.Hello) -> None:
        """From now on by this connection, of which it is the other end, or behind it (`place` in the step)."""
        if self._connection is not None:
            self._connection.forget(self)
        self._connection, self._place, self.hello = connection, place, hello
        self.lost_at = None
        if self._kept is None:
            return
        if not self.closed:
            self._kept.take(hello.received)
        self._tell()
        if not self.closed and self._kept.bytes:
            self._send(self._kept.all())

    def lose(self, now: float) -> None:
        """Its connection has ended."""
        self._connection, self.lost_at = None, now

    def send(self, frames: bytes) -> None:
        """Send now, or as soon as the supervisor reads."""
        if self.closed or not frames:
            return
        self.keep(frames)
        self._send(frames)

    def keep(self, frames: bytes) -> None:
        """They are sent to all behind the connection (`send_all`)."""
        if self._kept is not None:
            self._kept.add(frames)

    def take(self, kind: int, payload: bytes) -> bool:
        """Count what it says. False if that was for us alone. Raises ProtocolError."""
        if self._kept is None:
            return True
        if self.closed:
            return False  # it may have taken what was for all behind its connection
        if kind == protocol.TAKEN:
            self._kept.take(protocol.unpack_count(payload))
            return False
        self._received += protocol.HEADER_BYTES + len(payload)
        if self._received - self._told >= TELL_BYTES or kind == protocol.DONE:
            self._tell()
        return True

    def close(self) -> None:
        """It has said all. Other nodes may come by its connection still."""
        if not self.closed:
            self.closed = True
            if self._connection is not None and not self.is_behind and not self.hello.below:
                self._connection.close()

    def _tell(self) -> None:
        self._told = self._received
        self._send(protocol.frame(protocol.TAKEN, protocol.ALL_TASKS, protocol.pack_count(self._received)))

    def _send(self, frames: bytes) -> None:
        if self._connection is not None:
            self._connection.send(protocol.via(self._place, frames) if self.is_behind else frames)


def send_all(links: Iterable[Link], frames: bytes) -> None:
    """To many: once for all that are behind one connection. Others behind it, who have not said who they are, or have
    said all, take no notice."""
    told: set[Connection] = set()
    for link in links:
        connection = link.connection
        if link.closed or connection is None or not link.is_behind:
            link.send(frames)
            continue
        link.keep(frames)
        if connection not in told:
            told.add(connection)
            connection.send(protocol.via(protocol.ALL_NODES, frames))


class Connection:
    """One supervisor at its other end, and those behind it.

    Who says HELLO becomes a link: `on_hello(connection, place, payload)` gives it, or None for who is not of the step.
    """

    def __init__(
        self,
        reactor: Reactor,
        descriptor: int,
        *,
        on_hello: Callable[[Connection, int, bytes], Link | None],
        on_frame: Callable[[Link, int, int, bytes], None],
        on_lost: Callable[[Link], None],
        on_read: Callable[[], None],
        on_end: Callable[[Connection], None],
    ) -> None:
        #: by place in the step; -1: the other end
        self.links: dict[int, Link] = {}
        self.closed = False
        #: whether it has said who it is
        self.greeted = False
        self._reactor = reactor
        self._descriptor = descriptor
        self._decoder = protocol.Decoder()
        self._behind: dict[int, protocol.Decoder] = {}
        self._queue: list[memoryview] = []
        self._on_hello = on_hello
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._on_read = on_read
        self._on_end = on_end
        self._paused = False
        reactor.watch(descriptor, READABLE, self._ready)

    def send(self, frames: bytes) -> None:
        """Send now, or as soon as the supervisor reads."""
        if self.closed or not frames:
            return
        self._queue.append(memoryview(frames))
        if len(self._queue) == 1:
            self._flush()

    def forget(self, link: Link) -> None:
        """It comes by another one from now on."""
        for place in [place for place, one in self.links.items() if one is link]:
            del self.links[place]

    def pause(self, paused: bool) -> None:
        """Stop (or go on) reading: our own output is full."""
        if paused != self._paused and not self.closed:
            self._paused = paused
            self._watch()

    def close(self) -> None:
        """Close the connection silently."""
        if not self.closed:
            self.closed = True
            self._queue.clear()
            self._reactor.forget(self._descriptor)
            os.close(self._descriptor)

    def _watch(self) -> None:
        events = (0 if self._paused else READABLE) | (WRITABLE if self._queue else 0)
        self._reactor.watch(self._descriptor, events, self._ready)

    def _ready(self, ready: int) -> None:
        if ready & WRITABLE:
            self._flush()
        if not self.closed and ready & ~WRITABLE:
            self._receive()

    def _flush(self) -> None:
        while self._queue:
            piece = self._queue[0]
            try:
                sent = os.write(self._descriptor, piece)
            except BlockingIOError:
                break
            except OSError:
                self._queue.clear()  # it is gone: reading will tell
                break
            if sent < len(piece):
                self._queue[0] = piece[sent:]
            else:
                del self._queue[0]
        self._watch()

    def _receive(self) -> None:
        try:
            data = os.read(self._descriptor, _RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for kind, task, payload in self._decoder.feed(data):
                if kind == protocol.VIA and self.greeted:
                    decoder = self._behind.setdefault(task, protocol.Decoder())
                    for one in decoder.feed(payload):
                        self._take(task, *one)
                elif kind == protocol.LOST:
                    self._behind.pop(task, None)
                    link = self.links.pop(task, None)
                    if link is not None:
                        self._on_lost(link)
                else:
                    self._take(-1, kind, task, payload)
                if self.closed:
                    break
        except protocol.ProtocolError:
            data = b""
        self._on_read()
        if not data and not self.closed:
            self.close()
            self._on_end(self)

    def _take(self, place: int, kind: int, task: int, payload: bytes) -> None:
        if kind == protocol.HELLO:
            link = self._on_hello(self, place, payload)
            if link is not None:
                self.greeted = True
                self.links[place] = link
                return
        elif (link := self.links.get(place)) is not None:
            if link.take(kind, payload):
                self._on_frame(link, kind, task, payload)
            return
        if place < 0:
            raise protocol.ProtocolError("not of this step")
