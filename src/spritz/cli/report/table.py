"""Columns of reports: names, widths, and amounts of time in the unit that was asked for.

A column of amounts is as wide as the largest of them in seconds, whatever unit it is printed in, and at least 8 (17
with percentages); a width of one's own is for other columns. Source: sreport(1) Format=; widths as 22.05 has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.silent import Silent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.cli.context import Context

    Cell = "str | Amount"
    Row = Mapping[str, object]

RULE = "-" * 80 + "\n"
_WIDTH_MAX = 10_000

#: Time formats: name -> (seconds of the unit, its name, percentages: "" no, "only", "too"), as they are abbreviated
FORMATS = {
    "seconds": (1, "Seconds", ""),
    "minutes": (60, "Minutes", ""),
    "hours": (3600, "Hours", ""),
    "percent": (0, "Percentage of Total", "only"),
    "secper": (1, "Seconds/Percentage of Total", "too"),
    "minper": (60, "Minutes/Percentage of Total", "too"),
    "hourper": (3600, "Hours/Percentage of Total", "too"),
}


class Unit:
    """How amounts are printed."""

    def __init__(self, name: str) -> None:
        self.seconds, self.title, self.percent = FORMATS[name]

    @classmethod
    def named(cls, text: str) -> Unit | None:
        """By the beginning of a name; the combined ones are written out. None: there is none."""
        word = text.strip().lower()
        if word in FORMATS:
            return cls(word)
        plain = ("seconds", "minutes", "hours", "percent")
        found = next((name for name in plain if word and name.startswith(word)), None)
        return None if found is None else cls(found)

    def usage(self, kind: str) -> str:
        """`CPU Minutes`"""
        return self.title if self.percent == "only" else f"{kind} {self.title}".lstrip()

    def text(self, amount: Amount) -> str:
        """`600`, `5.21%` or `600(5.21%)`"""
        share = f"{100.0 * amount.value / amount.whole if amount.whole else 0.0:.2f}%"
        if self.percent == "only":
            return share
        value = f"{amount.value / self.seconds if amount.timed else amount.value:.0f}"
        return f"{value}({share})" if self.percent else value


class Amount:
    """The value as a part of `whole`. Not `timed`: a number as it is, and not a count times seconds."""

    __slots__ = ("timed", "value", "whole")

    def __init__(self, value: float, whole: float = 0.0, *, timed: bool = True) -> None:
        self.value = value
        self.whole = whole
        self.timed = timed


class Field:
    """A column that may be asked for: its key in rows, heading and width (0: of amounts; negative: to the left)."""

    __slots__ = ("heading", "key", "width", "width_both")

    def __init__(self, key: str, heading: str, width: int = 0, *, width_both: int = 0) -> None:
        self.key = key
        self.heading = heading
        self.width = width
        #: an amount's fixed width, where it has one with percentages
        self.width_both = width_both


class Style:
    """-n, -p, -P, and the unit."""

    def __init__(self, unit: Unit, *, header: bool, parsable: int) -> None:
        self.unit = unit
        self.header = header
        #: 0: columns, 1: a bar after each field, 2: a bar between fields
        self.parsable = parsable


def choose(text: str, known: Mapping[str, Field], context: Context) -> list[Field]:
    """`login%20,used` -> columns. Raises Silent after Slurm's line for one that there is not."""
    columns = []
    for item in text.split(","):
        name, percent, width = item.strip().partition("%")
        low = name.strip().lower()
        field = known.get(low) or next((one for key, one in known.items() if low and key.startswith(low)), None)
        if field is None or (percent and not (width.removeprefix("-").isdecimal() and len(width) < 6)):
            context.err(f" Unknown field '{name if field is None else item.strip()}'\n")
            raise Silent
        wanted = int(width) if percent else 0
        if wanted and field.width and not field.width_both:
            field = Field(field.key, field.heading, max(-_WIDTH_MAX, min(_WIDTH_MAX, wanted)))
        columns.append(field)
    return columns


def print_table(columns: Sequence[Field], rows: Sequence[Row], style: Style, context: Context) -> None:
    """Headings and rows."""
    widths = [_width(column, rows, style) for column in columns]
    lines = []
    if style.header:
        lines.append(_line([column.heading for column in columns], widths, style, heading=True))
        if not style.parsable:
            lines.append("".join("-" * abs(width) + " " for width in widths))
    for row in rows:
        cells = []
        for column, width in zip(columns, widths, strict=True):
            value = row[column.key]
            if isinstance(value, Amount):
                cells.append(style.unit.text(value)[: None if style.parsable else width])
            else:
                cells.append(str(value))
        lines.append(_line(cells, widths, style))
    context.out("".join(f"{line}\n" for line in lines))


def _width(column: Field, rows: Sequence[Row], style: Style) -> int:
    both = style.unit.percent == "too"
    if column.width:
        return column.width_both if both and column.width_both else column.width
    largest = max((one.value for row in rows if isinstance(one := row[column.key], Amount)), default=0)
    return max(17, len(f"{largest:.0f}") + 9) if both else max(8, len(f"{largest:.0f}"))


def _line(cells: Sequence[str], widths: Sequence[int], style: Style, *, heading: bool = False) -> str:
    if style.parsable:
        return "|".join(cells) + ("|" if style.parsable == 1 else "")
    parts = []
    for text, width in zip(cells, widths, strict=True):
        size = abs(width)
        if len(text) > size:
            text = text[:size] if heading else text[: size - 1] + "+"
        parts.append(text.ljust(size) if width < 0 else text.rjust(size))
    return "".join(part + " " for part in parts)
