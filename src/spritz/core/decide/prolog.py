"""Prologs: the site's, and those of the nodes that run when a job gets its allocation (PrologFlags).

Order: PrologSlurmctld → Prolog on every node (Alloc), with the job's container (Contain) → the script. A job is
CONFIGURING until these have ended: PrologSlurmctld, then with Alloc the Prolog of its first node (a batch job), or of
all nodes (DeferBatch, and every other job). With NoHold it waits for no node; steps wait on the nodes themselves.

Source: slurm.conf(5) PrologSlurmctld, PrologFlags, SchedulerParameters=nohold_on_prolog_fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.ending import end_whole, holds_on_prolog_fail, may_requeue, requeue_unlaunched
from spritz.core.decide.gang import wait_for_slice
from spritz.core.decide.script import launch_script
from spritz.core.flags import CONFIGURING
from spritz.core.pending import launch, launch_prolog
from spritz.model.commands.job import Done
from spritz.model.events.job import JobConfigured, JobNodeReady, JobPrologsBegan
from spritz.model.events.step import StepOpened
from spritz.model.ids import STEP_EXTERN
from spritz.model.job.step import Step, StepNode, StepSpec
from spritz.model.reasons import Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.job.record import Job
    from spritz.model.node_daemon.reports import NodePrologEnded, PrologEnded

_DONE = Done()

#: the process that keeps a job's container alive, for as long as Slurm's own does
_CONTAINER = StepSpec(
    name="extern",
    argv=("/bin/sleep", "100000000"),
    work_dir="/",
    stdin="/dev/null",
    stdout="/dev/null",
    stderr="/dev/null",
    stdin_task="none",
    kill_on_node_fail=False,
)


def comes_first(settings: ClusterSettings) -> bool:
    """Whether a job that starts now is CONFIGURING."""
    flags = settings.prolog_flags
    return settings.prolog_slurmctld or ("Alloc" in flags and "NoHold" not in flags)


def prepare(context: DecisionContext, job: Job) -> None:
    """PrologSlurmctld has ended, or there is none: run the nodes' Prologs if they come now, then the script."""
    flags = context.state.settings.prolog_flags
    if "Alloc" not in flags or job.spec.external:
        _configured(context, job)
        return
    assert job.allocation is not None, f"job {job.id} runs nowhere"
    context.record(JobPrologsBegan(at=context.now, job_id=job.id))
    for name in job.allocation.names:
        context.add_effect(launch_prolog(job, name))
    if "Contain" in flags:
        _contain(context, job)
    if "NoHold" in flags:
        _configured(context, context.state.jobs[job.id])


def _contain(context: DecisionContext, job: Job) -> None:
    """Open the step `extern`, one task per node: it holds no resources, and ends with the job."""
    assert job.allocation is not None, f"job {job.id} runs nowhere"
    names = job.allocation.names
    step = Step(
        job_id=job.id,
        step_id=STEP_EXTERN,
        spec=_CONTAINER,
        uid=job.spec.uid,
        nodes=tuple(StepNode(allocation=share, task_ids=(rank,)) for rank, share in enumerate(job.allocation.nodes)),
        restart_count=job.restart_count,
        tasks=len(names),
        started_at=context.now,
        running_nodes=names,
        unstarted_nodes=names,
    )
    context.record(StepOpened(at=context.now, step=step))
    for name in names:
        context.add_effect(launch(step, name))


def _configured(context: DecisionContext, job: Job) -> None:
    """The job is configured: its script may run."""
    waited = bool(job.flags & CONFIGURING)
    if waited:
        context.record(JobConfigured(at=context.now, job_id=job.id))
    launch_script(context, context.state.jobs[job.id])
    if waited:
        wait_for_slice(context, context.state.jobs[job.id])


def launch_when_ready(context: DecisionContext, job: Job) -> None:
    """Launch the job's script if it waits for no more Prologs."""
    if not job.flags & CONFIGURING or job.prolog_nodes is None:
        return
    assert job.allocation is not None, f"job {job.id} runs nowhere"
    early = job.has_script and not job.het_job_id and "DeferBatch" not in context.state.settings.prolog_flags
    if not job.prolog_nodes or (early and job.allocation.nodes[0].node not in job.prolog_nodes):
        _configured(context, job)


def site_ended(context: DecisionContext, report: PrologEnded) -> Done:
    """PrologSlurmctld has ended. If it failed, a batch job is requeued and other jobs are ended."""
    job = context.state.jobs.get(report.job_id)
    if job is None or job.restart_count != report.restart_count or not job.flags & CONFIGURING:
        return _DONE
    if job.prolog_nodes is not None:
        return _DONE  # a repeated report
    if not report.error:
        prepare(context, job)
    elif may_requeue(context.state, job):
        requeue_unlaunched(context, job, (), "", end_state=JobState.CANCELLED)
    else:
        end_whole(context, job, JobState.CANCELLED, Reason.LAUNCH_FAILURE, detail=report.error)
    return _DONE


def node_ended(context: DecisionContext, report: NodePrologEnded) -> Done:
    """The Prolog has ended on a node. If it failed, a batch job is requeued, held, and other jobs are ended."""
    job = context.state.jobs.get(report.job_id)
    if job is None or job.restart_count != report.restart_count or report.node not in (job.prolog_nodes or ()):
        return _DONE
    if not report.error:
        context.record(JobNodeReady(at=context.now, job_id=job.id, node=report.node))
        launch_when_ready(context, context.state.jobs[job.id])
        return _DONE
    forced = job.spec.batch and "ForceRequeueOnFail" in context.state.settings.prolog_flags
    if forced or may_requeue(context.state, job):
        held = holds_on_prolog_fail(context.state)
        requeue_unlaunched(context, job, (), report.node, held=held, end_state=JobState.CANCELLED)
    else:
        end_whole(
            context,
            job,
            JobState.FAILED,
            Reason.LAUNCH_FAILURE,
            detail=report.error,
            exit_status=1 << 8,
            failed_node=report.node,
        )
    return _DONE
