"""-i, -o and -e of a step: the files that srun opens, and those that supervisors open.

As in Slurm, a name with `%t`, `%n` or `%N` means files on the nodes, one for each task or node. srun itself opens any
other file, and adds the labels. Source: srun(1) IO REDIRECTION.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.notation import filename, octets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spritz.cli.jobs.submit.values import Values

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


def open_output(
    pattern: str,
    values: Mapping[str, str | int],
    *,
    stream: str,
    append: bool,
    cwd: str,
    await_reader: Callable[[], bool],
) -> int:
    """Open an output file of the client; return its descriptor. Raises SpritzError in srun's words.

    `await_reader` is called again and again while a FIFO has no reader. If it returns False, output is dropped.
    """
    path = os.path.join(cwd, octets.restored(filename.expand(pattern, values)))
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND | (0 if append else os.O_TRUNC)
    try:
        if not _is_fifo(path):
            return os.open(path, flags, 0o666)
        while (descriptor := _open_fifo(path, os.O_WRONLY)) is None:
            if not await_reader():
                return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return descriptor
    except (OSError, ValueError) as error:
        raise SpritzError(f"Could not open {stream} file: {reason(error)}", hint=path) from error


def open_input(pattern: str, values: Mapping[str, str | int], *, cwd: str) -> int:
    """Open the file that all tasks read; return its descriptor. Raises SpritzError."""
    path = os.path.join(cwd, octets.restored(filename.expand(pattern, values)))
    try:
        # A FIFO is readable once it had a writer, so nothing has to wait for one here.
        descriptor = _open_fifo(path, os.O_RDONLY) if _is_fifo(path) else None
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
    except (OSError, ValueError) as error:
        raise SpritzError(f"Could not open stdin file: {reason(error)}", hint=path) from error


def _is_fifo(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False  # opening it will report the error


def _open_fifo(path: str, mode: int) -> int | None:
    """A FIFO's descriptor; None if it has no reader. open(2) would wait for the other end, and srun ignore Ctrl-C."""
    try:
        descriptor = os.open(path, mode | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise
    os.set_blocking(descriptor, True)
    return descriptor


def reason(error: OSError | ValueError) -> str:
    """The system's message, such as `No such file or directory`."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
