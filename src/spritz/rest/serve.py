"""The serving process: sockets, TLS, uvicorn, and an orderly shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import stat
from typing import TYPE_CHECKING

from spritz.http.serving import Server
from spritz.model.errors import SpritzError
from spritz.rest import protocol
from spritz.rest.app import Settings, application
from spritz.rest.daemons import Daemons
from spritz.rest.events import Events, event_routes
from spritz.rest.external import external_routes
from spritz.rest.health import health_routes
from spritz.rest.joining import joining_routes
from spritz.rest.picture import picture_routes
from spritz.runtime.clock import SystemClock
from spritz.runtime.tasks import END_SECONDS, Supervisor

if TYPE_CHECKING:
    from spritz.client.trust.membership import Membership
    from spritz.rest.options import Options
    from spritz.runtime.log import Logger

#: Seconds for unfinished requests when the daemon stops.
STOP_SECONDS = 5

#: Backlog: most connections that the kernel queues until they are accepted.
_BACKLOG = 1024


def bind(addresses: tuple[str, ...]) -> list[socket.socket]:
    """Sockets for `[host]:port` and `unix:/path`. Raises SpritzError naming the address."""
    sockets: list[socket.socket] = []
    for address in addresses:
        try:
            sockets += _unix(address[5:]) if address.startswith("unix:") else _tcp(address)
        except (OSError, ValueError) as error:
            for opened in sockets:
                opened.close()
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise SpritzError(f"cannot listen on {address}: {reason}") from error
    return sockets


def _unix(path: str) -> list[socket.socket]:
    if not path.startswith("/"):
        raise ValueError("the path of a Unix socket must be absolute")
    if os.path.exists(path):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ValueError("the path exists and is not a socket")
        probe = socket.socket(socket.AF_UNIX)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)  # left by a process that has ended
        else:
            raise ValueError("another process listens on this path")
        finally:
            probe.close()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    # The peer's identity decides what is permitted, not access to the socket.
    os.chmod(path, 0o666)
    return [listener]


def _tcp(address: str) -> list[socket.socket]:
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal():
        raise ValueError("expected [host]:port or unix:/path")
    sockets = []
    known = socket.getaddrinfo(host or None, int(port), 0, socket.SOCK_STREAM, 0, socket.AI_PASSIVE)
    for family, kind, number, _, place in known:
        listener = socket.socket(family, kind, number)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(place)
        sockets.append(listener)
    return sockets


def _leaves_machine(address: str) -> bool:
    """Whether connections to this address may come over a network."""
    host = address.rpartition(":")[0].strip("[]")
    return not address.startswith("unix:") and host not in ("localhost", "::1") and not host.startswith("127.")


def check_tls(certificate: str, key: str) -> None:
    """Raises SpritzError unless the files are a certificate and its key."""
    if not certificate and not key:
        return
    if not certificate or not key:
        raise SpritzError("--tls-cert and --tls-key must be used together")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise SpritzError(f"--tls-cert {certificate}, --tls-key {key}: {error.strerror or error}") from error


async def serve(
    options: Options, path: str, sockets: list[socket.socket], log: Logger, membership: Membership | None = None
) -> int:
    """Serve until a signal stops the process. Returns the exit status."""
    protocol.connections_max = options.connections
    settings = Settings(authentication=options.authentication, versions=options.versions, plugins=options.plugins)
    async with Supervisor(
        lambda name, error: log.error("task.failed", exception=error, task=name), end_seconds=END_SECONDS
    ) as tasks:
        clock = SystemClock()
        daemons = Daemons(path, log, tasks, clock, membership)
        events = Events(daemons, clock, log, tasks)
        routes = [
            *health_routes(daemons, clock),
            *event_routes(events, settings.authentication),
            *external_routes(daemons, settings.authentication),
            *joining_routes(daemons, settings.authentication),
            *picture_routes(daemons, settings.authentication, log),
        ]
        app = application(daemons, settings, clock, log, routes=routes)
        server = Server(
            app,
            http=protocol.Protocol,
            lifespan="off",
            backlog=_BACKLOG,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=STOP_SECONDS,
            ssl_certfile=options.tls_cert or None,
            ssl_keyfile=options.tls_key or None,
            on_ready=lambda: log.info("daemon.started", addresses=",".join(options.addresses)),
        )
        if open_addresses := [] if options.tls_cert else [name for name in options.addresses if _leaves_machine(name)]:
            log.warning(
                "tokens.unencrypted",
                addresses=",".join(open_addresses),
                hint="others on the network can read tokens: give --tls-cert and --tls-key, or a proxy with HTTPS and "
                "an address of this machine alone",
            )
        loop = asyncio.get_running_loop()

        def stop() -> None:
            server.stop()
            events.close()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        try:
            await server.serve(sockets)
        finally:
            daemons.close()
            tasks.cancel_all()
    for address in options.addresses:
        if address.startswith("unix:"):
            try:
                os.unlink(address[5:])
            except OSError:
                pass
    log.info("daemon.stopped")
    return 0
