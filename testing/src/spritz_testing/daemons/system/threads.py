"""Threads of simulated processes, and what they wait for: names as in `threading`, `queue` and `time`.

A simulated thread is one of the operating system's, so production code needs no change; but only the one that has the
baton runs. It gives the baton back when it waits for something here, and gets it again when that has come. Code that
waits in the turn of a loop blocks this loop, as it would a real one, while everything else goes on.

What is here is the part of these modules that the production code uses.
"""

from __future__ import annotations

import _thread
import itertools
import queue
import threading
import time as real_time
from asyncio import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from spritz_testing.daemons.system.world import ProcessKilled

if TYPE_CHECKING:
    from spritz_testing.daemons.system.world import Event as WorldEvent
    from spritz_testing.daemons.system.world import Process, World

T = TypeVar("T")

_here = threading.local()
_identifiers = itertools.count(1_000_000)

#: the world of this process of the operating system: one at a time
_world: World | None = None


def use(world: World | None) -> None:
    """Make this the world in which the primitives of this module wait."""
    global _world
    _world = world


def world() -> World:
    assert _world is not None, "no simulation runs"
    return _world


class Waiter:
    """A wait of a thread. `wake` lets it look again at what it waits for."""

    __slots__ = ("_timer", "is_woken", "on_wake", "process")

    def __init__(self, process: Process, on_wake: Callable[[], None]) -> None:
        self.process = process
        self.is_woken = False
        self.on_wake = on_wake
        self._timer: WorldEvent | None = None
        process.waiters[self] = None

    def wake_at(self, when: float) -> None:
        self._timer = self.process.world.late(when, self._due)

    def _due(self) -> None:
        """Its time has come: the thread goes on at this moment, which was drawn as one a little late."""
        self.is_woken = True
        self._go()

    def wake(self) -> None:
        if not self.is_woken:
            self.is_woken = True
            self._cancel()
            self.process.world.soon(self._go)

    def _go(self) -> None:
        # It belongs to the process until it goes on: one that is killed while it is stopped must not wait for ever.
        if self.process.when_running(self._go):
            self._left()
            self.on_wake()

    def process_ended(self) -> None:
        self._left()
        self.is_woken = True
        self.on_wake()

    def _left(self) -> None:
        self.process.waiters.pop(self, None)
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Waited:
    """Something that threads wait for."""

    def __init__(self) -> None:
        self._waiters: deque[Waiter] = deque()

    def _wake(self, count: int | None = None) -> None:
        waiters = self._waiters
        while waiters and (count is None or count > 0):
            waiter = waiters.popleft()
            if not waiter.is_woken:
                waiter.wake()
                if count is not None:
                    count -= 1

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until `ready()`; False after `timeout` seconds."""
        if ready():
            return True
        deadline = None if timeout is None else world().now + timeout
        while not ready():
            if deadline is not None and world().now >= deadline:
                return False
            _park(self._waiters, deadline)
        return True


def _park(waiters: deque[Waiter] | None, deadline: float | None) -> None:
    """Wait until woken or until the deadline."""
    thread: Thread | None = getattr(_here, "thread", None)
    if thread is not None:
        waiter = Waiter(thread.process, thread.resume)
        _enter(waiter, waiters, deadline)
        thread.give_baton_back()
        return
    # In the turn of a loop, or in the code of the simulation itself.
    process = world().running
    if not process.is_alive:
        raise ProcessKilled  # it cleans up after the wait in which it was killed: nothing would ever wake it
    woken: list[bool] = []
    waiter = Waiter(process, lambda: woken.append(True))
    _enter(waiter, waiters, deadline)
    process.blocked += 1
    before = world().current
    loop_before = _get_running_loop()
    try:
        _set_running_loop(None)
        while not woken:
            world().current = None
            if not world().step():
                raise RuntimeError(f"{process} waits for something that nothing can bring about")
    finally:
        world().current = before
        _set_running_loop(loop_before)
        process.blocked -= 1
    if not process.is_alive:
        raise ProcessKilled


def _enter(waiter: Waiter, waiters: deque[Waiter] | None, deadline: float | None) -> None:
    if waiters is not None:
        waiters.append(waiter)
    if deadline is not None:
        waiter.wake_at(deadline)


class _Carrier:
    """A thread of the operating system, which runs one simulated thread after another: to begin one costs little."""

    def __init__(self) -> None:
        # Two locks pass control to and fro: much faster than what `threading` makes of them.
        self.baton, self.returned = _thread.allocate_lock(), _thread.allocate_lock()
        self.baton.acquire()
        self.returned.acquire()
        self.work: Callable[[], None] | None = None
        _thread.start_new_thread(self._live, ())

    def run(self) -> None:
        """Let its thread go on until that waits or ends. From the thread that runs now."""
        self.baton.release()
        self.returned.acquire()

    def wait(self) -> None:
        """In its thread: let the others go on, until `run`."""
        self.returned.release()
        self.baton.acquire()

    def _live(self) -> None:
        while True:
            self.baton.acquire()
            assert self.work is not None, "it was given some"
            self.work()
            self.work = None
            _idle.append(self)
            self.returned.release()


#: carriers whose thread has ended
_idle: list[_Carrier] = []


class Thread:
    """As `threading.Thread`. Ends with its process: a thread of a process that is gone waits for ever."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str = "thread",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name
        self.daemon = daemon
        self.ident = next(_identifiers)
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.process = world().running
        self._carrier: _Carrier | None = None
        self._ended = False
        self._waited = _Waited()

    def start(self) -> None:
        world().soon(self._first)

    def start_now(self) -> None:
        """Start, and run until it waits, before anything else happens: as a forked child with its parent's state."""
        self.resume()

    def _first(self) -> None:
        if self.process.when_running(self._first):
            self.resume()

    def _main(self) -> None:
        _here.thread = self
        try:
            self.run()
        except ProcessKilled:
            pass
        except BaseException as error:  # as threading's excepthook: told, and the rest goes on
            world().tell(f"{self.process} thread {self.name}: {error!r}")
            world().unhandled.append((self.process, {"message": f"thread {self.name}", "exception": error}))
        self._ended = True
        self._waited._wake()

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def resume(self) -> None:
        """Let it run until it waits again or ends. From the simulation's own thread."""
        if not self.process.is_alive or self._ended:
            return
        if self._carrier is None:
            self._carrier = _idle.pop() if _idle else _Carrier()
            self._carrier.work = self._main
        before = world().current
        world().current = self.process
        self._carrier.run()
        world().current = before

    def give_baton_back(self) -> None:
        """In the thread itself."""
        assert self._carrier is not None, "it runs"
        self._carrier.wait()

    def join(self, timeout: float | None = None) -> None:
        self._waited._wait(lambda: self._ended, timeout)

    def is_alive(self) -> bool:
        return not self._ended


