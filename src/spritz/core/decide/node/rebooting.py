"""Reboots: requested, ordered when nothing runs on the node any more, and complete when it registers again.

A node goes REBOOT_REQUESTED (`@`; with ASAP it is drained in the meantime) → REBOOT_ISSUED (`^`, RebootProgram) → its
state before, or that of nextstate=, when it registers having booted since; DOWN when ResumeTimeout has passed. A job
with --reboot has its nodes rebooted immediately, and waits for them as for nodes that are powered up.

Source: scontrol(1) reboot, cancel_reboot; slurm.conf(5) RebootProgram, ResumeTimeout; sbatch(1) --reboot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.access import need_admin
from spritz.core.decision import Refused
from spritz.core.effects import RebootOn
from spritz.core.power import is_away
from spritz.model.commands.job import Done
from spritz.model.events.cluster import NodesRebooting, NodeStateChanged
from spritz.model.node_daemon.reports import is_same_boot
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.decision import DecisionContext
    from spritz.model.commands.cluster import RebootNodes
    from spritz.model.node.record import Node
    from spritz.model.node_daemon.reports import RegisterNode

ASAP_REASON = "Reboot ASAP"
REASON = "reboot requested"

#: part of `Node.next_state`: the request has drained the node
UNDRAIN = "UNDRAIN"

_DRAIN: int = NodeFlag.DRAIN.value
_REQUESTED: int = NodeFlag.REBOOT_REQUESTED.value
_ISSUED: int = NodeFlag.REBOOT_ISSUED.value
REBOOTS: int = _REQUESTED | _ISSUED


def reboot_nodes(context: DecisionContext, command: RebootNodes) -> Done:
    """Request reboots; nodes on which nothing runs are rebooted immediately."""
    need_admin(context)
    if not context.state.settings.power.reboots:
        raise Refused("ESLURM_DISABLED", message="RebootProgram is not configured")
    if command.next_state not in ("", "RESUME", "DOWN"):
        raise Refused("ESLURM_INVALID_NODE_STATE", message="nextstate must be RESUME or DOWN")
    nodes = []
    for name in dict.fromkeys(command.names) or context.state.nodes:
        node = context.state.nodes.get(name)
        if node is None:
            raise Refused("ESLURM_INVALID_NODE_NAME", message=f"there is no node {name}")
        if node.state is NodeState.FUTURE or is_away(node):
            if command.names:
                raise Refused("ESLURM_INVALID_NODE_STATE", message=f"{name} is not up, or is being rebooted already")
            continue
        nodes.append(node)
    for node in nodes:
        reason = command.reason or node.reason or (ASAP_REASON if command.asap else REASON)
        flags = node.flags | _REQUESTED | (_DRAIN if command.asap else 0)
        drains = command.asap and not node.flags & _DRAIN
        after = [word for word in (command.next_state, UNDRAIN if drains else "") if word]
        _set(context, node, flags, reason, next_state="+".join(after))
    issue_reboots(context)
    return Done()


def issue_reboots(context: DecisionContext) -> None:
    """Order the requested reboots that are possible now."""
    if not context.state.settings.power.reboots:
        return
    uses = context.state.uses
    order_reboots(
        context,
        [node for node in context.state.nodes.values() if node.flags & _REQUESTED and not uses[node.name].jobs],
    )


def order_reboots(context: DecisionContext, nodes: Iterable[Node], features: tuple[str, ...] = ()) -> None:
    """Reboot these nodes now, changed to have `features`."""
    names = []
    for node in nodes:
        reason = f"{node.reason} : reboot issued" if node.reason else ""
        _set(context, node, node.flags & ~_REQUESTED | _ISSUED, reason)
        names.append(node.name)
    if not names:
        return
    context.record(NodesRebooting(at=context.now, names=tuple(names), features=features))
    if not context.state.settings.power.reboots_here:
        for name in names:
            context.add_effect(RebootOn(node=name, ordered_at=context.now))


def cancelled(node: Node) -> tuple[NodeState, int, str]:
    """State, flags and reason without the reboot; a drain by ASAP is lifted."""
    if node.flags & _ISSUED:
        raise Refused("ESLURM_REBOOT_IN_PROGRESS", hint=f"{node.name}: RebootProgram has been started")
    if not node.flags & REBOOTS:
        raise Refused("ESLURM_INVALID_NODE_STATE", hint=f"no reboot of {node.name} is pending")
    flags = _own_drain_lifted(node, node.flags & ~REBOOTS)
    kept = node.reason if flags & (_DRAIN | NodeFlag.FAIL) or node.state is NodeState.DOWN else ""
    return node.state, flags, kept


def _own_drain_lifted(node: Node, flags: int) -> int:
    """Without a drain by ASAP. The drain of an administrator outlasts the reboot."""
    return flags & ~_DRAIN if UNDRAIN in node.next_state else flags


def after_drain(node: Node) -> str | None:
    """`next_state` of a node that is drained while it waits for a reboot: the later request counts. None: it stays."""
    kept = "DOWN" if node.next_state.startswith("DOWN") else ""
    return None if kept == node.next_state else kept


def booted_since(node: Node, report: RegisterNode, moment: float) -> bool:
    """Whether the node's machine has booted since it last registered.

    Decided by the boot id, which does not depend on clocks; without one, by whether it reports a boot after `moment`.
    """
    # A clock that is wrong (a dead battery, before NTP has run) would make a restarted daemon look like a boot, and the
    # node's jobs would be failed for it.
    if node.boot_id and report.boot_id:
        return not is_same_boot(node.boot_id, report.boot_id)
    return report.booted_at > moment


def after_reboot(node: Node, report: RegisterNode) -> tuple[NodeState, int, str]:
    """Base state, flags and reason of a node that registers while its reboot is pending."""
    # Some features change without a boot (`rebootless` of helpers.conf); then the daemon names the order that it
    # carried out.
    changed = bool(node.features_wanted) and report.changed_for == node.reboot_at
    if not node.flags & _ISSUED or not (changed or booted_since(node, report, node.reboot_at)):
        return node.state, node.flags, node.reason
    flags = node.flags & ~REBOOTS
    if node.next_state.startswith("DOWN"):
        return NodeState.DOWN, _own_drain_lifted(node, flags), f"{node.reason} : reboot complete"
    if node.next_state:
        return node.state, flags & ~_DRAIN, ""
    return node.state, flags, node.reason if flags & (_DRAIN | NodeFlag.FAIL) else ""


def timed_out(context: DecisionContext, node: Node) -> None:
    """ResumeTimeout has passed: the node is DOWN."""
    reason = f"{node.reason} : reboot timed out" if node.reason else "reboot timed out"
    flags = _own_drain_lifted(node, node.flags & ~REBOOTS)
    _set(context, node, flags, reason, state=NodeState.DOWN)


def _set(
    context: DecisionContext,
    node: Node,
    flags: int,
    reason: str,
    *,
    state: NodeState | None = None,
    next_state: str | None = None,
) -> None:
    fresh = reason != node.reason
    context.record(
        NodeStateChanged(
            at=context.now,
            name=node.name,
            state=node.state if state is None else state,
            flags=flags,
            reason=reason,
            reason_uid=(context.caller.uid if reason else 0) if fresh else node.reason_uid,
            reason_at=(context.now if reason else 0.0) if fresh else node.reason_at,
            next_state=next_state,
        )
    )
