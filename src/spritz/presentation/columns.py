"""Column formats of Slurm's listings (`-o` and `-O`), and rendering of lines.

`-o '%.18i %-9P text'`: letters with an optional dot (right-justified) and width, and literal text, kept byte for byte.
`-O name[:[.]width][suffix],…`: names with a width (default 20) and any suffix.

Source: squeue(1) and sinfo(1) OUTPUT FORMAT; corner cases as in 22.05.
"""

from __future__ import annotations

from _operator import itemgetter
from typing import TYPE_CHECKING

from spritz.notation.oneline import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")
    F = TypeVar("F", bound="Field")

#: width of a -O column without one
NAME_WIDTH = 20

#: widest accepted column
WIDTH_MAX = 100_000


class Field:
    """One entry of a catalogue: its names for users, and its text for a record.

    `letter`: of `-o`; `name`, `aliases`: of `-O`, in lower case; `header`: its heading. `needs`: attribute paths of the
    record; `render(now, *values) -> str`: the text. Only these paths are requested from the controller. `refused`: why
    Spritz does not have the field; empty if it does. `sort(*values)`: the key for `--sort`; without it rows are ordered
    by their text. `many(now, *columns) -> texts`: renders many rows at once; for values that differ in each row or
    contain lists. `duration`: Slurm prints it with C's `%*s`, which never truncates.
    """

    __slots__ = ("aliases", "duration", "header", "letter", "many", "name", "needs", "refused", "render", "sort")

    def __init__(
        self,
        header: str,
        needs: tuple[str, ...] = (),
        render: Callable[..., str] | None = None,
        *,
        letter: str = "",
        name: str = "",
        aliases: tuple[str, ...] = (),
        refused: str = "",
        sort: Callable[..., object] | None = None,
        many: Callable[..., list[str]] | None = None,
        duration: bool = False,
    ) -> None:
        self.letter = letter
        self.name = name
        self.aliases = aliases
        self.many = many
        self.duration = duration
        self.header = header
        self.needs = needs
        self.render: Callable[..., str] = render or _as_text
        self.refused = refused
        self.sort = sort


def _as_text(now: float, value: object) -> str:
    return str(value)


def by_letter(fields: Iterable[F]) -> dict[str, F]:
    """The fields that have a letter for `-o`."""
    return {field.letter: field for field in fields if field.letter}


def by_name(fields: Iterable[F]) -> dict[str, F]:
    """The fields for `-O`, under each of their names."""
    return {name: field for field in fields if field.name for name in (field.name, *field.aliases)}


def itself(value: object) -> object:
    return value


class Column:
    """A field in a line: `before` and `after` are literal text; width 0: as wide as the text."""

    __slots__ = ("_whole", "after", "before", "field", "right", "width")

    def __init__(self, field: Field, width: int, right: bool, after: str = "", before: str = "") -> None:
        #: a right-justified duration is never cut, but UNLIMITED and other words are
        self._whole = field.duration and right and width > 0
        self.field = _with_words_cut(field, width) if self._whole else field
        self.width = width
        self.right = right
        self.before = before
        self.after = after

    def cell(self, text: str) -> str:
        """The text without newlines, padded or cut for the line."""
        return self.pattern() % (one_line(text),)

    def pattern(self) -> str:
        """A pattern for the % operator: pads and cuts to the width, with the literal text."""
        shape = f"{'' if self.right else '-'}{self.width}.{self.width}" if self.width else ""
        if self._whole:
            shape = str(self.width)
        return f"{self.before.replace('%', '%%')}%{shape}s{self.after.replace('%', '%%')}"


def _with_words_cut(field: Field, width: int) -> Field:
    def render(now: float, *values: object) -> str:
        text = field.render(now, *values)
        return text if text[:1].isdecimal() else text[:width]

    return Field(field.header[:width], field.needs, render, sort=field.sort)


#: stands for a column of literal text only
LITERAL = Field("", (), lambda now: "")


