"""How a child gets calls, and its messages to the parent. All children share one listener: an idle child takes the
call.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
from socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from spritz.commandserver.sources import Sources

#: messages to the parent: a call was taken (with its connection); the call may last; the call is over; sources changed
TAKEN, LONG, FREE, STALE = b"T", b"L", b"F", b"S"


class CallQueue:
    """`lifeline` closes when the parent ends, or wants idle children to end. An idle child that reads a byte from
    `surplus` ends. Messages go over `control`, with the child's process id.
    """

    def __init__(self, listener: socket, control: socket, lifeline: int, surplus: int, sources: Sources) -> None:
        self._listener = listener
        self._control = control
        self._lifeline = lifeline
        self._surplus = surplus
        self._sources = sources

    def open(self) -> None:
        """Called in the child before anything else."""
        self._pid = os.getpid()
        self._inbox = select.epoll()
        # The kernel wakes one of the idle children: the first waiter, whose memory is warm.
        self._inbox.register(self._listener, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        self._listener_is_open = True
        self._watch_lifeline()
        self._inbox.register(self._lifeline, 0)
        self._inbox.register(self._surplus, select.EPOLLIN | select.EPOLLEXCLUSIVE)

    def _watch_lifeline(self) -> None:
        """Also notice the parent's end in the middle of a call: see `_parent_gone`."""
        # Opened again: signal settings belong to the open file description, which children share if inherited.
        lifeline = os.open(f"/proc/self/fd/{self._lifeline}", os.O_RDONLY | os.O_NONBLOCK)
        os.close(self._lifeline)
        self._lifeline = lifeline
        signal.signal(signal.SIGIO, self._parent_gone)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, self._pid)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)

    def _parent_gone(self, number: int, frame: FrameType | None) -> None:
        """A long call must not keep the listening socket open without serving it: new callers would wait for ever."""
        if self._listener_is_open:
            self._listener_is_open = False
            self._inbox.unregister(self._listener)
            self._listener.close()

    def called(self) -> bool:
        return bool(self._inbox.poll(0))

    def wait(self) -> socket | None:
        """The next call's connection; None if this child must end."""
        while True:
            ready = [descriptor for descriptor, _ in self._inbox.poll()]
            if self._lifeline in ready:
                return None
            try:
                if self._surplus in ready and os.read(self._surplus, 1):
                    return None
                descriptor, _ = self._listener._accept()  # type: ignore[attr-defined]  # accept() without getsockname & co.
            except BlockingIOError:
                continue  # another child was faster
            return socket(AF_UNIX, SOCK_STREAM, 0, descriptor)

    def declines(self, connection: socket) -> bool:
        """Refuse the call if sources have changed."""
        if not self._sources.changed():
            return False
        self._pass(STALE, connection)
        return True

    def take(self, connection: socket) -> None:
        """Report the call to the parent."""
        self._pass(TAKEN, connection)

    def _pass(self, word: bytes, connection: socket) -> None:
        message = word + self._pid.to_bytes(4, "little")
        self._control.sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, struct.pack("i", connection.fileno()))])

    def tell(self, word: bytes) -> None:
        """Send LONG or FREE to the parent."""
        self._control.send(word + self._pid.to_bytes(4, "little"))

    def is_let_go(self, connection: socket) -> bool:
        """Wait until the launcher has ended. False if the parent has ended meanwhile."""
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        poll.register(self._lifeline, 0)
        return all(descriptor != self._lifeline for descriptor, _ in poll.poll())

    def close(self) -> None:
        """Close everything that belongs to the server."""
        self._inbox.close()
        os.close(self._lifeline)
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        os.close(self._surplus)
        self._listener.close()
        self._control.close()
        self._sources.close()
