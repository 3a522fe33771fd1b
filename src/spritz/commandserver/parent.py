"""The server's parent process: keeps spare children ready, waits for their ends, and decides when to end itself.

It never reads a launcher's request. It reports to the launcher when a command stops or is killed. (If a launcher ends,
the kernel kills its command: `child._die_with`.)
"""

from __future__ import annotations

import os
import select
import signal
import struct
import time
from socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socketpair
from typing import TYPE_CHECKING

from spritz.commandserver import child, process_state, reply
from spritz.commandserver.call_queue import FREE, LONG, STALE, CallQueue

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket
    from typing import NoReturn

    from spritz.cli.call.entry import Main
    from spritz.commandserver.sources import Sources

#: number of idle children to keep
SPARES = 2
#: seconds without a call after which the server ends
IDLE_SECONDS = 900.0
_LOOK_SECONDS = 30.0
_SHOW_SECONDS = 1.0
#: Seconds for which there may be fewer spares, and none at all: calls are short, and their children serve again.
_FEW_SECONDS, _NONE_SECONDS = 0.02, 0.003
#: Limits for when short calls keep all processors busy: a further child would only slow the others (a call takes a
#: quarter longer among eight children than among four). So no more children are forked, unless none of these calls has
#: ended for `_STILL_SECONDS`.
_BUSY, _BUSY_MAX = os.cpu_count() or 1, 2 + (os.cpu_count() or 1)
_BUSY_SECONDS, _STILL_SECONDS = 0.05, 0.05
#: Seconds after a failed fork (no memory, too many processes) before the next attempt.
_REFUSED_SECONDS = 0.25
#: seconds for which there may be more spares
_MANY_SECONDS = 20.0
_CMSG_CLOEXEC = 0x40000000
#: Consecutive spares that end unused before the server assumes a fault.
_UNUSED_MAX = 5
#: Children's messages are read in batches: waking up for each would cost more than handling it.
_TOGETHER_SECONDS = 0.003


