"""Connections to ports of a node through a pair of pipes: srun's standard input and output.

This file also runs as the far end, on the node, with any `python3` there: it imports only the standard library. A frame
has the number of its connection, a kind, a length and bytes. A slow connection delays the others: the price for needing
no open port and no route between login host and node.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys

_HEAD = struct.Struct(">IBI")
_OPEN, _DATA, _END, _REFUSED = range(4)
_PIECE_BYTES = 1 << 16


class Channel:
    """An end of the channel. A frame `open` makes the other end connect to a port there."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._streams: dict[int, asyncio.StreamWriter] = {}
        self._pumps: dict[int, asyncio.Future[None]] = {}
        self._halves: set[int] = set()
        self._next = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """Connect an accepted connection with a port of the far end."""
        self._next += 1
        number = self._next
        self._streams[number] = writer
        await self._send(number, _OPEN, str(port).encode())
        await self._pump(number, reader)

    async def run(self) -> None:
        """Carry data until the pipes close."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, kind, length = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
                await self._take(number, kind, await self._reader.readexactly(length))
        for writer in self._streams.values():
            writer.close()

    async def _take(self, number: int, kind: int, data: bytes) -> None:
        if kind == _OPEN:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", int(data))
            except OSError:
                await self._send(number, _REFUSED, b"")
                return
            self._streams[number] = writer
            self._pumps[number] = asyncio.ensure_future(self._pump(number, reader))
            return
        stream = self._streams.get(number)
        if stream is None:
            return
        with contextlib.suppress(ConnectionError, OSError, RuntimeError):
            if kind == _DATA:
                stream.write(data)
                await stream.drain()
            elif kind == _REFUSED:
                stream.close()
            elif stream.can_write_eof():
                stream.write_eof()
        if kind in (_END, _REFUSED):
            self._half(number)

    def _half(self, number: int) -> None:
        """A direction of a connection has ended; with the second, the connection ends."""
        if number not in self._halves:
            self._halves.add(number)
            return
        self._halves.discard(number)
        self._pumps.pop(number, None)
        writer = self._streams.pop(number, None)
        if writer is not None:
            writer.close()

    async def _pump(self, number: int, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while True:
                data = await reader.read(_PIECE_BYTES)
                if not data:
                    break
                await self._send(number, _DATA, data)
        with contextlib.suppress(ConnectionError, OSError):
            await self._send(number, _END, b"")
        self._half(number)

    async def _send(self, number: int, kind: int, data: bytes) -> None:
        self._writer.write(_HEAD.pack(number, kind, len(data)) + data)
        await self._writer.drain()


async def far() -> None:
    """Run the node's end, on standard input and output."""
    loop = asyncio.get_event_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    await Channel(reader, writer).run()


if __name__ == "__main__":
    asyncio.run(far())
