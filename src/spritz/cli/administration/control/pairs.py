"""`Key=value` words: which key a word means. Keys may be shortened, in any case. Source: scontrol(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeVar

    from spritz.cli.administration.control.session import Session

    T = TypeVar("T")


def split(word: str) -> tuple[str, str]:
    """(key, value); `+=` and `-=` leave their sign at the front of the value: `TimeLimit+=5` -> `+5`."""
    key, equals, value = word.partition("=")
    if equals and key[-1:] in "+-" and key:
        return key[:-1], key[-1] + value
    return key, value


def unquoted(value: str) -> str:
    """Without a pair of quotes that the shell left."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def find(key: str, table: Mapping[str, T]) -> tuple[str, T] | None:
    """The entry whose name is `key`, or the first that begins with it (three letters or more). Keys of the table are
    written as Slurm writes them."""
    lower = key.lower()
    for name, entry in table.items():
        if name.lower() == lower:
            return name, entry
    if len(lower) < 3:
        return None
    for name, entry in table.items():
        if name.lower().startswith(lower):
            return name, entry
    return None


def not_supported(session: Session, word: str) -> int:
    """Print scontrol's error about an unknown key."""
    session.say(f"Update of this parameter is not supported: {word}")
    session.say("Request aborted")
    return 1


def names_of(entries: Iterable[str]) -> str:
    return ", ".join(entries)
