"""Threads for calls that may block: files on a stuck disk, a directory service that does not answer.

A `Worker` runs such calls in threads of its own, so that they do not block the loop. Its queue is bounded: excess work
is refused and counted. The threads are daemon threads, so a call that never returns does not keep the process from
ending; `asyncio.to_thread` and `concurrent.futures` would wait for it.

Not for long computations: a thread competes with the loop for the interpreter lock. Use a process for these.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from spritz.model.errors import SpritzError

T = TypeVar("T")

_HINT = "a disk, or the directory of users and groups, does not answer"


class WorkerBusy(SpritzError):
    """The queue is full; this call was refused."""


class WorkerTimeout(SpritzError):
    """The call did not end in time. It continues; its result is dropped."""


class Worker:
    """`threads` daemon threads, started by the first call. May be used from any thread.

    At most `waiting_max` units of work wait or run; a call counts as one unit unless it says otherwise. A call of zero
    units is always accepted.
    """

    def __init__(self, name: str, *, threads: int = 1, waiting_max: int = 1_000) -> None:
        self._name = name
        self._threads_max = threads
        self._waiting_max = waiting_max
        self._queue: SimpleQueue[tuple[Callable[[], object], int] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._threads = 0
        #: units of work that were refused
        self.dropped = 0

    def put(self, work: Callable[[], object], units: int = 1) -> bool:
        """Queue `work`. False if the queue is full, or no thread can be started: then it is not done, and counted in
        `dropped`.

        The result or exception of `work` is lost.
        """
        with self._lock:
            if self._waiting and self._waiting + units > self._waiting_max:
                self.dropped += units
                return False
            self._waiting += units
            if self._threads < self._threads_max and not self._start():
                self._waiting -= units
                self.dropped += units
                return False
        self._queue.put((work, units))
        return True

    def _start(self) -> bool:
        """Start the threads that are missing. False if there is none at all: a limit of processes is reached."""
        try:
            while self._threads < self._threads_max:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._threads += 1
        except RuntimeError:
            pass  # those that run do the work; the next call tries again
        return self._threads > 0

    def submit(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """The future result of `work(*args)`, on the running loop. Raises WorkerBusy.

        A future that is cancelled before its turn comes is skipped; work that has begun goes on.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            if future.cancelled():
                return
            deliver: Callable[[], None]
            try:
                deliver = partial(_set_result, future, work(*args))
            except BaseException as error:  # whatever it is, the caller must hear of it
                deliver = partial(_set_exception, future, error)
            try:
                loop.call_soon_threadsafe(deliver)
            except RuntimeError:
                pass  # the loop has been closed: nothing waits for the result

        if not self.put(call):
            raise WorkerBusy(f"{self._name}: {self._waiting} calls wait already", code="ESLURM_INTERNAL", hint=_HINT)
        return future

    async def run(self, work: Callable[..., T], *args: Any, seconds: float | None = None) -> T:
        """The result of `work(*args)`, or its exception. Raises WorkerTimeout after `seconds`, and WorkerBusy."""
        future = self.submit(work, *args)
        try:
            await asyncio.wait([future], timeout=seconds)
            if not future.done():
                raise WorkerTimeout(f"{self._name}: no answer in {seconds:g} s", code="ESLURM_INTERNAL", hint=_HINT)
            return future.result()
        finally:
            future.cancel()  # no effect if it is done

    def flush(self, seconds: float) -> bool:
        """Wait until all queued work is done; for a worker with one thread. Blocks.

        Returns False if it took longer than `seconds`.
        """
        if not self._threads:
            return True
        done = threading.Event()
        self._queue.put((done.set, 0))
        return done.wait(seconds)

    def close(self) -> None:
        """Let the threads end after the queued work. Does not wait."""
        for _ in range(self._threads):
            self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, units = item
            try:
                work()
            except BaseException:
                traceback.print_exc()  # an error of the caller; the rest of the queue must go on
            with self._lock:
                self._waiting -= units
            del item, work  # their references must not live until the next call


def _set_result(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        if not isinstance(error, Exception) or isinstance(error, StopIteration):
            # A future takes no StopIteration, and SystemExit of a thread must not end the loop.
            failure = RuntimeError(f"{type(error).__name__} in a thread: {error}")
            failure.__cause__ = error
            error = failure
        future.set_exception(error)
