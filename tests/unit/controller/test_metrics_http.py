"""HTTP on the controller's port: one request a connection, in pieces of any size, and refusals of what is none."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spritz.client.channel.channel import Channel
from spritz.controller.context import Context
from spritz.controller.metrics.http import HEAD_BYTES_MAX, Endpoint


class _Pipe:
    """Notes what is sent."""

    def __init__(self) -> None:
        self.sent = b""
        self.ends = 0
        self.receiver: Any = None

    def attach(self, receiver: Any) -> None:
        self.receiver = receiver

    def send(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.ends += 1

    close_slowly = abort = close


def answer_to(*pieces: bytes) -> bytes:
    """What is sent when these pieces come."""

    async def ask() -> bytes:
        pipe = _Pipe()
        first, *others = pieces
        Endpoint(cast(Context, None)).take(cast(Channel, SimpleNamespace(pipe=pipe, pipe_closed=len)), first)
        for piece in others:
            pipe.receiver.pipe_data(piece)
        assert pipe.ends == (1 if pipe.sent else 0)
        pipe.receiver.pipe_closed(())
        return pipe.sent

    return asyncio.run(ask())


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
REQUEST = b"GET /livez?x=y HTTP/1.1\r\nHost: ctl\r\n\r\n"


def test_a_request_in_single_bytes_has_the_answer_of_a_whole_one() -> None:
    assert answer_to(REQUEST) == answer_to(*(REQUEST[at : at + 1] for at in range(len(REQUEST)))) == OK + b"ok\n"


def test_the_answer_to_head_has_no_body() -> None:
    assert answer_to(REQUEST.replace(b"GET", b"HEAD")) == OK


def test_what_follows_a_request_is_ignored() -> None:
    assert answer_to(REQUEST + b"GET /none HTTP/1.1\r\n\r\n") == OK + b"ok\n"
    assert answer_to(REQUEST, b"\0" * 100_000) == OK + b"ok\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET \0\0 HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHo st: x\r\n\r\n", 400),
        (b"HEADACHE / HTTP/1.1\r\n\r\n", 400),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n", 405),
        (b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /" + b"x" * HEAD_BYTES_MAX, 431),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * HEAD_BYTES_MAX, 431),
    ],
)
def test_what_is_not_served_is_refused(request_bytes: bytes, status: int) -> None:
    assert answer_to(request_bytes).startswith(b"HTTP/1.1 %d " % status)


def test_half_a_request_has_no_answer_yet() -> None:
    assert answer_to(REQUEST[:-2]) == b""


def test_an_old_client_need_not_name_the_host() -> None:
    assert answer_to(b"GET /livez HTTP/1.0\r\n\r\n") == OK + b"ok\n"
