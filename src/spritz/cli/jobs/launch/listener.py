"""The socket to which a step's supervisors connect, and the connected supervisors, some of them through others.

It is an abstract Unix socket, which needs no clean-up. The kernel identifies the peer, and the key proves that the peer
belongs to the step. Supervisors on other machines connect through this machine's daemon (docs/decisions/0177).
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
from spritz.stepd.clients.numbered import TELL_BYTES, Kept
from spritz.stepd.reactor import READABLE, WRITABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.stepd.reactor import Reactor

_RECEIVE_BYTES = 256 * 1024
_BACKLOG = 4096


class Listener:
    """A listening socket, whose `address` and `key` go into the StepSpec."""

    def __init__(self) -> None:
        self._owners: frozenset[int] | None = None
        self.key = os.urandom(16).hex()
        name = f"spritz-{os.getpid()}-{os.urandom(8).hex()}"
        self.address = f"unix:@{name}"
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        self._socket.bind("\0" + name)
        self._socket.listen(_BACKLOG)
        self._socket.settimeout(0)
        #: A TCP port that stays reserved while the step runs (SLURM_SRUN_COMM_PORT). Differs: supervisors do not use it
        #: and no socket listens on it; programs take it as a number that no other step on this machine has.
        self._reserved = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        self._reserved.bind(("", 0))
        self.port: int = self._reserved.getsockname()[1]

    def fileno(self) -> int:
        """Descriptor that the reactor polls for connections."""
        return self._socket.fileno()

    def accept(self) -> int | None:
        """Descriptor of the next connection, from a process of this user or of a trusted one; None if none waits."""
        while True:
            try:
                # `socket.socket.accept` calls this method, which typeshed leaves out.
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
        """Uids of the daemons that forward connections of supervisors on other machines."""
        if self._owners is None:
            self._owners = locate_controller().owners()
        return self._owners

    def close(self) -> None:
        """Close the socket; connected supervisors stay connected."""
        self._socket.close()
        self._reserved.close()


def _allow_more_files() -> bool:
    """Raise the limit of open files, for a step with very many nodes; False if it is at its maximum.

    Called only when needed, because the step inherits the limit that its user has set.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return True


class Link:
    """A supervisor of the step, whatever its current connection is (see `move`).

    A numbered conversation (`stepd.protocol`) outlives its connection: frames sent in between are kept.
    """

    def __init__(self, hello: protocol.Hello, part: int, rank: int) -> None:
        self.hello = hello
        #: the part of the step, and the rank of the node in the whole step
        self.part = part
        self.rank = rank
        self.done = False
        self.started = False
        self.pids: tuple[int, ...] = ()
        #: bytes of standard input that the supervisor has not used up
        self.uncredited = 0
        self.closed = False
        #: when the connection was lost, by the reactor's clock; None while connected
        self.lost_at: float | None = None
        self._kept = Kept() if hello.attempt >= 0 else None
        self._received = 0
        self._told = 0
        self._connection: Connection | None = None
        self._place = -1

    @property
    def node(self) -> str:
        return self.hello.node

    @property
    def is_numbered(self) -> bool:
        """Whether the conversation is numbered, so that it can continue on another connection."""
        return self._kept is not None

    @property
    def connection(self) -> Connection | None:
        """The present connection; None if it was lost."""
        return self._connection

    @property
    def is_behind(self) -> bool:
        """Whether the supervisor is connected through another node's supervisor."""
        return self._place >= 0

    def move(self, connection: Connection, place: int, hello: protocol.Hello) -> None:
        """Use `connection` from now on. `place`: -1 at the connection's other end, else its place in the step."""
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
        """The connection broke at `now`, by the reactor's clock."""
        self._connection, self.lost_at = None, now

    def send(self, frames: bytes) -> None:
        """Send now, or as soon as the supervisor reads."""
        if self.closed or not frames:
            return
        self.keep(frames)
        self._send(frames)

    def keep(self, frames: bytes) -> None:
        """Keep frames until they are acknowledged, without sending them: `send_all` sends to whole connections."""
        if self._kept is not None:
            self._kept.add(frames)

    def take(self, kind: int, payload: bytes) -> bool:
        """Process acknowledgements and counters. False if the frame needs no further handling. Raises ProtocolError."""
        if self._kept is None:
            return True
        if self.closed:
            return False  # it may acknowledge frames that were sent to all behind its connection
        if kind == protocol.TAKEN:
            self._kept.take(protocol.unpack_count(payload))
            return False
        self._received += protocol.HEADER_BYTES + len(payload)
        if self._received - self._told >= TELL_BYTES or kind == protocol.DONE:
            self._tell()
        return True

    def close(self) -> None:
        """End the conversation. The connection stays open if it carries other nodes."""
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
    """Send frames to many supervisors, once per connection. Other supervisors behind a connection, which have not
    identified themselves or have ended, ignore them.
    """
    served: set[Connection] = set()
    for link in links:
        connection = link.connection
        if link.closed or connection is None or not link.is_behind:
            link.send(frames)
            continue
        link.keep(frames)
        if connection not in served:
            served.add(connection)
            connection.send(protocol.via(protocol.ALL_NODES, frames))


class Connection:
    """A connection to a supervisor, and through it to the supervisors behind it.

    A HELLO makes a link: `on_hello(connection, place, payload)` returns it, or None if the sender is not of this step.
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
        #: links by place in the step; -1: the other end
        self.links: dict[int, Link] = {}
        self.closed = False
        #: whether the other end has sent HELLO
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
        """Remove a link that uses another connection from now on."""
        for place in [place for place, known in self.links.items() if known is link]:
            del self.links[place]

    def pause(self, paused: bool) -> None:
        """Stop reading (our own output is full), or continue."""
        if paused != self._paused and not self.closed:
            self._paused = paused
            self._watch()

    def close(self) -> None:
        """Close the connection, unsent output included; no callback runs."""
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
                self._queue.clear()  # the peer is gone: reading will report it
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
                    for frame in decoder.feed(payload):
                        self._take(task, *frame)
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
