"""Serve this cluster to an agent, over standard input and output (Model Context Protocol).

Tools that change something are there with --allow-actions alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.cli.context import Context


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `spritz mcp`."""
    parser.add_argument(
        "--allow-actions", action="store_true", help="tools that submit, cancel and change jobs, with your own rights"
    )


def run(arguments: Namespace, context: Context) -> int:
    """Serve until standard input ends."""
    try:
        from spritz.agents.server import server
    except ImportError as error:
        raise SpritzError(f"spritz mcp needs {error.name}", hint="pip install 'spritz[mcp]'") from error
    server(actions=arguments.allow_actions).run("stdio")
    return 0
