"""Run commands as the user, pass on refusals in Slurm's words, and check arguments so that none can be an option."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from spritz.live import commands

#: Most rows in an answer.
ROWS_MAX = 200
#: Most characters in a text.
TEXT_MAX = 60_000

_JOB = re.compile(r"[0-9]{1,10}(?:_(?:[0-9]{1,10}|\[[0-9,%:-]{1,4000}\])|\+[0-9]{1,6})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][\w.@+:/=\[\],-]{0,200}", re.ASCII)


class Refused(Exception):
    """A refusal, whose message the agent gets instead of an answer."""


def job_id(text: str) -> str:
    """Check a job id: `7`, `12_3`, `12_[4-9]`, `9+1`. Raises Refused."""
    if not _JOB.fullmatch(text):
        raise Refused(f"Invalid job id specified: {text[:60]!r} (7, 12_3, 12_[4-9] and 9+1 are job ids)")
    return text


def name(text: str, what: str) -> str:
    """Check a name, which must not look like an option. `what`: the argument, for the message. Raises Refused."""
    if not _NAME.fullmatch(text):
        raise Refused(f"{what}: {text[:60]!r} is not a name")
    return text


def rows(limit: int) -> int:
    """The limit of rows, at most ROWS_MAX. Raises Refused if it is less than 1."""
    if limit < 1:
        raise Refused("limit: at least 1")
    return min(limit, ROWS_MAX)


def start(cursor: str) -> int:
    """Index of the first row of a page; "" is the first page. Raises Refused for a malformed cursor."""
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise Refused("cursor: pass next_cursor of the previous answer unchanged")
    return int(cursor or 0)


def page(items: Sequence[Any], limit: int, cursor: str, of: str) -> dict[str, Any]:
    """A page of a list under the key `of`, the total number of items, and the cursor of the next page ("": none)."""
    first, count = start(cursor), rows(limit)
    piece = list(items[first : first + count])
    following = first + len(piece)
    return {of: piece, "total": len(items), "next_cursor": str(following) if following < len(items) else ""}


def text(value: str) -> str:
    """The text, cut to TEXT_MAX characters."""
    return value if len(value) <= TEXT_MAX else value[:TEXT_MAX] + f"\n… ({len(value) - TEXT_MAX} more characters)"


class CommandRunner:
    """Runs commands for the cluster of a slurm.conf (None: the one that commands find)."""

    def __init__(self, conf: str | None) -> None:
        self.conf = conf

    def run(self, *words: str, stdin: str = "", cwd: str | None = None, seconds: float = 60.0) -> str:
        """The standard output of a command. Raises Refused with its error message."""
        done = commands.run(words, conf=self.conf, stdin=stdin, cwd=cwd, seconds=seconds)
        if done.status:
            raise Refused(done.complaint)
        return done.out

    def json(self, *words: str) -> Any:
        """The decoded JSON output of a command. Raises Refused."""
        out = self.run(*words)
        try:
            return json.loads(out)
        except ValueError as error:
            raise Refused(f"{words[0]} printed no JSON: {out[:200]!r}") from error
