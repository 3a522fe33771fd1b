"""Streams over one connection: order, flow control, ends; and bytes of a stranger."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from spritz.client.relay.mux import OPEN, PAYLOAD_BYTES_MAX, STREAMS_MAX, WINDOW_BYTES, Mux, MuxStream, Splice


class Wire:
    """A pipe that hands everything to the other side's mux in the loop's next turn."""

    def __init__(self) -> None:
        self.mux: Any = None
        self.is_open = True
        self.sent = 0

    def attach(self, receiver: object) -> None:
        self.receiver = receiver

    def send(self, data: bytes) -> None:
        self.sent += len(data)
        if self.is_open and self.mux is not None:
            asyncio.get_running_loop().call_soon(self.mux.pipe_data, data)

    def abort(self) -> None:
        self.is_open = False

    close = abort


class Reader(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = bytearray()
        self.over = False
        self.paused = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.over = True

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


def pair(opened: list[MuxStream]) -> tuple[Mux, Mux, Wire]:
    near, far = Wire(), Wire()
    a = Mux(near, accepted=False, on_open=lambda stream, payload: None, on_gone=lambda: None)  # type: ignore[arg-type]  # as a pipe
    b = Mux(far, accepted=True, on_open=lambda stream, payload: opened.append(stream), on_gone=lambda: None)  # type: ignore[arg-type]  # likewise
    near.mux, far.mux = b, a
    return a, b, near


async def turns(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_bytes_come_in_order_and_the_end_after_them() -> None:
    async def run() -> None:
        opened: list[MuxStream] = []
        a, b, _ = pair(opened)
        sender, reader = Reader(), Reader()
        stream = a.open(b"hello", sender)
        await turns()
        opened[0].set_protocol(reader)
        data = bytes(range(256)) * 4096
        stream.write(data)
        stream.close()
        await turns(2000)
        assert reader.data == data
        assert reader.over
        assert sender.over
        assert len(a) == len(b) == 0

    asyncio.run(run())


def test_a_protocol_that_takes_over_an_ended_stream_is_told_its_end() -> None:
    """As a relay does, which reads the first bytes of a stream and then joins it with a connection."""

    async def scenario() -> None:
        opened: list[MuxStream] = []
        near, _, _ = pair(opened)
        first, second = Reader(), Reader()
        stream = near.open(b"", first)
        await turns()
        opened[0].write(b"reached")
        opened[0].close()
        await turns()
        stream.set_protocol(second)
        await turns()
        assert first.over
        assert second.over
        assert bytes(first.data) == b"reached"

    asyncio.run(scenario())


def test_a_reader_that_pauses_holds_back_its_sender_alone() -> None:
    async def run() -> None:
        opened: list[MuxStream] = []
        a, _, wire = pair(opened)
        slow, quick = Reader(), Reader()
        senders = Reader(), Reader()
        streams = [a.open(b"", sender) for sender in senders]
        await turns()
        for stream, reader in zip(opened, (slow, quick), strict=True):
            stream.set_protocol(reader)
        opened[0].pause_reading()
        before = wire.sent
        streams[0].write(b"x" * 10 * WINDOW_BYTES)
        await turns()
        assert wire.sent - before <= WINDOW_BYTES + 1024
        assert senders[0].paused
        assert not slow.data
        streams[1].write(b"y" * 3 * WINDOW_BYTES)
        await turns(1000)
        assert len(quick.data) == 3 * WINDOW_BYTES
        opened[0].resume_reading()
        await turns(4000)
        assert len(slow.data) == 10 * WINDOW_BYTES
        assert not senders[0].paused

    asyncio.run(run())


def test_too_many_streams_are_closed_unheard() -> None:
    async def run() -> None:
        opened: list[MuxStream] = []
        a, _, _ = pair(opened)
        readers = [Reader() for _ in range(STREAMS_MAX + 1)]
        for reader in readers:
            a.open(b"", reader)
        await turns(50)
        assert len(opened) == STREAMS_MAX
        assert readers[-1].over

    asyncio.run(run())


@pytest.mark.parametrize(
    "data",
    [
        b"\x09" + bytes(8),
        bytes((OPEN,)) + bytes(4) + (PAYLOAD_BYTES_MAX + 1).to_bytes(4, "big"),
        bytes((OPEN,)) + (2).to_bytes(4, "big") + bytes(4),  # a number that is not the opener's
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_frame_ends_the_connection(data: bytes) -> None:
    async def run() -> None:
        _, b, _ = pair([])
        b.pipe_data(data)
        assert not b.pipe.is_open

    asyncio.run(run())


def test_more_than_a_window_ends_the_connection() -> None:
    async def run() -> None:
        opened: list[MuxStream] = []
        _, b, _ = pair(opened)
        b.pipe_data(b"\x01" + (1).to_bytes(4, "big") + bytes(4))
        frame = b"\x02" + (1).to_bytes(4, "big") + PAYLOAD_BYTES_MAX.to_bytes(4, "big") + bytes(PAYLOAD_BYTES_MAX)
        for _ in range(WINDOW_BYTES // PAYLOAD_BYTES_MAX):
            b.pipe_data(frame)
        assert b.pipe.is_open
        b.pipe_data(frame)
        assert not b.pipe.is_open

    asyncio.run(run())


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_bytes_of_a_stranger_do_no_harm(pieces: list[bytes]) -> None:
    async def run() -> None:
        _, b, _ = pair([])
        for piece in pieces:
            b.pipe_data(piece)
        assert len(b._buffer) <= sum(map(len, pieces))

    asyncio.run(run())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_a_peer_had_sent_before_it_went_is_passed_on(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A task's last line, where srun still sends standard input to it: the write fails, and ends the transport."""

    async def scene() -> bytes:
        running = asyncio.get_running_loop()
        near, far = Splice.pair()
        (here, task), (there, srun) = socket.socketpair(), socket.socketpair()
        for end in (here, there, srun):
            end.setblocking(False)
        await running.create_connection(lambda: near, sock=here)
        await running.create_connection(lambda: far, sock=there)
        task.sendall(b"exit 7\n")
        task.close()
        # Nothing has been read of it yet.
        far.data_received(b"late")
        found = b""
        while piece := await running.sock_recv(srun, 100):
            found += piece
        srun.close()
        return found

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(scene()) == b"exit 7\n"
