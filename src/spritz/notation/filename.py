"""File name patterns of --output, --error and --input: `out-%A_%4a.txt`.

Owns the `%` language. The caller supplies the value of each letter; a letter without a value is left as written.

Source: sbatch(1) FILENAME PATTERN, srun(1) FILENAME PATTERN (IO redirection).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WIDTH_MAX = 10
_LETTERS = frozenset("AaBbJjNnrSstuxh")


def _pieces(pattern: str) -> Iterator[tuple[str, str, str]]:
    """(literal text, width digits, letter) in order. The letter is empty at the end, and `%` for `%%`."""
    position = 0
    while True:
        percent = pattern.find("%", position)
        if percent < 0:
            yield pattern[position:], "", ""
            return
        after = percent + 1
        while after < len(pattern) and pattern[after] in "0123456789":
            after += 1
        letter = pattern[after : after + 1]
        if letter not in _LETTERS and letter != "%":
            yield pattern[position : percent + 1], "", ""
            position = percent + 1
            continue
        yield pattern[position:percent], pattern[percent + 1 : after], letter
        position = after + 1


def is_literal(pattern: str) -> bool:
    """Whether the pattern has a backslash: one anywhere switches off all replacement."""
    return "\\" in pattern


def _without_backslashes(pattern: str) -> str:
    kept: list[str] = []
    escaped = False
    for letter in pattern:
        if letter == "\\" and not escaped:
            escaped = True
        else:
            kept.append(letter)
            escaped = False
    return "".join(kept)


def expand(pattern: str, values: Mapping[str, str | int]) -> str:
    """The file name that the pattern stands for.

    `values` by letter (`{"j": 12, "x": "train"}`). Numbers are zero-padded to the width given, at most 10 digits.
    """
    if is_literal(pattern):
        return _without_backslashes(pattern)
    if "%" not in pattern:
        return pattern
    text: list[str] = []
    for literal, width, letter in _pieces(pattern):
        text.append(literal)
        if letter == "%":
            text.append("%")
        elif letter:
            value = values.get(letter)
            if value is None:
                text.append(f"%{width}{letter}")
            elif isinstance(value, int):
                padding = int(width) if width and len(width) <= 3 else _WIDTH_MAX if width else 0
                text.append(str(value).zfill(min(padding, _WIDTH_MAX)))
            else:
                text.append(value)
    return "".join(text)


def letters(pattern: str) -> frozenset[str]:
    """Letters after % in the pattern that `expand` would replace, %% excluded."""
    if is_literal(pattern) or "%" not in pattern:
        return frozenset()
    return frozenset(letter for _, _, letter in _pieces(pattern) if letter and letter != "%")
