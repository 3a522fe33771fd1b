"""A supervisor's connection to the client over a path that may break: other nodes' supervisors, or two daemons.

An `Uplink` has the interface of a `ClientLink`. It connects to the supervisor of its parent in the tree; if that cannot
be reached, to the client itself. A broken connection is replaced, and both ends repeat what the other has not
acknowledged (`protocol`, numbered conversations). The uplink gives up when nothing listens at the client's address, or
when the client could not be reached for `BROKEN_SECONDS`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from spritz.stepd import protocol
from spritz.stepd.clients.connections import (
    ELSEWHERE_SECONDS,
    QUEUE_HIGH_BYTES,
    ClientLink,
    connect_once,
    is_elsewhere,
    is_trusted,
)
from spritz.stepd.clients.numbered import TELL_BYTES, Kept
from spritz.stepd.reactor import READABLE, Reactor, Timer
from spritz.stepd.spec import Identity, SupervisorSpec
from spritz.stepd.tasks.start import AsUser

#: How long the parent may take to listen; its prolog may still run.
PARENT_SECONDS = 5.0
#: How long the client may be out of reach: long enough for a restart of daemons and a failover.
BROKEN_SECONDS = 30.0
#: Between attempts, at first and at most.
_WAIT_SECONDS, _WAIT_SECONDS_MAX = 0.02, 0.25

#: By how much a frame that nothing waits for may be late, so that it leaves with others.
_PATIENCE_SECONDS = 0.01

#: Why there is no connection: nothing listens at the address; the machine could not be reached.
ABSENT, AWAY = "absent", "away"


class Uplink:
    """`hello(attempt, received)` makes the first frame of a connection. `on_way(there)`: a connection was made or lost.
    `on_greeted()`: the client has answered on it."""

    primary = True

    def __init__(
        self,
        reactor: Reactor,
        spec: SupervisorSpec,
        hello: Callable[[int, int], bytes],
        *,
        on_frame: Callable[[Uplink, int, int, bytes], None],
        on_drained: Callable[[Uplink], None],
        on_closed: Callable[[Uplink, bool], None],
        on_way: Callable[[bool], None],
        on_greeted: Callable[[], None],
    ) -> None:
        self.detached = False
        self.closed = False
        self._reactor = reactor
        self._spec = spec
        self._hello = hello
        self._on_frame = on_frame
        self._on_drained = on_drained
        self._on_closed = on_closed
        self._on_way = on_way
        self._on_greeted = on_greeted
        self._kept = Kept()
        self._received = 0
        self._told = 0
        self._attempt = 0
        #: whether the client has answered since there is this connection
        self.greeted = False
        self._link: ClientLink | None = None
        self._unsent: list[bytes] = []
        self._finishing = False
        #: whether the node above is tried next, not the client
        self._to_parent = bool(spec.io_parent)
        self._broken_at = time.monotonic()
        self._wait = _WAIT_SECONDS

    @property
    def queued_bytes(self) -> int:
        """Bytes that the client has not acknowledged."""
        return max(self._kept.bytes, self._link.queued_bytes if self._link is not None else 0)

    def begin(self) -> None:
        """Connect; where that takes a while, when the reactor runs."""
        self._try()

    def send(self, frames: bytes) -> None:
        """Send, and repeat on later connections until the client has acknowledged the frames."""
        if self.closed or not frames:
            return
        self._kept.add(frames)
        if self._link is not None and self.greeted:
            # The frames of one turn of the reactor leave together, and some wait for those that follow: each supervisor
            # above then has less to do.
            self._unsent.append(frames)
            if not protocol.may_wait(frames):
                self._reactor.after(0.0, self._flush)
            elif len(self._unsent) == 1:
                self._reactor.after(_PATIENCE_SECONDS, self._flush)

    def _flush(self) -> None:
        frames = b"".join(self._unsent)
        self._unsent.clear()
        if self._link is not None:
            self._link.send(frames)

    def pass_on(self, frames: bytes) -> None:
        """Send frames of a node below, which repeats them itself if they are lost."""
        if self._link is not None:
            self._link.send(frames)

    def finish(self) -> None:
        """Close as soon as the client has acknowledged everything."""
        self._finishing = True
        self._close_if_taken()

    def close(self) -> None:
        self._over(lost=False)

    # -- a connection

    def _connected(self, connection: socket.socket) -> None:
        self._link = ClientLink(
            self._reactor,
            connection,
            primary=True,
            on_frame=self._frame,
            on_drained=lambda link: self._on_drained(self),
            on_closed=self._broken,
        )
        self._wait = _WAIT_SECONDS
        self._link.send(self._hello(self._attempt, self._received))
        if self._link is not None:
            self._on_way(True)

    def _frame(self, link: ClientLink, kind: int, task: int, payload: bytes) -> None:
        if kind == protocol.TAKEN:
            self._taken(link, protocol.unpack_count(payload))
        elif kind == protocol.VIA:
            self._on_frame(self, kind, task, payload)
        elif self.greeted:
            self._received += protocol.HEADER_BYTES + len(payload)
            self._on_frame(self, kind, task, payload)
            if self._received - self._told >= TELL_BYTES:
                self._told = self._received
                link.send(protocol.frame(protocol.TAKEN, protocol.ALL_TASKS, protocol.pack_count(self._received)))

    def _taken(self, link: ClientLink, count: int) -> None:
        before = self._kept.bytes
        self._kept.take(count)
        if not self.greeted:
            self.greeted = True
            link.send(self._kept.all())
            self._on_greeted()
        if before > QUEUE_HIGH_BYTES >= self._kept.bytes:
            self._on_drained(self)
        self._close_if_taken()

    def _close_if_taken(self) -> None:
        if self._finishing and not self._kept.bytes:
            self._over(lost=False)

    def _broken(self, link: ClientLink, lost: bool) -> None:
        if self._link is not link:
            return
        self._link = None
        self._unsent.clear()
        self._on_way(False)
        if self.closed:
            return
        self._attempt += 1
        self.greeted = False
        self._broken_at = time.monotonic()
        self._to_parent = bool(self._spec.io_parent)
        self._try()

    def _over(self, *, lost: bool) -> None:
        if not self.closed:
            self.closed = True
            if self._link is not None:
                self._link.close()
            self._on_closed(self, lost)

    # -- another one

    def _try(self) -> None:
        if self.closed or self._link is not None:
            return
        spec = self._spec
        if self._to_parent:
            at, port = spec.io_parent_at
            led = protocol.Where("", spec.io_parent, at, port) if at else None
            Attempt(self._reactor, spec, spec.io_parent, led, self._streams(), self._tried)
            return
        there = protocol.elsewhere(spec.io_address)
        address = there[2] if there is not None else spec.io_address
        led = protocol.Where(there[0], address) if there is not None and is_elsewhere(there[0]) else None
        Attempt(self._reactor, spec, address, led, self._streams(), self._tried)

    def _streams(self) -> str:
        there = protocol.elsewhere(self._spec.io_address)
        return there[1] if there is not None else ""

    def _tried(self, connection: socket.socket | None, why: str) -> None:
        if connection is not None:
            if self.closed:
                connection.close()
            else:
                self._connected(connection)
            return
        passed = time.monotonic() - self._broken_at
        if self._to_parent:
            # Before the first connection the parent's supervisor may still be starting: try again for a while. After
            # it, the parent has ended or is cut off: go to the client.
            if why == AWAY or self._attempt or passed > PARENT_SECONDS:
                self._to_parent = False
                self._try()
                return
        elif why == ABSENT or passed > BROKEN_SECONDS:
            self._over(lost=True)
            return
        self._timer: Timer = self._reactor.after(self._wait, self._try)
        self._wait = min(2 * self._wait, _WAIT_SECONDS_MAX)


class Attempt:
    """One attempt to connect to a user's socket here, or by way of a daemon; `then(connection, why there is none)`.

    `led`: where a daemon, at the socket `streams`, can lead us to; None: the address is of this machine.
    """

    def __init__(
        self,
        reactor: Reactor,
        spec: SupervisorSpec,
        address: str,
        led: protocol.Where | None,
        streams: str,
        then: Callable[[socket.socket | None, str], None],
    ) -> None:
        self._reactor = reactor
        self._then = then
        connection, why = _open(protocol.parse_address(address), spec.identity)
        if connection is not None or led is None or not streams:
            then(connection, why)
            return
        connection, _why = _open(streams, spec.identity, spec.relay_uid)
        if connection is None:
            then(None, AWAY)
            return
        self._connection = connection
        try:
            connection.send(protocol.preamble(led))
        except OSError:
            self._answer(b"")
            return
        self._timer = reactor.after(ELSEWHERE_SECONDS, lambda: self._answer(b""))
        reactor.watch(connection.fileno(), READABLE, self._ready)

    def _ready(self, ready: int) -> None:
        try:
            answer = os.read(self._connection.fileno(), 1)
        except BlockingIOError:
            return
        except OSError:
            answer = b""
        self._timer.cancel()
        self._answer(answer)

    def _answer(self, answer: bytes) -> None:
        self._reactor.forget(self._connection.fileno())
        if answer == protocol.REACHED:
            self._then(self._connection, "")
            return
        self._connection.close()
        self._then(None, ABSENT if answer == protocol.ABSENT else AWAY)


def _open(name: str, identity: Identity, *relays: int) -> tuple[socket.socket | None, str]:
    # As the user, who chose the address: root must not open a socket that the user could not.
    try:
        with AsUser(identity):
            connection = connect_once(name, blocking=False)
    except BlockingIOError:  # it listens, and its backlog is full
        return None, "busy"
    except OSError:
        return None, ABSENT
    if not is_trusted(connection, identity.uid, *relays):
        connection.close()
        return None, AWAY
    return connection, ""
