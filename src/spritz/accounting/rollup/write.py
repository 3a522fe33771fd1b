"""Writes the usage of a piece of time: its hours, and the days and months that end in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from sqlalchemy import delete, func, insert, literal, select

from spritz.accounting import schema, spans
from spritz.accounting.rollup.amounts import Amounts, add, add_text, text_of
from spritz.accounting.rollup.hours import Holder
from spritz.accounting.rollup.stored import sizes_within
from spritz.accounting.upsert import Inserter

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from spritz.accounting.rollup.hours import Pairs, Window
    from spritz.accounting.rollup.sizes import Days, Sums
    from spritz.model.accounting.records import NodeEventRecord


class Piece:
    """Hours from `start` to `end` of one cluster. Replaces the rows of these hours, and of days and months that end in
    them.
    """

    def __init__(self, connection: Connection, cluster_id: int, start: int, end: int) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        self._start = start
        self._end = end

    def _forget(self, table: Table, period: int, first: int, after: int) -> None:
        column = table.c
        self._connection.execute(
            delete(table).where(
                column.cluster_id == self._cluster_id,
                column.period == period,
                column.started_at >= first,
                column.started_at < after,
            )
        )

    def _ending(self, period: int) -> Iterator[tuple[int, int]]:
        """Days or months that end in the piece: their beginnings and ends."""
        first = spans.floor(period, self._start)
        while (after := spans.following(period, first)) <= self._end:
            yield first, after
            first = after

    # Usage by association and wckey

    def write_holders(self, window: Window) -> None:
        """Write the window's usage by holder. Hours are added up to days here; months are made of days."""
        table = schema.holder_usage
        numbers = Holders(self._connection, self._cluster_id)
        rows = Inserter(self._connection, table)
        self._forget(table, spans.HOUR, self._start, self._end)
        ending = list(self._ending(spans.DAY))
        for first, after in ending:
            self._forget(table, spans.DAY, first, after)
        days = iter(ending)
        first, after = next(days, (0, 0))
        # Hours of that day which earlier pieces wrote.
        day = _Day(self._stored(spans.HOUR, first, self._start) if first < self._start and after else {})
        for hour in window.hours:
            while after and hour >= after:
                self._write_sums(rows, spans.DAY, first, day.sums(window, numbers))
                day = _Day({})
                first, after = next(days, (0, 0))
            counted, amounts_uncounted = window.counted(hour), window.uncounted(hour)
            if after:
                day.add(counted, amounts_uncounted)
            sums = {
                numbers.of(holder): amounts for holder, amounts in window.expanded(counted, amounts_uncounted).items()
            }
            self._write_sums(rows, spans.HOUR, hour, sums)
        if after:
            self._write_sums(rows, spans.DAY, first, day.sums(window, numbers))
        rows.flush()
        for first, after in self._ending(spans.MONTH):
            self._forget(table, spans.MONTH, first, after)
            self._write_sums(rows, spans.MONTH, first, self._stored(spans.DAY, first, after))
        rows.flush()

    def _stored(self, period: int, first: int, after: int) -> dict[int, Amounts]:
        column = schema.holder_usage.c
        rows = self._connection.execute(
            select(column.holder_id, column.tres).where(
                column.cluster_id == self._cluster_id,
                column.period == period,
                column.started_at >= first,
                column.started_at < after,
            )
        )
        sums: dict[int, Amounts] = {}
        for number, text in rows:
            add_text(sums.setdefault(number, {}), text)
        return sums

    def _write_sums(self, rows: Inserter, period: int, first: int, sums: dict[int, Amounts]) -> None:
        for number, amounts in sums.items():
            rows.add((self._cluster_id, period, first, number, text_of(amounts)))

    # Usage of the cluster

    def write_cluster(
        self,
        window: Window,
        configured: list[NodeEventRecord],
        trouble: list[NodeEventRecord],
        by_node: dict[str, Pairs],
    ) -> None:
        """Write the state of the cluster's resources, given the records of the cluster and of its nodes."""
        table = schema.cluster_usage
        self._forget(table, spans.HOUR, self._start, self._end)
        rows = Inserter(self._connection, table)
        for hour in window.hours:
            for usage in window.cluster(hour, configured, trouble, by_node):
                known = {"cluster_id": self._cluster_id, "period": spans.HOUR, "started_at": hour, **asdict(usage)}
                rows.add(tuple(known[name][:64] if name == "tres" else known[name] for name in rows.columns))
        rows.flush()
        for period, below in ((spans.DAY, spans.HOUR), (spans.MONTH, spans.DAY)):
            for first, after in self._ending(period):
                self._forget(table, period, first, after)
                self._sum_up_cluster(period, below, first, after)

    def _sum_up_cluster(self, period: int, below: int, first: int, after: int) -> None:
        table = schema.cluster_usage
        column = table.c
        names = ["cluster_id", "period", "started_at", "tres"]
        sums = [measure for measure in column if measure.name not in names]
        totals: list[Any] = [func.max(measure) if measure.name == "count" else func.sum(measure) for measure in sums]
        query = (
            select(literal(self._cluster_id), literal(period), literal(first), column.tres, *totals)
            .where(column.cluster_id == self._cluster_id, column.period == below)
            .where(column.started_at >= first, column.started_at < after)
            .group_by(column.tres)
        )
        self._connection.execute(insert(table).from_select([*names, *(measure.name for measure in sums)], query))

    # Jobs by size

    def write_sizes(self, days: Days) -> None:
        """Write the jobs of the days that end in the piece, and of months."""
        table = schema.job_sizes
        rows = Inserter(self._connection, table)
        for first, sums in days.each():
            self._forget(table, spans.DAY, first, first + 1)
            self._write_sizes(rows, spans.DAY, first, sums)
        rows.flush()
        for first, after in self._ending(spans.MONTH):
            self._forget(table, spans.MONTH, first, after)
            month_sums = sizes_within(self._connection, self._cluster_id, spans.DAY, first, after)
            self._write_sizes(rows, spans.MONTH, first, month_sums)
        rows.flush()

    def _write_sizes(self, rows: Inserter, period: int, first: int, sums: Sums) -> None:
        for size, total in sums.items():
            counts = (total.running, total.begun, total.seconds, text_of(total.used))
            rows.add((self._cluster_id, period, first, *size, *counts))


