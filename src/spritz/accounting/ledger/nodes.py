"""Node events as records: when and why a node was out of service, and what the cluster had. Pure; used by `ledger`.

Source: sacctmgr(1) show event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.model.accounting.records import NodeEventRecord
from spritz.model.states import NodeFlag, NodeState
from spritz.notation import hostlist, licenses, tres

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.accounting.ledger.changes import Changes
    from spritz.model.events import cluster as events
    from spritz.model.node.record import NodeConfig

#: flags under which a node takes no new jobs
_OUT: int = (NodeFlag.DRAIN | NodeFlag.FAIL).value


class NodeBook(Protocol):
    """The records of nodes (`ledger.Ledger`)."""

    #: open events by node; None until loaded
    node_events: dict[str, NodeEventRecord] | None

    @property
    def changes(self) -> Changes: ...


def configured(ledger: NodeBook, place: int, event: events.ClusterConfigured) -> None:
    """Record the cluster's new resources; close the open events of nodes that no longer exist."""
    names = [node.name for node in event.nodes]
    total = tres.format([*_total(event.nodes), *licenses.pairs(event.settings.licenses)])
    before = _open(ledger).get("")
    known = set(names)
    for name in [name for name in _open(ledger) if name and name not in known]:
        _end(ledger, name, event.at)
    nodes, node_tres = hostlist.compress(names), _each(event.nodes)
    if before is not None:
        if (before.tres, before.nodes, before.node_tres) == (total, nodes, node_tres):
            return
        _end(ledger, "", event.at)
    _begin(ledger, NodeEventRecord(place=place, nodes=nodes, started_at=event.at, tres=total, node_tres=node_tres))


def _total(nodes: Iterable[NodeConfig]) -> list[tuple[str, int]]:
    total: dict[str, int] = {}
    for node in nodes:
        for name, count in _pairs(node):
            total[name] = total.get(name, 0) + count
    return [(name, total.get(name, 0)) for name in {"cpu": 0, "mem": 0, "node": 0, "billing": 0, **total}]


def _pairs(node: NodeConfig) -> list[tuple[str, int]]:
    cpus = node.capacity.cpus
    gres: dict[str, int] = {}
    for item in node.capacity.gres:
        for name in (f"gres/{item.name}", f"gres/{item.name}:{item.type}") if item.type else (f"gres/{item.name}",):
            gres[name] = gres.get(name, 0) + item.count
    return [("cpu", cpus), ("mem", node.capacity.memory_mib), ("node", 1), ("billing", cpus), *gres.items()]


def _each(nodes: Iterable[NodeConfig]) -> str:
    """Resources of nodes as text, with equal nodes grouped."""
    alike: dict[str, list[str]] = {}
    for node in nodes:
        alike.setdefault(tres.format(_pairs(node), convert=False), []).append(node.name)
    return ";".join(f"{text}@{hostlist.compress(names)}" for text, names in alike.items())


def tres_by_node(record: NodeEventRecord) -> dict[str, tuple[tuple[str, int], ...]]:
    """The resources of each node, from the record of a whole cluster."""
    by_node: dict[str, tuple[tuple[str, int], ...]] = {}
    for item in record.node_tres.split(";") if record.node_tres else ():
        text, _, nodes = item.partition("@")
        by_node |= dict.fromkeys(hostlist.expand(nodes), tres.parse(text))
    return by_node


def changed(ledger: NodeBook, place: int, event: events.NodeRegistered | events.NodeStateChanged) -> None:
    """A node went out of service, came back, or is out for another reason."""
    known = _open(ledger).get(event.name)
    out = event.state is NodeState.DOWN or bool(event.flags & _OUT)
    if known is not None:
        if out and (known.state, known.flags, known.reason) == (event.state.value, event.flags, event.reason):
            return
        _end(ledger, event.name, event.at)
    if out:
        _begin(
            ledger,
            NodeEventRecord(
                place=place,
                node=event.name,
                started_at=event.at,
                state=event.state.value,
                flags=event.flags,
                reason=event.reason.replace("\0", ""),
                reason_uid=event.reason_uid,
            ),
        )


def _open(ledger: NodeBook) -> dict[str, NodeEventRecord]:
    if ledger.node_events is None:
        ledger.node_events = {}
    return ledger.node_events


def _begin(ledger: NodeBook, record: NodeEventRecord) -> None:
    _open(ledger)[record.node] = record
    ledger.changes.node_events[record.place] = record


def _end(ledger: NodeBook, node: str, at: float) -> None:
    record = _open(ledger).pop(node)
    record.ended_at = at
    ledger.changes.node_events[record.place] = record
