"""`--sort`: several keys, each ascending or descending.

A key is a letter of `-o`. The text is parsed from its end, so that the first error is the one that Slurm reports. Jobs
that compare equal are listed newest first, as in Slurm, or oldest first after a sort by start (the default of --start)
or by nodes. Source: squeue(1) --sort; the order of equal jobs is that of 22.05.
"""

from __future__ import annotations

from _operator import itemgetter
from typing import TYPE_CHECKING

from spritz.presentation.columns import itself, of_one_or_several, texts_of, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from spritz.presentation.columns import Field

    Row = list[object]


class SortKey:
    """A field and its direction. `reverses_ties`: this key reverses the order of equal jobs, in either direction."""

    __slots__ = ("descending", "field", "reverses_ties")

    def __init__(self, field: Field, descending: bool, *, reverses_ties: bool = False) -> None:
        self.field = field
        self.descending = descending
        self.reverses_ties = reverses_ties


class SortError(ValueError):
    """An unknown letter, which is the error's text."""


def parse_sort(text: str, fields: Mapping[str, Field]) -> list[SortKey]:
    """The keys, the least significant first. Raises SortError."""
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
        keys.append(SortKey(field, sign == "-", reverses_ties=letter in "SN"))
    return keys


def order_of(rows: Sequence[Row], keys: list[SortKey], index: Mapping[str, int], now: float) -> list[int]:
    """Indexes of the rows in sorted order (a stable sort). `index`: position in a row of each path's value."""
    order = list(range(len(rows)))
    for key in keys:
        if key.reverses_ties:
            order.reverse()
        values = _keys_of(key.field, rows, index, now)
        # `reverse` keeps the order of equal rows.
        order.sort(key=values.__getitem__, reverse=key.descending)
    return order


def _keys_of(field: Field, rows: Sequence[Row], index: Mapping[str, int], now: float) -> list[Any]:
    """Sort keys of a column, which are comparable even if its values have different types."""
    positions = [index[path] for path in field.needs]
    if field.sort is itself:
        return list(map(itemgetter(positions[0]), rows))
    if field.sort is None and field.many is not None:
        return texts_of(now, rows, field.many, positions)
    render = field.render
    function = field.sort or (lambda *values: render(now, *values))
    return values_of(rows, positions, of_one_or_several(function, positions))
