"""Association tables: accounts, users, coordinators, wckeys, associations, QOS, and transactions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"

_OPTIONS: Any = {
    f"{kind}_{name}": value
    for kind in ("mysql", "mariadb")
    for name, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_bin"), ("engine", "InnoDB"))
}

_LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("name", sa.String(120), autoincrement=False, nullable=False),
        sa.Column("description", _LONG_TEXT, nullable=False),
        sa.Column("organization", _LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name"),
        **_OPTIONS,
    )
    op.create_table(
        "users",
        sa.Column("name", sa.String(120), autoincrement=False, nullable=False),
        sa.Column("admin", sa.String(120), nullable=False),
        sa.Column("default_wckey", sa.String(120), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        **_OPTIONS,
    )
    op.create_table(
        "coordinators",
        sa.Column("account", sa.String(120), autoincrement=False, nullable=False),
        sa.Column("user", sa.String(120), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("account", "user"),
        **_OPTIONS,
    )
    op.create_table(
        "wckeys",
        sa.Column("cluster", sa.String(120), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(120), autoincrement=False, nullable=False),
        sa.Column("user", sa.String(120), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name", "user"),
        **_OPTIONS,
    )
    op.create_table(
        "associations",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cluster", sa.String(120), nullable=False),
        sa.Column("account", sa.String(120), nullable=False),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("partition", sa.String(120), nullable=False),
        sa.Column("parent", sa.String(120), nullable=False),
        sa.Column("shares", sa.BigInteger(), nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=True),
        sa.Column("grp_jobs", sa.BigInteger(), nullable=True),
        sa.Column("grp_submit", sa.BigInteger(), nullable=True),
        sa.Column("grp_tres", _LONG_TEXT, nullable=False),
        sa.Column("max_jobs", sa.BigInteger(), nullable=True),
        sa.Column("max_submit", sa.BigInteger(), nullable=True),
        sa.Column("max_tres", _LONG_TEXT, nullable=False),
        sa.Column("max_tres_per_node", _LONG_TEXT, nullable=False),
        sa.Column("max_wall", sa.BigInteger(), nullable=True),
        sa.Column("default_qos", sa.String(120), nullable=False),
        sa.Column("qos", _LONG_TEXT, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        **_OPTIONS,
    )
    op.create_table(
        "qos",
        sa.Column("name", sa.String(120), autoincrement=False, nullable=False),
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("description", _LONG_TEXT, nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("flags", _LONG_TEXT, nullable=False),
        sa.Column("grp_jobs", sa.BigInteger(), nullable=True),
        sa.Column("grp_submit", sa.BigInteger(), nullable=True),
        sa.Column("grp_tres", _LONG_TEXT, nullable=False),
        sa.Column("max_tres_pj", _LONG_TEXT, nullable=False),
        sa.Column("max_tres_pn", _LONG_TEXT, nullable=False),
        sa.Column("max_tres_pu", _LONG_TEXT, nullable=False),
        sa.Column("max_tres_pa", _LONG_TEXT, nullable=False),
        sa.Column("max_jobs_pu", sa.BigInteger(), nullable=True),
        sa.Column("max_jobs_pa", sa.BigInteger(), nullable=True),
        sa.Column("max_submit_pu", sa.BigInteger(), nullable=True),
        sa.Column("max_submit_pa", sa.BigInteger(), nullable=True),
        sa.Column("max_wall", sa.BigInteger(), nullable=True),
        sa.Column("min_tres_pj", _LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name"),
        **_OPTIONS,
    )
    op.create_table(
        "book",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        **_OPTIONS,
    )
    op.create_table(
        "transactions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("action", sa.String(120), nullable=False),
        sa.Column("actor", sa.String(120), nullable=False),
        sa.Column("where", _LONG_TEXT, nullable=False),
        sa.Column("info", _LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        **_OPTIONS,
    )
