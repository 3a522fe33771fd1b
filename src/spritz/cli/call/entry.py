"""From a process to a command's `main`, and back to an exit status.

The one place of the commands that catches everything: errors for people become one line, a closed pipe ends quietly,
Ctrl-C ends as the shell expects.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from spritz.cli.call.context import Context
from spritz.cli.call.options import Fatal
from spritz.model.errors import SpritzError
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, TextIO

    Main = Callable[[list[str], Context], int]


def run(program: str, main: Main) -> None:
    """Run `main` for this process and leave with its status. Skips the interpreter's tear-down, which costs more than
    most commands."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        _tolerate_any_bytes(stream)
    if sys.stdout is None or sys.stderr is None or sys.stdin is None:
        _open_missing_streams()
    context = Context.of_process(program)
    try:
        status = call(main, sys.argv[1:], context)
    except KeyboardInterrupt:
        end_by_interrupt()
    os._exit(status)


def end_by_interrupt() -> NoReturn:
    """End as a program does that leaves SIGINT alone: a shell's loop goes on after an exit status of 130."""
    import signal  # with `enum` and all that it needs, for an exception

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(128 + signal.SIGINT)


def call(main: Main, argv: list[str], context: Context) -> int:
    """`main` with its errors printed; returns the exit status. Flushes both streams.

    Raises KeyboardInterrupt.
    """
    try:
        try:
            status = main(argv, context)
        except SpritzError as error:
            for detail in error.details:
                context.error(detail)
            if isinstance(error, Fatal):
                context.err(f"{context.program}: fatal: {error.message}\n")
            else:
                context.error(error.message)
            if error.hint and _is_for_people(error, context):
                context.info(error.hint)
            status = error.exit_code
        except NotationError as error:
            # Text that some option's language does not have; its message is one line for people.
            context.error(str(error))
            status = 1
        context.stdout.flush()
        context.stderr.flush()
    except BrokenPipeError:
        # The reader is gone (`squeue | head`): what a C program does on SIGPIPE.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        return 141
    except OSError as error:
        # Without a name it is typically a full disk behind standard output, or os.getcwd().
        unnamed = "the current directory" if isinstance(error, FileNotFoundError) else "write error"
        what = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else unnamed
        context.stderr.write(f"{context.program}: error: {what}: {error.strerror}\n")
        context.stderr.flush()
        return 1
    return status


def _is_for_people(error: SpritzError, context: Context) -> bool:
    """Whether to print hints, which Slurm does not have: programs that parse a command's output must not see them.

    Errors about a missing cluster get their hint in logs too, and so do all errors of `spritz`.
    """
    if context.program == "spritz":
        return True
    from spritz.client.errors import ClientError, RemoteError

    return context.stderr.isatty() or (isinstance(error, ClientError) and not isinstance(error, RemoteError))


def _tolerate_any_bytes(stream: TextIO | None) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="surrogateescape")


def _open_missing_streams() -> None:
    """A caller may close 0, 1 or 2; Python then leaves the stream None."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