class _Day:
    """Use by holder in a day, hour by hour: seconds by kind, and what `Window` does not count that way."""

    def __init__(self, stored: dict[int, Amounts]) -> None:
        self._stored = stored
        self._counted: dict[int, int] = {}
        self._rest: dict[Holder, Amounts] = {}

    def add(self, counted: dict[int, int], uncounted: dict[Holder, Amounts]) -> None:
        """Add an hour."""
        sums = self._counted
        for kind, seconds in counted.items():
            sums[kind] = sums.get(kind, 0) + seconds
        for holder, amounts in uncounted.items():
            add(self._rest.setdefault(holder, {}), amounts.items())

    def sums(self, window: Window, numbers: Holders) -> dict[int, Amounts]:
        """The day's sums by holder number. May be called once."""
        for holder, amounts in window.expanded(self._counted, self._rest).items():
            add(self._stored.setdefault(numbers.of(holder), {}), amounts.items())
        return self._stored


class Holders:
    """Numbers of holders; a new holder gets a row at once."""

    def __init__(self, connection: Connection, cluster_id: int) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        table = schema.usage_holders.c
        rows = connection.execute(
            select(table.id, table.account, table.user, table.wckey, table.qos).where(table.cluster_id == cluster_id)
        )
        self._known: dict[tuple[str, ...], int] = {tuple(row[1:]): row[0] for row in rows}

    def of(self, holder: Holder) -> int:
        number = self._known.get(holder)
        if number is None:
            row = {"cluster_id": self._cluster_id, **holder._asdict()}
            done = self._connection.execute(insert(schema.usage_holders).values(row))
            assert done.inserted_primary_key is not None, "the table has one"
            number = self._known[holder] = int(done.inserted_primary_key[0])
        return number
