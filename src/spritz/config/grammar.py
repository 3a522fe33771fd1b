"""Slurm's line grammar: text to logical lines, lines to `key=value` tokens, each with its file and line.

Knows nothing about which keys exist. Rules, all Slurm's: a `#` that is not escaped begins a comment, inside quotes as
well; an odd number of backslashes at the end continues the line; `\\x` stands for `x`; a value is a word or a "quoted
text"; blanks may stand around `=`; `Include FILE` stands alone on its line.

Source: slurm.conf(5), measured against 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEY_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")


class Location(Struct, frozen=True, gc=False):
    """The file and line where something was written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Token(Struct, frozen=True, gc=False):
    """One `key=value`. `operator` is "", "+", "-", "*" or "/" (as in `key+=value`)."""

    key: str
    value: str
    place: Location
    operator: str = ""


class Line(Struct, frozen=True, gc=False):
    """One logical line: comments gone, continuations joined, escapes undone. Never blank."""

    text: str
    place: Location


class Malformed(Struct, frozen=True, gc=False):
    """A part of a line that is not `key=value`."""

    text: str
    place: Location


def lines(text: str, file: str) -> Iterator[Line]:
    """Logical lines of one file, each placed at its first physical line."""
    pending = ""
    start = 0
    for number, raw in enumerate(_physical(text), 1):
        part = raw if "#" not in raw else _without_comment(raw)
        if not start:
            start = number
        if "\\" in part:
            continued = _continued(part)
            if continued is not None:
                pending += continued
                continue
        whole = pending + part
        if "\\" in whole:
            whole = _without_escapes(whole)
        if whole and not whole.isspace():
            yield Line(whole, Location(file, start))
        pending, start = "", 0
    if pending and not pending.isspace():
        yield Line(_without_escapes(pending), Location(file, start))


def _physical(text: str) -> list[str]:
    """Only newlines end a line; `splitlines` would also split at form feeds and Unicode separators."""
    return text.removeprefix("\ufeff").split("\n")


def _without_comment(raw: str) -> str:
    escaped = False
    for position, character in enumerate(raw):
        if character == "#" and not escaped:
            return raw[:position]
        escaped = character == "\\" and not escaped
    return raw


def _continued(part: str) -> str | None:
    """The line without its continuation mark, or None if it has none."""
    stripped = part.rstrip()
    backslashes = len(stripped) - len(stripped.rstrip("\\"))
    return stripped[:-1] if backslashes % 2 else None


def _without_escapes(text: str) -> str:
    pieces = []
    position = 0
    while (backslash := text.find("\\", position)) >= 0:
        pieces.append(text[position:backslash])
        pieces.append(text[backslash + 1 : backslash + 2])
        position = backslash + 2
    pieces.append(text[position:])
    return "".join(pieces)


def include_target(line: Line) -> str | None:
    """The file named by an `Include FILE` line, with `%c` not yet replaced; None for any other line; "" if no file is
    named.
    """
    text = line.text.lstrip()
    if text[:7].lower() != "include" or (len(text) > 7 and not text[7].isspace()):
        return None
    words = text[7:].split(None, 1)
    target = words[0] if words else ""
    return target.strip('"')


def tokens(line: Line) -> Iterator[Token | Malformed]:
    """All `key=value` of a line. Stops at the first part that is not one, and yields it as `Malformed`."""
    text, place = line.text, line.place
    plain = _plain_tokens(text, place) if '"' not in text else None
    if plain is not None:
        yield from plain
        return
    position, end = 0, len(text)
    while True:
        while position < end and text[position].isspace():
            position += 1
        if position >= end:
            return
        start = position
        while position < end and text[position] in _KEY_CHARACTERS:
            position += 1
        key = text[start:position]
        position, operator = _operator(text, position)
        if not key or position < 0:
            yield Malformed(text[start:].rstrip(), place)
            return
        value, position = _value(text, position)
        if position < 0:
            yield Malformed(text[start:].rstrip(), place)
            return
        yield Token(key, value, place, operator)


def _plain_tokens(text: str, place: Location) -> list[Token] | None:
    """The tokens of a line without quotes and blanks around `=`, as nearly all lines are; None if the full parser is
    needed.
    """
    plain = []
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals or not value or not key.isascii() or not key.replace("_", "0").replace(".", "0").isalnum():
            return None
        plain.append(Token(key, value, place))
    return plain


def _operator(text: str, position: int) -> tuple[int, str]:
    """Position behind `=` (-1 if there is none) and the operator in front of it."""
    end = len(text)
    while position < end and text[position].isspace():
        position += 1
    sign = ""
    if position < end and text[position] in "+-*/":
        sign = text[position]
        position += 1
    if position < end and text[position] == "=":
        return position + 1, sign
    return -1, ""


def _value(text: str, position: int) -> tuple[str, int]:
    """The value that begins here and the position behind it (-1: text follows directly behind a closing quote)."""
    end = len(text)
    while position < end and text[position].isspace():
        position += 1
    if position < end and text[position] == '"':
        close = text.find('"', position + 1)
        if close >= 0:
            if close + 1 < end and not text[close + 1].isspace():
                return "", -1
            return text[position + 1 : close], close + 1
    start = position
    while position < end and not text[position].isspace():
        position += 1
    return text[start:position], position
