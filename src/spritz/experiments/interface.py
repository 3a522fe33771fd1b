"""What subcommands need of the terminal; the command line hands it over."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable
from typing import Protocol

from spritz.experiments.errors import ExperimentError


class Terminal(Protocol):
    """Standard output and error."""

    def out(self, text: str) -> None:
        """Print to standard output."""

    def err(self, text: str) -> None:
        """Print to standard error."""

    def error(self, text: str) -> None:
        """Print an error with the command's name before it."""


Run = Callable[[Namespace, Terminal], int]


def reporting(run: Run) -> Run:
    """`run` with errors told in words and an exit status; Ctrl-C is 130."""

    @functools.wraps(run)
    def wrapped(arguments: Namespace, terminal: Terminal) -> int:
        try:
            return run(arguments, terminal)
        except ExperimentError as error:
            terminal.error(error.message)
            if error.hint:
                terminal.err(f"{error.hint}\n")
            return error.exit_code
        except KeyboardInterrupt:
            return 130

    return wrapped
