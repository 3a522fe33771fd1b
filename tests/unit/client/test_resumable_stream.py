"""Streams that outlive the link below them: whenever it breaks, every byte arrives once and in order."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from msgspec import msgpack

from spritz.client.relay.hub import CLIENT, Open, encode_open
from spritz.client.relay.mux import Mux, MuxStream
from spritz.client.relay.relay import Relay
from spritz.client.relay.resumable_stream import COUNT, FORGOTTEN, KEPT_BYTES, LASTING, Answer, ResumableStream


class Near(asyncio.Transport):
    """The connection at one end: what was written to it, and whether it may be read."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False
        self.reading = True
        self.calls: list[str] = []

    def write(self, data: Any) -> None:
        assert not self.closed, "nothing follows the end"
        self.written += data

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.reading = True
        self.calls.append("resume")


class Wire:
    """A pipe to the other side's mux; what is on its way when it breaks is lost."""

    def __init__(self) -> None:
        self.other: Wire
        self.mux: Mux
        self.is_open = True

    def attach(self, mux: Any) -> None:
        self.mux = mux

    def send(self, data: bytes) -> None:
        if self.is_open:
            asyncio.get_running_loop().call_soon(self.other.arrived, data)

    def arrived(self, data: bytes) -> None:
        if self.is_open:
            self.mux.pipe_data(data)

    def abort(self) -> None:
        if self.is_open:
            for wire in (self, self.other):
                wire.is_open = False
                asyncio.get_running_loop().call_soon(wire.mux.pipe_closed, None)


class Ends:
    """Two ends, and the links that lead from one to the other."""

    def __init__(self) -> None:
        self.nears = Near(), Near()
        self.over: list[str] = []
        self.opener = ResumableStream(self.again, lambda: self.over.append("opener"))
        self.taker = ResumableStream(lambda: None, lambda: self.over.append("taker"))
        for end, near in zip((self.opener, self.taker), self.nears, strict=True):
            end.connection_made(near)
        self.links = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.wire: Wire

    def again(self) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(self.link()))

    async def link(self) -> None:
        """Open a stream by a new link, as daemons do."""
        self.links += 1
        here, there = Wire(), Wire()
        here.other, there.other = there, here
        self.wire = here

        def opened(stream: MuxStream, payload: bytes) -> None:
            stream.write(LASTING + COUNT.pack(self.taker.received))
            self.taker.attach(stream, COUNT.unpack(payload)[0])

        mux = Mux(here, accepted=False, on_open=opened, on_gone=lambda: None)  # type: ignore[arg-type]  # a pipe
        Mux(there, accepted=True, on_open=opened, on_gone=lambda: None)  # type: ignore[arg-type]  # likewise
        answer = Answer()
        stream = mux.open(COUNT.pack(self.opener.received), answer)
        first = await answer.first
        if first:
            size = 1 + COUNT.size
            self.opener.attach(stream, COUNT.unpack(first[1:size])[0], first[size:])
            if not self.opener.over:
                stream.resume_reading()
        elif self.opener.is_broken:
            self.again()

    async def settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(40))
def test_whenever_links_break_every_byte_arrives_once(seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        ends = Ends()
        await ends.link()
        sent = bytearray(), bytearray()
        for _ in range(60):
            side = chance.randrange(2)
            if ends.nears[side].reading:
                piece = chance.randbytes(chance.choice((1, 100, 40_000, 70_000)))
                sent[side].extend(piece)
                (ends.opener, ends.taker)[side].data_received(piece)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.2:
                ends.wire.abort()
        await ends.settle()
        # One ends, perhaps with a broken link; the other is told after all that was sent.
        side = chance.randrange(2)
        if chance.random() < 0.5:
            ends.wire.abort()
        (ends.opener, ends.taker)[side].connection_lost(None)
        for _ in range(chance.randrange(8)):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            ends.wire.abort()
        for _ in range(10):
            await ends.settle()
        assert ends.nears[1 - side].written == sent[side]
        assert ends.nears[1 - side].closed
        assert ends.links > 1
        assert {"opener", "taker"} >= set(ends.over)
        assert ("taker", "opener")[side] in ends.over

    asyncio.run(main())


def test_an_end_without_a_peer_stops_reading() -> None:
    async def main() -> None:
        ends = Ends()
        for _ in range(5):
            ends.opener.data_received(bytes(KEPT_BYTES // 4))
        assert ends.nears[0].calls == ["pause"]
        await ends.link()
        await ends.settle()
        assert ends.nears[0].calls == ["pause", "resume"]
        assert len(ends.nears[1].written) == KEPT_BYTES // 4 * 5

    asyncio.run(main())


@pytest.mark.parametrize("taken", [-1, 11, 2**63])
def test_counts_that_cannot_be_end_it(taken: int) -> None:
    async def main() -> None:
        ends = Ends()
        ends.opener.data_received(bytes(10))
        here, there = Wire(), Wire()
        here.other, there.other = there, here
        mux = Mux(here, accepted=False, on_open=lambda stream, payload: None, on_gone=lambda: None)  # type: ignore[arg-type]  # a pipe
        stream = mux.open(b"", Answer())
        ends.opener.attach(stream, taken)
        assert ends.over == ["opener"]
        assert ends.nears[0].closed

    asyncio.run(main())


@pytest.mark.parametrize(
    ("uid", "number", "reason"), [(1, b"number", ""), (2, b"number", FORGOTTEN), (1, b"x", FORGOTTEN)]
)
def test_only_the_user_with_the_number_goes_on_with_a_connection(uid: int, number: bytes, reason: str) -> None:
    class Stream:
        refused = ""

        def refuse(self, reason: str) -> None:
            self.refused = reason

    class Client:
        taken = -1

        def attach_again(self, stream: Any, taken: int) -> None:
            self.taken = taken

    nothing: Any = None
    relay = Relay(nothing, "c", tasks=nothing, clock=nothing, randomness=nothing, log=nothing)
    stream: Any = Stream()
    client: Any = Client()
    relay._clients[1, b"number"] = client
    request = Open(target=CLIENT, credential=msgpack.encode((uid, 1)), lasting=number, received=7, again=True)
    relay.opened(stream, encode_open(request))
    assert (stream.refused, client.taken) == (reason, -1 if reason else 7)
