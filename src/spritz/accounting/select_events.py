"""Node event queries, as SQL; answers are streamed. Source: sacctmgr(1) LIST/SHOW EVENT."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from sqlalchemy import Engine, or_, select

from spritz.accounting import schema
from spritz.accounting.engine import database_errors
from spritz.accounting.ledger.nodes import tres_by_node
from spritz.model.accounting.accounting_admin import EventRecords
from spritz.model.accounting.records import NodeEventRecord
from spritz.notation import tres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection

    from spritz.accounting.rollup.hours import Pairs
    from spritz.model.accounting.accounting_admin import SelectEvents

#: Events of one piece.
PIECE = 500


def read_events(engine: Engine, query: SelectEvents) -> Iterator[EventRecords]:
    """Matching events, by cluster, in pieces. Holds a connection until exhausted or closed. Raises DatabaseError."""
    clusters, table = schema.clusters, schema.node_events
    fields = NodeEventRecord.__struct_fields__
    with database_errors(), engine.connect() as connection:
        chosen = select(clusters.c.id, clusters.c.name).order_by(clusters.c.name)
        if query.clusters:
            chosen = chosen.where(clusters.c.name.in_(query.clusters))
        for cluster_id, name in connection.execute(chosen).all():
            statement = (
                select(*(table.c[field] for field in fields))
                .where(table.c.cluster_id == cluster_id, *_conditions(query))
                .order_by(table.c.started_at, table.c.place)
            )
            had = _Had(connection, cluster_id)
            rows = connection.execution_options(yield_per=PIECE).execute(statement)
            try:
                for part in rows.partitions(PIECE):
                    events = [had.with_tres(NodeEventRecord(**dict(zip(fields, row, strict=True)))) for row in part]
                    yield EventRecords(cluster=name, events=[event for event in events if _of_size(event, query)])
            finally:
                rows.close()


class _Had:
    """Resources of nodes at a given time, from the cluster's own records."""

    def __init__(self, connection: Connection, cluster_id: int) -> None:
        table = schema.node_events
        fields = NodeEventRecord.__struct_fields__
        rows = connection.execute(
            select(*(table.c[field] for field in fields))
            .where(table.c.cluster_id == cluster_id, table.c.node == "")
            .order_by(table.c.started_at, table.c.place)
        )
        self._records = [NodeEventRecord(**dict(zip(fields, row, strict=True))) for row in rows]
        self._starts = [record.started_at for record in self._records]
        #: resources in the record that was looked up last
        self._known: tuple[int, dict[str, Pairs]] = (-1, {})

    def with_tres(self, event: NodeEventRecord) -> NodeEventRecord:
        """Add the node's resources, if they are known."""
        if event.node:
            # A node that was down before the cluster's first record has the resources of that record.
            place = max(0, bisect_right(self._starts, event.started_at) - 1)
            if self._records and self._known[0] != place:
                self._known = place, tres_by_node(self._records[place])
            event.tres = tres.format(self._known[1].get(event.node, ()), convert=False)
        return event


def _of_size(event: NodeEventRecord, query: SelectEvents) -> bool:
    if query.cpus_min is None and query.cpus_max is None:
        return True
    cpus = dict(tres.parse(event.tres)).get("cpu", 0)
    return cpus >= (query.cpus_min or 0) and (query.cpus_max is None or cpus <= query.cpus_max)


def _conditions(query: SelectEvents) -> list[ColumnElement[bool]]:
    table = schema.node_events.c
    conditions: list[ColumnElement[bool]] = []
    if query.kind:
        conditions.append(table.node != "" if query.kind == "node" else table.node == "")
    if query.nodes:
        conditions.append(table.node.in_(query.nodes))
    if query.users:
        conditions += [table.reason_uid.in_(query.users), table.node != ""]
    if query.reasons:
        conditions.append(or_(*(table.reason.contains(text, autoescape=True) for text in query.reasons)))
    if query.states:
        conditions.append(table.state.in_(query.states))
    if query.starts_at is None and query.ends_at is None:
        conditions.append(table.ended_at == 0.0)
    if query.starts_at is not None:
        conditions.append(or_(table.ended_at == 0.0, table.ended_at >= query.starts_at))
    if query.ends_at is not None:
        conditions.append(table.started_at < query.ends_at)
    return conditions
