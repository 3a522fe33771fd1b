"""`show partition [NAME]`. Source: scontrol(1) show partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.model.queries.partitions import ListPartitions, Partitions
from spritz.presentation.node.partition_text import record_text

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session


def run(session: Session, words: list[str]) -> int:
    """`show partition [NAME]`: print one partition, or all. Returns the exit status."""
    answer = session.call(ListPartitions(all=session.all or bool(words)), Partitions)
    nodes = session.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
    views = {view.node.name: view for view in nodes.nodes}
    chosen = [p for p in answer.partitions if not words or p.name in words[0].split(",")]
    if session.json is not None:
        from spritz.presentation.json.partitions import show_records

        show_records(session.context, session.json, answer.now, chosen, views)
        return 0 if chosen or not words else 1
    session.tell_age(answer.now, len(answer.partitions))
    if words and not chosen:
        session.out(f"Partition {words[0]} not found\n")
        return 1
    if not chosen:
        session.out("No partitions in the system\n")

    session.out("".join([record_text(partition, views, session.oneliner) for partition in chosen]))
    return 0
