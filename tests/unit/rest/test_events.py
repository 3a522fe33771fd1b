"""Feeds and readers of events without a daemon: windows, slow readers, filters, frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from spritz.model.errors import SpritzError
from spritz.model.queries.events import Change, ChangeBatch, WatchChanges
from spritz.rest import events
from spritz.rest.callers import Caller
from spritz.rest.events import Events, Wanted, wanted_of
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz.runtime.tasks import Supervisor


class Controller:
    """Stands for slurmctld: `journal` is what it has, `arrived` wakes subscriptions. Counts them."""

    def __init__(self) -> None:
        self.journal: list[Change] = []
        self.arrived = asyncio.Event()
        self.subscriptions = self.histories = 0
        self.token_good = True

    def add(self, count: int, type: str = "job") -> None:
        for _ in range(count):
            number = len(self.journal) + 1
            self.journal.append(Change(sequence=number, type=type, job_ids=(number % 7,), data=b"{}"))
        self.arrived.set()
        self.arrived = asyncio.Event()

    async def stream(self, request: WatchChanges) -> AsyncGenerator[ChangeBatch, None]:
        self.subscriptions += request.follow
        self.histories += not request.follow
        at = len(self.journal) if request.since is None else request.since
        yield ChangeBatch(sequence=at, public=True, incomplete=at > len(self.journal))
        at = min(at, len(self.journal))
        while True:
            while at < len(self.journal):
                changes = tuple(self.journal[at : at + 50])
                at = changes[-1].sequence
                yield ChangeBatch(sequence=at, changes=changes, public=True)
            if not request.follow:
                return
            await self.arrived.wait()


def played(monkeypatch: pytest.MonkeyPatch, play: Any) -> None:
    """`play(controller, events)` with readers' slurmctld replaced."""

    async def main() -> None:
        controller = Controller()

        class Daemon:
            def __init__(self, *_: object, reading: bool) -> None:
                pass

            async def stream(self, request: WatchChanges, _: object) -> AsyncGenerator[ChangeBatch, None]:
                async for batch in controller.stream(request):
                    yield batch

            async def call(self, *_: object) -> None:
                if not controller.token_good:
                    raise SpritzError("Authentication failure")

        monkeypatch.setattr(events, "Daemon", Daemon)
        async with Supervisor(lambda name, error: None) as tasks:
            made = Events(None, SystemClock(), get_logger("test"), tasks)  # type: ignore[arg-type]  # Daemon is replaced
            async with asyncio.timeout(100):
                await play(controller, made)
            made.close()
            tasks.cancel_all()

    asyncio.run(main())


def numbers(text: bytes, name: bytes = b"job") -> list[int]:
    """Ids of the frames of that name."""
    found = []
    for block in text.split(b"\n\n"):
        lines = block.split(b"\n")
        if b"event: " + name in lines:
            found += [int(line[4:]) for line in lines if line.startswith(b"id: ")]
    return found


def test_readers_share_one_subscription_and_each_gets_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(controller: Controller, made: Events) -> None:
        controller.add(3)

        async def read() -> list[int]:
            feed = await made.open(Caller())
            text = b""
            async for piece in made.read(feed, Caller(), Wanted(since=1)):
                text += piece
                if len(numbers(text)) >= 202:
                    return numbers(text)
            raise AssertionError(text)

        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(read()) for _ in range(20)]  # a test's own
            await asyncio.sleep(0)
            controller.add(200)
        assert all(reader.result() == list(range(2, 204)) for reader in readers)
        assert controller.subscriptions == 1

    played(monkeypatch, play)


