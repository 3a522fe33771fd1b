"""What each event means for the projection: one small function per kind.

Must reach the same state as `core.apply` does for the same event. Source: model.events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spritz.model.events import cluster as cluster_events
from spritz.model.events import job as job_events
from spritz.model.events import reservation as reservation_events
from spritz.model.job.record import Hold
from spritz.model.membership import with_nodes, without_nodes
from spritz.model.node.node_features import active_with, reporting
from spritz.model.node.record import Node, NodeConfig, first_state
from spritz.model.resources import mask_of
from spritz.model.states import JobFlag, NodeFlag
from spritz.scheduling.view.events import job_records, limits_policy, running_jobs, waiting_jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.model.events import Event
    from spritz.scheduling.view.projection import Projection


def _queued(projection: Projection, event: job_events.JobQueued | job_events.JobUpdated) -> None:
    job_records.put(projection, event.job)


def _updated(projection: Projection, event: job_events.JobUpdated) -> None:
    record = job_records.put(projection, event.job)
    if record.allocation is not None and not record.completing and event.job.ends_at != record.ends_at:
        running_jobs.set_end(projection, record, event.job.ends_at, event.job.started_at)


def _split(projection: Projection, event: job_events.ArrayTaskSplit) -> None:
    array = projection.records[event.array_job_id]
    if array.claiming:
        # Only a task claims what victims have released; in old journals the array did.
        array.claiming = False
        projection.place(array)
    if event.job_id == event.array_job_id:
        array.tasks = None
        array.array_task_id = event.task_id
        array.dependencies = array.dependencies_of(event.task_id)
        projection.place(array)
        return
    if array.tasks is not None:
        array.tasks &= ~(1 << event.task_id)
        if not array.tasks:
            projection.place(array)
    record = array.split(event.job_id, event.task_id)
    job_records.add(projection, record)
    projection.place(record)


def _tasks_cancelled(projection: Projection, event: job_events.ArrayTasksCancelled) -> None:
    array = projection.records[event.array_job_id]
    if array.tasks is not None:
        array.tasks &= ~mask_of(event.tasks)
        projection.place(array)


def _held(projection: Projection, event: job_events.JobHeld) -> None:
    record = projection.records[event.job_id]
    record.held = event.hold is not Hold.NONE
    record.claiming = False
    record.priority = 0
    record.expected_start_at = 0.0
    if record.pending:
        record.eligible_at = 0.0
    record.accrued_at = record.submitted_at if projection.settings.priority_policy.accrue_always else None
    record.set_reason(event.reason, event.detail)
    projection.place(record)


def _released(projection: Projection, event: job_events.JobReleased) -> None:
    record = projection.records[event.job_id]
    record.held = False
    record.priority = event.priority
    record.eligible_at = event.eligible_at
    record.set_reason(event.reason)
    projection.place(record)


def _became_eligible(projection: Projection, event: job_events.JobBecameEligible) -> None:
    record = projection.records[event.job_id]
    record.eligible_at = record.eligible_at or event.at
    record.set_reason(event.reason)
    projection.place(record)


def _accrued(projection: Projection, event: job_events.JobAccrued) -> None:
    record = projection.records[event.job_id]
    record.accrued_at = event.since
    projection.place(record)


def _dependencies_changed(projection: Projection, event: job_events.DependenciesChanged) -> None:
    record = projection.records[event.job_id]
    record.eligible_at = event.eligible_at
    record.dependencies = event.dependencies
    record.set_reason(event.reason)
    projection.place(record)


def _reached(projection: Projection, event: job_events.PrioritiesReached) -> None:
    for job_id, partition, priority in event.marks:
        projection.marked.setdefault(job_id, {})[partition] = priority


def _noted(projection: Projection, event: job_events.JobsNoted) -> None:
    for note in event.notes:
        record = projection.records[note.job_id]
        record.set_reason(note.reason, note.detail)
        record.expected_start_at = note.expected_start_at
        record.expected_nodes = note.expected_nodes
        projection.queue.note(record)


def _started(projection: Projection, event: job_events.JobStarted) -> None:
    record = projection.records[event.job_id]
    record.expected_start_at = 0.0
    record.expected_nodes = ()
    record.priority = event.priority or record.priority
    running_jobs.start(projection, record, event.allocation, event.ends_at, event.at, event.licenses)


def _nodes_up(projection: Projection, event: job_events.JobNodesUp) -> None:
    record = projection.records[event.job_id]
    record.started_at = event.at
    running_jobs.set_end(projection, record, event.ends_at, event.at)


def _suspended(projection: Projection, event: job_events.JobSuspended) -> None:
    record = projection.records[event.job_id]
    # # an administrator suspended it, and now it also waits for its next time slice
    if record.suspended:
        running_jobs.suspend(projection, record, False)
    record.stopped = bool(event.by)
    if not event.by:
        running_jobs.suspend(projection, record, True)


def _preempted(projection: Projection, event: job_events.JobPreempted) -> None:
    record = projection.records[event.job_id]
    record.preempting = True
    preemptor = projection.records.get(event.by_job_id)
    first = preemptor.het_job_id if preemptor is not None else 0
    numbers = range(first, first + preemptor.het_size) if preemptor is not None and first else (event.by_job_id,)
    for number in numbers:
        claimant = projection.records.get(number)
        if claimant is not None and claimant.pending and not claimant.claiming:
            claimant.claiming = True
            projection.place(claimant)
    running_jobs.set_end(projection, record, event.ends_at, event.at)


def _resumed(projection: Projection, event: job_events.JobResumed) -> None:
    record = projection.records[event.job_id]
    record.suspended_seconds = event.suspended_seconds
    if record.stopped:
        record.stopped = False
    else:
        running_jobs.suspend(projection, record, False)
    running_jobs.set_end(projection, record, event.ends_at, event.at)


def _node_failed(projection: Projection, event: job_events.JobNodeFailed) -> None:
    running_jobs.let_go(projection, projection.records[event.job_id], (event.node,))


def _ended(projection: Projection, event: job_events.JobEnded) -> None:
    record = projection.records[event.job_id]
    record.expected_start_at = 0.0
    record.expected_nodes = ()
    running_jobs.end(projection, record, event.completing, event.at)


def _node_gone(projection: Projection, event: job_events.JobNodeGone) -> None:
    running_jobs.let_go(projection, projection.records[event.job_id], (event.node,))


def _requeued(projection: Projection, event: job_events.JobRequeued) -> None:
    record = projection.records[event.job_id]
    if event.begin_at:
        record.spec = replace(record.spec, begin_at=event.begin_at)
    record.pending = True
    record.may_boot = False
    record.expediting = bool(event.flags & JobFlag.EXPEDITING)
    record.held = event.hold is not Hold.NONE
    record.priority = event.priority
    record.submitted_at = event.at
    record.eligible_at = event.eligible_at
    record.accrued_at = event.at if projection.settings.priority_policy.accrue_always else None
    record.set_reason(event.reason, event.reason_detail)
    projection.place(record)


def _purged(projection: Projection, event: job_events.JobsPurged) -> None:
    for job_id in event.job_ids:
        job_records.forget(projection, job_id)


def _configured(projection: Projection, event: cluster_events.ClusterConfigured) -> None:
    waiting_jobs.rank_unplaced(projection)
    projection.settings = event.settings
    projection.nodes = {config.name: _node_of(projection, config) for config in event.nodes}
    projection.partitions = {partition.name: partition for partition in event.partitions}
    projection.rebuild()


def _node_of(projection: Projection, config: NodeConfig) -> Node:
    """The node with its new configuration, its state kept; a new node as the configuration says."""
    node = projection.nodes.get(config.name)
    if node is None:
        state, flags = first_state(config)
        return Node(config=config, state=state, flags=flags, features_active=config.features)
    changed = node.config.features != config.features
    features = active_with(node, config.features) if changed else node.features_active
    flags = node.flags
    if node.config.dynamic and not config.dynamic:
        flags &= ~NodeFlag.DYNAMIC_NORM.value
    return replace(node, config=config, features_active=features, flags=flags)


def _node_registered(projection: Projection, event: cluster_events.NodeRegistered) -> None:
    old = projection.nodes[event.name]
    node = reporting(old, event.features_changeable, event.features_active)
    if node is not old:
        projection.update_node(node)
    _node_state(projection, event)


def _node_state(projection: Projection, event: cluster_events.NodeRegistered | cluster_events.NodeStateChanged) -> None:
    projection.put_node(replace(projection.nodes[event.name], state=event.state, flags=event.flags))


def _node_updated(projection: Projection, event: cluster_events.NodeUpdated) -> None:
    projection.update_node(event.node)


def _nodes_created(projection: Projection, event: cluster_events.NodesCreated) -> None:
    projection.partitions = with_nodes(projection.partitions, event.nodes, projection.settings.node_sets)
    projection.add_nodes([_node_of(projection, config) for config in event.nodes])


def _nodes_deleted(projection: Projection, event: cluster_events.NodesDeleted) -> None:
    for name in event.names:
        del projection.nodes[name]
    projection.partitions = without_nodes(projection.partitions, event.names)
    projection.outdated = True


def _partition_put(
    projection: Projection, event: cluster_events.PartitionCreated | cluster_events.PartitionUpdated
) -> None:
    waiting_jobs.rank_unplaced(projection)
    partition = event.partition
    if partition.default:
        for name, other in projection.partitions.items():
            if other.default:
                projection.partitions[name] = replace(other, default=False)
    projection.partitions[partition.name] = partition
    projection.rebuild()


def _partition_deleted(projection: Projection, event: cluster_events.PartitionDeleted) -> None:
    projection.partitions.pop(event.name, None)
    projection.rebuild()


def _policy_changed(projection: Projection, event: cluster_events.PolicyChanged) -> None:
    limits_policy.put_policy(projection, event.policy)


def _policy_amended(projection: Projection, event: cluster_events.PolicyAmended) -> None:
    limits_policy.amend_policy(projection, event.change)


def _usage_changed(projection: Projection, event: cluster_events.UsageReset | cluster_events.UsageAdopted) -> None:
    """Usage was reset: jobs that were out of minutes may be able to start."""
    projection.free_all()


def _reserved(
    projection: Projection, event: reservation_events.ReservationCreated | reservation_events.ReservationUpdated
) -> None:
    projection.put_reservation(event.reservation)


def _reservation_began(projection: Projection, event: reservation_events.ReservationBegan) -> None:
    projection.put_reservation(projection.reserved.by_name[event.name])


def _reservation_deleted(projection: Projection, event: reservation_events.ReservationDeleted) -> None:
    projection.drop_reservation(event.name)


# Any: each function takes its own kind of event; the table pairs them.
HANDLERS: dict[type[Event], Callable[[Projection, Any], None]] = {
    job_events.JobQueued: _queued,
    job_events.JobUpdated: _updated,
    job_events.ArrayTaskSplit: _split,
    job_events.ArrayTasksCancelled: _tasks_cancelled,
    job_events.JobHeld: _held,
    job_events.JobReleased: _released,
    job_events.JobBecameEligible: _became_eligible,
    job_events.JobAccrued: _accrued,
    job_events.DependenciesChanged: _dependencies_changed,
    job_events.JobsNoted: _noted,
    job_events.PrioritiesReached: _reached,
    job_events.JobStarted: _started,
    job_events.JobNodesUp: _nodes_up,
    job_events.JobSuspended: _suspended,
    job_events.JobResumed: _resumed,
    job_events.JobPreempted: _preempted,
    job_events.JobNodeFailed: _node_failed,
    job_events.JobEnded: _ended,
    job_events.JobNodeGone: _node_gone,
    job_events.JobRequeued: _requeued,
    job_events.JobsPurged: _purged,
    cluster_events.ClusterConfigured: _configured,
    cluster_events.NodeRegistered: _node_registered,
    cluster_events.NodeStateChanged: _node_state,
    cluster_events.NodeUpdated: _node_updated,
    cluster_events.NodesCreated: _nodes_created,
    cluster_events.NodesDeleted: _nodes_deleted,
    cluster_events.PartitionCreated: _partition_put,
    cluster_events.PartitionUpdated: _partition_put,
    cluster_events.PartitionDeleted: _partition_deleted,
    cluster_events.PolicyChanged: _policy_changed,
    cluster_events.PolicyAmended: _policy_amended,
    cluster_events.UsageReset: _usage_changed,
    cluster_events.UsageAdopted: _usage_changed,
    reservation_events.ReservationCreated: _reserved,
    reservation_events.ReservationUpdated: _reserved,
    reservation_events.ReservationBegan: _reservation_began,
    reservation_events.ReservationDeleted: _reservation_deleted,
}
