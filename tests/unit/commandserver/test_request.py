"""The launcher's message, decoded; and the warm-up, which must leave nothing behind."""

from __future__ import annotations

import os
import socket
import struct
import threading

import pytest

from spritz.cli import sbatch, squeue
from spritz.cli.call.context import Context
from spritz.client.command import sync
from spritz.commandserver import warm_up
from spritz.commandserver.request import LIMITS, PROTOCOL, BadRequest, Request, receive, take_out


def message(*words: bytes, argc: int = 1, opened: int = 7, size: int | None = None) -> bytes:
    """As `launcher/request.c` writes it."""
    text = b"".join(word + b"\0" for word in words)
    limits = [7] * (2 * LIMITS)
    length = 312 + len(text) if size is None else size
    return struct.pack("=8sIIIIiIIIQQ32Q", PROTOCOL, length, argc, 0o27, opened, 5, 99, 7, 8, 1, 2, *limits) + text


def test_a_message_says_all_of_it() -> None:
    found = Request(message(b"/bin/squeue", b"-j", b"\xff", b"A=1", b"B=x=y", argc=3))
    assert found.argv == [b"/bin/squeue", b"-j", b"\xff"]
    assert found.environment == b"A=1\0B=x=y\0"
    assert (found.umask, found.opened, found.nice, found.caller) == (0o27, 7, 5, (99, 7, 8))
    assert (found.blocked, found.ignored, found.limits) == (1, 2, (7,) * 32)


def test_an_empty_argument_is_one() -> None:
    assert Request(message(b"squeue", b"", argc=2)).argv == [b"squeue", b""]


@pytest.mark.parametrize(
    "data",
    [message(b"squeue", argc=2), message(argc=0), message(b"squeue", opened=8), message(b"squeue")[:-1]],
)
def test_what_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        Request(data)


def test_closed_streams_have_no_descriptor() -> None:
    request = Request(message(b"squeue", opened=0b101))
    put_in, box = socket.socketpair()
    with put_in, box:
        socket.send_fds(put_in, [b"D"], [1, 2])
        streams = take_out(box, request)
        assert streams[1] == -1
        for number in streams[::2]:
            os.close(number)
        socket.send_fds(put_in, [b"D"], [1])
        with pytest.raises(BadRequest):
            take_out(box, request)


def test_nothing_in_the_box_is_no_call() -> None:
    """Also where the caller has no stream that could be missing."""
    put_in, box = socket.socketpair()
    with box:
        put_in.close()
        with pytest.raises(BadRequest):
            take_out(box, Request(message(b"squeue", opened=0)))


@pytest.mark.parametrize("size", [10, 50_000])
def test_both_messages_are_there_before_anybody_reads(size: int) -> None:
    ours, theirs = socket.socketpair()
    put_in, box = socket.socketpair()
    with ours, theirs, put_in, box:
        socket.send_fds(put_in, [b"D"], [0, 1, 2])
        socket.send_fds(theirs, [message(b"squeue", b"A=" + b"x" * size)], [box.fileno(), 0])
        request, directory, found = receive(ours)
        assert (request.argv, request.environment) == ([b"squeue"], b"A=" + b"x" * size + b"\0")
        with found:
            passed = {directory, *take_out(found, request)}
            assert len(passed) == 4
            for number in (*passed, found.fileno()):
                assert not os.get_inheritable(number)
            for number in passed:
                os.close(number)


@pytest.mark.parametrize(
    "data", [b"", b"SPRITZ0\n" + b"\0" * 400, message(b"squeue", size=10), message(b"squeue", size=1 << 31)]
)
def test_garbage_is_refused_before_it_is_read(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def send() -> None:
            if data:
                socket.send_fds(theirs, [data], [0, 0])
            theirs.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        with pytest.raises(BadRequest):
            receive(ours)
        sender.join()


def test_a_message_without_a_box_is_refused() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(message(b"squeue"))
        with pytest.raises(BadRequest):
            receive(ours)


def test_the_warm_up_performs_calls_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the pages that matter are not written to. And the client is as it was afterwards."""
    monkeypatch.setattr(os, "environ", {**os.environ})
    said: list[tuple[str, str]] = []

    class Overheard(Context):
        def out(self, text: str) -> None:
            said.append((self.program, text))

        def err(self, text: str) -> None:
            said.append((self.program, text))

    monkeypatch.setattr(warm_up, "Context", Overheard)
    before = sync._try_controller, sync.Connection.stream, sync.Connection.call
    warm_up.warm_up({"squeue": squeue.main, "sbatch": sbatch.main})
    assert ("sbatch", "Submitted batch job 1\n") in said
    assert any(name == "squeue" and "warm-up" in text for name, text in said), said
    assert (sync._try_controller, sync.Connection.stream, sync.Connection.call) == before