def test_a_reader_that_falls_out_of_the_window_is_told_where_to_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WINDOW_EVENTS", 100)
    monkeypatch.setattr(events, "_GATHER_SECONDS", 0.0)

    async def play(controller: Controller, made: Events) -> None:
        feed = await made.open(Caller())
        reader = made.read(feed, Caller(), Wanted())
        text = await anext(reader)
        controller.add(5)
        text += await anext(reader)
        controller.add(500)  # and it does not read
        assert await feed.wait(504, 10.0)
        rest = b"".join([piece async for piece in reader])
        assert numbers(rest, b"dropped") == [5]
        assert b'"resume":5' in rest
        assert numbers(text) == [1, 2, 3, 4, 5]
        # It resumes: what is out of the window comes from the journal, the rest from the window.
        text = b""
        async for piece in made.read(feed, Caller(), Wanted(since=5, follow=False)):
            text += piece
        assert numbers(text) == list(range(6, 506))
        assert (controller.subscriptions, controller.histories) == (1, 1)

    played(monkeypatch, play)


def test_a_window_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WINDOW_BYTES", 1000)

    async def play(controller: Controller, made: Events) -> None:
        feed = await made.open(Caller())
        controller.add(500)
        assert await feed.wait(499, 10.0)
        assert feed.floor > 450
        text = b"".join([piece async for piece in made.read(feed, Caller(), Wanted(since=0, follow=False))])
        assert numbers(text) == list(range(1, 501))

    played(monkeypatch, play)


def test_filters_leave_out_and_heartbeats_move_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(controller: Controller, made: Events) -> None:
        controller.add(10, "node")
        controller.add(10)
        feed = await made.open(Caller())
        only = Wanted(since=0, types=frozenset({"node"}), follow=False)
        text = b"".join([piece async for piece in made.read(feed, Caller(), only)])
        assert (numbers(text), numbers(text, b"node")) == ([], list(range(1, 11)))
        of_job = Wanted(since=0, job_ids=frozenset({3}), follow=False)
        text = b"".join([piece async for piece in made.read(feed, Caller(), of_job)])
        assert numbers(text) == [17]
        reader = made.read(feed, Caller(), Wanted(since=20, types=frozenset({"step"}), heartbeat=0.05))
        assert b"event: hello" in await anext(reader)
        controller.add(5)
        while b"id: 25" not in (beat := await anext(reader)):
            assert beat.startswith(b": heartbeat")

    played(monkeypatch, play)


@pytest.mark.parametrize("busy", [True, False])
def test_a_token_that_ends_in_mid_stream_ends_it(monkeypatch: pytest.MonkeyPatch, busy: bool) -> None:
    """Also where events leave no time for a heartbeat."""
    monkeypatch.setattr(events, "TOKEN_SECONDS", 0.05)

    async def play(controller: Controller, made: Events) -> None:
        caller = Caller(token="ends")
        feed = await made.open(caller)
        reader = made.read(feed, caller, Wanted(heartbeat=1000.0 if busy else 0.06))
        assert b"event: hello" in await anext(reader)
        controller.add(1)
        assert numbers(await anext(reader)) == [1]
        controller.token_good = False
        while True:
            if busy:
                controller.add(1)
            try:
                await asyncio.wait_for(anext(reader), 100)
            except StopAsyncIteration:
                break
            await asyncio.sleep(0.01)

    played(monkeypatch, play)


def test_a_place_of_another_journal_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(controller: Controller, made: Events) -> None:
        controller.add(3)
        feed = await made.open(Caller())
        reader = made.read(feed, Caller(), Wanted(since=1000, follow=False))
        text = b"".join([piece async for piece in reader])
        assert numbers(text, b"reset")

    played(monkeypatch, play)


@pytest.mark.parametrize("query", ["types=", "since=-1", "since=", "job_id=a", "heartbeat=301", "x", "follow=1"])
def test_bad_queries_are_refused(query: str) -> None:
    with pytest.raises(SpritzError):
        wanted_of(query, "")


def test_the_header_comes_before_the_query() -> None:
    found = wanted_of("since=3&types=job,node&job_id=1,2&heartbeat=5&follow=no", "9")
    assert found == Wanted(
        since=9, types=frozenset({"job", "node"}), job_ids=frozenset({1, 2}), heartbeat=5.0, follow=False
    )
