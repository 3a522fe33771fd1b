"""Serving with uvicorn, in a process whose signals are its own.

Uses parts of uvicorn that its documentation does not name (`startup`, `capture_signals`, `Config.ssl`), so the extras
bound its version narrowly, and a test holds bound and parts together (tests/unit/house/test_http_stacks.py).
`uvicorn.run` serves where nothing of that is needed.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

#: Requests are parsed by httptools, where uvicorn would take what it finds; and what no server of ours has: uvicorn's
#: own log, words about itself, headers of a proxy, WebSockets.
_OPTIONS: dict[str, Any] = {
    "http": "httptools",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "ws": "none",
}


class Server(uvicorn.Server):
    """`options` are those of `uvicorn.Config`. `on_ready` is called when all sockets are served.

    TLS, which `tls` or the options' certificate asks for, is for addresses of the network; Unix sockets do without.
    """

    def __init__(
        self,
        application: Any,
        *,
        tls: ssl.SSLContext | None = None,
        on_ready: Callable[[], object] | None = None,
        **options: Any,
    ) -> None:
        config = uvicorn.Config(application, **{**_OPTIONS, **options})
        config.load()
        config.ssl = tls or config.ssl
        super().__init__(config)
        self._on_ready = on_ready

    def stop(self) -> None:
        """Let `serve` return, when what was begun is finished. May be called by a handler of a signal."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would handle the process's signals itself."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn would use TLS on Unix sockets too."""
        servers, tls = [], self.config.ssl
        for is_unix in (False, True):
            group = [opened for opened in sockets or () if (opened.family == socket.AF_UNIX) is is_unix]
            if group:
                self.config.ssl = None if is_unix else tls
                await super().startup(sockets=group)
                servers += self.servers
        self.servers = servers
        if self._on_ready is not None:
            self._on_ready()
