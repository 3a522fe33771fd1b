"""Connected pairs of sockets within a host, for code that uses them as `socket.socket` with a loop's readers.

What a process sends arrives a moment later, in order; a process that is gone has closed its ends.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz_testing.daemons.system.world import Process

#: Bytes that the kernel holds for a reader that does not read.
_KERNEL_BYTES = 200 * 1024

#: Seconds in which bytes cross: from, to.
_SECONDS = 10e-6, 200e-6

#: First number of a simulated descriptor.
_FIRST_DESCRIPTOR = 1_000_000


class LocalSocket:
    """One end, with the process that has it."""

    peer: LocalSocket

    def __init__(self, owner: Process) -> None:
        self._world = owner.world
        self.owner = owner
        # By the world's own count, so that a run does not depend on those before it.
        self._descriptor = _FIRST_DESCRIPTOR + owner.world.next_pid()
        self._received = bytearray()
        #: sent to this end, and under way
        self._coming = 0
        self._is_ended = False
        self.is_closed = False
        self._arrives_at = 0.0
        self._wants_room = False
        self._world.descriptors[self._descriptor] = self
        owner.on_end.append(self._owner_ended)

    def _owner_ended(self, silently: bool) -> None:
        self.close()

    # socket.socket

    def fileno(self) -> int:
        return -1 if self.is_closed else self._descriptor

    def setblocking(self, flag: bool) -> None:
        pass

    def send(self, data: bytes | bytearray, flags: int = 0) -> int:
        """Raises BlockingIOError for a full buffer, BrokenPipeError without a reader."""
        if self.is_closed or self.peer.is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = _KERNEL_BYTES - len(self.peer._received) - self.peer._coming
        if room <= 0:
            self._wants_room = True
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        piece = bytes(data[:room])
        self.peer._take_later(piece)
        return len(piece)

    def sendall(self, data: bytes | bytearray) -> None:
        self.send(data)

    def recv(self, size: int) -> bytes:
        if not self._received:
            if self._is_ended:
                return b""
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        piece = bytes(self._received[:size])
        del self._received[:size]
        if self._received or self._is_ended:
            self.look()
        if self.peer._wants_room and not self.peer.is_closed:
            self.peer._wants_room = False
            self.peer.owner.loop.readable(self.peer._descriptor, writing=True)
        return piece

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._world.descriptors.pop(self._descriptor, None)
        if self._owner_ended in self.owner.on_end:
            self.owner.on_end.remove(self._owner_ended)
        if not self.peer.is_closed:
            self.peer._take_later(None)

    # What arrives

    def _take_later(self, data: bytes | None) -> None:
        """Bytes, or None for the end of the stream; they overtake nothing."""
        low, high = _SECONDS
        at = max(self._arrives_at, self._world.now + low + (high - low) * self._world.random("local").random())
        self._arrives_at = at + 1e-9
        self._coming += len(data or b"")
        self._world.at(at, lambda: self._take(data))

    def _take(self, data: bytes | None) -> None:
        if data is None:
            self._is_ended = True
        else:
            self._coming -= len(data)
            self._received += data
        self.look()

    def look(self) -> None:
        """Tell the loop of the owner, if there is something to read."""
        if not self.is_closed and (self._received or self._is_ended):
            self.owner.loop.readable(self._descriptor)


def pair(owner: Process, other: Process) -> tuple[LocalSocket, LocalSocket]:
    """Two connected ends, as socketpair(2) makes."""
    ours, theirs = LocalSocket(owner), LocalSocket(other)
    ours.peer, theirs.peer = theirs, ours
    return ours, theirs
