"""HTTP on a connection, with additions to uvicorn: the peer's identity, and limits on slow and greedy clients.

A request's head must be complete within `HEAD_SECONDS` and `HEAD_BYTES_MAX`; the client must read each piece of an
answer within `READ_SECONDS`. `app` limits bodies. A client that exceeds a limit loses its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spritz.runtime.credentials import peer_credentials

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS = 20.0
HEAD_BYTES_MAX = 64 * 1024
READ_SECONDS = 60.0

_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

#: Log of the daemon; set before it listens.
connections_max = 4096


class Protocol(HttpToolsProtocol):
    """A connection, with timers for the request's head and for a client that does not read."""

    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_body = False
    _refused = False

    def connection_made(self, transport: Any) -> None:
        """Note the peer's identity on a Unix socket, and start to wait for a request's head."""
        super().connection_made(transport)
        if len(self.connections) > connections_max:
            self._refuse(_TOO_MANY)
            return
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family == 1:  # AF_UNIX: only there the kernel identifies the peer
            self.app_state = {**self.app_state, "peer": peer_credentials(raw)}
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._has_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data, unless the head of the request is too long."""
        if self._refused:
            return
        if not self._in_body:
            self._watch()
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX + len(data):
                self._refuse(_TOO_LONG)
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The head is complete: stop its timer. Bodies have other limits."""
        self._unwatch()
        self._in_body, self._head_bytes = True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is complete: wait for the head of the next."""
        self._in_body = False
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not keep up: it has a while to read what is sent already."""
        super().pause_writing()
        self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read enough: lift its deadline and send on."""
        super().resume_writing()
        self._has_read()

    def _has_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _refuse(self, answer: bytes) -> None:
        self._refused = True
        self._unwatch()
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._late)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.abort()
