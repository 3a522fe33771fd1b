"""-i, -o and -e of a step: the files that srun opens, and those that supervisors open.

As in Slurm, a name with `%t`, `%n` or `%N` means files on the nodes, one for each task or node. srun itself opens any
other file, and adds the labels. Source: srun(1) IO REDIRECTION.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.notation import filename, octets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.cli.submit.values import Values

_REMOTE = frozenset("tnN")


class Streams:
    """`remote_*` go into the StepSpec ("": through the client). `*_file`: patterns of files that the client opens."""

    def __init__(self, options: Values) -> None:
        self.remote_stdout, self.stdout_file = _output(options.get("output", ""))
        error = options.get("error", "")
        self.remote_stderr, self.stderr_file = _output(error)
        #: standard error follows standard output
        self.joined = not error
        if self.joined:
            self.remote_stderr = self.remote_stdout
        elif not self.remote_stderr:
            # "" would send errors to the files of standard output.
            self.remote_stderr = "all"
        self.remote_stdin, self.stdin_file, self.stdin_task = _input(options.get("input", ""))
        self.append = options.get("open-mode", "")[:1] == "a"

    @property
    def reads_own(self) -> bool:
        """Whether tasks read srun's standard input."""
        return not self.remote_stdin or self.remote_stdin.isdecimal()


def _output(mode: str) -> tuple[str, str]:
    """(mode for the supervisors, pattern of the client's file)."""
    if mode in ("", "all"):
        return "", ""
    if mode == "none" or mode.isdecimal():
        return mode, ""
    if filename.letters(mode) & _REMOTE:
        return mode, ""
    return "", mode


def _input(mode: str) -> tuple[str, str, int | None]:
    """(mode for the supervisors, pattern of the client's file, rank of the only task that reads or None)."""
    if mode in ("", "all"):
        return "", "", None
    if mode == "none":
        return "none", "", None
    if mode.isdecimal():
        return mode, "", int(mode)
    if filename.letters(mode) & _REMOTE:
        return mode, "", None
    return "", mode, None


def open_output(pattern: str, values: Mapping[str, str | int], *, stream: str, append: bool, cwd: str) -> int:
    """Open an output file of the client; return its descriptor. Raises SpritzError in srun's words."""
    path = os.path.join(cwd, octets.restored(filename.expand(pattern, values)))
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND | (0 if append else os.O_TRUNC)
    try:
        return os.open(path, flags, 0o666)
    except (OSError, ValueError) as error:
        raise SpritzError(f"Could not open {stream} file: {reason(error)}", hint=path) from error


def open_input(pattern: str, values: Mapping[str, str | int], *, cwd: str) -> int:
    """Open the file that all tasks read; return its descriptor. Raises SpritzError."""
    path = os.path.join(cwd, octets.restored(filename.expand(pattern, values)))
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise SpritzError(f"Could not open stdin file: {reason(error)}", hint=path) from error


def reason(error: OSError | ValueError) -> str:
    """The system's message, such as `No such file or directory`."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
