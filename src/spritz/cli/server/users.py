"""The parent of all users' server: it hands each call to a child that works for the caller and for nobody else.

A child becomes the user that it is first given a call of, for good, and gets calls of that user alone: same uid, gid
and groups, by the kernel's word about the connection, which the child asks for again. It holds neither the listener nor
any way to other children: only a line to this process, over which it can say nothing but of itself. What launchers
send is read by children alone.

Source: docs/decisions/0119; unix(7) SO_PEERCRED, SCM_RIGHTS.
"""

from __future__ import annotations

import os
import select
import struct
import time
from socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket, socketpair

from spritz.cli.server.door import FREE, LONG, OwnDoor
from spritz.cli.server.keeper import Keeper
from spritz.cli.server.surroundings import User

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Idle children of users: so many in all, and each for so long.
_KEPT_MAX, _KEPT_SECONDS = 32, 60.0
#: Without a child for a caller of whom none is at work, one is forked after so long.
_STRANGER_SECONDS = 0.003
#: Where no child can be forked, a caller's next one is waited for while calls have ended within so long.
_MOVING_SECONDS = 0.25
#: Calls that wait for a child: the listener's queue holds the others.
_WAITING_MAX = 256

#: uid, gid and groups
Owner = tuple[int, int, tuple[int, ...]]


class UsersKeeper(Keeper):
    """`_spares` are nobody's children yet; `_idle` are those between calls of their users, with the time since when."""

    #: every call comes through here
    together_seconds = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lines: dict[int, socket] = {}
        self._child_of_line: dict[int, int] = {}
        self._owners: dict[int, Owner] = {}
        self._idle: dict[int, float] = {}
        self._waiting: list[tuple[int, Owner]] = []

    # -- children

    def _fork(self) -> bool:
        """See `Keeper`."""
        ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError:
            self._refused = True
            ours.close()
            theirs.close()
            # Somebody else's idle child may be what there is no room for.
            for idle in list(self._idle)[:1]:
                self._dismiss(idle)
            return False
        self._refused = False
        if not pid:
            ours.close()
            self._be_child(lambda: self._own_door(theirs))
        theirs.close()
        ours.setblocking(False)
        self._lines[pid] = ours
        self._child_of_line[ours.fileno()] = pid
        self._poll.register(ours, select.POLLIN)
        self._spares.add(pid)
        if self._retired:
            self._dismiss(pid)  # SIGTERM came in the middle
        return True

    def _own_door(self, line: socket) -> OwnDoor:
        """In a child: nothing is left but its line."""
        for other in self._lines.values():
            other.close()
        for connection, _ in self._waiting:
            os.close(connection)
        self._listener.close()
        self._childrens_control.close()
        os.close(self._lifeline)
        os.close(self._surplus)
        self._sources.close()
        return OwnDoor(line)

    def _watch_listener(self) -> None:
        """Always, unless too many wait."""
        if self._retired:
            return
        if len(self._waiting) < _WAITING_MAX:
            self._poll.register(self._listener.fileno(), select.POLLIN)
        else:
            self._forget(self._listener.fileno())

    def _few_seconds(self) -> float:
        at_work = {self._owners[pid] for pid in self._connections if pid in self._owners}
        if not self._refused and any(owner not in at_work for _, owner in self._waiting):
            return _STRANGER_SECONDS
        return super()._few_seconds()

    def _regulate(self, now: float) -> None:
        self._assign()
        super()._regulate(now)
        if self._waiting:
            self._assign()  # to a child just forked, or away where none could be
        self._watch_listener()
        for pid, since in list(self._idle.items()):
            if len(self._idle) <= _KEPT_MAX and now - since < _KEPT_SECONDS:
                break  # the others have been idle for less
            self._dismiss(pid)

    def _dismiss(self, pid: int) -> None:
        """It finds its line closed, and ends."""
        self._idle.pop(pid, None)
        line = self._lines.pop(pid, None)
        if line is not None:
            self._forget(line.fileno())
            del self._child_of_line[line.fileno()]
            line.close()

    def _gone(self, pid: int) -> None:
        self._dismiss(pid)
        self._owners.pop(pid, None)

    # -- calls

    def _ready(self, descriptor: int) -> None:
        if descriptor in self._child_of_line:
            self._listen_to(self._child_of_line[descriptor])
        elif descriptor == self._listener.fileno():
            self._admit()
        else:
            super()._ready(descriptor)

    def _hear(self) -> None:
        """Children speak over their lines alone, and of themselves alone."""

    def _listen_to(self, pid: int) -> None:
        try:
            word = self._lines[pid].recv(16)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if word == LONG:
            self._short.discard(pid)
        elif word == FREE and pid in self._connections:
            self._drop(pid)
            self._freed_at = self._idle[pid] = time.monotonic()
        elif not word:
            self._dismiss(pid)

    def _admit(self) -> None:
        """Take what calls there are."""
        while len(self._waiting) < _WAITING_MAX:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._sources.changed():
                connection.close()
                self._retire()
                return
            try:
                user = User.of_peer(connection)
            except OSError:
                connection.close()
                continue
            self._called_at = time.monotonic()
            self._waiting.append((connection.detach(), (user.uid, user.gid, user.groups)))

    def _assign(self) -> None:
        """Give calls to children, as far as there are any for them."""
        kept = []
        for connection, owner in self._waiting:
            pid = self._child_for(owner)
            if pid and self._hand_over(pid, connection):
                self._owners[pid] = owner
                self._connections[pid] = connection
                self._short.add(pid)
                self._unused = 0
            elif pid or (self._refused and not self._soon_free(owner)):
                # The child has just ended, or there can be none: the launcher does it itself.
                os.close(connection)
            else:
                kept.append((connection, owner))
        self._waiting = kept

    def _child_for(self, owner: Owner) -> int:
        """An idle child of that user's, or one that is nobody's yet; 0 if there is none."""
        # The one that was idle last, whose memory is warm.
        for pid in reversed(self._idle):
            if self._owners[pid] == owner:
                del self._idle[pid]
                return pid
        if not self._spares and not self._connections:
            self._fork()
        return self._spares.pop() if self._spares else 0

    def _soon_free(self, owner: Owner) -> bool:
        """Whether one of his children is at a short call, where such calls are coming to their ends."""
        moving = time.monotonic() - self._freed_at < _MOVING_SECONDS
        return moving and any(self._owners[pid] == owner for pid in self._short)

    def _hand_over(self, pid: int, connection: int) -> bool:
        line = self._lines.get(pid)
        try:
            if line is not None:
                line.sendmsg([b"C"], [(SOL_SOCKET, SCM_RIGHTS, struct.pack("i", connection))])
                return True
        except OSError:
            pass  # it has just ended
        return False

    # -- the end

    def _retire(self) -> None:
        if self._retired:
            return
        super()._retire()
        for connection, _ in self._waiting:
            os.close(connection)
        self._waiting.clear()
        for pid in [*self._idle, *self._spares]:
            self._dismiss(pid)
