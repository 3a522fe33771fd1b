"""List a run's checkpoints, newest first, or prune them by policy; the newest is never removed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from spritz.experiments.interface import Terminal, reporting


def add_arguments(parser: ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("run", metavar="RUN")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0."""
    return 0
