"""sacct's table: columns of fixed width with `+` where a value was cut, or fields between delimiters.

Source: sacct(1) --format, --parsable; print_fields as 22.05 does them.
"""

from __future__ import annotations

from spritz.cli.acct.fields import FIELDS, Field
from spritz.model.errors import SpritzError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.cli.acct.fields import Style
    from spritz.cli.acct.row import Row
    from spritz.cli.context import Context

_WIDTH_MAX = 100_000


class Column:
    """A field and its width (negative: left-justified)."""

    __slots__ = ("field", "width")

    def __init__(self, field: Field, width: int) -> None:
        self.field = field
        self.width = width

    def cell(self, text: str) -> str:
        """Padded, or cut with a `+`."""
        width = abs(self.width)
        if len(text) > width:
            text = text[: width - 1] + "+" if width else ""
        return text.ljust(width) if self.width < 0 else text.rjust(width)


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

    def header(self) -> None:
        """Headings, and dashes under columns."""
        self._line([column.field.header for column in self._columns])
        if self._delimiter is None:
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
        lines.append(" ".join(name.ljust(19) for name in names[start : start + 4]).rstrip())
    return "\n".join(lines) + "\n"
