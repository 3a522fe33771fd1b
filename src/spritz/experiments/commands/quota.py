"""Say in words what limits your jobs have, and what is used of them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from spritz.experiments import quotas, submission
from spritz.experiments.interface import Terminal, reporting


def add_arguments(parser: ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("--user", default="", help="another user's, where you may see them")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0."""
    terminal.out("\n".join(quotas.told(arguments.user or submission.user())) + "\n")
    return 0
