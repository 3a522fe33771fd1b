"""What facts about nodes, partitions and configuration do to the state.

Source: slurm.conf(5) NODE CONFIGURATION State=.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spritz.model.events import cluster as events
from spritz.model.node import Node, NodeConfig
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.state import State
    from spritz.model.events import Event

#: State= of slurm.conf -> base state and flags of a node that has never been seen
INITIAL_STATES: dict[str, tuple[NodeState, int]] = {
    "UNKNOWN": (NodeState.UNKNOWN, NodeFlag.NOT_RESPONDING),
    "IDLE": (NodeState.UNKNOWN, NodeFlag.NOT_RESPONDING),
    "DOWN": (NodeState.DOWN, NodeFlag.NOT_RESPONDING),
    "DRAIN": (NodeState.UNKNOWN, NodeFlag.NOT_RESPONDING | NodeFlag.DRAIN),
    "FAIL": (NodeState.UNKNOWN, NodeFlag.NOT_RESPONDING | NodeFlag.FAIL),
    "FUTURE": (NodeState.FUTURE, 0),
    "CLOUD": (NodeState.IDLE, NodeFlag.CLOUD | NodeFlag.POWERED_DOWN),
}


def _configured(state: State, event: events.ClusterConfigured) -> None:
    settings_changed = state.settings != event.settings
    if not state.jobs and state.next_job_id == state.settings.first_job_id:
        state.next_job_id = event.settings.first_job_id
    state.settings = event.settings
    wanted = {config.name for config in event.nodes}
    for name in [name for name in state.nodes if name not in wanted]:
        state.drop_node(name)
    for config in event.nodes:
        _configure_node(state, config, event.at)
    # The order of the configuration is the order of listings.
    state.nodes = {config.name: state.nodes[config.name] for config in event.nodes}
    state.put_partitions({partition.name: partition for partition in event.partitions})
    if settings_changed or state.jobs:
        state.refresh_deadlines()


def _configure_node(state: State, config: NodeConfig, at: float) -> None:
    node = state.nodes.get(config.name)
    if node is None:
        base, flags = INITIAL_STATES.get(config.initial_state.upper(), INITIAL_STATES["UNKNOWN"])
        state.put_node(
            Node(
                config=config,
                state=base,
                flags=int(flags),
                reason=config.reason,
                reason_at=at if config.reason else 0.0,
                features_active=config.features,
            )
        )
    elif node.config != config:
        features = config.features if node.config.features != config.features else node.features_active
        state.put_node(replace(node, config=config, features_active=features))


def _registered(state: State, event: events.NodeRegistered) -> None:
    node = state.nodes[event.name]
    state.put_node(
        replace(
            node,
            state=event.state,
            flags=event.flags,
            reason=event.reason,
            reason_uid=event.reason_uid,
            reason_at=event.reason_at,
            registered_at=event.at,
            booted_at=event.booted_at,
            daemon_started_at=event.daemon_started_at,
            version=event.version,
            operating_system=event.operating_system,
            architecture=event.architecture,
            spool_id=event.spool_id or node.spool_id,
        )
    )


def _state_changed(state: State, event: events.NodeStateChanged) -> None:
    state.put_node(
        replace(
            state.nodes[event.name],
            state=event.state,
            flags=event.flags,
            reason=event.reason,
            reason_uid=event.reason_uid,
            reason_at=event.reason_at,
        )
    )


def _node_updated(state: State, event: events.NodeUpdated) -> None:
    state.put_node(event.node)


def _partition_put(state: State, event: events.PartitionCreated | events.PartitionUpdated) -> None:
    partition = event.partition
    others = state.partitions
    if partition.default:
        others = {name: replace(other, default=False) if other.default else other for name, other in others.items()}
    state.put_partitions({**others, partition.name: partition})
    state.refresh_deadlines()


def _partition_deleted(state: State, event: events.PartitionDeleted) -> None:
    state.put_partitions({name: item for name, item in state.partitions.items() if name != event.name})


def _slice_ended(state: State, event: events.TimeSliceEnded) -> None:
    state.next_slice_at = event.next_at


def _policy_changed(state: State, event: events.PolicyChanged) -> None:
    state.put_policy(event.policy)


# Any: each function takes its own kind of event.
APPLIERS: dict[type[Event], Callable[[State, Any], None]] = {
    events.ClusterConfigured: _configured,
    events.NodeRegistered: _registered,
    events.NodeStateChanged: _state_changed,
    events.NodeUpdated: _node_updated,
    events.PartitionCreated: _partition_put,
    events.PartitionUpdated: _partition_put,
    events.PartitionDeleted: _partition_deleted,
    events.TimeSliceEnded: _slice_ended,
    events.PolicyChanged: _policy_changed,
}
