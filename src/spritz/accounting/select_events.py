"""Questions about node events, as SQL; answers streamed. Source: sacctmgr(1) LIST/SHOW EVENT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Engine, or_, select

from spritz.accounting import schema
from spritz.accounting.engine import told
from spritz.model.accounting import NodeEventRecord
from spritz.model.accounting_admin import EventRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement

    from spritz.model.accounting_admin import SelectEvents

#: Events of one piece.
PIECE = 500


def read_events(engine: Engine, query: SelectEvents) -> Iterator[EventRecords]:
    """Events that match, by cluster, in pieces. Holds a connection until exhausted or closed. Raises DatabaseError."""
    clusters, table = schema.clusters, schema.node_events
    fields = NodeEventRecord.__struct_fields__
    with told(engine.url), engine.connect() as connection:
        wanted = select(clusters.c.id, clusters.c.name).order_by(clusters.c.name)
        if query.clusters:
            wanted = wanted.where(clusters.c.name.in_(query.clusters))
        for cluster_id, name in connection.execute(wanted).all():
            statement = (
                select(*(table.c[field] for field in fields))
                .where(table.c.cluster_id == cluster_id, *_conditions(query))
                .order_by(table.c.started_at, table.c.place)
            )
            rows = connection.execution_options(yield_per=PIECE).execute(statement)
            try:
                for part in rows.partitions(PIECE):
                    events = [NodeEventRecord(**dict(zip(fields, row, strict=True))) for row in part]
                    yield EventRecords(cluster=name, events=events)
            finally:
                rows.close()


def _conditions(query: SelectEvents) -> list[ColumnElement[bool]]:
    table = schema.node_events.c
    found: list[ColumnElement[bool]] = []
    if query.kind:
        found.append(table.node != "" if query.kind == "node" else table.node == "")
    if query.nodes:
        found.append(table.node.in_(query.nodes))
    if query.users:
        found += [table.reason_uid.in_(query.users), table.node != ""]
    if query.reasons:
        found.append(or_(*(table.reason.contains(text, autoescape=True) for text in query.reasons)))
    if query.states:
        found.append(table.state.in_(query.states))
    if query.starts_at is None and query.ends_at is None:
        found.append(table.ended_at == 0.0)
    if query.starts_at is not None:
        found.append(or_(table.ended_at == 0.0, table.ended_at >= query.starts_at))
    if query.ends_at is not None:
        found.append(table.started_at < query.ends_at)
    return found
