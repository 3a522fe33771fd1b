"""Preemption between QOS, and guarantees of accounts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision = "0003"

_LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """Empty columns first: MariaDB gives long texts no default."""
    for table, name, kind, empty in (
        ("qos", "preempt", _LONG_TEXT, ""),
        ("qos", "preempt_mode", sa.String(120), ""),
        ("qos", "preempt_exempt_seconds", sa.BigInteger(), None),
        ("qos", "grace_seconds", sa.BigInteger(), 0),
        ("associations", "guarantee", _LONG_TEXT, ""),
        ("associations", "reclaim_after", sa.BigInteger(), None),
    ):
        op.add_column(table, sa.Column(name, kind, nullable=True))
        if empty is not None:
            op.execute(sa.table(table, sa.column(name)).update().values({name: empty}))
            with op.batch_alter_table(table) as batch:
                batch.alter_column(name, existing_type=kind, nullable=False)
