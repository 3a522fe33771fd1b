"""`--sort`: several keys, each ascending or descending.

A key is a letter of `-o`. Keys are read from the last to the first, so that an unknown letter is found as Slurm finds
it. Jobs that compare equal stand with the newest first, as Slurm's do. Source: squeue(1) --sort.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from spritz.cli.format.columns import Field

    Row = list[object]


class SortKey:
    """One key: a field, and which way."""

    __slots__ = ("descending", "field")

    def __init__(self, field: Field, descending: bool) -> None:
        self.field = field
        self.descending = descending


class SortError(ValueError):
    """A letter that is no field; the text is that letter."""


def parse_sort(text: str, fields: Mapping[str, Field]) -> list[SortKey]:
    """Keys, the least important first. Raises SortError."""
    keys: list[SortKey] = []
    position = len(text) - 1
    while position >= 0:
        letter = text[position]
        position -= 1
        if letter in ", +-":
            continue
        sign = text[position] if position >= 0 and text[position] in "+-" else "+"
        field = fields.get(letter)
        if field is None or field.refused or not field.needs:
            raise SortError(letter)
        keys.append(SortKey(field, sign == "-"))
    return keys


def sort_rows(rows: list[Row], keys: list[SortKey], index: Mapping[str, int], now: float) -> None:
    """Sort in place; `index` tells where in a row each path's value is."""
    for key in keys:
        rows.sort(key=_key_of(key.field, index, now), reverse=key.descending)
        # `reverse` keeps equal rows in their order.


def _key_of(field: Field, index: Mapping[str, int], now: float) -> Callable[[Row], Any]:
    """Values of one column compare with each other, whatever they are."""
    positions = [index[path] for path in field.needs]
    if field.sort is not None:
        make = field.sort
        return lambda row: make(*[row[position] for position in positions])
    render = field.render
    return lambda row: render(now, *[row[position] for position in positions])
