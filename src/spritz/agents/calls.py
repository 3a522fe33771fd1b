"""Commands run as the user, their refusals in Slurm's words, and arguments that can be nothing but what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from spritz.live import commands

#: Rows of one answer, at most.
ROWS_MAX = 200
#: Characters of one text, at most.
TEXT_MAX = 60_000

_JOB = re.compile(r"[0-9]{1,10}(?:_(?:[0-9]{1,10}|\[[0-9,%:-]{1,4000}\])|\+[0-9]{1,6})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][\w.@+:/=\[\],-]{0,200}", re.ASCII)


class Refused(Exception):
    """What an agent is told in place of an answer."""


def job_id(text: str) -> str:
    """A job as commands take it: `7`, `12_3`, `12_[4-9]`, `9+1`. Raises Refused."""
    if not _JOB.fullmatch(text):
        raise Refused(f"Invalid job id specified: {text[:60]!r} (7, 12_3, 12_[4-9] and 9+1 are job ids)")
    return text


def name(text: str, what: str) -> str:
    """A word that is no option. Raises Refused."""
    if not _NAME.fullmatch(text):
        raise Refused(f"{what}: {text[:60]!r} is not a name")
    return text


def rows(limit: int) -> int:
    """A limit that is kept. Raises Refused."""
    if limit < 1:
        raise Refused("limit: at least 1")
    return min(limit, ROWS_MAX)


def start(cursor: str) -> int:
    """Where a page begins. Raises Refused."""
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise Refused("cursor: give back next_cursor as it came")
    return int(cursor or 0)


def page(found: Sequence[Any], limit: int, cursor: str, of: str) -> dict[str, Any]:
    """A piece of a list, how many there are, and what asks for the next piece ("" at the end)."""
    first, count = start(cursor), rows(limit)
    piece = list(found[first : first + count])
    following = first + len(piece)
    return {of: piece, "total": len(found), "next_cursor": str(following) if following < len(found) else ""}


def text(value: str) -> str:
    """No more than an agent can read."""
    return value if len(value) <= TEXT_MAX else value[:TEXT_MAX] + f"\n… ({len(value) - TEXT_MAX} more characters)"


class CommandRunner:
    """Runs commands for one cluster."""

    def __init__(self, conf: str | None) -> None:
        self.conf = conf

    def run(self, *words: str, stdin: str = "", cwd: str | None = None, seconds: float = 60.0) -> str:
        """What a command prints. Raises Refused with its complaint."""
        done = commands.run(words, conf=self.conf, stdin=stdin, cwd=cwd, seconds=seconds)
        if done.status:
            raise Refused(done.complaint)
        return done.out

    def json(self, *words: str) -> Any:
        """What a command prints as JSON."""
        out = self.run(*words)
        try:
            return json.loads(out)
        except ValueError as error:
            raise Refused(f"{words[0]} printed no JSON: {out[:200]!r}") from error
