"""What was deleted from the book stays where jobs of it may have run, marked; and since when there is what is there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_TABLES = ("accounts", "users", "wckeys", "associations", "qos", "resources", "resource_shares")


def upgrade() -> None:
    """What is there is taken for old, so that its deletion leaves it behind."""
    for table in _TABLES:
        op.add_column(table, sa.Column("deleted", sa.Boolean(), nullable=False, server_default=sa.false()))
        op.add_column(table, sa.Column("created_at", sa.Double(), nullable=False, server_default="0"))
