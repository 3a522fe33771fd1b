"""Conversations as text: commands, and below each everything that followed.

Lines that begin with `$ ` are commands; what came of one stands below it, indented. `--bless` rewrites what came;
people read the difference. `#` begins a comment. `transcript` speaks with the core in this form; the journal, the nodes
and the standby controllers have languages of their own next to their files in `tests/transcripts`.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class Conversation(Protocol):
    def command(self, line: str) -> list[str]:
        """What one command leads to, as lines."""
        ...


def answered(conversation: Conversation, text: str) -> str:
    """The same text with what came now."""
    out: list[str] = []
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("$ "):
            out += [line, *(f"  {came}" for came in conversation.command(line[2:]))]
        elif not line.startswith("  "):
            out.append(line)
    return "\n".join(out) + "\n"


def run_file(path: Path, conversation: Conversation, *, bless: bool) -> None:
    """Run a file's commands; with `bless` write what came, else it must be what the file says."""
    text = path.read_text()
    came = answered(conversation, text)
    if bless:
        path.write_text(came)
    assert came == text, f"{path.name} came out differently; look at the difference, then run pytest --bless"


def words_of(line: str) -> tuple[list[str], dict[str, str]]:
    """The plain words of a command, and those of the form `name=value`."""
    plain, named = [], {}
    for word in shlex.split(line):
        name, equals, value = word.partition("=")
        if equals and name.isidentifier():
            named[name] = value
        else:
            plain.append(word)
    return plain, named
