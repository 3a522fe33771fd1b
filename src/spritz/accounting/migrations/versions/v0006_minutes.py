"""Limits on TRES minutes, wall-clock time and jobs that accrue age; usage factors and thresholds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"

_LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
_NUMBER: sa.Double[float] = sa.Double()
_COUNT = sa.BigInteger()


def upgrade() -> None:
    """Empty columns first: MariaDB gives long texts no default."""
    for table, name, kind, empty in (
        ("associations", "grp_tres_mins", _LONG_TEXT, ""),
        ("associations", "grp_tres_run_mins", _LONG_TEXT, ""),
        ("associations", "grp_wall", _COUNT, None),
        ("associations", "max_tres_mins", _LONG_TEXT, ""),
        ("associations", "grp_jobs_accrue", _COUNT, None),
        ("associations", "max_jobs_accrue", _COUNT, None),
        ("associations", "min_prio_threshold", _COUNT, None),
        ("qos", "usage_factor", _NUMBER, 1.0),
        ("qos", "usage_threshold", _NUMBER, None),
        ("qos", "limit_factor", _NUMBER, None),
        ("qos", "grp_tres_mins", _LONG_TEXT, ""),
        ("qos", "grp_tres_run_mins", _LONG_TEXT, ""),
        ("qos", "grp_wall", _COUNT, None),
        ("qos", "max_tres_mins_pj", _LONG_TEXT, ""),
        ("qos", "max_tres_run_mins_pu", _LONG_TEXT, ""),
        ("qos", "max_tres_run_mins_pa", _LONG_TEXT, ""),
        ("qos", "grp_jobs_accrue", _COUNT, None),
        ("qos", "max_jobs_accrue_pu", _COUNT, None),
        ("qos", "max_jobs_accrue_pa", _COUNT, None),
        ("qos", "min_prio_threshold", _COUNT, None),
    ):
        op.add_column(table, sa.Column(name, kind, nullable=True))
        if empty is not None:
            op.execute(sa.table(table, sa.column(name)).update().values({name: empty}))
            with op.batch_alter_table(table) as batch:
                batch.alter_column(name, existing_type=kind, nullable=False)