class Parent:
    """The parent process. Children take calls from the listener themselves.

    `name` is the listener's, in `directory`. `is_current()`: whether callers still find this server, and the
    installation is unchanged. Without `tells_stops` launchers do not stop with their commands: all processes of a job
    stop and continue together, and a late message would stop a launcher again.
    """

    def __init__(
        self,
        listener: socket,
        directory: int,
        name: str,
        lock: int,
        commands: dict[str, Main],
        sources: Sources,
        *,
        is_current: Callable[[], bool],
        idle_seconds: float = IDLE_SECONDS,
        tells_stops: bool = True,
    ) -> None:
        self._listener = listener
        self._directory = directory
        self._name = name
        self._lock = lock
        self._commands = commands
        self._sources = sources
        self._is_current = is_current
        self._idle_seconds = idle_seconds
        self._tells_stops = tells_stops
        self._control, self._childrens_control = socketpair(AF_UNIX, SOCK_SEQPACKET)
        self._lifeline, self._held = os.pipe2(os.O_CLOEXEC)
        self._surplus, self._surplus_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        #: idle children, new ones and those that have served
        self._spares: set[int] = set()
        #: connections of working children, to report stops and ends to their launchers
        self._connections: dict[int, int] = {}
        #: those of them whose calls are short
        self._short: set[int] = set()
        #: children that were stopped and have not finished their call since
        self._halted: set[int] = set()
        self._poll = select.poll()
        #: the events that must be handled at once: a child has stopped or ended
        self._ends = select.poll()
        self._retired = False
        self._unused = 0
        self._shown_at = 0.0
        self._called_at = 0.0
        #: time when a short call last ended
        self._freed_at = 0.0
        #: the last fork failed
        self._refused = False
        #: since when the number of spares is too low or too high
        self._few_since = self._many_since = 0.0
        self._limits = process_state.own_limits()

    def run(self) -> None:
        """Run until idle, stopped, or out of date; then until the last command has ended."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self._retire())
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._listener.setblocking(False)
        self._control.setblocking(False)
        for descriptor in (self._control.fileno(), self._wake):
            self._poll.register(descriptor, select.POLLIN)
        self._ends.register(self._wake, select.POLLIN)
        if self._sources.descriptor >= 0:
            self._poll.register(self._sources.descriptor, select.POLLIN)
        self._called_at = time.monotonic()
        self._fork_spares(SPARES)
        while not self._retired or self._connections or self._spares:
            events = self._poll.poll(self._patience() * 1000)
            now = time.monotonic()
            self._show_life(now)
            for descriptor, _ in events:
                self._ready(descriptor)
            if self._connections:
                self._called_at = now
            if not events and not self._is_current():
                self._retire()
            if now - self._called_at > self._idle_seconds:
                self._retire()
            self._regulate(now)
            if events:
                self._ends.poll(_TOGETHER_SECONDS * 1000)

    def _patience(self) -> float:
        """Seconds until the next action is due without an event."""
        if self._halted:
            return _SHOW_SECONDS
        if self._retired or len(self._spares) == SPARES:
            return _LOOK_SECONDS
        if len(self._spares) > SPARES:
            return _MANY_SECONDS
        return min(self._few_seconds(), _STILL_SECONDS)

    def _few_seconds(self) -> float:
        """Seconds for which the current shortage of spares is accepted."""
        if self._refused:
            return _REFUSED_SECONDS
        working = len(self._short)
        moving = time.monotonic() - self._freed_at < _STILL_SECONDS
        if moving and working >= _BUSY:
            return _BUSY_SECONDS if working < _BUSY_MAX else _LOOK_SECONDS
        if self._spares:
            return _FEW_SECONDS
        return _NONE_SECONDS if working < _BUSY_MAX else _STILL_SECONDS

    def _regulate(self, now: float) -> None:
        """Adjust the number of idle children.

        A fork does not follow a call at once: the call needs the processors, and will soon be over.
        """
        self._end_halted()
        missing = SPARES - len(self._spares)
        if missing <= 0:
            self._few_since = 0.0
        elif not self._few_since:
            self._few_since = now
        elif now - self._few_since >= self._few_seconds():
            self._few_since = now
            self._fork_spares(1)
        if missing >= 0:
            self._many_since = 0.0
        elif not self._many_since:
            self._many_since = now
        elif now - self._many_since >= _MANY_SECONDS:
            self._many_since = now
            os.write(self._surplus_end, b"-")

    def _show_life(self, now: float) -> None:
        """Touch the lock: the launcher takes a server for stuck if its lock was not touched for STUCK_SECONDS
        (direct.c).
        """
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

    # Children

    def _fork_spares(self, count: int) -> None:
        if self._retired:
            return
        for _ in range(count):
            if not self._fork():
                break
        self._watch_listener()

    def _fork(self) -> bool:
        """Fork an idle child; False if that fails."""
        try:
            pid = os.fork()
        except OSError:
            self._refused = True
            return False
        self._refused = False
        if not pid:
            self._be_child()
        self._spares.add(pid)
        return True

    def _watch_listener(self) -> None:
        """With no child, or none that is soon free, calls are sent away rather than left waiting."""
        if self._retired:
            return  # SIGTERM arrived during a fork
        soon = self._connections and not (self._refused and time.monotonic() - self._freed_at > _REFUSED_SECONDS)
        if self._spares or soon:
            self._forget(self._listener.fileno())
        else:
            self._poll.register(self._listener.fileno(), select.POLLIN)

    def _be_child(self) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(self._held)
            os.close(self._surplus_end)
            self._control.close()
            for connection in self._connections.values():
                os.close(connection)
            inherited = (self._lock, self._wake, self._woken, self._directory)
            queue = CallQueue(self._listener, self._childrens_control, self._lifeline, self._surplus, self._sources)
            child.run(child.Post(queue, self._commands, inherited=inherited, limits=self._limits))
        finally:
            os._exit(1)

    def _hear(self) -> None:
        """Handle messages of children: a call was taken, with its connection; a call is over."""
        while True:
            try:
                message, control, _, _ = self._control.recvmsg(16, 64, _CMSG_CLOEXEC)
            except BlockingIOError:
                return
            pid = int.from_bytes(message[1:5], "little")
            if message[:1] == LONG:
                self._short.discard(pid)
                continue
            self._drop(pid)
            if message[:1] == FREE:
                self._spares.add(pid)
                self._freed_at = time.monotonic()
                if self._refused:
                    self._forget(self._listener.fileno())
                if len(self._spares) >= SPARES:
                    self._few_since = 0.0
                continue
            if message[:1] == STALE:
                self._retire()
            self._unused = 0
            self._called_at = time.monotonic()
            self._spares.discard(pid)
            self._short.add(pid)
            for level, kind, content in control:
                if level == SOL_SOCKET and kind == SCM_RIGHTS:
                    (self._connections[pid],) = struct.unpack("i", content[:4])

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if not pid:
                return
            # Read its earlier messages first: a dead child must not be recorded with a caller later.
            self._hear()
            if os.WIFSTOPPED(status):
                if self._tells_stops:
                    self._tell(pid, reply.STOPPED, os.WSTOPSIG(status))
                self._halted.add(pid)
                continue
            if pid in self._spares:
                self._spares.discard(pid)
                # a child that was superfluous, or has served enough, ends with status 0
                self._unused += status != 0
                if self._unused > _UNUSED_MAX:
                    self._retire()
            if os.WIFSIGNALED(status):
                self._tell(pid, reply.KILLED, os.WTERMSIG(status))
            self._drop(pid)

    def _end_halted(self) -> None:
        """A child that was stopped between two calls would never be continued, and the next call would wait."""
        for pid in list(self._halted):
            connection = self._connections.get(pid, -1)
            if connection >= 0:
                hang_up = select.poll()
                hang_up.register(connection, 0)
            if connection < 0 or hang_up.poll(0):
                self._halted.discard(pid)
                os.kill(pid, signal.SIGKILL)

    def _tell(self, pid: int, kind: bytes, value: int) -> None:
        connection = self._connections.get(pid)
        if connection is not None:
            try:
                os.write(connection, reply.encode(kind, value))
            except OSError:
                pass  # the launcher has gone

    def _drop(self, pid: int) -> None:
        self._short.discard(pid)
        self._halted.discard(pid)
        connection = self._connections.pop(pid, None)
        if connection is not None:
            os.close(connection)

    def _forget(self, descriptor: int) -> None:
        try:
            self._poll.unregister(descriptor)
        except KeyError:
            pass

    def _turn_away(self) -> None:
        """Tell the launcher to run the command itself, since no child can serve it."""
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.close()

    # Ending

    def _retire(self) -> None:
        """Accept no further calls. Running commands are supervised to their end."""
        if self._retired:
            return
        self._retired = True
        if self._is_current():
            try:
                os.unlink(self._name, dir_fd=self._directory)
            except OSError:
                pass
        self._forget(self._listener.fileno())
        self._listener.close()
        if self._sources.descriptor >= 0:
            self._forget(self._sources.descriptor)
        os.close(self._held)
        os.close(self._lock)
