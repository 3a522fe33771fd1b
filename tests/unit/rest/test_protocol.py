"""A client that does not read its answer loses its connection; one that reads again in time keeps it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from spritz.rest import protocol


class Transport(asyncio.Transport):
    """Of a TCP connection; notes that it is aborted."""

    def __init__(self) -> None:
        super().__init__({"socket": None, "peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.aborted = asyncio.Event()

    def abort(self) -> None:
        self.aborted.set()

    def is_closing(self) -> bool:
        return self.aborted.is_set()


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Never called."""


def connected() -> tuple[protocol.Protocol, Transport]:
    config = uvicorn.Config(_app, http=protocol.Protocol, log_config=None)
    config.load()
    connection, transport = protocol.Protocol(config, ServerState(), {}), Transport()
    connection.connection_made(transport)
    return connection, transport


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.0)

    async def run() -> None:
        connection, transport = connected()
        connection.pause_writing()
        await asyncio.wait_for(transport.aborted.wait(), 60)
        connection.connection_lost(ConnectionError())

    asyncio.run(run())


def test_a_client_that_reads_again_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.0)

    async def run() -> None:
        connection, transport = connected()
        connection.pause_writing()
        connection.resume_writing()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not transport.aborted.is_set()
        connection.connection_lost(ConnectionError())

    asyncio.run(run())
