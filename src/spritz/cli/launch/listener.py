"""Where a step's supervisors connect, and one connected supervisor.

An abstract Unix socket: nothing to clean up. The kernel says who connects, and the key proves which step it is for.
Supervisors on other machines come by way of the daemon of this one (docs/decisions/0177).
"""

from __future__ import annotations

import _socket
import errno
import os
import sys
from typing import TYPE_CHECKING

from spritz.stepd import protocol
from spritz.stepd.reactor import READABLE, WRITABLE

if TYPE_CHECKING:
    from collections.abc import Callable

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
            from spritz.client.locate import locate_controller

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
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return True


class Link:
    """One supervisor. Calls `on_frame(link, kind, task, payload)`, and `on_end(link)` when the connection is over."""

    def __init__(
        self,
        reactor: Reactor,
        descriptor: int,
        *,
        on_frame: Callable[[Link, int, int, bytes], None],
        on_end: Callable[[Link], None],
        on_read: Callable[[Link], None],
    ) -> None:
        self.hello: protocol.Hello | None = None
        #: which part of the step it is of, and the rank of its node in the whole
        self.part = 0
        self.rank = 0
        self.done = False
        self.started = False
        self.pids: tuple[int, ...] = ()
        #: bytes of standard input that the supervisor has not used up
        self.uncredited = 0
        self.closed = False
        self._reactor = reactor
        self._descriptor = descriptor
        self._decoder = protocol.Decoder()
        self._queue: list[memoryview] = []
        self._on_frame = on_frame
        self._on_end = on_end
        self._on_read = on_read
        self._paused = False
        reactor.watch(descriptor, READABLE, self._ready)

    @property
    def node(self) -> str:
        """Its node's name."""
        return self.hello.node if self.hello is not None else "?"

    def send(self, frame: bytes) -> None:
        """Send now, or as soon as the supervisor reads."""
        if self.closed or not frame:
            return
        self._queue.append(memoryview(frame))
        if len(self._queue) == 1:
            self._flush()

    def pause(self, paused: bool) -> None:
        """Stop (or go on) reading: our own output is full."""
        if paused != self._paused and not self.closed:
            self._paused = paused
            self._watch()

    def close(self) -> None:
        """Let go of the connection, without a word to anybody."""
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
                self._on_frame(self, kind, task, payload)
                if self.closed:
                    return
        except protocol.ProtocolError:
            data = b""
        self._on_read(self)
        if not data and not self.closed:
            self.close()
            self._on_end(self)