class Event(_Waited):
    """As `threading.Event`."""

    def __init__(self) -> None:
        super().__init__()
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._wake()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._wait(self.is_set, timeout)


class Lock(_Waited):
    """As `threading.Lock`."""

    def __init__(self) -> None:
        super().__init__()
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._held and not blocking:
            return False
        if self._wait(lambda: not self._held, None if timeout < 0 else timeout):
            self._held = True
            return True
        return False

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        self._wake(1)

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class RLock(Lock):
    """As `threading.RLock`."""

    def __init__(self) -> None:
        super().__init__()
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = get_ident()
        if self._owner == me:
            self._depth += 1
            return True
        if super().acquire(blocking, timeout):
            self._owner, self._depth = me, 1
            return True
        return False

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()


class Condition(_Waited):
    """As `threading.Condition`, over a Lock."""

    def __init__(self, lock: Lock | None = None) -> None:
        super().__init__()
        self._lock = lock or RLock()
        self._turns = 0

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        woken: list[bool] = []
        turn = self._turns
        self._lock.release()
        try:
            return self._wait(lambda: bool(woken) or self._turns > turn, timeout)
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        deadline = None if timeout is None else world().now + timeout
        while not (result := predicate()):
            left = None if deadline is None else deadline - world().now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        self._turns += 1
        self._wake()

    def notify_all(self) -> None:
        self._turns += 1
        self._wake()


class SimpleQueue(_Waited, Generic[T]):
    """As `queue.SimpleQueue`."""

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[T] = deque()

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        self._wake(1)

    def put_nowait(self, item: T) -> None:
        self.put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        if not block:
            timeout = 0.0
        if not self._wait(lambda: bool(self._items), timeout):
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> T:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Timer(Thread):
    """As `threading.Timer`."""

    def __init__(self, interval: float, function: Callable[..., object], args: tuple[Any, ...] = ()) -> None:
        super().__init__(name="timer")
        self._interval, self._function, self._given = interval, function, args
        self._finished = Event()

    def cancel(self) -> None:
        self._finished.set()

    def run(self) -> None:
        if not self._finished.wait(self._interval):
            self._function(*self._given)


def current() -> Thread:
    """The simulated thread that runs."""
    thread: Thread | None = getattr(_here, "thread", None)
    assert thread is not None, "not in a thread"
    return thread


def get_ident() -> int:
    thread: Thread | None = getattr(_here, "thread", None)
    return thread.ident if thread is not None else world().running.pid


class Threading:
    """Stands for the module `threading`."""

    Thread = Thread
    Event = Event
    Lock = Lock
    RLock = RLock
    Condition = Condition
    Timer = Timer
    get_ident = staticmethod(get_ident)
    get_native_id = staticmethod(get_ident)
    local = threading.local
    current_thread = threading.current_thread
    main_thread = threading.main_thread


class Queue:
    """Stands for the module `queue`."""

    SimpleQueue = SimpleQueue
    Empty = queue.Empty
    Full = queue.Full


def now() -> float:
    """The wall clock of the host whose process runs."""
    return world().running.host.wall()


def monotonic() -> float:
    return world().running.host.monotonic()


def sleep(seconds: float) -> None:
    """Block this thread."""
    end = world().now + seconds
    while world().now < end:
        _park(None, end)


class _Time:
    """Stands for the module `time`; what only formats comes from the real one."""

    time = staticmethod(now)
    monotonic = staticmethod(monotonic)
    perf_counter = staticmethod(monotonic)
    sleep = staticmethod(sleep)
    process_time_ns = staticmethod(lambda: 0)
    time_ns = staticmethod(lambda: int(now() * 1e9))
    monotonic_ns = staticmethod(lambda: int(monotonic() * 1e9))

    def __getattr__(self, name: str) -> Any:
        return getattr(real_time, name)


Time = _Time()
