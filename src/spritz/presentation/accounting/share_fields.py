"""The catalogue of sshare's fields, and its tree of accounts.

Source: sshare(1) SSHARE OUTPUT FIELDS; headings, widths and blanks as 22.05 prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.records import SHARES_PARENT
from spritz.presentation.table import TableField

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.model.accounting.fairshare import FairShareRow, FairShares


class ShareLine:
    """An association, the whole answer that it belongs to, and its indentation."""

    __slots__ = ("depth", "row", "whole")

    def __init__(self, row: FairShareRow, depth: int, whole: FairShares) -> None:
        self.row = row
        self.depth = depth
        self.whole = whole

    @property
    def is_root(self) -> bool:
        """Whether this is the top of the tree."""
        return not self.row.user and not self.row.parent

    @property
    def inherits(self) -> bool:
        """Whether the association has Fairshare=parent: it shares as if it were its parent."""
        return self.row.shares == SHARES_PARENT


def _shares(line: ShareLine) -> str:
    return "" if line.is_root else "parent" if line.inherits else str(line.row.shares)


def _factor(line: ShareLine) -> str:
    return f"{line.row.factor:.6f}" if line.whole.classic or line.row.user else ""


def _level(line: ShareLine) -> str:
    if line.inherits:
        return ""
    if line.whole.classic:
        return f"{0.0:.6f}"
    return "" if line.is_root else f"{line.row.level:.6f}"


def _each(line: ShareLine, values: Mapping[str, float]) -> str:
    """Every counted TRES, zeros included."""
    return ",".join(f"{name}={int(values.get(name, 0.0))}" for name in line.whole.tres)


def _running(line: ShareLine) -> str:
    return _each(line, {name: seconds / 60.0 for name, seconds in line.row.seconds_running.items()})


#: by lower-case name, in the order in which abbreviations are matched and --helpformat lists them
FIELDS: dict[str, TableField] = {
    field.header.lower(): field
    for field in (
        TableField("Account", -20, lambda line: " " * line.depth + line.row.account),
        TableField("Cluster", 10, lambda line: line.whole.cluster),
        TableField("EffectvUsage", 13, lambda line: f"{line.row.effective_usage:.6f}"),
        TableField("FairShare", 10, _factor),
        TableField(
            "GrpTRESMins", 30, lambda line: ",".join(f"{name}={count}" for name, count in line.row.minutes_limit)
        ),
        TableField("GrpTRESRaw", 30, lambda line: _each(line, line.row.minutes_used)),
        TableField("ID", 6, lambda line: str(line.row.id)),
        TableField("LevelFS", 10, _level),
        TableField("NormShares", 11, lambda line: f"{line.row.norm_shares:.6f}"),
        TableField("NormUsage", 11, lambda line: "" if line.is_root else f"{line.row.norm_usage:.6f}"),
        TableField("Partition", 12, lambda line: line.row.partition),
        TableField("RawShares", 10, _shares),
        TableField("RawUsage", 11, lambda line: str(int(line.row.usage))),
        TableField("TRESRunMins", 30, _running),
        TableField("User", 10, lambda line: line.row.user),
    )
}


def default_format(whole: FairShares, *, long: bool, partition: bool) -> str:
    text = "account,user," + ("partition," if partition else "") + "rawshares,normshares,rawusage,"
    if not long:
        return text + "effectvusage,fairshare"
    level = "" if whole.classic else "levelfs,"
    return text + f"normusage,effectvusage,fairshare,{level}grptresmins,tresrunmins"


def lines(whole: FairShares, *, flat: bool) -> Iterable[ShareLine]:
    """Associations in their order. `flat`: users without the tree. Depth counts from the topmost account shown."""
    depths: dict[str, int] = {}
    for row in whole.rows:
        if flat:
            if row.user:
                yield ShareLine(row, 0, whole)
            continue
        depth = depths[row.parent] + 1 if row.parent in depths else 0
        if not row.user:
            depths[row.account] = depth
        yield ShareLine(row, depth, whole)
