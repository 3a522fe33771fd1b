"""SubmitJob: a request becomes a queued job, or is refused in Slurm's words.

Source: sbatch(1), salloc(1); slurm.conf(5) MaxJobCount, MaxArraySize.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.accounts import association_number, check_account_limits, with_account
from spritz.core.decide.arrays import enough_numbers, free_number
from spritz.core.decide.dependency import (
    Waiter,
    cancel_if_hopeless,
    correspond,
    fresh_dependencies,
    look_again,
    still_open,
)
from spritz.core.decide.submission.memory import with_counted_memory, with_cpus_for_memory, with_default_memory
from spritz.core.decide.submission.spec import check_submission, with_alternates, with_unique_nodes
from spritz.core.decision import DecisionContext, Refused
from spritz.core.job import het
from spritz.core.job.eligibility import eligibility
from spritz.core.priority import initial_priority
from spritz.core.rights import administers, operates
from spritz.model.commands.job import SUBMIT_KEY_LENGTH_MAX, JobSubmitted, SubmitHetJob, SubmitJob, WillRun
from spritz.model.errors import ESLURM
from spritz.model.events.job import JobQueued
from spritz.model.federation import may_have_siblings, member, suits, viable
from spritz.model.job.record import ArrayState, Federated, Hold, Job, Sharing
from spritz.model.reasons import Reason
from spritz.model.resources import mask_of, mask_text
from spritz.model.rules import time_limit
from spritz.model.rules.access import barrier
from spritz.model.rules.components import components_share
from spritz.model.rules.job_tres import requested_pairs
from spritz.model.rules.mcs import BadLabel, label_of
from spritz.model.rules.sharing import oversubscription
from spritz.model.states import JobState, PartitionState
from spritz.notation.ranges import RangeError, parse_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
    from spritz.model.job.record import Dependency, JobSpec
    from spritz.model.node.partition import Partition


def submit_job(context: DecisionContext, command: SubmitJob) -> JobSubmitted | WillRun:
    """Queue a job. With `test_only` nothing changes; the reply has no start time, which only the scheduler knows."""
    queued_id = known_submission(context.state, command, context.caller)
    if queued_id:
        return JobSubmitted(job_id=queued_id)
    if command.spec.cron is not None:
        raise Refused("ESLURM_NOT_SUPPORTED", hint="only jobs of a crontab can recur")
    check_clusters(context.state, command.spec)
    job = with_siblings(context.state, new_job(context, command), command.spec)
    if command.test_only:
        return WillRun(job_id=job.id, start_at=0.0, nodes="", cpus=0, partition=job.partition)
    if command.spec.batch and not (command.script or command.spec.script_key):
        raise Refused("ESLURM_JOB_SCRIPT_MISSING")
    obstacle = "" if job.spec.batch else _obstacle(context.state, job)
    if command.immediate_seconds is not None:
        if command.immediate_seconds <= 1 and (obstacle or job.reason in _NOT_YET):
            raise Refused("ESLURM_DEPENDENCY" if job.reason in _NOT_YET else obstacle)
        job = replace(job, start_by_at=context.now + max(command.immediate_seconds, 1))
    context.record(JobQueued(at=context.now, job=job))
    if job.dependencies:
        _settle_dependencies(context, job)
    return JobSubmitted(job_id=job.id, messages=(ESLURM[obstacle][1],) if obstacle else ())


def check_clusters(state: State, spec: JobSpec, *, stays: bool = False) -> None:
    """Refuses what no cluster of the federation may run. `stays`: a job that gets no siblings, whatever it asks for."""
    federation, cluster = state.rules.federation, state.settings.cluster_name
    membership = member(federation, cluster)
    if membership is None:
        if spec.cluster_features:
            raise Refused(
                "ESLURM_JOB_NOT_FEDERATED", hint="--cluster-constraint needs a federation, and this cluster is in none"
            )
        return
    unknown = [name for name in spec.clusters if member(federation, name) is None]
    if unknown:
        raise Refused(
            "ESLURM_INVALID_CLUSTER_NAME", hint=f"not in federation {membership.federation}: {','.join(unknown)}"
        )
    if membership.state == "INACTIVE":
        hint = f"cluster {cluster} is INACTIVE in federation {membership.federation}"
        raise Refused("ESLURM_FED_NO_VALID_CLUSTERS", hint=hint)
    if not any(suits(cluster_member, spec) for cluster_member in federation):
        raise Refused("ESLURM_INVALID_CLUSTER_FEATURE", hint=f"no cluster has the features {spec.cluster_features}")
    could = viable(federation, spec)
    if not could or (cluster not in could and (stays or not may_have_siblings(spec))):
        raise Refused(
            "ESLURM_FED_NO_VALID_CLUSTERS",
            hint=f"no cluster of {membership.federation} can take it now; arrays and heterogeneous jobs stay here",
        )


def with_siblings(state: State, job: Job, submitted: JobSpec) -> Job:
    """The job as the origin of its siblings, if it may have any. `submitted`: the request without our defaults."""
    federation, cluster = state.rules.federation, state.settings.cluster_name
    if not federation or job.het_job_id or not may_have_siblings(job.spec):
        return job
    spec = job.spec
    request = replace(submitted, uid=spec.uid, gid=spec.gid, user=spec.user, group=spec.group, groups=())
    local = cluster in viable(federation, spec)
    return replace(job, federation=Federated(origin=cluster, request=request, local=local))


#: reasons for which a job cannot start in the second in which it was submitted (`--immediate`)
_NOT_YET = (Reason.BEGIN_TIME, Reason.DEPENDENCY, Reason.HELD_USER)


def _obstacle(state: State, job: Job) -> str:
    """The error that srun and salloc print while their job waits; "" for none."""
    if job.hold is not Hold.NONE:
        return "ESLURM_JOB_HELD"
    if all(state.partitions[name].state is PartitionState.DOWN for name in job.spec.partitions or (job.partition,)):
        return "ESLURM_PARTITION_DOWN"
    limits = (Reason.PARTITION_NODE_LIMIT, Reason.PARTITION_TIME_LIMIT, Reason.MAX_MEMORY_PER_LIMIT)
    return "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE" if job.reason in limits else ""


def submit_het_job(context: DecisionContext, command: SubmitHetJob) -> JobSubmitted | WillRun:
    """Queue all components of a heterogeneous job with consecutive ids, or none of them."""
    components = command.components
    leader = components[0] if components else None
    if leader is not None:
        check_clusters(context.state, leader.spec, stays=True)
    if leader is None or len(components) > het.COMPONENTS_MAX:
        raise Refused("ESLURM_INVALID_JOB_ID", hint=f"a heterogeneous job has 1 to {het.COMPONENTS_MAX} components")
    queued_id = known_submission(context.state, leader, context.caller)
    if queued_id:
        return JobSubmitted(job_id=queued_id)
    for component in components:
        _check_component(component.spec)
    if leader.spec.batch and not leader.test_only and not (leader.script or leader.spec.script_key):
        raise Refused("ESLURM_JOB_SCRIPT_MISSING")
    count = len(components)
    first = free_number(context.state, count)
    jobs = []
    for offset, component in enumerate(components):
        job = new_job(context, component, Component(first, offset, count))
        if component.immediate_seconds is not None:
            job = replace(job, start_by_at=context.now + max(component.immediate_seconds, 1))
        jobs.append(job)
    named = [name for component in components for name in set(component.spec.node_list)]
    if len(set(named)) < len(named) and not components_share(context.state.settings):
        raise Refused(
            "ESLURM_INVALID_NODE_NAME", hint="two components name the same node, but components do not share nodes"
        )
    if leader.test_only:
        return WillRun(job_id=first, start_at=0.0, nodes="", cpus=0, partition=jobs[0].partition)
    for job in jobs:
        context.record(JobQueued(at=context.now, job=job))
    for job in jobs:
        if job.dependencies and context.state.jobs[job.id].state is JobState.PENDING:
            _settle_dependencies(context, context.state.jobs[job.id])
    return JobSubmitted(job_id=first)


def _check_component(spec: JobSpec) -> None:
    """Refuses what no component can be: commands do not send it, other clients could."""
    if spec.array:
        raise Refused("ESLURM_INVALID_ARRAY")
    if spec.cron is not None:
        raise Refused("ESLURM_NOT_SUPPORTED", hint="only jobs of a crontab can recur")


def known_submission(state: State, command: SubmitJob, caller: Caller) -> int:
    """The job that this submission has queued already (0: none): the answer was lost, and the client asks again."""
    if not command.submit_key or command.test_only:
        return 0
    uid = command.spec.uid if caller.admin and command.spec.uid >= 0 else caller.uid
    return state.submissions.get((uid, command.submit_key), 0)


class Component:
    """Which component of which heterogeneous job."""

    __slots__ = ("first", "offset", "size")

    def __init__(self, first: int, offset: int, size: int) -> None:
        self.first = first
        self.offset = offset
        self.size = size


def new_job(
    context: DecisionContext, command: SubmitJob, component: Component | None = None, *, number: int = 0
) -> Job:
    """The record as it would be queued now, under `number` if given. Refuses what can never run; changes nothing."""
    state = context.state
    spec = _requested(context, command)
    partitions, waits = check_submission(context, spec)
    array = _array(state, spec)
    # Components are counted together: each alone could pass a limit that all together exceed.
    count = component.size if component is not None else 1 if array is None else array.task_count
    _check_counts(context, spec, partitions, count)
    job_id = number or (free_number(state) if component is None else component.first + component.offset)
    spec = with_cpus_for_memory(state, with_default_memory(state, _completed(spec, partitions)))
    spec = with_counted_memory(state, spec)
    array_job_id = job_id if array is not None else 0
    het_job_id = component.first if component is not None else 0
    hold = Hold.USER if spec.hold or spec.priority == 0 else Hold.NONE
    tasks = mask_of(array.pending) if array is not None and spec.dependencies else 0
    dependencies = _open_dependencies(
        context, spec, Waiter(spec, job_id, array_job_id or het_job_id, tasks, held=hold is not Hold.NONE)
    )
    reason, eligible_at = eligibility(spec, hold, dependencies, context.now)
    barred = barrier(partitions[0], spec.account, spec.qos) if hold is not Hold.NONE else None
    return Job(
        id=job_id,
        spec=spec,
        reason=waits if reason is Reason.NONE else reason,
        # As in Slurm, a held job reports this reason before its hold.
        reason_detail=barred[1] if barred is not None and barred[0] is waits else "",
        priority=0 if hold is not Hold.NONE else initial_priority(state, spec, job_id),
        hold=hold,
        partition=partitions[0].name,
        array=array,
        array_job_id=array_job_id,
        dependencies=dependencies,
        submitted_at=context.now,
        eligible_at=eligible_at,
        accrued_at=context.now if state.settings.priority_policy.accrue_always else None,
        association=association_number(state, spec, partitions[0].name),
        time_limit_minutes=time_limit.limit_minutes(spec, partitions[0]),
        billing=state.rules.billing(partitions[0].name, requested_pairs(spec)),
        het_job_id=het_job_id,
        het_offset=component.offset if component is not None else 0,
        het_size=component.size if component is not None else 0,
        submit_key=command.submit_key if component is None or not component.offset else "",
    )


def _requested(context: DecisionContext, command: SubmitJob) -> JobSpec:
    """The request with its owner, account, label and counted memory filled in; the partition's defaults come later."""
    state = context.state
    spec = _owned(context, command.spec, command.granted)
    if spec.exempt or spec.time_granted:
        # users may not set these
        spec = replace(spec, exempt=(), time_granted=False)
    if spec.node_list or spec.exclude:
        spec = with_unique_nodes(spec)
    if spec.dependencies:
        spec = replace(spec, dependencies=fresh_dependencies(spec.dependencies))
    if len(command.submit_key) > SUBMIT_KEY_LENGTH_MAX:
        raise Refused(
            "ESLURM_PATHNAME_TOO_LONG", hint=f"a submission key may have at most {SUBMIT_KEY_LENGTH_MAX} characters"
        )
    if len(command.script) > state.settings.max_script_bytes:
        raise Refused("ESLURM_PATHNAME_TOO_LONG", hint="the script is larger than max_script_size")
    spec = with_counted_memory(state, with_alternates(state, spec))
    spec = with_cpus_for_memory(state, with_account(state, spec))
    return labelled(context, spec)


