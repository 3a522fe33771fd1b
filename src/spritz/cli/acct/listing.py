"""sacct's table: columns of fixed width with `+` where a value was cut, or fields between delimiters.

Source: sacct(1) --format, --parsable; print_fields as 22.05 does them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.presentation.accounting_fields import FIELDS, Field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.cli.context import Context
    from spritz.presentation.accounting_fields import Style
    from spritz.presentation.accounting_row import Row

_WIDTH_MAX = 100_000

#: What Slurm prints by other means than texts: numbers and spans of time are never cut, points in time without a mark.
_NEVER_CUT = frozenset(
    {"CPUTime", "CPUTimeRAW", "DBIndex", "Elapsed", "ElapsedRaw", "Planned", "PlannedCPU", "PlannedCPURAW", "Priority"}
    | {"Reserved", "ResvCPU", "ResvCPURAW", "Suspended"}
)
_CUT_WITHOUT_MARK = frozenset({"Eligible", "End", "Start", "Submit"})


class Column:
    """A field and its width (negative: left-justified)."""

    __slots__ = ("field", "width")

    def __init__(self, field: Field, width: int) -> None:
        self.field = field
        self.width = width

    def cell(self, text: str) -> str:
        """Padded, or cut with a `+`."""
        width, name = abs(self.width), self.field.name
        if len(text) > width and name not in _NEVER_CUT:
            text = text[:width] if name in _CUT_WITHOUT_MARK or not width else text[: width - 1] + "+"
        return self._padded(text)

    def title(self) -> str:
        """The heading, padded or cut."""
        return self._padded(self.field.header[: abs(self.width)])

    def _padded(self, text: str) -> str:
        return text.ljust(-self.width) if self.width < 0 else text.rjust(self.width)


def parse_columns(text: str, known: Mapping[str, Field] = FIELDS) -> list[Column]:
    """`jobid,state%20,jobname%-30`. Names count in any case, and by their beginning. Raises SpritzError."""
    columns = []
    for item in text.split(","):
        name, percent, width_text = item.partition("%")
        name = name.strip().lower()
        if not name:
            continue
        if name == "all":
            columns += [Column(field, field.width) for field in known.values()]
            continue
        field = _named(name, known)
        if field is None:
            raise SpritzError(f'Invalid field requested: "{item.partition("%")[0].strip()}"')
        columns.append(Column(field, _width(width_text, item) if percent else field.width))
    return columns


def _named(name: str, known: Mapping[str, Field]) -> Field | None:
    """Slurm takes the first field that begins so."""
    return known.get(name) or next((field for key, field in known.items() if key.startswith(name)), None)


def _width(text: str, item: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or int(digits[:9]) > _WIDTH_MAX:
        raise SpritzError(f'Invalid field requested: "{item}"')
    return int(text)


class Listing:
    """Prints rows as they come. `delimiter` None: columns; `trailing`: one after the last field too (-p)."""

    def __init__(
        self, columns: list[Column], style: Style, context: Context, *, delimiter: str | None, trailing: bool
    ) -> None:
        self._columns = columns
        self._style = style
        self._context = context
        self._delimiter = delimiter
        self._trailing = trailing

    def asks(self, name: str) -> bool:
        """Whether a field is among its columns."""
        return any(column.field.name == name for column in self._columns)

    def know_qos(self, numbers: Mapping[str, int]) -> None:
        """For QOSRAW."""
        self._style.qos_numbers = numbers

    def header(self) -> None:
        """Headings, and dashes under columns."""
        if self._delimiter is not None:
            self._line([column.field.header for column in self._columns])
            return
        self._context.out("".join(column.title() + " " for column in self._columns) + "\n")
        self._context.out("".join("-" * abs(column.width) + " " for column in self._columns) + "\n")

    def row(self, row: Row) -> None:
        """One line."""
        style = self._style
        self._line([column.field.render(row, style) for column in self._columns])

    def _line(self, texts: list[str]) -> None:
        if self._delimiter is None:
            cells = "".join(column.cell(text) + " " for column, text in zip(self._columns, texts, strict=True))
            self._context.out(cells + "\n")
        else:
            self._context.out(self._delimiter.join(texts) + (self._delimiter if self._trailing else "") + "\n")


def help_format(known: Mapping[str, Field] = FIELDS) -> str:
    """--helpformat: four names a line."""
    names = [field.name for field in known.values()]
    lines = []
    for start in range(0, len(names), 4):
        lines.append(" ".join(name.ljust(19) for name in names[start : start + 4]))
    return "\n".join(lines) + "\n"
