"""Usage of steps by node."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """The column may be empty: step tables are long, and are not rewritten."""
    op.add_column("steps", sa.Column("usage_nodes", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")))
