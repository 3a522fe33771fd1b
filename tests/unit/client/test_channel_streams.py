"""Back-pressure of streams: a channel reads from its peer unless a caller is behind, whatever the order of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.msgpack import encode

from spritz.client.channel import channel as channel_module
from spritz.client.channel.channel import Channel
from spritz.client.channel.handling import Handlers
from spritz.client.errors import ClientError
from spritz.client.relay.mux import Splice
from spritz.model.commands.job import Done
from spritz.runtime.log import get_logger
from spritz.wire.envelope import Response, failure

if TYPE_CHECKING:
    from spritz.runtime.pipe import Pipe

LIMIT = 4


class Paused:
    """A pipe that notes whether its channel reads."""

    def __init__(self) -> None:
        self.is_open = self.writable = self.reading = True
        self.unsent_bytes = self.backlog_bytes = 0
        self.peer_name, self.credentials, self.machine = "x", None, None

    def attach(self, receiver: object) -> None: ...

    def send(self, data: bytes) -> None: ...

    def close(self) -> None:
        self.is_open = False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Stream:
    """A stream and its caller, who takes one item when told to."""

    def __init__(self, link: Channel) -> None:
        before = set(link._waiting)
        self.items: AsyncGenerator[Done, None] = link.stream(Done(), Done)
        self.link = link
        self.waiting = 0
        self.over = False
        self._first = asyncio.ensure_future(anext(self.items, None))
        self._before = before

    async def begin(self) -> None:
        """Its caller waits for the first item, and has it: the generator only runs when it is asked."""
        await asyncio.sleep(0)
        (self.number,) = set(self.link._waiting) - self._before
        self.link._take_response(Response(id=self.number, body=Raw(encode(Done())), more=True))
        await self._first

    def put(self, how: str) -> None:
        if self.over:
            return
        self.waiting += 1
        self.over = how != "item"
        error = failure("ESLURM_INTERNAL") if how == "error" else None
        body = Raw(encode(Done()) if how == "item" else b"")
        self.link._take_response(Response(id=self.number, body=body, more=how == "item", error=error))

    async def take(self) -> None:
        if self.waiting:
            self.waiting -= 1
            try:
                if await anext(self.items, None) is None:
                    self.waiting = 0
            except ClientError:
                self.waiting = 0

    async def leave(self) -> None:
        self.waiting, self.over = 0, True
        await self.items.aclose()


def _channel(pipe: Paused) -> Channel:
    return Channel(cast("Pipe", pipe), Handlers({}), role="command", accepted=False, log=get_logger("test"))


WORDS = ("item", "item", "item", "item", "take", "take", "end", "error", "leave")
steps = st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 2)), max_size=60)


@settings(deadline=None)
@given(steps, st.sampled_from(["take", "close", "leave"]))
def test_a_channel_reads_unless_a_caller_is_behind(done: list[tuple[str, int]], last: str) -> None:
    async def main() -> None:
        pipe = Paused()
        link = _channel(pipe)
        streams = [Stream(link) for _ in range(1)]
        await streams[0].begin()
        for _ in range(2):
            streams.append(Stream(link))
            await streams[-1].begin()
        for what, index in done:
            stream = streams[index]
            if what == "take":
                await stream.take()
            elif what == "leave":
                await stream.leave()
            else:
                stream.put(what)
            full = sum(stream.waiting >= LIMIT for stream in streams)
            assert link._full_streams == full
            assert pipe.reading is (full == 0)
        if last == "close":
            link.pipe_closed(None)  # each open stream gets an error as well
        for stream in streams:
            if last == "leave":
                await stream.leave()
            stream.waiting = stream.waiting + (last == "close" and not stream.over)
            while stream.waiting:
                await stream.take()
        assert link._full_streams == 0
        for stream in streams:
            await stream.items.aclose()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel_module, "STREAM_ITEMS_MAX", LIMIT)
        asyncio.run(main())


@pytest.mark.parametrize("ends", ["end", "error"])
@pytest.mark.parametrize("waiting", [LIMIT - 2, LIMIT - 1, LIMIT])
def test_a_stream_that_ends_at_the_limit_leaves_back_pressure_as_it_was(waiting: int, ends: str) -> None:
    async def main() -> None:
        pipe = Paused()
        link = _channel(pipe)
        stream = Stream(link)
        await stream.begin()
        for _ in range(waiting):
            stream.put("item")
        stream.put(ends)
        while stream.waiting:
            await stream.take()
        assert link._full_streams == 0
        other = Stream(link)
        await other.begin()
        for _ in range(LIMIT):
            other.put("item")
        assert not pipe.reading, "the next stream is held back"
        await other.leave()
        assert pipe.reading

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel_module, "STREAM_ITEMS_MAX", LIMIT)
        asyncio.run(main())


class _Transport:
    """Takes 10 bytes before it asks its protocol to pause."""

    def __init__(self) -> None:
        self.reading = True
        self.unsent = 0
        self.full: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        self.unsent += len(data)
        if self.unsent > 10:
            self.full()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None: ...


def test_bytes_that_came_before_the_other_end_count_for_its_back_pressure() -> None:
    near, far = Splice.pair()
    sender, receiver = _Transport(), _Transport()
    near.connection_made(cast("asyncio.Transport", sender))
    near.data_received(b"x" * 20)
    assert not sender.reading
    receiver.full = far.pause_writing
    far.connection_made(cast("asyncio.Transport", receiver))
    assert not sender.reading, "the receiver is full"
    far.resume_writing()
    assert sender.reading
