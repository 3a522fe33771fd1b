"""sshare's columns and its tree of accounts.

Source: sshare(1) SSHARE OUTPUT FIELDS; headings, widths and blanks as 22.05 prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.silent import Silent
from spritz.model.limits.records import SHARES_PARENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spritz.cli.context import Context
    from spritz.model.fairshare import FairShareRow, FairShares

_WIDTH_MAX = 100_000


class Line:
    """One row, and what is known of all of them."""

    __slots__ = ("depth", "row", "whole")

    def __init__(self, row: FairShareRow, depth: int, whole: FairShares) -> None:
        self.row = row
        self.depth = depth
        self.whole = whole

    @property
    def is_root(self) -> bool:
        """The top of the tree."""
        return not self.row.user and not self.row.parent

    @property
    def inherits(self) -> bool:
        """Fairshare=parent."""
        return self.row.shares == SHARES_PARENT


def _shares(line: Line) -> str:
    return "" if line.is_root else "parent" if line.inherits else str(line.row.shares)


def _factor(line: Line) -> str:
    return f"{line.row.factor:.6f}" if line.whole.classic or line.row.user else ""


def _level(line: Line) -> str:
    if line.inherits:
        return ""
    if line.whole.classic:
        return f"{0.0:.6f}"
    return "" if line.is_root else f"{line.row.level:.6f}"


def _each(line: Line, values: Mapping[str, float]) -> str:
    """Every TRES that is counted, those that are nothing too."""
    return ",".join(f"{name}={int(values.get(name, 0.0))}" for name in line.whole.tres)


def _running(line: Line) -> str:
    return _each(line, {name: seconds / 60.0 for name, seconds in line.row.seconds_running.items()})


class Field:
    """A column: heading, width (negative: to the left), and what it shows."""

    __slots__ = ("header", "needs", "refused", "show", "width")

    def __init__(self, name: str, width: int, show: Callable[[Line], str]) -> None:
        self.header = name
        self.width = width
        self.show = show
        #: what the page of compatibility looks at: it works, and shows something
        self.refused, self.needs = "", ("row",)


#: by name in small letters, in the order in which abbreviations are looked for and --helpformat lists them
FIELDS: dict[str, Field] = {
    field.header.lower(): field
    for field in (
        Field("Account", -20, lambda line: " " * line.depth + line.row.account),
        Field("Cluster", 10, lambda line: line.whole.cluster),
        Field("EffectvUsage", 13, lambda line: f"{line.row.effective_usage:.6f}"),
        Field("FairShare", 10, _factor),
        Field("GrpTRESMins", 30, lambda line: ",".join(f"{name}={count}" for name, count in line.row.minutes_limit)),
        Field("GrpTRESRaw", 30, lambda line: _each(line, line.row.minutes_used)),
        Field("ID", 6, lambda line: str(line.row.id)),
        Field("LevelFS", 10, _level),
        Field("NormShares", 11, lambda line: f"{line.row.norm_shares:.6f}"),
        Field("NormUsage", 11, lambda line: "" if line.is_root else f"{line.row.norm_usage:.6f}"),
        Field("Partition", 12, lambda line: line.row.partition),
        Field("RawShares", 10, _shares),
        Field("RawUsage", 11, lambda line: str(int(line.row.usage))),
        Field("TRESRunMins", 30, _running),
        Field("User", 10, lambda line: line.row.user),
    )
}

Column = tuple[Field, int]


def default_format(whole: FairShares, *, long: bool, partition: bool) -> str:
    """What is shown unless --format says otherwise."""
    text = "account,user," + ("partition," if partition else "") + "rawshares,normshares,rawusage,"
    if not long:
        return text + "effectvusage,fairshare"
    level = "" if whole.classic else "levelfs,"
    return text + f"normusage,effectvusage,fairshare,{level}grptresmins,tresrunmins"


def choose(text: str, context: Context) -> list[Column]:
    """`account,user%20,fairshare%-12`. Raises Silent after Slurm's line for one that there is not."""
    columns = []
    for item in text.split(","):
        if not item:
            continue
        name, percent, width = item.partition("%")
        low = name.lower()
        field = FIELDS.get(low) or next((one for key, one in FIELDS.items() if low and key.startswith(low)), None)
        digits = width.removeprefix("-")
        fine = not percent or (digits.isascii() and digits.isdigit() and int(digits[:9]) <= _WIDTH_MAX)
        if field is None or not fine:
            context.error(f'Invalid field requested: "{name if field is None else item}"')
            raise Silent
        columns.append((field, int(width) if percent else field.width))
    return columns


def print_shares(
    whole: FairShares, columns: Sequence[Column], context: Context, *, header: bool, parsable: int, flat: bool
) -> None:
    """Headings and lines. `parsable` 1: a bar after each field, 2: between fields; `flat`: no tree, users alone."""
    if header:
        _write([field.header for field, _ in columns], columns, context, parsable)
        if not parsable:
            context.out("".join("-" * abs(width) + " " for _, width in columns) + "\n")
    for line in _lines(whole, flat=flat):
        _write([field.show(line) for field, _ in columns], columns, context, parsable)


def _lines(whole: FairShares, *, flat: bool) -> Iterable[Line]:
    """Depths count from the topmost account that is shown."""
    depths: dict[str, int] = {}
    for row in whole.rows:
        if flat:
            if row.user:
                yield Line(row, 0, whole)
            continue
        depth = depths[row.parent] + 1 if row.parent in depths else 0
        if not row.user:
            depths[row.account] = depth
        yield Line(row, depth, whole)


def _write(texts: Sequence[str], columns: Sequence[Column], context: Context, parsable: int) -> None:
    if parsable:
        context.out("|".join(texts) + ("|\n" if parsable == 1 else "\n"))
        return
    cells = []
    for text, (_, width) in zip(texts, columns, strict=True):
        size = abs(width)
        if len(text) > size:
            text = text[: size - 1] + "+" if size else ""
        cells.append(text.ljust(size) if width < 0 else text.rjust(size))
    context.out("".join(cell + " " for cell in cells) + "\n")


def help_format() -> str:
    """--helpformat: four names a line."""
    names = [field.header.ljust(17) for field in FIELDS.values()]
    return "\n".join(" ".join(names[start : start + 4]) for start in range(0, len(names), 4)) + "\n"
