"""Federations and their member clusters."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0017"
down_revision = "0016"

_OPTIONS: Any = {
    f"{kind}_{name}": value
    for kind in ("mysql", "mariadb")
    for name, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_bin"), ("engine", "InnoDB"))
}
_LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    op.create_table("federations", sa.Column("name", sa.String(length=120), primary_key=True), **_OPTIONS)
    op.create_table(
        "federation_members",
        sa.Column("cluster", sa.String(length=120), primary_key=True),
        sa.Column("federation", sa.String(length=120), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("state", sa.String(length=120), nullable=False),
        sa.Column("features", _LONG_TEXT, nullable=False),
        **_OPTIONS,
    )
