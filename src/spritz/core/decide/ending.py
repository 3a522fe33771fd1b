"""How a job ends: its nodes get orders to end it, jobs that depend on it are checked, and it may be requeued.

`end_job` is the only way out of PENDING, RUNNING and SUSPENDED; `node_gone` the only way out of COMPLETING. All other
decisions call these two, so that dependents, steps, triggers and accounting see every end. (`set_aside` alone does not:
one of these has failed for that job.)

A *life* of a job is one run of it: (job id, restart count). An ended life is COMPLETING as long as a node of it has not
said that nothing is left. A requeued job is two lives at once: the record describes the next one, which is PENDING
until then, while `completing` and `completing_life` are about the last one. Whatever comes from a node names its life,
and counts for no other:

    report of a step, or JobGone, of an earlier life      changes nothing of the present one
    order to end                                          names the life that ends: the nodes do not have the next one
    steps that are closed                                 those of that life alone

Source: slurm.conf(5) KillWait, RequeueExit, MaxBatchRequeue; sbatch(1) --requeue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.dependency import job_is_over
from spritz.core.decide.gang import resume_on
from spritz.core.decide.script import launch_script
from spritz.core.decision import DecisionContext
from spritz.core.flags import COMPLETING, CONFIGURING
from spritz.core.job import het
from spritz.core.job.eligibility import HELD_REASONS
from spritz.core.job.exit_status import OOM_STATUS, exit_code_of
from spritz.core.pending import terminate
from spritz.core.priority import PRIORITY_MAX, initial_priority
from spritz.model.cluster.power import AWAY
from spritz.model.events.job import JobEnded, JobNodeGone, JobRequeued
from spritz.model.events.step import StepEnded, StepNodeEnded
from spritz.model.ids import STEP_EXTERN, STEP_MAX
from spritz.model.job.cron import following
from spritz.model.job.record import Hold
from spritz.model.reasons import Reason
from spritz.model.states import JobFlag, JobState, NodeState

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.core.state import State
    from spritz.model.job.record import Job, JobSpec
    from spritz.model.job.step import Step

_WHILE_CLEARING: int = (JobFlag.REQUEUED | JobFlag.REQUEUE_HOLD).value

#: seconds after KillWait until a node that has not answered gets the order again
REPEAT_KILL_SECONDS = 30.0


def end_job(
    context: DecisionContext,
    job: Job,
    state: JobState,
    reason: Reason = Reason.NONE,
    *,
    detail: str = "",
    exit_status: int | None = None,
    gone: Collection[str] = (),
    failed_node: str = "",
    by_uid: int = -1,
    requeued: bool = False,
) -> None:
    """End this life of the job. Components of a heterogeneous job end with their leader; before a start, all end
    together.

    `gone`: nodes known to be free of it. `requeued`: JobRequeued follows, so dependents are not checked yet.
    """
    # For a Fault: what raises from here on is about this job. Put back at the end, not in a `finally`: the writer reads
    # it after the decision has raised.
    before, context.subject = context.subject, job.id
    if job.spec.cron is not None and job.state.active and not requeued:
        # This life of a crontab entry's job is over: it waits for its next time.
        requeue_job(context, job, state, reason, exit_status=exit_status, gone=gone, failed_node=failed_node)
        context.subject = before
        return
    # A component may have ended before its leader, or by itself: a second end would be a second one in accounting.
    whole = not requeued and (het.is_leader(job) or (job.state is JobState.PENDING and bool(job.het_job_id)))
    components = [other for other in het.others(context.state, job) if not other.state.ended] if whole else []
    _end_one(
        context,
        job,
        state,
        reason,
        detail=detail,
        exit_status=exit_status,
        gone=gone,
        failed_node=failed_node,
        by_uid=by_uid,
        requeued=requeued,
    )
    for component in components:
        _end_one(
            context,
            component,
            state,
            reason,
            detail=detail,
            exit_status=exit_status,
            failed_node=failed_node,
            by_uid=by_uid,
        )
    if job.het_offset and job.flags & CONFIGURING:
        launch_script(context, context.state.jobs[job.id])  # the script may have waited for this component
    context.subject = before


def end_whole(
    context: DecisionContext,
    job: Job,
    state: JobState,
    reason: Reason = Reason.NONE,
    *,
    detail: str = "",
    exit_status: int | None = None,
    gone: Collection[str] = (),
    failed_node: str = "",
) -> None:
    """`end_job`, for all components if the job is one: without it the others are of no use."""
    end_job(context, job, state, reason, detail=detail, exit_status=exit_status, gone=gone, failed_node=failed_node)
    for component in het.others(context.state, job):
        # read the record again: the end of the leader may have changed it
        other = context.state.jobs[component.id]
        if other.state.active:
            end_job(context, other, state, reason, detail=detail, exit_status=exit_status, failed_node=failed_node)


def _end_one(
    context: DecisionContext,
    job: Job,
    state: JobState,
    reason: Reason,
    *,
    detail: str,
    exit_status: int | None,
    gone: Collection[str] = (),
    failed_node: str,
    by_uid: int,
    requeued: bool = False,
) -> None:
    completing = _nodes_to_clear(context.state, job, gone)
    if job.state is JobState.PENDING and reason is Reason.NONE:
        reason, detail = job.reason, job.reason_detail  # the reason why it never ran
    settings, tell_nodes = context.state.settings, bool(completing) and not job.spec.external
    context.record(
        JobEnded(
            at=context.now,
            job_id=job.id,
            state=state,
            reason=reason,
            reason_detail=detail,
            exit_status=job.exit_status if exit_status is None else exit_status,
            derived_exit_status=_derived(context.state, job, exit_status or 0),
            completing=completing,
            failed_node=failed_node,
            by_uid=by_uid,
            repeat_kill_at=context.now + settings.kill_wait_seconds + REPEAT_KILL_SECONDS if tell_nodes else 0.0,
        )
    )
    # A node that is not waited for will report no step any more: these are closed now. Of the others `node_gone` does.
    for node in _held_nodes(job):
        if node not in completing:
            lost = reason is Reason.NODE_DOWN and node == failed_node
            error = node_failure_text(node) if lost else ""
            close_steps(context, job.id, job.restart_count, node, error)
    resume_on(context, (node for node in _held_nodes(job) if node not in completing))
    ended = context.state.jobs[job.id]
    # Not for a requeued job: the message to its nodes names the cause, which follows from the state that JobRequeued
    # leaves (`pending.termination_cause`). `_requeue_one` sends it after that event.
    if not requeued:
        for node in completing:
            context.add_effect(terminate(ended, node))
    # Dependents are looked at when the last node is clear: `afterok` with the same node list would otherwise start
    # beside what is left, as Slurm does not. Those of a job that queues again are not: it has not ended.
    if not completing and not ended.flags & COMPLETING and not requeued:
        job_is_over(context, ended)


def _derived(state: State, job: Job, exit_status: int) -> int:
    """The worst exit status of its steps. The command that holds an allocation may end before its last step is
    reported.
    """
    # salloc ends when its command does, often srun, whose step another node has yet to report. Its status is that of
    # the step; the report, when it comes, finds a job that has ended.
    if job.spec.batch or not any(number <= STEP_MAX for number in state.steps.get(job.id, ())):
        return job.derived_exit_status
    return max(job.derived_exit_status, exit_status)


def _held_nodes(job: Job) -> tuple[str, ...]:
    return job.allocation.names if job.state.active and job.allocation is not None else ()


def _nodes_to_clear(state: State, job: Job, gone: Collection[str]) -> tuple[str, ...]:
    # A lost node never answers. If the job waited for it, its other nodes would be free and the job COMPLETING for
    # ever. What still runs there ends when the node registers again (`registration._settle`).
    names = _held_nodes(job)
    if not gone and not names:
        return ()
    return tuple(name for name in names if name not in gone and not node_is_lost(state, name))


def node_is_lost(state: State, name: str) -> bool:
    """Whether the node cannot answer: unknown, DOWN, or not powered up."""
    # Not one that merely does not respond: it may be back in a second with the job's processes, and until SlurmdTimeout
    # its CPUs are nobody else's.
    node = state.nodes.get(name)
    return node is None or node.state is NodeState.DOWN or bool(node.flags & AWAY)


def node_gone(context: DecisionContext, job: Job, node: str, *, lost: bool = False) -> None:
    """An ended job has left one of its `completing` nodes."""
    # `completing_life`, not `restart_count`: of a job that was requeued, and may run again, only steps of the life that
    # ended are closed.
    before, context.subject = context.subject, job.id
    context.record(JobNodeGone(at=context.now, job_id=job.id, node=node, lost=lost))
    close_steps(context, job.id, job.completing_life, node, node_failure_text(node) if lost else "")
    resume_on(context, (node,))
    after = context.state.jobs[job.id]
    # A requeued job is PENDING by now: its end is yet to come.
    if not after.flags & COMPLETING and after.state.ended:
        job_is_over(context, after)
    context.subject = before


def node_failure_text(node: str) -> str:
    """The message to a step's client about the failed node, in Slurm's words."""
    return f"Node failure on {node}"


def close_steps(context: DecisionContext, job_id: int, life: int, node: str, error: str = "") -> None:
    """Close the steps whose end this node never reported."""
    for step in list(context.state.steps.get(job_id, {}).values()):
        # By life too, though no two lives of a job have steps at once (`start_refusal`): what a node has said, or
        # missed, is about one life.
        if step.restart_count != life or node not in step.running_nodes:
            continue
        if len(step.running_nodes) > 1:
            context.record(StepNodeEnded(at=context.now, job_id=job_id, step_id=step.step_id, node=node, error=error))
        else:
            context.record(
                StepEnded(
                    at=context.now,
                    job_id=job_id,
                    step_id=step.step_id,
                    node=node,
                    state=_state_without(step),
                    exit_status=OOM_STATUS if step.oom else step.exit_status,
                    oom=step.oom,
                    error=error,
                )
            )


def _state_without(step: Step) -> JobState:
    """How a step ended whose last node never said: by what its other nodes have said."""
    if step.step_id == STEP_EXTERN:
        return JobState.COMPLETED
    if step.oom:
        return JobState.OUT_OF_MEMORY
    return JobState.FAILED if exit_code_of(step.exit_status) else JobState.CANCELLED


def life_ended_at(job: Job, kill_wait_seconds: float) -> float:
    """When the life ended whose processes are being cleared (seconds since the epoch; 0.0: none is).

    A requeued job's record describes its next life already, but its first repeated SIGKILL was set when the last one
    ended.
    """
    return job.ended_at or max(0.0, job.repeat_kill_at - kill_wait_seconds - REPEAT_KILL_SECONDS)


def may_requeue(state: State, job: Job) -> bool:
    """Whether the job is a batch job whose user (or else JobRequeue) permits a requeue."""
    allowed = state.settings.job_requeue if job.spec.requeue is None else job.spec.requeue
    return job.spec.batch and allowed


def with_next_begin(spec: JobSpec, now: float) -> JobSpec:
    """The spec of a crontab entry's job with its next begin time."""
    return spec if spec.cron is None else replace(spec, begin_at=following(spec.cron, now))


