"""Usage by hour, day and month; reservations; resources of each node."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"

_OPTIONS: Any = {
    f"{kind}_{name}": value
    for kind in ("mysql", "mariadb")
    for name, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_bin"), ("engine", "InnoDB"))
}

_LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def _span() -> list[sa.Column[Any]]:
    return [
        sa.Column("cluster_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("period", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.BigInteger(), autoincrement=False, nullable=False),
    ]


def upgrade() -> None:
    op.add_column("clusters", sa.Column("rolled_until", sa.BigInteger(), nullable=False, server_default="0"))
    # A long text may have no default in MariaDB: first without a value, then with one.
    op.add_column("node_events", sa.Column("node_tres", _LONG_TEXT, nullable=True))
    op.execute("UPDATE node_events SET node_tres = ''")
    with op.batch_alter_table("node_events", table_kwargs=_OPTIONS) as batch:
        batch.alter_column("node_tres", existing_type=_LONG_TEXT, nullable=False)
    op.create_table(
        "reservations",
        sa.Column("cluster_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("reservation_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("nodes", _LONG_TEXT, nullable=False),
        sa.Column("tres", _LONG_TEXT, nullable=False),
        sa.Column("flags", _LONG_TEXT, nullable=False),
        sa.Column("users", _LONG_TEXT, nullable=False),
        sa.Column("accounts", _LONG_TEXT, nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "number"),
        **_OPTIONS,
    )
    op.create_index("reservations_by_end", "reservations", ["cluster_id", "ended_at"])
    op.create_table(
        "usage_holders",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster_id", sa.Integer(), nullable=False),
        sa.Column("account", sa.String(length=120), nullable=False),
        sa.Column("user", sa.String(length=120), nullable=False),
        sa.Column("wckey", sa.String(length=120), nullable=False),
        sa.Column("qos", sa.String(length=120), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        **_OPTIONS,
    )
    op.create_index(
        "usage_holders_by_name", "usage_holders", ["cluster_id", "account", "user", "wckey", "qos"], unique=True
    )
    op.create_table(
        "usage",
        *_span(),
        sa.Column("holder_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tres", sa.String(length=64), nullable=False),
        sa.Column("seconds", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "period", "started_at", "holder_id", "tres"),
        **_OPTIONS,
    )
    op.create_table(
        "cluster_usage",
        *_span(),
        sa.Column("tres", sa.String(length=64), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("allocated", sa.BigInteger(), nullable=False),
        sa.Column("down", sa.BigInteger(), nullable=False),
        sa.Column("planned_down", sa.BigInteger(), nullable=False),
        sa.Column("idle", sa.BigInteger(), nullable=False),
        sa.Column("planned", sa.BigInteger(), nullable=False),
        sa.Column("over", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "period", "started_at", "tres"),
        **_OPTIONS,
    )
