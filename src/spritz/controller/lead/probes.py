"""Answers health checks of a controller that stands by, on its port: /livez, /readyz and /healthz.

The leader's are in `controller.metrics`. A controller that stands by is ready, so that updates of pods go on past it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.wire.frames import is_http

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.client.channel.channel import Channel
    from spritz.client.channel.server import Server


def answer_probes(server: Server, problem: Callable[[], str]) -> None:
    """`problem()`: why this controller could not take over; "" if it could."""

    def take(channel: Channel, data: bytes) -> bool:
        if not is_http(data):
            return False
        path = data.split(b" ", 2)[1:2]
        status, text = b"404 Not Found", "this controller stands by\n"
        if path == [b"/livez"] or (path in ([b"/readyz"], [b"/healthz"]) and not problem()):
            status = b"200 OK"
        elif path in ([b"/readyz"], [b"/healthz"]):
            status, text = b"503 Service Unavailable", f"{problem()}\n"
        body = text.encode()
        head = b"HTTP/1.1 %b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n" % (status, len(body))
        channel.pipe.send(head + b"Connection: close\r\n\r\n" + body)
        channel.pipe.close_slowly()
        return True

    server.otherwise_spoken = take
