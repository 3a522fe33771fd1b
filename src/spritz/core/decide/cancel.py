"""scancel, and allocations that are released.

Pending jobs end immediately. Running jobs are ended, and are COMPLETING until their nodes are free. Signals other
than SIGKILL are only passed on.

Source: scancel(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.access import may_control, need_owner
from spritz.core.decide.arrays import Selected, array_label, label, mask_or_none, select, with_whole_het_jobs
from spritz.core.decide.dependency import tasks_are_over
from spritz.core.decide.ending import end_job, node_gone
from spritz.core.decide.starting import preempt
from spritz.core.decide.submission.crontab import disable_lines
from spritz.core.decision import DecisionContext, Refused
from spritz.core.effects import SignalOn
from spritz.core.job import het
from spritz.core.job.exit_status import OOM_STATUS
from spritz.core.pending import terminate_step
from spritz.model.commands.job import CancelOutcome, CancelResult, Done
from spritz.model.events.job import ArrayTasksCancelled, JobUpdated
from spritz.model.events.step import StepCancelled
from spritz.model.ids import STEP_BATCH
from spritz.model.reasons import Reason
from spritz.model.resources import mask_text
from spritz.model.states import JobFlag, JobState

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.commands.job import CancelJobs, FinishAllocation
    from spritz.model.job.job_filter import JobFilter, JobTarget
    from spritz.model.job.record import Job
    from spritz.model.job.step import Step

SIGKILL = 9


def cancel_jobs(context: DecisionContext, command: CancelJobs) -> CancelResult:
    """Cancel or signal everything that matches. One outcome per target or job."""
    outcomes: list[CancelOutcome] = []
    wanted = command.filter
    if wanted.targets:
        for target in wanted.targets:
            _cancel_target(context, command, target, outcomes)
    else:
        jobs = _matching(context.state, wanted)
        # A filter skips other users' jobs silently, unless it names users.
        permitted = [Selected(job) for job in jobs if wanted.users or may_control(context, job)]
        outcomes += _cancel_records(context, command, permitted)
    return CancelResult(outcomes=tuple(outcomes))


def _cancel_target(
    context: DecisionContext, command: CancelJobs, target: JobTarget, outcomes: list[CancelOutcome]
) -> None:
    try:
        chosen = select(context.state, target)
    except Refused as refused:
        outcomes.append(
            CancelOutcome(
                job_id=target.job_id,
                label=array_label(target.job_id, mask_or_none(target.tasks)),
                step_id=target.step_id,
                code=refused.rejection.code,
                message=refused.rejection.text,
            )
        )
        return
    matching = [selected for selected in chosen if matches(context.state, selected.job, command.filter)]
    if target.step_id is not None:
        if matching and het.is_leader(matching[0].job):
            # the step has the leader's id, whichever components it is in
            matching = matching[:1]
        outcomes += [_cancel_step(context, command, selected.job, target.step_id) for selected in matching]
        return
    live = [selected for selected in matching if not selected.job.state.ended]
    # A finished array task is no error if other tasks of the array were named as well.
    outcomes += _cancel_records(context, command, live if len(matching) > 1 and live else matching)


def _cancel_records(context: DecisionContext, command: CancelJobs, chosen: list[Selected]) -> list[CancelOutcome]:
    """Cancel one record after the other. Components end with their leader; they get no outcome of their own then."""
    outcomes = []
    chosen = with_whole_het_jobs(context.state, chosen)
    leaders = {selected.job.id for selected in chosen if het.is_leader(selected.job)}
    for selected in sorted(chosen, key=lambda selected: selected.job.het_offset) if leaders else chosen:
        job = context.state.jobs[selected.job.id]
        if job.het_offset and job.het_job_id in leaders and (job.state.ended or job.state is JobState.PENDING):
            continue
        outcomes.append(_cancel_record(context, command, selected))
    return outcomes


def _matching(state: State, wanted: JobFilter) -> list[Job]:
    """Live jobs that match; only those of the named users if users are named."""
    if wanted.users:
        numbers = [number for uid in wanted.users for number in state.live_by_user.get(uid, ())]
    else:
        numbers = [number for jobs in state.live_by_user.values() for number in jobs]
    jobs = [state.jobs[number] for number in sorted(numbers)]
    return [job for job in jobs if not job.state.ended and matches(state, job, wanted)]


def matches(state: State, job: Job, wanted: JobFilter) -> bool:
    """Whether the job matches every field of the filter except its targets. Empty fields match everything."""
    spec = job.spec
    if wanted.users and spec.uid not in wanted.users:
        return False
    if wanted.accounts and spec.account not in wanted.accounts:
        return False
    if wanted.names and spec.name not in wanted.names:
        return False
    if wanted.partitions and job.partition not in wanted.partitions:
        return False
    if wanted.qos and spec.qos not in wanted.qos:
        return False
    if wanted.reservation and wanted.reservation not in job.reservation.split(","):
        return False
    if wanted.wckeys and spec.wckey not in wanted.wckeys:
        return False
    if wanted.licenses and not set(wanted.licenses) & set(spec.licenses.split(",")):
        return False
    if wanted.nodes and not set(wanted.nodes) & {share.node for share in state.held_shares(job)}:
        return False
    return not wanted.states or _in_states(job, wanted.states)


def _in_states(job: Job, states: tuple[str, ...]) -> bool:
    if job.state.value in states:
        return True
    return any(job.flags & flag and flag.name in states for flag in JobFlag)


def _outcome(job: Job, code: str = "", step_id: int | None = None) -> CancelOutcome:
    return CancelOutcome(job_id=job.id, label=label(job), step_id=step_id, code=code)


def _ends(command: CancelJobs) -> bool:
    return command.signal in (0, SIGKILL) and not command.batch


def _cancel_record(context: DecisionContext, command: CancelJobs, chosen: Selected) -> CancelOutcome:
    job = context.state.jobs[chosen.job.id]
    if not may_control(context, job):
        return _outcome(job, "ESLURM_ACCESS_DENIED")
    if job.state.ended:
        return _outcome(job, "ESLURM_ALREADY_DONE")
    if job.state is JobState.PENDING:
        # With any signal: a job that does not run yet has no process to receive it.
        if command.signal not in (0, SIGKILL):
            return _outcome(job, "ESLURM_TRANSITION_STATE_NO_UPDATE")
        if job.het_offset:
            return _outcome(job, "ESLURM_NOT_WHOLE_HET_JOB")
        return _guarded(context, command, job) or _cancel_pending(context, command, job, chosen.tasks)
    if not _ends(command):
        return _signal_job(context, command, job)
    guarded = _guarded(context, command, job)
    if guarded is not None:
        return guarded
    _note_comment(context, command, context.state.jobs[job.id])
    end_job(context, context.state.jobs[job.id], JobState.CANCELLED, by_uid=context.caller.uid)
    return _outcome(job)


def _guarded(context: DecisionContext, command: CancelJobs, job: Job) -> CancelOutcome | None:
    """Refuse the job of a crontab if explicit_scancel protects it; otherwise its entry is disabled."""
    if job.spec.cron is None:
        return None
    if context.state.settings.explicit_scancel and not command.cron:
        return _outcome(job, "ESLURM_CANNOT_CANCEL_CRON_JOB")
    disable_lines(context, job)
    return None


def _cancel_pending(context: DecisionContext, command: CancelJobs, job: Job, tasks: int) -> CancelOutcome:
    if tasks:
        context.record(
            ArrayTasksCancelled(at=context.now, array_job_id=job.id, tasks=mask_text(tasks), by_uid=context.caller.uid)
        )
        tasks_are_over(context, job.id)
    else:
        _note_comment(context, command, context.state.jobs[job.id])
        end_job(context, context.state.jobs[job.id], JobState.CANCELLED, by_uid=context.caller.uid)
    return CancelOutcome(job_id=job.id, label=label(job, tasks))


def _note_comment(context: DecisionContext, command: CancelJobs, job: Job) -> None:
    if command.comment and command.comment != job.spec.admin_comment:
        spec = replace(job.spec, admin_comment=command.comment)
        context.record(JobUpdated(at=context.now, job=replace(job, spec=spec)))


def _signal_job(context: DecisionContext, command: CancelJobs, job: Job) -> CancelOutcome:
    if job.state is JobState.SUSPENDED and command.signal not in (18, SIGKILL):
        return _outcome(job, "ESLURM_JOB_SUSPENDED")
    if command.batch and not job.has_script:
        return _outcome(job, "ESLURM_BATCH_ONLY")
    assert job.allocation is not None, f"job {job.id} runs nowhere"
    nodes = job.allocation.names
    for node in nodes[:1] if command.batch else nodes:
        context.add_effect(
            SignalOn(
                node=node,
                job_id=job.id,
                restart_count=job.restart_count,
                signal=command.signal or SIGKILL,
                batch=command.batch,
                full=command.full,
            )
        )
    return _outcome(job)


def _cancel_step(context: DecisionContext, command: CancelJobs, job: Job, step_id: int) -> CancelOutcome:
    if job.state is JobState.PENDING:
        return _outcome(job, "ESLURM_JOB_PENDING", step_id)
    if not may_control(context, job):
        return _outcome(job, "ESLURM_USER_ID_MISSING", step_id)
    step = context.state.steps.get(job.id, {}).get(step_id)
    if step is None and het.is_leader(job):
        # A step of other components also goes by the leader's id.
        others = (
            context.state.steps.get(component.id, {}).get(step_id) for component in het.others(context.state, job)
        )
        step = next((other_step for other_step in others if other_step is not None), None)
    if step is None or job.state.ended:
        return _outcome(
            job,
            "ESLURM_ALREADY_DONE" if job.state.ended or step_id < job.next_step_id else "ESLURM_INVALID_JOB_ID",
            step_id,
        )
    if step_id == STEP_BATCH and command.signal in (0, SIGKILL):
        return _cancel_record(context, command, Selected(job))
    for part in parts(context.state, step):
        signal_step(context, part, command.signal, terminate=command.signal in (0, SIGKILL))
    return _outcome(job, "", step_id)


def parts(state: State, step: Step) -> list[Step]:
    """The step; of a step over several components, all live parts."""
    if step.het is None:
        return [step]
    leader_id = state.jobs[step.job_id].het_job_id
    steps = (state.steps.get(leader_id + number, {}).get(step.step_id) for number in step.het.groups)
    return [part for part in steps if part is not None]


def signal_step(
    context: DecisionContext, step: Step, signal: int, *, terminate: bool, cause: str = "CANCELLED"
) -> None:
    """End a step on all nodes where it runs, or send it a signal."""
    # The end of a job ends its steps; a later request to end one of them has not cancelled it.
    if terminate and not step.cancelled and not context.state.jobs[step.job_id].state.ended:
        context.record(
            StepCancelled(at=context.now, job_id=step.job_id, step_id=step.step_id, by_uid=context.caller.uid)
        )
    for node in step.running_nodes:
        if terminate:
            context.add_effect(terminate_step(step, node, cause, context.now, kill_now=signal == SIGKILL))
        else:
            context.add_effect(
                SignalOn(
                    node=node,
                    job_id=step.job_id,
                    restart_count=step.restart_count,
                    signal=signal,
                    step_id=step.step_id,
                )
            )


def finish_allocation(context: DecisionContext, command: FinishAllocation) -> Done:
    """The command that holds an allocation has finished. An external job leaves its nodes immediately."""
    job = context.state.jobs.get(command.job_id)
    if job is None:
        raise Refused("ESLURM_INVALID_JOB_ID")
    need_owner(context, job)
    if job.spec.external and job.completing:
        for name in job.completing:
            node_gone(context, context.state.jobs[job.id], name)
        return Done()
    if job.state.ended:
        raise Refused("ESLURM_ALREADY_DONE")
    gone = job.allocation.names if job.spec.external and job.allocation is not None else ()
    if job.state is JobState.PENDING:
        end_job(context, job, JobState.CANCELLED, by_uid=context.caller.uid)
    elif job.preempt_action and job.spec.external:
        # It has heard its warning, and left before its grace was over.
        preempt.finish(context, job, command.exit_status or None, gone)
    elif command.out_of_memory:
        end_job(context, job, JobState.OUT_OF_MEMORY, Reason.OUT_OF_MEMORY, exit_status=OOM_STATUS, gone=gone)
    elif command.exit_status:
        end_job(context, job, JobState.FAILED, Reason.NON_ZERO_EXIT_CODE, exit_status=command.exit_status, gone=gone)
    else:
        end_job(context, job, JobState.COMPLETED, exit_status=0, gone=gone)
    return Done()
