"""Two connections made one: what a Service's address does in the clusters for tests."""

from __future__ import annotations

import asyncio

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def relay(first: Connection, second: Connection) -> None:
    """Pass on what each sends to the other, until both have said that they send no more, and close them."""
    (first_reader, first_writer), (second_reader, second_writer) = first, second
    try:
        await asyncio.gather(_copy(first_reader, second_writer), _copy(second_reader, first_writer))
    finally:
        first_writer.close()
        second_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except (OSError, RuntimeError):  # the other end has gone, or the transport was closed meanwhile
        writer.close()
