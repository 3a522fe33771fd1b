"""The tables, one column for each field of the records in `model.accounting.records`.

Describes a database of this release; `migrations/` creates it, and a test compares the two. Names that are compared or
indexed are short and compared byte by byte on every kind of database; other texts have no practical bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from spritz.model.accounting.records import (
    JobRecord,
    NodeEventRecord,
    ReasonRecord,
    ReservationRecord,
    StepRecord,
    SuspensionRecord,
)

if TYPE_CHECKING:
    from msgspec import Struct
    from sqlalchemy import Connection

#: The newest script of `migrations/versions`, which leads to these tables.
REVISION = "0017"

metadata = MetaData()

#: MariaDB's TEXT ends at 64 KiB.
LONG_TEXT = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
BLOB = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
#: MariaDB's default ignores case, and its latin1 cannot hold every name.
_OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}
_OPTIONS |= {key.replace("mysql", "mariadb"): value for key, value in _OPTIONS.items()}
OPTIONS = _OPTIONS

#: Texts used in conditions and indexes.
_SHORT = frozenset(
    {"user", "group", "account", "qos", "wckey", "partition", "reservation", "name", "state", "reason", "failed_node"}
    | {"script_key", "environment_key", "sharing", "layout", "node", "scheduler", "mcs_label"}
)


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
        kind = String(255) if name in _SHORT else LONG_TEXT
    return Column(name, kind, primary_key=name in keys, nullable=type(None) in members, autoincrement=False)


def _table(name: str, record: type[Struct], *keys: str, leave_out: tuple[str, ...] = ()) -> Table:
    hints = get_type_hints(record)
    columns = [_column(field, hints[field], keys) for field in record.__struct_fields__ if field not in leave_out]
    return Table(
        name, metadata, Column("cluster_id", Integer, primary_key=True, autoincrement=False), *columns, **_OPTIONS
    )


clusters = Table(
    "clusters",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", String(255), nullable=False, unique=True),
    #: added to the journal's sequence numbers to get places
    Column("base", BigInteger, nullable=False),
    #: the journal that sequence numbers refer to, and the last stored one
    Column("journal", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("host", String(255), nullable=False),
    Column("port", Integer, nullable=False),
    Column("version", String(255), nullable=False),
    Column("store", String(255), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("registered_at", Double, nullable=False),
    #: number of events that the controller had dropped before they were stored
    Column("lost", BigInteger, nullable=False),
    #: usage is rolled up to this time (0: not at all); a late event rewinds it
    Column("rolled_until", BigInteger, nullable=False, server_default="0"),
    #: jobs by size are known from the first day that begins at or after this time
    Column("sizes_since", BigInteger, nullable=False, server_default="0"),
    #: records that ended before were purged: usage of that time is final
    Column("purged_until", BigInteger, nullable=False, server_default="0"),
    **_OPTIONS,
)

jobs = _table("jobs", JobRecord, "number", leave_out=("cluster",))
steps = _table("steps", StepRecord, "number", "step_id")
pending_reasons = _table("pending_reasons", ReasonRecord, "number", "place")
suspensions = _table("suspensions", SuspensionRecord, "number", "started_at")
node_events = _table("node_events", NodeEventRecord, "place")
reservations = _table("reservations", ReservationRecord, "number")
documents = Table(
    "documents", metadata, Column("key", String(64), primary_key=True), Column("body", BLOB, nullable=False), **_OPTIONS
)

# Events that the database could not store, kept whole so that a later release may repair them.
events_set_aside = Table(
    "events_set_aside",
    metadata,
    Column("cluster_id", Integer, primary_key=True, autoincrement=False),
    Column("place", BigInteger, primary_key=True, autoincrement=False),
    #: when it was set aside
    Column("at", Double, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("error", LONG_TEXT, nullable=False),
    #: the event (of a saved state: the job), a stored value (model.stored)
    Column("body", BLOB, nullable=False),
    **_OPTIONS,
)

Index("jobs_by_id", jobs.c.cluster_id, jobs.c.job_id, jobs.c.number)
Index("jobs_by_array", jobs.c.cluster_id, jobs.c.array_job_id)
Index("jobs_by_het", jobs.c.cluster_id, jobs.c.het_job_id)
Index("jobs_by_user", jobs.c.cluster_id, jobs.c.uid, jobs.c.ended_at)
Index("jobs_by_account", jobs.c.cluster_id, jobs.c.account, jobs.c.ended_at)
# A job that lived at some time ended after it and began before it: the index alone finds both.
Index("jobs_by_life", jobs.c.cluster_id, jobs.c.ended_at, jobs.c.started_at, jobs.c.eligible_at)
# finds the documents that jobs still refer to
Index("jobs_by_script", jobs.c.script_key)
Index("jobs_by_environment", jobs.c.environment_key)
Index("steps_open", steps.c.cluster_id, steps.c.job_id, steps.c.ended_at)
Index("node_events_open", node_events.c.cluster_id, node_events.c.ended_at)
Index("reservations_by_end", reservations.c.cluster_id, reservations.c.ended_at)

# Usage of clusters, associations and wckeys by hour, day and month (`rollup`).
#: the holder of a charge: an account, a user of it ("": reserved time of the account), a wckey, a QOS
usage_holders = Table(
    "usage_holders",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("cluster_id", Integer, nullable=False),
    *(Column(name, String(120), nullable=False) for name in ("account", "user", "wckey", "qos")),
    **_OPTIONS,
)
Index(
    "usage_holders_by_name",
    *(usage_holders.c[name] for name in ("cluster_id", "account", "user", "wckey", "qos")),
    unique=True,
)
_SPAN = (
    ("cluster_id", Integer),
    #: `rollup.spans`: 0 an hour, 1 a day, 2 a month
    ("period", Integer),
    ("started_at", BigInteger),
)
holder_usage = Table(
    "holder_usage",
    metadata,
    *(Column(name, kind, primary_key=True, autoincrement=False) for name, kind in _SPAN),
    Column("holder_id", Integer, primary_key=True, autoincrement=False),
    #: TRES count times seconds; memory in MiB (`rollup.amounts`)
    Column("tres", LONG_TEXT, nullable=False),
    **_OPTIONS,
)
cluster_usage = Table(
    "cluster_usage",
    metadata,
    *(Column(name, kind, primary_key=True, autoincrement=False) for name, kind in _SPAN),
    Column("tres", String(64), primary_key=True),
    Column("count", BigInteger, nullable=False),
    *(
        Column(name, BigInteger, nullable=False)
        for name in ("allocated", "down", "planned_down", "idle", "planned", "over")
    ),
    **_OPTIONS,
)
# Jobs by size, by day and month (`rollup.sizes`).
job_sizes = Table(
    "job_sizes",
    metadata,
    *(Column(name, kind, primary_key=True, autoincrement=False) for name, kind in _SPAN),
    Column("account", String(120), primary_key=True),
    Column("wckey", String(120), primary_key=True),
    Column("partition", String(120), primary_key=True),
    Column("cpus", BigInteger, primary_key=True, autoincrement=False),
    #: jobs that ran at its beginning, and jobs that began in it
    Column("running", BigInteger, nullable=False),
    Column("begun", BigInteger, nullable=False),
    #: their total run time; TRES count times seconds
    Column("seconds", BigInteger, nullable=False),
    Column("used", LONG_TEXT, nullable=False),
    **_OPTIONS,
)


def revision(connection: Connection) -> str | None:
    """The revision of a database, as Alembic notes it; None for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision
