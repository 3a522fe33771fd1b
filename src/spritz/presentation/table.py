"""Tables of sacct, sstat, sshare, sacctmgr and sreport: fields, `--format=name%width`, columns, and parsable text.

A column has its field's width or the user's (negative: left-justified). `-p` and `-P` put delimiters between uncut
texts.

Source: sacct(1) --format, --parsable; Slurm's print_fields as 22.05 prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.notation.oneline import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

#: widest accepted column
WIDTH_MAX = 100_000

#: treatment of a text that is wider than its column: `+` as its last character, cut, printed in full
MARKED, CUT, WHOLE = "marked", "cut", "whole"


class TableField:
    """One entry of a catalogue: heading, width, and `render`, which returns a cell's value (None: empty).

    `needs` is empty for a field with the same text for every record. `refused` is always empty: each field of
    --helpformat can be printed.
    """

    __slots__ = ("header", "needs", "overflow", "refused", "render", "width")

    def __init__(self, header: str, width: int, render: Callable[..., object], *, overflow: str = MARKED) -> None:
        self.header = header
        self.width = width
        self.render = render
        self.overflow = overflow
        self.needs: tuple[str, ...] = ("record",)
        self.refused = ""


class Constant(TableField):
    """A field with the same text for every record."""

    def __init__(self, header: str, width: int, text: str) -> None:
        super().__init__(header, width, lambda *_: text)
        self.needs = ()


class TableColumn:
    """A field and the width of its column."""

    __slots__ = ("field", "width")

    def __init__(self, field: TableField, width: int) -> None:
        self.field = field
        self.width = width

    def cell(self, text: str) -> str:
        """The text padded, or shortened as the field says."""
        width, overflow = abs(self.width), self.field.overflow
        if len(text) > width and overflow != WHOLE:
            text = text[:width] if overflow == CUT or not width else text[: width - 1] + "+"
        return self._padded(text)

    def title(self) -> str:
        return self._padded(self.field.header[: abs(self.width)])

    def _padded(self, text: str) -> str:
        return text.ljust(-self.width) if self.width < 0 else text.rjust(self.width)


class UnknownField(SpritzError):
    """An unknown field or bad width in `--format`. The message is that of sacct, sstat and sshare.

    `name`: the word without its width; `text`: the wrong part.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f'Invalid field requested: "{text}"')
        self.name = name
        self.text = text


def parse_columns(text: str, fields: Mapping[str, TableField], *, least: int = 1) -> list[TableColumn]:
    """`jobid,state%20,jobname%-30`. Case is ignored, and the first `least` letters of a name are enough."""
    columns = []
    for item in text.split(","):
        name, percent, width = item.partition("%")
        name = name.strip()
        if not item.strip():
            continue
        field = _named(name.lower(), fields, least)
        if field is None:
            raise UnknownField(name, name)
        columns.append(TableColumn(field, _width(width, name, item) if percent else field.width))
    return columns


def _named(name: str, fields: Mapping[str, TableField], least: int) -> TableField | None:
    """The first field that begins with the word, as in Slurm."""
    if name in fields:
        return fields[name]
    if len(name) < least:
        return None
    return next((field for key, field in fields.items() if key.startswith(name)), None)


def _width(text: str, name: str, item: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or int(digits[:9]) > WIDTH_MAX:
        raise UnknownField(name, item)
    return int(text)


class Table:
    """Renders lines. `parsable` 0: columns; 1: a delimiter after each text (-p); 2: between texts (-P)."""

    def __init__(self, columns: Sequence[TableColumn], parsable: int = 0, delimiter: str = "|") -> None:
        self.columns = columns
        self._parsable = parsable
        self._delimiter = delimiter

    def head(self) -> str:
        """Headings; for columns also the dashes below."""
        if self._parsable:
            return self.line([column.field.header for column in self.columns])
        titles = "".join(column.title() + " " for column in self.columns)
        return f"{titles}\n{''.join('-' * abs(column.width) + ' ' for column in self.columns)}\n"

    def row(self, *record: Any) -> str:
        """The line for a record, which is passed to the fields' `render`."""
        values = [column.field.render(*record) for column in self.columns]
        return self.line(["" if value is None else str(value) for value in values])

    def line(self, texts: Sequence[str]) -> str:
        """The line for the texts of all columns, whose newlines are escaped."""
        texts = [one_line(text) for text in texts]
        if self._parsable:
            return self._delimiter.join(texts) + (self._delimiter if self._parsable == 1 else "") + "\n"
        cells = [column.cell(text) + " " for column, text in zip(self.columns, texts, strict=True)]
        return "".join(cells) + "\n"


def help_format(fields: Mapping[str, TableField], width: int = 19) -> str:
    """The text of --helpformat: names padded to `width`, four a line."""
    return names_listed((field.header for field in fields.values()), width)


def names_listed(names: Iterable[str], width: int = 19) -> str:
    """Names padded to `width`, four a line."""
    padded = [name.ljust(width) for name in names]
    return "".join(" ".join(padded[start : start + 4]) + "\n" for start in range(0, len(padded), 4))
