"""The process that serves the dashboard: `python -m spritz.web.main`. `spritz dashboard` starts it.

--rest ADDRESS   slurmrestd: unix:/path, or http(s)://host:port
--listen ADDRESS host:port (default 127.0.0.1:6860; port 0: any free port)
--directory DIR  directory for its secret and its address (mode 0700)
--link           print a link for a single login, and exit
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from spritz.web.sessions import Secret

if TYPE_CHECKING:
    from spritz.web.login import Login

#: File in which `--link` and `spritz dashboard` find the running dashboard.
STATE_FILE, SECRET_FILE = "dashboard.json", "dashboard.key"


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
        "--proxy-from", action="append", default=[], metavar="ADDRESS", help="address or network of the proxy"
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
        return asyncio.run(_serve(arguments, directory))
    except (OSError, ValueError) as error:
        name = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        sys.stderr.write(f"spritz-dashboard: {name}{getattr(error, 'strerror', None) or error}\n")
        return 1
    except ImportError as error:
        sys.stderr.write(f"spritz-dashboard: {error.name} is not installed\n  hint: pip install 'spritz[dashboard]'\n")
        return 1


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
    import uvicorn

    from spritz.web import actions, entry, pages, run_pages
    from spritz.web.app import Settings, Site, application

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
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
        hosts=Settings(rest="").hosts | frozenset(arguments.host),
        secure=secure,
        own_files=arguments.login == "local",
        cluster=arguments.name,
    )
    secret = Secret.of_file(directory / SECRET_FILE)
    site = Site(settings, secret, _login(arguments, secret), directory)
    scheme = "https" if arguments.tls_cert else "http"
    url = f"{scheme}://{host or '127.0.0.1'}:{listener.getsockname()[1]}"
    routes = [route for module in (entry, pages, run_pages, actions) for route in module.routes(site)]
    config = uvicorn.Config(
        application(site, routes),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        ssl_certfile=arguments.tls_cert or None,
        ssl_keyfile=arguments.tls_key or None,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
    )
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        site.stopping.set()
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    # Renamed when it is whole: `spritz dashboard` reads it as soon as it is there.
    state, written = directory / STATE_FILE, directory / f"{STATE_FILE}.new"
    written.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    written.replace(state)
    try:
        await server._serve([listener])
    finally:
        state.unlink(missing_ok=True)
    return 0


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
