"""Association tables: one column for each field of the records in `model.limits.records`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, Select, String, Table, false, select
from sqlalchemy.types import TypeEngine

from spritz.accounting.schema import LONG_TEXT, OPTIONS, metadata
from spritz.model.limits import records

if TYPE_CHECKING:
    from msgspec import Struct

#: Long texts without an index; other texts are names.
_LONG = frozenset(
    {"description", "organization", "qos", "flags", "grp_tres", "max_tres", "max_tres_per_node", "info", "where"}
    | {"preempt", "guarantee", "max_tres_pj", "max_tres_pn", "max_tres_pu", "max_tres_pa", "min_tres_pj"}
    | {"grp_tres_mins", "grp_tres_run_mins", "max_tres_mins", "max_tres_mins_pj"}
    | {"max_tres_run_mins_pu", "max_tres_run_mins_pa", "features"}
)

#: Longest name, characters.
NAME_LENGTH = 120


def _column(name: str, hint: Any, keys: tuple[str, ...]) -> Column[Any]:
    members = get_args(hint) or (hint,)
    kind: TypeEngine[Any]
    if bool in members:
        kind = Boolean()
    elif float in members:
        kind = Double()
    elif int in members:
        kind = BigInteger()
    else:
        kind = LONG_TEXT if name in _LONG else String(NAME_LENGTH)
    return Column(name, kind, primary_key=name in keys, nullable=type(None) in members, autoincrement=False)


def _table(name: str, record: type[Struct], *keys: str, kept: bool = True) -> Table:
    """`kept`: deleted records stay, marked (`associations.deleted`)."""
    hints = get_type_hints(record)
    columns = [_column(field, hints[field], keys) for field in record.__struct_fields__]
    if kept:
        columns.append(Column("deleted", Boolean, nullable=False, server_default=false()))
        columns.append(Column("created_at", Double, nullable=False, server_default="0", info={"once": True}))
    return Table(name, metadata, *columns, **OPTIONS)


#: For each record type, the columns that identify a record.
KEYS: dict[type[records.Record], tuple[str, ...]] = {
    records.Account: ("name",),
    records.User: ("name",),
    records.Coordinator: ("account", "user"),
    records.WcKey: ("cluster", "name", "user"),
    records.Association: ("id",),
    records.Qos: ("name",),
    records.Resource: ("name", "server"),
    records.ResourceShare: ("name", "server", "cluster"),
    records.Federation: ("name",),
    records.FederationMember: ("cluster",),
}
TABLES: dict[type[records.Record], Table] = {
    records.Account: _table("accounts", records.Account, "name"),
    records.User: _table("users", records.User, "name"),
    records.Coordinator: _table("coordinators", records.Coordinator, "account", "user", kept=False),
    records.WcKey: _table("wckeys", records.WcKey, "cluster", "name", "user"),
    records.Association: _table("associations", records.Association, "id"),
    records.Qos: _table("qos", records.Qos, "name"),
    records.Resource: _table("resources", records.Resource, "name", "server"),
    records.ResourceShare: _table("resource_shares", records.ResourceShare, "name", "server", "cluster"),
    records.Federation: _table("federations", records.Federation, "name", kept=False),
    records.FederationMember: _table("federation_members", records.FederationMember, "cluster", kept=False),
}
#: one row: the number of edits so far, and the last number given out
book = Table(
    "book",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("last_id", BigInteger, nullable=False),
    **OPTIONS,
)
#: names of TRES that controllers count
tres = Table(
    "tres",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", String(NAME_LENGTH), nullable=False, unique=True),
    **OPTIONS,
)
transactions = Table(
    "transactions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    *(
        _column(field, get_type_hints(records.Transaction)[field], ())
        for field in records.Transaction.__struct_fields__
    ),
    **OPTIONS,
)


def records_of(kind: type[records.Record]) -> Select[Any]:
    """A query for the columns of a record type."""
    return select(*(TABLES[kind].c[name] for name in kind.__struct_fields__))
