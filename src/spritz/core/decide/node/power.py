"""Power saving: idle nodes are powered down, and powered up for jobs.

A node goes idle → POWER_DOWN (`!`, until SuspendRate permits) → POWERING_DOWN (`%`, SuspendProgram) → POWERED_DOWN
(`~`, after SuspendTimeout) → POWER_UP (a job has it; until ResumeRate permits) → POWERING_UP (`#`, ResumeProgram) → up
when it registers, or DOWN when ResumeTimeout has passed. All nodes of a job that must come up do so together, in one
call; jobs that start together share it.

Differs: a node that is to be powered down takes no new jobs, whether or not it still runs some (Slurm's
POWER_DOWN_ASAP); the drain of POWER_DOWN_ASAP is not shown. Source: slurm.conf(5) SuspendProgram, ResumeProgram,
SuspendRate, ResumeRate; scontrol(1) POWER_UP, POWER_DOWN.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from spritz.core.decide.node.node_failure import fail_jobs_on_node
from spritz.core.decide.node.powering import dispatch, set_node
from spritz.core.decide.node.rebooting import timed_out
from spritz.core.decision import Refused
from spritz.core.power import Due, power_row, suspend_seconds
from spritz.model.cluster.power import AWAY
from spritz.model.commands.job import Done
from spritz.model.events.cluster import NodeKept, NodesNotResumed, PowerProgramBegan
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.model.node.record import Node
    from spritz.model.node_daemon.reports import PowerProgramStarted

RESUME_TIMEOUT_REASON = "ResumeTimeout reached"

#: least seconds before looking again at a node that SuspendExcNodes keeps up
KEPT_SECONDS_MIN = 60.0

_UP: int = NodeFlag.POWER_UP.value
_DOWN: int = NodeFlag.POWER_DOWN.value
_POWERED_DOWN: int = NodeFlag.POWERED_DOWN.value
_POWERING_UP: int = NodeFlag.POWERING_UP.value
_POWERING_DOWN: int = NodeFlag.POWERING_DOWN.value
_NOT_RESPONDING: int = NodeFlag.NOT_RESPONDING.value
#: flags that idle_on_node_suspend removes
_TROUBLE: int = (NodeFlag.DRAIN | NodeFlag.FAIL | NodeFlag.INVALID_REG).value


# -- time


def look_at_power(context: DecisionContext) -> None:
    """Act on what has fallen due: nodes that are late, that are down by now, or that have been idle long enough."""
    late, changed = [], False
    for name in context.state.node_deadlines.due(context.now):
        node = context.state.nodes[name]
        at, what = power_row(context.state, node)
        if at <= context.now and what is Due.REBOOT_LATE:
            timed_out(context, node)
            fail_jobs_on_node(context, name)
            node = context.state.nodes[name]
            at, what = power_row(context.state, node)  # it may be powered down immediately
        if at > context.now:
            continue  # it is due for something else
        if what is Due.LATE:
            late.append(name)
        elif what is Due.DOWN:
            _is_down(context, node)
        elif _is_counted(context, node):
            pause = max(KEPT_SECONDS_MIN, suspend_seconds(context.state, node))
            context.record(NodeKept(at=context.now, name=name, until=context.now + pause))
        else:
            set_node(context, node, node.flags | _DOWN)
            changed = True
    if late:
        _fail(context, late)
    if changed or 0.0 < context.state.next_power_at <= context.now:
        dispatch(context)


def _is_counted(context: DecisionContext, node: Node) -> bool:
    """SuspendExcNodes=nodes:count: whether the node is one of `count` idle nodes of the set that stay up. Those that
    jobs would take first stay.
    """
    nodes, uses = context.state.nodes, context.state.uses
    for names, count in context.state.settings.power.kept:
        if count and node.name in names and node.state is NodeState.IDLE:
            members = [nodes[name] for name in names if name in nodes]
            usable = (
                member.name
                for member in members
                if member.state is NodeState.IDLE
                and not member.flags & (AWAY | _DOWN | _TROUBLE | _NOT_RESPONDING)
                and not uses[member.name].jobs
            )
            return node.name in islice(usable, count)
    return False


def _is_down(context: DecisionContext, node: Node) -> None:
    flags = node.flags & ~(_POWERING_DOWN | _DOWN | _NOT_RESPONDING) | _POWERED_DOWN
    state = NodeState.IDLE if node.state is NodeState.UNKNOWN else node.state
    set_node(context, node, flags, state)


def _fail(context: DecisionContext, names: list[str]) -> None:
    """Set nodes DOWN that did not come up in time, requeue their jobs, and tell ResumeFailProgram."""
    for name in names:
        node = context.state.nodes[name]
        flags = node.flags & ~(_POWERING_UP | _UP) | _POWERED_DOWN
        set_node(context, node, flags, NodeState.DOWN, RESUME_TIMEOUT_REASON)
    for name in names:
        fail_jobs_on_node(context, name)
    context.record(NodesNotResumed(at=context.now, names=tuple(names)))


# -- the programs


def program_started(context: DecisionContext, report: PowerProgramStarted) -> Done:
    """A program was started for nodes. Nodes that were turned round in the meantime wait for another program."""
    names = []
    for name in report.names:
        node = context.state.nodes.get(name)
        if node is None or node.power_called:
            continue
        began = node.resumed_at if report.up else node.suspended_at
        if began == report.began_at and node.flags & (_POWERING_UP if report.up else _POWERING_DOWN):
            names.append(name)
    if names:
        context.record(PowerProgramBegan(at=context.now, names=tuple(names)))
    return Done()


# -- administrators


def is_power(text: str) -> bool:
    """Whether the word of `scontrol update State=` concerns power saving."""
    return text.startswith("POWER_")


def wanted(context: DecisionContext, node: Node, text: str) -> tuple[NodeState, int]:
    """Base state and flags for POWER_UP, POWER_DOWN, POWER_DOWN_ASAP or POWER_DOWN_FORCE."""
    policy, flags = context.state.settings.power, node.flags
    if text not in ("POWER_UP", "POWER_DOWN", "POWER_DOWN_ASAP", "POWER_DOWN_FORCE"):
        raise Refused("ESLURM_INVALID_NODE_STATE")
    if not (policy.resumes and policy.suspends):
        raise Refused("ESLURM_INVALID_NODE_STATE", hint="ResumeProgram and SuspendProgram are not configured")
    if node.state is NodeState.FUTURE:
        raise Refused("ESLURM_INVALID_NODE_STATE", hint=f"{node.name} is FUTURE")
    if text == "POWER_UP":
        return node.state, flags & ~_DOWN | _UP if flags & _POWERED_DOWN else flags & ~_DOWN
    state = NodeState.IDLE if text == "POWER_DOWN_FORCE" else node.state
    if flags & _UP and (text == "POWER_DOWN_FORCE" or not context.state.uses[node.name].jobs):
        flags &= ~_UP
    if flags & _POWERING_DOWN or (flags & _POWERED_DOWN and flags & _UP):
        return state, flags
    # A node that counts as down is powered down again, as in Slurm: it may have come up after its timeout.
    return state, flags & ~_POWERED_DOWN | _DOWN
