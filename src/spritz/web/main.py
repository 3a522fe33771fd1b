"""The process that serves the dashboard: `python -m spritz.web.main`. `spritz dashboard` starts it.

--rest ADDRESS   slurmrestd: unix:/path, or http(s)://host:port
--listen ADDRESS host:port (default 127.0.0.1:6860; port 0: any free port)
--directory DIR  directory for its secret and its address (mode 0700)
--link           print a link for a single login, and exit
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spritz.extras import pip_install
from spritz.web.sessions import SHARE_SECONDS, Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.routing import Route

    from spritz.web.app import Site
    from spritz.web.login import Login

_log = logging.getLogger("spritz.web")

#: File in which `--link` and `spritz dashboard` find the running dashboard; its secret; the lock of the process that
#: serves, since two processes would overwrite each other's table of sessions.
STATE_FILE, SECRET_FILE, LOCK_FILE = "dashboard.json", "dashboard.key", "dashboard.lock"

#: Seconds for which a starting dashboard waits for the end of an earlier one.
LOCK_SECONDS = 10.0


def parser() -> ArgumentParser:
    options = ArgumentParser(prog="spritz-dashboard", description="Serve the dashboard.")
    options.add_argument("--rest", default="", help="slurmrestd: unix:/path, or http(s)://host:port")
    options.add_argument("--listen", default="127.0.0.1:6860", help="host:port; port 0: any free port")
    options.add_argument("--any-port", action="store_true", help="use any free port if that of --listen is in use")
    options.add_argument("--directory", default=".", help="directory for its secret and its address")
    options.add_argument("--name", default="Spritz", help="name of the cluster, for titles")
    options.add_argument("--link", action="store_true", help="print a link for a single login, and exit")
    site = options.add_argument_group("for a site")
    site.add_argument(
        "--login", choices=("local", "pam", "oidc", "proxy"), default="local", help="how viewers authenticate"
    )
    site.add_argument(
        "--host", action="append", default=[], metavar="NAME", help="host name that browsers use (repeatable)"
    )
    site.add_argument(
        "--tls-cert", default="", metavar="FILE", help="serve HTTPS with this certificate and its chain (PEM)"
    )
    site.add_argument("--tls-key", default="", metavar="FILE", help="key of the certificate (PEM)")
    site.add_argument("--behind-tls", action="store_true", help="a proxy in front of the dashboard terminates HTTPS")
    site.add_argument(
        "--token-command",
        default="scontrol token username={user} lifespan={seconds}",
        metavar="COMMAND",
        help="command that prints SLURM_JWT=… for a viewer (default: %(default)s, for SlurmUser and root)",
    )
    site.add_argument(
        "--pam-service", default="login", metavar="NAME", help="service in /etc/pam.d (default: %(default)s)"
    )
    site.add_argument("--proxy-header", default="X-Remote-User", metavar="NAME", help="header with the user's name")
    site.add_argument(
        "--proxy-from",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address or network of a proxy in front, whose X-Forwarded-For names the client (repeatable)",
    )
    site.add_argument(
        "--share-hours",
        type=float,
        default=SHARE_SECONDS / 3600,
        metavar="HOURS",
        help="lifetime of shared links; 0: none can be made (default: %(default)g)",
    )
    site.add_argument("--oidc-issuer", default="", metavar="URL", help="address of the identity provider")
    site.add_argument("--oidc-client", default="", metavar="ID", help="client id of the dashboard at the provider")
    site.add_argument("--oidc-secret", default="", metavar="FILE", help="file with the client's secret, if it has one")
    site.add_argument("--oidc-claim", default="preferred_username", metavar="NAME", help="claim with the user's name")
    return options


def main(argv: list[str]) -> int:
    """Serve until a signal stops the process. Returns the exit code."""
    arguments = parser().parse_args(argv)
    directory = Path(arguments.directory)
    if arguments.link:
        return _print_link(directory)
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        with _locked(directory):
            return asyncio.run(_serve(arguments, directory))
    except (OSError, ValueError) as error:
        name = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        sys.stderr.write(f"spritz-dashboard: {name}{getattr(error, 'strerror', None) or error}\n")
        return 1
    except ImportError as error:
        sys.stderr.write(f"spritz-dashboard: {error.name} is not installed\n  hint: {pip_install('dashboard')}\n")
        return 1


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of the directory. Raises OSError, and ValueError if another dashboard holds it."""
    until = time.monotonic() + LOCK_SECONDS
    with os.fdopen(os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ValueError(f"{directory}: another dashboard serves from this directory") from None
                time.sleep(0.1)
        yield


def routes(site: Site) -> list[Route]:
    """All routes of the dashboard, but for static files."""
    from spritz.web import actions, entry, pages, run_pages

    return [route for module in (entry, pages, run_pages, actions) for route in module.routes(site)]


def _print_link(directory: Path) -> int:
    try:
        state = json.loads((directory / STATE_FILE).read_text())
        secret = Secret.of_file(directory / SECRET_FILE)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"spritz-dashboard: no dashboard runs for {directory}: {error}\n")
        return 1
    sys.stdout.write(f"{state['url']}/login?link={secret.link()}\n")
    return 0


