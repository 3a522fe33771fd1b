"""A start that the scheduler proposes: checked against the present state, then carried out.

The scheduler planned from a snapshot that may be stale, so `start_refusal` repeats every check that protects an
invariant: eligibility, limits, licenses, reservations and free resources. It does not repeat policy such as order.

Source: docs/architecture.md, "A plan may be stale"; slurm.conf(5) OverSubscribe for CPUs that may be shared.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from spritz.core.decide import prolog
from spritz.core.decide.accounts import association_number, limit_refusal
from spritz.core.decide.arrays import split
from spritz.core.decide.dependency import job_started
from spritz.core.decide.gang import wait_for_slice
from spritz.core.decide.node import powering
from spritz.core.decide.node.changing import change_refusal, changes, order_changes
from spritz.core.decide.starting.freed_state import FreedState
from spritz.core.flags import COMPLETING
from spritz.core.job.eligibility import may_wait
from spritz.core.job.timers import latest_start
from spritz.core.licenses import choose
from spritz.core.power import needs_power_up, resume_timeout
from spritz.core.reservations import in_the_way, licenses_used, use_refusal
from spritz.model.cluster.power import is_powered
from spritz.model.events.job import JobStarted
from spritz.model.ids import INFINITE
from spritz.model.node.reservation import leaving_seconds
from spritz.model.reasons import Reason
from spritz.model.resources import NodeAllocation, mask_of, mask_text
from spritz.model.rules.access import barred
from spritz.model.rules.availability import starts_jobs, takes_jobs
from spritz.model.rules.job_tres import allocated_pairs
from spritz.model.rules.licenses import NOTHING
from spritz.model.rules.node_shape import cpu_mask
from spritz.model.rules.node_use import share_misfit
from spritz.model.rules.partition_limits import exceeded
from spritz.model.rules.reservation_use import licenses_kept
from spritz.model.rules.sharing import (
    crowded_cpus,
    exceeds_partition_cpus,
    has_segment,
    jobs_per_cpu,
    may_meet,
    occupant_of,
    wants_whole_nodes,
)
from spritz.model.rules.time_limit import granted_minutes, held_seconds
from spritz.model.states import JobState, NodeFlag

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.node.partition import Partition
    from spritz.model.node.record import Node
    from spritz.model.plan import PlannedStart
    from spritz.model.resources import Allocation
    from spritz.model.rules.node_use import NodeUse


def start_refusal(state: State, start: PlannedStart, now: float, freed_state: FreedState | None = None) -> str:
    """Why this start is not possible, for the log; "" if it is. `freed_state`: check against this, not the state."""
    job = state.jobs.get(start.job_id)
    if job is None or job.state is not JobState.PENDING:
        return "not pending"
    # A requeued job is pending while processes of its last life may still run. Started now, it could meet them on the
    # same node, and its files would have two writers.
    if job.flags & COMPLETING:
        return "completing"
    if not may_wait(job):
        return f"not eligible ({job.reason.value})"
    # The Tick that ends it comes in a moment: a job may be queued again, or changed, when it is too late already.
    if now >= latest_start(job):
        return "it could not end before its --deadline"
    refusal = _array_refusal(state, job, start.task_id)
    if refusal:
        return refusal
    allocation = start.allocation
    partition = state.partitions.get(allocation.partition)
    if partition is None or not starts_jobs(partition):
        return "partition not available"
    if job.spec.partitions and allocation.partition not in job.spec.partitions:
        return "partition not asked for"
    outside = barred(job.spec, partition, state.rules, state.settings.enforce)
    if outside is not None:
        return f"not allowed ({outside[0].value})"
    limit = exceeded(job.spec, partition, state.settings, state.rules.placing(job.spec.qos))
    if limit is not Reason.NONE:
        return f"limit {limit.value}"
    if not allocation.nodes:
        return "no nodes"
    # The time limit comes first, since limits on minutes, licenses of reservations and reservations themselves are
    # asked for a stretch of time.
    minutes = _granted(state, job, start, now)
    seconds = held_seconds(minutes)
    refusal = limit_refusal(state, job, start, minutes, freed_state.ledger if freed_state else state.ledger, now)
    if refusal:
        return refusal
    if job.spec.licenses:
        returned = freed_state.licenses() if freed_state else NOTHING
        kept = _licenses_kept(state, start, now, seconds)
        if choose(state, job.spec.licenses, returned, kept, start.licenses) is None:
            return "licenses in use"
    # The nodes come last, since there may be thousands of them. From here on the cost grows with the size of the job.
    return (
        _reservation_refusal(state, job, start, now, seconds)
        or _allocation_refusal(freed_state or FreedState(state), job, allocation, partition, now)
        or power_refusal(state, allocation.names)
    )


def power_refusal(state: State, names: Collection[str]) -> str:
    """Empty unless a start on these nodes would power up more nodes than max_powered_nodes permits."""
    most = state.settings.power.powered_max
    if most is None:
        return ""
    nodes = (state.nodes[name] for name in names)
    more = sum(not is_powered(node.state, node.flags) for node in nodes)
    return "too many nodes powered up" if more and state.powered_count + more > most else ""


def _reservation_refusal(state: State, job: Job, start: PlannedStart, now: float, seconds: float) -> str:
    """Why reservations keep the job from running there for so long; "" if they do not."""
    allocation = start.allocation
    if allocation.reservation or job.spec.reservation:
        refusal = use_refusal(state, job, allocation.reservation, allocation.nodes, now)
        if refusal:
            return refusal
    if not state.reservations:
        return ""
    own_reservation = state.reservations.get(allocation.reservation)
    empty = (
        NodeAllocation(node=name, cpus=mask_text(cpu_mask(state.nodes[name].config.capacity)))
        for name in allocation.kept or ()
        if name in state.nodes
    )
    for share in (*allocation.nodes, *empty):
        other = in_the_way(state, share, now, seconds, own_reservation, leaving_seconds(job.spec))
        if other is not None:
            return f"node {share.node} is reserved ({other.name})"
    return ""


def _licenses_kept(state: State, start: PlannedStart, now: float, seconds: float) -> Mapping[str, int]:
    if not any(other.licenses for other in state.reservations.values()):
        return NOTHING
    own_reservation = state.reservations.get(start.allocation.reservation)
    return licenses_kept(state.reservations.values(), own_reservation, now, seconds, partial(licenses_used, state))


def _granted(state: State, job: Job, start: PlannedStart, now: float) -> int:
    """The time limit of this start in minutes: --time-min lets the plan shorten it, and it ends by --deadline."""
    spec, most = job.spec, start.time_limit_minutes
    if spec.deadline_at:
        until_deadline = int((spec.deadline_at - now) // 60)
        most = until_deadline if most is None else min(most, until_deadline)
    home = state.partitions[start.allocation.partition]
    return granted_minutes(spec, home, state.rules.placing(spec.qos), most)


def _array_refusal(state: State, job: Job, task_id: int | None) -> str:
    if job.array is not None:
        if task_id is None or not mask_of(job.array.pending) >> task_id & 1:
            return "no such pending array task"
        if job.array.limit and state.arrays_running.get(job.id, 0) >= job.array.limit:
            return "array task limit"
        return ""
    if task_id is not None and task_id != job.array_task_id:
        return "no such array task"
    limit = job.array_of.limit if job.array_of is not None else 0
    if limit and state.arrays_running.get(job.array_job_id, 0) >= limit:
        return "array task limit"
    return ""


def _allocation_refusal(
    freed_state: FreedState, job: Job, allocation: Allocation, partition: Partition, now: float
) -> str:
    state, seen = freed_state.state, set()
    # Placement saw a snapshot. Whatever it relied on may have changed since, so each share is compared with the node as
    # it is now. A share that no longer fits is refused and never adjusted: the next cycle plans the job again.
    sharing = jobs_per_cpu(partition, job.spec)
    if wants_whole_nodes(job.spec, partition, state.settings) and not allocation.whole_nodes:
        return "no whole nodes"
    for share in allocation.nodes:
        name = share.node
        # `NodeUse` keeps one share for each job: a second one on the same node would be charged, but never given back.
        if name in seen:
            return f"node {name} twice"
        seen.add(name)
        node = state.nodes.get(name)
        if node is None or partition.name not in state.node_partitions.get(name, ()):
            return f"node {name} not in partition"
        if not takes_jobs(node, resumes=state.settings.power.resumes):
            return f"node {name} not available"
        if node.flags & NodeFlag.EXTERNAL and not job.spec.external:
            return f"node {name} runs external jobs alone"
        use = freed_state.use(name)
        misfit = share_misfit(use, node.config.capacity, share, sharing=sharing > 1)
        if misfit:
            return f"node {name}: {misfit}"
        if sharing > 1 and not cpus_agree(freed_state, share, use, partition, sharing):
            return f"node {name}: CPUs in use"
        if not allocation.whole_nodes and _exceeds_partition_cpus(freed_state, node, share, use, partition):
            return f"node {name}: too many CPUs for partition {partition.name}"
        if job.spec.reboot and (use.jobs or not state.settings.power.reboots):
            return f"node {name} cannot be rebooted"
        # Kept empty for a job with --exclusive=topo on another node of the same switch.
        if use.kept:
            return f"node {name} is kept for job {next(iter(use.kept))}"
        if state.settings.features.names:
            refusal = change_refusal(state, job, node, use, now)
            if refusal:
                return refusal
        if use.jobs and not _may_share_node(freed_state, job, allocation, partition, name):
            return f"node {name} is not free"
    return _segment_refusal(freed_state, job, allocation, partition)


def _segment_refusal(freed_state: FreedState, job: Job, allocation: Allocation, partition: Partition) -> str:
    """--exclusive=topo, ExclusiveTopo: all nodes of its leaf switches or blocks must be empty, and be in `kept`."""
    if not has_segment(partition, job.spec.sharing):
        return "" if allocation.kept is None else "it keeps nodes that it may not keep"
    units = freed_state.state.units(partition)
    neighbours = {other for name in allocation.names for other in units.get(name, ())}
    if allocation.kept is None or not neighbours & freed_state.state.nodes.keys() <= set(allocation.held):
        return "the other nodes of its switches are not kept free"
    for name in allocation.kept:
        if name in freed_state.state.uses and (freed_state.use(name).jobs or freed_state.use(name).kept):
            return f"node {name} of its switches is not free"
    return ""


def cpus_agree(freed_state: FreedState, share: NodeAllocation, use: NodeUse, partition: Partition, most: int) -> bool:
    """Whether the jobs on these CPUs share them: jobs of the same partition, and at most `most` on one CPU."""
    foreign, shares = 0, []
    for other_id, other in use.jobs.items():
        job, mask = freed_state.job(other_id), mask_of(other.cpus)
        if other_id in use.suspended and (job.suspended_by != "gang" or job.partition != partition.name):
            continue
        if job.partition == partition.name and jobs_per_cpu(partition, job.spec) >= most:
            shares.append(mask)
        else:
            foreign |= mask
    return not mask_of(share.cpus) & (foreign | crowded_cpus(shares, most))


def _exceeds_partition_cpus(
    freed_state: FreedState, node: Node, share: NodeAllocation, use: NodeUse, partition: Partition
) -> bool:
    if min(partition.max_cpus_per_node, partition.max_cpus_per_socket) >= INFINITE:
        return False
    shares = [
        mask_of(other.cpus)
        for other_id, other in use.jobs.items()
        if other_id not in use.suspended and freed_state.job(other_id).partition == partition.name
    ]
    return exceeds_partition_cpus(partition, node.config.capacity, shares, mask_of(share.cpus))


def _may_share_node(freed_state: FreedState, job: Job, allocation: Allocation, partition: Partition, name: str) -> bool:
    """Whether the job may share a node with the jobs there: --exclusive, =user, =mcs, ExclusiveUser."""
    settings, homes = freed_state.state.settings, freed_state.state.partitions
    occupant = occupant_of(job.spec, allocation, partition, settings)
    # Jobs there may be suspended, so that their CPUs look free.
    return all(
        may_meet(occupant, occupant_of(other.spec, other.allocation, homes.get(other.partition), settings))
        for other in freed_state.occupants(name, partition.name)
    )


def start_job(context: DecisionContext, start: PlannedStart) -> None:
    """Give the job its allocation and launch its script."""
    job = context.state.jobs[start.job_id]
    if job.array is not None and start.task_id is not None:
        job = context.state.jobs[split(context, job.id, start.task_id)]
    minutes = _granted(context.state, job, start, context.now)
    changing = bool(context.state.settings.features.names) and changes(context.state, job, start.allocation)
    powering_up = changing or job.spec.reboot or needs_power_up(context.state, start.allocation)
    # Its time limit starts when its nodes are up, which may take this long.
    delay = max(resume_timeout(context.state, name) for name in start.allocation.names) if powering_up else 0.0
    if changing:
        delay = max(delay, float(context.state.settings.features.boot_seconds))
    kept = _licenses_kept(context.state, start, context.now, held_seconds(minutes))
    chosen = choose(context.state, job.spec.licenses, NOTHING, kept, start.licenses) if job.spec.licenses else ()
    licenses = chosen or ()
    held = (*allocated_pairs(start.allocation), *((f"license/{name}", count) for name, count in licenses))
    context.record(
        JobStarted(
            at=context.now,
            job_id=job.id,
            allocation=start.allocation,
            time_limit_minutes=minutes,
            licenses=licenses,
            ends_at=0.0 if minutes >= INFINITE else context.now + minutes * 60.0 + delay,
            configuring=powering_up or prolog.comes_first(context.state.settings),
            powering_up=powering_up,
            priority=start.priority,
            billing=context.state.rules.billing(start.allocation.partition, held),
            scheduler=_scheduler(job, start),
            association=association_number(context.state, job.spec, start.allocation.partition),
        )
    )
    if powering_up:
        powering.call_up(context, context.state.jobs[job.id])
        if job.spec.reboot or changing:
            order_changes(context, context.state.jobs[job.id], start.allocation)
    elif not context.state.settings.prolog_slurmctld:
        prolog.prepare(context, context.state.jobs[job.id])
    wait_for_slice(context, context.state.jobs[job.id])
    # Last: `after` conditions look at the start that has just been recorded.
    job_started(context, job)


def _scheduler(job: Job, start: PlannedStart) -> str:
    """sacct's SchedFlags: started at submission, by the main scheduler, or by backfill."""
    if start.backfilled:
        return "Backfill"
    return "Main" if job.spec.batch or job.last_evaluated_at else "Submit"
