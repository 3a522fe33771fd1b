"""When pages are shown: not before their cluster has been seen once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from spritz.http.records import Rows
from spritz.http.rest import Rest, RestError, events_of
from spritz.http.stream import Bookmark, Event
from spritz.http.transport import Stream
from spritz.web import picture
from spritz.web.picture import Picture
from tests.unit.web.dashboard import frame


class _Cluster:
    """slurmrestd that cannot be reached at first. `refusal`: it answers so instead."""

    def __init__(self, refusal: RestError | None = None) -> None:
        self.refusal = refusal
        self.tried = asyncio.Event()
        self.there = False
        #: frames of the first event stream, which ends with them; later streams send nothing
        self.frames: list[bytes] = []

    @asynccontextmanager
    async def events(self, bookmark: Bookmark) -> AsyncIterator[AsyncIterator[Event]]:
        self.tried.set()
        if self.refusal is not None:
            raise self.refusal
        if not self.there:
            raise OSError("connection refused")
        yield events_of(cast(Stream, self), bookmark)

    async def pieces(self) -> AsyncIterator[bytes]:
        if self.frames:
            frames, self.frames = self.frames, []
            for piece in frames:
                yield piece
        else:
            await asyncio.Event().wait()

    async def get(self, path: str, answer: type[Any], **query: str) -> Any:
        return msgspec.convert({"now": 0.0, "nodes": []}, answer)

    async def rows(self, kind: type[Any], **query: str) -> Rows[Any]:
        return Rows([])


def test_a_page_waits_for_a_slurmrestd_that_starts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(picture, "READY_SECONDS", 100.0)

    async def use() -> None:
        cluster = _Cluster()
        followed = Picture(cast(Rest, cluster))
        running = asyncio.create_task(followed.run())
        page = asyncio.create_task(followed.wait_ready())
        await cluster.tried.wait()
        assert not page.done()
        cluster.there = True
        await page
        assert not followed.error
        running.cancel()

    asyncio.run(use())


def test_a_page_does_not_wait_for_a_slurmrestd_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "READY_SECONDS", 100.0)

    async def use() -> None:
        followed = Picture(cast(Rest, _Cluster(RestError("Authentication failure", 401))))
        running = asyncio.create_task(followed.run())
        await followed.wait_ready()
        assert followed.error == "Authentication failure"
        running.cancel()

    asyncio.run(use())


def test_an_event_that_cannot_be_read_interrupts_the_picture_until_the_next_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reasons: list[str] = []
    again = asyncio.Event()

    class Told(Picture):
        def _turn(self, error: str) -> None:
            super()._turn(error)
            reasons.append(error)
            if len(reasons) == 3:
                again.set()

    async def use() -> None:
        cluster = _Cluster()
        cluster.there = True
        cluster.frames = [frame("hello", b'{"id": 1}'), frame("job", b'{"job_id": 7, "sta')]
        followed = Told(cast(Rest, cluster))
        running = asyncio.create_task(followed.run())
        await asyncio.wait({running, asyncio.create_task(again.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert [bool(reason) for reason in reasons] == [False, True, False]
        assert reasons[1].startswith("an event of the stream cannot be read")
        assert not followed.error
        running.cancel()

    monkeypatch.setattr(picture, "AGAIN_SECONDS", 0.0)
    asyncio.run(use())


def test_events_of_an_interruption_are_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start page lists what happened: nothing is missing in it, and nothing is there twice."""
    monkeypatch.setattr(picture, "AGAIN_SECONDS", 0.0)

    class Restarted(_Cluster):
        """Each connection ends after one event more than the reader has."""

        def __init__(self) -> None:
            super().__init__()
            self.there = True
            self.over = asyncio.Event()
            self.since: list[int | None] = []

        @asynccontextmanager
        async def events(self, bookmark: Bookmark) -> AsyncIterator[AsyncIterator[Event]]:
            at = bookmark.sequence or 0
            self.since.append(bookmark.sequence)
            if at == 3:
                self.over.set()
            self.frames = (
                [frame("hello", b"{}", at), frame("job", b'{"job_id": %d}' % (at + 1), at + 1)] if at < 3 else []
            )
            async with super().events(bookmark) as events:
                yield events

    async def use() -> None:
        cluster = Restarted()
        followed = Picture(cast(Rest, cluster))
        followed.viewers.add(picture.Viewer())
        running = asyncio.create_task(followed.run())
        async with asyncio.timeout(60):
            await cluster.over.wait()
        assert cluster.since == [None, 1, 2, 3]
        assert [event["job_id"] for event in followed.recent] == [1, 2, 3]
        running.cancel()

    asyncio.run(use())
