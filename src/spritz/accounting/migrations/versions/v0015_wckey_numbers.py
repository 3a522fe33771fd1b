"""Wckeys have numbers, as `sacctmgr list wckeys format=id` shows them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Existing wckeys are numbered in the order of their creation."""
    op.add_column("wckeys", sa.Column("id", sa.BigInteger(), nullable=False, server_default="0"))
    table = sa.table("wckeys", *(sa.column(name) for name in ("cluster", "name", "user", "created_at", "id")))
    keys = (table.c.cluster, table.c.name, table.c.user)
    connection = op.get_bind()
    rows = connection.execute(sa.select(*keys).order_by(table.c.created_at, *keys)).all()
    for number, row in enumerate(rows, 1):
        mine = sa.and_(*(key == value for key, value in zip(keys, row, strict=True)))
        connection.execute(sa.update(table).where(mine).values(id=number))
