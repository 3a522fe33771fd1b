"""Nodes that are added and removed at run time: AddNodes, DeleteNodes, AdmitNode.

A dynamic node is made by `scontrol create` or by its own daemon (`slurmd -Z`). It exists in the state alone, until it
is deleted or slurm.conf has a node of its name. A daemon started with -F takes the place of a FUTURE node.

Source: slurm.conf(5) MaxNodeCount, State=FUTURE; slurmd(8) -F, -Z; Slurm's guide to dynamic nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.access import need_admin
from spritz.core.decide.node.states import check_place
from spritz.core.decision import DecisionContext, Refused
from spritz.model.commands.job import Done
from spritz.model.events.cluster import NodesCreated, NodesDeleted, NodeUpdated
from spritz.model.node.node_features import active_with
from spritz.model.node_daemon.reports import Introduced
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.core.state import State
    from spritz.model.commands.cluster import AddNodes, DeleteNodes
    from spritz.model.node.record import Node, NodeConfig
    from spritz.model.node_daemon.reports import AdmitNode
    from spritz.model.resources import NodeCapacity

#: values of State= with which a node may be created
CREATED_STATES = ("CLOUD", "EXTERNAL", "FUTURE")


def add_nodes(context: DecisionContext, command: AddNodes) -> Done:
    """Add all of the nodes, or none."""
    need_admin(context)
    if len({config.name for config in command.nodes}) < len(command.nodes):
        raise Refused("ESLURM_INVALID_NODE_NAME", message="a node is named twice")
    for config in command.nodes:
        if config.initial_state not in CREATED_STATES:
            message = "nodes are created with State=CLOUD, EXTERNAL or FUTURE; others come with `slurmd -Z`"
            raise Refused("ESLURM_INVALID_NODE_STATE", message=message)
        if config.name in context.state.nodes:
            raise Refused("ESLURM_INVALID_NODE_NAME", message=f"node {config.name} exists already")
    _add(context, command.nodes)
    return Done()


def _add(context: DecisionContext, configs: Sequence[NodeConfig]) -> None:
    state = context.state
    most, count = state.settings.max_node_count, len(state.nodes) + len(configs)
    for config in configs:
        check_place(context, config.topology)
    if state.settings.select_linear:
        raise Refused("ESLURM_NOT_SUPPORTED", message="dynamic nodes need SelectType=select/cons_tres")
    if count > most:
        message = f"MaxNodeCount={most} permits no more" if most else "MaxNodeCount is not set, so there can be none"
        raise Refused("ESLURM_INVALID_NODE_COUNT", message=message)
    context.record(NodesCreated(at=context.now, nodes=tuple(replace(config, dynamic=True) for config in configs)))


def delete_nodes(context: DecisionContext, command: DeleteNodes) -> Done:
    """Delete all of the nodes, or none. They must be dynamic, without jobs, and in no reservation."""
    need_admin(context)
    state = context.state
    if not command.names:
        raise Refused("ESLURM_INVALID_NODE_NAME")
    for name in command.names:
        node = state.nodes.get(name)
        if node is None:
            raise Refused("ESLURM_INVALID_NODE_NAME", message=f"Unable to find node {name} to delete")
        if not node.config.dynamic:
            raise Refused("ESLURM_INVALID_NODE_NAME", message=f"Can't delete non-dynamic node '{name}'.")
        if state.uses[name].jobs:
            raise Refused("ESLURM_NODES_BUSY", message=f"Node '{name}' can't be deleted because it's still in use.")
        if state.reserved.get(name):
            raise Refused("ESLURM_NODES_BUSY", message=f"Node '{name}' can't be deleted because it's in a reservation.")
    context.record(NodesDeleted(at=context.now, names=tuple(dict.fromkeys(command.names))))
    return Done()


def admit_node(context: DecisionContext, report: AdmitNode) -> Introduced:
    """Which node the daemon is: the one that it describes, or the first FUTURE one that fits."""
    if report.config is None:
        return Introduced(config=_claim(context, report))
    name = report.config.name
    old = context.state.nodes.get(name)
    if old is None:
        _add(context, (report.config,))
    elif old.config.dynamic:
        _renew(context, old, report.config)
    # Otherwise slurm.conf has the node, and its configuration counts.
    return Introduced(config=context.state.nodes[name].config)


def _renew(context: DecisionContext, old: Node, config: NodeConfig) -> None:
    """A known node is back, perhaps with other hardware, which counts unless jobs hold parts of the old."""
    fresh = replace(config, dynamic=True, initial_state=old.config.initial_state)
    if fresh == old.config or context.state.uses[old.name].jobs:
        return
    check_place(context, fresh.topology)
    changed = fresh.features != old.config.features
    features = active_with(old, fresh.features) if changed else old.features_active
    context.record(NodeUpdated(at=context.now, node=replace(old, config=fresh, features_active=features)))


def _claim(context: DecisionContext, report: AdmitNode) -> NodeConfig:
    node = _held_by(context.state, report.hostname) or _first_future(context.state, report)
    if node is None:
        condition = f" with feature {report.feature}" if report.feature else ""
        raise Refused(
            "ESLURM_INVALID_NODE_NAME", message=f"no FUTURE node{condition} has the hardware of {report.hostname}"
        )
    if not node.flags & NodeFlag.DYNAMIC_FUTURE:
        flags = NodeFlag.DYNAMIC_FUTURE.value | NodeFlag.NOT_RESPONDING.value
        taken = replace(
            node,
            state=NodeState.UNKNOWN,
            flags=node.flags | flags,
            registered_hostname=report.hostname,
            registered_address=report.address or report.hostname,
        )
        context.record(NodeUpdated(at=context.now, node=taken))
    return context.state.nodes[node.name].config


def _held_by(state: State, hostname: str) -> Node | None:
    """The FUTURE node whose place this host took before."""
    for node in state.nodes.values():
        if node.flags & NodeFlag.DYNAMIC_FUTURE and node.registered_hostname == hostname:
            return node
    return None


def _first_future(state: State, report: AdmitNode) -> Node | None:
    any_shape = not report.capacity.cpus
    for node in state.nodes.values():
        if node.state is not NodeState.FUTURE or (report.feature and report.feature not in node.config.features):
            continue
        if any_shape or _same_shape(node.config.capacity, report.capacity):
            return node
    return None


def _same_shape(wanted: NodeCapacity, have: NodeCapacity) -> bool:
    return (wanted.cpus, wanted.sockets, wanted.cores_per_socket, wanted.threads_per_core) == (
        have.cpus,
        have.sockets,
        have.cores_per_socket,
        have.threads_per_core,
    )
