"""Requests that change state: looks up the caller and named groups, then hands the command to the writer.

The core decides policy (who may cancel or update what). Source: `model.commands`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.controller.api.plugin_requests import PluginRequests, Reply
from spritz.controller.groups import changed_groups, with_changed_numbers, with_group_numbers
from spritz.controller.needs import Clocked, Identifying, Reading
from spritz.controller.writer.durable import Writing
from spritz.core.decide.waiting.top import line_of
from spritz.core.rights import administers
from spritz.model.commands import cluster, job, reservation, step
from spritz.model.limits.records import ResetUsage
from spritz.model.states import JobState
from spritz.runtime.directory import gid_of, person_of

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call
    from spritz.controller.nodes.machines import Machines
    from spritz.controller.plugins.submit import SubmitPlugins
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.model.cluster.settings import Caller
    from spritz.runtime.directory import Question

#: Commands that go to the core unchanged.
PLAIN_COMMANDS: tuple[type[Struct], ...] = (
    job.CancelJobs,
    job.UpdateJob,
    job.HoldJob,
    job.ReleaseJob,
    job.RequeueJob,
    job.SuspendJob,
    job.ResumeJob,
    job.TopJob,
    job.NotifyJob,
    job.FinishAllocation,
    step.SignalStep,
    step.AttachStep,
    cluster.UpdateNode,
    cluster.RebootNodes,
    cluster.CreatePartition,
    cluster.UpdatePartition,
    cluster.DeletePartition,
    reservation.DeleteReservation,
    ResetUsage,
)

#: commands that JobSubmitPlugins get as updates, as in Slurm
MODIFYING = (job.UpdateJob, job.HoldJob, job.ReleaseJob)


class Commanding(Clocked, Identifying, Reading, Writing, Protocol):
    """What a command needs before the core decides it."""

    @property
    def forecasts(self) -> Forecasts: ...

    @property
    def machines(self) -> Machines | None: ...

    @property
    def submit_plugins(self) -> SubmitPlugins | None: ...


class Commands:
    """Hands commands to the single writer."""

    def __init__(self, context: Commanding) -> None:
        self._context = context

    def lookups(self, command: Struct, caller: Caller) -> list[Question]:
        """The lookups that a command needs: groups named for a partition, if the caller may change it; the user that
        plugins get.
        """
        context = self._context
        state = context.machine.state
        if isinstance(command, MODIFYING) and context.submit_plugins is not None:
            job_record = state.jobs.get(command.target.job_id)
            return [(person_of, job_record.spec.uid)] if job_record is not None else []
        names: tuple[str, ...] = ()
        if isinstance(command, cluster.CreatePartition) and administers(state, caller):
            names = (*command.partition.allow_groups, *command.partition.deny_groups)
        elif isinstance(command, cluster.UpdatePartition) and administers(state, caller):
            names = changed_groups(command.changes)
        return [(gid_of, name) for name in names]

    def plain(self, command: Struct, call: Call) -> Deferred:
        """Decide the command now; the answer follows once its events are durable."""
        context = self._context
        caller = context.identity.caller(call)
        if context.submit_plugins is not None and isinstance(command, MODIFYING):
            job = context.machine.state.jobs.get(command.target.job_id)
            if job is not None:
                passing = PluginRequests(context, context.submit_plugins, caller, call)
                return passing.modify(command, job, lambda changed, reply: self._decide(changed, caller, reply))
        if isinstance(command, step.AttachStep) and context.machines is not None:
            command = context.machines.reachable(command, call)
        self._decide(command, caller, call.reply)
        return DEFERRED

    def _decide(self, command: Struct, caller: Caller, reply: Reply) -> None:
        if isinstance(command, job.UpdateJob):
            command = self._with_priority(command)
        elif isinstance(command, job.TopJob):
            command = self._with_priorities(command)
        # the core refuses other callers, so their groups are not needed
        elif administers(self._context.machine.state, caller):
            known = self._context.identity.gid_of
            if isinstance(command, cluster.CreatePartition):
                command = replace(command, partition=with_group_numbers(command.partition, known))
            elif isinstance(command, cluster.UpdatePartition):
                command = replace(command, changes=with_changed_numbers(command.changes, known))
        self._context.writer.handle(command, caller, reply)

    def _with_priorities(self, command: job.TopJob) -> job.TopJob:
        """The command with current priorities of all jobs that may change places."""
        context = self._context
        state, now = context.machine.state, context.clock.now()
        known: dict[int, int] = {}
        for target in command.targets:
            listed_job = state.jobs.get(target.job_id)
            if listed_job is not None and listed_job.id not in known and listed_job.state is JobState.PENDING:
                for other in line_of(state, listed_job):
                    known[other.id] = context.forecasts.priority_of(other, now)
        return replace(command, priorities=tuple(known.items()))

    def _with_priority(self, command: job.UpdateJob) -> job.UpdateJob:
        """The command with the job's current priority, unknown to the core: users may only lower it."""
        context = self._context
        target_job = context.machine.state.jobs.get(command.target.job_id) if "priority" in command.changes else None
        in_force = None if target_job is None else context.forecasts.of(target_job, context.clock.now()).priority
        return replace(command, priority_now=in_force)
