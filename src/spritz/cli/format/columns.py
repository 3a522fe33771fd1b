"""The two forms in which Slurm's listings are asked for, and the making of lines.

`-o '%.18i %-9P text'`: letters with an optional dot (right), width, and literal text round them, kept byte for byte.
`-O name[:[.]width][suffix],…`: names, 20 wide unless said otherwise, with any suffix.

Source: squeue(1) and sinfo(1) OUTPUT FORMAT; odd cases as 22.05 does them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: width of a -O column without one
NAME_WIDTH = 20

#: widest column that is honoured
WIDTH_MAX = 100_000


class Field:
    """One thing that a listing can show.

    `header`; `needs`: attribute paths of the record; `render(now, *values) -> str`. `refused` says why it is not
    built. `sort` gives the key
    for `--sort` (the rendered text if None).
    """

    __slots__ = ("header", "needs", "refused", "render", "sort")

    def __init__(
        self,
        header: str,
        needs: tuple[str, ...] = (),
        render: Callable[..., str] | None = None,
        *,
        refused: str = "",
        sort: Callable[..., object] | None = None,
    ) -> None:
        self.header = header
        self.needs = needs
        self.render: Callable[..., str] = render or _as_text
        self.refused = refused
        self.sort = sort


def _as_text(now: float, value: object) -> str:
    return str(value)


class Column:
    """A field in a line: `before` and `after` are literal text; width 0 means as wide as it is."""

    __slots__ = ("after", "before", "field", "right", "width")

    def __init__(self, field: Field, width: int, right: bool, after: str = "", before: str = "") -> None:
        self.field = field
        self.width = width
        self.right = right
        self.before = before
        self.after = after

    def cell(self, text: str) -> str:
        """Padded and cut to the width, with the literal text."""
        width = self.width
        if width:
            text = text[:width]
            text = text.rjust(width) if self.right else text.ljust(width)
        return f"{self.before}{text}{self.after}"


#: stands in a line where only literal text is
LITERAL = Field("", (), lambda now: "")


def parse_letters(text: str, fields: Mapping[str, Field], complain: Callable[[str], None]) -> list[Column]:
    """Columns of an `-o` form. Unknown letters are reported through `complain` and shown as they were typed."""
    prefix, *pieces = text.split("%")
    columns: list[Column] = []
    for piece in pieces:
        right = piece.startswith(".")
        rest = piece[1:] if right else piece
        digits = len(rest) - len(rest.lstrip("0123456789"))
        letter, suffix = rest[digits : digits + 1], rest[digits + 1 :]
        if not letter:
            continue  # `%%` is one percent sign, and one at the end is none
        field = fields.get(letter)
        if field is None or field.refused:
            complain(letter if field is None else f"{letter}: {field.refused}")
            columns.append(Column(LITERAL, 0, False, f"%{piece}"))
            continue
        columns.append(Column(field, _width(rest[:digits]), right, suffix))
    if prefix:
        columns.insert(0, Column(LITERAL, 0, False, prefix))
    return columns


def every_letter(fields: Mapping[str, Field], after_capital: str = "|") -> list[Column]:
    """`%all`: every letter, small ones first, with bars between (`after_capital`: after those of capital letters)."""
    letters = sorted((letter for letter, field in fields.items() if not field.refused), key=str.swapcase)
    every = [Column(fields[letter], 0, False, after_capital if letter.isupper() else "|") for letter in letters]
    every[-1].after = every[-1].after.replace("|", "")
    return every


def parse_names(text: str, fields: Mapping[str, Field], complain: Callable[[str], None]) -> list[Column]:
    """Columns of an `-O` form. `fields` is keyed by lower-case names."""
    columns: list[Column] = []
    for item in text.split(","):
        if not item:
            continue
        name, colon, shape = item.partition(":")
        field = fields.get(name.lower())
        if field is None or field.refused:
            complain(name if field is None else f"{name}: {field.refused}")
            continue
        right = shape.startswith(".")
        shape = shape[1:] if right else shape
        digits = len(shape) - len(shape.lstrip("0123456789"))
        width = _width(shape[:digits]) if colon else NAME_WIDTH
        columns.append(Column(field, width, right, shape[digits:]))
    return columns


def _width(digits: str) -> int:
    """A column's width; no terminal is wider than the bound, and none shall fill the memory."""
    return min(int(digits[:9] or 0), WIDTH_MAX)


def header_line(columns: Sequence[Column]) -> str:
    """The headings."""
    return "".join(column.cell(column.field.header) for column in columns)


class Lines:
    """Turns rows (values in the order of `needs`) into lines of text, quickly: 10,000 rows are one pass."""

    def __init__(self, columns: Sequence[Column], extra: Sequence[str] = ()) -> None:
        needs: dict[str, int] = {}
        for path in (path for column in columns for path in column.field.needs):
            needs.setdefault(path, len(needs))
        for path in extra:
            needs.setdefault(path, len(needs))
        #: attribute paths to ask the controller for
        self.needs = tuple(needs)
        self.index = needs
        self._cells = [
            (column.cell, column.field.render, tuple(needs[path] for path in column.field.needs)) for column in columns
        ]

    def line(self, now: float, row: Sequence[object]) -> str:
        """One line without its newline."""
        return "".join(
            [cell(render(now, *[row[position] for position in positions])) for cell, render, positions in self._cells]
        )
