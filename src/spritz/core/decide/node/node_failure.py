"""A node is lost, or was set DOWN: its jobs end there, and are requeued if they may be.

Source: sbatch(1) --no-kill, --requeue; slurm.conf(5) SlurmdTimeout, JobRequeue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.ending import end_whole, may_requeue, node_failure_text, node_gone, requeue_job
from spritz.core.decide.node.wake import begin_if_up
from spritz.core.decide.prolog import launch_when_ready
from spritz.core.effects import NotifyOn, TerminateJobOn
from spritz.core.flags import COMPLETING
from spritz.core.pending import terminate_step
from spritz.model.events.job import JobNodeFailed
from spritz.model.events.step import StepCancelled, StepEnded, StepNodeEnded
from spritz.model.reasons import Reason
from spritz.model.states import JobFlag, JobState
from spritz.notation import hostlist

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.job.step import Step


def fail_jobs_on_node(context: DecisionContext, name: str, *, kill: bool = False) -> None:
    """Every job on the node loses it. `kill`: tell the node's daemon, which may answer, to end what runs there.

    Otherwise nothing is sent: a node that comes back registers, and then ends what the controller does not know.
    """
    for job in holders(context.state, name):
        if kill:
            # The life that the node has: of a requeued job that is being cleared, not the one that waits.
            life = job.completing_life if job.flags & COMPLETING else job.restart_count
            context.add_effect(
                TerminateJobOn(
                    node=name, job_id=job.id, restart_count=life, cause=JobState.NODE_FAIL.value, given_back=True
                )
            )
        if job.flags & COMPLETING:
            node_gone(context, job, name, lost=True)
        else:
            fail_job_on_node(context, job, name)


def holders(state: State, name: str) -> Iterator[Job]:
    """The jobs that hold the node, each with its record at the time it is yielded.

    Skips jobs that have left the node in the meantime, as a component does when its heterogeneous job was requeued
    because of another component.
    """
    use = state.uses.get(name)
    for job_id in list(use.jobs) if use is not None else ():
        if use is not None and job_id in use.jobs:
            yield state.jobs[job_id]


def fail_job_on_node(context: DecisionContext, job: Job, name: str, *, gone: bool = True) -> None:
    """A running job loses a node: it goes on without (--no-kill), is requeued, or ends with NODE_FAIL."""
    before, context.subject = context.subject, job.id
    allocation = job.allocation
    assert allocation is not None, f"job {job.id} holds nothing"
    # --no-kill does not help a batch job that loses its first node, where its script runs.
    if job.spec.no_kill and len(allocation.nodes) > 1 and not (job.has_script and allocation.nodes[0].node == name):
        for step in list(context.state.steps.get(job.id, {}).values()):
            if name in step.running_nodes:
                lose_step_on(context, step, name)
        context.record(JobNodeFailed(at=context.now, job_id=job.id, node=name))
        launch_when_ready(context, context.state.jobs[job.id])
        begin_if_up(context, context.state.jobs[job.id])
        context.subject = before
        return
    gone_nodes = (name,) if gone else ()
    if may_requeue(context.state, job):
        requeue_job(
            context,
            job,
            JobState.NODE_FAIL,
            Reason.NODE_DOWN,
            flags=JobFlag.REQUEUED | JobFlag.EXPEDITING if job.spec.expedite else JobFlag.REQUEUED,
            gone=gone_nodes,
            failed_node=name,
        )
    else:
        end_whole(context, job, JobState.NODE_FAIL, Reason.NODE_DOWN, gone=gone_nodes, failed_node=name)
    context.subject = before


def lose_step_on(context: DecisionContext, step: Step, name: str) -> None:
    """A step's part on a lost node has ended; the other parts are ended too, unless srun said --no-kill."""
    others = tuple(node for node in step.running_nodes if node != name)
    if not others:
        context.record(
            StepEnded(
                at=context.now,
                job_id=step.job_id,
                step_id=step.step_id,
                node=name,
                state=JobState.NODE_FAIL,
                exit_status=step.exit_status or 9,
                error=node_failure_text(name),
            )
        )
        return
    context.record(
        StepNodeEnded(
            at=context.now,
            job_id=step.job_id,
            step_id=step.step_id,
            node=name,
            exit_status=9,
            error=node_failure_text(name),
        )
    )
    if step.cancelled:
        return  # its other nodes have their orders already
    if step.spec.kill_on_node_fail:
        context.record(StepCancelled(at=context.now, job_id=step.job_id, step_id=step.step_id))
        for node in others:
            context.add_effect(terminate_step(step, node, "NODE_FAIL", context.now))
    elif step.spec.io_address:
        _tell_client(context, step, others)


def _tell_client(context: DecisionContext, step: Step, nodes: tuple[str, ...]) -> None:
    """Tell the step's client which nodes this decision took from it: one notice to each remaining node.

    All of them pass it on, because some may have failed too. It replaces earlier notices of this decision, so that the
    loss of a rack is one order, which travels through the tree.
    """

    def is_ours(item: StepNodeEnded | NotifyOn) -> bool:
        return (item.job_id, item.step_id) == (step.job_id, step.step_id)

    lost = [event.node for event in context.events if isinstance(event, StepNodeEnded) and is_ours(event)]
    context.effects[:] = [
        effect for effect in context.effects if not (isinstance(effect, NotifyOn) and is_ours(effect))
    ]
    for node in nodes:
        context.add_effect(
            NotifyOn(
                node=node,
                job_id=step.job_id,
                restart_count=step.restart_count,
                message=f"error: {node_failure_text(hostlist.compress_sorted(lost))}",
                step_id=step.step_id,
            )
        )
