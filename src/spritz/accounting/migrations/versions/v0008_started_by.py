"""The scheduler pass that started a job, and its association; resources and their shares per cluster; names of TRES."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0008"
down_revision = "0007"

_OPTIONS: Any = {
    f"{kind}_{name}": value
    for kind in ("mysql", "mariadb")
    for name, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_bin"), ("engine", "InnoDB"))
}
_LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """Jobs that are stored already get "" and 0, which mean unknown."""
    op.add_column("jobs", sa.Column("scheduler", sa.String(length=255), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("association_id", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "resources",
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("server", sa.String(length=120), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("description", _LONG_TEXT, nullable=False),
        sa.Column("server_type", sa.String(length=120), nullable=False),
        sa.PrimaryKeyConstraint("name", "server"),
        **_OPTIONS,
    )
    op.create_table(
        "resource_shares",
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("server", sa.String(length=120), nullable=False),
        sa.Column("cluster", sa.String(length=120), nullable=False),
        sa.Column("percent", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "server", "cluster"),
        **_OPTIONS,
    )
    op.create_table(
        "tres",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        **_OPTIONS,
    )
