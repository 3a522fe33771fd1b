"""Calls that may block run outside the loop, within bounds and deadlines."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from functools import partial

import pytest

from spritz.runtime import tasks
from spritz.runtime.worker import Worker, WorkerBusy, WorkerTimeout


def test_a_call_gives_its_result_or_raises_its_exception() -> None:
    async def main() -> None:
        worker = Worker("test")
        assert await worker.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(FileNotFoundError):
            await worker.run(open, "/no/such/file")
        worker.close()

    tasks.run(main())


def test_the_loop_goes_on_and_the_caller_is_released_by_its_deadline() -> None:
    async def main() -> None:
        worker, hang = Worker("test"), threading.Event()
        stuck = worker.submit(hang.wait)
        with pytest.raises(WorkerTimeout):
            await worker.run(divmod, 7, 2, seconds=0.01)
        hang.set()
        assert await stuck
        assert await worker.run(divmod, 7, 2) == (3, 1)
        worker.close()

    tasks.run(main())


def test_a_call_whose_caller_gave_up_before_its_turn_is_skipped() -> None:
    async def main() -> None:
        worker, hang = Worker("test"), threading.Event()
        done: list[str] = []
        worker.submit(hang.wait)
        with pytest.raises(WorkerTimeout):
            await worker.run(done.append, "late", seconds=0.01)
        hang.set()
        await worker.run(done.append, "next")
        assert done == ["next"]
        worker.close()

    tasks.run(main())


def test_more_than_may_wait_is_refused_and_counted() -> None:
    async def main() -> None:
        worker, hang = Worker("test", waiting_max=10), threading.Event()
        done: list[int] = []
        assert worker.put(partial(hang.wait, 100))
        assert worker.put(partial(done.append, 1), units=9)
        assert not worker.put(partial(done.append, 2), units=5)
        with pytest.raises(WorkerBusy):
            await worker.run(done.append, 3)
        assert worker.dropped == 6
        hang.set()
        assert worker.flush(100)
        assert done == [1]
        assert worker.put(partial(done.append, 4), units=50), "an idle worker takes any piece of work"
        assert worker.flush(100)
        assert done == [1, 4]
        worker.close()

    tasks.run(main())


def test_a_fault_of_one_piece_of_work_does_not_end_the_thread(capsys: pytest.CaptureFixture[str]) -> None:
    worker, done = Worker("test"), list[int]()
    worker.put(lambda: [][1])
    worker.put(partial(done.append, 1))
    assert worker.flush(100)
    assert done == [1]
    assert "IndexError" in capsys.readouterr().err
    worker.close()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(7)])
def test_a_caller_hears_of_whatever_ends_its_work(error: BaseException) -> None:
    """An exception that a future does not take, or that ends threads, would leave the caller waiting for ever."""

    def work() -> None:
        raise error

    async def main() -> None:
        worker = Worker("test")
        with pytest.raises(RuntimeError, match=type(error).__name__):
            await worker.run(work)
        assert await worker.run(divmod, 7, 2) == (3, 1), "the thread lives"
        worker.close()

    tasks.run(main())


def test_without_threads_a_call_is_refused_and_a_later_one_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        worker = Worker("test", threads=2)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(WorkerBusy):
                await worker.run(divmod, 7, 2)
        assert await worker.run(divmod, 7, 2) == (3, 1)
        worker.close()

    tasks.run(main())


def test_flush_gives_up_in_time_and_needs_no_thread_where_there_was_no_work() -> None:
    worker, hang = Worker("test"), threading.Event()
    assert worker.flush(0.0)
    worker.put(partial(hang.wait, 100))
    assert not worker.flush(0.01)
    hang.set()
    assert worker.flush(100)
    worker.close()


def test_work_that_hangs_does_not_keep_the_process_from_ending() -> None:
    program = """
from spritz.runtime import tasks
from spritz.runtime.worker import Worker, WorkerTimeout
import threading

async def main():
    try:
        await Worker("test").run(threading.Event().wait, seconds=0.01)
    except WorkerTimeout:
        print("released", flush=True)

tasks.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "released\n", "")


def test_results_after_the_loops_end_are_dropped() -> None:
    hang, ended = threading.Event(), threading.Event()

    def work() -> None:
        hang.wait(100)

    worker = Worker("test")

    async def main() -> None:
        worker.submit(work)

    asyncio.run(main())
    hang.set()
    worker.put(ended.set)
    assert ended.wait(100)
    worker.close()