def requeue_job(
    context: DecisionContext,
    job: Job,
    end_state: JobState,
    end_reason: Reason = Reason.NONE,
    *,
    hold: Hold = Hold.NONE,
    flags: int = JobFlag.REQUEUED,
    reason: Reason | None = None,
    detail: str = "",
    exit_status: int | None = None,
    gone: Collection[str] = (),
    failed_node: str = "",
) -> None:
    """End this life of the job (if it has not ended already) and queue it again under its id.

    A heterogeneous job is requeued as a whole: all components, including those that have ended before.
    """
    before = context.subject
    for member in (job, *het.others(context.state, job)):
        # One that waits already has no life to end.
        if member.state is JobState.PENDING:
            continue
        context.subject = member.id
        _requeue_one(
            context,
            member,
            end_state,
            end_reason,
            hold=hold,
            flags=flags,
            reason=reason,
            detail=detail,
            exit_status=exit_status,
            gone=gone if member.id == job.id else (),  # what a node has said of one component is said of no other
            failed_node=failed_node,
        )
    context.subject = before


def _requeue_one(
    context: DecisionContext,
    job: Job,
    end_state: JobState,
    end_reason: Reason,
    *,
    hold: Hold,
    flags: int,
    reason: Reason | None,
    detail: str,
    exit_status: int | None,
    gone: Collection[str],
    failed_node: str,
) -> None:
    if not job.state.ended:
        _end_one(
            context,
            job,
            end_state,
            end_reason,
            detail="",
            by_uid=-1,
            exit_status=exit_status,
            gone=gone,
            failed_node=failed_node,
            requeued=True,
        )
    if hold is Hold.NONE:
        hold = job.hold  # set while it ran: `scontrol hold` of a running job is for its next life
    held = hold is not Hold.NONE
    expedited = bool(flags & JobFlag.EXPEDITING)
    # `job` is the record of before: a job that had ended already (`scontrol requeue`) is eligible at once.
    delay = 0.0 if job.state.ended or expedited else context.state.settings.requeue_delay_seconds
    begin_at = following(job.spec.cron, context.now) if job.spec.cron is not None else 0.0
    # A begin time that has yet to come stands, as in slurmctld: it was cancelled before it, say.
    eligible_at = begin_at or max(context.now + delay, job.spec.begin_at)
    # Differs: Slurm makes a requeued job wait two minutes.
    waits = HELD_REASONS[hold] if held else Reason.BEGIN_TIME if eligible_at > context.now else Reason.NONE
    context.record(
        JobRequeued(
            at=context.now,
            job_id=job.id,
            restart_count=job.restart_count + 1,
            eligible_at=0.0 if held else eligible_at,
            priority=0 if held else PRIORITY_MAX if expedited else initial_priority(context.state, job.spec, job.id),
            hold=hold,
            # REQUEUED and REQUEUE_HOLD are shown only while the old nodes are being cleared.
            flags=int(flags) & ~(0 if context.state.jobs[job.id].completing else _WHILE_CLEARING),
            reason=reason or waits,
            reason_detail=detail,
            begin_at=begin_at,
        )
    )
    # Now, when the record says why the life ended and which one it was (`_end_one`). Also where it had ended before: an
    # order that is repeated does no harm, and this one has another cause.
    after = context.state.jobs[job.id]
    for node in after.completing:
        context.add_effect(terminate(after, node))


def holds_on_prolog_fail(state: State) -> bool:
    """Whether a job is held after its prolog failed: unless SchedulerParameters has nohold_on_prolog_fail."""
    return "nohold_on_prolog_fail" not in dict(state.settings.scheduler_parameters)


def requeue_unlaunched(
    context: DecisionContext,
    job: Job,
    gone: tuple[str, ...],
    failed_node: str,
    *,
    held: bool = False,
    end_state: JobState = JobState.NODE_FAIL,
) -> None:
    """Requeue a job whose launch failed: held if asked for, or after MaxBatchRequeue tries.

    `end_state` is that of the life that ends.
    """
    # Repeated lives of a crontab entry do not count as tries: it would be held after a few nights.
    too_often = job.spec.cron is None and job.restart_count >= context.state.settings.max_batch_requeue
    requeue_job(
        context,
        job,
        end_state,
        Reason.LAUNCH_FAILURE,
        hold=Hold.ADMIN if held or too_often else Hold.NONE,
        reason=Reason.HELD_MAX_REQUEUE if too_often else None,
        detail="launch failed requeued held" if held or too_often else "",
        flags=JobFlag.REQUEUED | JobFlag.LAUNCH_FAILED,
        gone=gone,
        failed_node=failed_node,
    )
