"""scontrol without a keyword: line after line, until `quit` or the end of the input.

Without a terminal each line is echoed after the prompt, as Slurm's does. Source: scontrol(1).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from spritz.cli.administration.control import verbs
from spritz.cli.call.prompt import read_line

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session

PROMPT = "scontrol: "


def run(session: Session) -> int:
    """The last status that was not 0."""
    last: list[str] = []
    while not session.finished:
        line = read_line(session.context, PROMPT)
        if line is None:
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


def _words(session: Session, line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        session.say(f"{error} in: {line.strip()}")
        session.status = 1
        return []
