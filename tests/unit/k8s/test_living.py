"""Tasks that must live, and the end of a process whose tasks do not end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from spritz.k8s import living
from spritz.k8s.living import EXIT_STATUS, Ending, TaskEnded, keep


@pytest.mark.parametrize("how", ["returns", "cancelled by nobody", "fails"])
def test_the_end_of_a_kept_task_is_a_failure(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[float] = []
    monkeypatch.setattr(living, "must_end", lambda: bounds.append(1))

    async def work() -> None:
        await asyncio.sleep(0)
        if how == "fails":
            raise OSError("disk")
        if how == "cancelled by nobody":
            raise asyncio.CancelledError

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            keep(group, work(), name="election")
            keep(group, asyncio.sleep(60), name="other")

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    (error,) = caught.value.exceptions
    assert isinstance(error, OSError if how == "fails" else TaskEnded)
    assert how == "fails" or "task election has ended" in str(error)
    assert bounds == [1], "the other must end too"


def test_a_kept_task_that_is_cancelled_ends_quietly() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            begun = keep(group, asyncio.sleep(60), name="a")
            await asyncio.sleep(0)
            for task in (begun, keep(group, asyncio.sleep(60), name="before its first step")):
                task.cancel()

    asyncio.run(main())


def test_a_process_whose_tasks_do_not_end_is_ended_by_a_thread() -> None:
    left, events = threading.Event(), list[object]()

    def leave(status: int) -> None:
        events.append(status)
        left.set()

    ending = Ending(lambda: events.append("report"), leave)
    ending.within(0.5)
    ending.within(60)  # the earlier bound stays
    assert left.wait(30)
    assert events == ["report", EXIT_STATUS]


def test_a_bound_is_withdrawn_when_the_tasks_have_ended() -> None:
    ending = Ending(lambda: None, lambda status: pytest.fail("it was withdrawn"))
    ending.within(0.5)
    (thread,) = [each for each in threading.enumerate() if each.name == "ending"]
    ending.withdraw()
    thread.join(30)
    assert not thread.is_alive()
    ending.withdraw()  # as when there is none
