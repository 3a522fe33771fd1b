"""The catalogues of sreport's fields, its units, and its tables.

A column of amounts is as wide as the largest amount in seconds, regardless of the printed unit, and at least 8 (17 with
percentages). Users may set the width of other columns. Source: sreport(1) Format=; widths as 22.05 has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.table import Table, TableColumn, TableField, parse_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = Mapping[str, object]

#: time formats: name -> (seconds of the unit, its name, percentages: "" no, "only", "too"), in the order in which
#: abbreviations are matched
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
    """The unit of `sreport -t`: seconds by which amounts are divided, and whether percentages are shown."""

    def __init__(self, name: str) -> None:
        self.seconds, self.title, self.percent = FORMATS[name]

    @classmethod
    def named(cls, text: str) -> Unit | None:
        """The unit for a prefix of its name; combined units must be written out. None: unknown."""
        word = text.strip().lower()
        if word in FORMATS:
            return cls(word)
        plain = ("seconds", "minutes", "hours", "percent")
        match = next((name for name in plain if word and name.startswith(word)), None)
        return None if match is None else cls(match)

    def usage(self, kind: str) -> str:
        """The heading of a usage column, such as `CPU Minutes`."""
        return self.title if self.percent == "only" else f"{kind} {self.title}".lstrip()

    def text(self, amount: Amount) -> str:
        """The amount in this unit: `600`, `5.21%` or `600(5.21%)`."""
        share = f"{100.0 * amount.value / amount.whole if amount.whole else 0.0:.2f}%"
        if self.percent == "only":
            return share
        value = f"{amount.value / self.seconds if amount.timed else amount.value:.0f}"
        return f"{value}({share})" if self.percent else value


class Amount:
    """An amount with its `whole` for percentages. Not `timed`: a plain number, not a count times seconds."""

    __slots__ = ("timed", "value", "whole")

    def __init__(self, value: float, whole: float = 0.0, *, timed: bool = True) -> None:
        self.value = value
        self.whole = whole
        self.timed = timed


class ReportField(TableField):
    """A column: its key in rows, heading and width.

    Width 0: a column of amounts; negative: to the left. `width_both`: fixed width of a column of amounts with
    percentages.
    """

    __slots__ = ("width_both",)

    def __init__(self, key: str, header: str, width: int = 0, *, width_both: int = 0) -> None:
        super().__init__(header, width, lambda row: row[key])
        self.width_both = width_both


_COMMON = {
    "cluster": ReportField("cluster", "Cluster", 9),
    "login": ReportField("login", "Login", 9),
    "proper": ReportField("proper", "Proper Name", 15),
    "trescount": ReportField("count", "TRES Count", 10),
    "tresname": ReportField("tres", "TRES Name", 14),
    "used": ReportField("used", "Used"),
}
_ENERGY = {"energy": ReportField("energy", "Energy")}
ACCOUNT_FIELDS = {"accounts": ReportField("account", "Account", 15), **_COMMON, **_ENERGY}
TREE_FIELDS = ACCOUNT_FIELDS | {"accounts": ReportField("account", "Account", -20)}
QOS_FIELDS = {
    **{name: field for name, field in ACCOUNT_FIELDS.items() if name not in ("login", "proper")},
    "qos": ReportField("qos", "QOS", 10),
}
WCKEY_FIELDS = {**_COMMON, "wckey": ReportField("wckey", "WCKey", 15)}
UTILIZATION_FIELDS = {
    "allocated": ReportField("allocated", "Allocated"),
    "cluster": ReportField("cluster", "Cluster", 9),
    "down": ReportField("down", "Down"),
    "idle": ReportField("idle", "Idle"),
    "overcommitted": ReportField("over", "Over Comm"),
    "planned": ReportField("planned", "Planned"),
    "planneddown": ReportField("planned_down", "PLND Down"),
    "pdown": ReportField("planned_down", "PLND Down"),
    "reported": ReportField("reported", "Reported"),
    "reserved": ReportField("planned", "Planned"),
    "trescount": ReportField("count", "TRES Count", 10),
    "tresname": ReportField("tres", "TRES Name", 14),
}

#: usage reports: (title, default columns, default columns with -T)
USAGE_REPORTS = {
    "AccountUtilizationByUser": (
        "Cluster/Account/User Utilization",
        "cluster,accounts,login,proper,used,energy",
        "cluster,accounts,login,proper,tresname,used",
    ),
    "AccountUtilizationByQOS": (
        "Cluster/Account/QOS Utilization",
        "cluster,accounts,qos,used,energy",
        "cluster,accounts,qos,tresname,used",
    ),
    "UserUtilizationByAccount": (
        "Cluster/User/Account Utilization",
        "cluster,login,proper,accounts,used,energy",
        "cluster,login,proper,accounts,tresname,used",
    ),
    "UserUtilizationByWckey": (
        "Cluster/User/WCKey Utilization",
        "cluster,login,proper,wckey,used",
        "cluster,login,proper,wckey,tresname,used",
    ),
    "WCKeyUtilizationByUser": (
        "Cluster/WCKey/User Utilization",
        "cluster,wckey,login,proper,used",
        "cluster,wckey,login,proper,tresname,used",
    ),
    "Utilization": (
        "Cluster Utilization",
        "cluster,allocated,down,planneddown,idle,planned,reported",
        "cluster,tresname,allocated,down,planneddown,idle,planned,reported",
    ),
    "TopUsage": (
        "Top {top} Users",
        "cluster,login,proper,accounts,used,energy",
        "cluster,login,proper,accounts,tresname,used",
    ),
}

SIZE_TITLES = {
    "SizesByAccount": "Job Sizes",
    "SizesByAccountAndWckey": "Job Sizes",
    "SizesByWckey": "Job Sizes by Wckey",
}
SIZE_FIELDS = {
    "SizesByAccount": {"account": ReportField("name", "Account", 9), "cluster": ReportField("cluster", "Cluster", 9)},
    "SizesByAccountAndWckey": {
        "account": ReportField("name", "Account", -20),
        "cluster": ReportField("cluster", "Cluster", 9),
    },
    "SizesByWckey": {"wckey": ReportField("name", "Wckey", 9), "cluster": ReportField("cluster", "Cluster", 9)},
}
SIZE_DEFAULTS = {
    "SizesByAccount": "cluster,account",
    "SizesByAccountAndWckey": "cluster,account",
    "SizesByWckey": "cluster,wckey",
}

RESERVATION_FIELDS = {
    "allocated": ReportField("allocated", "Allocated", 20, width_both=29),
    "associations": ReportField("holders", "Associations", 15),
    "cluster": ReportField("cluster", "Cluster", 9),
    "end": ReportField("end", "End", 19),
    "flags": ReportField("flags", "Flags", 20),
    "idle": ReportField("idle", "Idle", 20, width_both=29),
    "name": ReportField("name", "Name", 9),
    "nodes": ReportField("nodes", "Nodes", 15),
    "reservationid": ReportField("id", "Id", 8),
    "start": ReportField("start", "Start", 19),
    "totaltime": ReportField("seconds", "TotalTime", 9),
    "trescount": ReportField("count", "TRES count", 10),
    "tresname": ReportField("tres", "TRES Name", 14),
    "trestime": ReportField("time", "TRES Time", 9),
}
RESERVATION_DEFAULT = "cluster,name,start,end,tresname,allocated,idle"


def columns_of(text: str, fields: Mapping[str, ReportField]) -> list[TableColumn]:
    """`login%20,used`: a width applies only to columns without amounts. Raises UnknownField."""
    columns = parse_columns(text, fields)
    for column in columns:
        assert isinstance(column.field, ReportField)
        if not column.width or not column.field.width or column.field.width_both:
            column.width = column.field.width
    return columns


def table_text(columns: Sequence[TableColumn], rows: Sequence[Row], unit: Unit, *, header: bool, parsable: int) -> str:
    """Headings and rows. `parsable`: see `table.Table`."""
    values = [[column.field.render(row) for column in columns] for row in rows]
    sized = [
        TableColumn(column.field, _width(column, [row[place] for row in values], unit))
        for place, column in enumerate(columns)
    ]
    table = Table(sized, parsable)
    lines = [table.head()] if header else []
    for row in values:
        texts = []
        for column, value in zip(sized, row, strict=True):
            if isinstance(value, Amount):
                # Slurm prints amounts as numbers, which are cut without a mark.
                texts.append(unit.text(value)[: None if parsable else column.width])
            else:
                texts.append(str(value))
        lines.append(table.line(texts))
    return "".join(lines)


def _width(column: TableColumn, values: Sequence[object], unit: Unit) -> int:
    field, both = column.field, unit.percent == "too"
    assert isinstance(field, ReportField)
    if column.width:
        return field.width_both if both and field.width_both else column.width
    largest = max((value.value for value in values if isinstance(value, Amount)), default=0)
    return max(17, len(f"{largest:.0f}") + 9) if both else max(8, len(f"{largest:.0f}"))
