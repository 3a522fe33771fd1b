"""Blocking sockets for threads of simulated commands, in place of the system's: `client.command.sync`, srun's reactor.

The commands' code is production code; only the modules `_socket` and `select`, and the question who has a TCP port, are
replaced. A command is one thread of its process, so waiting for several sockets needs one wait for each process.
"""

from __future__ import annotations

import _socket
import errno
import itertools
import os
import posix
import select
import socket as real_socket
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spritz.client import locate
from spritz.client.command import sync
from spritz.stepd.reactor import Reactor
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.machine import USERS

if TYPE_CHECKING:
    import asyncio

    from spritz_testing.daemons.system.network import End
    from spritz_testing.daemons.system.world import Process

#: Seconds between two packets that ask for a connection.
_CONNECT_AGAIN_SECONDS = 1.0

_descriptors = itertools.count(50_000)
#: open sockets by descriptor
_open: dict[int, Socket] = {}


class _Arrivals(threads._Waited):
    """What the only thread of a process waits for: something on any of its sockets, or a signal."""

    def __init__(self) -> None:
        super().__init__()
        #: handlers of signals that have arrived, for the thread to call
        self.calls: deque[Callable[[], None]] = deque()

    def wake(self) -> None:
        self._wake()

    def wait(self, ready: Callable[[], bool], seconds: float | None) -> bool:
        return self._wait(ready, seconds)


_arrivals: dict[Process, _Arrivals] = {}


def arrivals(process: Process) -> _Arrivals:
    found = _arrivals.get(process)
    if found is None:
        found = _arrivals[process] = _Arrivals()

        def ended(silently: bool) -> None:
            _arrivals.pop(process, None)

        process.on_end.append(ended)
    return found


def interrupt(process: Process, call: Callable[[], None]) -> None:
    """A signal arrives: its handler runs in the process's reactor."""
    if process.is_alive:
        waiting = arrivals(process)
        waiting.calls.append(call)
        waiting.wake()


