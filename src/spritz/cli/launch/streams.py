"""-i, -o and -e of a step: which files are srun's own, and which the supervisors open.

As in Slurm: a name with `%t`, `%n` or `%N` is a file on the nodes, one a task or node; any other file is srun's, which
puts the labels. Source: srun(1) IO REDIRECTION.
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
    """`remote_*` go into the StepSpec ("": through the client). `*_file` are patterns of the client's own files."""

    def __init__(self, given: Values) -> None:
        self.remote_stdout, self.stdout_file = _output(given.get("output", ""))
        error = given.get("error", "")
        self.remote_stderr, self.stderr_file = _output(error)
        #: standard error has no place of its own
        self.joined = not error
        if self.joined:
            self.remote_stderr = self.remote_stdout
        elif not self.remote_stderr:
            # "" would follow standard output to its files.
            self.remote_stderr = "all"
        self.remote_stdin, self.stdin_file, self.stdin_task = _input(given.get("input", ""))
        self.append = given.get("open-mode", "")[:1] == "a"

    @property
    def reads_own(self) -> bool:
        """Tasks read what srun reads."""
        return not self.remote_stdin or self.remote_stdin.isdigit()


def _output(mode: str) -> tuple[str, str]:
    """(for the supervisors, own file)."""
    if mode in ("", "all"):
        return "", ""
    if mode == "none" or mode.isdigit():
        return mode, ""
    if filename.letters(mode) & _REMOTE:
        return mode, ""
    return "", mode


def _input(mode: str) -> tuple[str, str, int | None]:
    """(for the supervisors, own file, the one task that reads)."""
    if mode in ("", "all"):
        return "", "", None
    if mode == "none":
        return "none", "", None
    if mode.isdigit():
        return mode, "", int(mode)
    if filename.letters(mode) & _REMOTE:
        return mode, "", None
    return "", mode, None


def open_output(pattern: str, values: Mapping[str, str | int], *, stream: str, append: bool, cwd: str) -> int:
    """Descriptor of a file of the client's own. Raises SpritzError in srun's words."""
    path = os.path.join(cwd, octets.restored(filename.expand(pattern, values)))
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND | (0 if append else os.O_TRUNC)
    try:
        return os.open(path, flags, 0o666)
    except (OSError, ValueError) as error:
        raise SpritzError(f"Could not open {stream} file: {reason(error)}", hint=path) from error


def open_input(pattern: str, values: Mapping[str, str | int], *, cwd: str) -> int:
    """Descriptor of the file that all tasks read. Raises SpritzError."""
    path = os.path.join(cwd, octets.restored(filename.expand(pattern, values)))
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise SpritzError(f"Could not open stdin file: {reason(error)}", hint=path) from error


def reason(error: OSError | ValueError) -> str:
    """`No such file or directory`."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
