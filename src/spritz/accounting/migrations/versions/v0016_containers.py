"""The OCI bundle of a job and of a step."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0016"
down_revision = "0015"

_LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """Unknown for older jobs. The columns may be empty: not every database allows a default for a text."""
    for table in ("jobs", "steps"):
        op.add_column(table, sa.Column("container", _LONG_TEXT, nullable=True))
