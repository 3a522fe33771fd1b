"""scontrol without a keyword: line after line, until `quit` or the end of the input.

Without a terminal each line is echoed after the prompt, as Slurm's does. Source: scontrol(1).
"""

from __future__ import annotations

import shlex

from spritz.cli.control import verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spritz.cli.control.session import Session

PROMPT = "scontrol: "


def run(session: Session) -> int:
    """The last status that was not 0."""
    terminal = session.context.stdin.isatty()
    if terminal:
        _line_editing()
    last: list[str] = []
    while not session.finished:
        line = _read(session, terminal)
        if line is None:
            session.out("\n")
            break
        words = _words(session, line)
        if words and words[0] == "!!":
            if not last:
                session.say("no previous command")
                continue
            words = last
        if not words:
            continue
        last = words
        status = verbs.call(session, words)
        session.status = status or session.status
    return session.status


def _read(session: Session, terminal: bool) -> str | None:
    if terminal:
        session.context.stdout.flush()
        try:
            return input(PROMPT)
        except EOFError:
            return None
    session.out(PROMPT)
    line = session.context.stdin.readline()
    if not line:
        return None
    session.out(line if line.endswith("\n") else line + "\n")
    return line


def _words(session: Session, line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        session.say(f"{error} in: {line.strip()}")
        session.status = 1
        return []


def _line_editing() -> None:
    try:
        import readline  # noqa: F401 - input() edits lines once it is there
    except ImportError:
        pass


def help_text(session: Session, words: list[str]) -> int:
    """help"""
    from spritz.cli.scontrol import full_help

    session.out(full_help())
    return 0
