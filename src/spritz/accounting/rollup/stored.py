"""Stored sums of jobs by size, by day and month. `sizes` says what the numbers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from spritz.accounting import schema
from spritz.accounting.rollup.amounts import add_text
from spritz.accounting.rollup.sizes import Size, Sum, Sums

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

_FETCH = 2_000


def sizes_within(
    connection: Connection, cluster_id: int, period: int, first: int, after: int, *conditions: ColumnElement[bool]
) -> Sums:
    """Days or months from `first` to before `after`, summed to one span."""
    table = schema.job_sizes.c
    rows = connection.execute(
        select(
            *(table.started_at, table.account, table.wckey, table.partition, table.cpus),
            *(table.running, table.begun, table.seconds, table.used),
        ).where(
            table.cluster_id == cluster_id,
            table.period == period,
            table.started_at >= first,
            table.started_at < after,
            *conditions,
        )
    )
    sums: Sums = {}
    for part in rows.partitions(_FETCH):
        for began, account, wckey, partition, cpus, running, begun, seconds, used in part:
            total = sums.setdefault(Size(account, wckey, partition, cpus), Sum())
            total.running += running if began == first else 0
            total.begun += begun
            total.seconds += seconds
            add_text(total.used, used)
    return sums