async def _serve(arguments: Namespace, directory: Path) -> int:
    from spritz.http.serving import Server
    from spritz.web.app import Settings, Site, application

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    host, _, port = arguments.listen.rpartition(":")
    try:
        listener = _listener(host or "127.0.0.1", int(port))
    except OSError:
        if not arguments.any_port:
            raise
        listener = _listener(host or "127.0.0.1", 0)
    secure = bool(arguments.tls_cert) or arguments.behind_tls
    settings = Settings(
        rest=arguments.rest,
        hosts=Settings(rest="").hosts | frozenset(map(str.lower, arguments.host)),
        secure=secure,
        own_files=arguments.login == "local",
        cluster=arguments.name,
        proxies=tuple(ipaddress.ip_network(address) for address in arguments.proxy_from),
        share_seconds=max(0.0, arguments.share_hours * 3600),
    )
    _warn_of_plain_text(arguments, host, secure=secure)
    secret = Secret.of_file(directory / SECRET_FILE)
    site = Site(settings, secret, _login(arguments, secret), directory)
    scheme = "https" if arguments.tls_cert else "http"
    url = f"{scheme}://{host or '127.0.0.1'}:{listener.getsockname()[1]}"
    server = Server(
        application(site, routes(site)),
        ssl_certfile=arguments.tls_cert or None,
        ssl_keyfile=arguments.tls_key or None,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
    )
    loop = asyncio.get_running_loop()

    def stop() -> None:
        site.stopping.set()
        server.stop()

    site.stop = stop
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    # Renamed when it is whole: `spritz dashboard` reads it as soon as it is there.
    state, written = directory / STATE_FILE, directory / f"{STATE_FILE}.new"
    written.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    written.replace(state)
    try:
        await server.serve([listener])
    finally:
        state.unlink(missing_ok=True)
    return 1 if site.failed else 0


def _warn_of_plain_text(arguments: Namespace, host: str, *, secure: bool) -> None:
    """Warn if secrets cross a network unencrypted."""
    if arguments.login == "local":
        return
    if not secure and not _is_local(host or "127.0.0.1"):
        secrets = "passwords and cookies" if arguments.login == "pam" else "cookies"
        _log.warning(
            "connection.unencrypted others on the network can read %s: give --tls-cert and --tls-key, or --behind-tls",
            secrets,
        )
    slurmrestd = urlsplit(arguments.rest)
    if slurmrestd.scheme == "http" and not _is_local(slurmrestd.hostname or ""):
        _log.warning(
            "connection.unencrypted others on the network can read viewers' tokens on the way to %s: serve slurmrestd"
            " with --tls-cert, and use https://",
            arguments.rest,
        )


def _is_local(host: str) -> bool:
    return host.strip("[]") in ("localhost", "::1") or host.startswith("127.")


def _login(arguments: Namespace, secret: Secret) -> Login:
    """The authentication that the options choose. Raises OSError, ValueError, ImportError."""
    from spritz.web.login import Login, OidcLogin, PamLogin, Provider, ProxyLogin

    if arguments.login == "pam":
        return PamLogin(arguments.token_command, arguments.pam_service)
    if arguments.login == "proxy":
        if not arguments.proxy_from:
            raise ValueError("--login proxy needs --proxy-from, the proxy's address")
        return ProxyLogin(arguments.token_command, arguments.proxy_header, tuple(arguments.proxy_from), secret)
    if arguments.login == "oidc":
        if not arguments.oidc_issuer or not arguments.oidc_client:
            raise ValueError("--login oidc needs --oidc-issuer and --oidc-client")
        client_secret = Path(arguments.oidc_secret).read_text().strip() if arguments.oidc_secret else ""
        provider = Provider(
            issuer=arguments.oidc_issuer,
            client_id=arguments.oidc_client,
            client_secret=client_secret,
            claim=arguments.oidc_claim,
        )
        return OidcLogin(arguments.token_command, provider, secret)
    return Login()


def _listener(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host.strip("[]"), port))
    made.listen(1024)
    return made


def command() -> None:
    """Entry point of the console script."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    command()