class Socket:
    """As `_socket.socket`. Connects by the name of a Unix socket, or address and port."""

    def __init__(self, family: int = real_socket.AF_INET, kind: int = real_socket.SOCK_STREAM, proto: int = 0) -> None:
        self.family = family
        self.type = kind
        self._process = threads.world().running
        self._arrivals = arrivals(self._process)
        self._number = next(_descriptors)
        self._timeout: float | None = None
        self.end: End = None  # type: ignore[assignment]  # until it is connected
        self._incoming = bytearray()
        #: the peer has sent its last byte, or the connection broke
        self._is_over = False
        self._error: Exception | None = None
        self._may_write = True
        _open[self._number] = self

    # As a socket

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def setsockopt(self, *_: object) -> None:
        pass

    def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:
        """SO_PEERCRED: pid, uid and gid of the peer."""
        assert option == real_socket.SO_PEERCRED, "the one that is asked for"
        peer = self.end.other.process
        return b"".join(number.to_bytes(4, sys.byteorder) for number in (peer.pid, peer.uid, peer.uid))

    def fileno(self) -> int:
        return self._number

    def connect(self, address: str | tuple[str, int]) -> None:
        """Raises OSError; TimeoutError after the timeout."""
        world, process = self._process.world, self._process
        network = world.network
        host_name, name = ("", address) if isinstance(address, str) else address[:2]
        host = world.find_host(str(host_name)) if host_name else process.host
        if host is None:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        deadline = None if self._timeout is None else world.now + self._timeout
        while not host.is_up or network.is_cut(process.host, host) or network.is_cut(host, process.host):
            if deadline is not None and world.now + _CONNECT_AGAIN_SECONDS > deadline:
                threads.sleep(deadline - world.now)
                raise TimeoutError("timed out")
            threads.sleep(_CONNECT_AGAIN_SECONDS)
        threads.sleep(network.delay(process.host, host) + network.delay(host, process.host))
        network.join(process, host, name, self)

    def sendall(self, data: bytes) -> None:
        self._check_writable()
        self.end.write(data)
        if not self._arrivals.wait(lambda: self._may_write or self._is_over, self._timeout):
            raise TimeoutError("timed out")

    def _check_writable(self) -> None:
        self._raise_once()
        if self.end.is_over:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def _raise_once(self) -> None:
        """The kernel tells an error once; then the stream has ended."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def recv(self, size: int) -> bytes:
        if not self._arrivals.wait(self.is_readable, self._timeout):
            raise TimeoutError("timed out")
        self._raise_once()
        data = bytes(self._incoming[:size])
        del self._incoming[:size]
        return data

    def close(self) -> None:
        _open.pop(self._number, None)
        self._number = -1
        if self.end is not None:
            self.end.close()

    def is_readable(self) -> bool:
        return bool(self._incoming) or self._is_over

    # As the pipe of an end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        self._incoming += data
        self._arrivals.wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over = True
        self._error = error
        self._arrivals.wake()

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._arrivals.wake()


class Poll:
    """As `select.poll()`, for sockets that become readable."""

    def __init__(self) -> None:
        self._watched: dict[int, int] = {}
        self._arrivals = arrivals(threads.world().running)

    def register(self, descriptor: Any, events: int) -> None:
        self._watched[descriptor if isinstance(descriptor, int) else descriptor.fileno()] = events

    def unregister(self, descriptor: int) -> None:
        del self._watched[descriptor]

    def poll(self, patience_ms: float | None = None) -> list[tuple[int, int]]:
        """Ready descriptors. Calls the handlers of signals that have arrived, as the interpreter does."""
        waiting = self._arrivals
        waiting.wait(lambda: bool(waiting.calls or self._ready()), None if patience_ms is None else patience_ms / 1000)
        while waiting.calls:
            waiting.calls.popleft()()
        return self._ready()

    def _ready(self) -> list[tuple[int, int]]:
        return [
            (descriptor, select.POLLIN)
            for descriptor, events in self._watched.items()
            if events & select.POLLIN and descriptor in _open and _open[descriptor].is_readable()
        ]


class SimulatedReactor(Reactor):
    """srun's reactor, over simulated sockets and without the pipe that wakes it."""

    def __init__(self) -> None:
        self._poll = Poll()  # type: ignore[assignment]
        self._callbacks = {}
        self._events = {}
        self._timers = []
        self._stopped = False
        self.on_child = lambda: None

    def close(self) -> None:
        pass


class SocketModule:
    """Stands for the module `_socket`."""

    socket = Socket

    def __getattr__(self, name: str) -> Any:
        return getattr(_socket, name)

    @staticmethod
    def getaddrinfo(host: str | bytes, port: int, *_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        """Names of simulated hosts, and addresses as they are. Raises OSError for a name that is unknown."""
        name = host.decode() if isinstance(host, bytes) else host
        process = threads.world().running
        found = process.host if name in ("localhost", "127.0.0.1") else process.world.find_host(name)
        if found is None:
            raise real_socket.gaierror(-2, "Name or service not known")
        return [(real_socket.AF_INET, real_socket.SOCK_STREAM, 6, "", (found.address, port))]


def is_readable(connection: Socket) -> bool:
    return connection.is_readable()


def check_tcp_owner(connection: Socket, owners: frozenset[int], deadline: float) -> None:
    sync._trust(connection.end.other.process.uid, owners, "port")


def owners(path: str, slurm_user: str) -> frozenset[int]:
    return frozenset((0, USERS[slurm_user]))


def urandom(size: int) -> bytes:
    return threads.world().random("commands").randbytes(size)


def replacements() -> list[tuple[object, object]]:
    """What of `seam`'s table this module is."""
    return [
        (_socket, SocketModule()),
        (sync._check_tcp_owner, check_tcp_owner),
        (sync._is_readable, is_readable),
        (locate._owners, owners),
        (posix.urandom, urandom),
        (posix.geteuid, lambda: threads.world().running.uid),
    ]
