"""Sends requests through JobSubmitPlugins: converts commands to descriptions and back.

As in Slurm, the caller's rights are checked before the plugins run: plugins may set values that the user may not.

Source: slurm.conf(5) JobSubmitPlugins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, structs

from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.controller.api.owner import granted_to, owned
from spritz.controller.needs import Identifying, Reading
from spritz.controller.plugins.answer_lines import answering, with_lines
from spritz.core.rights import administers, operates
from spritz.model.commands.job import HoldJob, ReleaseJob, SubmitJob, UpdateJob
from spritz.model.ids import NO_VAL
from spritz.model.rejection import Rejection
from spritz.plugins.answer import FieldError
from spritz.plugins.description import Description

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call
    from spritz.controller.plugins.submit import SubmitPlugins
    from spritz.model.cluster.settings import Caller
    from spritz.model.job.record import Job, JobSpec

Reply = Callable[[Struct | None], None]
#: for each component, the fields that the caller's rights do not restrict
Granted = tuple[tuple[str, ...], ...]
#: continues with the requests as the plugins left them
Admit = Callable[[tuple[SubmitJob, ...], "Caller", Reply, Granted], Struct | Deferred]

#: commands that plugins see as updates, with the fields that they change
STEERING: dict[type[Struct], dict[str, Any]] = {HoldJob: {"priority": 0}, ReleaseJob: {"priority": None}}


class Passing(Identifying, Reading, Protocol):
    """What plugins are told about a request."""


class PluginRequests:
    """One call on its way through the plugins."""

    __slots__ = ("_call", "_caller", "_context", "_lines", "_plugins")

    def __init__(self, context: Passing, plugins: SubmitPlugins, caller: Caller, call: Call) -> None:
        self._context = context
        self._plugins = plugins
        self._caller = caller
        self._call = call
        self._lines: tuple[str, ...] = ()

    # Submissions

    def submit(self, admit: Admit, commands: tuple[SubmitJob, ...]) -> Deferred:
        """Pass each component through the plugins, in order; the first refusal is the answer."""
        self._component(admit, commands, 0, ())
        return DEFERRED

    def _component(self, admit: Admit, commands: tuple[SubmitJob, ...], place: int, granted: Granted) -> None:
        if place == len(commands):
            self._contained(lambda: self._finish(admit(commands, self._caller, self._reply(), granted)))
            return
        command = commands[place]
        spec = owned(self._context, command.spec, self._caller)
        state = self._context.machine.state
        if not operates(state, self._caller):
            refused = "ESLURM_INVALID_NICE" if spec.nice < 0 else "ESLURM_ACCESS_DENIED"
            if spec.nice < 0 or spec.priority is not None:
                self._answer(Rejection(code=refused))
                return
        already = granted_to(self._call, spec)
        if not administers(state, self._caller):
            comment = spec.admin_comment if "admin_comment" in already else ""
            spec = structs.replace(spec, admin_comment=comment, system_comment="")
        facts = self._facts(spec, command, place if len(commands) > 1 else NO_VAL)
        description = Description.of_spec(spec, command.script, command.environment, facts)

        def settle(refusal: Rejection | None, lines: tuple[str, ...]) -> None:
            self._lines += lines
            if refusal is not None:
                self._answer(refusal)
                return
            try:
                changed = self._changed(command, spec, description)
            except FieldError as error:
                self._lines += (str(error),)
                self._answer(Rejection(code="SLURM_ERROR", message="Unspecified error"))
                return
            admitted = (*commands[:place], changed, *commands[place + 1 :])
            names = (*granted, tuple(sorted({*description.changed, *already})))
            self._component(admit, admitted, place + 1, names)

        def end(refusal: Rejection | None, lines: tuple[str, ...]) -> None:
            self._contained(lambda: settle(refusal, lines))

        self._contained(lambda: self._plugins.submit(description, self._caller, end, self._gone))

    def _changed(self, command: SubmitJob, spec: JobSpec, description: Description) -> SubmitJob:
        fresh = description.spec() if description.changed or description.min_cpus is not None else spec
        return structs.replace(
            command, spec=fresh, script=description.script, environment=tuple(description.environment)
        )

    def _facts(self, spec: JobSpec, command: SubmitJob, offset: int) -> dict[str, Any]:
        rules = self._context.machine.state.rules
        account = spec.account or rules.default_account(spec.user)
        association = rules.association(account, spec.user, spec.partitions[0] if spec.partitions else "")
        return {
            "default_account": rules.default_account(spec.user) or None,
            "default_qos": (association.default_qos or None) if association is not None else None,
            "assoc_qos": ",".join(sorted(association.qos)) if association is not None else None,
            "immediate": int(command.immediate_seconds is not None),
            "het_job_offset": offset,
        }

    # Updates

    def modify(self, command: Struct, job: Job, hand_over: Callable[[Struct, Reply], None]) -> Deferred:
        """An update, a hold or a release of `job`. `hand_over` gives a command to the core."""
        fixed = STEERING.get(type(command))
        changes = dict(command.changes) if isinstance(command, UpdateJob) else dict(fixed or {})
        spec = job.spec
        facts = {"comment": spec.comment, "work_dir": spec.work_dir, "user_name": spec.user}
        description = Description(changes, facts=facts, job_id=job.id)

        def settle(refusal: Rejection | None, lines: tuple[str, ...]) -> None:
            self._lines = lines
            if refusal is not None:
                self._answer(refusal)
            elif isinstance(command, UpdateJob):
                hand_over(structs.replace(command, changes=description.fields), self._reply())
            else:
                self._steer(command, fixed or {}, description.fields, hand_over)

        def end(refusal: Rejection | None, lines: tuple[str, ...]) -> None:
            self._contained(lambda: settle(refusal, lines))

        self._contained(lambda: self._plugins.modify(description, job, self._caller, end, self._gone))
        return DEFERRED

    def _steer(
        self,
        command: HoldJob | ReleaseJob | Struct,
        fixed: dict[str, Any],
        fields: dict[str, Any],
        hand_over: Callable[[Struct, Reply], None],
    ) -> None:
        """Other fields that a plugin has changed become an update of their own, before the hold or release."""
        more = {name: value for name, value in fields.items() if fixed.get(name, ...) != value}
        reply = self._reply()
        if not more:
            hand_over(command, reply)
            return
        assert isinstance(command, (HoldJob, ReleaseJob)), "only these steer"

        def then(body: Struct | None) -> None:
            if isinstance(body, Rejection):
                reply(body)
            else:
                hand_over(command, reply)

        hand_over(UpdateJob(target=command.target, changes=more), then)

    # Answers

    def _gone(self) -> bool:
        return self._call.abandoned

    def _reply(self) -> Reply:
        return answering(self._call, self._lines)

    def _answer(self, body: Struct) -> None:
        self._call.reply(with_lines(body, self._lines))

    def _finish(self, result: Struct | Deferred) -> None:
        if not isinstance(result, Deferred):
            self._answer(result)

    def _contained(self, work: Callable[[], None]) -> None:
        """Answer the request even if an internal error occurs."""
        try:
            work()
        except Exception as error:
            self._call.crashed(error)
