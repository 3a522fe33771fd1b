"""The MCS label of a job, and the number of its reservation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0010"


def upgrade() -> None:
    """Jobs that are stored already get "" and 0, which mean unknown."""
    op.add_column("jobs", sa.Column("mcs_label", sa.String(length=255), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("reservation_id", sa.BigInteger(), nullable=False, server_default="0"))
