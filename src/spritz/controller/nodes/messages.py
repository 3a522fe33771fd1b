"""Makes the message for an effect: for a node daemon, from the state at the time of sending.

Pure except for reading scripts from the blob store, which may take a while. An effect whose job has moved on (requeued,
ended, purged) makes no message: the current state would derive another effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from spritz.controller.journal.blobs import environment_of
from spritz.core import effects as core_effects
from spritz.core.decide.ending import life_ended_at
from spritz.core.job import het
from spritz.model.job.layout import job_task_counts
from spritz.model.job.record import Component
from spritz.model.node_daemon import launch
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.controller.journal.blobs import BlobStore
    from spritz.core.effects import Effect
    from spritz.core.state import State
    from spritz.model.job.record import Job


def components_of(state: State, job: Job) -> tuple[Component, ...]:
    """All components of a heterogeneous job as they are now; empty for other jobs."""
    if not job.het_job_id:
        return ()
    return tuple(Component(job=member, task_counts=job_task_counts(member)) for member in het.members(state, job))


class NodeMessages:
    """Writes the message for an effect. `term` is this controller's, which may rise."""

    def __init__(self, state: Callable[[], State], blobs: BlobStore, term: Callable[[], int]) -> None:
        self._state = state
        self._blobs = blobs
        self._term = term
        self._writers: dict[type[Effect], Callable[..., Struct | None]] = {
            core_effects.LaunchPrologOn: self._launch_prolog,
            core_effects.LaunchStepOn: self._launch_step,
            core_effects.TerminateJobOn: self._terminate_job,
            core_effects.TerminateStepOn: self._terminate_step,
            core_effects.SignalOn: self._signal,
            core_effects.SuspendOn: self._suspend,
            core_effects.AttachOn: self._attach,
            core_effects.NotifyOn: self._notify,
            core_effects.ReloadNode: self._reload,
            core_effects.RebootOn: self._reboot,
        }

    async def message(self, effect: Effect) -> Struct | None:
        """The message for `effect.node`; None if the effect is out of date. Raises JournalCorrupt if a script is
        missing.

        Does not yield unless a script must be read from the journal.
        """
        if isinstance(effect, core_effects.LaunchBatchOn):
            return await self._launch_batch(effect)
        return self._writers[type(effect)](effect)

    def are_due(self, effect: Effect, nodes: Sequence[str]) -> bool:
        """Whether an effect that is valid for one of these nodes is valid for all of them (`message`)."""
        job = self._state().jobs.get(getattr(effect, "job_id", 0))
        waiting: tuple[str, ...] = ()
        if isinstance(effect, core_effects.LaunchPrologOn):
            waiting = (job.prolog_nodes or ()) if job is not None else ()
        elif isinstance(effect, core_effects.TerminateJobOn) and job is not None and job.completing:
            waiting = job.completing
        else:
            return True
        return set(nodes) <= set(waiting)

    def _running(self, job_id: int, restart_count: int) -> Job | None:
        job = self._state().jobs.get(job_id)
        if job is None or job.restart_count != restart_count or not job.state.active:
            return None
        return job

    def _addresses(self, job: Job) -> tuple[str, ...]:
        nodes = self._state().nodes
        names = job.allocation.names if job.allocation is not None else ()
        return tuple(nodes[name].address if name in nodes else name for name in names)

    def _ports(self, job: Job) -> tuple[int, ...]:
        nodes = self._state().nodes
        names = job.allocation.names if job.allocation is not None else ()
        ports = tuple(nodes[name].config.port if name in nodes else 0 for name in names)
        return ports[:1] if len(set(ports)) == 1 else ports

    def _launch_prolog(self, effect: core_effects.LaunchPrologOn) -> Struct | None:
        job = self._running(effect.job_id, effect.restart_count)
        if job is None or effect.node not in (job.prolog_nodes or ()):
            return None
        return launch.LaunchProlog(term=self._term(), node=effect.node, job=job)

    async def _launch_batch(self, effect: core_effects.LaunchBatchOn) -> Struct | None:
        job = self._running(effect.job_id, effect.restart_count)
        if job is None:
            return None
        script = await self._blobs.get(job.spec.script_key)
        environment = environment_of(await self._blobs.get(job.spec.environment_key))
        job = self._running(effect.job_id, effect.restart_count)
        if job is None:
            return None  # it ended while its script was read
        return launch.LaunchBatch(
            term=self._term(),
            version=self._state().version,
            node=effect.node,
            job=job,
            script=script,
            environment=environment,
            task_counts=job_task_counts(job),
            cluster_name=self._state().settings.cluster_name,
            node_addresses=self._addresses(job),
            components=components_of(self._state(), job),
        )

    def _launch_step(self, effect: core_effects.LaunchStepOn) -> Struct | None:
        job = self._running(effect.job_id, effect.restart_count)
        step = self._state().steps.get(effect.job_id, {}).get(effect.step_id)
        if job is None or step is None or effect.node not in step.running_nodes:
            return None  # its part on the node may be over, and the node's next daemon may not know of it
        return launch.LaunchStep(
            term=self._term(),
            version=self._state().version,
            node=effect.node,
            job=job,
            step=step,
            task_counts=step.het.task_counts
            if step.het is not None
            else tuple(len(node.task_ids) for node in step.nodes),
            cluster_name=self._state().settings.cluster_name,
            node_addresses=self._addresses(job),
            node_ports=self._ports(job),
            components=components_of(self._state(), job),
        )

    def _terminate_job(self, effect: core_effects.TerminateJobOn) -> Struct | None:
        job = self._state().jobs.get(effect.job_id)
        if job is None:
            return None
        # A node that an administrator has set DOWN is no longer waited for, and must end what runs there all the same.
        is_lost = effect.cause == JobState.NODE_FAIL.value
        if job.completing and effect.node not in job.completing and not is_lost:
            return None  # the job has left the node
        # A requeued job's record is already its next life; the node must end the previous one.
        return launch.TerminateJob(
            term=self._term(),
            node=effect.node,
            job=structs.replace(job, restart_count=effect.restart_count),
            cause=effect.cause,
            at=life_ended_at(job, self._state().settings.kill_wait_seconds),
            kill_wait_seconds=self._state().settings.kill_wait_seconds,
            kill_now=effect.kill_now,
            given_back=effect.given_back,
        )

    def _terminate_step(self, effect: core_effects.TerminateStepOn) -> Struct | None:
        return launch.TerminateStep(
            term=self._term(),
            node=effect.node,
            job_id=effect.job_id,
            restart_count=effect.restart_count,
            step_id=effect.step_id,
            cause=effect.cause,
            at=effect.at,
            kill_wait_seconds=0 if effect.kill_now else self._state().settings.kill_wait_seconds,
        )

    def _signal(self, effect: core_effects.SignalOn) -> Struct | None:
        return launch.SignalTasks(
            term=self._term(),
            node=effect.node,
            job_id=effect.job_id,
            restart_count=effect.restart_count,
            step_id=effect.step_id,
            signal=effect.signal,
            batch=effect.batch,
            full=effect.full,
        )

    def _suspend(self, effect: core_effects.SuspendOn) -> Struct | None:
        job = self._running(effect.job_id, effect.restart_count)
        if job is None or (job.state is JobState.SUSPENDED) is effect.resume:
            return None
        return launch.SuspendTasks(
            term=self._term(),
            node=effect.node,
            job_id=effect.job_id,
            restart_count=effect.restart_count,
            resume=effect.resume,
            grace_seconds=self._state().settings.preemption.suspend_grace_seconds,
            version=self._state().version,
        )

    def _attach(self, effect: core_effects.AttachOn) -> Struct | None:
        return launch.AttachClient(
            term=self._term(),
            node=effect.node,
            job_id=effect.job_id,
            step_id=effect.step_id,
            io_address=effect.io_address,
            io_key=effect.io_key,
        )

    def _notify(self, effect: core_effects.NotifyOn) -> Struct | None:
        return launch.NotifyTasks(
            term=self._term(),
            node=effect.node,
            job_id=effect.job_id,
            message=effect.message,
            step_id=effect.step_id,
        )

    def _reboot(self, effect: core_effects.RebootOn) -> Struct | None:
        node = self._state().nodes.get(effect.node)
        if node is None or node.reboot_at != effect.ordered_at:
            return None
        return launch.RebootNode(
            term=self._term(), node=effect.node, ordered_at=effect.ordered_at, features=node.features_wanted
        )

    def _reload(self, effect: core_effects.ReloadNode) -> Struct | None:
        return launch.ReloadNode(term=self._term())
