"""Marks for deleted association records that jobs may have used, and the time at which records were created."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_TABLES = ("accounts", "users", "wckeys", "associations", "qos", "resources", "resource_shares")


def upgrade() -> None:
    """Existing records count as old, so deleting them leaves a mark."""
    for table in _TABLES:
        op.add_column(table, sa.Column("deleted", sa.Boolean(), nullable=False, server_default=sa.false()))
        op.add_column(table, sa.Column("created_at", sa.Double(), nullable=False, server_default="0"))
