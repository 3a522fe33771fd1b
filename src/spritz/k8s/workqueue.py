"""Keys that wait for a worker: the queue under every reconcile loop.

A key waits at most once, however often it was added. While a worker has it no other worker gets it; if it is added
meanwhile, it comes again after that worker is done. A key whose handling failed comes back after a time that doubles
with each failure in a row, up to a bound, with jitter; success clears the count. The queue drops no key and gives up
on none: what must be done is in the cluster's state, and the handler looks there.

Source: client-go `util/workqueue` (the semantics; the code is our own).
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

from spritz.k8s.living import keep

K = TypeVar("K")

#: Handles one key. Returns the seconds after which the key is to come again, or None.
Handler = Callable[[K], Awaitable[float | None]]
#: Called with a key whose handler failed: the key, the exception, failures in a row, and seconds until it comes again.
OnFailure = Callable[[K, Exception, int, float], None]


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds between attempts: doubling from `first` to `longest`, each between half and the whole of that."""

    first: float = 0.05
    longest: float = 120.0

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` consecutive failures (1 or more). `chance` is in [0, 1)."""
        whole = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return whole * (0.5 + chance / 2)


class WorkQueue(Generic[K]):
    """A queue of keys. `run` handles them; `get`, `done` and `failed` are for callers with a loop of their own."""

    def __init__(self, *, backoff: Backoff | None = None, chance: Callable[[], float] = random.random) -> None:
        self._backoff = backoff or Backoff()
        self._chance = chance
        self._ready: deque[K] = deque()
        #: keys in `_ready`
        self._waiting: set[K] = set()
        self._working: set[K] = set()
        #: keys added while a worker has them
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        #: (time of the loop, order of entry, key); an entry counts only while `_due` still names its time
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._entries = 0
        self._timer: asyncio.TimerHandle | None = None
        #: time of the timer; uvloop's handle of a time that has passed cannot tell it
        self._rings_at = 0.0
        self._getters: deque[asyncio.Future[None]] = deque()
        #: keys handed to workers, and handlers that failed
        self.handled = 0
        self.failed_count = 0

    def __len__(self) -> int:
        """Keys that are ready for a worker."""
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """No key is ready or with a worker. Keys that wait for their time do not count."""
        return not self._ready and not self._working

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return len(self._due)

    def failures(self, key: K) -> int:
        """Failures of the key in a row."""
        return self._failures.get(key, 0)

    def add(self, key: K, delay: float = 0.0) -> None:
        """Queue the key for a worker after `delay` seconds; the earliest of several times counts."""
        if delay <= 0:
            self._due.pop(key, None)
            self._make_ready(key)
            return
        if key in self._waiting:
            return
        when = asyncio.get_running_loop().time() + delay
        if self._due.get(key, float("inf")) <= when:
            return
        self._due[key] = when
        self._entries += 1
        heapq.heappush(self._later, (when, self._entries, key))
        self._arm()

    async def get(self) -> K:
        """The next key, which is the caller's until `done` or `failed`."""
        while not self._ready:
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake()  # the key that this getter was woken for is another's
                elif getter in self._getters:
                    self._getters.remove(getter)
                raise
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        self.handled += 1
        return key

    def done(self, key: K) -> None:
        """Report that the key was handled, which clears its count of failures."""
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: K) -> float:
        """Report that the key's handler failed. Returns the seconds until it is handled again."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.failed_count += 1
        delay = self._backoff.delay(failures, self._chance())
        # A key added meanwhile waits for the back-off too: changes do not shorten it.
        self._again.discard(key)
        self._release(key)
        self.add(key, delay)
        return delay

    async def run(self, handler: Handler[K], *, workers: int = 1, on_failure: OnFailure[K] | None = None) -> None:
        """Handle keys with `workers` concurrent workers until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                keep(group, self._work(handler, on_failure), name=f"workqueue-{number}")

    async def _work(self, handler: Handler[K], on_failure: OnFailure[K] | None) -> None:
        while True:
            key = await self.get()
            try:
                again = await handler(key)
            except asyncio.CancelledError:
                self._release(key)
                raise
            except Exception as error:
                delay = self.failed(key)
                if on_failure is not None:
                    on_failure(key, error, self._failures[key], delay)
            else:
                self.done(key)
                if again is not None:
                    self.add(key, max(again, 0.001))

    def _release(self, key: K) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._make_ready(key)

    def _make_ready(self, key: K) -> None:
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _arm(self) -> None:
        """Set the timer to the earliest time."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        when = self._later[0][0] if self._later else None
        if self._timer is not None:
            if self._rings_at == when:
                return
            self._timer.cancel()
            self._timer = None
        if when is not None:
            self._rings_at = when
            self._timer = asyncio.get_running_loop().call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._later and self._later[0][0] <= now:
            when, _entry, key = heapq.heappop(self._later)
            if self._due.get(key) == when:
                del self._due[key]
                self._make_ready(key)
        self._arm()