def _check_counts(context: DecisionContext, spec: JobSpec, partitions: Sequence[Partition], count: int) -> None:
    """Refuses `count` jobs that the cluster cannot number or keep, or that exceed a limit of their account."""
    state = context.state
    if state.job_count + count > state.settings.max_job_count:
        raise Refused("ESLURM_MAX_JOB_COUNT", hint="MaxJobCount is reached")
    if not enough_numbers(state, count):
        raise Refused("ESLURM_MAX_JOB_COUNT", hint="all job ids from FirstJobId to MaxJobId are in use")
    for partition in partitions:
        minutes = time_limit.limit_minutes(spec, partition)
        check_account_limits(state, spec, partition.name, count, minutes, context.now)


def labelled(context: DecisionContext, spec: JobSpec) -> JobSpec:
    """The spec with the MCS label that keeps its nodes from others. Refuses a label that the user may not have."""
    is_owner = spec.uid == context.caller.uid
    try:
        label = label_of(context.state.settings.mcs, spec, context.caller.group_names if is_owner else (spec.group,))
    except BadLabel as error:
        raise Refused("ESLURM_INVALID_MCS_LABEL", hint=str(error)) from error
    return replace(spec, mcs_label=label) if label != spec.mcs_label else spec


def _owned(context: DecisionContext, spec: JobSpec, granted: tuple[str, ...]) -> JobSpec:
    """The spec with the caller as owner, unless an administrator submits for another user. What the site's plugins have
    set (`granted`) needs no right of the caller's.
    """
    caller = context.caller
    if caller.admin:
        if spec.uid < 0:
            return replace(
                spec, uid=caller.uid, gid=caller.gid, user=caller.user, group=caller.group, groups=caller.groups
            )
        return spec
    if spec.uid not in (-1, caller.uid):
        raise Refused("ESLURM_USER_ID_MISSING")
    if spec.gid not in (-1, caller.gid, *caller.groups):
        raise Refused("ESLURM_GROUP_ID_MISSING")
    operator, admin = operates(context.state, caller), administers(context.state, caller)
    if spec.nice < 0 and not operator and "nice" not in granted:
        raise Refused("ESLURM_INVALID_NICE")
    if spec.priority is not None and not operator and "priority" not in granted:
        # Differs: slurmctld 22.05 ignores the priority here. Source: sbatch(1) --priority.
        raise Refused(
            "ESLURM_ACCESS_DENIED", hint="only operators may set a priority; --hold and --nice are open to all users"
        )
    gid = spec.gid if spec.gid >= 0 else caller.gid
    return replace(
        spec,
        uid=caller.uid,
        gid=gid,
        user=caller.user,
        group=spec.group if gid == spec.gid and spec.group else caller.group,
        groups=caller.groups,
        admin_comment=spec.admin_comment if admin or "admin_comment" in granted else "",
        system_comment="",
    )


