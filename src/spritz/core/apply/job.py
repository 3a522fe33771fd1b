"""How events about jobs change the state: one function per edge of the state diagram, named after it.

Source: `JOB_TRANSITIONS` for the edges; squeue(1) JOB STATE CODES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spritz.core.apply.reservation import unused
from spritz.core.flags import COMPLETING, CONFIGURING, POWER_UP_NODE
from spritz.core.job import het
from spritz.model.events import job as events
from spritz.model.federation import local_number
from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import Hold
from spritz.model.job.step import Step, StepNode, StepSpec
from spritz.model.reasons import Reason
from spritz.model.resources import mask_of, mask_text
from spritz.model.rules.job_tres import requested_pairs
from spritz.model.rules.predict import likeness_of, predicts
from spritz.model.states import JobFlag, JobState

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.state import State
    from spritz.model.events import Event
    from spritz.model.job.record import Job
    from spritz.model.resources import Allocation

#: flags that a start clears
_PENDING_FLAGS: int = (
    JobFlag.REQUEUED | JobFlag.REQUEUE_HOLD | JobFlag.SPECIAL_EXIT | JobFlag.LAUNCH_FAILED | JobFlag.EXPEDITING
).value
#: flags that a requeued job loses when its old nodes are clear
_CLEARED_FLAGS: int = (JobFlag.REQUEUED | JobFlag.REQUEUE_HOLD).value
_BATCH_STEP = StepSpec(name="batch")


def _queued(state: State, event: events.JobQueued) -> None:
    tie = event.job.federation
    if tie is None or tie.is_origin:
        _use_number(state, event.job.id)
    state.put_job(event.job)


def _use_number(state: State, job_id: int) -> None:
    following = local_number(job_id) + 1
    state.next_job_id = following if following <= state.settings.max_job_id else state.settings.first_job_id


def _split(state: State, event: events.ArrayTaskSplit) -> None:
    # Only tasks claim resources; old journals have arrays claim them until a task starts.
    array = replace(state.jobs[event.array_job_id], awaits_victims_since=0.0)
    assert array.array is not None, f"job {array.id} has no pending array tasks: {event}"
    # `aftercorr` of an array stands for "each task after its counterpart"; a task with a record of its own names the
    # one it waits for.
    task_id = event.task_id
    dependencies = tuple(
        replace(item, task_id=task_id) if item.kind == "aftercorr" and item.task_id is None else item
        for item in array.dependencies
    )
    shape = replace(array.array, pending="0")
    if event.job_id == array.id:
        state.put_job(replace(array, array=None, array_of=shape, array_task_id=task_id, dependencies=dependencies))
        return
    _use_number(state, event.job_id)
    pending = mask_of(array.array.pending) & ~(1 << task_id)
    state.put_job(replace(array, array=replace(array.array, pending=mask_text(pending))))
    state.put_job(
        replace(
            array,
            id=event.job_id,
            array=None,
            array_of=shape,
            array_task_id=task_id,
            dependencies=dependencies,
            submit_key="",
        )
    )
    state.job_count -= 1  # the task was counted with its array already


def _tasks_cancelled(state: State, event: events.ArrayTasksCancelled) -> None:
    job = state.jobs[event.array_job_id]
    array = job.array
    assert array is not None, f"job {job.id} has no pending array tasks: {event}"
    tasks = mask_of(event.tasks)
    pending, cancelled = mask_of(array.pending) & ~tasks, mask_of(array.cancelled) | tasks
    shape = replace(array, pending=mask_text(pending), cancelled=mask_text(cancelled))
    state.put_job(replace(job, array=shape))
    state.job_count -= tasks.bit_count()


def _updated(state: State, event: events.JobUpdated) -> None:
    state.put_job(event.job)


def _held(state: State, event: events.JobHeld) -> None:
    job = state.jobs[event.job_id]
    state.put_job(
        replace(
            job,
            hold=event.hold,
            priority=0,
            reason=event.reason,
            reason_detail=event.detail,
            expected_start_at=0.0,
            awaits_victims_since=0.0,
            eligible_at=0.0 if job.state is JobState.PENDING else job.eligible_at,
            accrued_at=job.submitted_at if state.settings.priority_policy.accrue_always else None,
        )
    )


def _accrued(state: State, event: events.JobAccrued) -> None:
    state.put_job(replace(state.jobs[event.job_id], accrued_at=event.since))


def _released(state: State, event: events.JobReleased) -> None:
    job = state.jobs[event.job_id]
    state.put_job(
        replace(
            job,
            hold=Hold.NONE,
            priority=event.priority,
            reason=event.reason,
            reason_detail="",
            eligible_at=event.eligible_at,
            flags=int(job.flags & ~(JobFlag.REQUEUE_HOLD | JobFlag.SPECIAL_EXIT)),
        )
    )


def _became_eligible(state: State, event: events.JobBecameEligible) -> None:
    job = state.jobs[event.job_id]
    state.put_job(replace(job, eligible_at=job.eligible_at or event.at, reason=event.reason, reason_detail=""))


def _dependencies_changed(state: State, event: events.DependenciesChanged) -> None:
    job = state.jobs[event.job_id]
    state.put_job(
        replace(
            job,
            dependencies=event.dependencies,
            reason=event.reason,
            reason_detail="",
            eligible_at=event.eligible_at,
        )
    )


def _reached(state: State, event: events.PrioritiesReached) -> None:
    for job_id, partition, priority in event.marks:
        job = state.jobs[job_id]
        marks = {**dict(job.priorities_reached), partition: priority}
        state.put_job(replace(job, priorities_reached=tuple(marks.items())))


def _noted(state: State, event: events.JobsNoted) -> None:
    for note in event.notes:
        job = state.jobs[note.job_id]
        state.put_job(
            replace(
                job,
                reason=note.reason,
                reason_detail=note.detail,
                expected_start_at=note.expected_start_at,
                expected_nodes=note.expected_nodes,
                last_evaluated_at=event.at,
            )
        )


def _started(state: State, event: events.JobStarted) -> None:
    allocation = event.allocation
    job = replace(
        state.jobs[event.job_id],
        state=JobState.RUNNING,
        reason=Reason.PROLOG if event.configuring and not event.powering_up else Reason.NONE,
        reason_detail="",
        partition=allocation.partition,
        dependencies=(),
        started_at=event.at,
        ends_at=event.ends_at,
        exit_status=0,
        time_limit_minutes=event.time_limit_minutes,
        allocation=allocation,
        reservation_ends_at=_reservation_end(state, allocation.reservation),
        last_evaluated_at=event.at,
        licenses=event.licenses,
        billing=event.billing,
        scheduler=event.scheduler,
        association=event.association or state.jobs[event.job_id].association,
        priority=event.priority or state.jobs[event.job_id].priority,
    )
    # Facts about the wait end with it: flags, the expected start, and the preemption that made room.
    if job.flags & _PENDING_FLAGS:
        job = replace(job, flags=int(job.flags & ~_PENDING_FLAGS))
    if job.expected_start_at or job.expected_nodes or job.start_by_at:
        job = replace(job, expected_start_at=0.0, expected_nodes=(), start_by_at=0.0)
    if job.preempted_at or job.awaits_victims_since:
        job = replace(job, preempted_at=0.0, awaits_victims_since=0.0)
    if event.configuring:
        job = replace(job, flags=job.flags | CONFIGURING)
    if event.powering_up:
        job = replace(job, flags=job.flags | POWER_UP_NODE)
    state.put_job(job)
    for share in allocation.nodes:
        state.take(job.id, share)
        state.refresh_node_deadline(share.node)
    state.hold_idle_nodes(job)
    if job.has_script:
        # The batch step has no event of its own: a job with a script starts together with it, or not at all.
        first = allocation.nodes[0]
        container = job.spec.container
        state.put_step(
            Step(
                job_id=job.id,
                step_id=STEP_BATCH,
                spec=_BATCH_STEP if container is None else replace(_BATCH_STEP, container=container),
                uid=job.spec.uid,
                nodes=(StepNode(allocation=first, task_ids=(0,)),),
                restart_count=job.restart_count,
                started_at=event.at,
                running_nodes=(first.node,),
                unstarted_nodes=(first.node,),
            )
        )


def _prologs_began(state: State, event: events.JobPrologsBegan) -> None:
    job = state.jobs[event.job_id]
    assert job.allocation is not None, f"{event} of a job without nodes"
    state.put_job(replace(job, prolog_nodes=job.allocation.names))


def _node_ready(state: State, event: events.JobNodeReady) -> None:
    job = state.jobs[event.job_id]
    left = tuple(name for name in job.prolog_nodes or () if name != event.node)
    state.put_job(replace(job, prolog_nodes=left))


def _reservation_end(state: State, name: str) -> float:
    """When the reservation ends its jobs (0.0: never)."""
    reservation = state.reservations.get(name) if name else None
    return 0.0 if reservation is None or reservation.flexible else reservation.end_at


def _configured(state: State, event: events.JobConfigured) -> None:
    job = state.jobs[event.job_id]
    reason = Reason.NONE if job.reason is Reason.PROLOG else job.reason
    state.put_job(replace(job, flags=job.flags & ~CONFIGURING, reason=reason))


def _nodes_up(state: State, event: events.JobNodesUp) -> None:
    job = state.jobs[event.job_id]
    state.put_job(replace(job, flags=job.flags & ~POWER_UP_NODE, started_at=event.at, ends_at=event.ends_at))


def _end_signal_sent(state: State, event: events.EndSignalSent) -> None:
    state.put_job(replace(state.jobs[event.job_id], end_signal_sent=True))


def _suspended(state: State, event: events.JobSuspended) -> None:
    job = state.jobs[event.job_id]
    # An administrator may suspend a job that is suspended already: its time stands still since the first suspension.
    since = job.suspended_at if job.state is JobState.SUSPENDED else event.at
    state.put_job(replace(job, state=JobState.SUSPENDED, suspended_at=since, suspended_by=event.by))
    _steps_stood_still(state, job.id, 0.0)
    for share in state.held_shares(job):
        state.change_use(share.node).suspend(job.id)
    if event.by == "gang" and not state.next_slice_at:
        state.next_slice_at = event.at + state.settings.preemption.slice_seconds


def _steps_stood_still(state: State, job_id: int, seconds: float) -> None:
    """The job was suspended, or was for so long: the time limits of its steps move."""
    for step in tuple(state.steps.get(job_id, {}).values()):
        state.put_step(replace(step, suspended_seconds=step.suspended_seconds + seconds))


def _preempted(state: State, event: events.JobPreempted) -> None:
    job = state.jobs[event.job_id]
    state.put_job(replace(job, preempted_at=event.at, preempt_action=event.mode, ends_at=event.ends_at))
    preemptor = state.jobs.get(event.by_job_id)
    # The preemptor claims what its victims release: it ranks before all others until it starts
    # (`waiting_jobs.CLAIMING_TIER`).
    for member in het.members(state, preemptor) if preemptor is not None else ():
        if member.state is JobState.PENDING:
            state.put_job(replace(member, awaits_victims_since=event.at))


def _resumed(state: State, event: events.JobResumed) -> None:
    before = state.jobs[event.job_id]
    job = replace(
        before,
        state=JobState.RUNNING,
        suspended_at=0.0,
        suspended_by="",
        suspended_seconds=event.suspended_seconds,
        ends_at=event.ends_at,
    )
    state.put_job(replace(job, resumed_at=event.resumed_at) if event.resumed_at else job)
    _steps_stood_still(state, job.id, event.suspended_seconds - before.suspended_seconds)
    for share in state.held_shares(job):
        state.change_use(share.node).resume(job.id)


def _node_failed(state: State, event: events.JobNodeFailed) -> None:
    job = state.jobs[event.job_id]
    allocation = job.allocation
    assert allocation is not None, f"{event} of a job without nodes"
    kept = [rank for rank, share in enumerate(allocation.nodes) if share.node != event.node]
    tasks = tuple(allocation.tasks[rank] for rank in kept) if allocation.tasks else ()
    nodes = tuple(allocation.nodes[rank] for rank in kept)
    state.change_use(event.node).give_back(job.id)
    state.left_node(event.node, event.at)
    job = replace(job, allocation=replace(allocation, nodes=nodes, tasks=tasks), failed_node=event.node)
    if job.prolog_nodes:
        job = replace(job, prolog_nodes=tuple(name for name in job.prolog_nodes if name != event.node))
    state.put_job(job)


#: ends that show how long such jobs run
_TELLING = frozenset(
    {JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED, JobState.OUT_OF_MEMORY}
)


def _ended(state: State, event: events.JobEnded) -> None:
    old = state.jobs[event.job_id]
    if old.spec.reservation or (old.allocation is not None and old.allocation.reservation):
        unused(state, old, event.at)
    if old.state.active and event.state in _TELLING and predicts(state.settings):
        away = event.at - old.suspended_at if old.state is JobState.SUSPENDED else 0.0
        seconds = event.at - old.started_at - old.suspended_seconds - away
        state.learn_run_time(likeness_of(old.spec), max(0.0, seconds))
    job = _ended_record(old, event)
    state.put_job(job)
    state.end_step_deadlines(job.id)
    if old.state.active and old.allocation is not None:
        _free(state, job, old.allocation, event)
    if job.array_job_id:
        _refresh_array(state, job)
    if job.het_job_id:
        _refresh_components(state, job)


def _ended_record(old: Job, event: events.JobEnded) -> Job:
    """The record of the job that has ended."""
    completing = event.completing
    job = replace(
        old,
        state=event.state,
        reason=event.reason,
        reason_detail=event.reason_detail,
        ended_at=event.at,
        ends_at=event.at,
        exit_status=event.exit_status,
        derived_exit_status=event.derived_exit_status,
        completing=completing,
        failed_node=event.failed_node,
        cancelled_by_uid=event.by_uid,
        repeat_kill_at=event.repeat_kill_at,
        dependencies=(),
        expected_start_at=0.0,
        expected_nodes=(),
        reservation_ends_at=0.0,
    )
    if old.flags & CONFIGURING:
        job = replace(job, flags=job.flags & ~(CONFIGURING | POWER_UP_NODE))
    if old.prolog_nodes is not None:
        job = replace(job, prolog_nodes=None)
    if old.preempt_action or old.awaits_victims_since:
        job = replace(job, preempt_action="", awaits_victims_since=0.0)
    if old.state is JobState.PENDING:
        job = replace(job, started_at=event.at)  # as in Slurm: it ran for no time
    if old.state is JobState.SUSPENDED:
        seconds = old.suspended_seconds + max(0.0, event.at - old.suspended_at)
        # `suspended_at` stays while nodes hold processes: their CPUs were released when they stopped.
        job = replace(job, suspended_at=old.suspended_at if completing else 0.0, suspended_seconds=seconds)
        if not completing:
            job = replace(job, suspended_by="")
    # A job that is cancelled while it waits for the nodes of an earlier life keeps waiting for them. Its record has two
    # lives: the job ran (life 0), was requeued, and is cancelled while it waits (life 1) and a node is still silent.
    # The record ends, and `completing` names nodes of life 0.
    if old.state is JobState.PENDING and old.flags & COMPLETING:
        return replace(
            job,
            completing=old.completing,
            repeat_kill_at=old.repeat_kill_at,
            flags=int(job.flags & ~_CLEARED_FLAGS),
        )
    if completing:
        job = replace(job, flags=int(job.flags | COMPLETING), completing_life=old.restart_count)
    return job


def _free(state: State, job: Job, allocation: Allocation, event: events.JobEnded) -> None:
    """Give back what the job held, except on nodes that still have processes of it."""
    # A node that is still COMPLETING keeps CPUs, memory and devices in use: a process that has not died holds them
    # whatever the state of its job is. `_node_gone` gives them back.
    staying = set(event.completing)
    for share in allocation.nodes:
        use = state.change_use(share.node)
        if share.node in staying:
            use.completing[job.id] = None
        else:
            use.give_back(job.id)
            state.left_node(share.node, event.at)
    if not staying:
        state.release_idle_nodes(job.id, allocation)


def _refresh_array(state: State, job: Job) -> None:
    """Tasks of an array may be purged once the last of them has ended: their deadlines change together."""
    if job.array_job_id not in state.arrays_live:
        for member_id in array_members(state, job.array_job_id):
            state.put_job(state.jobs[member_id])


def _refresh_components(state: State, job: Job) -> None:
    """Components may be purged once the last of them has ended: their deadlines change together."""
    for other in het.others(state, job):
        state.refresh_deadline(other)


def array_members(state: State, array_id: int) -> list[int]:
    """Ids of all records of an array: those of its tasks, then its own if that has no task id."""
    members = list(state.arrays.get(array_id, {}).values())
    array_record = state.jobs.get(array_id)
    if array_record is not None and array_record.array_job_id == array_id and array_record.array_task_id is None:
        members.append(array_id)
    return members


def _kill_repeated(state: State, event: events.KillRepeated) -> None:
    state.put_job(replace(state.jobs[event.job_id], repeat_kill_at=event.repeat_kill_at))


def _node_gone(state: State, event: events.JobNodeGone) -> None:
    job = state.jobs[event.job_id]
    if event.node in state.uses:
        state.change_use(event.node).give_back(job.id)
        state.left_node(event.node, event.at)
    completing = tuple(name for name in job.completing if name != event.node)
    if completing:
        state.put_job(replace(job, completing=completing))
        return
    if job.allocation is not None:
        state.release_idle_nodes(job.id, job.allocation)
    job = replace(job, completing=(), flags=int(job.flags & ~COMPLETING), repeat_kill_at=0.0, suspended_at=0.0)
    if job.suspended_by:
        job = replace(job, suspended_by="")
    if job.completing_life != job.restart_count or job.state is JobState.PENDING:
        job = _without_former_life(state, job)
    state.put_job(job)
    if job.array_job_id:
        _refresh_array(state, job)
    if job.het_job_id:
        _refresh_components(state, job)


def _without_former_life(state: State, job: Job) -> Job:
    """The job, which waits or was cancelled while it waited, when the nodes of its former life are clear.

    Until then the record describes that life, so that nodes are returned one by one, and their jobs know why.
    """
    if job.preempted_at:
        job = replace(job, preempted_at=0.0)
    partition = next(iter(job.spec.partitions), job.partition)
    return replace(
        job,
        flags=int(job.flags & ~_CLEARED_FLAGS),
        partition=partition,
        allocation=None,
        billing=state.rules.billing(partition, requested_pairs(job.spec)),
        licenses=(),
        failed_node="",
    )


def _requeued(state: State, event: events.JobRequeued) -> None:
    job = state.jobs[event.job_id]
    if job.array_job_id and job.array_job_id not in state.arrays_live:
        # Every task had ended, and their records had deadlines for being purged. With one task queued again the array
        # lives, and all of them must stay until it has ended too.
        reborn = array_members(state, job.array_job_id)
    else:
        reborn = []
    spec = replace(job.spec, begin_at=event.begin_at) if event.begin_at else job.spec
    job = replace(
        job,
        spec=spec,
        state=JobState.PENDING,
        flags=int(job.flags | event.flags),
        reason=event.reason,
        reason_detail=event.reason_detail,
        priority=event.priority,
        hold=event.hold,
        submitted_at=event.at,
        eligible_at=event.eligible_at,
        accrued_at=event.at if state.settings.priority_policy.accrue_always else None,
        started_at=0.0,
        ends_at=0.0,
        ended_at=0.0,
        suspended_seconds=0.0,
        time_limit_minutes=spec.time_limit_minutes,
        # The exit status stays until the job starts again, that of its steps for good.
        restart_count=event.restart_count,
        next_step_id=0,
        end_signal_sent=False,
        cancelled_by_uid=-1,
        scheduler="",
    )
    state.put_job(job if job.flags & COMPLETING else _without_former_life(state, job))
    for member_id in reborn:
        # The whole array is live again, so none of its records is due to be purged.
        state.put_job(state.jobs[member_id])
    if job.het_job_id:
        _refresh_components(state, job)


def _purged(state: State, event: events.JobsPurged) -> None:
    for job_id in event.job_ids:
        state.forget_job(job_id)


# Any: each function takes its own kind of event.
APPLIERS: dict[type[Event], Callable[[State, Any], None]] = {
    events.JobQueued: _queued,
    events.ArrayTaskSplit: _split,
    events.ArrayTasksCancelled: _tasks_cancelled,
    events.JobUpdated: _updated,
    events.JobHeld: _held,
    events.JobReleased: _released,
    events.JobBecameEligible: _became_eligible,
    events.JobAccrued: _accrued,
    events.DependenciesChanged: _dependencies_changed,
    events.JobsNoted: _noted,
    events.PrioritiesReached: _reached,
    events.JobStarted: _started,
    events.JobPrologsBegan: _prologs_began,
    events.JobNodeReady: _node_ready,
    events.JobConfigured: _configured,
    events.JobNodesUp: _nodes_up,
    events.EndSignalSent: _end_signal_sent,
    events.JobSuspended: _suspended,
    events.JobResumed: _resumed,
    events.JobPreempted: _preempted,
    events.JobNodeFailed: _node_failed,
    events.JobEnded: _ended,
    events.KillRepeated: _kill_repeated,
    events.JobNodeGone: _node_gone,
    events.JobRequeued: _requeued,
    events.JobsPurged: _purged,
}
