"""What events say of nodes: when they could not be used, and why; and what the cluster had. Pure; used by `ledger`.

Source: sacctmgr(1) show event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.accounting import NodeEventRecord
from spritz.model.states import NodeFlag, NodeState
from spritz.notation import hostlist, tres

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.accounting.ledger import Ledger
    from spritz.model.events import cluster as events
    from spritz.model.node import NodeConfig

#: Flags under which a node takes no new jobs.
_OUT: int = (NodeFlag.DRAIN | NodeFlag.FAIL).value


def configured(ledger: Ledger, place: int, event: events.ClusterConfigured) -> None:
    """What the cluster has from now on; nodes that are gone are no longer out of service."""
    names = [node.name for node in event.nodes]
    total = tres.format(_total(event.nodes))
    before = _open(ledger).get("")
    known = set(names)
    for name in [name for name in _open(ledger) if name and name not in known]:
        _end(ledger, name, event.at)
    nodes = hostlist.compress(names)
    if before is not None:
        if (before.tres, before.nodes) == (total, nodes):
            return
        _end(ledger, "", event.at)
    _begin(ledger, NodeEventRecord(place=place, nodes=nodes, started_at=event.at, tres=total))


def _total(nodes: Iterable[NodeConfig]) -> list[tuple[str, int]]:
    cpus = memory = count = 0
    gres: dict[str, int] = {}
    for node in nodes:
        count += 1
        cpus += node.capacity.cpus
        memory += node.capacity.memory_mib
        for one in node.capacity.gres:
            gres[f"gres/{one.name}"] = gres.get(f"gres/{one.name}", 0) + one.count
    return [("cpu", cpus), ("mem", memory), ("node", count), ("billing", cpus), *gres.items()]


def changed(ledger: Ledger, place: int, event: events.NodeRegistered | events.NodeStateChanged) -> None:
    """A node went out of service, came back, or is out of it for another reason."""
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


def _open(ledger: Ledger) -> dict[str, NodeEventRecord]:
    if ledger.node_events is None:
        ledger.node_events = {}
    return ledger.node_events


def _begin(ledger: Ledger, record: NodeEventRecord) -> None:
    _open(ledger)[record.node] = record
    ledger.changes.node_events[record.place] = record


def _end(ledger: Ledger, node: str, at: float) -> None:
    record = _open(ledger).pop(node)
    record.ended_at = at
    ledger.changes.node_events[record.place] = record
