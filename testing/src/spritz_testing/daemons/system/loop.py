"""The event loop of a simulated process: asyncio's contract, on virtual time.

Callbacks of one process run in the order in which they were scheduled, as asyncio and uvloop promise; which process has
its turn next, how late a timer is, and when a thread's result arrives is drawn from the seed.

Source: https://docs.python.org/3/library/asyncio-eventloop.html
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from spritz_testing.daemons.system.identity import Future, Task

if TYPE_CHECKING:
    from spritz_testing.daemons.system.world import Event, Process


class ProcessKilled(BaseException):
    """Ends the code of a process that was killed while it waited. Nothing may catch it."""


#: Callbacks of one turn above which the loop is taken to go round without end.
TURN_CALLS_MAX = 200_000


class _Handle(asyncio.TimerHandle):
    """A callback that waits for its turn, or for its time."""

    def __init__(
        self,
        loop: VirtualLoop,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        when: float = 0.0,
    ) -> None:
        # Not TimerHandle's: it would only record for a debugger what is here.
        self._to = loop
        self._call: Callable[..., object] | None = callback
        self._given = args
        self._in = context if context is not None else contextvars.copy_context()
        self._at = when
        self.event: Event | None = None

    def run(self) -> None:
        """Call it, unless it was cancelled; an error goes to the loop's handler."""
        call = self._call
        if call is None:
            return
        try:
            self._in.run(call, *self._given)
        except (SystemExit, KeyboardInterrupt, ProcessKilled):
            raise
        except BaseException as error:
            self._to.call_exception_handler({"message": f"in callback {call!r}", "exception": error})

    def cancel(self) -> None:
        self._call = None
        self._given = ()
        if self.event is not None:
            self.event.cancel()
            self.event = None

    def due(self) -> None:
        """Its time has come."""
        self.event = None
        self._to._arrive(self)

    def cancelled(self) -> bool:
        return self._call is None

    def when(self) -> float:
        return self._at

    def __repr__(self) -> str:
        return f"<callback {self._call!r}>"


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop of one process. What it does not have raises NotImplementedError."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.world = process.world
        self._ready: deque[_Handle] = deque()
        self._turn_due = False
        #: what is scheduled during a turn comes in the next one, which is asked for at its end
        self._in_turn = False
        self._readers: dict[int, _Handle] = {}
        self._writers: dict[int, _Handle] = {}
        self._signals: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        #: kept, so that no task of a process that is gone is collected, which would run its clean-up
        self._tasks: list[asyncio.Task[Any]] = []
        #: most callbacks in one turn
        self.turn_calls_max = 0
        #: how many callbacks run until `on_countdown` happens, between that callback and the next (`faults`)
        self.countdown = 0
        self.on_countdown: Callable[[], None] | None = None
        #: threads for `asyncio.to_thread`
        self._pool: Any = None
        #: errors that no task and no handler took
        self.unhandled: list[dict[str, Any]] = []

    # Arguments of callbacks are not checked against them, so signatures differ from asyncio's: ignored below.

    # Time

    def time(self) -> float:
        return self.process.host.monotonic()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        handle = _Handle(self, callback, args, context)
        if self.process.is_alive:
            self._ready.append(handle)
            self._want_turn()
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """From a thread of the same process: it arrives a little later."""
        handle = _Handle(self, callback, args, context)
        self.world.soon(lambda: self._arrive(handle))
        return handle

    def arrive(self, callback: Callable[..., object], *args: Any) -> None:
        """As by a descriptor that became ready: from outside the process."""
        self._arrive(_Handle(self, callback, args, contextvars.Context()))

    def _arrive(self, handle: _Handle) -> None:
        process = self.process
        if not process.is_alive:
            return
        self._ready.append(handle)
        if self._turn_due:
            return
        if self.world.current is None and not process.blocked and not process.is_stopped:
            self._turn()  # an event of the world's own brought it, at a time that was drawn: this is its turn
        else:
            self._want_turn()

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = _Handle(self, callback, args, context, when)
        if self.process.is_alive:
            timer.event = self.world.late(self.world.now + when - self.time(), timer.due)
        return timer

    # Turns

    def _want_turn(self) -> None:
        if not self._turn_due and not self._in_turn:
            self._turn_due = True
            self.world.soon(self._turn)

    def _turn(self) -> None:
        """Run what is ready now, in order; what that schedules comes in the next turn."""
        process = self.process
        if not process.when_running(self._turn):
            return
        if process.blocked:  # its thread waits inside a turn: this one comes after that
            self.world.after(0.001, self._turn)
            return
        self._turn_due = False
        calls = len(self._ready)
        if calls > self.turn_calls_max:
            self.turn_calls_max = calls
            assert calls < TURN_CALLS_MAX, f"{process}: {calls} callbacks wait in one turn"
        self._in_turn = True
        try:
            self.run_as(self._run_ready, calls)
        finally:
            self._in_turn = False
        if self._ready and process.is_alive:
            self._want_turn()

    def _run_ready(self, calls: int) -> None:
        ready, process = self._ready, self.process
        for _ in range(calls):
            if not ready or not process.is_alive:
                return
            ready.popleft().run()
            if self.countdown:
                self._count_down()

    def _count_down(self) -> None:
        self.countdown -= 1
        if not self.countdown and self.on_countdown is not None:
            self.on_countdown()

    def when_called(self, calls: int, then: Callable[[], None]) -> None:
        """Let `then` happen when so many more callbacks have run; 0: never."""
        self.countdown, self.on_countdown = calls, then

    def run_as(self, call: Callable[..., None], *args: Any) -> None:
        """Run code as this process, on its loop."""
        world = self.world
        before, loop_before = world.current, asyncio._get_running_loop()
        world.current = self.process
        asyncio._set_running_loop(self)
        try:
            call(*args)
        except ProcessKilled:
            pass
        finally:
            asyncio._set_running_loop(loop_before)
            world.current = before

    def forget(self) -> None:
        """The process is gone: nothing of it runs any more."""
        self._ready.clear()
        self._readers.clear()
        self._writers.clear()

    # Tasks

    def create_future(self) -> asyncio.Future[Any]:
        return Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = Task(coro, loop=self, **options)
        self._tasks.append(task)
        if len(self._tasks) > 1_000:
            self._tasks = [one for one in self._tasks if not one.done()]
        return task

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Those that are not done."""
        return [task for task in self._tasks if not task.done()]

    # Threads

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """By a pool of simulated threads; None: the loop's own, as `asyncio.to_thread` wants it."""
        if executor is None:
            executor = self._pool = self._pool or self.world.new_pool()
        result: asyncio.Future[Any] = executor.run(self, func, *args)
        return result

    # Descriptors of simulated sockets

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._readers[fd] = _Handle(self, callback, args, None)
        self.world.tell_reader(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._writers[fd] = _Handle(self, callback, args, None)
        self.readable(fd, writing=True)

    def remove_writer(self, fd: Any) -> bool:
        return self._writers.pop(fd, None) is not None

    def readable(self, fd: int, *, writing: bool = False) -> None:
        """A descriptor has become readable (or writable): its callback comes with the next turn."""
        table = self._writers if writing else self._readers

        def call() -> None:
            handle = table.get(fd)
            if handle is not None:
                handle.run()

        self.arrive(call)

    # Signals

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._signals[sig] = (callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self._signals.pop(sig, None) is not None

    def signalled(self, number: int) -> None:
        found = self._signals.get(number)
        if found is not None:
            self.arrive(found[0], *found[1])

    # The rest

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        """Names of simulated hosts, and addresses as they are."""
        name = host.decode() if isinstance(host, bytes) else str(host)
        found = self.world.find_host(name)
        address = found.address if found is not None else name
        if name in ("localhost", "127.0.0.1"):
            address = self.process.host.address
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self.process.is_alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.unhandled.append(context)
        error = context.get("exception")
        self.world.tell(f"{self.process} unhandled: {context.get('message')} {error!r}")
        if self.process.is_alive:
            self.world.unhandled.append((self.process, context))

    def get_task_factory(self) -> None:
        return None
