"""One row for all of a holder's usage in a span; jobs by size by day and month; the time up to which records were
purged.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0009"
down_revision = "0008"

_OPTIONS: Any = {
    f"{kind}_{name}": value
    for kind in ("mysql", "mariadb")
    for name, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_bin"), ("engine", "InnoDB"))
}

_LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")

#: joins rows with a TRES each into `cpu=3600,mem=14400000`
_TOGETHER = {
    "sqlite": "group_concat(tres || '=' || seconds)",
    "postgresql": "string_agg(tres || '=' || seconds, ',')",
    "mysql": "group_concat(concat(tres, '=', seconds))",
    "mariadb": "group_concat(concat(tres, '=', seconds))",
}


def _span() -> list[sa.Column[Any]]:
    return [
        sa.Column("cluster_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("period", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.BigInteger(), autoincrement=False, nullable=False),
    ]


def upgrade() -> None:
    """Existing usage is converted, not recomputed: its records may be gone."""
    op.create_table(
        "holder_usage",
        *_span(),
        sa.Column("holder_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tres", _LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "period", "started_at", "holder_id"),
        **_OPTIONS,
    )
    if sa.inspect(op.get_bind()).has_table("usage"):  # else an interrupted upgrade of MariaDB got past this point
        _take_over()
    op.create_table(
        "job_sizes",
        *_span(),
        sa.Column("account", sa.String(length=120), nullable=False),
        sa.Column("wckey", sa.String(length=120), nullable=False),
        sa.Column("partition", sa.String(length=120), nullable=False),
        sa.Column("cpus", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("running", sa.BigInteger(), nullable=False),
        sa.Column("begun", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.BigInteger(), nullable=False),
        sa.Column("used", _LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "period", "started_at", "account", "wckey", "partition", "cpus"),
        **_OPTIONS,
    )
    for name in ("sizes_since", "purged_until"):
        op.add_column("clusters", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE clusters SET sizes_since = rolled_until")
    op.create_index("jobs_by_life", "jobs", ["cluster_id", "ended_at", "started_at", "eligible_at"])
    op.drop_index("jobs_by_end", "jobs")


def _take_over() -> None:
    dialect = op.get_bind().dialect
    if dialect.name in ("mysql", "mariadb"):
        op.execute("SET SESSION group_concat_max_len = 1000000")
    key = "cluster_id, period, started_at, holder_id"
    old = dialect.identifier_preparer.quote("usage")
    op.execute("DELETE FROM holder_usage")
    op.execute(
        f"INSERT INTO holder_usage ({key}, tres) SELECT {key}, {_TOGETHER[dialect.name]} FROM {old} GROUP BY {key}"
    )
    op.drop_table("usage")
