"""The common part of the daemons' commands: help and version, error texts, exit status.

Source: slurmctld(8), slurmd(8), slurmdbd(8): -h, -V; `fatal:` before an error that ends a daemon.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Protocol, TypeVar

from spritz import SLURM_VERSION
from spritz.extras import missing, pip_install
from spritz.model.errors import SpritzError


class ParsedOptions(Protocol):
    """The options that every daemon's parser returns."""

    @property
    def help(self) -> bool: ...
    @property
    def version(self) -> bool: ...


Options = TypeVar("Options", bound=ParsedOptions)


def run_daemon(
    name: str, argv: list[str], parse: Callable[[list[str]], Options], usage: str, start: Callable[[Options], int]
) -> int:
    """The exit status: of `start`, or after printing help, the version or an error."""
    try:
        options = parse(argv)
        if options.help:
            sys.stdout.write(usage)
            return 0
        if options.version:
            sys.stdout.write(f"slurm {SLURM_VERSION}\n")
            return 0
        _name_process(name)
        return start(options)
    except SpritzError as error:
        sys.stderr.writelines(f"{line}\n" for line in error_lines(name, error))
        return error.exit_code
    except KeyboardInterrupt:  # before the daemon handles the signal itself
        return 130


def require(what: str, extra: str) -> None:
    """Raises SpritzError, with the command that helps, if packages of this extra are missing. `what` needs them."""
    if lacks := missing(extra):
        raise SpritzError(f"{what} needs {lacks}, not installed here", hint=pip_install(extra))


def error_lines(name: str, error: SpritzError) -> list[str]:
    """The lines that a daemon prints before it ends with an error: the message, and the hint if there is one."""
    lines = [f"{name}: fatal: {line}" for line in error.message.splitlines() or [""]]
    return [*lines, f"{name}: {error.hint}"] if error.hint else lines


def _name_process(name: str) -> None:
    """Set the name that ps, top and `pgrep -x` show."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)
