"""Commands from standard input, one a line: what scontrol, sacctmgr and sreport do without arguments.

Source: what 22.05 does with GNU readline: where input is not a terminal, lines are echoed after the prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.cli.call.context import Context


def read_line(context: Context, prompt: str) -> str | None:
    """The next line; None at the end."""
    if context.stdin.isatty():
        _line_editing()
        context.stdout.flush()
        try:
            return input(prompt)
        except EOFError:
            context.out("\n")
            return None
    context.out(prompt)
    line = context.stdin.readline()
    context.out(line if line.endswith("\n") else line + "\n")
    return line or None


def _line_editing() -> None:
    try:
        import readline  # noqa: F401 - input() edits lines once it is there
    except ImportError:
        pass
