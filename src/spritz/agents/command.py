"""An MCP server for AI agents, on standard input and output, or over HTTP on a loopback port with a token.

Without --allow-actions it only reads. It always runs with your privileges.
"""

from __future__ import annotations

import hmac
import os
import secrets
from typing import TYPE_CHECKING, Any

from spritz.extras import pip_install

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.cli.call.context import Context

#: Environment variable with the token for HTTP.
TOKEN_VARIABLE = "SPRITZ_MCP_TOKEN"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster (default: the one that commands find)")
    parser.add_argument(
        "--allow-actions", action="store_true", help="also offer tools that submit, cancel and change jobs"
    )
    parser.add_argument(
        "--listen", type=int, metavar="PORT", help="serve streamable HTTP on 127.0.0.1:PORT to clients with the token"
    )


def run(arguments: Namespace, context: Context) -> int:
    """Serve until the agent disconnects; 0 then."""
    conf = None
    if arguments.dir:
        place = os.path.join(context.cwd, os.path.expanduser(arguments.dir))
        conf = os.path.join(os.path.abspath(place), "etc", "slurm.conf")
    try:
        from spritz.agents.server import make_server
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in ("mcp", "mcp_types", "pydantic"):
            context.error(f"spritz mcp needs the package mcp, which is not installed: {pip_install('mcp')}")
            return 1
        raise
    server = make_server(conf, allow_actions=arguments.allow_actions)
    try:
        if arguments.listen is None:
            server.run("stdio")
        else:
            return _http(server, arguments.listen, context)
    except KeyboardInterrupt:
        pass
    return 0


def _http(server: Any, port: int, context: Context) -> int:
    """Serve over HTTP. Each request must have the token, because any local user can reach a loopback port."""
    import uvicorn

    token = context.environ.get(TOKEN_VARIABLE, "")
    if not token:
        token = secrets.token_urlsafe(24)
        context.err(f"Authorization: Bearer {token}\n")
    elif len(token) < 16:
        context.error(f"{TOKEN_VARIABLE}: at least 16 characters")
        return 1
    application = server.streamable_http_app()
    expected = b"Bearer " + token.encode()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            authorization = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(authorization, expected):
                head = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
                await send({"type": "http.response.start", "status": 401, "headers": head})
                await send({"type": "http.response.body", "body": b"a token is needed\n"})
                return
        await application(scope, receive, send)

    context.err(f"http://127.0.0.1:{port}/mcp\n")
    uvicorn.run(guarded, host="127.0.0.1", port=port, log_level="warning")
    return 0
