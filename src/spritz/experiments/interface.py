"""The terminal as subcommands see it; the command line creates it. How durations and sizes are shown there."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from spritz.experiments.errors import ExperimentError

#: Characters shown before one that is no text.
_NEAR = 20
#: Help for an argument RUN.
RUN_HELP = "name of a run, a prefix of it (the newest matches), or a job number"
#: The same for commands that change nothing of it.
ANY_RUN_HELP = f"{RUN_HELP}; USER/RUN for another user's"


class Terminal(Protocol):
    """Standard output and error, and their properties."""

    def out(self, text: str) -> None: ...

    def err(self, text: str) -> None: ...

    def error(self, text: str) -> None:
        """Print an error with the command's name before it."""


def tell_unfrozen(code: Mapping[str, Any], terminal: Terminal) -> None:
    """Say what the run may import that may change before it starts (`code` of its record)."""
    what = "not recorded" if code.get("in_place") else "not in the snapshot"
    for line in code.get("unfrozen", ()):
        terminal.err(f"spritz: {what}: {line}\n")


Run = Callable[[Namespace, Terminal], int]


def reporting(run: Run) -> Run:
    """Call `run`; print an ExperimentError, or what is no text, and return its exit status. Returns 130 at Ctrl-C."""

    @functools.wraps(run)
    def wrapped(arguments: Namespace, terminal: Terminal) -> int:
        try:
            return run(arguments, terminal)
        except ExperimentError as error:
            terminal.error(error.message)
            if error.hint:
                terminal.err(f"{error.hint}\n")
            return error.exit_code
        except UnicodeEncodeError as error:
            near = error.object[max(0, error.start - _NEAR) : error.end].encode("utf-8", "surrogateescape")
            terminal.error(f"{near!r} is no text in UTF-8")
            return 1
        except KeyboardInterrupt:
            return 130

    return wrapped


def clock(duration: float) -> str:
    """A duration as hours, minutes and seconds."""
    whole = max(0, int(duration))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def size(count: float) -> str:
    """A number of bytes with three digits and a unit of 1,024 (B, K, M, G, T)."""
    for unit in ("B", "K", "M", "G"):
        if count < 1000:
            return f"{count:.3g}{unit}"
        count /= 1024
    return f"{count:.3g}T"
