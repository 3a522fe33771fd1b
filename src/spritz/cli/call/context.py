"""The environment of a command's call: everything that `main` may use apart from its arguments.

A context is made from a process (`Context.of_process`), or by a test or the command server with other streams.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO


class Context:
    """One call of a command.

    `program` is the name that error messages start with (`squeue`). Text streams decode with `surrogateescape`, so
    that names which are not UTF-8 survive.
    """

    __slots__ = ("cwd", "environ", "launcher", "program", "stderr", "stdin", "stdout")

    def __init__(
        self,
        program: str,
        environ: Mapping[str, str],
        cwd: str,
        stdin: TextIO,
        stdout: TextIO,
        stderr: TextIO,
        launcher: int = 0,
    ) -> None:
        self.program = program
        self.environ = environ
        self.cwd = cwd
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        #: process id of the launcher that a child of the command server works for; else 0
        self.launcher = launcher

    @classmethod
    def of_process(cls, program: str) -> Context:
        """The running process's own streams, environment and directory ("/" if that has been removed)."""
        try:
            cwd = os.getcwd()
        except OSError:
            cwd = os.environ.get("PWD", "/")
        _undo_coerced_locale()
        return cls(program, os.environ, cwd, sys.stdin, sys.stdout, sys.stderr)

    def out(self, text: str) -> None:
        """Write to standard output, to a terminal without control characters; the caller adds newlines."""
        self.stdout.write(_written(text, self.stdout))

    def err(self, text: str) -> None:
        """Write to standard error as `out` does, at once and after pending standard output."""
        self.stdout.flush()
        self.stderr.write(_written(text, self.stderr))
        self.stderr.flush()

    def error(self, message: str) -> None:
        """`squeue: error: message`, the form that scripts match."""
        self.err(f"{self.program}: error: {message}\n")

    def warn(self, message: str) -> None:
        """Print `PROGRAM: warning: MESSAGE` to standard error."""
        self.err(f"{self.program}: warning: {message}\n")

    def info(self, message: str) -> None:
        """Print `PROGRAM: MESSAGE` to standard error."""
        self.err(f"{self.program}: {message}\n")

    @property
    def pid(self) -> int:
        """The process that the command's caller sees."""
        return self.launcher or os.getpid()

    @property
    def session(self) -> int:
        """The session that the command was called in; 0 if the launcher has gone meanwhile."""
        try:
            return os.getsid(self.launcher)
        except ProcessLookupError:
            return 0

    @property
    def terminal(self) -> bool:
        """Standard output is a terminal: colour and progress are welcome (unless NO_COLOR)."""
        return self.stdout.isatty() and "NO_COLOR" not in self.environ


#: Control characters but for tab and newline, of one byte too (in Python's form of text that is not UTF-8), as `?`.
#: Without the escape, which begins colours.
_CONTROLS = dict.fromkeys({*range(32), *range(0x7F, 0xA0), *range(0xDC80, 0xDCA0)} - {0x09, 0x0A, 0x1B}, "?")
#: The codes behind the escape in the colours that commands use.
_COLOURS = ("[0m", "[1m", "[2m", "[31m", "[32m", "[33m")


def _written(text: str, stream: TextIO) -> str:
    # Records hold text that is not UTF-8 in another form.
    if not text.isascii():
        from spritz.notation.octets import restored

        text = restored(text)
    if not stream.isatty():
        return text
    # Differs: Slurm writes the names and comments that users gave to their jobs to a terminal as they are, so that a
    # user can retitle an administrator's window, clear it, or have it answer.
    first, *others = text.split("\x1b")
    text = first + "".join(("\x1b" if other.startswith(_COLOURS) else "?") + other for other in others)
    return text.translate(_CONTROLS)


def _undo_coerced_locale() -> None:
    """Python sets LC_CTYPE where the locale is C (PEP 538); the user did not, and no job is to see it."""
    if os.environ.get("LC_CTYPE", "") not in ("C.UTF-8", "C.utf8", "UTF-8"):
        return
    try:
        with open("/proc/self/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return
    if not environment.startswith(b"LC_CTYPE=") and b"\0LC_CTYPE=" not in environment:
        del os.environ["LC_CTYPE"]