def parse_letters(text: str, fields: Mapping[str, Field], complain: Callable[[str], None]) -> list[Column]:
    """Columns of an `-o` form. Unknown letters are reported through `complain` and printed as typed."""
    prefix, *pieces = text.split("%")
    columns: list[Column] = []
    for piece in pieces:
        right = piece.startswith(".")
        spec = piece[1:] if right else piece
        digits = len(spec) - len(spec.lstrip("0123456789"))
        letter, suffix = spec[digits : digits + 1], spec[digits + 1 :]
        if not letter:
            continue  # `%%` is a percent sign; a single % at the end is dropped
        field = fields.get(letter)
        if field is None or field.refused:
            complain(letter if field is None else f"{letter}: {field.refused}")
            columns.append(Column(LITERAL, 0, False, f"%{piece}"))
            continue
        columns.append(Column(field, _width(spec[:digits]), right, suffix))
    if prefix:
        columns.insert(0, Column(LITERAL, 0, False, prefix))
    return columns


def every_letter(fields: Mapping[str, Field], after_capital: str = "|") -> list[Column]:
    """`%all`: every letter, small ones first, separated by bars (`after_capital`: the separator after
    capital letters).
    """
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
    """A column's width, bounded so that it cannot exhaust memory."""
    return min(int(digits[:9] or 0), WIDTH_MAX)


def header_line(columns: Sequence[Column]) -> str:
    return "".join(column.cell(column.field.header) for column in columns)


class Memo(dict):  # type: ignore[type-arg]  # at run time there is no Any
    """Caches the result of `make` for each key."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[Any], object]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: object) -> object:
        value = self[key] = self._make(key)
        return value


def values_of(rows: Sequence[Sequence[object]], positions: Sequence[int], make: Callable[[Any], T]) -> list[T]:
    """The result of `make` for each row: for the value at the one position, or the tuple of values at several
    positions.

    Ten thousand jobs have few distinct names, states and reasons: most results come from the cache, without a call.
    """
    if not positions:
        return [make(())] * len(rows)
    memo = Memo(make)
    try:
        return list(map(memo.__getitem__, map(itemgetter(*positions), rows)))
    except TypeError:
        pass  # a row has a list or a record there, which is not hashable
    values = [
        [tuple(value) if (value := row[place]).__class__ is list else value for row in rows] for place in positions
    ]
    keys: Iterable[object] = values[0] if len(values) == 1 else zip(*values, strict=True)
    return [_found(memo, key) for key in keys]


def _found(memo: Memo, key: object) -> Any:
    try:
        return memo[key]
    except TypeError:
        return memo._make(key)


def of_one_or_several(function: Callable[..., T], positions: Sequence[int]) -> Callable[[Any], T]:
    """Adapts `function` of single values to `values_of`."""
    return function if len(positions) == 1 else lambda key: function(*key)


class Lines:
    """Renders rows (values in the order of `needs`) as lines, fast: 10,000 rows in one pass."""

    def __init__(self, columns: Sequence[Column], extra: Sequence[str] = ()) -> None:
        needs: dict[str, int] = {}
        for path in (path for column in columns for path in column.field.needs):
            needs.setdefault(path, len(needs))
        for path in extra:
            needs.setdefault(path, len(needs))
        #: attribute paths to request from the controller
        self.needs = tuple(needs)
        self.index = needs
        self._cells = [
            (column.pattern(), column.field, tuple(needs[path] for path in column.field.needs)) for column in columns
        ]

    def line(self, now: float, row: Sequence[object]) -> str:
        """The row as text, without a newline. `row`: the required values in the order of the request."""
        return "".join(
            [
                pattern % (one_line(field.render(now, *[row[position] for position in positions])),)
                for pattern, field, positions in self._cells
            ]
        )

    def lines(self, now: float, rows: Sequence[Sequence[object]]) -> list[str]:
        """A line with its newline for each row."""
        cells = [_cells(now, rows, pattern, field, positions) for pattern, field, positions in self._cells]
        return list(map("".join, zip(*cells, ["\n"] * len(rows), strict=True)))


def _cells(
    now: float, rows: Sequence[Sequence[object]], pattern: str, field: Field, positions: Sequence[int]
) -> list[str]:
    if field.many is not None:
        return list(map(pattern.__mod__, map(one_line, texts_of(now, rows, field.many, positions))))
    render = field.render
    if len(positions) == 1:
        return values_of(rows, positions, lambda value: pattern % (one_line(render(now, value)),))
    return values_of(rows, positions, lambda values: pattern % (one_line(render(now, *values)),))


def texts_of(
    now: float, rows: Sequence[Sequence[object]], many: Callable[..., list[str]], positions: Sequence[int]
) -> list[str]:
    """Texts of a field that renders many rows at once."""
    return many(now, *(list(map(itemgetter(position), rows)) for position in positions))
