"""What waits for a moment of the clock is called soon after the clock is set, and mails of a limit with it."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from spritz.controller.clock_changes import watch_clock
from spritz.controller.programs.mail_limits import SUSPENDED_SECONDS, LimitWatch
from spritz.controller.writer.timers import ClockTimers, DeadlineTimer
from spritz.model.job.record import Job, JobSpec
from spritz.model.states import JobState
from spritz.runtime.clock import SystemClock

HOUR = 3600.0


class SetClock(SystemClock):
    """Shows what it was set to."""

    time = 1000.0

    def now(self) -> float:
        return self.time


def run(story: Callable[[SetClock], Awaitable[None]]) -> None:
    """The story within twenty seconds: an hour is only passed by setting the clock."""

    async def main() -> None:
        async with asyncio.timeout(100):
            await story(SetClock())

    asyncio.run(main())


async def turns() -> None:
    """Time for whatever is due at once."""
    await asyncio.sleep(0.02)


def test_what_waits_for_moments_is_called_in_their_order_when_the_clock_has_passed_them() -> None:
    async def story(clock: SetClock) -> None:
        timers, told = ClockTimers(clock), list[str]()
        for name, wait in (("late", 3 * HOUR), ("second", 2 * HOUR), ("first", HOUR)):
            timers.at(clock.now() + wait, lambda name=name: told.append(name))  # type: ignore[misc]
        timers.at(clock.now() - HOUR, lambda: told.append("past"))
        assert told == [], "not before the caller is done"
        await turns()
        assert told == ["past"]
        clock.time += 2.5 * HOUR
        timers.look_again()
        assert told == ["past", "first", "second"]
        timers.cancel()

    run(story)


def test_the_core_is_woken_when_the_clock_is_set_past_its_deadline() -> None:
    async def story(clock: SetClock) -> None:
        ticks = list[object]()
        rest = [clock.now() + HOUR]

        def tick(command: object) -> None:
            ticks.append(command)
            rest.clear()

        writer = SimpleNamespace(hooks=[], handle_own=tick)
        state = SimpleNamespace(version=0)
        machine = SimpleNamespace(next_deadline=lambda: rest[0] if rest else None, state=state)
        timer = DeadlineTimer(SimpleNamespace(clock=clock, writer=writer, machine=machine))
        timer.arm()
        clock.time += 2 * HOUR
        await turns()
        assert ticks == []
        timer.look_again()
        await turns()
        assert len(ticks) == 1

    run(story)


def test_a_deadline_that_a_tick_leaves_due_does_not_take_the_loop() -> None:
    """The deadline is tried again after a pause, and each such Tick is logged and counted."""

    async def story(clock: SetClock) -> None:
        ticks, logged, counted = list[object](), list[str](), list[str]()
        writer = SimpleNamespace(hooks=[], handle_own=ticks.append, count_failure=counted.append)
        machine = SimpleNamespace(next_deadline=lambda: 999.0, state=SimpleNamespace(version=7))
        log = SimpleNamespace(error=lambda name, **_fields: logged.append(name))
        timer = DeadlineTimer(SimpleNamespace(clock=clock, writer=writer, machine=machine, log=log))
        for _ in range(5):  # as the hook does at the end of each turn
            timer.arm()
            await turns()
        assert (len(ticks), logged, counted) == (1, ["tick.idle"], ["tick"])
        machine.state.version += 1  # another deadline comes first now
        machine.next_deadline = lambda: 998.0
        timer.arm()
        await turns()
        assert len(ticks) == 2
        timer.cancel()

    run(story)


def test_a_tick_that_fails_is_tried_again_after_a_pause() -> None:
    """It was taken back, and its deadline is due still: at once it would fail at once, for ever."""

    async def story(clock: SetClock) -> None:
        ticks, logged = list[object](), list[str]()

        def tick(command: object) -> None:
            ticks.append(command)
            raise KeyError("a fault of the core")

        writer = SimpleNamespace(hooks=[], handle_own=tick)
        machine = SimpleNamespace(next_deadline=lambda: 999.0, state=SimpleNamespace(version=7))
        log = SimpleNamespace(error=lambda name, **_fields: logged.append(name))
        timer = DeadlineTimer(SimpleNamespace(clock=clock, writer=writer, machine=machine, log=log))
        for _ in range(5):
            timer.arm()
            await turns()
        assert (len(ticks), logged) == (1, ["tick.failed"])
        timer.cancel()

    run(story)


def test_a_call_that_asks_for_a_moment_that_has_passed_is_not_repeated_in_its_turn() -> None:
    async def story(clock: SetClock) -> None:
        timers, calls = ClockTimers(clock), list[int]()

        def again() -> None:
            calls.append(len(calls))
            assert len(calls) < 100, "in one turn"
            timers.at(clock.now() - HOUR, again)

        timers.at(clock.now() + HOUR, again)
        clock.time += 2 * HOUR
        timers.look_again()
        assert calls == [0]
        timers.cancel()

    run(story)


def test_the_kernels_word_that_the_clock_was_set_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(clock: SetClock) -> None:
        told = asyncio.Event()
        with watch_clock(told.set):
            await turns()
            assert not told.is_set(), "a kernel timer that was not cancelled"
        news = os.eventfd(0)
        kernel = SimpleNamespace(timerfd_create=lambda *_: news, timerfd_settime=lambda *_: 0)
        monkeypatch.setattr(ctypes, "CDLL", lambda _: kernel)
        with watch_clock(told.set):
            os.eventfd_write(news, 1)
            await told.wait()
        with pytest.raises(OSError):
            os.fstat(news)

    run(story)


class Mails:
    """What is told of a limit, and one running job with a limit of ten hours."""

    def __init__(self, clock: SetClock) -> None:
        spec = JobSpec(name="a", user="ada", mail_types=("TIME_LIMIT_50", "TIME_LIMIT_90"))
        begun = clock.now()
        self.job = Job(
            id=7, spec=spec, submitted_at=begun, started_at=begun, ends_at=begun + 10 * HOUR, state=JobState.RUNNING
        )
        self.jobs = {7: self.job}
        self.sent = list[str]()
        self.timers = ClockTimers(clock)
        state = SimpleNamespace(jobs=self.jobs)
        context: Any = SimpleNamespace(clock=clock, machine=SimpleNamespace(state=state))
        self.watch = LimitWatch(context, self.timers, lambda kind, job: self.sent.append(kind))
        self.watch.watch(self.job)

    def change(self, **fields: Any) -> None:
        """The job is another from now on."""
        self.jobs[7] = structs.replace(self.jobs[7], **fields)
        self.watch.watch(self.jobs[7])


def test_mails_of_a_limit_come_when_the_clock_is_set_past_their_part_of_it() -> None:
    async def story(clock: SetClock) -> None:
        mails = Mails(clock)
        for hours, sent in ((4, []), (6, ["TIME_LIMIT_50"]), (9.5, ["TIME_LIMIT_50", "TIME_LIMIT_90"])):
            clock.time = 1000.0 + hours * HOUR
            mails.timers.look_again()
            assert mails.sent == sent

    run(story)


def test_mails_of_a_limit_wait_for_a_suspended_job_and_for_a_later_end() -> None:
    async def story(clock: SetClock) -> None:
        mails = Mails(clock)
        mails.change(state=JobState.SUSPENDED)
        clock.time += 9.5 * HOUR
        mails.timers.look_again()
        assert mails.sent == [], "its limit comes no nearer"
        mails.change(state=JobState.RUNNING, ends_at=clock.now() + 6 * HOUR)
        clock.time += SUSPENDED_SECONDS
        mails.timers.look_again()
        assert mails.sent == ["TIME_LIMIT_50"]
        mails.change(state=JobState.COMPLETED)
        clock.time += 6 * HOUR
        mails.timers.look_again()
        assert mails.sent == ["TIME_LIMIT_50"]

    run(story)


def test_mails_of_a_limit_follow_what_is_changed_while_the_job_runs() -> None:
    async def story(clock: SetClock) -> None:
        mails = Mails(clock)
        begun = mails.job.started_at
        clock.time = begun + 3 * HOUR
        mails.change(ends_at=begun + 4 * HOUR)
        mails.timers.look_again()
        assert mails.sent == ["TIME_LIMIT_50"], "half of the new limit is over"
        mails.change(spec=structs.replace(mails.job.spec, mail_types=("TIME_LIMIT_50", "TIME_LIMIT_80")))
        clock.time = begun + 3.9 * HOUR
        mails.timers.look_again()
        assert mails.sent == ["TIME_LIMIT_50", "TIME_LIMIT_80"], "each once, and 90 percent is wanted no more"

    run(story)
