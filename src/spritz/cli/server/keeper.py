"""The server's parent: it keeps spare children, hears how they end, and knows when to end itself.

It never reads what a launcher sends. A launcher that goes away takes its command with it, as if that had been killed;
a command that stops or is killed is told to its launcher.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import time
from socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOCK_STREAM, SOL_SOCKET, socket, socketpair

from spritz.cli.server import child, reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.cli.entry import Main
    from spritz.cli.server.sources import Sources

SPARES = 2
#: Without a call for so long it ends.
IDLE_SECONDS = 900.0
_LOOK_SECONDS = 30.0
_SHOW_SECONDS = 1.0
_REST_MS = 10.0
_CMSG_CLOEXEC = 0x40000000
#: Spares that end unused, one after the other, before something is taken to be wrong.
_UNUSED_MAX = 5


class Keeper:
    """`is_current()` says whether calls still come here, and what is installed is still this."""

    def __init__(
        self,
        listener: socket,
        lock: int,
        commands: dict[str, Main],
        sources: Sources,
        *,
        system: bool,
        is_current: Callable[[], bool],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._listener = listener
        self._lock = lock
        self._commands = commands
        self._sources = sources
        self._system = system
        self._is_current = is_current
        self._idle_seconds = idle_seconds
        self._control, self._childrens_control = socketpair(AF_UNIX, SOCK_SEQPACKET)
        self._lifeline, self._held = os.pipe2(os.O_CLOEXEC)
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._spares: set[int] = set()
        self._connections: dict[int, socket] = {}
        self._children: dict[int, int] = {}  # by descriptor of its connection
        self._poll = select.poll()
        self._retired = False
        self._unused = 0
        self._shown_at = 0.0
        self._limits = child.own_limits()

    def run(self) -> None:
        """Until it is idle, told to end, or out of date; then until the last command has ended."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self._retire())
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._listener.setblocking(False)
        self._control.setblocking(False)
        for descriptor in (self._control.fileno(), self._wake):
            self._poll.register(descriptor, select.POLLIN)
        if self._sources.descriptor >= 0:
            self._poll.register(self._sources.descriptor, select.POLLIN)
        last_call = time.monotonic()
        self._fork_spares()
        while not self._retired or self._children or self._spares:
            resting = self._spares and len(self._spares) < SPARES
            events = self._poll.poll(_REST_MS if resting else _LOOK_SECONDS * 1000)
            self._show_life()
            for descriptor, _ in events:
                self._ready(descriptor)
            if self._children:
                last_call = time.monotonic()
            if not events and not self._is_current():
                self._retire()
            if time.monotonic() - last_call > self._idle_seconds:
                self._retire()
            # Not while the call that took one is at work: it needs the processors, and another spare is there.
            if not events or not self._spares:
                self._fork_spares()

    def _show_life(self) -> None:
        """The launcher takes a server for stuck whose lock was not touched for long (STUCK_SECONDS in direct.c)."""
        now = time.monotonic()
        if not self._retired and now - self._shown_at > _SHOW_SECONDS:
            self._shown_at = now
            os.utime(self._lock)

    def _ready(self, descriptor: int) -> None:
        if descriptor == self._wake:
            try:
                os.read(self._wake, 4096)
            except BlockingIOError:
                pass
            self._hear()
            self._reap()
        elif descriptor == self._control.fileno():
            self._hear()
        elif descriptor == self._sources.descriptor:
            self._retire()
        elif not self._retired and descriptor == self._listener.fileno():
            self._turn_away()
        elif descriptor in self._children:
            # The launcher has gone: what it stood for is killed, or has ended anyhow.
            self._poll.unregister(descriptor)
            try:
                os.kill(self._children[descriptor], signal.SIGKILL)
            except ProcessLookupError:
                pass

    # -- children

    def _fork_spares(self) -> None:
        while not self._retired and len(self._spares) < SPARES:
            try:
                pid = os.fork()
            except OSError:
                break
            if not pid:
                self._be_child()
            self._spares.add(pid)
        # Without any spare, calls are sent away rather than left waiting.
        if not self._retired:
            if self._spares:
                self._forget(self._listener.fileno())
            else:
                self._poll.register(self._listener.fileno(), select.POLLIN)

    def _be_child(self) -> None:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(self._held)
            self._control.close()
            for connection in self._connections.values():
                connection.close()
            inherited = [self._lock, self._wake, self._woken]
            if self._sources.descriptor >= 0:
                inherited.append(self._sources.descriptor)
            post = child.Post(
                self._listener,
                self._childrens_control,
                self._lifeline,
                self._sources,
                self._commands,
                system=self._system,
                inherited=tuple(inherited),
                limits=self._limits,
            )
            child.run(post)
        finally:
            os._exit(1)

    def _hear(self) -> None:
        """Spares that have got a call, each with its connection."""
        while True:
            try:
                message, control, _, _ = self._control.recvmsg(16, 64, _CMSG_CLOEXEC)
            except BlockingIOError:
                return
            descriptors = [
                struct.unpack("i", content[:4])[0]
                for level, kind, content in control
                if level == SOL_SOCKET and kind == SCM_RIGHTS
            ]
            pid = int.from_bytes(message[1:5], "little")
            if message[:1] == child.STALE:
                self._retire()
            self._unused = 0
            if descriptors:
                connection = socket(AF_UNIX, SOCK_STREAM, fileno=descriptors[0])
                self._connections[pid] = connection
                self._children[connection.fileno()] = pid
                self._spares.discard(pid)
                self._poll.register(connection.fileno(), select.POLLRDHUP)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if not pid:
                return
            # What it said before may not have been heard: a child that is gone must not become a caller's afterwards.
            self._hear()
            if os.WIFSTOPPED(status):
                self._tell(pid, reply.STOPPED, os.WSTOPSIG(status))
                continue
            if pid in self._spares:
                self._spares.discard(pid)
                self._unused += 1
                if self._unused > _UNUSED_MAX:
                    self._retire()
            if os.WIFSIGNALED(status):
                self._tell(pid, reply.KILLED, os.WTERMSIG(status))
            connection = self._connections.pop(pid, None)
            if connection is not None:
                self._forget(connection.fileno())
                del self._children[connection.fileno()]
                connection.close()

    def _tell(self, pid: int, kind: bytes, value: int) -> None:
        connection = self._connections.get(pid)
        if connection is not None:
            try:
                connection.send(reply.encode(kind, value))
            except OSError:
                pass  # the launcher has gone

    def _forget(self, descriptor: int) -> None:
        try:
            self._poll.unregister(descriptor)
        except KeyError:
            pass

    def _turn_away(self) -> None:
        """Nobody is there to serve: the launcher does it itself."""
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.close()

    # -- the end

    def _retire(self) -> None:
        """Take no further calls. Commands that run are looked after to their end."""
        if self._retired:
            return
        self._retired = True
        if self._is_current():
            try:
                os.unlink(self._listener.getsockname())
            except OSError:
                pass
        self._forget(self._listener.fileno())
        self._listener.close()
        if self._sources.descriptor >= 0:
            self._forget(self._sources.descriptor)
        os.close(self._held)
        os.close(self._lock)
