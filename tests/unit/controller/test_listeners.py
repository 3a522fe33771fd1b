"""What becomes of the others, and of the listener itself, when a listener fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spritz.controller.writer.listeners import REBUILD_SECONDS, Listeners, Loss
from spritz.model.events import NO_CHANGES, Event
from spritz.model.events.job import JobsPurged
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger


class SetClock(SystemClock):
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


class Follower:
    """Remembers the numbers of jobs that it was told of; fails while `faulty`, and for events about job `poison`."""

    def __init__(self, poison: int = 0) -> None:
        self.poison = poison
        self.faulty = False
        self.told: list[int] = []
        self.rebuilt = 0

    def listen(self, events: Sequence[Event]) -> None:
        for event in events:
            assert isinstance(event, JobsPurged)
            if self.faulty or event.job_ids == (self.poison,):
                raise ValueError("a fault of the listener")
            self.told += event.job_ids

    def rebuild(self) -> None:
        if self.faulty:
            raise ValueError("a fault of the rebuild")
        self.rebuilt += 1


class Bench:
    def __init__(self) -> None:
        self.clock = SetClock()
        self.failures: dict[str, int] = {}
        self.stopped: list[Exception] = []
        self.listeners = Listeners(self.clock, get_logger("test"), self.failures, on_stop=self.stopped.append)

    def tell(self, *job_ids: int) -> None:
        self.listeners.inform([JobsPurged(at=1.0, job_ids=(job_id,)) for job_id in job_ids], NO_CHANGES)


def test_the_others_get_the_events_that_one_fails_for() -> None:
    bench, before, failing, after = Bench(), Follower(), Follower(poison=2), Follower()
    bench.listeners.add("before", before.listen, Loss.IGNORE)
    bench.listeners.add("failing", failing.listen, Loss.IGNORE)
    bench.listeners.add("after", after.listen, Loss.IGNORE)
    for job_id in (1, 2, 3):
        bench.tell(job_id)
    assert before.told == after.told == [1, 2, 3]
    assert failing.told == [1, 3]
    assert bench.failures == {"listener.failing": 1}
    assert bench.stopped == []


def test_a_listener_whose_memory_is_rebuilt_goes_on_with_the_next_events() -> None:
    bench, failing = Bench(), Follower(poison=2)
    bench.listeners.add("failing", failing.listen, Loss.REBUILD, failing.rebuild)
    for job_id in (1, 2, 3):
        bench.tell(job_id)
    assert (failing.rebuilt, failing.told) == (1, [1, 3])


def test_a_rebuild_that_fails_is_tried_again_after_a_pause_and_no_events_come_before_it_works() -> None:
    bench, failing = Bench(), Follower()
    bench.listeners.add("failing", failing.listen, Loss.REBUILD, failing.rebuild)
    failing.faulty = True
    bench.tell(1)
    assert bench.failures == {"listener.failing": 2}  # the events, then the rebuild
    failing.faulty = False
    bench.tell(2)
    assert (failing.rebuilt, failing.told) == (0, [])
    bench.clock.at += REBUILD_SECONDS
    bench.tell(3)  # the state that it is rebuilt from holds this, too
    bench.tell(4)
    assert (failing.rebuilt, failing.told) == (1, [4])


def test_a_listener_that_the_controller_needs_stops_it() -> None:
    bench, failing = Bench(), Follower(poison=1)
    bench.listeners.add("failing", failing.listen, Loss.STOP)
    bench.tell(1)
    assert [str(error) for error in bench.stopped] == ["a fault of the listener"]


def test_a_listener_that_always_fails_is_logged_now_and_then_and_always_counted(
    capfd: pytest.CaptureFixture[str],
) -> None:
    bench, failing = Bench(), Follower()
    failing.faulty = True
    bench.listeners.add("failing", failing.listen, Loss.IGNORE)
    for job_id in range(1, 101):
        bench.tell(job_id)
    bench.clock.at += 60.0
    bench.tell(101)
    assert bench.failures == {"listener.failing": 101}
    lines = [line for line in capfd.readouterr().err.splitlines() if "listener.failed" in line]
    assert len(lines) == 2
    assert "events=JobsPurged" in lines[1]
    assert "failures=101" in lines[1]


def test_a_declaration_that_makes_no_sense_is_refused() -> None:
    listeners, follower = Bench().listeners, Follower()
    with pytest.raises(AssertionError):
        listeners.add("a", follower.listen, Loss.REBUILD)
    with pytest.raises(AssertionError):
        listeners.add("b", follower.listen, Loss.IGNORE, follower.rebuild)
