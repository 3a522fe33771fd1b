"""UpdateNode, NodeLost, NodeSilent, NodeTrouble: states and other fields of nodes.

Source: scontrol(1) SPECIFICATIONS FOR UPDATE COMMAND, NODES; slurm.conf(5) SlurmdTimeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from spritz.core.decide.access import need_admin
from spritz.core.decide.node import power, powering, rebooting
from spritz.core.decide.node.node_failure import fail_jobs_on_node
from spritz.core.decide.node.wake import nodes_came_up
from spritz.core.decision import DecisionContext, Refused
from spritz.core.power import is_away
from spritz.model.commands.job import Done
from spritz.model.events.cluster import NodeStateChanged, NodeUpdated
from spritz.model.node.networks import misplaced
from spritz.model.node.node_features import active_with
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from spritz.model.commands.cluster import UpdateNode
    from spritz.model.node.record import Node
    from spritz.model.node_daemon.reports import NodeLost, NodeSilent, NodeTrouble

#: Seconds between attempts to resume a node that does not have what slurm.conf says (ResumeAfter).
_RESUME_AGAIN_SECONDS = 600.0

#: flags that `scontrol update State=RESUME` removes
RESUMABLE: int = (NodeFlag.DRAIN | NodeFlag.FAIL | NodeFlag.REBOOT_REQUESTED | NodeFlag.REBOOT_ISSUED).value


def node_lost(context: DecisionContext, report: NodeLost) -> Done:
    """SlurmdTimeout passed: the nodes are DOWN, their jobs fail or are requeued. Nodes already DOWN stay as
    they are.
    """
    for name in report.names:
        node = context.state.nodes.get(name)
        if node is None or node.state is NodeState.FUTURE or is_away(node):
            continue
        if node.state is NodeState.DOWN:
            if not node.flags & NodeFlag.NOT_RESPONDING:
                _set(context, node, node.state, node.flags | NodeFlag.NOT_RESPONDING, node.reason)
        else:
            reason = node.reason if node.flags & NodeFlag.DRAIN and node.reason else report.reason
            _set(context, node, NodeState.DOWN, node.flags | NodeFlag.NOT_RESPONDING, reason)
        fail_jobs_on_node(context, name)
    return Done()


def node_silent(context: DecisionContext, report: NodeSilent) -> Done:
    """Mark the nodes as not responding: until they register again, nothing new starts there. Their jobs continue."""
    for name in report.names:
        node = context.state.nodes.get(name)
        if node is None or node.state is NodeState.FUTURE or is_away(node):
            continue
        if not node.flags & NodeFlag.NOT_RESPONDING:
            _set(context, node, node.state, node.flags | NodeFlag.NOT_RESPONDING, node.reason)
    return Done()


def node_trouble(context: DecisionContext, report: NodeTrouble) -> Done:
    """The node daemon asks for its node to be drained."""
    node = context.state.nodes.get(report.name)
    if node is None:
        raise Refused("ESLURM_INVALID_NODE_NAME")
    flags = node.flags | NodeFlag.DRAIN if report.drain else node.flags
    reason = node.reason if node.flags & NodeFlag.DRAIN and node.reason else report.reason
    next_state = rebooting.after_drain(node) if report.drain else None
    if flags != node.flags or reason != node.reason or next_state is not None:
        _set(context, node, node.state, flags, reason, next_state=next_state)
    return Done()


def update_node(context: DecisionContext, command: UpdateNode) -> Done:
    """Change state, reason or other fields. Checks everything for every node before changing anything."""
    need_admin(context)
    nodes = []
    # A node that is named twice is changed once: its second change would meet the state that the first one left.
    for name in dict.fromkeys(command.names):
        node = context.state.nodes.get(name)
        if node is None:
            raise Refused("ESLURM_INVALID_NODE_NAME", hint=f"there is no node {name}")
        nodes.append(node)
    if not nodes:
        raise Refused("ESLURM_INVALID_NODE_NAME")
    word = command.state.upper()
    if word == "RESUME":
        # An administrator resumes a whole rack of which some nodes work. Differs: Slurm also prints an error for these.
        nodes = [node for node in nodes if _may_resume(node)] or nodes
    changed = [_changed(context, node, command.changes) for node in nodes] if command.changes else []
    powers = power.is_power(word)
    states = [
        (power.wanted(context, node, word) if powers else _state_for(context, node, word)) for node in nodes if word
    ]
    if command.resume_after_seconds is not None and word not in ("DOWN", "DRAIN", "FAIL"):
        raise Refused("ESLURM_INVALID_NODE_STATE", hint="ResumeAfter needs State=DOWN, DRAIN or FAIL")
    # Everything was checked above for all nodes; from here on nothing refuses, so a list of nodes is changed as a whole
    # or not at all.
    for node in changed:
        context.record(NodeUpdated(at=context.now, node=node))
    for index, node in enumerate(nodes):
        if word == "RESUME":
            context.state.memory.failures.by_node.pop(node.name, None)
        _change_state(context, node.name, states[index] if states else None, command)
    if powers:
        powering.dispatch(context)
    return Done()


def _change_state(
    context: DecisionContext, name: str, wanted: tuple[NodeState, int] | None, command: UpdateNode
) -> None:
    node = context.state.nodes[name]
    if wanted is None:
        if not (node.reason or _out_of_service(node.state, node.flags)):
            return  # as in Slurm: `sinfo -R` lists nodes that need an administrator
        if command.reason or (command.reason_uid is not None and node.reason):
            _set(context, node, node.state, node.flags, command.reason or node.reason, command.reason_uid)
        return
    state, flags = wanted
    reason = command.reason or node.reason
    if power.is_power(command.state.upper()):
        reason = command.reason or ("" if state is not node.state else node.reason)
    elif command.state.upper() == "CANCEL_REBOOT":
        reason = command.reason or rebooting.cancelled(node)[2]
    elif not _out_of_service(state, flags):
        reason = ""
    seconds = command.resume_after_seconds
    resume_at = None if seconds is None else context.now + seconds if seconds else 0.0
    next_state = rebooting.after_drain(node) if command.state.upper() == "DRAIN" else None
    _set(context, node, state, flags, reason, command.reason_uid, resume_at, next_state)
    if state is NodeState.DOWN or command.state.upper() == "POWER_DOWN_FORCE":
        # An administrator may set a node DOWN that works: then its daemon must end what runs there, or the processes
        # would meet those of later jobs. A node that does not answer gets the order when it registers.
        fail_jobs_on_node(context, name, kill=not node.flags & NodeFlag.NOT_RESPONDING)
    elif node.flags & ~context.state.nodes[name].flags & NodeFlag.REBOOT_ISSUED:
        nodes_came_up(context, name)  # its reboot is no longer waited for


def _state_for(context: DecisionContext, node: Node, text: str) -> tuple[NodeState, int]:
    """Base state and flags for `State=text`. Refuses transitions that Slurm refuses."""
    state, flags = node.state, node.flags
    if text == "DRAIN":
        return state, flags | NodeFlag.DRAIN
    if text == "FAIL":
        return state, flags | NodeFlag.FAIL
    if text == "DOWN":
        return NodeState.DOWN, flags
    if text == "CANCEL_REBOOT":
        return rebooting.cancelled(node)[:2]
    if text == "FUTURE":
        return _put_back(context, node)
    if text == "UNDRAIN":
        return state, flags & ~NodeFlag.DRAIN
    if text == "RESUME":
        if node.flags & NodeFlag.INVALID_REG:
            why = f" ({node.reason})" if node.reason else ""
            hint = (
                f"{node.name} registered with less than slurm.conf says{why}, and returns when it has all of it again"
            )
            raise Refused("ESLURM_INVALID_NODE_STATE", hint=hint)
        if not _may_resume(node):
            raise Refused("ESLURM_INVALID_NODE_STATE", hint=f"{node.name} is neither DOWN nor drained")
        return _up(node), flags & ~RESUMABLE
    if text == "IDLE":
        if context.state.uses[node.name].jobs:
            raise Refused("ESLURM_INVALID_NODE_STATE", hint=f"jobs run on {node.name}")
        if state not in (NodeState.DOWN, NodeState.IDLE, NodeState.UNKNOWN, NodeState.FUTURE):
            raise Refused("ESLURM_INVALID_NODE_STATE")
        return _up(node), flags
    raise Refused("ESLURM_INVALID_NODE_STATE", hint=f"State={text} is not supported")


def _may_resume(node: Node) -> bool:
    # A node that lacks a GPU would be given jobs for it. Source: sinfo(1) NODE STATE CODES, INVAL: "The node will clear
    # from this state with a valid registration".
    if node.flags & NodeFlag.INVALID_REG:
        return False
    return node.state in (NodeState.DOWN, NodeState.FUTURE) or bool(node.flags & RESUMABLE)


def _out_of_service(state: NodeState, flags: int) -> bool:
    """Whether a node with this state has a reason, which Slurm requires and keeps."""
    return state is NodeState.DOWN or bool(flags & (NodeFlag.DRAIN | NodeFlag.FAIL))


def _put_back(context: DecisionContext, node: Node) -> tuple[NodeState, int]:
    """Make it FUTURE again: it is not listed, and a daemon with -F may take its place."""
    if context.state.uses[node.name].jobs or node.state not in (NodeState.DOWN, NodeState.IDLE, NodeState.UNKNOWN):
        raise Refused("ESLURM_INVALID_NODE_STATE", hint=f"{node.name} is in use")
    kept = NodeFlag.DYNAMIC_NORM | NodeFlag.CLOUD
    return NodeState.FUTURE, node.flags & kept


def _up(node: Node) -> NodeState:
    """The state of a node in service: a node that never registered is not known to be up. No slurmd of an external node
    ever registers.
    """
    up = node.registered_at or is_away(node) or node.flags & NodeFlag.EXTERNAL
    return NodeState.IDLE if up else NodeState.UNKNOWN


def resume_nodes(context: DecisionContext) -> None:
    """Resume nodes whose ResumeAfter time has come; one that lacks a GPU meanwhile, some time after it has it again.
    Source: scontrol(1) ResumeAfter.
    """
    for name in context.state.node_deadlines.due(context.now):
        node = context.state.nodes[name]
        if 0.0 < node.resume_at <= context.now:
            if _may_resume(node):
                state, flags = _state_for(context, node, "RESUME")
                _set(context, node, state, flags, "", resume_at=0.0)
            else:
                again = context.now + _RESUME_AGAIN_SECONDS if node.flags & NodeFlag.INVALID_REG else 0.0
                _set(context, node, node.state, node.flags, node.reason, resume_at=again)


def _set(
    context: DecisionContext,
    node: Node,
    state: NodeState,
    flags: int,
    reason: str,
    uid: int | None = None,
    resume_at: float | None = None,
    next_state: str | None = None,
) -> None:
    """`uid`: author of the reason (None: the caller); `resume_at`, `next_state`: as in the event."""
    fresh = reason != node.reason or state is not node.state or flags != node.flags
    context.record(
        NodeStateChanged(
            at=context.now,
            name=node.name,
            state=state,
            flags=int(flags),
            reason=reason,
            reason_uid=_reason_uid(context, node, reason, fresh, uid),
            reason_at=(context.now if fresh else node.reason_at) if reason else 0.0,
            resume_at=resume_at,
            next_state=next_state,
        )
    )


def _reason_uid(context: DecisionContext, node: Node, reason: str, fresh: bool, uid: int | None) -> int:
    if not reason:
        return 0
    if uid is not None:
        return uid
    return context.caller.uid if fresh else node.reason_uid


_CONFIG_FIELDS = {"weight": int, "gres_text": str}
#: fields of the record that are not configuration
_OWN_FIELDS = {
    "comment": "comment",
    "extra": "extra",
    "address": "registered_address",
    "hostname": "registered_hostname",
}


def _changed(context: DecisionContext, node: Node, changes: dict[str, object]) -> Node:
    """The node with these fields changed. Refuses unknown fields and invalid values."""
    config = node.config
    for name, value in changes.items():
        try:
            if name == "features":
                features = msgspec.convert(value, tuple[str, ...])
                plain = node.features_changeable is None and "active_features" not in changes
                if plain and not set(node.active) <= set(features):
                    raise Refused("ESLURM_ACTIVE_FEATURE_NOT_SUBSET")
                config = replace(config, features=features)
                node = replace(node, features_active=active_with(node, features))
            elif name == "active_features":
                active = msgspec.convert(value, tuple[str, ...])
                if not set(active) <= set(replace(node, config=config).available):
                    raise Refused("ESLURM_ACTIVE_FEATURE_NOT_SUBSET")
                if not active and node.available:
                    raise Refused(
                        "ESLURM_NOT_SUPPORTED", hint="to have no active features, remove them from AvailableFeatures"
                    )
                node = replace(node, features_active=active)
            elif name == "topology":
                text = msgspec.convert(value, str)
                check_place(context, text)
                node = replace(node, topology=text)
            elif name in _OWN_FIELDS:
                node = replace(node, **{_OWN_FIELDS[name]: msgspec.convert(value, str)})
            elif name in _CONFIG_FIELDS:
                config = replace(config, **{name: msgspec.convert(value, _CONFIG_FIELDS[name])})
            else:
                raise Refused("ESLURM_NOT_SUPPORTED", hint=f"the node field {name} cannot be updated")
        except msgspec.ValidationError as error:
            raise Refused("ESLURM_NOT_SUPPORTED", hint=f"{name}: {error}") from error
    return replace(node, config=config)


def check_place(context: DecisionContext, text: str) -> None:
    """Check that `network:unit,…` names existing networks and their leaf switches or blocks."""
    fault = misplaced(context.state.settings.topologies, text)
    if fault:
        raise Refused("ESLURM_REQUESTED_TOPO_CONFIG_UNAVAILABLE", message=fault)
