"""How events about nodes, partitions and the configuration change the state.

Source: slurm.conf(5) NODE CONFIGURATION State=.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spritz.core.job.charges import reset_usage
from spritz.core.policy import amend_policy, refresh_minutes
from spritz.model.cluster.power import AWAY
from spritz.model.events import cluster as events
from spritz.model.node.membership import with_nodes, without_nodes
from spritz.model.node.node_features import active_with, reporting
from spritz.model.node.record import Node, NodeConfig, first_state
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.state import State
    from spritz.model.events import Event
    from spritz.model.limits.records import FederationMember


DYNAMIC_NORM: int = NodeFlag.DYNAMIC_NORM.value
REBOOT_ISSUED: int = NodeFlag.REBOOT_ISSUED.value


def _configured(state: State, event: events.ClusterConfigured) -> None:
    settings_changed = state.settings != event.settings
    # A changed FirstJobId counts only while no job has had a number.
    if not state.jobs and state.next_job_id == state.settings.first_job_id:
        state.next_job_id = event.settings.first_job_id
    state.settings = event.settings
    state.segments = {}
    configured = {config.name for config in event.nodes}
    for name in [name for name in state.nodes if name not in configured]:
        state.drop_node(name)
    for config in event.nodes:
        _configure_node(state, config, event.at)
    # The order of the configuration is the order of listings.
    state.nodes = {config.name: state.nodes[config.name] for config in event.nodes}
    state.put_partitions({partition.name: partition for partition in event.partitions})
    if settings_changed or state.jobs:
        state.refresh_deadlines()
    state.refresh_node_deadlines()


def _ids_skipped(state: State, event: events.JobIdsSkipped) -> None:
    state.next_job_id = event.next_job_id


def _created(state: State, event: events.NodesCreated) -> None:
    partitions = with_nodes(state.partitions, event.nodes, state.settings.node_sets)
    state.add_nodes([_new_node(config, event.at) for config in event.nodes], partitions)


def _deleted(state: State, event: events.NodesDeleted) -> None:
    for name in event.names:
        state.drop_node(name)
    state.put_partitions(without_nodes(state.partitions, event.names))


def _new_node(config: NodeConfig, at: float) -> Node:
    base, flags = first_state(config)
    return Node(
        config=config,
        state=base,
        flags=flags,
        reason=config.reason,
        reason_at=at if config.reason else 0.0,
        features_active=config.features,
    )


def _configure_node(state: State, config: NodeConfig, at: float) -> None:
    node = state.nodes.get(config.name)
    if node is None:
        state.put_node(_new_node(config, at))
    elif node.config != config:
        changed = node.config.features != config.features
        features = active_with(node, config.features) if changed else node.features_active
        # What an administrator writes replaces what a cloud node had reported.
        if (config.address, config.hostname) != (node.config.address, node.config.hostname):
            node = replace(node, registered_address="", registered_hostname="")
        if node.config.dynamic and not config.dynamic:
            node = replace(node, flags=node.flags & ~DYNAMIC_NORM)
        state.put_node(replace(node, config=config, features_active=features))


def _registered(state: State, event: events.NodeRegistered) -> None:
    node = _rebooted(state.nodes[event.name], event.flags)
    came_up = node.flags & AWAY and not event.flags & AWAY
    node = reporting(node, event.features_changeable, event.features_active)
    state.put_node(
        replace(
            node,
            last_busy_at=event.at if came_up or not node.last_busy_at else node.last_busy_at,
            registered_address=event.address if event.adopted else node.registered_address,
            registered_hostname=event.hostname if event.adopted else node.registered_hostname,
            state=event.state,
            flags=event.flags,
            reason=event.reason,
            reason_uid=event.reason_uid,
            reason_at=event.reason_at,
            resume_at=_resumes(node.resume_at, event),
            registered_at=event.at,
            booted_at=event.booted_at,
            boot_id=event.boot_id,
            daemon_started_at=event.daemon_started_at,
            version=event.version,
            operating_system=event.operating_system,
            architecture=event.architecture,
            spool_id=event.spool_id or node.spool_id,
        )
    )


def _state_changed(state: State, event: events.NodeStateChanged) -> None:
    node = _rebooted(state.nodes[event.name], event.flags)
    state.put_node(
        replace(
            node,
            state=event.state,
            flags=event.flags,
            reason=event.reason,
            reason_uid=event.reason_uid,
            reason_at=event.reason_at,
            next_state=node.next_state if event.next_state is None else event.next_state,
            resume_at=_resumes(node.resume_at if event.resume_at is None else event.resume_at, event),
        )
    )


def _resumes(at: float, event: events.NodeStateChanged | events.NodeRegistered) -> float:
    """When the node resumes by itself (0.0: never); a node in service does not need to."""
    held = event.state is NodeState.DOWN or event.flags & (NodeFlag.DRAIN | NodeFlag.FAIL)
    return at if held else 0.0


def _rebooted(node: Node, flags: int) -> Node:
    """The node with these flags; a reboot that has ended or been cancelled is removed."""
    if node.flags & REBOOT_ISSUED and not flags & REBOOT_ISSUED:
        return replace(node, reboot_at=0.0, next_state="", features_wanted=())
    return node


def _rebooting(state: State, event: events.NodesRebooting) -> None:
    for name in event.names:
        state.put_node(replace(state.nodes[name], reboot_at=event.at, features_wanted=event.features))


def _nodes_powered(state: State, event: events.NodesPowered) -> None:
    for name in event.names:
        node = state.nodes[name]
        if event.up:
            node = replace(node, resumed_at=event.at, power_called=False)
        else:
            node = replace(
                node, suspended_at=event.at, power_called=False, registered_address="", registered_hostname=""
            )
        state.put_node(node)


def _program_began(state: State, event: events.PowerProgramBegan) -> None:
    for name in event.names:
        if name in state.nodes:
            state.put_node(replace(state.nodes[name], power_called=True))


def _not_resumed(state: State, event: events.NodesNotResumed) -> None:
    """Nodes that could not be resumed; separate events change their states."""


def _node_kept(state: State, event: events.NodeKept) -> None:
    state.put_node(replace(state.nodes[event.name], kept_until=event.until))


def _power_paced(state: State, event: events.PowerPaced) -> None:
    state.next_power_at = event.next_at


def _node_updated(state: State, event: events.NodeUpdated) -> None:
    state.put_node(event.node)


def _partition_put(state: State, event: events.PartitionCreated | events.PartitionUpdated) -> None:
    partition = event.partition
    others = state.partitions
    if partition.default:
        others = {name: replace(other, default=False) if other.default else other for name, other in others.items()}
    state.put_partitions({**others, partition.name: partition})
    state.refresh_deadlines()
    state.refresh_node_deadlines()


def _partition_deleted(state: State, event: events.PartitionDeleted) -> None:
    state.put_partitions({name: item for name, item in state.partitions.items() if name != event.name})
    state.refresh_node_deadlines()


def _slice_ended(state: State, event: events.TimeSliceEnded) -> None:
    state.next_slice_at = event.next_at


def _policy_changed(state: State, event: events.PolicyChanged) -> None:
    before = state.rules.federation
    state.put_policy(event.policy)
    state.replaced.policy.append(event.policy)
    _federation_changed(state, before)


def _policy_amended(state: State, event: events.PolicyAmended) -> None:
    before = state.rules.federation
    amend_policy(state, event.change)
    state.replaced.policy.append(event.change)
    _federation_changed(state, before)


def _federation_changed(state: State, before: tuple[FederationMember, ...]) -> None:
    if state.rules.federation != before:
        state.memory.siblings_due.update(dict.fromkeys(state.federated))


def _usage_reset(state: State, event: events.UsageReset) -> None:
    state.replaced.usage = True
    if event.keys:
        reset_usage(state.change_usage(), state.rules, event.keys, event.at)
    else:
        state.change_usage().reset(event.at, event.keys)
    refresh_minutes(state)
    if not event.keys:
        state.usage_reset_at = event.at


def _usage_adopted(state: State, event: events.UsageAdopted) -> None:
    state.replaced.usage = True
    state.change_usage().adopt(event.rows, event.since, event.at)
    refresh_minutes(state)


# Any: each function takes its own kind of event.
APPLIERS: dict[type[Event], Callable[[State, Any], None]] = {
    events.ClusterConfigured: _configured,
    events.JobIdsSkipped: _ids_skipped,
    events.NodesCreated: _created,
    events.NodesDeleted: _deleted,
    events.NodeRegistered: _registered,
    events.NodeStateChanged: _state_changed,
    events.NodesPowered: _nodes_powered,
    events.NodesRebooting: _rebooting,
    events.PowerProgramBegan: _program_began,
    events.NodesNotResumed: _not_resumed,
    events.NodeKept: _node_kept,
    events.PowerPaced: _power_paced,
    events.NodeUpdated: _node_updated,
    events.PartitionCreated: _partition_put,
    events.PartitionUpdated: _partition_put,
    events.PartitionDeleted: _partition_deleted,
    events.TimeSliceEnded: _slice_ended,
    events.PolicyChanged: _policy_changed,
    events.PolicyAmended: _policy_amended,
    events.UsageReset: _usage_reset,
    events.UsageAdopted: _usage_adopted,
}
