"""Pools of simulated threads: `concurrent.futures.ThreadPoolExecutor`, as far as `loop.run_in_executor` needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from spritz_testing.daemons.system import threads

#: (work, deliver), or None: the thread ends
_Item = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]

#: Threads of a loop's own pool. Source: `concurrent.futures`, min(32, CPUs + 4).
DEFAULT_THREADS = 8


class ThreadPoolExecutor:
    """At most `max_workers` threads, each started when no other is idle; work begins in the order of its coming."""

    def __init__(self, max_workers: int = DEFAULT_THREADS, thread_name_prefix: str = "pool") -> None:
        self._most = max_workers
        self._name = thread_name_prefix
        self._queue: threads.SimpleQueue[_Item | None] = threads.SimpleQueue()
        self._threads: list[threads.Thread] = []
        self._idle = 0
        self._is_shut = False

    def run(self, loop: asyncio.AbstractEventLoop, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """The future result of `work(*args)`, on this loop. Work whose future is cancelled before its turn is skipped.

        Raises RuntimeError after `shutdown`.
        """
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = loop.create_future()

        def deliver(result: Any, error: BaseException | None) -> None:
            loop.call_soon_threadsafe(_complete, future, result, error)

        def call() -> Any:
            return None if future.cancelled() else work(*args)

        self._queue.put((call, deliver))
        if not self._idle and len(self._threads) < self._most:
            thread = threads.Thread(target=self._serve, name=f"{self._name}_{len(self._threads)}")
            self._threads.append(thread)
            thread.start()
        return future

    def _serve(self) -> None:
        while True:
            self._idle += 1
            item = self._queue.get()
            self._idle -= 1
            if item is None:
                return
            work, deliver = item
            try:
                result, failure = work(), None
            except BaseException as error:  # whatever it is, the caller hears of it
                result, failure = None, error
            deliver(result, failure)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; `wait` until what was queued is done, or dropped with `cancel_futures`."""
        self._is_shut = True
        while cancel_futures and not self._queue.empty():
            self._queue.get_nowait()
        for _ in self._threads:
            self._queue.put(None)
        if wait:
            for thread in self._threads:
                thread.join()


def _complete(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):  # a future cannot carry it; asyncio's raises the same error
        error = RuntimeError("StopIteration raised into a Future")
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
