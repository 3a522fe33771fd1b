"""Configure, and partitions made with scontrol.

Source: scontrol(1) reconfigure, create, update, delete PartitionName; slurm.conf(5) PARTITION CONFIGURATION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from spritz.core.decide.access import need_admin
from spritz.core.decide.node.node_failure import fail_jobs_on_node
from spritz.core.decide.reservations.reservation import follow_partitions
from spritz.core.decision import DecisionContext, Refused
from spritz.core.effects import ReloadNode
from spritz.model.commands.job import Done
from spritz.model.events.cluster import ClusterConfigured, PartitionCreated, PartitionDeleted, PartitionUpdated
from spritz.model.events.job import JobsNoted
from spritz.model.node.membership import with_nodes
from spritz.model.node.partition import Partition
from spritz.model.plan import PendingNote
from spritz.model.reasons import CORE_REASONS, Reason

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.commands.cluster import Configure, CreatePartition, DeletePartition, UpdatePartition
    from spritz.model.node.record import NodeConfig


def configure(context: DecisionContext, command: Configure) -> Done:
    """Take over a configuration, at start-up or later. Records nothing if nothing differs."""
    need_admin(context)
    state = context.state
    nodes, partitions = _with_dynamic(state, command)
    configured = {config.name: config for config in nodes}
    first = not state.nodes and not state.partitions
    same = (
        state.settings == command.settings
        and {name: node.config for name, node in state.nodes.items()} == configured
        and tuple(state.partitions.values()) == partitions
    )
    # `scontrol reconfigure` without a change, and every start of the controller, come here: they must leave no event,
    # or the journal would grow by a configuration each time.
    if same and not first:
        return Done()
    # Before the event: afterwards the nodes are gone, and with them what says which jobs hold them.
    for name in [name for name in state.nodes if name not in configured]:
        fail_jobs_on_node(context, name)
    context.record(ClusterConfigured(at=context.now, settings=command.settings, nodes=nodes, partitions=partitions))
    follow_partitions(context)
    _note_homeless_jobs(context)
    if not first:
        for name in configured:
            context.add_effect(ReloadNode(node=name))
    return Done()


def _with_dynamic(state: State, command: Configure) -> tuple[tuple[NodeConfig, ...], tuple[Partition, ...]]:
    """The configuration with the dynamic nodes, which the files do not have, added to the partitions that
    admit them.
    """
    named = {config.name for config in command.nodes}
    kept = [node.config for node in state.nodes.values() if node.config.dynamic and node.name not in named]
    if not kept:
        return command.nodes, command.partitions
    partitions = {partition.name: partition for partition in command.partitions}
    merged = with_nodes(partitions, kept, command.settings.node_sets)
    return (*command.nodes, *kept), tuple(merged.values())


def _note_homeless_jobs(context: DecisionContext) -> None:
    """Pending jobs whose partitions are all gone stay; set their reason."""
    state = context.state
    notes = []
    for job_id in state.pending:
        job = state.jobs[job_id]
        if job.reason in CORE_REASONS or job.reason is Reason.PARTITION_CONFIG:
            continue
        if not any(name in state.partitions for name in job.spec.partitions):
            notes.append(PendingNote(job_id=job_id, reason=Reason.PARTITION_CONFIG))
    if notes:
        context.record(JobsNoted(at=context.now, notes=tuple(notes)))


def create_partition(context: DecisionContext, command: CreatePartition) -> Done:
    """Raises Refused for callers other than administrators, and for a name that is empty or taken."""
    need_admin(context)
    partition = command.partition
    if not partition.name or partition.name in context.state.partitions:
        raise Refused("ESLURM_INVALID_PARTITION_NAME", hint="a partition of that name exists already")
    if not partition.preempt_mode:
        words = ",".join(context.state.settings.preemption.mode) or "OFF"
        partition = msgspec.structs.replace(partition, preempt_mode=words)
    partition = _checked_nodes(context, partition)
    _check_qos(context, partition.qos)
    context.record(PartitionCreated(at=context.now, partition=partition))
    return Done()


def _check_qos(context: DecisionContext, name: str) -> None:
    """If accounting knows the QOS, the partition's must be one of them."""
    known_qos = context.state.rules.qos
    if name and known_qos and name not in known_qos:
        raise Refused("ESLURM_INVALID_QOS", hint=f"there is no QOS {name}")


def update_partition(context: DecisionContext, command: UpdatePartition) -> Done:
    """Change fields of a partition; all or none."""
    need_admin(context)
    old = context.state.partitions.get(command.name)
    if old is None:
        raise Refused("ESLURM_INVALID_PARTITION_NAME")
    fields = set(Partition.__struct_fields__) - {"name"}
    unknown = [name for name in command.changes if name not in fields]
    if unknown:
        raise Refused("ESLURM_NOT_SUPPORTED", hint=f"the partition field {unknown[0]} cannot be updated")
    plain = msgspec.to_builtins(old) | command.changes
    try:
        partition = msgspec.convert(plain, Partition)
    except msgspec.ValidationError as error:
        raise Refused("ESLURM_NOT_SUPPORTED", hint=str(error)) from error
    partition = _checked_nodes(context, partition)
    if partition.qos != old.qos:
        _check_qos(context, partition.qos)
    if partition != old:
        context.record(PartitionUpdated(at=context.now, partition=partition))
        follow_partitions(context)
    return Done()


def delete_partition(context: DecisionContext, command: DeletePartition) -> Done:
    """Remove a partition that no job uses."""
    need_admin(context)
    state = context.state
    if command.name not in state.partitions:
        raise Refused("ESLURM_INVALID_PARTITION_NAME")
    for group in (state.pending, state.running, state.completing):
        for job_id in group:
            job = state.jobs[job_id]
            if job.partition == command.name or command.name in job.spec.partitions:
                raise Refused("ESLURM_PARTITION_IN_USE", hint=f"job {job_id} still uses it")
    context.record(PartitionDeleted(at=context.now, name=command.name))
    return Done()


def _checked_nodes(context: DecisionContext, partition: Partition) -> Partition:
    """The partition with each of its nodes named once. Refuses unknown nodes and topologies."""
    networks = [network.name for network in context.state.settings.topologies]
    if partition.topology and partition.topology not in networks:
        message = f"there is no topology {partition.topology}"
        raise Refused("ESLURM_REQUESTED_TOPO_CONFIG_UNAVAILABLE", message=message)
    for name in partition.nodes:
        if name not in context.state.nodes:
            raise Refused("ESLURM_INVALID_NODE_NAME", hint=f"there is no node {name}")
    if len(set(partition.nodes)) == len(partition.nodes):
        return partition
    return msgspec.structs.replace(partition, nodes=tuple(dict.fromkeys(partition.nodes)))
