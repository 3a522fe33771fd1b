"""Effects that may not have arrived, derived from the state: when a node comes back, or after a restart of the
controller.

Every kind of effect can be derived again except those of `effects.PASSING`, and ReloadNode, which no record implies.
Receivers carry out each effect once, so an unnecessary one does no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.effects import (
    Effect,
    LaunchBatchOn,
    LaunchPrologOn,
    LaunchStepOn,
    RebootOn,
    SuspendOn,
    TerminateJobOn,
    TerminateStepOn,
)
from spritz.core.flags import COMPLETING
from spritz.core.job import het
from spritz.model.ids import STEP_BATCH, STEP_EXTERN
from spritz.model.states import JobFlag, JobState, NodeFlag

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.job.step import Step


def pending_effects(state: State, node: str | None = None) -> list[Effect]:
    """Launches of unreported steps, ends of jobs and steps that should be gone, suspensions and reboots: of `node`, or
    of all nodes.
    """
    if node is None:
        job_ids, names = [*state.running, *state.completing], list(state.nodes)
    else:
        use = state.uses.get(node)
        job_ids, names = list(use.jobs) if use is not None else [], [node]
    # Suspended jobs first: others may have their CPUs by now.
    jobs = sorted((state.jobs[job_id] for job_id in job_ids), key=lambda job: job.state is not JobState.SUSPENDED)
    effects: list[Effect] = []
    for job in jobs:
        effects += _job_effects(state, job, node)
    if not state.settings.power.reboots_here:
        nodes = [state.nodes[name] for name in names if name in state.nodes]
        issued = [rebooting for rebooting in nodes if rebooting.flags & NodeFlag.REBOOT_ISSUED]
        effects += [RebootOn(node=rebooting.name, ordered_at=rebooting.reboot_at) for rebooting in issued]
    return effects


def _job_effects(state: State, job: Job, node: str | None) -> list[Effect]:
    if job.spec.external:
        return []
    if job.flags & COMPLETING:
        return [terminate(job, name) for name in job.completing if node is None or name == node]
    effects: list[Effect] = [
        launch_prolog(job, name) for name in job.prolog_nodes or () if node is None or name == node
    ]
    for step in state.steps.get(job.id, {}).values():
        # While a job is CONFIGURING its prologs run, and no step but its container may start.
        if step.step_id == STEP_EXTERN or not het.configuring(state, job):
            effects += _step_effects(step, node)
    suspended = job.state is JobState.SUSPENDED
    # A job that was suspended before may still be stopped on a node that missed its resumption.
    if (suspended or job.suspended_seconds) and job.allocation is not None:
        effects += [
            SuspendOn(node=name, job_id=job.id, restart_count=job.restart_count, resume=not suspended)
            for name in job.allocation.names
            if node is None or name == node
        ]
    return effects


def _step_effects(step: Step, node: str | None) -> list[Effect]:
    if step.cancelled:
        # Where its launch has not arrived it never runs.
        return [terminate_step(step, name) for name in step.running_nodes if node is None or name == node]
    return [launch(step, name) for name in step.unstarted_nodes if node is None or name == node]


def launch_prolog(job: Job, node: str) -> Effect:
    """Run the job's Prolog on `node`."""
    return LaunchPrologOn(node=node, job_id=job.id, restart_count=job.restart_count)


def launch(step: Step, node: str) -> Effect:
    """The effect that starts the step on `node`: a batch script, or tasks."""
    if step.step_id == STEP_BATCH:
        return LaunchBatchOn(node=node, job_id=step.job_id, restart_count=step.restart_count)
    return LaunchStepOn(node=node, job_id=step.job_id, restart_count=step.restart_count, step_id=step.step_id)


def terminate(job: Job, node: str, *, kill_now: bool = False) -> TerminateJobOn:
    """End what is left of an ended (or requeued) job on `node`."""
    return TerminateJobOn(
        node=node, job_id=job.id, restart_count=job.completing_life, cause=termination_cause(job), kill_now=kill_now
    )


def termination_cause(job: Job) -> str:
    """The word for the line on the job's standard error."""
    if job.state is JobState.PENDING:
        if job.preempted_at:
            return "PREEMPTED"
        lost = job.failed_node and not job.flags & JobFlag.LAUNCH_FAILED
        return "NODE_FAIL" if lost else "REQUEUED"
    return str(job.state.value)


def terminate_step(
    step: Step, node: str, cause: str = "", at: float = 0.0, *, kill_now: bool = False
) -> TerminateStepOn:
    """End one step on `node`; `cause` and `at` are for the line on its standard error."""
    return TerminateStepOn(
        node=node,
        job_id=step.job_id,
        restart_count=step.restart_count,
        step_id=step.step_id,
        cause=cause,
        at=at,
        kill_now=kill_now,
    )