def _completed(spec: JobSpec, partitions: list[Partition]) -> JobSpec:
    """The request with what its partitions add: their names, DefaultTime and sharing."""
    if spec.deadline_at and spec.time_limit_minutes is None and not spec.time_min_minutes:
        # so that its limit can be shortened to end by then
        spec = replace(spec, time_min_minutes=1)
    spec = time_limit.with_default(spec, partitions[0])
    names = tuple(partition.name for partition in partitions)
    if spec.partitions != names:
        spec = replace(spec, partitions=names)
    sharing = _forced_sharing(spec, partitions)
    return replace(spec, sharing=sharing) if sharing is not spec.sharing else spec


def _forced_sharing(spec: JobSpec, partitions: list[Partition]) -> Sharing:
    """Sharing as the partitions force it on --exclusive and --oversubscribe, if they all agree."""
    if spec.sharing in (Sharing.USER, Sharing.MCS, Sharing.TOPO):
        return spec.sharing
    kinds = {oversubscription(partition) for partition in partitions}
    if all(kind == "FORCE" and count > 1 for kind, count in kinds):
        return Sharing.OVERSUBSCRIBE
    return Sharing.EXCLUSIVE if all(kind == "EXCLUSIVE" for kind, _count in kinds) else spec.sharing


def _array(state: State, spec: JobSpec) -> ArrayState | None:
    if not spec.array:
        return None
    if not spec.batch:
        raise Refused("ESLURM_INVALID_ARRAY")
    try:
        parsed = parse_array(spec.array, max(state.settings.max_array_size, 1))
    except RangeError as error:
        raise Refused("ESLURM_INVALID_ARRAY", hint=str(error)) from error
    ids = parsed.ids
    first = (ids & -ids).bit_length() - 1
    last = ids.bit_length() - 1
    count = ids.bit_count()
    tasks_max = dict(state.settings.scheduler_parameters).get("max_array_tasks", "")
    if tasks_max.isdecimal() and count > int(tasks_max):
        raise Refused("ESLURM_INVALID_ARRAY", hint=f"SchedulerParameters=max_array_tasks is {tasks_max}")
    limit = parsed.throttle
    if any(item.kind == "singleton" for item in spec.dependencies):
        # tasks of the array have one name, so one runs at a time
        limit = 1
    return ArrayState(
        pending=mask_text(ids),
        limit=limit,
        task_count=count,
        task_min=first,
        task_max=last,
        task_step=(last - first) // (count - 1) if count > 1 else 1,
    )


def _open_dependencies(context: DecisionContext, spec: JobSpec, waiter: Waiter) -> tuple[Dependency, ...]:
    if not spec.dependencies:
        return ()
    return still_open(context.state, waiter, spec.dependencies, spec.dependency_mode, context.now)


def _settle_dependencies(context: DecisionContext, job: Job) -> None:
    if job.array is not None:
        for item in job.dependencies:
            if item.kind == "aftercorr":
                correspond(context, job.id, item.job_id)
        look_again(context, job.id)
    cancel_if_hopeless(context, context.state.jobs[job.id])
