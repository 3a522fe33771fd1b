"""Requests, answers and a real server in a thread, for the tests of the client."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from spritz.client.channel.handling import Call, Handler
from spritz.client.channel.server import Server
from spritz.runtime import tasks
from spritz.runtime.log import get_logger

LOG = get_logger("test")


class Ask(Struct, frozen=True, kw_only=True):
    text: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    text: str = ""


class Count(Struct, frozen=True, kw_only=True):
    upto: int


class Number(Struct, frozen=True, kw_only=True):
    value: int


class Who(Struct, frozen=True, kw_only=True):
    pass


class Person(Struct, frozen=True, kw_only=True):
    uid: int
    via: str


class Crash(Struct, frozen=True, kw_only=True):
    pass


class Silence(Struct, frozen=True, kw_only=True):
    pass


def echo(ask: Ask, call: Call) -> Answer:
    return Answer(text=ask.text)


def who(request: Who, call: Call) -> Person:
    caller = call.caller
    return Person(uid=-1, via="nobody") if caller is None else Person(uid=caller.uid, via=caller.via)


def crash(request: Crash, call: Call) -> Answer:
    raise ZeroDivisionError("a fault of the handler")


def abstract_name() -> str:
    return f"\0spritz/test/{uuid.uuid4()}"


class Serving:
    """A server that runs in a thread: its TCP port, and a way to have something done on its loop."""

    def __init__(self) -> None:
        self.port = 0
        self.server: Server | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stop: asyncio.Event | None = None
        self.ready = threading.Event()
        self.problem: BaseException | None = None

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """What `work()` returns on the server's loop."""
        assert self.loop is not None

        async def call() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(100)


@contextmanager
def serving(table: Mapping[type[Struct], Handler], name: str | None = None, **options: Any) -> Iterator[Serving]:
    """Answer requests on an abstract Unix socket and on a TCP port of the loopback until the block is left."""
    handle = Serving()

    async def main() -> None:
        handle.loop = asyncio.get_running_loop()
        handle.stop = asyncio.Event()
        async with Server(table, role="slurmctld", log=LOG, **options) as server:
            handle.server = server
            if name is not None:
                await server.listen_unix(name)
            listener = await server.listen_tcp("127.0.0.1", 0)
            handle.port = int(listener.name[1])
            handle.ready.set()
            await handle.stop.wait()

    def body() -> None:
        try:
            tasks.run(main())
        except BaseException as error:
            handle.problem = error
        finally:
            handle.ready.set()

    thread = threading.Thread(target=body)
    thread.start()
    assert handle.ready.wait(100), "the server did not start within 100 s"
    try:
        yield handle
    finally:
        if handle.loop is not None and handle.stop is not None and thread.is_alive():
            handle.loop.call_soon_threadsafe(handle.stop.set)
        thread.join(100)
        assert not thread.is_alive(), "the server did not stop within 100 s"
    if handle.problem is not None:
        raise handle.problem
