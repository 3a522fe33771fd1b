"""SubmitJob: resolves the owner, stores the script, and checks whether the job could run.

Users and groups are looked up before (`lookups`) and filled in here, so that the command is complete when it reaches
the core. Script and environment become blobs; the core sees only their keys.

Source: sbatch(1); slurm.conf(5) SchedulerParameters=max_script_size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.controller.api.owner import granted_to, owned
from spritz.controller.api.plugin_requests import Granted, PluginRequests, Reply
from spritz.controller.api.will_run import Estimates
from spritz.controller.journal.blobs import USER_BYTES_MAX, environment_blob
from spritz.controller.journal.kept import Storing
from spritz.controller.needs import Clocked, Configured, Identifying, Logged, Reading
from spritz.controller.writer.durable import Writing
from spritz.core.decide.submission.crontab import refusal as crontab_refusal
from spritz.core.decide.submission.spec import ENVIRONMENT_BYTES_MAX
from spritz.core.decide.submission.submit import known_submission
from spritz.model.cluster.settings import SYSTEM
from spritz.model.commands.crontab import UpdateCrontab
from spritz.model.commands.job import SubmitHetJob, SubmitJob
from spritz.model.federation import QueueSibling, SiblingAnswer
from spritz.model.rejection import Rejection
from spritz.runtime.directory import group_name_of, person_of
from spritz.runtime.zone import calendar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.client.channel.handling import Call
    from spritz.controller.plugins.submit import SubmitPlugins
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.model.cluster.settings import Caller
    from spritz.model.federation import PutSibling
    from spritz.model.job.record import JobSpec
    from spritz.runtime.directory import Question


class Submitting(Clocked, Configured, Identifying, Logged, Reading, Storing, Writing, Protocol):
    """What a submission needs before the core decides it."""

    @property
    def check_request(self) -> Callable[[JobSpec], tuple[str, str] | None]: ...

    @property
    def check_whole(self) -> Callable[[Sequence[JobSpec]], tuple[str, str] | None]: ...

    @property
    def forecasts(self) -> Forecasts: ...

    @property
    def submit_plugins(self) -> SubmitPlugins | None: ...


class Submissions:
    """Answers SubmitJob and SubmitHetJob; `--test-only` goes to `will_run`."""

    def __init__(self, context: Submitting) -> None:
        self._context = context
        self._estimates = Estimates(context)

    def lookups(self, command: SubmitJob | SubmitHetJob | UpdateCrontab, caller: Caller) -> list[Question]:
        """Users and groups that an administrator names; other callers submit for themselves."""
        if not caller.admin:
            return []
        if isinstance(command, UpdateCrontab):
            components = command.jobs
        else:
            components = command.components if isinstance(command, SubmitHetJob) else (command,)
        users: list[Question] = [(person_of, component.spec.uid) for component in components if component.spec.uid >= 0]
        return users + [(group_name_of, component.spec.gid) for component in components if component.spec.gid >= 0]

    def submit(self, command: SubmitJob, call: Call) -> Struct | Deferred:
        """Store script and environment, then decide. The answer is sent when the job is on disk."""
        context = self._context
        caller = context.identity.caller(call)
        if known_submission(context.machine.state, command, caller):
            return self._again(command, caller, call)
        refusal = self._refused(command, caller)
        if refusal is not None:
            return refusal
        plugins = context.submit_plugins
        if plugins is not None:
            return PluginRequests(context, plugins, caller, call).submit(self._admit, (command,))
        return self._admit((command,), caller, call.reply, (granted_to(call, command.spec),))

    def submit_het(self, command: SubmitHetJob, call: Call) -> Struct | Deferred:
        """Submit all components of a heterogeneous job together, in the same way."""
        context = self._context
        caller = context.identity.caller(call)
        if command.components and known_submission(context.machine.state, command.components[0], caller):
            return self._again(command, caller, call)
        for component in command.components:
            refusal = self._refused(component, caller)
            if refusal is not None:
                return refusal
        plugins = context.submit_plugins
        if plugins is not None and command.components:
            return PluginRequests(context, plugins, caller, call).submit(self._admit_het, command.components)
        granted = tuple(granted_to(call, component.spec) for component in command.components)
        return self._admit_het(command.components, caller, call.reply, granted)

    def update_crontab(self, command: UpdateCrontab, call: Call) -> Struct | Deferred:
        """A crontab with the jobs of its entries: all are accepted, or none."""
        context = self._context
        caller = context.identity.caller(call)
        uid = command.uid if command.uid >= 0 else caller.uid
        if uid != caller.uid and not caller.admin:
            return Rejection(code="ESLURM_ACCESS_DENIED")
        zone = calendar(None, context.clock.now())
        jobs = []
        for submission in command.jobs:
            entry = submission.spec.cron
            cron = structs.replace(entry, **zone) if entry is not None else None
            job = structs.replace(
                submission, spec=structs.replace(submission.spec, cron=cron, uid=uid), test_only=False
            )
            refusal = self._refused(job, caller)
            if refusal is not None:
                return crontab_refusal(job, refusal.code, refusal.hint)
            jobs.append(job)

        def admit(
            jobs: tuple[SubmitJob, ...], caller: Caller, reply: Reply, granted: Granted = ()
        ) -> Struct | Deferred:
            stamped = [
                self._stored(submission, caller, granted[at] if granted else ()) for at, submission in enumerate(jobs)
            ]
            for submission in stamped:
                once = structs.replace(submission, spec=structs.replace(submission.spec, cron=None))
                impossible = self._impossible(once, caller)
                if impossible is not None:
                    return crontab_refusal(submission, impossible.code, impossible.hint)
            context.writer.handle(structs.replace(command, jobs=tuple(stamped)), caller, reply)
            return DEFERRED

        plugins = context.submit_plugins
        if plugins is not None and jobs:
            return PluginRequests(context, plugins, caller, call).submit(admit, tuple(jobs))
        return admit(tuple(jobs), caller, call.reply)

    async def queue_sibling(self, request: PutSibling, reply: Reply) -> SiblingAnswer | None:
        """A copy of another cluster's job: as if its user had submitted it here, under the job's number. None: the
        writer replies. JobSubmitPlugins have seen the job at its origin.
        """
        context, spec = self._context, request.spec
        command = SubmitJob(spec=spec, script=request.script, environment=request.environment)
        await context.identity.directory.ask(self.lookups(command, SYSTEM))
        unfit = self._cannot_run_as(spec.uid) or self._too_large(command)
        if unfit is None:
            command = self._stored(command, SYSTEM, ())
            unfit = self._impossible(command, SYSTEM)
        if unfit is not None:
            return SiblingAnswer(refusal=unfit.text)
        queue = QueueSibling(
            submission=command,
            job_id=request.job_id,
            origin=request.origin,
            copy=request.copy,
            restart_count=request.restart_count,
        )
        context.writer.handle(queue, SYSTEM, reply)
        return None

    def _again(self, command: SubmitJob | SubmitHetJob, caller: Caller, call: Call) -> Deferred:
        """Already queued: the core returns its id once durable. Plugins do not see it again."""
        self._context.writer.handle(command, caller, call.reply)
        return DEFERRED

    def _refused(self, command: SubmitJob, caller: Caller) -> Rejection | None:
        """Refusals that need no further checks."""
        uid = command.spec.uid
        if uid not in (-1, caller.uid) and not caller.admin:
            return Rejection(code="ESLURM_USER_ID_MISSING", hint="only administrators may submit for other users")
        if command.spec.gid not in (-1, caller.gid, *caller.groups) and not caller.admin:
            return Rejection(code="ESLURM_GROUP_ID_MISSING", hint="the job's group must be one of its user's")
        runs_as = uid if uid >= 0 else caller.uid
        unfit = self._cannot_run_as(runs_as) or self._too_large(command)
        return unfit or self._holds_too_much(command, runs_as, caller)

    def _admit(
        self, commands: tuple[SubmitJob, ...], caller: Caller, reply: Reply, granted: Granted = ((),)
    ) -> Struct | Deferred:
        """Store and decide one job."""
        context = self._context
        stamped = self._stored(commands[0], caller, granted[0])
        if stamped.test_only:
            self._estimates.answer(stamped, caller, reply)
            return DEFERRED
        impossible = self._impossible(stamped, caller)
        if impossible is not None:
            return impossible
        context.writer.handle(stamped, caller, reply)
        return DEFERRED

    def _admit_het(
        self, commands: tuple[SubmitJob, ...], caller: Caller, reply: Reply, granted: Granted = ()
    ) -> Struct | Deferred:
        """Store and decide all components of one job."""
        context = self._context
        stamped = []
        for offset, component in enumerate(commands):
            # only the leader has a script
            stored = component if not offset else structs.replace(component, script=b"", environment=())
            stamped.append(self._stored(stored, caller, granted[offset] if granted else ()))
        whole = SubmitHetJob(components=tuple(stamped))
        if stamped and stamped[0].test_only:
            self._estimates.answer(whole, caller, reply)
            return DEFERRED
        impossible = self._impossible_whole(whole, caller)
        if impossible is not None:
            return impossible
        context.writer.handle(whole, caller, reply)
        return DEFERRED

    def _impossible_whole(self, command: SubmitHetJob, caller: Caller) -> Rejection | None:
        context = self._context
        try:
            refusal = context.check_whole([component.spec for component in command.components])
        except ValueError:
            return None
        if refusal is None or not command.components:
            return None
        first, *others = command.components
        trial = SubmitHetJob(components=(structs.replace(first, test_only=True), *others))
        if context.machine.check(trial, context.clock.now(), caller).rejection is not None:
            return None  # the core's message is better
        code, words = refusal
        return Rejection(code=code, hint=words)

    def _impossible(self, command: SubmitJob, caller: Caller) -> Rejection | None:
        """A request that the core would accept but no set of nodes could ever serve."""
        context = self._context
        try:
            refusal = context.check_request(command.spec)
        except ValueError:  # an unreadable expression: the core refuses it
            return None
        if refusal is None:
            return None
        tried = context.machine.check(structs.replace(command, test_only=True), context.clock.now(), caller).rejection
        code, words = refusal
        if tried is not None and (tried.code != code or tried.details or tried.hint):
            return None  # the core's message is better
        return Rejection(code=code, hint=words)

    def _cannot_run_as(self, uid: int) -> Rejection | None:
        """Refuses users without an entry, unless slurmd runs as that user (as in containers), and other users if slurmd
        does not run as root.
        """
        context = self._context
        runner, entry = context.configuration.slurmd_user, context.configuration.slurmd_user_entry
        runner_uid = -1 if entry is None else entry.uid
        if uid != runner_uid and not context.identity.person(uid).known:
            return Rejection(code="ESLURM_USER_ID_MISSING", hint=f"the controller's machine has no user with uid {uid}")
        if runner_uid not in (0, uid):
            return Rejection(
                code="ESLURM_USER_ID_MISSING",
                hint=f"slurmd runs as {runner} (SlurmdUser), and so do all jobs of this cluster",
            )
        return None

    def _too_large(self, command: SubmitJob) -> Rejection | None:
        limit = self._context.configuration.settings.max_script_bytes
        if len(command.script) > limit:
            return Rejection(
                code="ESLURM_PATHNAME_TOO_LONG",
                hint=f"the script has {len(command.script)} bytes; SchedulerParameters=max_script_size is {limit}",
            )
        if sum(map(len, command.environment)) > ENVIRONMENT_BYTES_MAX:
            return Rejection(
                code="ESLURM_PATHNAME_TOO_LONG",
                hint=f"the environment is larger than {ENVIRONMENT_BYTES_MAX} bytes; --export=NONE leaves it out",
            )
        return None

    def _holds_too_much(self, command: SubmitJob, uid: int, caller: Caller) -> Rejection | None:
        """Scripts stay on disk while their jobs are known: no user may fill it."""
        size = len(command.script) + sum(map(len, command.environment))
        held = self._context.blobs.held_bytes(uid)
        if caller.admin or held + size <= USER_BYTES_MAX:
            return None
        return Rejection(
            code="ESLURM_PATHNAME_TOO_LONG",
            hint=f"the scripts and environments of your jobs hold {held >> 20} MiB; "
            f"the limit is {USER_BYTES_MAX >> 20} MiB until some of the jobs end and are forgotten (MinJobAge)",
        )

    def _stored(self, command: SubmitJob, caller: Caller, granted: tuple[str, ...]) -> SubmitJob:
        """The request with its owner, and with blob keys for script and environment."""
        context = self._context
        spec, blobs, store = owned(context, command.spec, caller), context.blobs, not command.test_only
        stamped = structs.replace(
            spec,
            script_key=blobs.put(command.script, spec.uid) if store else "",
            environment_key=blobs.put(environment_blob(command.environment), spec.uid) if store else "",
        )
        return structs.replace(command, spec=stamped, script=b"", environment=(), granted=granted)
