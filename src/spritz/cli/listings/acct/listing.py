"""The output of sacct and sstat: a heading and a line for each row, as the rows come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.options import Fatal
from spritz.presentation.accounting.accounting_fields import FIELDS
from spritz.presentation.table import Table, TableColumn, parse_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.cli.call.context import Context
    from spritz.presentation.accounting.accounting_row import Row
    from spritz.presentation.accounting.accounting_style import Style
    from spritz.presentation.table import TableField


class RowListing:
    """Prints rows as they come. `style`: how values are shown."""

    def __init__(self, table: Table, style: Style, context: Context) -> None:
        self._table = table
        self._style = style
        self._context = context

    def asks(self, name: str) -> bool:
        """Whether a field is among its columns."""
        return any(column.field.header == name for column in self._table.columns)

    def know_qos(self, numbers: Mapping[str, int]) -> None:
        """Set QOS names by id, which the field QOSRAW prints as numbers."""
        self._style.qos_numbers = numbers

    def header(self) -> None:
        """Print the headings, with dashes below unless the output is parsable."""
        self._context.out(self._table.head())

    def row(self, row: Row) -> None:
        self._context.out(self._table.row(row, self._style))


#: fields of sacct that Slurm has removed, and those that replace them
_REMOVED = {"allocgres": ("AllocGRES", "AllocTRES"), "reqgres": ("ReqGRES", "ReqTRES")}


def columns_of(text: str, fields: Mapping[str, TableField] = FIELDS) -> list[TableColumn]:
    """The columns of `--format`; `all` stands for every field. Raises UnknownField, or Fatal for a removed field."""
    columns = []
    for item in text.split(","):
        if item.strip().lower() == "all":
            columns += [TableColumn(field, field.width) for field in fields.values()]
        elif fields is FIELDS and (removed := _REMOVED.get(item.partition("%")[0].strip().lower())):
            raise Fatal(f"{removed[0]} has been removed, please use {removed[1]}")
        else:
            columns += parse_columns(item, fields)
    return columns
