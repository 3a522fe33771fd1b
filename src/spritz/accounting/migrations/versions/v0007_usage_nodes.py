"""What steps used on each of several nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """A column that may be empty: tables of steps are long, and none is written anew."""
    op.add_column("steps", sa.Column("usage_nodes", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")))
