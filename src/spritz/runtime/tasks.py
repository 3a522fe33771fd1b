"""asyncio tasks: the only place that starts a loop or spawns one.

Every asyncio task belongs to a `Supervisor`, and a Supervisor ends only when all of its tasks have. A failing task ends
its whole group (so a daemon stops and reports why), unless it was spawned as `contained`: then its failure goes to the
Supervisor's `on_failure`, and the other tasks continue.

A task either does a piece of work and ends (`spawn`, `spawn_contained`), or lives as long as its group (`keep`,
`keep_contained`): its end is a failure then, since what it did is not done any more.

No task can hold up the end of a daemon. A cancellation is passed on even if a group failed, or was leaving, at the same
moment (`asyncio.TaskGroup` loses it until Python 3.13); and a Supervisor of a daemon sets a bound to its own end, after
which the process ends with a report of what it waited for (`runtime.ending`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from spritz.runtime.ending import Ending

if TYPE_CHECKING:
    from spritz.runtime.clock import Clock

T = TypeVar("T")

#: called with the name and exception of a failed contained task
OnFailure = Callable[[str, Exception], None]

#: Seconds in which the tasks of a daemon must end once they are cancelled: their clean-up is short.
END_SECONDS = 15.0

#: Seconds from the request to stop to the end of a daemon: answers, the last writes to a slow disk, and its tasks.
#: systemd waits for 90 s.
STOP_SECONDS = 75.0

#: Seconds before contained work that failed is started again.
AGAIN_SECONDS = 10.0

#: the ending of the loop that `run` runs, which is the process's only one
_ending: Ending | None = None


class TaskEnded(Exception):
    """A task that must live as long as its group has ended."""


def run(main: Coroutine[Any, Any, T], *, debug: bool = False) -> T:
    """Run `main` on a fresh loop until it returns: uvloop's where it can be imported, asyncio's otherwise.

    In debug mode asyncio's own loop is used, for its checks.
    """
    global _ending
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if not debug:
        try:
            import uvloop
        except ImportError:
            pass
        else:
            factory = uvloop.new_event_loop
    outer, ending = _ending, None
    try:
        with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
            ending = _ending = Ending(runner.get_loop())
            return runner.run(main)
    finally:
        _ending = outer
        if ending is not None:
            ending.over()


def must_end(seconds: float) -> None:
    """From now on the loop of `run` has this long to end; then the process ends with a report of what is left."""
    if _ending is not None:
        _ending.within(seconds)


class Supervisor:
    """A group of asyncio tasks that end together. Use it as `async with Supervisor() as tasks`.

    Leaving the block waits for every task. An exception in the block cancels them and is raised as itself; those of
    tasks that are not contained cancel the others, interrupt the block and are raised as an ExceptionGroup.
    `cancel_all` ends them without an error. If the block's own task is cancelled meanwhile, that is raised, or follows
    at its next `await` where another exception comes first.

    `end_seconds`: for the group of a daemon: how long its tasks may take to end, before the process ends without them.
    """

    def __init__(self, on_failure: OnFailure | None = None, *, end_seconds: float | None = None) -> None:
        self._on_failure = on_failure
        self._end_seconds = end_seconds
        #: in the order of their starts, in which they are cancelled
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._errors: list[BaseException] = []
        self._parent: asyncio.Task[Any] | None = None
        #: cancellations of the parent that were under way before the block
        self._cancelling = 0
        #: whether tasks were cancelled because of an error
        self._aborting = False
        #: whether the block was interrupted because of an error: that cancellation is this group's own
        self._interrupted = False
        self._leaving = False
        #: whether all tasks are cancelled, also those that are spawned from now on
        self._ending = False
        self._left = False
        self._empty: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Supervisor:
        assert self._parent is None, "a group is entered once"
        self._parent = asyncio.current_task()
        assert self._parent is not None, "inside a task"
        self._cancelling = self._parent.cancelling()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        parent = self._parent
        assert parent is not None, "entered"
        self._leaving = True
        if self._interrupted:
            parent.uncancel()
        if error is not None:
            self._abort()
        while self._tasks:
            self._empty = asyncio.get_running_loop().create_future()
            try:
                await self._empty
            except asyncio.CancelledError:
                self._abort()
        self._left = True
        self._empty = None
        if self._ending and self._end_seconds is not None and _ending is not None:
            _ending.again(STOP_SECONDS)  # the daemon's last writes and programs follow
        is_cancelled = parent.cancelling() > self._cancelling
        if is_cancelled and isinstance(error, asyncio.CancelledError) and not self._errors:
            return  # it propagates
        body_failed = error is not None and not isinstance(error, asyncio.CancelledError)
        if is_cancelled:
            if not body_failed and not self._errors:
                raise asyncio.CancelledError
            # What failed comes out first; the cancellation must not be lost with it.
            parent.uncancel()
            parent.cancel()
        if self._errors:
            errors, self._errors = self._errors, []
            if body_failed and error is not None:
                errors.append(error)
            raise BaseExceptionGroup("failed tasks", errors) from None

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run `work` in the group. Its failure fails the group; it may end. A group that ends cancels it at once.

        Raises RuntimeError outside the block.
        """
        if self._parent is None or self._left:
            work.close()
            raise RuntimeError(f"task {name}: its group {'has ended' if self._left else 'has not begun'}")
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        if self._ending:
            task.cancel()
        return task

    def spawn_contained(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run `work` in the group. Its failure only goes to `on_failure`."""
        return self._spawn_around(work, self._contain(work, name), name)

    def keep(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """As `spawn`, for work that must live as long as the group: if it returns, the group fails with TaskEnded."""
        return self._spawn_around(work, self._last(work, name), name)

    def _spawn_around(
        self, work: Coroutine[Any, Any, None], wrapper: Coroutine[Any, Any, None], name: str
    ) -> asyncio.Task[None]:
        try:
            task = self.spawn(wrapper, name=name)
        except RuntimeError:
            work.close()
            raise
        task.add_done_callback(lambda _task: work.close())  # cancelled before its first step, it never started
        return task

    def keep_contained(
        self, begin: Callable[[], Coroutine[Any, Any, None]], *, name: str, clock: Clock, seconds: float = AGAIN_SECONDS
    ) -> asyncio.Task[None]:
        """Run `begin()` for as long as the group lives: after a failure, which goes to `on_failure`, and after its end
        it is begun again, `seconds` later.
        """
        return self.spawn(self._again(begin, name, clock, seconds), name=name)

    def cancel_all(self) -> None:
        """Cancel every task of the group, contained or not, now and from now on; leaving the block then waits for them
        to end.
        """
        self._ending = True
        if self._end_seconds is not None:
            must_end(self._end_seconds)
        for task in list(self._tasks):
            task.cancel()

    def _abort(self) -> None:
        """End the group because of an error: interrupts the block unless it is being left."""
        if self._aborting:
            return
        self._aborting = True
        self.cancel_all()
        if not self._leaving:
            assert self._parent is not None, "entered"
            self._interrupted = True
            self._parent.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not self._tasks and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._errors.append(error)
            self._abort()

    async def _contain(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception as error:
            if self._on_failure is None:
                raise
            self._on_failure(name, error)

    async def _last(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if is_cancelled():
                raise
        if not is_cancelled():  # a cancellation that nobody asked for ends it just as well
            raise TaskEnded(f"task {name} has ended, which must live as long as the daemon")

    async def _again(
        self, begin: Callable[[], Coroutine[Any, Any, None]], name: str, clock: Clock, seconds: float
    ) -> None:
        while not is_cancelled():
            try:
                await begin()
            except asyncio.CancelledError as error:
                if is_cancelled() or self._on_failure is None:
                    raise
                self._on_failure(name, TaskEnded(f"task {name}: a cancellation that nobody asked for: {error!r}"))
            except Exception as error:
                if self._on_failure is None:
                    raise
                self._on_failure(name, error)
            await clock.sleep(seconds)


def is_cancelled() -> bool:
    """Whether the end of this task was asked for, also if the cancellation itself was swallowed somewhere."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
