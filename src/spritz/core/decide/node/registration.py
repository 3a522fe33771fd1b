"""RegisterNode: a node daemon registers, and both sides compare which jobs and steps run there.

Source: slurm.conf(5) ReturnToService, SlurmdParameters=config_overrides, BatchStartTimeout; Slurm's reason texts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.ending import node_gone
from spritz.core.decide.job_ids import skip_seen
from spritz.core.decide.node.changed import came_back
from spritz.core.decide.node.node_failure import fail_job_on_node, holders, lose_step_on
from spritz.core.decide.node.rebooting import REBOOTS, after_reboot, booted_since
from spritz.core.decide.node.wake import nodes_came_up
from spritz.core.decision import DecisionContext, Refused
from spritz.core.effects import TerminateStepOn
from spritz.core.flags import COMPLETING, POWER_UP_NODE
from spritz.core.power import is_away
from spritz.model.events.cluster import NodeRegistered, NodeUpdated
from spritz.model.events.step import StepLaunched
from spritz.model.ids import STEP_BATCH
from spritz.model.node_daemon.reports import Registered, is_revoked_reason
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.node.record import Node
    from spritz.model.node_daemon.reports import RegisterNode
    from spritz.model.resources import NodeCapacity

#: the beginning of every text of `config_shortage`
_SHORTAGE = re.compile(r"Low (socket\*core\*thread count|CPUs|RealMemory \(|TmpDisk)|gres/\S+ count reported lower")

NOT_RESPONDING_REASON = "Not responding"
REBOOTED_REASON = "Node unexpectedly rebooted"


def register_node(context: DecisionContext, report: RegisterNode) -> Registered:
    """Take the node into service if it matches the configuration, and settle what runs there.

    The shell fills in the reply's `term`.
    """
    node = context.state.nodes.get(report.name)
    if node is None:
        raise Refused("ESLURM_INVALID_NODE_NAME", hint=f"node {report.name} is not in the configuration")
    settings, shortage = context.state.settings, ""
    if not settings.config_overrides:
        least = settings.cloud_memory_percent if node.flags & NodeFlag.CLOUD else settings.memory_percent
        shortage = config_shortage(node.config.capacity, report.capacity, least)
    rebooted = not is_away(node) and not node.flags & REBOOTS and _rebooted(node, report)
    state, flags, reason = _state_after(context.state, node, report, shortage, rebooted=rebooted)
    changed_reason = reason != node.reason
    context.record(
        NodeRegistered(
            at=context.now,
            name=report.name,
            state=state,
            flags=int(flags),
            reason=reason,
            reason_uid=0 if changed_reason else node.reason_uid,
            reason_at=(context.now if reason else 0.0) if changed_reason else node.reason_at,
            booted_at=report.booted_at,
            boot_id=report.boot_id,
            daemon_started_at=report.daemon_started_at,
            version=report.version,
            operating_system=report.operating_system,
            architecture=report.architecture,
            hostname=report.hostname,
            address=report.address,
            port=report.port,
            spool_id=report.spool_id,
            adopted=_is_adopted(context.state, node),
            features_changeable=report.features_changeable,
            features_active=_active(context.state, node, report),
        )
    )
    if report.extra is not None and report.daemon_started_at != node.daemon_started_at:
        # Only once, so that a later `scontrol update` stands.
        context.record(NodeUpdated(at=context.now, node=replace(context.state.nodes[report.name], extra=report.extra)))
    # The spool directory of a node has an id of its own. Another id than last time: its memory of launches is gone (a
    # new disk, a wiped /var), and "never heard of that step" is no proof that the step never ran.
    forgot = bool(node.spool_id and report.spool_id) and report.spool_id != node.spool_id
    # A restored controller would give a new job a number that this node knows as another one's.
    skip_seen(context, report.last_job_id)
    if state is not NodeState.DOWN:
        came_back(context, node)
    others = _other_runs(context.state, report)
    _settle(context, report, others, lost=state is NodeState.DOWN, forgot=forgot, rebooted=rebooted)
    expected = _expected(context.state, report.name) - others
    ended = tuple(life for life in report.jobs if life not in expected)
    return Registered(term=0, messages=(shortage,) if shortage else (), ended_jobs=ended)


def _active(state: State, node: Node, report: RegisterNode) -> tuple[str, ...]:
    """Active features: those of slurm.conf and, for those that its helpers can change, what the helpers report."""
    if report.features_changeable is None:
        return ()
    changeable = {*report.features_changeable, *state.settings.features.names}
    fixed = (name for name in node.config.features if name not in changeable)
    return tuple(dict.fromkeys((*fixed, *report.features_active)))


def _is_adopted(state: State, node: Node) -> bool:
    """Whether the address from which it registers is its own. Dynamic nodes have no other."""
    if node.flags & NodeFlag.CLOUD:
        return state.settings.power.registered_addresses
    return bool(node.flags & (NodeFlag.DYNAMIC_NORM | NodeFlag.DYNAMIC_FUTURE))


def _state_after(
    state: State, node: Node, report: RegisterNode, shortage: str, *, rebooted: bool
) -> tuple[NodeState, int, str]:
    # In this order: what the node is (a reboot that was ordered, power), whether it is back, then what it lacks.
    base, flags, reason = after_reboot(node, report)
    flags &= ~NodeFlag.NOT_RESPONDING
    if node.flags & REBOOTS and not flags & REBOOTS and base is NodeState.DOWN:
        return base, flags, reason
    if not flags & NodeFlag.POWERING_DOWN:
        # A node that registers is up, whether or not it was resumed.
        flags &= ~(NodeFlag.POWERING_UP | NodeFlag.POWERED_DOWN | NodeFlag.POWER_UP)
    in_service = base not in (NodeState.UNKNOWN, NodeState.DOWN)
    drained = bool(flags & (NodeFlag.DRAIN | NodeFlag.FAIL)) and not _is_shortage(reason)  # by an administrator
    if base is NodeState.UNKNOWN:
        base = NodeState.IDLE
    elif base is NodeState.DOWN and _returns(state.settings.return_to_service, reason):
        base = NodeState.IDLE
        if not drained:
            reason = ""
    if shortage:
        if base is NodeState.DOWN:
            return base, flags | NodeFlag.INVALID_REG, reason
        return base, flags | NodeFlag.INVALID_REG | NodeFlag.DRAIN, reason if drained and reason else shortage
    if flags & NodeFlag.INVALID_REG:
        flags &= ~NodeFlag.INVALID_REG
        if not drained:  # but by the controller itself
            flags &= ~NodeFlag.DRAIN
        if _is_shortage(reason):
            reason = ""
    if in_service and rebooted and state.settings.return_to_service != 2:
        base = NodeState.DOWN
        if not (drained and reason):
            reason = REBOOTED_REASON
    return base, flags, reason


def _returns(service: int, reason: str) -> bool:
    """Whether a node that was DOWN for this reason is in service again, by ReturnToService."""
    # A machine whose certificate was revoked registers again only by a new token: an administrator wants it back.
    return service == 2 or is_revoked_reason(reason) or (service == 1 and reason == NOT_RESPONDING_REASON)


def _rebooted(node: Node, report: RegisterNode) -> bool:
    """Whether the machine has booted since the node last registered."""
    return bool(node.registered_at) and booted_since(node, report, max(node.registered_at, node.booted_at))


def _is_shortage(reason: str) -> bool:
    """Whether the reason is a text of `config_shortage`."""
    return _SHORTAGE.match(reason) is not None


def config_shortage(configured: NodeCapacity, reported: NodeCapacity, memory_percent: float = 100.0) -> str:
    """The resource of which the node has less than slurm.conf says, in Slurm's words; "" if there is none.
    `memory_percent` of the configured memory is enough.

    Source: slurm.conf(5) SlurmctldParameters=node_reg_mem_percent.
    """
    wrong = []
    have = (reported.sockets, reported.cores_per_socket, reported.threads_per_core)
    want = (configured.sockets, configured.cores_per_socket, configured.threads_per_core)
    if have[0] * have[1] * have[2] < want[0] * want[1] * want[2] and reported.cpus < configured.cpus:
        wrong.append("Low socket*core*thread count")
    if reported.cpus < configured.cpus:
        wrong.append("Low CPUs")
    if reported.memory_mib < configured.memory_mib * memory_percent / 100.0:
        least = f"{memory_percent:.2f}% of configured:{configured.memory_mib}"
        wrong.append(f"Low RealMemory (reported:{reported.memory_mib} < {least})")
    if reported.tmp_mib < configured.tmp_mib:
        wrong.append("Low TmpDisk")
    counts: dict[str, int] = {}
    for line in reported.gres:
        counts[line.name] = counts.get(line.name, 0) + line.count
    configured_counts: dict[str, int] = {}
    for line in configured.gres:
        configured_counts[line.name] = configured_counts.get(line.name, 0) + line.count
    for name, count in configured_counts.items():
        if counts.get(name, 0) < count:
            wrong.append(f"gres/{name} count reported lower than configured ({counts.get(name, 0)} < {count})")
    return ", ".join(wrong)


def _other_runs(state: State, report: RegisterNode) -> set[tuple[int, ...]]:
    """(job, life) on the node that the state has too, but started at another time, or not yet: it was restored from a
    copy, and that run is in events that it lacks. The number may even be that of another job.
    """
    others: set[tuple[int, ...]] = set()
    for job_id, life, started_at in report.runs:
        job = state.jobs.get(job_id)
        if job is not None and job.restart_count == life and job.started_at != started_at and started_at:
            others.add((job_id, life))
    return others


def _settle(
    context: DecisionContext,
    report: RegisterNode,
    others: set[tuple[int, ...]],
    *,
    lost: bool,
    forgot: bool,
    rebooted: bool,
) -> None:
    """Settle what runs on the node.

    What the controller expects there and the node does not report has ended; what the node reports and should not run
    is ended. A node that has forgotten what it was sent (`forgot`) cannot tell whether a launch arrived: it may have
    run, and counts as ended. Jobs on a node that has booted have failed there, with or without steps, unless the node
    is about to report how its batch script ended, perhaps before the boot. A launch without an answer counts as one
    that arrived: the script may have run before the boot, since what the spool did not sync is forgotten with its id
    kept, and it must not run a second time in this life of the job. Whether it was sent before is not asked: the two
    clocks by which to tell may disagree.

    A job of which the node has another run (`others`) loses the node: its launches would be taken for repetitions.

    Launches that never arrived are derived from the state (`pending_effects`) once the node can be reached.
    """
    name = report.name
    alive = {
        (item.job_id, item.restart_count, item.step_id)
        for item in report.running
        if (item.job_id, item.restart_count) not in others
    }
    nodes_came_up(context, name)
    for job in holders(context.state, name):
        if job.flags & POWER_UP_NODE and not lost:
            # The node has booted for this job: that is what it waits for, and no failure. Nothing was sent to it yet.
            continue
        if job.flags & COMPLETING:
            if lost:
                node_gone(context, job, name, lost=True)
        elif (job.id, job.restart_count) in others or (
            # A node that booted has no supervisor left: what it names is a result in its spool, which it is about to
            # report. Failed now, a job whose script has succeeded would run a second time. If no report comes, the node
            # is lost again, and the job fails by that.
            (lost or rebooted) and (job.id, job.restart_count, STEP_BATCH) not in alive
        ):
            fail_job_on_node(context, job, name)
        else:
            _settle_job(context, job, name, alive, forgot=forgot)
    expected = _expected(context.state, name)
    for job_id, life, step_id in sorted(alive):
        # Of a job that was requeued while the node was silent, or that nobody knows: its CPUs are given to others.
        if (job_id, life, step_id) not in expected:
            context.add_effect(TerminateStepOn(node=name, job_id=job_id, restart_count=life, step_id=step_id))


def _settle_job(
    context: DecisionContext, job: Job, name: str, alive: set[tuple[int, int, int]], *, forgot: bool
) -> None:
    for step in list(context.state.steps.get(job.id, {}).values()):
        if name not in step.running_nodes:
            continue
        runs = (job.id, step.restart_count, step.step_id) in alive
        # The launch is unconfirmed. Either the step runs: confirm it. Or the launch never arrived: `pending_effects`
        # sends it again once the link is up.
        if name in step.unstarted_nodes and (runs or not forgot):
            if runs:
                context.record(StepLaunched(at=context.now, job_id=job.id, step_id=step.step_id, node=name))
        # The launch is confirmed and the step is gone without a report: with the script the job is lost, with another
        # step only that step.
        elif not runs and step.step_id == STEP_BATCH:
            fail_job_on_node(context, job, name, gone=True)
            return
        elif not runs:
            lose_step_on(context, step, name)


def _expected(state: State, name: str) -> set[tuple[int, ...]]:
    """(job, life, step) that may run on the node, and (job, life) of every job that holds it."""
    expected: set[tuple[int, ...]] = set()
    for job_id in state.uses[name].jobs:
        job = state.jobs[job_id]
        # A life that is being cleared has its KillWait. Were it not expected, the node would be told that the job has
        # ended, and kill it at once.
        completing = job.flags & COMPLETING
        expected.add((job_id, job.completing_life if completing else job.restart_count))
        for step in state.steps.get(job_id, {}).values():
            if name in step.running_nodes:
                expected.add((job_id, step.restart_count, step.step_id))
    return expected
