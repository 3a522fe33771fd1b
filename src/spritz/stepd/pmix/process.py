"""The process that serves PMIx to the step's tasks on this node.

Forked from the supervisor before the tasks, it is the step's user from then on. It says one thing first: `Ready`, with
the tasks' variables or why there are none. Then frames of `protocol` go both ways until the supervisor's end closes.
"""

from __future__ import annotations

import gc
import heapq
import itertools
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from struct import Struct as Layout
from typing import TYPE_CHECKING

import msgspec.msgpack

from spritz.stepd import processes, protocol
from spritz.stepd.pmix import messages
from spritz.stepd.pmix.binding import ERR_TIMEOUT, PmixError
from spritz.stepd.pmix.exchange import Exchange
from spritz.stepd.pmix.server import Server
from spritz.stepd.reactor import close_in_child
from spritz.stepd.spec import NOTHING
from spritz.stepd.tasks.start import become

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from spritz.stepd.pmix.server import Reply
    from spritz.stepd.spec import Identity, Pmix, SupervisorSpec

NAME = "slurmstepd-pmix"
#: Seconds for the library to end; then the kernel ends this process.
_FINISH_SECONDS = 5
_RECEIVE_BYTES = 256 * 1024
_VARIABLES = (b"HOME", b"PATH", b"LANG")
_LENGTH = Layout("!I")


class Ready(msgspec.Struct, frozen=True, array_like=True):
    """Variables (`NAME=value`) of each task here, in local order; or what went wrong."""

    environments: tuple[tuple[bytes, ...], ...] = ()
    error: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode_ready = msgspec.msgpack.Decoder(Ready).decode


def receive_ready(connection: socket.socket) -> Ready:
    """The first word of the process. Raises EOFError if it dies, OSError if it does not speak in time."""
    (size,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    try:
        return _decode_ready(_receive(connection, size))
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        return Ready(error=str(error))


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        data = connection.recv(size - len(received))
        if not data:
            raise EOFError("the PMIx server died")
        received += data
    return received


def run(about: Pmix, spec: SupervisorSpec, directory: str, connection: socket.socket, errors: int) -> NoReturn:
    """In the forked child: all of its life. `directory` is the user's; `errors` is where the library writes."""
    status = 1
    try:
        _settle(spec, directory, connection, errors)
        _Process(about, directory, socket.socket(fileno=3)).live(spec.identity)
        status = 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(status)


def _settle(spec: SupervisorSpec, directory: str, connection: socket.socket, errors: int) -> None:
    """Become a process that holds nothing of the supervisor's, under the user's name."""
    close_in_child()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(NOTHING, os.O_RDWR)
    connection.setblocking(True)
    kept = [os.dup(descriptor) for descriptor in (nothing, nothing, errors, connection.fileno())]
    for target, descriptor in enumerate(kept):
        os.dup2(descriptor, target, inheritable=False)
    os.closerange(len(kept), os.sysconf("SC_OPEN_MAX"))
    processes.name_process(NAME)
    become(spec.identity)
    os.chdir(directory)
    _take_variables(spec.environment)
    gc.enable()


def _take_variables(environment: tuple[bytes, ...]) -> None:
    """The library looks into its environment: settings of the user's own, and nothing of the daemon's."""
    os.environ.clear()
    for variable in environment:
        name, _, value = variable.partition(b"=")
        if name in _VARIABLES or name.startswith(b"PMIX_MCA_"):
            os.environb[name] = value


class _Process:
    """The host of the library."""

    def __init__(self, about: Pmix, directory: str, connection: socket.socket) -> None:
        self._connection = connection
        self._calls: deque[Callable[[], None]] = deque()
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._about = about
        #: (deadline, number, answer) of callers with a time limit
        self._timers: list[tuple[float, int, Reply]] = []
        self._numbers = itertools.count()
        self._directory = directory

    def live(self, identity: Identity) -> None:
        """From the first word to the end."""
        try:
            server = Server(self._about, self._directory, self)
            server.start(identity)
            ranks = self._about.ranks[self._about.node]
            ready = Ready(tuple([server.environment(rank) for rank in ranks]))
            self._exchange = Exchange(self._about, self._send, server.local_data)
        except PmixError as error:
            ready = Ready(error=str(error))
        body = _encode(ready)
        self._connection.sendall(_LENGTH.pack(len(body)) + body)
        if not ready.error:
            self._loop()
            signal.alarm(_FINISH_SECONDS)  # whose default ends us, wherever we hang
            server.finish()

    def _loop(self) -> None:
        poll = select.poll()
        poll.register(3, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        decoder, assembler = protocol.Decoder(), messages.Assembler()
        while True:
            for descriptor, _ in poll.poll(self._patience_ms()):
                if descriptor == self._wake_reader:
                    self._work()
                    continue
                data = self._connection.recv(_RECEIVE_BYTES)
                if not data:
                    return
                for _kind, task, payload in decoder.feed(data):
                    message = assembler.feed(payload, last=task == protocol.ALL_TASKS)
                    if message is not None:
                        self._exchange.take(message)

    def _patience_ms(self) -> float | None:
        """Answer those who have waited long enough; how long the next one waits yet."""
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2](ERR_TIMEOUT, b"")
        return max(1.0, (self._timers[0][0] - time.monotonic()) * 1000) if self._timers else None

    def _work(self) -> None:
        os.read(self._wake_reader, 4096)
        while self._calls:
            self._calls.popleft()()

    def _send(self, message: messages.Message) -> None:
        self._connection.sendall(messages.frames(message))

    # -- the library's host

    def post(self, call: Callable[[], None]) -> None:
        """Called on the library's threads."""
        self._calls.append(call)
        try:
            os.write(self._wake_writer, b"\0")
        except BlockingIOError:
            pass  # it is awake

    def collect(self, kind: bytes, ranks: tuple[int, ...], data: bytes, reply: Reply) -> None:
        """Collect data as `Exchange.collect` does."""
        self._exchange.collect(kind, ranks, data, reply)

    def fetch(self, rank: int, reply: Reply) -> None:
        """Fetch data as `Exchange.fetch` does."""
        self._exchange.fetch(rank, reply)

    def publish(self, rank: int, entries: tuple[tuple[bytes, bytes], ...], reply: Reply) -> None:
        """Publish data as `Exchange.publish` does."""
        self._exchange.publish(rank, entries, reply)

    def look_up(self, keys: tuple[bytes, ...], wait: int, seconds: int, reply: Reply) -> None:
        """Look data up as `Exchange.look_up` does, but for at most this time."""
        answered = False

        def once(status: int, data: bytes) -> None:
            nonlocal answered
            if not answered:
                answered = True
                reply(status, data)

        if wait and seconds > 0:
            heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), once))
        self._exchange.look_up(keys, wait, once)

    def unpublish(self, rank: int, keys: tuple[bytes, ...], reply: Reply) -> None:
        """Withdraw data as `Exchange.unpublish` does."""
        self._exchange.unpublish(rank, keys, reply)

    def abort(self, rank: int, status: int) -> None:
        """The supervisor passes it on to the client, which ends the step."""
        self._connection.sendall(protocol.frame(protocol.PMI_ABORT, rank, protocol.pack_status(status)))

    def lost(self, rank: int) -> None:
        """Report a lost task, without a status."""
        self._connection.sendall(protocol.frame(protocol.PMI_ABORT, rank))
