"""The supervisor's side of the connection to the node daemon, which may break and be made again at any time."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable

from spritz.model.reports import StepFinished
from spritz.stepd import control
from spritz.stepd.reactor import READABLE, WRITABLE, Reactor
from spritz.stepd.spec import CONTROL


class DaemonLink:
    """Receives orders and sends reports. A daemon that reconnects gets all reports again.

    `connection` is the one that the daemon handed over at the start; later ones come to the spool's socket, which is
    made in the working directory. Raises OSError: FileExistsError if it exists.
    """

    def __init__(
        self,
        reactor: Reactor,
        connection: socket.socket,
        *,
        on_order: Callable[[control.Order], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._reactor = reactor
        self._on_order = on_order
        self._on_gone = on_gone
        self._outgoing = b""
        self._started: control.Started | None = None
        self._finished: control.Finished | None = None
        self._listener = _listen()
        reactor.watch(self._listener.fileno(), READABLE, self._accept)
        self._connection: socket.socket | None = None
        self._first = connection
        self._take(connection)

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def send(self, report: control.Started) -> None:
        """Send a report to the daemon, and to any later one."""
        self._started = report
        self._send(report)

    def answer(self, report: control.Measured) -> None:
        """Answer the daemon's request; later daemons do not get it."""
        self._send(report)

    def finished(self, result: StepFinished) -> None:
        """Report the result to the daemon, and to any later one."""
        self._finished = control.Finished(result)
        self._send(self._finished)

    def release(self) -> socket.socket | None:
        """Release the link; returns the first connection, if still open, for the next step."""
        self._reactor.forget(self._listener.fileno())
        self._listener.close()
        if self._connection is not self._first:
            self._drop()
            return None
        self._reactor.forget(self._first.fileno())
        return self._first

    def _take(self, connection: socket.socket) -> None:
        self._drop()
        connection.setblocking(False)
        self._connection = connection
        self._decoder = control.OrderDecoder()
        self._outgoing = b""
        self._reactor.watch(connection.fileno(), READABLE, self._ready)
        for report in (self._started, self._finished):
            if report is not None:
                self._send(report)

    def _drop(self) -> None:
        if self._connection is not None:
            self._reactor.forget(self._connection.fileno())
            self._connection.close()
            self._connection = None

    def _accept(self, ready: int) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            connection, _ = self._listener.accept()
            peer = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], "little")
            if peer in (0, os.geteuid()):
                self._take(connection)
            else:
                connection.close()

    def _send(self, report: control.Report) -> None:
        if self._connection is not None:
            self._outgoing += control.encode(report)
            self._flush()

    def _flush(self) -> None:
        assert self._connection is not None
        try:
            sent = self._connection.send(self._outgoing, socket.MSG_NOSIGNAL)
            self._outgoing = self._outgoing[sent:]
        except BlockingIOError:
            pass
        except OSError:
            return  # the end of file that follows is handled elsewhere
        self._reactor.watch(self._connection.fileno(), READABLE | (WRITABLE if self._outgoing else 0), self._ready)

    def _ready(self, ready: int) -> None:
        if self._connection is None:
            return
        if ready & WRITABLE:
            self._flush()
        if ready & ~WRITABLE:
            self._receive(self._connection)

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop()
            self._on_gone()
            return
        for order in self._decoder.feed(data):
            self._on_order(order)


def _listen() -> socket.socket:
    """A listening socket by a relative name: socket paths end at 107 bytes, spool paths do not.

    Raises FileExistsError if the name is taken, and OSError where the file system has no sockets.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        listener.bind(CONTROL)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise FileExistsError(error.errno, "the step was given up before it could begin") from error
        raise OSError(error.errno, f"cannot listen in the spool directory: {error.strerror}", os.getcwd()) from error
    listener.listen(4)
    return listener
