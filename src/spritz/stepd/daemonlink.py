"""The supervisor's side of the connection to the node daemon, which may break and be made again at any time."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable

from spritz.stepd import control
from spritz.stepd.reactor import READABLE, WRITABLE, Reactor
from spritz.stepd.spec import CONTROL, SUPERVISOR

GIVEN_UP = "the step was given up before it could begin"


class Listener:
    """The Unix socket by which a restarted daemon finds this process: one for all its steps.

    It has a name in the spool directory of the current step, and one outside of that, since making another name for a
    socket costs far less than another socket.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._path = ""

    def listen(self) -> socket.socket:
        """Name it in the working directory, the step's. Raises FileExistsError if the daemon gave up the step, and
        OSError where the file system has no sockets.
        """
        if self._socket is not None and self._path and self._named():
            return self._socket
        self.close()
        self._socket = _listen()
        path = f"{os.path.dirname(os.getcwd())}/{SUPERVISOR}{os.getpid()}"
        try:
            os.link(CONTROL, path)
            self._path = path
        except OSError:
            pass  # then each step makes a socket
        return self._socket

    def _named(self) -> bool:
        try:
            os.link(self._path, CONTROL)
        except FileExistsError as error:
            raise FileExistsError(error.errno, GIVEN_UP) from error
        except OSError:  # this step's spool is in another file system, or the name was removed
            return False
        return True

    def close(self) -> None:
        """Close it, and remove the name outside of steps."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._path:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            self._path = ""


class DaemonLink:
    """Receives orders and sends reports. A daemon that reconnects gets all reports again: the one before may have
    been killed after it read one and before it did anything.

    `connection` is the one that the daemon handed over at the start; later ones come to `listener`.
    """

    def __init__(
        self,
        reactor: Reactor,
        connection: socket.socket,
        listener: socket.socket,
        *,
        on_order: Callable[[control.Order], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._reactor = reactor
        self._on_order = on_order
        self._on_gone = on_gone
        self._outgoing = b""
        #: what each connection is told first
        self._started: control.Started | None = None
        self._finished: control.Finished | None = None
        self._listener = listener
        reactor.watch(listener.fileno(), READABLE, self._accept)
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

    def finished(self, report: control.Finished) -> None:
        """Report the result to the daemon, and to any later one."""
        self._finished = report
        self._send(self._finished)

    def release(self) -> socket.socket | None:
        """Release the link; returns the first connection, if still open, for the next step."""
        self._reactor.forget(self._listener.fileno())
        if self._connection is not self._first:
            self._drop()
            return None
        self._reactor.forget(self._first.fileno())
        return self._first

    def _take(self, connection: socket.socket) -> None:
        # One at a time, the newest: the daemon that connects has replaced the one before, whose connection may be open
        # yet. Half an order or report of that one must not be continued by this one: decoder and output begin anew.
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
            # Whoever can enter the spool directory can connect. Orders are root's, or those of this process's own user.
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
            self._drop()  # tasks run on: the daemon may be back in a second, or tomorrow
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
            raise FileExistsError(error.errno, GIVEN_UP) from error
        raise OSError(error.errno, f"cannot listen in the spool directory: {error.strerror}", os.getcwd()) from error
    listener.listen(4)
    return listener
