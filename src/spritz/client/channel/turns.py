"""Shares the time of a daemon's loop among users, so that no user's requests hold up the others'.

A turn of the loop answers requests until they have taken `TURN_SECONDS`; then the others wait for the next turn, one
queue a user. Each turn takes from the queues in rotation. So a request waits for at most one unit of work of every
other user, however many requests and connections these have. Units of work are requests, and slices of streams: a
stream waits for a turn (`Channel.turn`) before each item that it makes.

`Places` does the same for work outside of the loop: few pieces at once, and users in rotation. `OwnPlaces` bounds what
each user may have in progress.

Daemons of the cluster do not wait: their reports free what users wait for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from spritz.client.channel.admission import Peer

T = TypeVar("T")

#: Seconds of one turn of the loop that requests may take before the rest of them waits.
TURN_SECONDS = 0.005

#: Seconds that a slice of a stream is taken to need when it begins in a turn that has time left.
SLICE_SECONDS = 0.002


class Rotation(Generic[T]):
    """Queues, one a user. Entries come out in rotation: one of each user, and each user's in their order."""

    def __init__(self) -> None:
        self._queues: OrderedDict[Peer, deque[T]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, peer: Peer, entry: T) -> None:
        self._queues.setdefault(peer, deque()).append(entry)

    def take(self) -> T:
        """Remove and return the next entry; there must be one."""
        peer, queue = next(iter(self._queues.items()))
        entry = queue.popleft()
        if queue:
            self._queues.move_to_end(peer)
        else:
            del self._queues[peer]
        return entry


class Turns:
    """The time of one loop. `requests`, `slices` and `waited` count units of work, and those that had to wait."""

    def __init__(self, seconds: float = TURN_SECONDS) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        #: requests (called) and slices of streams (futures) that wait
        self._waiting: Rotation[Callable[[], None] | asyncio.Future[None]] = Rotation()
        #: time taken in this turn
        self._spent = 0.0
        self._due = False
        self.requests = 0
        self.slices = 0
        self.waited = 0

    @property
    def is_free(self) -> bool:
        """Whether a request may be answered now: no other waits, and time is left in this turn."""
        return not self._waiting and self._spent < self._seconds

    def run(self, work: Callable[[], None]) -> None:
        """Answer a request now."""
        self.requests += 1
        self._arm()
        began = self._loop.time()
        try:
            work()
        finally:
            self._spent += self._loop.time() - began

    def wait(self, peer: Peer, work: Callable[[], None]) -> None:
        """Have `run(work)` called when the user's turn has come. `work` must not raise."""
        self.waited += 1
        self._waiting.add(peer, work)
        self._arm()

    async def turn(self, peer: Peer) -> None:
        """Return when the next slice of a stream of that user may be made; it ends with the caller's next `await`."""
        self.slices += 1
        self._arm()
        if self.is_free:
            self._spent += SLICE_SECONDS
            return
        self.waited += 1
        reached: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(peer, reached)
        await reached

    def _arm(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """A new turn of the loop: continue with what waits, one unit at least."""
        self._due = False
        self._spent = 0.0
        worked = False
        while self._waiting and (not worked or self._spent < self._seconds):
            entry = self._waiting.take()
            if not isinstance(entry, asyncio.Future):
                self.run(entry)
            elif entry.done():  # its caller has gone
                continue
            else:
                # The slice is made when the loop goes on, before the next turn begins: its time is known to no one.
                entry.set_result(None)
                self._spent = self._seconds
            worked = True
        if self._waiting or worked:
            self._arm()


class Places:
    """At most `places` pieces of work at once; users get places in rotation."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: Rotation[asyncio.Future[None]] = Rotation()

    @asynccontextmanager
    async def place(self, peer: Peer) -> AsyncIterator[None]:
        """Hold a place while the context is entered."""
        if self._free:
            self._free -= 1
        else:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(peer, reached)
            try:
                await reached
            except asyncio.CancelledError:
                if reached.done() and not reached.cancelled():
                    self._leave()  # it got the place at the same moment
                raise
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        while self._waiting:
            reached = self._waiting.take()
            if not reached.done():
                reached.set_result(None)
                return
        self._free += 1


class OwnPlaces:
    """At most `places` pieces of work of each user at once; further ones wait for the user's own."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._by_user: dict[Peer, tuple[Places, list[None]]] = {}

    @asynccontextmanager
    async def place(self, peer: Peer) -> AsyncIterator[None]:
        """Hold a place while the context is entered."""
        entry = self._by_user.get(peer)
        if entry is None:
            entry = self._by_user[peer] = Places(self._places), []
        places, inside = entry
        inside.append(None)
        try:
            async with places.place(peer):
                yield
        finally:
            inside.pop()
            if not inside:
                del self._by_user[peer]
