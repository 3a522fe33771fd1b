"""Power saving: idle nodes go down, and come up for jobs.

A node's way: idle → POWER_DOWN (`!`, until SuspendRate permits) → POWERING_DOWN (`%`, SuspendProgram) → POWERED_DOWN
(`~`, after SuspendTimeout) → POWER_UP (a job has it; until ResumeRate permits) → POWERING_UP (`#`, ResumeProgram) → up
when it registers, or DOWN when ResumeTimeout has passed. All nodes of a job that must come up do so together, in one
call; those of several jobs that start at once share it.

Differs: a node that is to go down takes no new jobs, whether it still runs some or not (Slurm's POWER_DOWN_ASAP); and
only POWER_DOWN_ASAP's drain is not shown.
Source: slurm.conf(5) SuspendProgram, ResumeProgram, SuspendRate, ResumeRate; scontrol(1) POWER_UP, POWER_DOWN.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from spritz.core.decide.node_failure import fail_jobs_on_node
from spritz.core.decide.powering import dispatch, set_node
from spritz.core.decide.rebooting import timed_out
from spritz.core.decision import Refused
from spritz.core.power import REBOOT_ISSUED, node_deadline, power_deadline, suspend_seconds
from spritz.model.commands.job import Done
from spritz.model.events.cluster import NodeKept, NodesNotResumed, PowerProgramBegan
from spritz.model.power import AWAY
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.model.node import Node
    from spritz.model.reports import PowerProgramStarted

RESUME_TIMEOUT_REASON = "ResumeTimeout reached"

#: A node that SuspendExcNodes keeps up is looked at again no sooner.
KEPT_SECONDS_MIN = 60.0

_UP: int = NodeFlag.POWER_UP.value
_DOWN: int = NodeFlag.POWER_DOWN.value
_POWERED_DOWN: int = NodeFlag.POWERED_DOWN.value
_POWERING_UP: int = NodeFlag.POWERING_UP.value
_POWERING_DOWN: int = NodeFlag.POWERING_DOWN.value
_NOT_RESPONDING: int = NodeFlag.NOT_RESPONDING.value
#: what idle_on_node_suspend lifts
_TROUBLE: int = (NodeFlag.DRAIN | NodeFlag.FAIL | NodeFlag.INVALID_REG).value


# -- time


def look_at_power(context: DecisionContext) -> None:
    """What has fallen due: nodes that are late, that are down by now, or that have been idle long enough."""
    late, changed = [], False
    for name in context.state.node_deadlines.due(context.now):
        node = context.state.nodes[name]
        if power_deadline(context.state, node) > context.now:
            continue  # it is due for something else
        if node.flags & REBOOT_ISSUED:
            timed_out(context, node)
            fail_jobs_on_node(context, name)
            node = context.state.nodes[name]
            if node_deadline(context.state, node) > context.now:
                continue  # else it is to be powered down at once
        if node.flags & _POWERING_UP:
            late.append(name)
        elif node.flags & _POWERING_DOWN:
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
    """SuspendExcNodes=nodes:count: `count` idle nodes of the set stay up, those that jobs take first."""
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
    """They did not come up in time: DOWN, their jobs queue again, and ResumeFailProgram is told."""
    for name in names:
        node = context.state.nodes[name]
        flags = node.flags & ~(_POWERING_UP | _UP) | _POWERED_DOWN
        set_node(context, node, flags, NodeState.DOWN, RESUME_TIMEOUT_REASON)
    for name in names:
        fail_jobs_on_node(context, name)
    context.record(NodesNotResumed(at=context.now, names=tuple(names)))


# -- the programs


def program_started(context: DecisionContext, report: PowerProgramStarted) -> Done:
    """Nodes that have turned round meanwhile wait for another program."""
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
    """The word of `scontrol update State=` is of power saving."""
    return text.startswith("POWER_")


def wanted(context: DecisionContext, node: Node, text: str) -> tuple[NodeState, int]:
    """Base state and flags that POWER_UP, POWER_DOWN, POWER_DOWN_ASAP or POWER_DOWN_FORCE leads to."""
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
    # One that counts as down is sent down again, as in Slurm: it may be one that did not come up in time, but runs.
    return state, flags & ~_POWERED_DOWN | _DOWN
